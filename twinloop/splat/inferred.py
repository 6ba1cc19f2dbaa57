"""Which parts of a mesh no camera saw, and scans of both sides of an object as one.

An object that stands on a table hides its underside. A mesh has to be closed all the same; what
closes it is a guess, and is marked.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from twinloop.errors import InputError
from twinloop.geometry.raycast import MeshRenderer
from twinloop.splat.surface import Faces, Float
from twinloop.splat.views import Views


def unseen_vertices(
    vertices: Float, faces: Faces, normals: Float, views: Views, least: float = 0.1
) -> NDArray[np.bool_]:
    """Which vertices (v,) of a mesh no camera saw; see `unseen_points`."""
    return unseen_points(vertices, normals, MeshRenderer(vertices, faces), views, least)


def unseen_points(
    points: Float, normals: Float, renderer: MeshRenderer, views: Views, least: float = 0.1
) -> NDArray[np.bool_]:
    """Which points (n,) on a mesh no camera saw: turned away, hidden, or out of every picture.

    points (n, 3) m and unit normals (n, 3), world. A camera sees a point that faces it, with a
    cosine of `least` or more, and that the mesh of `renderer` does not hide, to two pixels' size.
    """
    height, width = views.mask.shape[1:]
    seen = np.zeros(len(points), bool)
    for i in range(len(views)):
        T, k = views.T_camera_world[i], views.intrinsics[i]
        p = points @ T[:3, :3].T + T[:3, 3]
        z = np.maximum(p[:, 2], 1e-6)
        x, y = k[0] * p[:, 0] / z + k[2], k[1] * p[:, 1] / z + k[3]
        ok = (x > -0.5) & (y > -0.5) & (x < width - 0.5) & (y < height - 0.5) & (p[:, 2] > 0)
        facing = -np.einsum("vi,vi->v", normals @ T[:3, :3].T, p) / np.linalg.norm(p, axis=1)
        ok &= facing > least
        if not (ok & ~seen).any():
            continue
        depth = renderer.render(k, width, height, T).depth
        column = np.rint(x).astype(int).clip(0, width - 1)
        row = np.rint(y).astype(int).clip(0, height - 1)
        # A pixel's centre may lie a slope away from the point.
        pixel = z / k[0]
        ahead = depth[row, column]
        hidden = (ahead > 0) & (z > ahead + pixel * (1 + 1 / np.maximum(facing, least)))
        seen |= ok & ~hidden
    return ~seen


def inferred_faces(inferred: NDArray[np.bool_], faces: Faces) -> NDArray[np.bool_]:
    """Faces (f,) of whose corners most were not seen."""
    return np.asarray(inferred[faces].sum(axis=1) >= 2)


def merge_scans(first: Views, second: Views, T_second_first: Float) -> Views:
    """Views of two scans of one object, in the first scan's world.

    Args:
        first: The object as it stood at first.
        second: The same object turned over, its views in the world of its own scan.
        T_second_first: (4, 4) moves points of the object from the first scan's world to the
            second's (from registering the two, or from a marker on the object).

    Pictures of unequal size are padded to the larger with empty mask. The table of either scan
    lies elsewhere in the other, so no table plane may close the merged object.

    Raises:
        InputError: T_second_first is no rigid motion.
    """
    T = np.asarray(T_second_first, np.float64)
    if T.shape != (4, 4) or not np.isfinite(T).all():
        raise InputError(f"T_second_first has shape {T.shape}, expected a finite (4, 4) motion")
    error = float(np.abs(T[:3, :3] @ T[:3, :3].T - np.eye(3)).max())
    if error > 1e-4 or np.linalg.det(T[:3, :3]) < 0 or np.abs(T[3] - [0, 0, 0, 1]).max() > 1e-6:
        raise InputError(
            f"T_second_first is no rigid motion: its rotation is off by {error:.2g}, its last row "
            f"is {T[3].tolist()}; expected a rotation and a translation in metres"
        )
    size = np.maximum(first.mask.shape[1:], second.mask.shape[1:])

    def padded(values: NDArray[np.uint8]) -> NDArray[np.uint8]:
        grow = [(0, 0), (0, size[0] - values.shape[1]), (0, size[1] - values.shape[2])]
        return np.pad(values, grow + [(0, 0)] * (values.ndim - 3))

    moved = second.moved(T)
    if first.coverage == second.coverage:
        masks = [padded(first.mask), padded(second.mask)]
    else:  # whichever is exact would be read as an outline, or the other way round
        masks = [
            padded(np.stack([np.rint(255 * v.matte(i)) for i in range(len(v))]).astype(np.uint8))
            for v in (first, second)
        ]
    return Views(
        np.concatenate([padded(first.image), padded(second.image)]),
        np.concatenate(masks),
        np.concatenate([first.intrinsics, moved.intrinsics]),
        np.concatenate([first.T_camera_world, moved.T_camera_world]),
        coverage=first.coverage or second.coverage,
    )
