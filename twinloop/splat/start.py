"""What training starts from: the visual hull of the masks, or the points of a reconstruction."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from twinloop.errors import InputError
from twinloop.splat.color import vertex_colors
from twinloop.splat.gaussians import SH0, Gaussians, on_surface
from twinloop.splat.hull import hull_mesh
from twinloop.splat.views import Views


def from_masks(
    views: Views,
    count: int = 5000,
    degree: int = 1,
    seed: int = 0,
    resolution: int = 64,
    table: float | None = None,
) -> Gaussians:
    """`count` Gaussians on the visual hull of the masks, in the colours of the pictures.

    `resolution` is the number of grid cells along the longest side; `table` (m) cuts the hull off.
    Raises InputError where the masks have no hull.
    """
    vertices, faces = hull_mesh(views, resolution, table=table)
    colors = vertex_colors(vertices, faces, views)
    return on_surface(vertices, faces, colors, count, degree, seed)


def from_points(
    points: NDArray[np.floating],
    colors: NDArray[np.uint8],
    degree: int = 1,
    opacity: float = 0.5,
    largest: float = 0.1,
) -> Gaussians:
    """A Gaussian at each point (n, 3), as wide as its three neighbours are far on average.

    colors: (n, 3) sRGB. largest: widest, as part of the points' median distance from their middle.
    Raises InputError for fewer than four points or values that are not finite.
    """
    points = np.asarray(points, np.float64)
    if len(points) < 4 or not np.isfinite(points).all():
        raise InputError(
            f"start of training: {len(points)} points, "
            f"{int((~np.isfinite(points)).any(axis=-1).sum())} of them not finite; expected at "
            "least 4 finite ones. Did structure from motion find too few?"
        )
    near = np.asarray(cKDTree(points).query(points, k=4)[0])[:, 1:].mean(axis=1)
    away = float(np.median(np.linalg.norm(points - np.median(points, axis=0), axis=1)))
    scale = near.clip(1e-4 * away, largest * away)
    sh = np.zeros((len(points), (degree + 1) ** 2, 3))
    sh[:, 0] = (colors.astype(np.float64) / 255 - 0.5) / SH0
    return Gaussians(
        points.astype(np.float32),
        np.tile(np.array([1, 0, 0, 0], np.float32), (len(points), 1)),
        np.repeat(scale[:, None], 3, axis=1).astype(np.float32),
        np.full(len(points), opacity, np.float32),
        sh.astype(np.float32),
    )
