"""Robust Gauss-Newton for one object pose from any measurements that give normal equations.

The unknown is a left perturbation of `T_world_object`: position `t + d` and rotation
`exp(w) R`, with `d` (m) and `w` (rad) in world axes; covariances are in the order (d, w).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from twinloop.geometry import quaternion

Array = NDArray[np.float64]


@dataclass(frozen=True)
class WorldCamera:
    """A calibrated camera whose images have had their lens distortion removed.

    intrinsics: (fx, fy, cx, cy) px; T_camera_world: (4, 4); width, height: px.
    """

    intrinsics: Array
    T_camera_world: Array
    width: int
    height: int

    @property
    def matrix(self) -> Array:
        """(3, 3) pinhole matrix."""
        fx, fy, cx, cy = self.intrinsics
        return np.array([[fx, 0.0, cx], [0.0, fy, cy], [0.0, 0.0, 1.0]])


@dataclass(frozen=True)
class Correspondences:
    """Object points (n, 3) m, object frame, seen at pixels (n, 2) with sigma (n,) px."""

    points: Array
    pixels: Array
    sigma: Array

    @staticmethod
    def join(parts: list[Correspondences]) -> Correspondences:
        """All correspondences of several sets; none gives an empty set."""
        if not parts:
            return Correspondences(np.zeros((0, 3)), np.zeros((0, 2)), np.zeros(0))
        return Correspondences(
            np.concatenate([p.points for p in parts]),
            np.concatenate([p.pixels for p in parts]),
            np.concatenate([p.sigma for p in parts]),
        )


@dataclass(frozen=True)
class System:
    """Normal equations of some residuals about a pose.

    information: (6, 6); gradient: (6,), so that the step solves information step = gradient;
    scale: residuals in units of their stated sigma (px for lines); used: measurements that count,
    of the `offered` ones; weights: (n,) robust weight of each, where a caller may want it;
    confidence: factor from the information that steers the step to the one that is believed;
    prior: knowledge that was there before the frame.
    """

    information: Array
    gradient: Array
    scale: float = 1.0
    used: int = 0
    offered: int = 0
    weights: Array | None = None
    confidence: float = 1.0
    prior: bool = False


class Term(Protocol):
    """Something measured or known that pulls at the pose."""

    def system(self, pose: Array, turn: int) -> System | None:
        """Normal equations at `pose` in iteration `turn`, None when there is nothing to say."""
        ...


@dataclass(frozen=True)
class Solution:
    """A solved pose.

    pose: (4, 4) T_world_object; covariance: (6, 6) m, rad; information: (6, 6) what this frame's
    measurements alone say; systems: the last normal equations of each term.
    """

    pose: Array
    covariance: Array
    information: Array
    systems: tuple[System | None, ...]


def rotation_exp(w: Array) -> Array:
    """Rotation matrices (..., 3, 3) of rotation vectors (..., 3) rad."""
    if w.shape == (3,):
        return _exp(w)
    return quaternion.to_matrix(quaternion.from_rotvec(w))


def rotation_log(rotation: Array) -> Array:
    """Rotation vectors (..., 3) rad of matrices (..., 3, 3), angles in [0, pi]."""
    if rotation.shape == (3, 3):
        return _log(rotation)
    return quaternion.to_rotvec(quaternion.from_matrix(rotation))


def _exp(w: Array) -> Array:
    """Rotation matrix (3, 3) of one rotation vector (3,), in plain floats.

    A frame asks for some hundred of these, and an array of one costs as much as one of a thousand.
    """
    x, y, z = w.tolist()
    half = 0.5 * math.sqrt(x * x + y * y + z * z)
    k = 0.5 * (math.sin(half) / half if half > 1e-9 else 1.0)
    c, x, y, z = math.cos(half), k * x, k * y, k * z
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - c * z), 2 * (x * z + c * y)],
            [2 * (x * y + c * z), 1 - 2 * (x * x + z * z), 2 * (y * z - c * x)],
            [2 * (x * z - c * y), 2 * (y * z + c * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def _log(rotation: Array) -> Array:
    """Rotation vector (3,) of one matrix (3, 3), in plain floats; Shepperd's method."""
    (a, b, c), (d, e, f), (g, h, i) = rotation.tolist()
    best = max(a + e + i, a, e, i)
    if best == a + e + i:
        q = (1 + a + e + i, h - f, c - g, d - b)
    elif best == a:
        q = (h - f, 1 + a - e - i, d + b, c + g)
    elif best == e:
        q = (c - g, d + b, 1 + e - a - i, h + f)
    else:
        q = (d - b, c + g, h + f, 1 + i - a - e)
    w, x, y, z = q if q[0] >= 0 else (-q[0], -q[1], -q[2], -q[3])
    norm = math.sqrt(x * x + y * y + z * z)
    # Of a turn too small for its sine the vector is twice the quaternion's part.
    k = 2 * math.atan2(norm, w) / norm if norm > 1e-12 * w else 2 / w
    return np.array([k * x, k * y, k * z])


