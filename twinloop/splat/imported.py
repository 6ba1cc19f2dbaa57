"""Splats and meshes that were made elsewhere, as something to start from."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import trimesh
from numpy.typing import NDArray

from twinloop.errors import InputError
from twinloop.splat.cameras import bounds
from twinloop.splat.gaussians import Gaussians
from twinloop.splat.ply import read_splats, write_ply
from twinloop.splat.ply_table import beginning, open_table
from twinloop.splat.spz import read_spz, write_spz
from twinloop.splat.surfels import Surfels
from twinloop.splat.transform import transformed

MESHES = (".obj", ".glb", ".stl")
SPLATS = (".ply", ".spz")
SMALLEST, LARGEST = 0.003, 3.0
"""Extents (m) between which a thing on a table lies."""
UNITS = {"mm": 1e-3, "cm": 1e-2, "inches": 0.0254, "feet": 0.3048, "km": 1e3}
MOST_BYTES = 2**31


@dataclass(frozen=True)
class Mesh:
    """A triangle mesh.

    vertices (v, 3) m, faces (f, 3) int32, colors (v, 3) uint8 sRGB, or None.
    """

    vertices: NDArray[np.float64]
    faces: NDArray[np.int32]
    colors: NDArray[np.uint8] | None

    @property
    def extent(self) -> float:
        """Longest side of the bounding box, m."""
        return float(np.ptp(self.vertices, axis=0).max())


def load_splats(path: Path) -> Gaussians | Surfels:
    """Read splats from .ply or .spz, by the file's ending.

    Raises:
        InputError: Another ending, or see `read_splats` and `read_spz`.
    """
    ending = path.suffix.lower()
    if ending == ".ply":
        return read_splats(path)
    if ending == ".spz":
        return read_spz(path)
    raise InputError(f"{path}: expected splats in a file that ends in {' or '.join(SPLATS)}")


def save_splats(splats: Gaussians | Surfels, path: Path) -> None:
    """Write splats as .ply or .spz, by the file's ending.

    Raises:
        InputError: Another ending, or see `write_ply` and `write_spz`.
        MachineError: See there.
    """
    ending = path.suffix.lower()
    if ending not in SPLATS:
        raise InputError(f"{path}: expected a name that ends in {' or '.join(SPLATS)}")
    (write_ply if ending == ".ply" else write_spz)(splats, path)


def load_start(path: Path, scale: float = 1.0) -> Gaussians | Surfels | Mesh:
    """Read what was reconstructed elsewhere, to start from.

    Args:
        path: Splats (.ply, .spz) or a mesh (.ply, .obj, .glb, .stl); of a PLY the header decides.
        scale: Metres per unit of the file, say 0.001 for millimetres.

    Raises:
        InputError: No such file, another ending, damaged, no faces, or a size that nothing on a
            table has (`SMALLEST` to `LARGEST`); the message says which unit would fit.
    """
    beginning(path, 1)
    if not 0 < scale < np.inf:
        raise InputError(f"{path}: scale is {scale}, expected metres per unit, such as 0.001")
    ending = path.suffix.lower()
    if ending in SPLATS and not (ending == ".ply" and _is_mesh(path)):
        splats = transformed(load_splats(path), np.eye(4), scale)
        low, high = bounds(splats)
        check_extent(path, float((high - low).max()), scale)
        return splats
    if ending not in (*MESHES, ".ply"):
        raise InputError(
            f"{path}: expected a file that ends in one of {', '.join((*SPLATS, *MESHES))}"
        )
    mesh = _load_mesh(path, scale)
    check_extent(path, mesh.extent, scale)
    return mesh


def check_extent(path: Path, extent: float, scale: float) -> None:
    """Refuse an `extent` (m, with `scale` applied) that nothing on a table has.

    Raises:
        InputError: With the units that would make sense of it.
    """
    if SMALLEST <= extent <= LARGEST:
        return
    fits = [
        f"{unit} (scale {factor * scale:g}: {extent * factor:.3g} m)"
        for unit, factor in UNITS.items()
        if 0.02 <= extent * factor <= 1.0
    ]
    guess = f"; it looks like {' or '.join(fits)}" if fits else ""
    raise InputError(
        f"{path}: is {extent:.4g} m long with scale {scale:g}, expected {SMALLEST:g} to "
        f"{LARGEST:g} m{guess}. Say what one unit of the file is in metres (start_scale "
        "of reconstruct), or scale it first (splats: `twinloop splat transform --scale`)."
    )


def _is_mesh(path: Path) -> bool:
    table = open_table(path)
    return bool(table.elements.get("face")) and "opacity" not in table.names


def _load_mesh(path: Path, scale: float) -> Mesh:
    if path.stat().st_size > MOST_BYTES:
        raise InputError(f"{path}: is larger than {MOST_BYTES >> 30} GiB; decimate it first")
    try:
        # Bytes that have no place: nothing beside the file is read, neither textures nor what a
        # glTF points at, of which the file's hash would say nothing.
        loaded = trimesh.load(
            io.BytesIO(path.read_bytes()),
            path.suffix[1:].lower(),
            force="mesh",
            process=False,
            skip_materials=True,
        )
    except Exception as error:  # trimesh raises what its parsers raise
        said = str(error) or type(error).__name__
        raise InputError(
            f"{path}: cannot be read as a mesh ({said}); is it cut or damaged, or does it need "
            "files beside it? Export it again, in one file"
        ) from error
    if not isinstance(loaded, trimesh.Trimesh) or len(loaded.faces) == 0:
        raise InputError(f"{path}: has no triangles; export it as a triangle mesh")
    low, high = int(loaded.faces.min()), int(loaded.faces.max())
    if low < 0 or high >= len(loaded.vertices):
        raise InputError(
            f"{path}: a triangle has vertex {low if low < 0 else high} of {len(loaded.vertices)}, "
            "expected numbers from 0 up to one less; it is damaged, export it again"
        )
    with np.errstate(over="ignore"):
        vertices = np.asarray(loaded.vertices, np.float64) * scale
    if not np.isfinite(vertices).all():
        raise InputError(f"{path}: has vertices that are not finite; export it again")
    colors = None
    if loaded.visual.kind == "vertex":
        colors = np.asarray(loaded.visual.vertex_colors, np.uint8)[:, :3].copy()
    return Mesh(vertices, np.asarray(loaded.faces, np.int32), colors)
