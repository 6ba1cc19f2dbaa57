"""The one distance grid of an object: read from its reconstruction by whoever needs distances."""

from __future__ import annotations

import warnings

import numpy as np
import numpy.typing as npt
import xarray as xr

from twinloop.capture.warning import CaptureWarning
from twinloop.geometry.sdf import DistanceGrid, bake

Array = npt.NDArray[np.float64]

CELLS = 64
"""Cells along the longest side where a grid has to be baked anew: what `reconstruct` takes."""
MARGIN = 0.02
"""m beyond the mesh, likewise."""


def object_grid(reconstruction: xr.DataTree, where: str, *, reach: float = 0.0) -> DistanceGrid:
    """The grid that a reconstruction stores, object frame.

    A reconstruction of before 1.1 stores none, and one with a narrow margin may end before what is
    to be seen: then a grid is baked here, with a CaptureWarning.

    Args:
        reconstruction: Artifact of ``reconstruct``.
        where: What the warning begins with: the object's name.
        reach: m, how far from the mesh the grid must go at least.

    Raises:
        ArtifactError: The stored arrays are no grid.
        InputError: The stored values are no distances, or the mesh is none.
    """
    vertices = reconstruction["mesh"]["vertices"].to_numpy().astype(np.float64)
    faces = reconstruction["mesh"]["faces"].to_numpy().astype(np.int32)
    stored = reconstruction.children.get("distance")
    if stored is not None:
        grid = DistanceGrid.from_dataset(stored.to_dataset(inherit=False))
        found = grid_reach(grid, vertices)
        if found >= reach:
            return grid
        why = f"the stored distance grid ends {1e3 * found:.1f} mm from the mesh"
    else:
        why = "the reconstruction stores no distance grid"
    margin = max(MARGIN, reach)
    warnings.warn(
        f"{where}: {why}; one of {CELLS} cells that reaches {1e3 * margin:.0f} mm is baked for "
        "this stage alone. Reconstruct again (`reconstruct.distance_margin` sets how far it goes) "
        "to have one for all stages.",
        CaptureWarning,
        stacklevel=2,
    )
    return bake(vertices, faces, margin=margin, cells=CELLS)


def grid_reach(grid: DistanceGrid, vertices: Array) -> float:
    """How far (m) `grid` goes beyond the bounding box of `vertices` (v, 3) m, where it is least.

    To a micrometre, because margins are sums of rounded numbers; negative where the grid cuts the
    box.
    """
    low, high = vertices.min(axis=0) - grid.origin, grid.top - vertices.max(axis=0)
    return float(np.round(min(low.min(), high.min()), 6))
