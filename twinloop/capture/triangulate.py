"""A point from where several pictures show it, with its uncertainty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinloop.capture.projection import Camera, project_with_jacobian
from twinloop.geometry import se3

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Sighting:
    """Where one picture shows a point."""

    pixel: Array
    """(2,) px."""
    camera: Camera
    """The picture's lens."""
    T_world_camera: Array
    """Its pose (4, 4)."""


@dataclass(frozen=True)
class Triangulated:
    """A point in the sightings' world, in its units."""

    point: Array
    """(3,)."""
    covariance: Array
    """(3, 3), for the pixel noise that was stated; the poses are taken as exact."""
    angle: float
    """Largest angle between two rays to it, rad."""
    rms: float
    """Reprojection error, px."""


def triangulate(sightings: Sequence[Sighting], pixel_std: float) -> Triangulated | None:
    """The point of least reprojection error; None when the rays do not meet before the cameras.

    Args:
        sightings: Two or more.
        pixel_std: Noise of a pixel coordinate, px.
    """
    poses = np.stack([s.T_world_camera for s in sightings])
    rays = np.stack(
        [
            np.r_[s.camera.normalize(s.pixel[None])[0], 1.0] @ s.T_world_camera[:3, :3].T
            for s in sightings
        ]
    )
    rays /= np.linalg.norm(rays, axis=1, keepdims=True)
    angle = float(np.arccos(np.clip((rays @ rays.T).min(), -1.0, 1.0)))
    # Nearest point to all rays: sum of (I - d d^T) (x - c) = 0.
    across = np.eye(3) - rays[:, :, None] * rays[:, None, :]
    normal = across.sum(axis=0)
    if np.linalg.cond(normal) > 1e12:
        return None
    point = np.linalg.solve(normal, np.einsum("nij,nj->i", across, poses[:, :3, 3]))
    back = se3.inverse(poses)
    for _ in range(10):
        H, g, rms = _normal_equations(point, sightings, back)
        if not np.isfinite(rms):
            return None
        step = -np.linalg.solve(H, g)
        point = point + step
        if np.abs(step).max() < 1e-12 * np.abs(point - poses[0, :3, 3]).max():
            break
    H, _, rms = _normal_equations(point, sightings, back)
    if not np.isfinite(rms):
        return None
    return Triangulated(point, np.asarray(pixel_std**2 * np.linalg.inv(H), np.float64), angle, rms)


def _normal_equations(
    point: Array, sightings: Sequence[Sighting], T_camera_world: Array
) -> tuple[Array, Array, float]:
    H, g, squares = np.zeros((3, 3)), np.zeros(3), 0.0
    for sighting, T in zip(sightings, T_camera_world, strict=True):
        seen = se3.apply(T, point[None])
        if seen[0, 2] <= 0:
            return H, g, np.inf
        pixels, by_point, _ = project_with_jacobian(sighting.camera, seen)
        J = by_point[0] @ T[:3, :3]
        residual = pixels[0] - sighting.pixel
        H += J.T @ J
        g += J.T @ residual
        squares += float(residual @ residual)
    return H, g, float(np.sqrt(squares / len(sightings)))
