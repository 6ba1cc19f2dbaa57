"""Continuous least squares of a clock offset and drift on positions, with its uncertainty.

Covariance under correlated errors: W. K. Newey and K. D. West, Econometrica 55 (1987).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline

from twinloop.tracking.solver import rotation_exp

Array = NDArray[np.float64]

DRIFT = 1e-4
"""Standard deviation of the drift before anything is measured, s/s: quartz does better."""
MAXWELL = 1.538
"""Median length of a 3D normal vector of unit deviation."""


@dataclass(frozen=True)
class Refined:
    """Deviations and figures of one candidate; misfit: log of the unexplained part; frames used."""

    value: Array
    std: Array
    residual: float
    misfit: float
    independent: float
    overlap: float


class _Fit:
    """One candidate's least squares: offset (s), drift (s/s), gain, shift (3,) m, rotation."""

    def __init__(self, t: Array, seen: Array, spline: CubicSpline, lag: float) -> None:
        """t: (n,) s from the centre; lag: s from the centre to the start of the robot's log."""
        self.t, self.seen, self.spline, self.lag = t, seen - seen.mean(axis=0), spline, lag
        self.velocity = spline.derivative()
        self.value = np.zeros(6)
        self.turn = np.eye(3)

    def rows(self, value: Array, turn: Array) -> tuple[Array, Array]:
        """Errors (n, 3) m and their derivatives (n, 3, 9): the values, then rotation."""
        when = np.clip(
            self.t + self.lag + value[0] + value[1] * self.t, 0.0, float(self.spline.x[-1])
        )
        place = self.spline(when)
        place = (place - place.mean(axis=0)) @ turn.T
        speed = value[2] * self.velocity(when) @ turn.T
        error = value[2] * place + value[3:6] - self.seen
        out = np.zeros((len(self.t), 3, 9))
        out[:, :, 0], out[:, :, 1], out[:, :, 2] = speed, speed * self.t[:, None], place
        out[:, :, 3:6] = np.eye(3)
        x, y, z = (value[2] * place).T
        out[:, 1, 6], out[:, 2, 6] = -z, y
        out[:, 0, 7], out[:, 2, 7] = z, -x
        out[:, 0, 8], out[:, 1, 8] = -y, x
        return error, out

    def start(self, same_frame: bool) -> None:
        """Rotation and gain in closed form at the lag itself."""
        place = self.spline(np.clip(self.t + self.lag, 0.0, float(self.spline.x[-1])))
        place = place - place.mean(axis=0)
        if not same_frame:
            u, _, vt = np.linalg.svd(self.seen.T @ place)
            self.turn = u @ np.diag([1.0, 1.0, np.sign(np.linalg.det(u @ vt))]) @ vt
            place = place @ self.turn.T
        self.value[2] = float((place * self.seen).sum() / max(float((place**2).sum()), 1e-18))

    def solve(self, free: NDArray[np.intp], rounds: int = 40) -> tuple[Array, Array, Array]:
        """Damped Gauss-Newton with Huber weights; errors, derivatives and weights at the end."""
        prior = np.zeros(9)
        prior[1] = DRIFT**-2
        damping = 1e-3
        error, rows = self.rows(self.value, self.turn)
        for _ in range(rounds):
            size = np.linalg.norm(error, axis=1)
            scale = max(float(np.median(size)) / MAXWELL, 1e-7)
            weight = np.minimum(1.0, 2.5 * scale / np.maximum(size, 1e-12))
            used = rows[:, :, free]
            normal = np.einsum("n,nij,nik->jk", weight, used, used) / scale**2
            normal += np.diag(prior[free])
            slope = np.einsum("n,nij,ni->j", weight, used, error) / scale**2
            slope[free == 1] += prior[1] * self.value[1]
            before = float((weight * size**2).sum()) / scale**2 + prior[1] * self.value[1] ** 2
            damped = normal + damping * np.diag(np.diag(normal) + 1e-12)
            step = np.zeros(9)
            step[free] = -np.linalg.lstsq(damped, slope, rcond=None)[0]
            step[0] = np.clip(step[0], -0.05, 0.05)
            value = self.value + step[:6]
            turn = rotation_exp(step[6:][None])[0] @ self.turn
            trial, derivative = self.rows(value, turn)
            after = float((weight * (trial**2).sum(axis=1)).sum()) / scale**2
            after += prior[1] * value[1] ** 2
            if after > before:
                damping = min(damping * 10.0, 1e6)
                if damping >= 1e6:
                    break
                continue
            self.value, self.turn, error, rows = value, turn, trial, derivative
            damping = max(damping * 0.2, 1e-9)
            if abs(step[0]) < 1e-7 and abs(step[2]) < 1e-6 and before - after < 1e-6 * before:
                break
        size = np.linalg.norm(error, axis=1)
        scale = max(float(np.median(size)) / MAXWELL, 1e-7)
        return error, rows, np.minimum(1.0, 2.5 * scale / np.maximum(size, 1e-12))


