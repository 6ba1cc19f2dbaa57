"""Where the twin's frame lies in the true one: once per object, by its surface."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.track_sequence import Array
from twinloop.geometry import se3
from twinloop.geometry.surface import TriangleSurface
from twinloop.lab.objects import LabObject
from twinloop.metrics.chamfer import refine_rigid, sample_surface


def register(
    vertices: Array, faces: NDArray[np.integer], rough: Array, item: LabObject
) -> tuple[Array, float]:
    """`T_lab_object` (4, 4) that lays the twin's surface on the true one, and what is left (m).

    What the surface does not determine, such as the turn of a tin about its axis, stays as `rough`
    has it; that comes from the scan's camera poses.
    """
    target = TriangleSurface(item.vertices, item.faces)
    moved = se3.apply(rough, sample_surface(vertices, faces, 3000, 0))
    total = refine_rigid(moved, target, 200)
    error = float(np.median(target.closest(se3.apply(total, moved)).distance))
    return total @ rough, error
