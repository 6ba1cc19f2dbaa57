"""Third-party sequences: a rendered box with exact poses, two real objects that stand still."""

from __future__ import annotations

import numpy as np

from benchmarks.rows import RESULTS, Figure
from benchmarks.track_plots import draw
from benchmarks.track_real import rbt, teabox
from benchmarks.track_run import Tracking, track_sequence
from benchmarks.track_scores import calibration, rate, score, squared
from benchmarks.track_sequence import Array, Sequence
from twinloop.geometry import se3
from twinloop.metrics.poses import rotation_angle
from twinloop.tracking.pose_track import OK, PoseTrack
from twinloop.tracking.solver import rotation_log

RECORDED = "prototype {} (its own record; not run)"
"""Of the peer: its tracker needs a ray caster that this project does without."""
BOX_MEAN, BOX_MAX = 0.7, 1.4
STILL = {False: 5.0, True: 2.0}
"""mm, 90th percentile of what two resting objects seem to move, without and with depth."""
STILL_PEER = {False: "3.0 / 6.9 / 9.8", True: "0.84 / 2.8 / 8.6"}
LIMITS = {("cube", False): (30.0, 10.0), ("cube", True): (30.0, 10.0)}
LIMITS |= {("dragon", False): (30.0, 10.0), ("dragon", True): (25.0, 8.0)}
"""mm, deg, that the test of the recording's authors allows their own tracker."""
LIMITS_PEER = {("cube", False): ("20.1", "2.6"), ("cube", True): ("23.6", "2.7")}
LIMITS_PEER |= {("dragon", False): ("21.4", "5.4"), ("dragon", True): ("20.7", "3.9")}


def box() -> list[Figure]:
    """The tea box, with and without depth; ADD over its corners."""
    figures, panels = [], []
    for depth in (False, True):
        sequence = teabox(depth)
        run = track_sequence(sequence)
        title = f"{sequence.name}: {run.modes}, {1e3 * run.seconds.mean():.0f} ms a frame"
        pair = [score(run.raw, sequence), score(run.smooth, sequence)]
        panels.append((title, run.raw.time, pair[0], pair[1]))
        for way, s in zip(("frame by frame", "smoothed"), pair, strict=True):
            name, n = f"{sequence.name}, {way}", len(s.add)
            mm, degrees = 1e3 * s.add, np.degrees(s.rotation)
            told = "0.78 / 1.52 mean / max, region alone" if not depth else None
            peer = RECORDED.format(told) if told else "not run"
            figures += [
                Figure(
                    f"{name}: ADD, mean", float(mm.mean()), "mm", BOX_MEAN, "lower", n, peer=peer
                ),
                Figure(f"{name}: ADD, max", float(mm.max()), "mm", BOX_MAX, "lower", n, peer=peer),
                Figure(f"{name}: rotation, mean", float(degrees.mean()), "deg", None, "lower", n),
                rate(f"{name}: frames ok", s.ok, None),
                *calibration(name, s),
            ]
    draw(RESULTS / "track_teabox.png", panels, BOX_MAX)
    return figures


def between(first: PoseTrack, second: PoseTrack) -> tuple[Array, Array]:
    """`T_first_second` (n, 4, 4) and its covariance (n, 6, 6), left, in the axes of `first`.

    With p the way from the first object to the second, a change (d, w) of either pose moves the
    second one, seen from the first, by d2 - d1 - w1 x p and turns it by w2 - w1.
    """
    T = se3.inverse(first.pose) @ second.pose
    way = second.pose[:, :3, 3] - first.pose[:, :3, 3]
    J = np.tile(-np.eye(6), (len(T), 1, 1))
    J[:, :3, 3:] = se3.skew(way)
    world = J @ first.covariance @ np.swapaxes(J, 1, 2) + second.covariance
    turn = np.zeros((len(T), 6, 6))
    turn[:, :3, :3] = turn[:, 3:, 3:] = np.swapaxes(first.pose[:, :3, :3], 1, 2)
    return T, turn @ world @ np.swapaxes(turn, 1, 2)