def refine(
    t: Array, seen: Array, spline: CubicSpline, lag: float, drift: bool, same_frame: bool
) -> Refined | None:
    """Robust least squares from one lag; None where too few positions lie inside the log."""
    inside = (t + lag > 0.0) & (t + lag < float(spline.x[-1]))
    if inside.sum() < 8:
        return None
    fit = _Fit(t[inside], seen[inside], spline, lag)
    fit.start(same_frame)
    chosen = [0, *([1] if drift else []), 2, 3, 4, 5, *([] if same_frame else [6, 7, 8])]
    free = np.array(chosen, dtype=np.intp)
    error, rows, weight = fit.solve(free)
    n = len(error)
    left = float((weight[:, None] * error**2).sum())
    whole = float((weight[:, None] * fit.seen**2).sum())
    rows = rows[:, :, free]
    variance = left / max(float(weight.sum()) * 3 - len(free), 1.0)
    normal = np.einsum("n,nij,nik->jk", weight, rows, rows)
    normal += np.diag(np.where(free == 1, variance / DRIFT**2, 0.0))
    inverse = np.linalg.pinv(normal, hermitian=True)
    influence = np.einsum("n,nij,ni->nj", weight, rows, error) @ inverse
    std = np.zeros(9)
    std[free] = np.sqrt(np.maximum(long_run(influence), variance * np.diag(inverse)))
    std[1] = min(std[1], DRIFT) if drift else 0.0
    return Refined(
        fit.value,
        std,
        float(np.sqrt((error**2).sum(axis=1).mean())),
        float(np.log(max(left, 1e-18) / max(whole, 1e-18))),
        n / inflation(error),
        float(fit.t[-1] - fit.t[0]),
    )


def long_run(influence: Array) -> Array:
    """Variance (k,) of the sums of the columns (n, k) under correlation in time.

    Each column is whitened by an AR(1) first (D. W. K. Andrews and J. C. Monahan, Econometrica 60,
    1992), its coefficient freed from the bias of short series; what is left is summed by Newey and
    West's weights.
    """
    n, k = influence.shape
    early, late = influence[:-1], influence[1:]
    rho = (early * late).sum(axis=0) / np.maximum((early**2).sum(axis=0), 1e-300)
    rho = np.clip(rho + (1 + 3 * rho) / n, 0.0, 0.97)
    white = late - rho * early
    width = int(4 * (n / 100) ** (2 / 9))
    total = (white**2).sum(axis=0)
    for lag in range(1, min(width, n // 3) + 1):
        total = total + 2 * (1 - lag / (width + 1)) * (white[lag:] * white[:-lag]).sum(axis=0)
    total = np.maximum(total, 0.25 * (white**2).sum(axis=0))
    return np.asarray(total / (1 - rho) ** 2 * n / max(n - k, 1))


def inflation(error: Array) -> float:
    """So many errors (n, 3) in a row say as much as one: 1 + 2 sum of their autocorrelation.

    The sum ends where the correlation is no longer positive (C. J. Geyer, Statistical Science 7,
    1992).
    """
    whole = max(float((error**2).sum()), 1e-300)
    total = 1.0
    for lag in range(1, len(error) // 3):
        rho = float((error[lag:] * error[:-lag]).sum()) / whole
        if rho <= 0.05:
            break
        total += 2 * rho
    return total
