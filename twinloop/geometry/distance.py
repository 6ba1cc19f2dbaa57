"""How far points are from a mesh, many at once, and how far two meshes are from each other.

The queries go through Warp's bounding volume hierarchy in float32 about the mesh's middle, which is
right to 1e-7 of the mesh's size at about a microsecond a point. `TriangleSurface` is the exact one
in float64.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from twinloop.errors import InputError

Array = npt.NDArray[np.float64]
Faces = npt.NDArray[np.integer]
_MOST_STEPS = 400


class MeshDistance:
    """A triangle mesh prepared for many closest-point queries.

    Args:
        vertices: (v, 3) m.
        faces: (f, 3).

    Raises:
        InputError: no faces, indices out of range or vertices that are not finite.
    """

    def __init__(self, vertices: Array, faces: Faces) -> None:
        import warp as wp

        wp.config.quiet = True
        check_mesh(vertices, faces)
        self._centre = vertices.mean(axis=0)
        self._reach = 4.0 * float(np.linalg.norm(np.ptp(vertices, axis=0))) + 1.0
        with wp.ScopedDevice("cpu"):
            self._mesh = wp.Mesh(
                points=wp.array((vertices - self._centre).astype(np.float32), dtype=wp.vec3),
                indices=wp.array(np.asarray(faces, np.int32).ravel(), dtype=wp.int32),
            )

    def closest(self, points: Array) -> tuple[Array, npt.NDArray[np.int32]]:
        """Nearest surface point (n, 3) m of each of `points` (n, 3) m, and its face (n,)."""
        import warp as wp

        from twinloop.geometry.sdf_kernel import closest_point

        points = np.asarray(points, dtype=np.float64).reshape(-1, 3) - self._centre
        reach = self._reach + float(np.abs(points).max(initial=0.0)) * 2.0
        with wp.ScopedDevice("cpu"):
            out = wp.zeros(len(points), dtype=wp.vec3)
            face = wp.zeros(len(points), dtype=wp.int32)
            wp.launch(
                closest_point,
                dim=len(points),
                inputs=[
                    self._mesh.id,
                    wp.array(np.ascontiguousarray(points, np.float32), dtype=wp.vec3),
                    reach,
                ],
                outputs=[out, face],
            )
            near = out.numpy().astype(np.float64).reshape(-1, 3)
            return near + self._centre, face.numpy()

    def distance(self, points: Array) -> Array:
        """Distance (n,) m of `points` (n, 3) m from the surface, without sign."""
        return np.asarray(np.linalg.norm(points - self.closest(points)[0], axis=1))


@dataclass(frozen=True)
class SurfaceError:
    """How far two surfaces are from each other, both ways, m; `spacing` of the samples in m.

    The largest distance (Hausdorff) of the whole surfaces exceeds `most` by at most 0.58 `spacing`.
    """

    mean: float
    most: float
    spacing: float


def surface_error(
    vertices: Array, faces: Faces, other_vertices: Array, other_faces: Faces, spacing: float
) -> SurfaceError:
    """Distances between two surfaces, from samples of each to the triangles of the other.

    The samples are the vertices and a lattice on each face, so that none is far from one.

    Args:
        vertices: (v, 3) m.
        faces: (f, 3).
        other_vertices: (w, 3) m.
        other_faces: (g, 3).
        spacing: m, between neighbouring samples at most.
    """
    a, weight_a = surface_points(vertices, faces, spacing)
    b, weight_b = surface_points(other_vertices, other_faces, spacing)
    there = MeshDistance(other_vertices, other_faces).distance(a)
    back = MeshDistance(vertices, faces).distance(b)
    mean = 0.5 * (np.average(there, weights=weight_a) + np.average(back, weights=weight_b))
    return SurfaceError(float(mean), float(max(there.max(), back.max())), spacing)


def surface_points(vertices: Array, faces: Faces, spacing: float) -> tuple[Array, Array]:
    """Lattice points (n, 3) m on every face, corners included, and the area (n,) m^2 of each.

    Neighbours on a face are at most `spacing` apart, unless its edges are longer than 400 of it.
    """
    corner = np.asarray(vertices, dtype=np.float64)[faces]
    edge = np.linalg.norm(np.roll(corner, -1, axis=1) - corner, axis=2).max(axis=1)
    area = 0.5 * np.linalg.norm(
        np.cross(corner[:, 1] - corner[:, 0], corner[:, 2] - corner[:, 0]), axis=1
    )
    steps = np.clip(np.ceil(edge / spacing), 1, _MOST_STEPS).astype(int)
    points, weights = [], []
    for n in np.unique(steps):
        here = steps == n
        i, j = np.triu_indices(n + 1)
        lattice = np.stack([i, j - i, n - j], axis=1) / n
        points.append(np.einsum("lk,fki->fli", lattice, corner[here]).reshape(-1, 3))
        # A point inside stands for six small triangles' thirds, one on an edge for half of them.
        share = np.where((lattice > 0).all(axis=1), 6.0, 3.0)
        share[(lattice == 1).any(axis=1)] = 1.0
        share /= share.sum()
        weights.append((area[here, None] * share).reshape(-1))
    return np.concatenate(points), np.concatenate(weights)


def check_mesh(vertices: Array, faces: Faces) -> None:
    """Refuse what is no triangle mesh.

    Raises:
        InputError: no faces, indices out of range or vertices that are not finite.
    """
    if np.ndim(vertices) != 2 or np.shape(vertices)[1] != 3 or np.ndim(faces) != 2:
        raise InputError(
            f"mesh: vertices of shape {np.shape(vertices)} and faces of shape {np.shape(faces)}; "
            "expected (v, 3) and (f, 3)"
        )
    for name, values, kinds in (("vertices", vertices, "fiu"), ("faces", faces, "iu")):
        if not isinstance(values, np.ndarray) or values.dtype.kind not in kinds:
            found = getattr(values, "dtype", type(values).__name__)
            wanted = "of integers" if name == "faces" else "of numbers"
            raise InputError(f"mesh: {name} are {found}, expected a NumPy array {wanted}")
    if len(faces) == 0 or faces.shape[1] != 3 or faces.min() < 0 or faces.max() >= len(vertices):
        worst = -1
        if faces.size:
            worst = int(faces.min() if faces.min() < 0 else faces.max())
        raise InputError(
            f"mesh: {len(faces)} faces with index {worst} over {len(vertices)} vertices; expected "
            "triangles that index the vertices"
        )
    if not np.isfinite(vertices).all():
        bad = int(np.argwhere(~np.isfinite(vertices).all(axis=1))[0, 0])
        raise InputError(f"mesh: vertex {bad} is {vertices[bad]}; expected finite metres")
