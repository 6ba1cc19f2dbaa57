"""Pieces of a lab scene for MuJoCo's MjSpec: lights, table, board, objects.

Visuals are in geometry group 1 and never collide; collision pieces are in group 3 and are never
drawn.
"""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from twinloop.geometry import se3
from twinloop.lab.board import BoardLayout
from twinloop.lab.objects import LabObject
from twinloop.lab.texture import clouds

VISUAL, COLLISION = 1, 3


def new_scene() -> Any:
    """An MjSpec with fixed diffuse lights: shading stays when the camera moves, nothing shines."""
    spec = mujoco.MjSpec()
    spec.compiler.degree = False
    head = spec.visual.headlight
    head.ambient, head.diffuse, head.specular = [0.5] * 3, [0.0] * 3, [0.0] * 3
    for direction, strength in (
        ((-0.5, -0.35, -1.0), 0.34),
        ((0.7, 0.2, -0.6), 0.16),
        ((-0.1, 0.8, -0.5), 0.14),
    ):
        spec.worldbody.add_light(
            type=mujoco.mjtLightType.mjLIGHT_DIRECTIONAL,
            dir=direction,
            pos=[0.0, 0.0, 2.0],
            diffuse=[strength] * 3,
            ambient=[0.0] * 3,
            specular=[0.0] * 3,
            castshadow=strength > 0.3,
        )
    sky = spec.add_texture(
        name="sky",
        type=mujoco.mjtTexture.mjTEXTURE_SKYBOX,
        builtin=mujoco.mjtBuiltin.mjBUILTIN_GRADIENT,
        rgb1=[0.62, 0.64, 0.66],
        rgb2=[0.5, 0.5, 0.5],
        width=64,
        height=64,
    )
    sky.nchannel = 3
    return spec


def add_texture(spec: Any, name: str, image: NDArray[np.uint8]) -> str:
    """A matt material showing ``image`` (h,w,3), row 0 at v = 1; returns its name."""
    texture = spec.add_texture(name=name, type=mujoco.mjtTexture.mjTEXTURE_2D, nchannel=3)
    texture.height, texture.width = image.shape[:2]
    texture.data = np.ascontiguousarray(image[::-1]).tobytes()  # MuJoCo's first row is v = 0
    material = spec.add_material(name=name, specular=0.0, shininess=0.0, reflectance=0.0)
    material.textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = name
    return name


def add_sheet(
    spec: Any,
    name: str,
    image: NDArray[np.uint8],
    half: tuple[float, float],
    T: NDArray[np.float64],
) -> None:
    """A printed sheet, 1 mm thick: ``image`` over [-half, half], its top at pose ``T`` (4,4)."""
    x, y = half
    top = [(-x, -y, 0), (x, -y, 0), (x, y, 0), (-x, y, 0)]
    bottom = [(a, b, -0.001) for a, b, _ in top]
    corner = np.array([0, 1, 2, 0, 2, 3, 4, 6, 5, 4, 7, 6, 0, 4, 5, 0, 5, 1, 1, 5, 6, 1, 6, 2])
    corner = np.concatenate([corner, [2, 6, 7, 2, 7, 3, 3, 7, 4, 3, 4, 0]])
    uv = np.array([(0, 0), (1, 0), (1, 1), (0, 1)] * 2, dtype=np.float32)
    mesh = spec.add_mesh(name=name)
    mesh.uservert = np.array(top + bottom, dtype=np.float32).ravel()
    mesh.userface = corner.astype(np.int32)
    mesh.usertexcoord = uv.ravel()
    mesh.userfacetexcoord = corner.astype(np.int32)
    position, quaternion = se3.to_position_quaternion(T)
    spec.worldbody.add_geom(
        name=name,
        type=mujoco.mjtGeom.mjGEOM_MESH,
        meshname=name,
        material=add_texture(spec, name, image),
        pos=position,
        quat=quaternion,
        contype=0,
        conaffinity=0,
        group=VISUAL,
    )


def add_board(
    spec: Any, layout: BoardLayout, image: NDArray[np.uint8], T_world_board: NDArray[np.float64]
) -> None:
    """The printed board at its pose."""
    add_sheet(spec, "board", image, layout.half, T_world_board)


def table_image(seed: int, pixels: int = 768) -> NDArray[np.uint8]:
    """Mild wood-like texture of a table top (pixels, pixels, 3)."""
    rng = np.random.default_rng([seed, 0x7AB1E])
    grain = clouds(rng, pixels, pixels, 30.0) * 7.0 + clouds(rng, pixels, pixels, 6.0) * 4.0
    streak = np.repeat(clouds(rng, pixels, 4, 5.0)[:, :1], pixels, axis=1) * 5.0
    image = np.array([138.0, 124.0, 108.0]) + (grain + streak)[..., None]
    return np.asarray(np.clip(np.rint(image), 0, 255), dtype=np.uint8)


def add_table(spec: Any, seed: int, half: float = 1.2, height: float = -0.001) -> None:
    """The table's look: a square sheet of half width ``half`` (m), just under the board."""
    T = np.eye(4)
    T[2, 3] = height
    add_sheet(spec, "table", table_image(seed), (half, half), T)


def add_object(spec: Any, body: Any, item: LabObject, *, collide: bool = True) -> None:
    """Give ``body`` the object's look, its convex pieces and its exact mass properties."""
    mesh = spec.add_mesh(name=f"{item.name}_visual")
    mesh.uservert = item.vertices.astype(np.float32).ravel()
    mesh.userface = item.faces.astype(np.int32).ravel()
    mesh.usertexcoord = item.uv.astype(np.float32).ravel()
    mesh.userfacetexcoord = item.face_uv.astype(np.int32).ravel()
    body.add_geom(
        name=f"{item.name}_visual",
        type=mujoco.mjtGeom.mjGEOM_MESH,
        meshname=mesh.name,
        material=add_texture(spec, f"{item.name}_visual", item.texture),
        contype=0,
        conaffinity=0,
        group=VISUAL,
        mass=0.0,
    )
    body.explicitinertial = True
    body.mass = item.mass
    body.ipos = item.com
    i = item.inertia
    body.fullinertia = [i[0, 0], i[1, 1], i[2, 2], i[0, 1], i[0, 2], i[1, 2]]
    if not collide:
        return
    for k, (vertices, faces) in enumerate(item.parts):
        part = spec.add_mesh(name=f"{item.name}_part_{k}")
        part.uservert = vertices.astype(np.float32).ravel()
        part.userface = faces.astype(np.int32).ravel()
        body.add_geom(
            name=f"{item.name}_part_{k}",
            type=mujoco.mjtGeom.mjGEOM_MESH,
            meshname=part.name,
            friction=[item.friction, 0.0, 0.0],
            group=COLLISION,
            mass=0.0,
        )
