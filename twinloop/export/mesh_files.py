"""Mesh files with the same bytes for the same mesh."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray


def write_obj(path: Path, vertices: ArrayLike, faces: ArrayLike, comment: str) -> None:
    """Write a Wavefront OBJ.

    Args:
        path: File to write.
        vertices: (n, 3) [m], rounded to 0.1 um.
        faces: (m, 3) indices from 0.
        comment: One line at the top: what it is, unit, frame.
    """
    lines = [f"# {comment}"]
    lines += [f"v {x:.7f} {y:.7f} {z:.7f}" for x, y, z in np.asarray(vertices, dtype=np.float64)]
    lines += [f"f {a} {b} {c}" for a, b, c in np.asarray(faces) + 1]
    path.write_text("\n".join(lines) + "\n")


def write_ply(path: Path, vertices: ArrayLike, faces: ArrayLike, colors: ArrayLike) -> None:
    """Write a binary PLY mesh with sRGB vertex colours.

    Args:
        path: File to write.
        vertices: (n, 3) [m].
        faces: (m, 3) indices.
        colors: (n, 3) uint8.
    """
    vertices, faces = np.asarray(vertices), np.asarray(faces)
    points = np.zeros(
        len(vertices),
        dtype=[("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("r", "u1"), ("g", "u1"), ("b", "u1")],
    )
    for axis, name in enumerate("xyz"):
        points[name] = vertices[:, axis]
    for axis, name in enumerate("rgb"):
        points[name] = np.asarray(colors)[:, axis]
    corners = np.zeros(len(faces), dtype=[("n", "u1"), ("i", "<i4", (3,))])
    corners["n"], corners["i"] = 3, faces
    header = (
        "ply\nformat binary_little_endian 1.0\ncomment metres, object frame\n"
        f"element vertex {len(points)}\n"
        "property float x\nproperty float y\nproperty float z\n"
        "property uchar red\nproperty uchar green\nproperty uchar blue\n"
        f"element face {len(corners)}\nproperty list uchar int vertex_indices\nend_header\n"
    )
    path.write_bytes(header.encode() + points.tobytes() + corners.tobytes())


def hull_faces(vertices: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """Return the vertices on the convex hull of ``vertices`` (n, 3) and its outward faces."""
    from scipy.spatial import ConvexHull

    points = np.asarray(vertices, dtype=np.float64)
    hull = ConvexHull(points)
    faces = hull.simplices.copy()
    corners = points[faces]
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    inward = np.einsum("ij,ij->i", normals, hull.equations[:, :3]) < 0
    faces[inward] = faces[inward][:, ::-1]
    used, index = np.unique(faces, return_inverse=True)
    return points[used], index.reshape(faces.shape).astype(np.int32)
