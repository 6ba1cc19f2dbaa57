"""The table and what is around it as Gaussians of their own, from the frames of an object's scan.

The whole picture is fitted at once, object included, since the object hides the table in every
frame; then what lies within the object's masks is taken out. What no camera saw, the table under
the object, is filled with the colours around it and named apart.
"""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from twinloop.errors import InputError
from twinloop.geometry.camera import rays
from twinloop.splat.checkpoint import Checkpoint
from twinloop.splat.gaussians import SH0, Gaussians, on_surface
from twinloop.splat.scene import SplatScene, joined
from twinloop.splat.train import TrainSettings, train
from twinloop.splat.views import Views

Float = NDArray[np.float64]

TABLE, INFERRED = "table", "table_inferred"
"""Names of the parts: what was seen, and what was filled in."""
DOME = 4.0
"""Radius of the backdrop, in distances of the cameras from the table."""
FARTHEST = 2.5
"""How far the table is sown, in the same."""
WIDER = 5
"""Width (px) of the square that masks are dilated by."""
INSIDE = 0.8
"""Part of the pictures showing a Gaussian in whose mask it must lie to be the object's."""


def fit_surroundings(
    views: Views,
    body: Gaussians,
    settings: TrainSettings,
    *,
    table_height: float = 0.0,
    count: int = 6000,
    device: str = "cpu",
    checkpoint: Checkpoint | None = None,
) -> SplatScene:
    """Gaussians of everything but the object, in the world's frame (z up, the table at a height).

    Args:
        views: The scan's pictures, whole, with the object's masks; poses in the world's frame.
        body: The object's Gaussians in the world's frame, which stand for it during the fit.
        settings: Of the fit: `scene_settings()`.
        table_height: Height of the table's plane, m.
        count: Gaussians to begin with, two thirds on the table and a third on the backdrop.
        device: See `train`.
        checkpoint: Keeps the fit's state (see `train`).

    Raises:
        InputError: No camera sees the table, or all that is left after the fit is the object.
    """
    start = surroundings_start(views, table_height, count, settings.seed)
    whole = train(joined([start, body]), views, settings, device, checkpoint=checkpoint)
    assert isinstance(whole, Gaussians)
    rest = _take(whole, ~within_masks(whole.means, views))
    if len(rest) == 0:
        raise InputError(
            "table: all Gaussians lie within the object's masks; are the masks inverted, or do "
            "they cover the whole pictures?"
        )
    patch = _under(body, rest, table_height)
    label = np.repeat([0, 1], [len(rest), len(patch)]).astype(np.int32)
    return SplatScene(joined([rest, patch]), label, (TABLE, INFERRED))


def surroundings_start(views: Views, table_height: float, count: int, seed: int) -> Gaussians:
    """Flat Gaussians on the table's plane and on a dome around it, in the pictures' mean colours.

    Raises:
        InputError: No camera looks down at the table.
    """
    centre, reach, distance = _seen_table(views, table_height)
    sown = min(reach, FARTHEST * distance)
    disc, dome = _disc(centre, sown), _dome(centre, DOME * distance)
    parts = []
    for (vertices, faces), share, number in ((disc, 2 / 3, 0), (dome, 1 / 3, 1)):
        colors = mean_colors(vertices, views)
        parts.append(on_surface(vertices, faces, colors, int(share * count), 1, seed + number))
    start = joined(parts)
    assert isinstance(start, Gaussians)
    return start


def mean_colors(points: Float, views: Views) -> NDArray[np.uint8]:
    """Colours (n, 3), sRGB, of `points` (n, 3) m: means over pictures that see them past the mask.

    Points that none sees take the colour of the nearest that one does, or grey.
    """
    total, times = np.zeros((len(points), 3)), np.zeros(len(points))
    for i in range(len(views)):
        column, row, here = _pixels(points, views, i)
        here &= views.mask[i][row, column] < 128
        total[here] += views.image[i][row[here], column[here]]
        times += here
    colors = np.full((len(points), 3), 128.0)
    seen = times > 0
    if seen.any():
        colors[seen] = total[seen] / times[seen, None]
        nearest = cKDTree(points[seen]).query(points[~seen])[1]
        colors[~seen] = colors[seen][nearest]
    return np.asarray(np.rint(colors), np.uint8)


def within_masks(points: NDArray[np.floating], views: Views) -> NDArray[np.bool_]:
    """Which of `points` (n, 3) lie in the slightly dilated mask of most pictures showing them."""
    shown, inside = np.zeros(len(points)), np.zeros(len(points))
    kernel = np.ones((WIDER, WIDER), np.uint8)
    for i in range(len(views)):
        column, row, here = _pixels(np.asarray(points, np.float64), views, i)
        wide = cv2.dilate(views.mask[i], kernel) >= 128
        shown += here
        inside += here & wide[row, column]
    return (shown > 0) & (inside >= INSIDE * shown)