def perturb(pose: Array, step: Array) -> Array:
    """The pose moved by a left perturbation (6,): position + d, exp(w) R."""
    out = pose.copy()
    out[:3, 3] += step[:3]
    R = rotation_exp(step[3:]) @ out[:3, :3]
    # Rounding of many products must not add up: a Newton step towards the nearest rotation.
    out[:3, :3] = 1.5 * R - 0.5 * (R @ (R.T @ R))
    return out


def project(camera: WorldCamera, pose: Array, points: Array) -> tuple[Array, Array]:
    """Pixels (n, 2) and depths (n,) m of object points (n, 3) under T_world_object `pose`."""
    T = camera.T_camera_world @ pose
    p = points @ T[:3, :3].T + T[:3, 3]
    z = np.maximum(p[:, 2], 1e-6)
    fx, fy, cx, cy = camera.intrinsics
    return np.stack([fx * p[:, 0] / z + cx, fy * p[:, 1] / z + cy], 1), p[:, 2]


def point_system(
    camera: WorldCamera, pose: Array, points: Array, pixels: Array
) -> tuple[Array, Array]:
    """Residual pixel errors (n, 2) = seen - projected, and the projections' Jacobian (n, 2, 6)."""
    rotated, ratio, z = _seen(camera, pose, points)
    rotation, focal = camera.T_camera_world[:3, :3], camera.intrinsics[:2]
    jacobian = np.empty((len(points), 2, 6))
    for i in range(2):
        # Row i of [f/z, 0, -f x/z^2] R, and its cross product with the lever.
        along = (rotation[i] - ratio[:, i, None] * rotation[2]) * (focal[i] / z)
        jacobian[:, i, :3] = along
        _cross(rotated, along, jacobian[:, i, 3:])
    return pixels - (ratio * focal + camera.intrinsics[2:]), jacobian


def line_jacobian(camera: WorldCamera, pose: Array, points: Array, normals: Array) -> Array:
    """Derivatives (n, 6) of the moves of points (n, 3) along image normals (n, 2), px."""
    rotated, ratio, z = _seen(camera, pose, points)
    rotation = camera.T_camera_world[:3, :3]
    pull = normals * camera.intrinsics[:2] / z
    jacobian = np.empty((len(points), 6))
    along = pull @ rotation[:2] - (pull * ratio).sum(1)[:, None] * rotation[2]
    jacobian[:, :3] = along
    _cross(rotated, along, jacobian[:, 3:])
    return jacobian


def _seen(camera: WorldCamera, pose: Array, points: Array) -> tuple[Array, Array, Array]:
    """Points (n, 3) in world axes from the object's origin, x/z and y/z (n, 2), depth (n, 1)."""
    rotated = points @ pose[:3, :3].T
    T = camera.T_camera_world
    p = rotated @ T[:3, :3].T + (T[:3, :3] @ pose[:3, 3] + T[:3, 3])
    z = np.maximum(p[:, 2:], 1e-6)
    return rotated, p[:, :2] / z, z


def _cross(a: Array, b: Array, out: Array) -> None:
    """Cross products (n, 3) of a and b (n, 3) into `out`."""
    for i, j, k in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
        out[:, i] = a[:, j] * b[:, k] - a[:, k] * b[:, j]


