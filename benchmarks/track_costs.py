"""What a frame costs: by mode, by the clip's length, and with clips side by side."""

from __future__ import annotations

import os
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context

import numpy as np

from benchmarks.rows import Figure
from benchmarks.track_run import Known, known, prepared, start_of, track_sequence
from benchmarks.track_scenes import sequences
from benchmarks.track_sequence import Sequence
from twinloop.tracking.frame import Frame

PRINTED, PLAIN = "spam", "letter_u_plain"
CYCLES, CLIPS = 3, 8
REPEATS = 3
"""The fastest of so many counts: other work on the machine makes it slower, nothing faster."""


def back_and_forth(frames: list[Frame], count: int) -> list[Frame]:
    """`count` frames of a clip played forwards, backwards, forwards ..., at an even rate."""
    step = float(np.median(np.diff([f.time for f in frames])))
    order = [*range(len(frames)), *range(len(frames) - 2, 0, -1)]
    return [
        replace(frames[order[i % len(order)]], time=frames[0].time + i * step) for i in range(count)
    ]


def _ready(name: str) -> tuple[Sequence, Known, list[Frame]]:
    """First clip of an object with its start pose, so that the frames alone are timed."""
    sequence = sequences(name)[0]
    k = known(sequence)
    frames = list(prepared(sequence, k.model))
    start, _ = start_of(sequence, frames, k)
    assert start is not None, f"{name}: not found in the first frame"
    return replace(sequence, start=start.solution.pose), k, frames


def _fastest(
    sequence: Sequence, k: Known, frames: list[Frame], modes: dict[str, bool], repeats: int
) -> tuple[float, float]:
    """CPU seconds of a frame: the mean, and the median."""
    runs = [track_sequence(sequence, k, modes, frames).seconds for _ in range(repeats)]
    best = min(runs, key=lambda seconds: float(seconds.mean()))
    return float(best.mean()), float(np.median(best))


def _whole(number: int) -> int:
    """All that a clip takes, from reading its twin on; returns the number of frames."""
    sequence, k, frames = _ready((PRINTED, PLAIN)[number % 2])
    return len(track_sequence(sequence, k, None, frames).used)


def speed() -> list[Figure]:
    """Frames a second of one core at 640 x 480, frames decoded; and flat cost in clip length."""
    figures = []
    for word, name, modes, target in (
        ("region", PLAIN, {"texture": False}, 30.0),
        ("region", PRINTED, {"texture": False}, 30.0),
        ("region and texture", PRINTED, {"texture": True}, 20.0),
    ):
        sequence, k, frames = _ready(name)
        track_sequence(sequence, k, modes, frames[:10])  # compiles and caches
        seconds, middle = _fastest(sequence, k, frames, modes, REPEATS)
        figures.append(
            Figure(
                f"{name}, {word}: frames/s of one core",
                1 / seconds,
                "1/s",
                target,
                "higher",
                len(frames) * REPEATS,
                peer="prototype 48-59 region, 13-18 with texture (its own record; not run)",
            )
        )
        figures.append(
            Figure(
                f"{name}, {word}: frames/s of one core, by the median frame",
                1 / middle,
                "1/s",
                None,
                "higher",
                len(frames),
            )
        )
        # The same pictures once and several times over: what hides the object costs more by itself.
        once = 2 * len(frames) - 2
        short, _ = _fastest(sequence, k, back_and_forth(frames, once), modes, REPEATS - 1)
        long, _ = _fastest(sequence, k, back_and_forth(frames, CYCLES * once), modes, 1)
        figures.append(
            Figure(
                f"{name}, {word}: a frame's cost in {CYCLES * once} frames over that in {once}",
                long / short,
                "",
                1.2,
                "lower",
                CYCLES * once,
            )
        )
    begin = time.process_time()
    count = sum(1 for _ in sequence.frames())
    spent = 1e3 * (time.process_time() - begin) / count
    name = "decoding and undistorting a frame, not counted above"
    figures.append(Figure(name, spent, "ms", None, "lower", count))
    return figures


def parallel() -> list[Figure]:
    """Eight clips in as many processes as there are cores, against one process."""
    cores = len(os.sched_getaffinity(0))
    os.environ |= {"OMP_NUM_THREADS": "1", "TWINLOOP_THREADS": "1"}
    walls = {}
    for workers in (1, cores):
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            begin = time.perf_counter()
            list(pool.map(_whole, range(CLIPS)))
            walls[workers] = time.perf_counter() - begin
    gain = walls[1] / walls[cores]
    return [
        Figure(
            f"{CLIPS} clips in {cores} processes: speed-up over one, per core",
            gain / cores,
            "",
            0.8,
            "higher",
            CLIPS,
        )
    ]
