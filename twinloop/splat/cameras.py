"""Cameras to render splats from, and walks of them around a thing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinloop.errors import InputError
from twinloop.geometry.camera import look_at
from twinloop.splat.gaussians import Gaussians
from twinloop.splat.surfels import Surfels

Float = NDArray[np.float64]


@dataclass(frozen=True)
class Camera:
    """An ideal pinhole camera with OpenCV's axes (x right, y down, z forward).

    intrinsics: fx, fy, cx, cy, px; the first pixel's centre is (0, 0). width and height, px; the
    principal point may lie outside, as in a crop. T_world_camera (4, 4) m.
    """

    intrinsics: Float
    width: int
    height: int
    T_world_camera: Float

    def __post_init__(self) -> None:
        if not (1 <= self.width <= 16384 and 1 <= self.height <= 16384):
            raise InputError(f"camera: {self.width} x {self.height} px, expected 1 to 16384 each")
        k, T = np.asarray(self.intrinsics), np.asarray(self.T_world_camera)
        if k.shape != (4,) or not np.isfinite(k).all() or not (k[:2] > 0).all():
            raise InputError(f"camera: intrinsics {k.tolist()}, expected fx, fy > 0, cx, cy in px")
        if T.shape != (4, 4) or not np.isfinite(T).all():
            raise InputError(f"camera: pose {T.tolist()}, expected a 4x4 matrix of finite numbers")
        if not np.allclose(T[:3, :3] @ T[:3, :3].T, np.eye(3), atol=1e-4):
            raise InputError("camera: the pose's 3x3 part is no rotation; T_world_camera is wanted")


def bounds(splats: Gaussians | Surfels) -> tuple[Float, Float]:
    """Lowest and highest corner (3,) m of what is there, but for a few stray splats.

    Splats of at least a tenth opacity count, from the 0.5th to the 99.5th percentile of each axis.

    Raises:
        InputError: No splats.
    """
    if len(splats) == 0:
        raise InputError("there are no splats, so that they have no extent")
    solid = splats.opacities >= 0.1
    means = splats.means[solid] if solid.any() else splats.means
    low, high = np.percentile(means.astype(np.float64), [0.5, 99.5], axis=0)
    return np.asarray(low), np.asarray(high)


def turntable(
    splats: Gaussians | Surfels,
    count: int,
    *,
    width: int = 512,
    height: int = 512,
    elevation: float = 25.0,
    start: float = -90.0,
    field_of_view: float = 40.0,
    turn: float = 360.0,
) -> list[Camera]:
    """`count` cameras around `splats` that see them whole.

    Args:
        splats: What to look at, z up.
        count: Number of cameras; over a full turn the last is one step before the first.
        width: px.
        height: px.
        elevation: Above the horizon, deg.
        start: Azimuth of the first camera, deg from +x towards +y; -90 looks along +y.
        field_of_view: Of the shorter side, deg.
        turn: How far around, deg.
    """
    low, high = bounds(splats)
    centre, radius = (low + high) / 2, max(0.5 * float(np.linalg.norm(high - low)), 1e-6)
    half = np.radians(field_of_view) / 2
    focal = 0.5 * min(width, height) / np.tan(half)
    distance = 1.1 * radius / np.sin(half)
    k = np.array([focal, focal, (width - 1) / 2, (height - 1) / 2])
    # Straight from above `look_at` has no up; half a degree beside it looks the same.
    e = np.radians(np.clip(elevation, -89.5, 89.5))
    cameras = []
    for i in range(count):
        a = np.radians(start + turn * i / count)
        out = np.array([np.cos(a) * np.cos(e), np.sin(a) * np.cos(e), np.sin(e)])
        cameras.append(Camera(k, width, height, look_at(centre + distance * out, centre)))
    return cameras