def _pixels(
    points: Float, views: Views, index: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Column and row (n,) of each point in a picture, kept inside it, and whether it is there."""
    T = views.T_camera_world[index]
    p = points @ T[:3, :3].T + T[:3, 3]
    fx, fy, cx, cy = views.intrinsics[index]
    z = np.where(p[:, 2] > 1e-6, p[:, 2], np.inf)
    height, width = views.mask.shape[1:]
    column = np.rint(fx * p[:, 0] / z + cx).clip(-1, width).astype(np.int64)
    row = np.rint(fy * p[:, 1] / z + cy).clip(-1, height).astype(np.int64)
    here = np.isfinite(z) & (column >= 0) & (row >= 0) & (column < width) & (row < height)
    return column.clip(0, width - 1), row.clip(0, height - 1), here


def _seen_table(views: Views, table_height: float) -> tuple[Float, float, float]:
    """Middle (3,) of what the cameras look at on the table, how far corners reach, their distance.

    The reach is the median over pictures of the farthest corner whose ray meets the table.
    """
    height, width = views.mask.shape[1:]
    middles, reaches, distances = [], [], []
    for i in range(len(views)):
        T = np.linalg.inv(views.T_camera_world[i])
        k = views.intrinsics[i]
        all_rays = rays(k, width, height)
        corner = [all_rays[r, c] for r in (0, -1) for c in (0, -1)]
        hits = [_meet(T, d, table_height) for d in (np.array([0.0, 0.0, 1.0]), *corner)]
        if hits[0] is None:
            continue
        middles.append(hits[0])
        distances.append(np.linalg.norm(hits[0] - T[:3, 3]))
        far = [np.linalg.norm(h - hits[0]) for h in hits[1:] if h is not None]
        reaches.append(max(far, default=2 * distances[-1]))
    if not middles:
        raise InputError(
            f"table: no camera looks down at the plane z = {table_height:g} m; is the world's z up "
            "and its origin on the table? Give the height of the table."
        )
    return np.median(middles, axis=0), float(np.median(reaches)), float(np.median(distances))


def _meet(T_world_camera: Float, direction: Float, height: float) -> Float | None:
    """Where a ray of the camera meets the plane z = `height`, or None."""
    d = T_world_camera[:3, :3] @ direction
    t = (height - T_world_camera[2, 3]) / d[2] if abs(d[2]) > 1e-9 else -1.0
    return T_world_camera[:3, 3] + t * d if t > 0 else None


def _disc(centre: Float, radius: float) -> tuple[Float, NDArray[np.int32]]:
    """A disc in the table's plane, facing up: vertices (v, 3), faces (f, 3)."""
    rings, spokes = 24, 72
    r, a = np.meshgrid(np.linspace(0, radius, rings + 1)[1:], np.arange(spokes), indexing="ij")
    angle = 2 * np.pi * a / spokes
    flat = np.stack([r * np.cos(angle), r * np.sin(angle), 0 * r], axis=-1).reshape(-1, 3)
    return _fan(np.concatenate([np.zeros((1, 3)), flat]) + centre, rings, spokes)


def _dome(centre: Float, radius: float) -> tuple[Float, NDArray[np.int32]]:
    """A half sphere over the table, facing in."""
    rings, spokes = 12, 36
    heights = np.linspace(np.pi / 2, -0.05, rings + 1)[1:]
    e, a = np.meshgrid(heights, np.arange(spokes), indexing="ij")
    angle = 2 * np.pi * a / spokes
    out = np.stack([np.cos(e) * np.cos(angle), np.cos(e) * np.sin(angle), np.sin(e)], axis=-1)
    points = np.concatenate([np.array([[0.0, 0.0, 1.0]]), out.reshape(-1, 3)])
    vertices, faces = _fan(radius * points + centre, rings, spokes)
    return vertices, faces[:, ::-1].copy()


def _fan(vertices: Float, rings: int, spokes: int) -> tuple[Float, NDArray[np.int32]]:
    """Faces between a middle vertex and rings of `spokes` vertices, counter-clockwise from +z."""
    k = np.arange(spokes)
    near, after = 1 + k, 1 + (k + 1) % spokes
    faces = [np.stack([0 * k, near, after], axis=1)]
    for i in range(rings - 1):
        a, b = near + i * spokes, after + i * spokes
        c, d = a + spokes, b + spokes
        faces += [np.stack([a, c, b], axis=1), np.stack([b, c, d], axis=1)]
    return vertices, np.concatenate(faces).astype(np.int32)


def _take(gaussians: Gaussians, which: NDArray[np.bool_]) -> Gaussians:
    return Gaussians(
        gaussians.means[which],
        gaussians.quaternions[which],
        gaussians.scales[which],
        gaussians.opacities[which],
        gaussians.sh[which],
    )


def _under(body: Gaussians, table: Gaussians, table_height: float) -> Gaussians:
    """Flat Gaussians on the plane under `body` where `table` has none, coloured as those around."""
    low, high = np.percentile(body.means[:, :2].astype(np.float64), [1, 99], axis=0)
    middle, radius = (low + high) / 2, 0.6 * float(np.linalg.norm(high - low))
    spacing = max(radius / 12, 1e-4)
    steps = np.arange(-radius, radius + spacing, spacing)
    xy = np.stack(np.meshgrid(steps, steps, indexing="ij"), axis=-1).reshape(-1, 2)
    xy = xy[np.linalg.norm(xy, axis=1) <= radius] + middle
    points = np.column_stack([xy, np.full(len(xy), table_height)])
    on_plane = np.abs(table.means[:, 2] - table_height) < max(3 * spacing, 0.01)
    around = _take(table, on_plane) if on_plane.any() else table
    tree = cKDTree(around.means.astype(np.float64))
    bare = tree.query(points)[0] > spacing
    points = points[bare]
    near = np.asarray(tree.query(points, k=min(8, len(around)))[1]).reshape(len(points), -1)
    n = len(points)
    sh = np.zeros((n, table.sh.shape[1], 3), np.float32)
    shown = (0.5 + SH0 * around.sh[:, 0]).clip(0, 1)
    sh[:, 0] = (np.median(shown[near], axis=1) - 0.5) / SH0 if n else 0
    return Gaussians(
        points.astype(np.float32),
        np.tile(np.array([1, 0, 0, 0], np.float32), (n, 1)),
        np.tile((np.array([0.6, 0.6, 0.05]) * spacing).astype(np.float32), (n, 1)),
        np.full(n, 0.95, np.float32),
        sh,
    )
