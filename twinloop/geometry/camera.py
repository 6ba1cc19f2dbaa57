"""Pinhole cameras with OpenCV axes (x right, y down, z forward) and OpenCV lens distortion."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Float = NDArray[np.float64]


def matrix(intrinsics: ArrayLike) -> Float:
    """Return the 3x3 camera matrix of ``intrinsics`` (fx, fy, cx, cy) [px]."""
    fx, fy, cx, cy = np.asarray(intrinsics, dtype=np.float64)
    return np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]])


def project(
    points: ArrayLike,
    intrinsics: ArrayLike,
    T_camera_world: ArrayLike | None = None,
    distortion: ArrayLike | None = None,
) -> Float:
    """Project ``points`` (..., 3) [m] to pixels (..., 2); the first pixel's centre is (0, 0).

    Args:
        points: In the camera's frame, or in world when ``T_camera_world`` (4, 4) is given.
        intrinsics: fx, fy, cx, cy [px].
        T_camera_world: Maps the points into the camera's frame.
        distortion: OpenCV's k1, k2, p1, p2, k3; none means an ideal pinhole.
    """
    p = np.asarray(points, dtype=np.float64)
    if T_camera_world is not None:
        T = np.asarray(T_camera_world, dtype=np.float64)
        p = p @ T[:3, :3].T + T[:3, 3]
    fx, fy, cx, cy = np.asarray(intrinsics, dtype=np.float64)
    xy = p[..., :2] / p[..., 2:]
    if distortion is not None:
        xy = distort(xy, distortion)
    return np.asarray(xy * np.array([fx, fy]) + np.array([cx, cy]))


def distort(xy: ArrayLike, distortion: ArrayLike) -> Float:
    """Apply OpenCV's radial and tangential model to normalised coordinates (..., 2)."""
    xy = np.asarray(xy, dtype=np.float64)
    k1, k2, p1, p2, k3 = np.asarray(distortion, dtype=np.float64)
    x, y = xy[..., 0], xy[..., 1]
    r2 = x * x + y * y
    radial = 1 + r2 * (k1 + r2 * (k2 + r2 * k3))
    return np.stack(
        [
            x * radial + 2 * p1 * x * y + p2 * (r2 + 2 * x * x),
            y * radial + p1 * (r2 + 2 * y * y) + 2 * p2 * x * y,
        ],
        axis=-1,
    )


def rays(intrinsics: ArrayLike, width: int, height: int) -> Float:
    """Return directions (height, width, 3), z = 1, through the pixel centres, camera frame."""
    fx, fy, cx, cy = np.asarray(intrinsics, dtype=np.float64)
    x, y = np.meshgrid((np.arange(width) - cx) / fx, (np.arange(height) - cy) / fy)
    return np.stack([x, y, np.ones_like(x)], axis=-1)


def look_at(eye: ArrayLike, target: ArrayLike, up: ArrayLike = (0.0, 0.0, 1.0)) -> Float:
    """Return ``T_world_camera`` (4, 4) of a camera at ``eye`` that looks at ``target``."""
    eye, target = np.asarray(eye, dtype=np.float64), np.asarray(target, dtype=np.float64)
    forward = (target - eye) / np.linalg.norm(target - eye)
    right = np.cross(forward, np.asarray(up, dtype=np.float64))
    right = right / np.linalg.norm(right)
    T = np.eye(4)
    T[:3, :3] = np.stack([right, np.cross(forward, right), forward], axis=1)
    T[:3, 3] = eye
    return T
