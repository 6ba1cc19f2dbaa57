"""Speeds of two recordings and their normalised cross-correlation at every lag.

Masked correlation: D. Padfield, "Masked object registration in the Fourier domain", IEEE Trans.
Image Processing 21 (2012).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.signal import correlate, find_peaks

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

GRID = 0.01
"""Step of the speeds that are correlated, s."""
HOLE = 0.25
"""Longest time without a usable pose over which positions are interpolated, s."""


@dataclass(frozen=True)
class Speed:
    """Speed on a uniform grid: start s, value (n,) m/s, known (n,) bool."""

    start: float
    value: Array
    known: Flags


def carried(tip: Array, touching: Flags) -> Array:
    """Way (n, 3) m that the tip (n, 3) m made while `touching` (n,): a pushed object makes it too.

    Args:
        tip: (n, 3) m, centre of the fingertip.
        touching: (n,) whether the tip touches.
    """
    both = np.asarray(touching[1:] & touching[:-1], dtype=np.float64)
    steps = np.diff(tip, axis=0) * both[:, None]
    return np.concatenate([np.zeros((1, 3)), np.cumsum(steps, axis=0)])


def speed(time: Array, position: Array, half: float = 0.025) -> Speed:
    """Speed over 2 `half` s on a grid of `GRID` s; unknown in holes of the recording.

    Args:
        time: (n,) s, increasing.
        position: (n, 3) m.
        half: s, half of the time over which the way is measured.
    """
    grid = time[0] + GRID * np.arange(int((time[-1] - time[0]) / GRID) + 1)

    def at(when: Array) -> Array:
        columns = [np.interp(when, time, position[:, i]) for i in range(3)]
        return np.stack(columns, axis=1)

    value = np.linalg.norm(at(grid + half) - at(grid - half), axis=1) / (2 * half)
    right = np.clip(np.searchsorted(time, grid), 1, len(time) - 1)
    return Speed(float(grid[0]), value, np.asarray(time[right] - time[right - 1] <= HOLE))


def correlation(camera: Speed, robot: Speed, least_overlap: float) -> tuple[Array, Array]:
    """Normalised cross-correlation of two speeds at every lag.

    Returns:
        lags (k,) s, increasing: robot_time = camera_time + lag; score (k,) -1 to 1, -inf where the
        two share too little time or motion.
    """
    a, b = camera.known.astype(np.float64), robot.known.astype(np.float64)
    x = (camera.value - camera.value[camera.known].mean()) * a
    y = (robot.value - robot.value[robot.known].mean()) * b

    def cross(u: Array, v: Array) -> Array:
        return np.asarray(correlate(v, u, mode="full", method="fft"), dtype=np.float64)

    n = np.maximum(cross(a, b).round(), 0.0)
    safe = np.maximum(n, 1.0)
    sx, sy = cross(x, b), cross(a, y)
    vx = cross(x * x, b) - sx * sx / safe
    vy = cross(a, y * y) - sy * sy / safe
    score = (cross(x, y) - sx * sy / safe) / np.sqrt(np.maximum(vx * vy, 1e-30))
    whole_x, whole_y = float((x * x).sum()), float((y * y).sum())
    # A lag at which the motion of one side falls outside the other recording compares stillness.
    enough = (vx > 0.5 * whole_x) & (vy > 1e-6 * whole_y) & (vy > 1e-12) & (vx > 1e-12)
    enough &= n >= least_overlap * min(a.sum(), b.sum())
    lags = robot.start - camera.start + GRID * (np.arange(len(n)) - (len(a) - 1))
    return np.asarray(lags), np.where(enough, score, -np.inf)


def best_peaks(score: Array, most: int = 6) -> NDArray[np.intp]:
    """Indices of the highest local maxima, best first."""
    finite = np.where(np.isfinite(score), score, -1.0)
    peaks, _ = find_peaks(np.concatenate([[-2.0], finite, [-2.0]]), distance=5)
    peaks = peaks - 1
    peaks = peaks[np.isfinite(score[peaks])]
    ranked = peaks[np.argsort(-finite[peaks], kind="stable")][:most]
    return np.asarray(ranked[finite[ranked] > 0.5 * finite.max()], dtype=np.intp)
