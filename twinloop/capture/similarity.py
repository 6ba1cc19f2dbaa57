"""The similarity that carries one set of points onto another, with its uncertainty.

b = s R a + t in closed form (Umeyama, "Least-squares estimation of transformation parameters
between two point patterns", PAMI 1991, eq. 40-42, weighted).  The covariance is that of the linear
least squares about the solution, with the noise estimated from the residuals.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinloop.errors import InputError
from twinloop.geometry import se3

Array = NDArray[np.float64]
FLATTEST = 1e-4
"""Points whose second extent is below this share of their first lie on one line."""
TRIALS = 200
"""Triples that the robust start tries."""
OUTLIER = 3.0
"""Residuals beyond this many robust standard deviations are left out."""


@dataclass(frozen=True)
class Similarity:
    """b = scale * R a + t."""

    scale: float
    """Units of b per unit of a."""
    T: Array
    """Rotation and translation (4, 4), applied after scaling."""
    covariance: Array
    """Of log scale, translation (units of b) and rotation vector (rad, world side) (7, 7)."""
    rms: float
    """Residual of the points that were used, units of b."""
    used: NDArray[np.bool_]
    """Points that were used (n,)."""

    @property
    def scale_std(self) -> float:
        """Relative standard deviation of the scale."""
        return float(np.sqrt(self.covariance[0, 0]))

    def apply(self, points: Array) -> Array:
        """Carry points (n, 3) of a to b."""
        return se3.apply(self.T, self.scale * np.asarray(points))


def align(
    a: Array, b: Array, weights: Array | None = None, *, robust: bool = False, seed: int = 0
) -> Similarity:
    """Find the similarity from points ``a`` (n, 3) to ``b`` (n, 3).

    Args:
        a: Points in the source.
        b: The same points in the target.
        weights: Precision of each point (n,), relative: 1 / variance.
        robust: Leave out outliers: the best of :data:`TRIALS` triples by its median residual is
            refined on the points within :data:`OUTLIER` robust standard deviations.
        seed: Seed of the triples.

    Raises:
        InputError: Fewer than three points, numbers that are not finite, or points on one line.
    """
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    weight = np.ones(len(a)) if weights is None else np.asarray(weights, dtype=np.float64)
    if a.shape != b.shape or a.ndim != 2 or a.shape[1] != 3 or weight.shape != (len(a),):
        raise InputError(
            f"similarity: points {a.shape} and {b.shape} with weights {weight.shape}; expected two "
            "lists of as many (n, 3) points"
        )
    if not (np.isfinite(a).all() and np.isfinite(b).all() and np.isfinite(weight).all()):
        raise InputError("similarity: a point or weight is not finite")
    if (weight < 0).any() or (weight > 0).sum() < 3:
        raise InputError(
            f"similarity: {int((weight > 0).sum())} points, at least 3 are needed to find scale, "
            "rotation and translation"
        )
    used = weight > 0
    for points, name in ((a[used], "source"), (b[used], "target")):
        extent = np.linalg.svd(points - points.mean(axis=0), compute_uv=False)
        if not extent[1] > FLATTEST * max(extent[0], 1e-300):
            raise InputError(
                f"similarity: the {len(points)} points of the {name} lie on one line (extents "
                f"{extent[0]:.3g} and {extent[1]:.3g}); the rotation about it is unidentifiable"
            )
    if robust:
        used = _inliers(a, b, used, np.random.default_rng(seed))
    scale, T = _closed_form(a[used], b[used], weight[used])
    return _with_covariance(scale, T, a, b, weight, used)


def _closed_form(a: Array, b: Array, weight: Array) -> tuple[float, Array]:
    share = weight / weight.sum()
    mean_a, mean_b = share @ a, share @ b
    x, y = a - mean_a, b - mean_b
    U, D, Vt = np.linalg.svd((y * share[:, None]).T @ x)
    sign = np.array([1.0, 1.0, np.sign(np.linalg.det(U) * np.linalg.det(Vt)) or 1.0])
    R = (U * sign) @ Vt
    scale = float((D * sign).sum() / (share @ (x * x).sum(axis=1)))
    return scale, se3.from_rotation_position(R, mean_b - scale * R @ mean_a)


def _residual(scale: float, T: Array, a: Array, b: Array) -> Array:
    return b - se3.apply(T, scale * a)


def _inliers(
    a: Array, b: Array, usable: NDArray[np.bool_], rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Points that agree with the best of many triples, then with the fit to those."""
    numbers = np.flatnonzero(usable)
    best, distance = np.inf, np.zeros(len(a))
    for _ in range(TRIALS):
        three = rng.choice(numbers, 3, replace=False)
        extent = np.linalg.svd(a[three] - a[three].mean(axis=0), compute_uv=False)
        if extent[1] < 0.05 * extent[0]:
            continue
        found = _closed_form(a[three], b[three], np.ones(3))
        trial = np.linalg.norm(_residual(*found, a, b), axis=1)
        median = float(np.median(trial[numbers]))
        if median < best:
            best, distance = median, trial
    if not np.isfinite(best):
        return usable
    used = usable
    for _ in range(10):
        # The median length of a normal vector of three components is 1.538 standard deviations.
        sigma = np.median(distance[numbers]) / 1.538
        limit = OUTLIER * np.sqrt(3) * sigma + 1e-12 * np.abs(b).max()
        kept = usable & (distance <= limit)
        if kept.sum() < 4 or (kept == used).all():
            break
        used = kept
        found = _closed_form(a[used], b[used], np.ones(int(used.sum())))
        distance = np.linalg.norm(_residual(*found, a, b), axis=1)
    return used


def _with_covariance(
    scale: float, T: Array, a: Array, b: Array, weight: Array, used: NDArray[np.bool_]
) -> Similarity:
    turned = scale * a[used] @ T[:3, :3].T
    residual = _residual(scale, T, a[used], b[used])
    J = np.zeros((len(turned), 3, 7))
    J[:, :, 0] = turned
    J[:, :, 1:4] = np.eye(3)
    J[:, :, 4:] = -se3.skew(turned)
    w = weight[used]
    H = np.einsum("n,nia,nib->ab", w, J, J)
    freedom = 3 * len(turned) - 7
    variance = float(np.einsum("n,ni,ni->", w, residual, residual)) / max(freedom, 1)
    rms = float(np.sqrt(np.average((residual**2).sum(axis=1), weights=w)))
    return Similarity(scale, T, variance * np.linalg.inv(H), rms, used)
