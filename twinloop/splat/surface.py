"""Closed triangle meshes from fields, cleaned and smoothed."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from skimage.measure import marching_cubes

from twinloop.errors import InputError
from twinloop.geometry.mesh import mass_properties

Float = NDArray[np.float64]
Float32 = NDArray[np.float32]
Faces = NDArray[np.int32]


def mesh_of_field(field: Float32, origin: Float, step: float) -> tuple[Float, Faces]:
    """Zero level of `field` (positive inside) as a closed mesh; the largest piece only."""
    padded = np.pad(field, 1, constant_values=-float(step))
    if padded.max() <= 0:
        raise InputError(
            f"surface: the field is nowhere positive ({padded.max():.4f} m at most); it "
            "has no inside at this resolution. Raise `resolution`, or check the masks of ingest."
        )
    vertices, faces, _, _ = marching_cubes(padded, 0.0, gradient_direction="ascent")
    vertices = origin + step * (vertices.astype(np.float64) - 1)
    return largest_piece(vertices, faces.astype(np.int32))


def largest_piece(vertices: Float, faces: Faces) -> tuple[Float, Faces]:
    """The connected piece of the largest enclosed volume, with unused vertices dropped."""
    n = len(vertices)
    edges = np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]]])
    graph = sp.coo_matrix((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=(n, n))
    pieces, label = sp.csgraph.connected_components(graph, directed=False)
    face_label = label[faces[:, 0]]
    present = np.unique(face_label)
    size = [
        abs(mass_properties(vertices, faces[face_label == p]).volume) if pieces > 1 else 1.0
        for p in present
    ]
    kept = faces[face_label == present[int(np.argmax(size))]]
    used, compact = np.unique(kept, return_inverse=True)
    return vertices[used], compact.reshape(-1, 3).astype(np.int32)


def adjacency(faces: Faces, count: int) -> sp.csr_matrix:
    """Symmetric 0/1 vertex adjacency of a mesh with `count` vertices."""
    pairs = np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]])
    pairs = np.concatenate([pairs, pairs[:, ::-1]])
    matrix = sp.csr_matrix((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(count, count))
    matrix.data[:] = 1.0
    return matrix


def vertex_normals(vertices: Float, faces: Faces) -> Float:
    """Unit outward normals (v, 3), area weighted."""
    corner = vertices[faces]
    cross = np.cross(corner[:, 1] - corner[:, 0], corner[:, 2] - corner[:, 0])
    total = np.zeros_like(vertices)
    for k in range(3):
        np.add.at(total, faces[:, k], cross)
    return np.asarray(total / np.maximum(np.linalg.norm(total, axis=1, keepdims=True), 1e-20))


def smooth(
    vertices: Float, faces: Faces, rounds: int, table: float | None = None, step: float = 0.0
) -> Float:
    """Taubin's smoothing (1995), which removes steps without shrinking; the flat base stays flat.

    Vertices within 0.6 `step` of `table` keep their height.
    """
    matrix = adjacency(faces, len(vertices))
    average = sp.diags(1.0 / np.asarray(matrix.sum(1)).ravel()) @ matrix
    base = None if table is None else vertices[:, 2] < table + 0.6 * step
    out = vertices.copy()
    for _ in range(rounds):
        for factor in (0.5, -0.526):
            out = out + factor * (average @ out - out)
        if base is not None:
            out[base, 2] = vertices[base, 2]
    return out


def is_watertight(faces: Faces) -> bool:
    """Whether each edge joins exactly two faces, which run along it in opposite directions."""
    directed = np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]]).astype(
        np.int64
    )
    n = int(faces.max()) + 1
    forward, backward = directed[:, 0] * n + directed[:, 1], directed[:, 1] * n + directed[:, 0]
    unique, counts = np.unique(forward, return_counts=True)
    return bool((counts == 1).all() and np.isin(backward, unique).all())
