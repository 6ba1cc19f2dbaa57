"""A user's own mesh as a lab object: read, checked, grounded, cut into convex pieces."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import trimesh

from twinloop.errors import InputError
from twinloop.lab.mass import solid_moments
from twinloop.lab.shapes import Part, Shape, convex_hull, grounded

CONVEX_ENOUGH = 1.02  # hull volume / volume below which one hull serves as the only piece


def load_shape(path: Path, size: tuple[float, float, float] | None = None) -> Shape:
    """Read a closed mesh (obj, ply, stl, glb; z up at rest), stretched to ``size`` (m) where given.

    Raises InputError where the file is missing or unreadable, or the surface is open or inside out.
    """
    if not path.is_file():
        raise InputError(
            f"{path}: no such mesh file; `mesh:` is relative to the folder of lab.yaml"
        )
    try:
        mesh = trimesh.load_mesh(path, process=True)
    except Exception as error:
        raise InputError(f"{path}: cannot be read as a mesh: {error}") from error
    if not isinstance(mesh, trimesh.Trimesh) or len(mesh.faces) == 0:
        raise InputError(f"{path}: holds no triangles")
    mesh.merge_vertices(merge_tex=True, merge_norm=True)
    if not mesh.is_watertight:
        raise InputError(
            f"{path}: the surface has holes ({len(mesh.faces)} faces), so mass and inertia are not "
            "defined; close it (e.g. trimesh.repair.fill_holes, or remesh) and save it again"
        )
    vertices = grounded(np.asarray(mesh.vertices, dtype=np.float64))
    faces = np.asarray(mesh.faces, dtype=np.int32)
    extent = np.ptp(vertices, axis=0)
    if size is not None:
        vertices = vertices * (np.asarray(size) / extent)
    elif float(extent.max()) > 2.0:
        raise InputError(
            f"{path}: is {extent.max():.3g} m long; meshes are in metres. If it is in millimetres, "
            "give `size: [x, y, z]` in metres and it is scaled"
        )
    volume = solid_moments(vertices, faces).mass
    if volume < 0.0:
        faces = faces[:, ::-1].copy()
        volume = -volume
    return Shape(vertices, faces, _convex_parts(vertices, faces, volume))


def _convex_parts(vertices: np.ndarray, faces: np.ndarray, volume: float) -> list[Part]:
    """Convex pieces: the hull where that is close enough, else CoACD's decomposition."""
    hull = convex_hull(vertices)
    if solid_moments(*hull).mass < CONVEX_ENOUGH * volume:
        return [hull]
    import coacd  # only for meshes that need it: it is slow to load

    coacd.set_log_level("error")
    pieces = coacd.run_coacd(
        coacd.Mesh(vertices, faces), threshold=0.03, max_convex_hull=24, seed=0
    )
    return [convex_hull(np.asarray(piece[0], dtype=np.float64)) for piece in pieces]
