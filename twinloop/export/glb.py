"""A textured mesh as a binary glTF 2.0 file, for viewers, web pages and other tools.

glTF's world has y up, ours z up: positions are written as (x, z, -y), so that the object stands
upright in any viewer without a rotated node that some tools drop. Metres stay metres. `read_glb`
turns the axes back, exactly.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import trimesh
from numpy.typing import NDArray
from PIL import Image

from twinloop.capture.files import write_whole
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
        InputError: No triangle mesh, normals, UV or an image that do not fit it or are not finite,
            or a folder that is not there.
        MachineError: The disk is full, or the folder cannot be written.
    """
    check_mesh(mesh.vertices, mesh.faces)
    normals = np.asarray(normals)
    if (
        mesh.uv.shape != (len(mesh.vertices), 2)
        or mesh.source.shape != (len(mesh.vertices),)
        or normals.shape[1:] != (3,)
        or not 0 <= int(mesh.source.min()) <= int(mesh.source.max()) < len(normals)
    ):
        raise InputError(
            f"{path}: {len(mesh.vertices)} vertices with uv of shape {mesh.uv.shape}, sources of "
            f"shape {mesh.source.shape} and normals of shape {normals.shape}; expected one uv and "
            "source for each vertex and the normals of the mesh that was textured"
        )
    if not (np.isfinite(mesh.uv).all() and np.isfinite(normals).all() and 0 <= roughness <= 1):
        raise InputError(
            f"{path}: uv or normals are not finite, or roughness {roughness} is not 0 to 1; "
            "texture the mesh again"
        )
    image = mesh.image
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or image.size == 0:
        raise InputError(
            f"{path}: texture of {image.dtype} and shape {image.shape}, expected uint8 (h, w, 3)"
        )
    material = trimesh.visual.material.PBRMaterial(
        name="twin",
        baseColorTexture=Image.fromarray(image),
        baseColorFactor=[255, 255, 255, 255],
        metallicFactor=0.0,
        roughnessFactor=float(roughness),
    )
    solid = trimesh.Trimesh(
        vertices=_y_up(mesh.vertices).astype(np.float32),
        faces=mesh.faces,
        vertex_normals=_y_up(normals[mesh.source]).astype(np.float32),
        visual=trimesh.visual.TextureVisuals(uv=mesh.uv, material=material),
        process=False,
    )
    scene = trimesh.Scene()
    scene.add_geometry(solid, node_name="twin", geom_name="twin")
    data = trimesh.exchange.gltf.export_glb(scene, include_normals=True)
    write_whole(path, lambda fresh: fresh.write_bytes(data))


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
