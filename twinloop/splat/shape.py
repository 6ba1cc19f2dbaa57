"""The shape of a scanned object: from its outlines, through surfels, to a closed mesh."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from twinloop.splat.checkpoint import Checkpoint
from twinloop.splat.color import vertex_colors
from twinloop.splat.extract import SurfaceMesh
from twinloop.splat.hull import hull_mesh
from twinloop.splat.inferred import inferred_faces, unseen_vertices
from twinloop.splat.mend import mend_masks
from twinloop.splat.refine import RefineSettings, refine
from twinloop.splat.scan_views import check_shape
from twinloop.splat.surface import Faces, Float, smooth, vertex_normals
from twinloop.splat.surfel_mesh import SurfelMeshSettings, first_mesh, surfel_mesh
from twinloop.splat.surfels import Surfels
from twinloop.splat.views import Views


@dataclass(frozen=True)
class ShapeSettings:
    """Settings of `find_shape`."""

    surface: Literal["surfels", "refined", "hull"] = "surfels"
    """What the mesh is made of."""
    table: float | None = 0.0
    """Height (m) of the plane that the object stands on; None where it floats."""
    resolution: int = 80
    """Grid cells of the hull along the longest side."""
    tolerate: int = 0
    """Views whose outline a point of the hull may leave."""
    smoothing: int = 10
    """Rounds of smoothing of the hull."""
    refine: RefineSettings | None = field(default_factory=RefineSettings)
    """How the hull moves to where pictures agree; None: it does not."""
    surfels: SurfelMeshSettings = field(default_factory=lambda: SurfelMeshSettings(stereo=None))
    """How surfels are trained and made a mesh; `table` and `tolerate` are those above. With
    `stereo`, which finds hollows, they start on its mesh, else on the refined hull."""
    polish: int = 20
    """Rounds of smoothing of the mesh of surfels, which is noisy at the size of a cell: on a lab
    video, normals agree by 0.993 instead of 0.984 and nothing shrinks."""


@dataclass(frozen=True)
class FoundShape:
    """A mesh, the surfels that it was made of (None without), and the views with mended masks."""

    mesh: SurfaceMesh
    surfels: Surfels | None
    views: Views


def find_shape(
    views: Views,
    settings: ShapeSettings,
    device: str = "cpu",
    checkpoint: Checkpoint | None = None,
    start: tuple[Float, Faces] | Surfels | None = None,
) -> FoundShape:
    """Closed mesh of the object that posed, masked pictures show; world frame, m.

    `checkpoint` keeps the state of the surfels' training (see `train`). `start`, of the object and
    in the views' world: a solid mesh takes the hull's place as it is (it is not smoothed, and moved
    to where pictures agree only for ``surface="refined"``); surfels are those that training begins
    with.

    Raises:
        InputError: Outlines that no point agrees with, or a shape unlike them.
    """
    s = settings
    making = replace(s.surfels, table=s.table, tolerate=s.tolerate)
    if isinstance(start, tuple):
        vertices, faces = start
    else:
        vertices, faces = hull_mesh(views, s.resolution, s.tolerate, s.table)
    check_shape(vertices, faces, views)
    if isinstance(start, tuple):
        if s.refine is not None and s.surface == "refined":
            vertices = refine(vertices, faces, views, s.refine, s.table)
    elif s.surface == "surfels" and s.surfels.stereo is not None:
        vertices, faces = first_mesh(views, making)
    else:
        cell = float(np.ptp(vertices, axis=0).max()) / s.resolution
        vertices = smooth(vertices, faces, s.smoothing, s.table, cell)
        if s.refine is not None and s.surface != "hull":
            vertices = refine(vertices, faces, views, s.refine, s.table)
            vertices = smooth(vertices, faces, s.smoothing // 2, s.table, cell)
    views = mend_masks(vertices, faces, views)
    if s.surface != "surfels":
        return FoundShape(_coloured(vertices, faces, views), None, views)
    begin = start if isinstance(start, Surfels) else (vertices, faces)
    surfels, mesh = surfel_mesh(views, making, device, begin, checkpoint)
    edges = mesh.vertices[mesh.faces[:, 1]] - mesh.vertices[mesh.faces[:, 0]]
    step = float(np.median(np.linalg.norm(edges, axis=1)))
    vertices = smooth(mesh.vertices, mesh.faces, s.polish, s.table, step)
    normals = vertex_normals(vertices, mesh.faces)
    return FoundShape(replace(mesh, vertices=vertices, normals=normals), surfels, views)


def _coloured(vertices: Float, faces: Faces, views: Views) -> SurfaceMesh:
    normals = vertex_normals(vertices, faces)
    inferred = unseen_vertices(vertices, faces, normals, views)
    return SurfaceMesh(
        vertices,
        faces,
        normals,
        vertex_colors(vertices, faces, views),
        inferred,
        inferred_faces(inferred, faces),
        0.0,
    )
