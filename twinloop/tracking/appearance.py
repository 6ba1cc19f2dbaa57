"""What the object looks like: posed reference images carried through the mesh to any view."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy.spatial import ConvexHull

from twinloop.geometry.raycast import MeshRender, MeshRenderer
from twinloop.tracking.solver import WorldCamera

Array = NDArray[np.float64]
Image = NDArray[np.uint8]
Window = tuple[int, int, int, int]


@dataclass(frozen=True)
class View:
    """The mesh seen at a pose, in a window of the image.

    window: (x0, y0, x1, y1) px; mask: (h, w) bool. Rays are cast at every `step`-th pixel: hits
    (h', w') bool and normals (h', w', 3) float32, object frame, are there only. cast: what the
    rays gave with `intrinsics`, from T_camera_object `T`.
    """

    window: Window
    mask: NDArray[np.bool_]
    step: int
    cast: MeshRender
    intrinsics: Array
    T: Array

    @property
    def hits(self) -> NDArray[np.bool_]:
        """(h', w') whether a ray hit."""
        return self.cast.mask

    @property
    def normals(self) -> NDArray[np.float32]:
        """(h', w', 3) unit normals, object frame."""
        return self.cast.normal

    @cached_property
    def points(self) -> NDArray[np.float32]:
        """(h, w, 3) float32 object points, m; made when first asked for."""
        R = self.T[:3, :3].astype(np.float32)
        coarse = (self.cast.points(self.intrinsics) - self.T[:3, 3].astype(np.float32)) @ R
        return coarse if self.step == 1 else filled(coarse, self.step, self.mask.shape)


def filled(coarse: NDArray[np.float32], step: int, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Values (h', w', ...) at every `step`-th pixel, linearly between them: (h, w, ...)."""
    h, w = shape
    columns = (np.arange(w, dtype=np.float32) / step)[None].repeat(h, 0)
    rows = (np.arange(h, dtype=np.float32) / step)[:, None].repeat(w, 1)
    out = cv2.remap(coarse, columns, rows, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    return np.asarray(out, np.float32)


@dataclass(frozen=True)
class Reference:
    """A grey image of the object at a known pose.

    image: (h, w) u1; intrinsics: (fx, fy, cx, cy) px; T_camera_object: (4, 4); depth: (h, w)
    float32, m along the camera's axis, 0 off the object.
    """

    image: Image
    intrinsics: Array
    T_camera_object: Array
    depth: NDArray[np.float32]

    @property
    def direction(self) -> Array:
        """(3,) unit vector from the object's origin to the camera, object frame."""
        eye = -self.T_camera_object[:3, :3].T @ self.T_camera_object[:3, 3]
        return np.asarray(eye / np.linalg.norm(eye))


class Shape:
    """The mesh with its ray-casting hierarchy, its convex hull and its size."""

    def __init__(self, vertices: Array, faces: NDArray[np.integer]) -> None:
        """Take vertices (v, 3) m, object frame, and faces (f, 3); InputError for a bad mesh."""
        self.renderer = MeshRenderer(vertices, faces)
        points = np.asarray(vertices, np.float64)
        hull = points[np.sort(ConvexHull(points).vertices)]
        self.hull = np.ascontiguousarray(hull)
        self.diameter = float(np.linalg.norm(np.ptp(hull, axis=0)))

    def window(self, camera: WorldCamera, pose: Array, margin: int) -> Window | None:
        """Image window around the projected hull; None when it is behind or out of the image."""
        T = camera.T_camera_world @ pose
        p = self.hull @ T[:3, :3].T + T[:3, 3]
        if p[:, 2].min() < 1e-2:
            return None
        fx, fy, cx, cy = camera.intrinsics
        u = np.stack([fx * p[:, 0] / p[:, 2] + cx, fy * p[:, 1] / p[:, 2] + cy], 1)
        low = np.maximum(np.floor(u.min(0)).astype(int) - margin, 0)
        high = np.minimum(np.ceil(u.max(0)).astype(int) + margin + 1, [camera.width, camera.height])
        if (high - low < 8).any():
            return None
        return int(low[0]), int(low[1]), int(high[0]), int(high[1])

    def view(
        self, camera: WorldCamera, pose: Array, margin: int = 12, rays: int = 64
    ) -> View | None:
        """Object points and mask in the window around the object under T_world_object `pose`.

        Large windows are cast at every second to fourth pixel, so that some `rays` of them go
        across, and filled in between: surfaces are smooth at that scale, and a ray costs more than
        all that is done with it.
        """
        window = self.window(camera, pose, margin)
        if window is None:
            return None
        x0, y0, x1, y1 = window
        step = int(np.clip(np.sqrt((x1 - x0) * (y1 - y0)) / rays, 1, 256 // rays))
        width, height = (x1 - x0 + step - 1) // step, (y1 - y0 + step - 1) // step
        fx, fy, cx, cy = (float(v) for v in camera.intrinsics)
        coarse = np.array([fx / step, fy / step, (cx - x0) / step, (cy - y0) / step])
        T = camera.T_camera_world @ pose
        cast = self.renderer.render(coarse, width, height, T)
        mask = cast.mask
        if step > 1:
            mask = filled(mask.astype(np.float32), step, (y1 - y0, x1 - x0)) > 0.999
        return View(window, mask, step, cast, coarse, T)

    def reference(self, image: Image, intrinsics: Array, T_camera_object: Array) -> Reference:
        """A reference from a grey image (h, w) with its pose; the depth is rendered."""
        h, w = image.shape
        camera = WorldCamera(np.asarray(intrinsics, np.float64), np.eye(4), w, h)
        depth = np.zeros((h, w), np.float32)
        window = self.window(camera, T_camera_object, 2)
        if window is not None:
            x0, y0, x1, y1 = window
            k = np.asarray(intrinsics, np.float64) - np.array([0, 0, x0, y0])
            depth[y0:y1, x0:x1] = self.renderer.render(k, x1 - x0, y1 - y0, T_camera_object).depth
        return Reference(image, np.asarray(intrinsics, np.float64), T_camera_object, depth)


def carry(
    reference: Reference, points: NDArray[np.float32], mask: NDArray[np.bool_], tolerance: float
) -> tuple[Image, NDArray[np.bool_]]:
    """The reference's grey values at object points (h, w, 3), and where the reference sees them.

    A point is seen when its depth agrees with the reference's own depth within `tolerance` m.
    """
    T = reference.T_camera_object.astype(np.float32)
    p = points @ T[:3, :3].T + T[:3, 3]
    z = np.maximum(p[..., 2], 1e-4)
    fx, fy, cx, cy = (float(v) for v in reference.intrinsics)
    x = (fx * p[..., 0] / z + cx).astype(np.float32)
    y = (fy * p[..., 1] / z + cy).astype(np.float32)
    grey = cv2.remap(reference.image, x, y, cv2.INTER_LINEAR)
    depth = cv2.remap(reference.depth, x, y, cv2.INTER_NEAREST)
    seen = mask & (depth > 0) & (np.abs(depth - z) < tolerance)
    return np.asarray(grey, np.uint8), seen


def choose(references: list[Reference], direction: Array, count: int) -> list[int]:
    """Indices of the `count` references seen from the directions nearest to `direction` (3,)."""
    similarity = np.array([r.direction @ direction for r in references])
    order = np.argsort(-similarity, kind="stable")[:count]
    return [int(i) for i in order if similarity[i] > 0.3]


def synthesise(
    references: list[Reference],
    camera: WorldCamera,
    pose: Array,
    view: View,
    *,
    tolerance: float,
    count: int = 2,
) -> tuple[Image, NDArray[np.bool_]]:
    """The object as the nearest references show it: grey (h, w) and valid (h, w) of the window.

    Later references only fill what the earlier ones do not see; pixels beside such a seam are
    not valid, because a seam is no feature.
    """
    T = camera.T_camera_world @ pose
    eye = -T[:3, :3].T @ T[:3, 3]
    grey = np.zeros(view.mask.shape, np.uint8)
    source = np.full(view.mask.shape, -1, np.int16)
    for k, i in enumerate(choose(references, eye / np.linalg.norm(eye), count)):
        values, seen = carry(references[i], view.points, view.mask, tolerance)
        new = seen & (source < 0)
        grey[new] = values[new]
        source[new] = k
    kernel = np.ones((5, 5), np.uint8)
    same = cv2.dilate(source, kernel) == cv2.erode(source, kernel)
    return grey, (source >= 0) & same