def deviations(T: Array) -> Array:
    """How far poses (n, 4, 4) are from their middle: (n, 6) m, rad, left.

    The middle is the median of the positions and the chordal mean of the rotations.
    """
    U, _, V = np.linalg.svd(T[:, :3, :3].mean(axis=0))
    middle = U @ np.diag([1.0, 1.0, float(np.linalg.det(U @ V))]) @ V
    away = T[:, :3, 3] - np.median(T[:, :3, 3], axis=0)
    turns = np.stack([rotation_log(R @ middle.T) for R in T[:, :3, :3]])
    return np.concatenate([away, turns], axis=1)


def still_figures(name: str, cube: PoseTrack, dragon: PoseTrack, *, depth: bool) -> list[Figure]:
    """How constant the pose of two resting objects to each other is."""
    T, covariance = between(cube, dragon)
    off = deviations(T)
    mm = 1e3 * np.linalg.norm(off[:, :3], axis=1)
    degrees = np.degrees(np.linalg.norm(off[:, 3:], axis=1))
    ok = (cube.status == OK) & (dragon.status == OK)
    n, told = len(mm), f"{STILL_PEER[depth]} mm median / p90 / max"
    apart = 1e3 * float(np.median(np.linalg.norm(T[:, :3, 3], axis=1)))
    shown = f"{name}: dragon to cube, {apart:.0f} mm apart"
    nees = squared(off[ok], covariance[ok]) / 6
    figures = [
        Figure(
            f"{shown}: p90 from the median",
            float(np.percentile(mm, 90)),
            "mm",
            STILL[depth],
            "lower",
            n,
            peer=RECORDED.format(told),
        ),
        Figure(f"{shown}: median", float(np.median(mm)), "mm", None, "lower", n),
        Figure(f"{shown}: max", float(mm.max()), "mm", None, "lower", n),
        Figure(f"{shown}: p90 turn", float(np.percentile(degrees, 90)), "deg", None, "lower", n),
        rate(f"{name}: frames ok, of both", ok, None),
    ]
    if ok.any():
        k = int(ok.sum())
        worst = float(np.percentile(mm[ok], 90))
        figures += [
            Figure(f"{shown}: p90, ok frames", worst, "mm", STILL[depth], "lower", k),
            Figure(f"{shown}: NEES / 6 of ok frames, mean", float(nees.mean()), "", 2, "lower", k),
            Figure(
                f"{shown}: NEES / 6 of ok frames, median",
                float(np.median(nees)),
                "",
                None,
                "lower",
                k,
            ),
        ]
    return figures


def tags_figures(name: str, track: PoseTrack, sequence: Sequence, key: tuple[str, bool]) -> list:
    """The error that the recording's authors test: against poses from tags, 90th percentile."""
    assert sequence.truth is not None
    away = 1e3 * np.linalg.norm(track.pose[:, :3, 3] - sequence.truth[:, :3, 3], axis=1)
    relative = np.swapaxes(track.pose[:, :3, :3], 1, 2) @ sequence.truth[:, :3, :3]
    degrees = np.degrees(rotation_angle(relative))
    (mm, deg), (peer_mm, peer_deg), n = LIMITS[key], LIMITS_PEER[key], len(away)
    return [
        Figure(
            f"{name}: p90 position off the tags' poses",
            float(np.percentile(away, 90)),
            "mm",
            mm,
            "lower",
            n,
            peer=RECORDED.format(peer_mm),
        ),
        Figure(
            f"{name}: p90 turn off the tags' poses",
            float(np.percentile(degrees, 90)),
            "deg",
            deg,
            "lower",
            n,
            peer=RECORDED.format(peer_deg),
        ),
        rate(f"{name}: frames ok", track.status == OK, None),
    ]


def recording(depth: bool) -> list[Figure]:
    """Cube and dragon of the real recording, each against the tags and one against the other."""
    runs: dict[str, Tracking] = {}
    figures = []
    for which in ("cube", "dragon"):
        sequence = rbt("cube" if which == "cube" else "dragon", depth)
        run = runs[which] = track_sequence(sequence)
        for way, track in (("frame by frame", run.raw), ("smoothed", run.smooth)):
            label = f"{sequence.name}, {way}"
            figures += tags_figures(label, track, sequence, (which, depth))
    kind = "RGB-D" if depth else "RGB"
    for way in ("raw", "smooth"):
        label = f"{kind}, {'frame by frame' if way == 'raw' else 'smoothed'}"
        pair = [getattr(runs[which], way) for which in ("cube", "dragon")]
        figures += still_figures(label, pair[0], pair[1], depth=depth)
    return figures
