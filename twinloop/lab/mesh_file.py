"""A user's own mesh as a lab object: read, checked, grounded, cut into convex pieces."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import numpy as np

from twinloop.errors import InputError
from twinloop.lab.mass import solid_moments
from twinloop.lab.shapes import Part, Shape, convex_hull, grounded

CONVEX_ENOUGH = 1.02  # hull volume / volume below which one hull serves as the only piece


def load_shape(
    path: Path, sha256: str | None, size: tuple[float, float, float] | None = None
) -> Shape:
    """Read a closed mesh (obj, ply, stl, off, glb; z up at rest).

    The recipe names the file's hash: it alone decides whether a cached result still holds, so a
    mesh that was edited must not pass under the old recipe.

    Args:
        path: the file.
        sha256: its hash as the recipe has it; None where the recipe lacks it.
        size: bounding box (x, y, z) m to stretch the mesh to; as it is if None.

    Raises:
        InputError: the file is missing, is not the one of the recipe, cannot be read, or its
            surface is open.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"{path}: no such mesh file ({error.strerror}); `mesh:` is the name of a file beside "
            "lab.yaml"
        ) from None
    found = hashlib.sha256(content).hexdigest()
    if sha256 != found:
        was = "the recipe has no sha256" if sha256 is None else f"the recipe says sha256 {sha256}"
        raise InputError(
            f"{path}: {was}, the file's is {found}; if this is the mesh you mean, write "
            f"`sha256: {found}` below `mesh:` in lab.yaml, else restore the file"
        )
    import trimesh  # here: most lab objects need none, and loading it takes long

    try:
        # From bytes: nothing beside the file (materials, textures) is looked at.
        mesh = trimesh.load_mesh(
            io.BytesIO(content), file_type=path.suffix[1:].lower(), process=True
        )
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
