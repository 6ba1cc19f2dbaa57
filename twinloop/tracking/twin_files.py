"""The object to track from files: a packaged twin, or a bare mesh; refused where it cannot be."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from twinloop.capture.files import inside, read_json
from twinloop.card import explain
from twinloop.errors import InputError
from twinloop.export.twin_card import TwinCard
from twinloop.splat.cameras import bounds
from twinloop.splat.gaussians import Gaussians
from twinloop.splat.ply import read_ply
from twinloop.splat.ply_table import beginning, open_table
from twinloop.tracking.model_checks import check_mesh, check_rest, stable_rests

Array = NDArray[np.float64]
Up = Literal["z", "any"]
MESHES = (".obj", ".ply", ".stl")
MOST_BYTES = 2**30
"""Largest mesh file that is read."""
MOST_FACES = 2_000_000
"""Most faces of a mesh that is tracked."""
AGREE = (0.6, 1.6)
"""Longest side of the Gaussians by that of the mesh: they are of one object."""


@dataclass(frozen=True)
class TwinFiles:
    """An object as its files have it.

    where: the files, for messages; vertices (v, 3) m and faces (f, 3), object frame; gaussians:
    its looks, None for a bare mesh; T_world_object: (4, 4) how it stands on a table z = 0, None
    where that is not known.
    """

    where: str
    vertices: Array
    faces: NDArray[np.int32]
    gaussians: Gaussians | None
    T_world_object: Array | None


def load_twin(path: Path, up: Up = "z") -> TwinFiles:
    """Read a packaged twin (folder with twin.json) or a mesh (.obj, .ply, .stl).

    Args:
        path: The folder `twin`, the folder that holds it, or a mesh file in metres.
        up: "z": the object stands with its z axis up (all packaged twins do); "any": that is not
            known, and every stable pose is tried.

    Raises:
        InputError: Nothing there, damaged files, a mesh that is none, in other units than metres,
            or with another axis up than z; the message names the numbers and what would fit.
    """
    if up not in ("z", "any"):
        raise InputError(f"up is {up!r}; expected 'z' (stands with z up) or 'any' (not known).")
    if path.is_dir():
        mesh_path, looks = _parts(path)
    elif path.suffix.lower() in MESHES or path.is_file():
        mesh_path, looks = path, None
    else:
        raise InputError(
            f"{path}: no such twin. Give a packaged twin (a folder with twin.json, such as "
            "datasets/NAME/twin) or a mesh file (.obj, .ply, .stl) in metres."
        )
    where = str(mesh_path)
    vertices, faces = read_mesh(mesh_path)
    check_mesh(vertices, faces, where)
    vertices, faces = _merged(vertices, faces)
    check_mesh(vertices, faces, where)
    try:
        stable_rests(vertices)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error
    if up == "z":
        check_rest(vertices, where)
    gaussians = None if looks is None else _looks(looks, vertices, where)
    rest = None
    if up == "z":
        rest = np.eye(4)
        rest[2, 3] = -float(vertices[:, 2].min())
    return TwinFiles(where, vertices, faces, gaussians, rest)


def read_mesh(path: Path) -> tuple[Array, NDArray[np.int32]]:
    """Vertices (v, 3) and triangles (f, 3) of a mesh file, as they stand there.

    Raises:
        InputError: No such file, another ending, damaged, too large, or no triangles.
    """
    beginning(path, 1)
    ending = path.suffix.lower()
    if ending not in MESHES:
        raise InputError(f"{path}: expected a mesh that ends in {', '.join(MESHES)}, in metres.")
    if path.stat().st_size > MOST_BYTES:
        raise InputError(
            f"{path}: has {path.stat().st_size} bytes, at most {MOST_BYTES} are read; decimate it."
        )
    if ending == ".ply":
        table = open_table(path)  # believes no count that the file does not bear out
        if not table.elements.get("face"):
            raise InputError(
                f"{path}: has no faces; it looks like Gaussians or a point cloud, and tracking "
                "needs the shape. Give the twin's folder, or a mesh file."
            )
    import trimesh  # here: loading it takes long

    try:
        # From bytes: nothing beside the file (materials, textures) is looked at.
        loaded = trimesh.load(
            io.BytesIO(path.read_bytes()),
            ending[1:],
            force="mesh",
            process=False,
            skip_materials=True,
        )
    except Exception as error:  # trimesh raises what its parsers raise
        said = str(error) or type(error).__name__
        raise InputError(
            f"{path}: cannot be read as a mesh ({said}); is it cut or damaged? Export it again."
        ) from error
    if not isinstance(loaded, trimesh.Trimesh) or len(loaded.faces) == 0:
        raise InputError(f"{path}: has no triangles; export it as a triangle mesh.")
    if len(loaded.faces) > MOST_FACES:
        raise InputError(
            f"{path}: has {len(loaded.faces)} triangles, at most {MOST_FACES} are tracked; "
            "decimate it."
        )
    return np.asarray(loaded.vertices, np.float64), np.asarray(loaded.faces, np.int32)


def _parts(folder: Path) -> tuple[Path, Path]:
    """The mesh and the Gaussians of a packaged twin.

    Raises:
        InputError: It is no packaged twin, or its card is none.
    """
    if not (folder / "twin.json").is_file() and (folder / "twin" / "twin.json").is_file():
        folder = folder / "twin"
    if not (folder / "twin.json").is_file():
        raise InputError(
            f"{folder}: is no packaged twin: it has no twin.json. Build it (`twinloop run NAME` "
            "makes datasets/NAME/twin), or give a mesh file."
        )
    try:
        card = TwinCard.model_validate(read_json(folder / "twin.json"))
    except ValidationError as error:
        raise InputError(explain(error, str(folder / "twin.json"))) from error
    mesh = inside(folder, "meshes/visual.ply", folder / "twin.json")
    looks = inside(folder, f"splat/{card.name}.ply", folder / "twin.json")
    for path in (mesh, looks):
        if not path.is_file():
            raise InputError(f"{path}: is missing from the twin. `twinloop validate` checks it.")
    return mesh, looks


def _looks(path: Path, vertices: Array, mesh: str) -> Gaussians:
    """The Gaussians of `path`, if they can be those of the mesh.

    Raises:
        InputError: They are of another size or lie elsewhere.
    """
    gaussians = read_ply(path)
    low, high = bounds(gaussians)
    size, seen = float(np.ptp(vertices, axis=0).max()), float((high - low).max())
    off = float(np.linalg.norm(0.5 * (low + high - vertices.min(0) - vertices.max(0))))
    if not AGREE[0] < seen / size < AGREE[1] or off > 0.5 * size:
        raise InputError(
            f"{path}: its Gaussians are {seen:.4g} m long and {off:.4g} m beside {mesh}, which is "
            f"{size:.4g} m long; expected both in metres and in one frame. "
            "`twinloop splat transform` scales and moves Gaussians."
        )
    return gaussians


def _merged(vertices: Array, faces: NDArray[np.int32]) -> tuple[Array, NDArray[np.int32]]:
    """The mesh with equal vertices joined (STL repeats them) and faces wound outwards."""
    unique, index = np.unique(vertices, axis=0, return_inverse=True)
    if len(unique) < len(vertices):
        vertices, faces = unique, index.reshape(-1)[faces].astype(np.int32)
        distinct = (np.diff(np.sort(faces, axis=1), axis=1) > 0).all(axis=1)
        faces = faces[distinct]
    corner = vertices[faces] - vertices.mean(axis=0)
    volume = np.einsum("fi,fi->", corner[:, 0], np.cross(corner[:, 1], corner[:, 2]))
    return vertices, faces if volume >= 0 else faces[:, ::-1].copy()
