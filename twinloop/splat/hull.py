"""Visual hull of an object from posed masks: a metric field, its iso-surface, and a clean mesh.

Each mask becomes a signed distance image (pixels, positive inside) whose zero is sub-pixel. A point
in space gets, from each view, that distance times depth over focal length, which is the distance
(m) to the silhouette's viewing cone to first order; the hull's field is the smallest over the
views. Being linear across the surface, it lets marching cubes place vertices far below the voxel
size.

Images follow OpenCV: the first pixel's centre is (0, 0).
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
import warp as wp
from numpy.typing import NDArray

from twinloop.errors import InputError
from twinloop.splat.hull_kernel import carve
from twinloop.splat.surface import Faces, mesh_of_field
from twinloop.splat.views import Float, Float32, Views, signed_distance


@dataclass(frozen=True)
class Silhouettes:
    """Signed distance crops: `distance` (view, y, x) px, positive inside; `corner` (view, 2) px."""

    distance: Float32
    corner: Float32


def silhouettes(masks: NDArray[np.uint8], margin: int = 6) -> Silhouettes:
    """Signed distances on crops around each mask, all of one size so that they stack.

    Raises InputError when fewer than two masks show anything.
    """
    boxes = [cv2.boundingRect((m >= 128).astype(np.uint8)) for m in masks]
    shown = [b for b in boxes if b[2] > 0]
    if len(shown) < 2:
        raise InputError(
            f"masks: {len(shown)} of {len(masks)} training frames show the object; expected at "
            "least 2. Check the masks of ingest (plots/ingest): is the object in view and unlike "
            "the table?"
        )
    width = max(b[2] for b in shown) + 2 * margin
    height = max(b[3] for b in shown) + 2 * margin
    distance = np.empty((len(masks), height, width), np.float32)
    corner = np.zeros((len(masks), 2), np.float32)
    for i, (x, y, w, h) in enumerate(boxes):
        corner[i] = (x + w // 2 - width // 2, y + h // 2 - height // 2)
        x0, y0 = (int(c) for c in corner[i])
        padded = np.zeros((height, width), np.uint8)
        ys, xs = slice(max(y0, 0), y0 + height), slice(max(x0, 0), x0 + width)
        part = masks[i][ys, xs]
        padded[max(-y0, 0) :, max(-x0, 0) :][: part.shape[0], : part.shape[1]] = part
        distance[i] = signed_distance(padded)
    return Silhouettes(distance, corner)


def hull_field(
    views: Views,
    shapes: Silhouettes,
    origin: Float,
    step: float,
    shape: tuple[int, int, int],
    tolerate: int = 0,
) -> Float32:
    """Metric distance to the hull (m, positive inside) on a grid of `shape` points.

    Grid point (i, j, k) is at `origin` + `step` * (i, j, k). `tolerate` (0 to 2) is how many views
    may call a point outside before it is.
    """
    field = np.zeros(shape, np.float32)

    def array(values: NDArray[np.floating], dtype: object) -> object:
        return wp.array(np.ascontiguousarray(values, np.float32), dtype=dtype, device="cpu")

    wp.launch(
        carve,
        dim=shape,
        inputs=[
            wp.vec3(*origin.tolist()),
            float(step),
            wp.vec3i(*shape),
            array(shapes.distance, wp.float32),
            array(shapes.corner, wp.vec2),
            array(views.intrinsics, wp.vec4),
            array(views.T_camera_world[:, :3, :3], wp.mat33),
            array(views.T_camera_world[:, :3, 3], wp.vec3),
            tolerate,
            wp.array(field, dtype=wp.float32, device="cpu", copy=False),
        ],
        device="cpu",
    )
    return field


def bounds(views: Views, shapes: Silhouettes, tolerate: int = 0) -> tuple[Float, Float]:
    """Corners (lowest, highest; m, world) of a box around the hull, found by coarse carving.

    The search starts at the point nearest to all rays through the masks' centres. Raises InputError
    when no point in space agrees with the masks.
    """
    _, height, width = shapes.distance.shape
    centre = shapes.corner + np.array([(width - 1) / 2, (height - 1) / 2])
    f, c = views.intrinsics[:, :2], views.intrinsics[:, 2:]
    rotation = views.T_camera_world[:, :3, :3]
    eye = -np.einsum("vji,vj->vi", rotation, views.T_camera_world[:, :3, 3])
    ray = np.concatenate([(centre - c) / f, np.ones((len(views), 1))], axis=1)
    ray = np.einsum("vji,vj->vi", rotation, ray)
    across = np.eye(3) - np.einsum("vi,vj->vij", ray, ray) / (ray**2).sum(1)[:, None, None]
    middle = np.linalg.solve(across.sum(0), np.einsum("vij,vj->i", across, eye))
    range_ = float(np.median(np.linalg.norm(eye - middle, axis=1)))
    half = range_ * float(np.hypot(width, height)) / float(np.median(f))
    low, high = middle - half, middle + half
    for _ in range(2):
        step = float((high - low).max()) / 47
        shape = tuple(int(n) for n in np.ceil((high - low) / step).astype(int) + 1)
        field = hull_field(views, shapes, low, step, (shape[0], shape[1], shape[2]), tolerate)
        inside = np.argwhere(field > -0.87 * step)
        if len(inside) == 0:
            raise InputError(
                f"visual hull: no point within {half:.2f} m of {np.round(middle, 3)} lies in the "
                f"masks of all {len(views)} training frames. The camera poses and masks of ingest "
                "disagree: was the object moved during the scan, or is the board's size in "
                "board.yaml wrong?"
            )
        low, high = low + step * (inside.min(0) - 1), low + step * (inside.max(0) + 1)
    return low, high


def hull_mesh(
    views: Views, resolution: int = 96, tolerate: int = 0, table: float | None = 0.0
) -> tuple[Float, Faces]:
    """Watertight mesh of the visual hull: vertices (v, 3) m in world, faces (f, 3) outward.

    `resolution` is the number of grid cells along the longest side. With `table`, everything below
    that height (m) is cut off flat: the object stood there, and no camera saw its underside.
    """
    shapes = silhouettes(views.mask)
    low, high = bounds(views, shapes, tolerate)
    if table is not None:
        if high[2] <= table:
            raise InputError(
                f"visual hull: the object lies below the table: its top is at {high[2]:.3f} m, and "
                f"table_height says {table:.3f} m. Set table_height of reconstruct, or check where "
                "ingest put the table's plane"
            )
        low[2] = max(low[2], table)
    step = float((high - low).max()) / resolution
    # Half a cell, so that the table does not fall on grid points: a zero there makes slivers.
    low, high = low - 2.5 * step, high + 2.5 * step
    count = np.ceil((high - low) / step).astype(int) + 1
    field = hull_field(
        views, shapes, low, step, (int(count[0]), int(count[1]), int(count[2])), tolerate
    )
    if table is not None:
        heights = low[2] + step * np.arange(count[2]) - table
        field = np.minimum(field, heights.astype(np.float32))
    return mesh_of_field(field, low, step)
