"""One surface from many depth pictures: a truncated signed distance field (Curless and Levoy 1996).

Each grid point gets, from each view that reaches it, the distance to the surface's tangent plane at
the pixel, and keeps the mean. Three details keep the mean unbiased where pixels are as large as the
accuracy that is wanted: inverse depth is interpolated, since it and not depth is linear over a
plane's image; the distance along the ray is shortened by the cosine of the angle to the normal; and
a view counts by that cosine squared, because a depth error grows as the surface turns away.

The outlines bound the surface from outside, as in `twinloop.splat.hull`: nothing may stick out of
them. Where no camera reached, it is taken to be inside.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import warp as wp
from numpy.typing import NDArray

from twinloop.errors import InputError
from twinloop.splat.hull import Silhouettes, bounds
from twinloop.splat.surface import Faces, mesh_of_field
from twinloop.splat.tsdf_kernel import fuse_depth
from twinloop.splat.views import Float, Float32, Views
from twinloop.threads import each

MOST_CELLS = 16_000_000
"""Most grid points; the fields of a fusion take 64 MB each."""


@dataclass(frozen=True)
class FusionSettings:
    """How depth is fused; lengths are in pixels of the pictures at the object's distance."""

    cell: float = 0.7
    """Side of a grid cell."""
    reach: float = 3.0
    """Truncation: how far from a depth's surface it speaks; at least 3 cells are taken."""
    slope: float = 6.0
    """Depth differences within a pixel, in its own sizes, from which on it is a depth edge."""
    slack: float = 0.25
    """How far the surface may stick out of the outlines, whose tightest would be too tight."""
    tolerate: int = 0
    """How many views' outlines a point may violate, 0 to 2."""
    table: float | None = None
    """Height (m, world z) below which nothing is, where the object stood on a table."""


@dataclass(frozen=True)
class Field:
    """Distance to the surface (m, positive inside): point (i, j, k) at `origin` + `step` ijk."""

    value: Float32
    origin: Float
    step: float

    def mesh(self) -> tuple[Float, Faces]:
        """Watertight mesh of the zero level: vertices (v, 3) m, faces (f, 3) outward."""
        return mesh_of_field(self.value, self.origin, self.step)

    def normals(self, points: Float) -> Float:
        """Unit outward normals (n, 3) of the field at points (n, 3) m, by central differences."""
        from scipy.ndimage import map_coordinates

        grid = (points - self.origin) / self.step
        gradient = np.empty((len(points), 3))
        for axis in range(3):
            shift = np.zeros(3)
            shift[axis] = 1.0
            ahead, behind = (
                map_coordinates(self.value, (grid + sign * shift).T, order=1, mode="nearest")
                for sign in (1.0, -1.0)
            )
            gradient[:, axis] = behind - ahead
        length = np.linalg.norm(gradient, axis=1, keepdims=True)
        return np.asarray(gradient / np.maximum(length, 1e-20))


@dataclass(frozen=True)
class Fusion:
    """What depths say and what outlines say, apart; distances in m, positive inside."""

    surface: Float32
    hull: Float32
    origin: Float
    step: float
    pixel: float
    """Size (m) of the pictures' pixels at the object."""
    settings: FusionSettings

    def field(self, offset: float = 0.0, agree: float = 0.0) -> Field:
        """Both together, the depths' surface moved outward by `offset` (m) first.

        Where the two differ by less than half of `agree` (pixels) they are taken to mean the same
        surface, which outlines know better; up to `agree` it goes over to the depths'.
        """
        slack = self.settings.slack * self.pixel
        surface = self.surface + np.float32(offset)
        if agree > 0:
            gap = self.hull - surface
            surface += np.clip(2 - np.abs(gap) / np.float32(0.5 * agree * self.pixel), 0, 1) * gap
        value = np.minimum(surface, self.hull + np.float32(slack))
        table = self.settings.table
        if table is not None:
            heights = self.origin[2] + self.step * np.arange(value.shape[2]) - table
            value = np.minimum(value, heights.astype(np.float32))
        return Field(value, self.origin, self.step)


def depth_cosines(depth: Float32, intrinsics: Float) -> Float32:
    """Cosine (y, x) of the angle between a depth picture's surface and its rays, 0 where unknown.

    `depth` (y, x) is in m along z, 0 where there is none; `intrinsics` fx, fy, cx, cy of the same
    picture. Differences are central where both neighbours are on the surface, else one-sided.
    """
    fx, fy, cx, cy = (float(v) for v in intrinsics)
    rows, columns = np.indices(depth.shape)
    inverse = np.where(depth > 0, 1 / np.maximum(depth, 1e-9), np.nan)
    # Of a plane n.p = 1, inverse depth is n.ray: its slopes over the image give n at once.
    slopes = [_slope(inverse, axis) for axis in (1, 0)]
    x, y = (columns - cx) / fx, (rows - cy) / fy
    nx, ny = fx * slopes[0], fy * slopes[1]
    nz = inverse - x * nx - y * ny
    length = np.sqrt(nx**2 + ny**2 + nz**2) * np.sqrt(x**2 + y**2 + 1)
    with np.errstate(invalid="ignore"):
        cosine = inverse / length
    return np.asarray(np.nan_to_num(cosine, nan=0.0), np.float32)


