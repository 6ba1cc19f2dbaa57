"""Whether a splat or a mesh that was made elsewhere is of the object, size and place of a scan."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinloop.errors import InputError
from twinloop.geometry.repair import repair
from twinloop.splat.gaussians import Gaussians, on_surface
from twinloop.splat.imported import Mesh
from twinloop.splat.model import NAMES
from twinloop.splat.scan_views import LEAST_OVERLAP, mask_overlap
from twinloop.splat.surfels import Surfels
from twinloop.splat.surroundings import within_masks
from twinloop.splat.views import Views

FAINT = 0.05
"""Opacity under which a splat says nothing of the shape."""
LEAST_INSIDE, LEAST_MESH_INSIDE = 0.5, 0.9
"""Part of the splats, or of a mesh's surface, that must lie within the masks: splats may have some
of what is around."""
SIZES = (0.9, 1.1)
"""Size in the pictures, in sizes of the masks, that is taken for the same."""
SAMPLES = 4000
"""Points of a mesh that are looked at."""


@dataclass(frozen=True)
class FittingStart:
    """What to start from, in the views' world, and how well it agrees with the masks."""

    found: Gaussians | Surfels | Mesh
    """Splats without what lies outside the masks, or a solid mesh."""
    inside: float
    """Part of the file's splats, or of the mesh's surface, that lies within the masks."""
    size: float
    """Its diagonal in the pictures in diagonals of the masks, median."""


def fitting_start(found: Gaussians | Surfels | Mesh, views: Views, where: str) -> FittingStart:
    """Check `found`, which is in the views' world (m), against the masks; `where` begins messages.

    Splats outside the masks, say of the table, are left out; a mesh is made solid.

    Raises:
        InputError: It is larger or smaller than the masks show, or lies elsewhere; a mesh encloses
            nothing, or its outline is another; all splats are faint.
    """
    if isinstance(found, Mesh):
        try:
            solid = repair(found.vertices, found.faces)
        except InputError as error:
            raise InputError(f"{where}: {error}") from error
        colors = found.colors if len(solid.vertices) == len(found.vertices) else None
        found = Mesh(solid.vertices, solid.faces.astype(np.int32), colors)
        grey = np.full((len(found.vertices), 3), 128, np.uint8)
        points = on_surface(found.vertices, found.faces, grey, SAMPLES, 0, 0).means
        kept = within_masks(points, views)
    else:
        clear = found.opacities >= FAINT
        if not clear.any():
            raise InputError(
                f"{where}: all {len(found)} splats have opacities under {FAINT}; expected some "
                "that show. Are they a training's first ones?"
            )
        all_kept = within_masks(found.means, views)
        points, kept = found.means[clear], all_kept[clear]
        changes: dict[str, Any] = {n: getattr(found, n)[all_kept] for n in NAMES}
        if isinstance(found, Gaussians):
            changes["stored"] = None
        found = replace(found, **changes)
    inside = float(kept.mean())
    least = LEAST_MESH_INSIDE if isinstance(found, Mesh) else LEAST_INSIDE
    whole, away = _compared(points, views, 1.0)
    if inside < least:
        raise InputError(
            f"{where}: {1 - inside:.0%} of it lies outside the masks, expected less than "
            f"{1 - least:.0%}; it is {whole:.3g} times as large as they are, and its middle "
            f"is {away:.2g} of their size away from theirs (medians). Set start_scale, start_turn "
            "and start_move so that it lies in the scan's world (metres, z up), or cut off what is "
            "not the object."
        )
    size = _compared(points[kept], views, 0.0)[0]
    if not SIZES[0] <= size <= SIZES[1]:
        raise InputError(
            f"{where}: it is {size:.3g} times as large as the masks (median over {len(views)} "
            f"pictures), expected {SIZES[0]} to {SIZES[1]}. Is it of this object, and is "
            "start_scale what one unit of the file is in metres?"
        )
    if isinstance(found, Mesh):
        overlap = mask_overlap(found.vertices, found.faces, views)
        if overlap < LEAST_OVERLAP:
            raise InputError(
                f"{where}: its outline covers {overlap:.0%} of the masks (median, intersection "
                f"over union), expected {LEAST_OVERLAP:.0%}. Is it of this object, and does it lie "
                "as the object does in the scan's world (start_turn, start_move)?"
            )
    return FittingStart(found, inside, size)


def _compared(points: NDArray[np.floating], views: Views, without: float) -> tuple[float, float]:
    """Size of points (n, 3) in the pictures, and how far their middle is from the masks' middle.

    Both in diagonals of the masks' boxes, medians over the views whose camera has the points before
    it; the box of the points leaves `without` % out on each side.
    """
    sizes, offsets = [], []
    for i in range(len(views)):
        box = views.box(i, 0)
        T, k = views.T_camera_world[i], views.intrinsics[i]
        p = points.astype(np.float64) @ T[:3, :3].T + T[:3, 3]
        p = p[p[:, 2] > 1e-6]
        if box is None or len(p) == 0:
            continue
        pixels = k[:2] * p[:, :2] / p[:, 2:] + k[2:]
        low, high = np.percentile(pixels, [without, 100 - without], axis=0)
        corners = np.array(box, np.float64).reshape(2, 2)
        diagonal = float(np.linalg.norm(corners[1] - corners[0]))
        sizes.append(float(np.linalg.norm(high - low)) / diagonal)
        offsets.append(float(np.linalg.norm((low + high - corners.sum(axis=0)) / 2)) / diagonal)
    return (float(np.median(sizes)), float(np.median(offsets))) if sizes else (np.inf, np.inf)