def median(values: Array) -> float:
    """The median of (n,), n > 0; a tenth of the time of NumPy's for a hundred of them."""
    half = len(values) // 2
    if len(values) % 2:
        return float(np.partition(values, half)[half])
    low, high = np.partition(values, (half - 1, half))[half - 1 : half + 1].tolist()
    return float(0.5 * (low + high))


def tukey(residual: Array, cutoff: float) -> Array:
    """Tukey biweight of residual norms: 1 at 0, 0 from `cutoff` on."""
    inside = np.maximum(1 - (residual / cutoff) ** 2, 0.0)
    return inside * inside


@dataclass(frozen=True)
class PointTerm:
    """2D-3D points seen by one camera, robustly.

    Cutoffs (one per iteration) are in units of sigma, never below 2.5 robust standard deviations of
    the residuals (so that a poor start or understated sigmas do not throw all points away). Points
    of one frame share errors of mesh, calibration and reference: all of them count as `correlated`
    points at most, against other terms and in the covariance, and residuals above their sigma lower
    that further.
    """

    camera: WorldCamera
    seen: Correspondences
    cutoffs: tuple[float, ...] = (20.0, 10.0, 5.0, 4.0)
    correlated: float = 25.0

    def system(self, pose: Array, turn: int) -> System | None:
        """Normal equations at `pose`; weights are Tukey's."""
        if len(self.seen.points) == 0:
            return None
        residual, jacobian = point_system(self.camera, pose, self.seen.points, self.seen.pixels)
        residual = residual / self.seen.sigma[:, None]
        jacobian = jacobian / self.seen.sigma[:, None, None]
        size = np.sqrt((residual * residual).sum(1))
        spread = median(size) / 1.1774
        cutoff = self.cutoffs[min(turn, len(self.cutoffs) - 1)]
        weights = tukey(size, max(cutoff, 2.5 * spread))
        kept = max(float(weights.sum()), 1e-9)
        scale = float(np.sqrt((weights * size**2).sum() / (2 * kept)))
        share = min(1.0, self.correlated / kept) / max(scale, 1.0) ** 2
        flat = jacobian.reshape(-1, 6)
        weighted = (jacobian * (share * weights)[:, None, None]).reshape(-1, 6)
        return System(
            weighted.T @ flat,
            weighted.T @ residual.reshape(-1),
            scale=scale,
            used=int((weights > 0.1).sum()),
            offered=len(weights),
            weights=weights,
            # Stated sigmas are those of a poor day; residuals that are smaller say so.
            confidence=(max(scale, 1.0) / max(scale, 0.3)) ** 2,
        )


DAMPING = np.diag([1e1] * 3 + [1e-1] * 3)
"""Levenberg's, 1/m^2 and 1/rad^2."""
LONGEST = np.array([0.05] * 3 + [0.3] * 3)
"""Longest step, m and rad."""
SETTLED = np.array([2e-6] * 3 + [2e-5] * 3)
"""Steps below which no further one is worth its time, m and rad."""


def solve_pose(pose: Array, terms: Sequence[Term], turns: int = 6) -> Solution:
    """The pose that `terms` agree on, by `turns` Gauss-Newton steps from `pose`.

    Levenberg damping keeps a degenerate geometry from running away; the covariance is at most 1 m
    and 3 rad wide where nothing is known.
    """
    systems: tuple[System | None, ...] = ()
    for turn in range(turns):
        systems = tuple(term.system(pose, turn) for term in terms)
        total, gradient = DAMPING, np.zeros(6)
        for system in systems:
            if system is not None:
                total = total + system.information
                gradient = gradient + system.gradient
        step: Array = np.asarray(np.linalg.solve(total, gradient), np.float64)
        step = np.minimum(np.maximum(step, -LONGEST), LONGEST)
        pose = perturb(pose, step)
        if turn >= 2 and (np.abs(step) < SETTLED).all():
            break
    measured, known = np.zeros((6, 6)), np.diag([1.0] * 3 + [0.1] * 3)
    for system in systems:
        if system is None:
            continue
        if system.prior:
            known = known + system.information
        else:
            measured = measured + system.information * system.confidence
    covariance = np.linalg.inv(measured + known)
    return Solution(pose, 0.5 * (covariance + covariance.T), measured, systems)
