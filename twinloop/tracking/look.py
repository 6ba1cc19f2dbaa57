"""Pictures of the twin: its Gaussians rendered as reference views, from all around or where needed.

A reference rendered at the predicted pose differs from the live image in light alone, so that flow
between the two is short; views a little off it serve as well through the mesh.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import cv2
import numpy as np
from numpy.typing import NDArray

from twinloop.geometry import se3
from twinloop.geometry.camera import look_at
from twinloop.splat.cameras import Camera
from twinloop.splat.gaussians import Gaussians
from twinloop.splat.render import render
from twinloop.tracking.appearance import Reference, Shape
from twinloop.tracking.images import to_grey
from twinloop.tracking.solver import WorldCamera, rotation_log

Array = NDArray[np.float64]
Image = NDArray[np.uint8]

ANGLE = 0.15
"""A rendered view serves for poses up to this far away, rad."""
SCALE = 1.25
"""... and for sizes that differ by up to this factor."""
MARGIN = 8
"""Pixels around the object in a rendered view."""
FINE = 0.7
"""Splats smaller than this in the picture, px, are mostly the renderer's own filter, and those in
front then hide the ones behind: what they show moves away from the camera by up to a pixel. So such
views are rendered larger and averaged down."""
LARGEST = 3
"""... up to this many times as large."""


@dataclass(frozen=True)
class Rendered:
    """A reference with its colours: rgb (h, w, 3) u1, covered (h, w) bool."""

    reference: Reference
    rgb: Image
    covered: NDArray[np.bool_]


@dataclass
class Look:
    """The twin's Gaussians (object frame), and the views of them that were already rendered."""

    gaussians: Gaussians
    shape: Shape
    views: list[Rendered] = field(default_factory=list)
    splat: float = field(init=False)

    def __post_init__(self) -> None:
        """Measure the splats: the median of their middle axis, m."""
        self.splat = float(np.median(np.sort(self.gaussians.scales, axis=1)[:, 1]))

    def render(self, camera: WorldCamera, pose: Array) -> Rendered | None:
        """The object as `camera` would see it under T_world_object `pose`; None out of view."""
        window = self.shape.window(camera, pose, MARGIN)
        if window is None:
            return None
        x0, y0, x1, y1 = window
        intrinsics = camera.intrinsics - np.array([0.0, 0.0, x0, y0])
        T = camera.T_camera_world @ pose
        splat = self.splat * float(intrinsics[0]) / max(float(T[2, 3]), 1e-3)
        k = int(np.clip(np.ceil(FINE / max(splat, 1e-6)), 1, LARGEST))
        half = np.array([0.0, 0.0, 1.0, 1.0]) * 0.5 * (k - 1)
        size = (x1 - x0, y1 - y0)
        large = Camera(intrinsics * k + half, size[0] * k, size[1] * k, se3.inverse(T))
        view = render(self.gaussians, large, layers=())
        rgb, alpha = view.picture(), view.alpha
        if k > 1:
            rgb = np.asarray(cv2.resize(rgb, size, interpolation=cv2.INTER_AREA), np.uint8)
            alpha = np.asarray(cv2.resize(alpha, size, interpolation=cv2.INTER_AREA), np.float32)
        reference = self.shape.reference(to_grey(rgb), intrinsics, T)
        return Rendered(reference, rgb, alpha > 0.9)

    def near(self, camera: WorldCamera, pose: Array) -> Reference | None:
        """A rendered view close to how `camera` sees the object, made when there is none."""
        T = camera.T_camera_world @ pose
        size = camera.intrinsics[0] / max(float(T[2, 3]), 1e-3)
        for view in reversed(self.views):
            other = view.reference.T_camera_object
            ratio = size * float(other[2, 3]) / view.reference.intrinsics[0]
            if 1 / SCALE < ratio < SCALE:
                turn = rotation_log(T[:3, :3] @ other[:3, :3].T)
                if np.linalg.norm(turn) < ANGLE:
                    return view.reference
        made = self.render(camera, pose)
        if made is None:
            return None
        self.views.append(made)
        return made.reference


def sphere(count: int) -> Array:
    """`count` directions (n, 3), evenly spread (golden-angle spiral)."""
    k = np.arange(count) + 0.5
    z = 1 - 2 * k / count
    angle = k * np.pi * (3 - np.sqrt(5))
    r = np.sqrt(1 - z**2)
    return np.stack([r * np.cos(angle), r * np.sin(angle), z], 1)


def views_around(look: Look, count: int, size: float, up: Array, lowest: float) -> list[Rendered]:
    """Views of the object, about `size` px large, from directions at least `lowest` rad high.

    up: (3,) object axis that points up; what lies below was on the table in the scan and is seen by
    no reference.
    """
    shape = look.shape
    middle = 0.5 * (shape.hull.min(0) + shape.hull.max(0))
    distance = 4 * shape.diameter
    side = int(np.ceil(1.4 * size))
    focal = size * distance / shape.diameter
    intrinsics = np.array([focal, focal, 0.5 * (side - 1), 0.5 * (side - 1)])
    turn = rotation_to(up)
    out = []
    for direction in sphere(2 * count):
        if direction[2] < np.sin(lowest):
            continue
        eye = middle + (turn @ direction) * distance
        T = look_at(eye, middle, turn @ np.array([0.0, 0.0, 1.0]))
        camera = WorldCamera(intrinsics, se3.inverse(T), side, side)
        made = look.render(camera, np.eye(4))
        if made is not None and made.covered.sum() > 50:
            out.append(made)
    return out


def rotation_to(up: Array) -> Array:
    """A rotation (3, 3) that carries z to the unit vector `up`."""
    other = np.eye(3)[int(np.argmin(np.abs(up)))]
    x = np.cross(other, up)
    x /= np.linalg.norm(x)
    return np.stack([x, np.cross(up, x), up], 1)
