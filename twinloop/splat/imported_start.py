"""What training begins with when a splat or a mesh of the object is there already.

The file's frame is rarely that of the scan. Bring it there first: `transformed` for splats, or
``twinloop splat transform``, and `T_world_mesh` here for a mesh. Training refuses a start that lies
outside the masks.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from twinloop.errors import InputError
from twinloop.geometry import quaternion, se3
from twinloop.splat import gaussians, surfels
from twinloop.splat.color import vertex_colors
from twinloop.splat.encoding import flat_gaussians
from twinloop.splat.gaussians import Gaussians
from twinloop.splat.imported import Mesh
from twinloop.splat.surfels import Surfels
from twinloop.splat.transform import checked
from twinloop.splat.views import Views

LEAST_THICKNESS = 0.05
"""A surfel that becomes a Gaussian is so many times as thick as wide: flatter ones train badly."""


def gaussians_of(
    found: Gaussians | Surfels | Mesh,
    views: Views,
    count: int = 5000,
    degree: int = 1,
    seed: int = 0,
    T_world_mesh: ArrayLike | None = None,
) -> Gaussians:
    """Gaussians to start from, of what `load_start` read; in the views' world, m.

    Args:
        found: Splats in the views' world, or a mesh.
        views: Give a mesh its colours, where it has none.
        count: How many are spread over a mesh; splats stay as many as they are.
        degree: Of the spherical harmonics, 0 to 3; higher ones of `found` are cut.
        seed: Of where they lie on a mesh.
        T_world_mesh: (4, 4) moves the mesh into the views' world.

    Raises:
        InputError: `T_world_mesh` is no rigid transform, or given for splats.
    """
    if isinstance(found, Mesh):
        vertices, colors = _placed(found, views, T_world_mesh)
        return gaussians.on_surface(vertices, found.faces, colors, count, degree, seed)
    _refuse_pose(T_world_mesh)
    if isinstance(found, Surfels):
        found = flat_gaussians(found)
        scales = np.maximum(found.scales, LEAST_THICKNESS * found.scales.max(axis=1, keepdims=True))
        found = replace(found, scales=scales)
    return replace(found, sh=_of_degree(found.sh, degree), stored=None)


def surfels_of(
    found: Gaussians | Surfels | Mesh,
    views: Views,
    count: int = 8000,
    degree: int = 1,
    seed: int = 0,
    T_world_mesh: ArrayLike | None = None,
) -> Surfels:
    """Surfels to start from; arguments and errors as `gaussians_of`.

    A Gaussian becomes the disc of its two longer axes, whose normal is turned to the nearest
    camera.
    """
    if isinstance(found, Mesh):
        vertices, colors = _placed(found, views, T_world_mesh)
        return surfels.on_surface(vertices, found.faces, colors, count, degree, seed)
    _refuse_pose(T_world_mesh)
    sh = _of_degree(found.sh, degree)
    if isinstance(found, Surfels):
        return replace(found, sh=sh)
    order = np.argsort(-found.scales, axis=1, kind="stable")
    scales = np.take_along_axis(found.scales, order[:, :2], axis=1)
    axes = np.take_along_axis(quaternion.to_matrix(found.quaternions), order[:, None], axis=2)
    T = views.T_camera_world
    eyes = -np.einsum("vji,vj->vi", T[:, :3, :3], T[:, :3, 3])
    apart = np.stack([np.linalg.norm(found.means - eye, axis=1) for eye in eyes])
    outward = eyes[apart.argmin(axis=0)] - found.means
    away = np.einsum("ni,ni->n", axes[:, :, 2], outward) < 0
    axes[away, :, 2] *= -1
    axes[np.linalg.det(axes) < 0, :, 0] *= -1
    turns = quaternion.from_matrix(axes).astype(np.float32)
    return Surfels(found.means, turns, np.ascontiguousarray(scales), found.opacities, sh)


def _placed(
    mesh: Mesh, views: Views, T_world_mesh: ArrayLike | None
) -> tuple[NDArray[np.float64], NDArray[np.uint8]]:
    T = np.eye(4) if T_world_mesh is None else checked(T_world_mesh)
    vertices = se3.apply(T, mesh.vertices)
    colors = mesh.colors
    return vertices, vertex_colors(vertices, mesh.faces, views) if colors is None else colors


def _refuse_pose(T_world_mesh: ArrayLike | None) -> None:
    if T_world_mesh is not None:
        raise InputError("T_world_mesh is for meshes; move splats with `transformed` before")


def _of_degree(sh: NDArray[np.float32], degree: int) -> NDArray[np.float32]:
    """Coefficients (n, bases, 3) of `degree`: cut, or with zeros behind them."""
    if degree not in range(4):
        raise InputError(f"degree of the spherical harmonics is {degree}, expected 0 to 3")
    bases = (degree + 1) ** 2
    return np.pad(sh[:, :bases], ((0, 0), (0, max(0, bases - sh.shape[1])), (0, 0)))
