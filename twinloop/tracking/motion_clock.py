"""Offset and drift between a camera's and a robot's clock, from one motion that both saw.

Where the clocks share no epoch (a video from 0, a log in Unix time) contact cannot be tried at
every offset. Speeds do not depend on frames or places: their normalised cross-correlation over all
lags gives candidates, a continuous least-squares fit of the positions decides among them:

    camera_position(t) = gain R robot_position(t + offset + drift (t - centre)) + shift.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline

from twinloop.errors import InputError
from twinloop.tracking.motion_fit import Refined, refine
from twinloop.tracking.speed_correlation import best_peaks, correlation, speed

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

LONGEST = 48 * 3600.0
"""Longest recording, s: stamps in other units than seconds must not fill the memory."""
ODDS = 100.0
"""A second offset is set aside when the data are so many times less likely with it."""


@dataclass(frozen=True)
class ClockFit:
    """robot_time = camera_time + offset + drift (camera_time - centre).

    offset, offset_std: s, at `centre`; drift, drift_std: s/s; centre: s, camera clock; gain: way of
    what the camera saw over way of the robot; residual: m, rms of the positions; overlap: s that
    both recorded; correlation: of the speeds, -1 to 1; source: what it comes from; problem: why
    nothing can be said (all figures NaN but those that were found), or None.
    """

    offset: float
    offset_std: float
    drift: float
    drift_std: float
    centre: float
    gain: float
    residual: float
    overlap: float
    correlation: float
    source: str = "motion"
    problem: str | None = None


def unknown(problem: str, overlap: float = 0.0, correlation: float = float("nan")) -> ClockFit:
    """A fit that says nothing, and why."""
    nan = float("nan")
    return ClockFit(nan, nan, nan, nan, nan, nan, nan, overlap, correlation, problem=problem)


def align_by_motion(
    camera_time: Array,
    camera_position: Array,
    usable: Flags,
    robot_time: Array,
    robot_position: Array,
    *,
    largest: float | None = None,
    drift: bool = True,
    same_frame: bool = True,
    least_overlap: float = 0.5,
) -> ClockFit:
    """Find the clock offset (and drift) under which two recordings show one motion.

    Args:
        camera_time: (n,) s camera clock, increasing.
        camera_position: (n, 3) m of what the robot carries or pushes.
        usable: (n,) which positions can be trusted.
        robot_time: (m,) s robot clock, increasing.
        robot_position: (m, 3) m. Of a push: the fingertip's way while it touches (`carried`).
        largest: s, the offset is sought within +- this; None: at every lag with enough overlap.
        drift: Whether the clocks may run at different rates.
        same_frame: Both positions are in one frame but for a shift; else the rotation is sought.
        least_overlap: Least part of the shorter recording that both must share.

    Returns:
        The fit; `problem` says why where the offset cannot be told (no motion, periodic motion).

    Raises:
        InputError: Times do not increase or are not seconds, or nothing overlaps within `largest`.
    """
    _check(camera_time, "the camera")
    _check(robot_time, "the robot")
    times, seen = camera_time[usable], camera_position[usable]
    if len(times) < 8:
        return unknown(f"{len(times)} usable camera positions, expected at least 8")
    camera, robot = speed(times, seen), speed(robot_time, robot_position)
    lags, score = correlation(camera, robot, least_overlap)
    if largest is not None:
        score = np.where(np.abs(lags) <= largest, score, -np.inf)
    if not np.isfinite(score).any():
        if largest is not None and not (np.abs(lags) <= largest).any():
            raise InputError(
                f"The camera recorded from {times[0]:.3f} to {times[-1]:.3f} s, the robot from "
                f"{robot_time[0]:.3f} to {robot_time[-1]:.3f} s: within offsets of {largest} s "
                "they do not overlap. Check which log belongs to which video."
            )
        return unknown("no motion in what both recorded")
    centre = float(0.5 * (times[0] + times[-1]))
    origin = float(robot_time[0])
    spline = CubicSpline(robot_time - origin, robot_position, axis=0)
    fits = []
    for k in best_peaks(score):
        start = float(lags[k])
        fit = refine(times - centre, seen, spline, centre - origin + start, drift, same_frame)
        if fit is None or (largest is not None and abs(start + fit.value[0]) > largest):
            continue
        fits.append((fit, start, float(score[k])))
    if not fits:
        return unknown("no lag fits the positions", correlation=float(score.max()))
    return _choose(fits, centre)


def _check(time: Array, whose: str) -> None:
    if len(time) < 2 or not np.isfinite(time).all() or (np.diff(time) <= 0).any():
        raise InputError(f"The times of {whose} do not increase, or there are under two of them.")
    if time[-1] - time[0] > LONGEST:
        raise InputError(
            f"The times of {whose} span {time[-1] - time[0]:.4g} s, expected below "
            f"{LONGEST:.0f} s; are they in milliseconds or nanoseconds?"
        )


def _choose(fits: list[tuple[Refined, float, float]], centre: float) -> ClockFit:
    """The candidate (refined, lag s, correlation) that fits best, unless another fits as well."""
    best, lag, score = min(fits, key=lambda f: f[0].misfit)
    offset, std = lag + best.value[0], float(best.std[0])
    gain, doubt = float(best.value[2]), float(best.std[2])
    problem = None
    if gain < 5 * doubt:
        problem = f"the two motions do not agree (gain {gain:.2f} +- {doubt:.2f})"
    for other, where, _ in fits:
        apart = abs(where + other.value[0] - offset)
        ratio = best.independent * (other.misfit - best.misfit)
        if apart > max(5 * std, 0.01) and ratio < 2 * np.log(ODDS):
            second = where + other.value[0]
            problem = f"offsets {offset:.4f} and {second:.4f} s fit alike; is the motion periodic?"
    fit = ClockFit(
        offset=offset,
        offset_std=std,
        drift=float(best.value[1]),
        drift_std=float(best.std[1]),
        centre=centre,
        gain=gain,
        residual=best.residual,
        overlap=best.overlap,
        correlation=score,
        problem=problem,
    )
    if problem is None:
        return fit
    return replace(fit, offset=float("nan"), offset_std=float("nan"), drift=float("nan"))
