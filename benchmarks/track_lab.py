"""Lab pushes: every object's clips tracked with its twin, and all objects together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.rows import RESULTS, Figure
from benchmarks.track_plots import draw
from benchmarks.track_run import Tracking, load, save, track_sequence
from benchmarks.track_scenes import KEPT, RECIPES, objects, sequences
from benchmarks.track_scores import (
    Scores,
    calibration,
    figure,
    join,
    mean,
    p95,
    rate,
    safety,
    score,
)
from benchmarks.track_sequence import Sequence
from twinloop.metrics.recall import area_under_recall

ADD_MEAN, ADD_P95, ROTATION = 1.0, 2.0, 1.0
"""Targets: mm, mm, deg."""


def tracked(name: str, kept: Path) -> list[Tracking]:
    """All clips of an object tracked now, and kept in a file."""
    runs = [track_sequence(s) for s in sequences(name)]
    save(kept, runs)
    return runs


def scored(name: str, runs: list[Tracking]) -> tuple[list[Sequence], Scores, Scores]:
    """The clips of runs with the scores of all frames, frame by frame and smoothed."""
    by_name = {s.name: s for s in sequences(name)}
    clips = [by_name[run.name] for run in runs]
    pairs = list(zip(runs, clips, strict=True))
    raw = join([score(run.raw, clip) for run, clip in pairs])
    return clips, raw, join([score(run.smooth, clip) for run, clip in pairs])


def accuracy(name: str, way: str, s: Scores, *, full: bool) -> list[Figure]:
    """ADD of all frames and of ok frames, absolute and since the first frame; rotation."""
    out = []
    for which, chosen in (("all", np.ones(len(s.add), bool)), ("ok", s.ok)):
        clip = s.clip[chosen]
        aim = full or (way == "smoothed" and which == "all")
        kinds = [("ADD", s.add)]
        if full or way == "smoothed":
            kinds.append(("ADD since the first frame", s.relative))
        for what, values in kinds:
            label, mm = f"{name}, {way}, {which} frames: {what}", 1e3 * values[chosen]
            out.append(figure(f"{label}, mean", mm, clip, mean, "mm", ADD_MEAN if aim else None))
            out.append(figure(f"{label}, p95", mm, clip, p95, "mm", ADD_P95 if aim else None))
        degrees = np.degrees(s.rotation[chosen])
        label = f"{name}, {way}, {which} frames: rotation, mean"
        out.append(figure(label, degrees, clip, mean, "deg", ROTATION if aim else None))
    return out


def object_figures(name: str, kept: Path) -> list[Figure]:
    """One object: accuracy, silent errors, calibration, cost; with a plot of its clips."""
    runs = tracked(name, kept)
    clips, raw, smooth = scored(name, runs)
    panels = []
    for i, (run, clip) in enumerate(zip(runs, clips, strict=True)):
        parts = [score(t, clip) for t in (run.raw, run.smooth)]
        start = f"start {run.method}{'' if run.sure else ', unsure'}"
        title = f"{clip.name}: {run.modes}, {start}, {1e3 * run.seconds.mean():.0f} ms a frame"
        panels.append((title, run.smooth.time, parts[0], parts[1]))
        assert len(parts[0].add) == (raw.clip == i).sum()
    draw(RESULTS / f"track_{name}.png", panels, 10.0)
    sure = np.array([run.sure for run in runs])
    return [
        *accuracy(name, "smoothed", smooth, full=False),
        *accuracy(name, "frame by frame", raw, full=False),
        *safety(name, smooth),
        *calibration(f"{name}, smoothed", smooth, targets=False),
        *calibration(f"{name}, frame by frame", raw, targets=False),
        rate(f"{name}: starts found and sure", sure, None),
        Figure(
            f"{name}: CPU time of a start, worst",
            max(run.start_seconds for run in runs),
            "s",
            None,
            "lower",
            len(runs),
        ),
        Figure(
            f"{name}: CPU time of a frame ({runs[0].modes})",
            1e3 * float(np.mean(np.concatenate([run.seconds for run in runs]))),
            "ms",
            None,
            "lower",
            sum(len(run.used) for run in runs),
        ),
    ]


def all_figures(kept_at: Callable[[str], Path]) -> list[Figure]:
    """All objects together, from what their rows kept; an object whose row has not run is tracked.

    `kept_at` gives the file of an object's runs.
    """
    raws, smooths, plain = [], [], 0
    for name in objects():
        kept = kept_at(name)
        runs = load(kept) if kept.is_file() else tracked(name, kept)
        _, raw, smooth = scored(name, runs)
        raws.append(raw)
        smooths.append(smooth)
        plain += RECIPES[name].plain is not None
    raw, smooth = join(raws), join(smooths)
    every = "all objects"
    hidden = smooth.occluded >= 0.75
    worst = [float(s.add.mean()) for s in smooths]
    return [
        Figure(f"{every}: objects", len(smooths), "", 8, "higher", int(smooth.clip.max()) + 1),
        Figure(f"{every}: objects without print", plain, "", 3, "higher", len(smooths)),
        Figure(f"{every}: frames 75-100 % hidden", int(hidden.sum()), "", 1, "higher", len(hidden)),
        *accuracy(every, "smoothed", smooth, full=True),
        *accuracy(every, "frame by frame", raw, full=True),
        *safety(f"{every}, smoothed", smooth),
        *safety(f"{every}, frame by frame", raw),
        *calibration(f"{every}, smoothed", smooth),
        *calibration(f"{every}, frame by frame", raw),
        figure(
            f"{every}, smoothed: ADD-S, area under recall to 10 cm",
            smooth.adds,
            smooth.clip,
            area_under_recall,
            "",
            None,
            "higher",
        ),
        figure(
            f"{every}, smoothed: ADD, area under recall to 10 cm",
            smooth.add,
            smooth.clip,
            area_under_recall,
            "",
            None,
            "higher",
        ),
        figure(f"{every}, smoothed: MSSD, mean", 1e3 * smooth.mssd, smooth.clip, mean, "mm", None),
        Figure(
            f"{every}, smoothed: ADD of the worst object, mean",
            1e3 * max(worst),
            "mm",
            None,
            "lower",
            len(worst),
        ),
    ]


def scene_glob(name: str) -> str:
    """Glob below the project root of what a scene's figures depend on, if it is there."""
    folder = KEPT.relative_to(KEPT.parents[2])
    return f"{folder}/{name}-*/truth.npz"