def _slope(values: NDArray[np.floating], axis: int) -> NDArray[np.floating]:
    """Differences along an axis: of the two one-sided ones their mean, or the one there is."""
    ahead = np.full_like(values, np.nan)
    behind = np.full_like(values, np.nan)
    difference = np.diff(values, axis=axis)
    if axis == 0:
        ahead[:-1], behind[1:] = difference, difference
    else:
        ahead[:, :-1], behind[:, 1:] = difference, difference
    # Across a depth edge one side is far steeper than the other: then the gentle side is right.
    with np.errstate(invalid="ignore"):
        gentle = np.where(np.abs(ahead) < np.abs(behind), ahead, behind)
        steep = np.where(np.abs(ahead) < np.abs(behind), behind, ahead)
        even = np.abs(steep) < 3 * np.abs(gentle) + 0.003 * np.abs(values)
    one = np.where(np.isnan(ahead), behind, ahead)
    both = np.where(even, 0.5 * (ahead + behind), gentle)
    return np.asarray(np.where(np.isnan(both), one, both))


def fuse(
    views: Views,
    shapes: Silhouettes,
    depth: Float32,
    settings: FusionSettings | None = None,
) -> Fusion:
    """Fuse depth pictures around the object.

    Args:
        views: Cameras, world frame.
        shapes: Their outlines, on crops.
        depth: (view, y, x) m along z on the same crops, 0 where there is none. The first pixel's
            centre is at `shapes.corner` in the whole picture.
        settings: Cell, truncation and so on.

    The grid covers the hull of the outlines; its cell follows the pictures' resolution, and grows
    where it would take more than `MOST_CELLS` points. The result is the same for any number of
    threads.

    Raises:
        InputError: Depth of another shape, negative or not finite, or none at all; outlines that
            no point in space agrees with.
    """
    settings = settings or FusionSettings()
    _check(views, shapes, depth)
    low, high = bounds(views, shapes, settings.tolerate)
    if settings.table is not None:
        low[2] = max(float(low[2]), settings.table)
        high[2] = max(float(high[2]), settings.table)
    pixel = _pixel(views, (low + high) / 2)
    step = settings.cell * pixel
    low, high = low - 2.5 * step, high + 2.5 * step
    step = max(step, float(np.cbrt(np.prod(high - low) / MOST_CELLS)))
    count = np.ceil((high - low) / step).astype(int) + 1
    reach = max(settings.reach * pixel, 3 * step)
    surface, hull = np.zeros((2, *count), np.float32)
    inverse = np.where(depth > 0, 1 / np.maximum(depth, 1e-9), 0).astype(np.float32)
    cosine = np.empty_like(inverse)
    for v in range(len(views)):
        cosine[v] = depth_cosines(
            depth[v], views.intrinsics[v] - np.r_[0, 0, shapes.corner[v].astype(np.float64)]
        )

    def array(values: NDArray[np.floating], dtype: object) -> object:
        return wp.array(np.ascontiguousarray(values, np.float32), dtype=dtype, device="cpu")

    inputs = [
        wp.vec3(*low.tolist()),
        float(step),
        reach,
        settings.slope,
        array(shapes.distance, wp.float32),
        array(inverse, wp.float32),
        array(cosine, wp.float32),
        array(shapes.corner, wp.vec2),
        array(views.intrinsics, wp.vec4),
        array(views.T_camera_world[:, :3, :3], wp.mat33),
        array(views.T_camera_world[:, :3, 3], wp.vec3),
        settings.tolerate,
        wp.array(surface, dtype=wp.float32, device="cpu", copy=False),
        wp.array(hull, dtype=wp.float32, device="cpu", copy=False),
    ]
    wp.load_module(fuse_depth.module, device="cpu")  # once, and not from several threads

    def slices(part: int) -> None:
        first = part * _SLICES
        dim = (min(_SLICES, int(count[0]) - first), int(count[1]), int(count[2]))
        wp.launch(fuse_depth, dim=dim, inputs=[first, *inputs], device="cpu")

    each(slices, -(-int(count[0]) // _SLICES))
    return Fusion(surface, hull, low, float(step), pixel, settings)


_SLICES = 8


def _pixel(views: Views, middle: Float) -> float:
    """Median size (m) of a pixel at a point."""
    z = (views.T_camera_world[:, :3, :3] @ middle + views.T_camera_world[:, :3, 3])[:, 2]
    return float(np.median(np.abs(z) / views.intrinsics[:, 0]))


def _check(views: Views, shapes: Silhouettes, depth: Float32) -> None:
    expected = (len(views), *shapes.distance.shape[1:])
    if depth.shape != expected:
        raise InputError(f"depth to fuse has shape {depth.shape}, expected {expected}")
    finite = np.isfinite(depth)
    if not finite.all() or (depth < 0).any():
        bad = tuple(int(i) for i in np.argwhere(~finite | ~(depth >= 0))[0])
        raise InputError(
            f"depth to fuse: {depth[bad]} at (view, row, column) {bad}; expected metres, 0 where "
            "there is none"
        )
    if not (depth > 0).any():
        raise InputError(
            "depth to fuse: no picture has any; did the training lose the object? Look at its "
            "masks, and at the poses of ingest"
        )
