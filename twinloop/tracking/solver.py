"""Robust Gauss-Newton for one object pose from 2D-3D points, a table contact and pose priors.

The unknown is a left perturbation of `T_world_object`: position `t + d` and rotation
`exp(w) R`, with `d` (m) and `w` (rad) in world axes; covariances are in the order (d, w).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinloop.geometry import quaternion, se3

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
class Contact:
    """The object stands on the plane z = 0: its lowest hull vertex is at `height` +- `sigma` m.

    hull: (h, 3) convex hull vertices in the object frame, m. A residual beyond `cutoff` m is taken
    for an object in the air and weighs nothing.
    """

    hull: Array
    height: float
    sigma: float
    cutoff: float


@dataclass(frozen=True)
class RestPrior:
    """The object rests as it did in the scan: only x, y and yaw about world z are free.

    up: (3,) object axis that points along world z at rest; height: m of the object origin;
    sigma_height m and sigma_tilt rad are the standard deviations.
    """

    up: Array
    height: float
    sigma_height: float
    sigma_tilt: float


@dataclass(frozen=True)
class Solution:
    """A solved pose.

    pose: (4, 4) T_world_object; covariance: (6, 6) m, rad; inliers: (n,) bool over the
    correspondences; scale: robust residual in units of the stated sigma (1 when they are true).
    """

    pose: Array
    covariance: Array
    inliers: NDArray[np.bool_]
    scale: float


def rotation_exp(w: Array) -> Array:
    """Rotation matrices (..., 3, 3) of rotation vectors (..., 3) rad."""
    return quaternion.to_matrix(quaternion.from_rotvec(w))


def rotation_log(rotation: Array) -> Array:
    """Rotation vectors (..., 3) rad of matrices (..., 3, 3), angles in [0, pi]."""
    return quaternion.to_rotvec(quaternion.from_matrix(rotation))


def perturb(pose: Array, step: Array) -> Array:
    """The pose moved by a left perturbation (6,): position + d, exp(w) R."""
    out = pose.copy()
    out[:3, 3] += step[:3]
    out[:3, :3] = rotation_exp(step[3:]) @ out[:3, :3]
    u, _, vt = np.linalg.svd(out[:3, :3])
    out[:3, :3] = u @ vt  # rounding of many products must not add up
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
    rotated = points @ pose[:3, :3].T
    rotation = camera.T_camera_world[:3, :3]
    p = (rotated + pose[:3, 3]) @ rotation.T + camera.T_camera_world[:3, 3]
    z = np.maximum(p[:, 2], 1e-6)
    fx, fy, cx, cy = camera.intrinsics
    seen = np.stack([fx * p[:, 0] / z + cx, fy * p[:, 1] / z + cy], 1)
    image = np.zeros((len(points), 2, 3))
    image[:, 0, 0], image[:, 0, 2] = fx / z, -fx * p[:, 0] / z**2
    image[:, 1, 1], image[:, 1, 2] = fy / z, -fy * p[:, 1] / z**2
    world = image @ rotation
    return pixels - seen, np.concatenate([world, -world @ se3.skew(rotated)], 2)


def contact_system(pose: Array, contact: Contact) -> tuple[Array, Array, Array]:
    """Residual (1,), Jacobian (1, 6) and weight (1,) of the lowest hull vertex on the table."""
    rotated = contact.hull @ pose[:3, :3].T
    i = int(np.argmin(rotated[:, 2]))
    residual = contact.height - (rotated[i, 2] + pose[2, 3])
    jacobian = np.concatenate([[0.0, 0.0, 1.0], np.cross(rotated[i], [0.0, 0.0, 1.0])])
    inside = max(0.0, 1 - (residual / contact.cutoff) ** 2) ** 2
    return np.array([residual]), jacobian[None], np.array([inside / contact.sigma**2])


def rest_system(pose: Array, rest: RestPrior) -> tuple[Array, Array, Array]:
    """Residuals (3,), Jacobian (3, 6), weights (3,) of height and tilt in the resting pose."""
    up = pose[:3, :3] @ rest.up
    residual = np.array([rest.height - pose[2, 3], -up[0], -up[1]])
    jacobian = np.zeros((3, 6))
    jacobian[0, 2] = 1.0
    jacobian[1:, 3:] = -se3.skew(up)[:2]
    weight = 1 / np.array([rest.sigma_height, rest.sigma_tilt, rest.sigma_tilt]) ** 2
    return residual, jacobian, weight


def tukey(residual: Array, cutoff: float) -> Array:
    """Tukey biweight of residual norms: 1 at 0, 0 from `cutoff` on."""
    return np.where(residual < cutoff, (1 - (residual / cutoff) ** 2) ** 2, 0.0)


def solve_pose(
    camera: WorldCamera,
    pose: Array,
    seen: Correspondences,
    *,
    contact: Contact | None = None,
    rest: RestPrior | None = None,
    cutoffs: tuple[float, ...] = (20.0, 10.0, 5.0, 4.0, 4.0, 4.0),
    correlated: float = 25.0,
) -> Solution:
    """Iteratively reweighted Gauss-Newton from `pose`, with one Tukey cutoff per iteration.

    Cutoffs are in units of sigma, never below 2.5 robust standard deviations of the residuals (so
    that a poor start or understated sigmas do not throw all points away). Points of one frame share
    errors of mesh, calibration and reference: all of them count as `correlated` points at most,
    against the priors and in the covariance, and residuals above their sigma lower that further.
    Levenberg damping keeps a degenerate geometry from running away.
    """
    weights = np.zeros(len(seen.points))
    scale = 1.0
    information = np.zeros((6, 6))
    priors = np.zeros((6, 6))
    for cutoff in cutoffs:
        information, priors, gradient = np.zeros((6, 6)), np.zeros((6, 6)), np.zeros(6)
        if len(seen.points):
            residual, jacobian = point_system(camera, pose, seen.points, seen.pixels)
            residual, jacobian = (
                residual / seen.sigma[:, None],
                jacobian / seen.sigma[:, None, None],
            )
            size = np.linalg.norm(residual, axis=1)
            spread = float(np.median(size)) / 1.1774
            limit = max(cutoff, 2.5 * spread)
            weights = tukey(size, limit)
            weighted = jacobian * weights[:, None, None]
            information = np.einsum("nki,nkj->ij", weighted, jacobian)
            gradient = np.einsum("nki,nk->i", weighted, residual)
            kept = max(float(weights.sum()), 1e-9)
            scale = float(np.sqrt((weights * size**2).sum() / (2 * kept)))
            share = min(1.0, correlated / kept) / max(scale, 1.0) ** 2
            information, gradient = information * share, gradient * share
        for part in (
            None if contact is None else contact_system(pose, contact),
            None if rest is None else rest_system(pose, rest),
        ):
            if part is not None:
                r, j, w = part
                priors += j.T @ (j * w[:, None])
                gradient = gradient + j.T @ (w * r)
        total = information + priors
        damping = np.diag([1e1] * 3 + [1e-1] * 3)
        step: Array = np.asarray(np.linalg.solve(total + damping, gradient), np.float64)
        step[:3] = np.clip(step[:3], -0.05, 0.05)
        step[3:] = np.clip(step[3:], -0.3, 0.3)
        pose = perturb(pose, step)
    inliers = weights > 0.1
    # Stated sigmas are those of a poor day; residuals that are smaller say so.
    information = information * (max(scale, 1.0) / max(scale, 0.3)) ** 2
    total = information + priors + np.diag([1.0] * 3 + [0.1] * 3)
    covariance = np.linalg.inv(total)
    return Solution(pose, 0.5 * (covariance + covariance.T), inliers, scale)
