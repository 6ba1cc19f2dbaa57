"""A textured mesh as a binary glTF 2.0 file, for viewers, web pages and other tools.

glTF's world has y up, ours z up: positions are written as (x, z, -y), so that the object stands
upright in any viewer without a rotated node that some tools drop. Metres stay metres. `read_glb`
turns the axes back, exactly.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
import trimesh
from numpy.typing import NDArray
from PIL import Image

from twinloop.errors import InputError
from twinloop.geometry.distance import check_mesh
from twinloop.geometry.textured import TexturedMesh

Float = NDArray[np.float64]


def write_glb(path: Path, mesh: TexturedMesh, normals: Float, roughness: float = 0.8) -> None:
    """Write a mesh with its texture as base colour; the file is there whole or not at all.

    The same mesh gives the same bytes. Positions are stored as float32.

    Args:
        path: File to write, `.glb`.
        mesh: From `bake_texture`.
        normals: (v, 3) unit vertex normals of the mesh that was textured.
        roughness: Of the material, 0..1; it is no metal.

    Raises:
        InputError: No triangle mesh, or normals or UV that do not fit it.
    """
    check_mesh(mesh.vertices, mesh.faces)
    if mesh.uv.shape != (len(mesh.vertices), 2) or int(mesh.source.max()) >= len(normals):
        raise InputError(
            f"{path}: {len(mesh.vertices)} vertices with uv of shape {mesh.uv.shape} and "
            f"{len(normals)} normals; expected one uv for each vertex and the normals of the mesh "
            "that was textured"
        )
    material = trimesh.visual.material.PBRMaterial(
        name="twin",
        baseColorTexture=Image.fromarray(mesh.image),
        baseColorFactor=[255, 255, 255, 255],
        metallicFactor=0.0,
        roughnessFactor=float(roughness),
    )
    solid = trimesh.Trimesh(
        vertices=_y_up(mesh.vertices).astype(np.float32),
        faces=mesh.faces,
        vertex_normals=_y_up(np.asarray(normals)[mesh.source]).astype(np.float32),
        visual=trimesh.visual.TextureVisuals(uv=mesh.uv, material=material),
        process=False,
    )
    scene = trimesh.Scene()
    scene.add_geometry(solid, node_name="twin", geom_name="twin")
    data = trimesh.exchange.gltf.export_glb(scene, include_normals=True)
    # Beside the target, so that the rename stays on one disk and is atomic.
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def read_glb(path: Path) -> tuple[Float, NDArray[np.int64]]:
    """Vertices (w, 3) m, z up, and faces (f, 3) of a GLB, all its meshes together.

    Raises:
        InputError: The file is no GLB or holds no mesh.
    """
    try:
        mesh = trimesh.load(path, file_type="glb", force="mesh", process=False)
    except Exception as error:
        raise InputError(
            f"{path}: is not read as GLB: {error}; expected binary glTF 2.0"
        ) from error
    if not isinstance(mesh, trimesh.Trimesh) or len(mesh.faces) == 0:
        raise InputError(f"{path}: holds no triangles; expected a GLB with a mesh")
    x, y, z = np.asarray(mesh.vertices, dtype=np.float64).T
    return np.stack([x, -z, y], axis=1), np.asarray(mesh.faces, dtype=np.int64)


def _y_up(vectors: Float) -> Float:
    x, y, z = np.asarray(vectors, dtype=np.float64).T
    return np.stack([x, z, -y], axis=1)
