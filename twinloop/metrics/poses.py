"""Errors of object poses against true poses."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def average_distance(estimate: Array, truth: Array, points: Array) -> Array:
    """ADD: mean distance between object points under the estimated and the true pose.

    Source: Hinterstoisser et al., ACCV 2012 (ADD). Computed exactly for all points of a frame at
        once.

    Args:
        estimate: (frame, 4, 4) or (4, 4) estimated `T_world_object`.
        truth: same shape, true `T_world_object` of the same object frame.
        points: (p, 3) points of the object in its frame, m.

    Returns:
        (frame,) mean point distance, m ((), for one pose).
    """
    difference = estimate - truth
    moved = np.einsum("...ij,pj->...pi", difference[..., :3, :3], points)
    distance: Array = np.linalg.norm(moved + difference[..., None, :3, 3], axis=-1).mean(axis=-1)
    return distance


def rotation_angle(rotation: Array) -> Array:
    """Angle of rotation matrices (..., 3, 3), rad in [0, pi].

    Uses atan2 of the antisymmetric part against the trace: accurate for small angles too, where
        arccos
    of the trace loses half of the digits.
    """
    antisymmetric = np.stack(
        [
            rotation[..., 2, 1] - rotation[..., 1, 2],
            rotation[..., 0, 2] - rotation[..., 2, 0],
            rotation[..., 1, 0] - rotation[..., 0, 1],
        ],
        axis=-1,
    )
    sine = np.linalg.norm(antisymmetric, axis=-1)
    cosine = np.trace(rotation, axis1=-2, axis2=-1) - 1.0
    angle: Array = np.arctan2(sine, cosine)
    return angle


def interpolate_poses(times: Array, poses: Array, wanted: Array) -> Array:
    """Poses at other times: linear in translation, along the geodesic in rotation.

    Args:
        times: (n,) increasing times, s.
        poses: (n, 4, 4) poses at these times.
        wanted: (m,) times, s; outside the range the nearest end pose is held.

    Returns:
        (m, 4, 4) poses.
    """
    right = np.clip(np.searchsorted(times, wanted), 1, len(times) - 1)
    left = right - 1
    span = times[right] - times[left]
    weight = np.clip((wanted - times[left]) / np.where(span > 0, span, 1.0), 0.0, 1.0)
    result = np.tile(np.eye(4), (len(wanted), 1, 1))
    translation = poses[left, :3, 3] * (1 - weight[:, None]) + poses[right, :3, 3] * weight[:, None]
    result[:, :3, 3] = translation
    relative = np.swapaxes(poses[left, :3, :3], -1, -2) @ poses[right, :3, :3]
    result[:, :3, :3] = poses[left, :3, :3] @ _fraction_of_rotation(relative, weight)
    return result


def _fraction_of_rotation(rotation: Array, weight: Array) -> Array:
    """Rotation about the same axis by `weight` times the angle; (n, 3, 3) and (n,) -> (n, 3, 3)."""
    angle = rotation_angle(rotation)
    antisymmetric = 0.5 * (rotation - np.swapaxes(rotation, -1, -2))
    sine = np.sin(angle)
    scale = np.where(sine > 1e-9, 1.0 / np.where(sine > 1e-9, sine, 1.0), 1.0)
    axis = antisymmetric * scale[:, None, None]
    part = np.where(sine > 1e-9, angle, 1.0) * weight
    first = np.sin(part)[:, None, None] * axis
    second = (1.0 - np.cos(part))[:, None, None] * (axis @ axis)
    result: Array = np.eye(3) + first + second
    return result
