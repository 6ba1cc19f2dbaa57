"""Exact distance from points to a triangle surface, with sign and gradient."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from twinloop.errors import InputError

Array = NDArray[np.float64]
_PAIRS_PER_SLICE = 400_000


@dataclass(frozen=True)
class Closest:
    """Nearest surface points.

    `point` (n, 3) m; `distance` (n,) m; `face` (n,) index in the list of split triangles; `normal`
    (n, 3) outward unit normal of that triangle.
    """

    point: Array
    distance: Array
    face: NDArray[np.int64]
    normal: Array


class TriangleSurface:
    """A triangle mesh prepared for distance queries.

    Long triangles are split (the surface stays the same), so that a ball query on triangle centres
    finds all candidates of a point and the answer is exact, not that of a sampled surface.

    Args:
        vertices: (v, 3) m.
        faces: (f, 3) vertex indices, counter-clockwise from outside.

    Raises:
        InputError: no faces, an index out of range, or a vertex that is not finite.
    """

    def __init__(self, vertices: NDArray[np.floating], faces: NDArray[np.integer]) -> None:
        vertices = np.asarray(vertices, dtype=np.float64)
        faces = np.asarray(faces, dtype=np.int64)
        if len(faces) == 0 or faces.max(initial=-1) >= len(vertices) or faces.min(initial=0) < 0:
            raise InputError(
                f"mesh with {len(vertices)} vertices and {len(faces)} faces: expected at least "
                f"one face "
                "and indices inside the vertex list; reconstruct the mesh again"
            )
        if not np.isfinite(vertices).all():
            bad = int(np.argwhere(~np.isfinite(vertices).all(axis=1))[0, 0])
            raise InputError(f"mesh vertex {bad} is {vertices[bad]}: expected finite metres")
        self._solid = vertices[faces]
        span = float(np.linalg.norm(np.ptp(vertices, axis=0)))
        self.triangles = _split_long_edges(self._solid, max(span / 16.0, 1e-6))
        centre = self.triangles.mean(axis=1)
        self._radius = float(np.linalg.norm(self.triangles - centre[:, None], axis=2).max())
        self._centres = cKDTree(centre)
        self._corners = cKDTree(self.triangles.reshape(-1, 3))
        normal = np.cross(
            self.triangles[:, 1] - self.triangles[:, 0], self.triangles[:, 2] - self.triangles[:, 0]
        )
        length = np.linalg.norm(normal, axis=1, keepdims=True)
        self.normals = normal / np.where(length > 0, length, 1.0)

    def closest(self, points: Array) -> Closest:
        """Nearest surface point of each point (n, 3) m; ties go to the lowest triangle index."""
        points = np.ascontiguousarray(points, dtype=np.float64).reshape(-1, 3)
        bound = self._corners.query(points)[0] + self._radius + 1e-12
        candidates = self._centres.query_ball_point(points, bound, return_sorted=True)
        lists = [np.asarray(c, dtype=np.int64) for c in np.atleast_1d(candidates)]
        counts = np.array([len(c) for c in lists], dtype=np.int64)
        result = np.empty((len(points), 3))
        face = np.empty(len(points), dtype=np.int64)
        start = 0
        while start < len(points):
            stop = start + max(1, int(np.searchsorted(np.cumsum(counts[start:]), _PAIRS_PER_SLICE)))
            part = slice(start, min(stop, len(points)))
            owner = np.repeat(np.arange(part.start, part.stop), counts[part])
            flat = np.concatenate(lists[part])
            near = closest_on_triangles(points[owner], self.triangles[flat])
            squared = ((near - points[owner]) ** 2).sum(axis=1)
            order = np.lexsort((flat, squared, owner))
            first = order[np.searchsorted(owner[order], np.arange(part.start, part.stop))]
            result[part], face[part] = near[first], flat[first]
            start = part.stop
        distance = np.linalg.norm(points - result, axis=1)
        return Closest(result, distance, face, self.normals[face])

    def winding_number(self, points: Array) -> Array:
        """Generalised winding number (n,) of points (n, 3): 1 inside, 0 outside.

        Source: Van Oosterom and Strackee 1983 (solid angle of a triangle); Jacobson et al. 2013 for
            its use
        as an inside test that tolerates small holes.
        """
        points = np.asarray(points, dtype=np.float64).reshape(-1, 3)
        total = np.zeros(len(points))
        step = max(1, _PAIRS_PER_SLICE // len(self._solid))
        for start in range(0, len(points), step):
            corner = self._solid[None] - points[start : start + step, None, None]
            length = np.linalg.norm(corner, axis=3)
            a, b, c = corner[:, :, 0], corner[:, :, 1], corner[:, :, 2]
            volume = np.einsum("pfi,pfi->pf", a, np.cross(b, c))
            dots = (
                length.prod(axis=2)
                + np.einsum("pfi,pfi->pf", a, b) * length[:, :, 2]
                + np.einsum("pfi,pfi->pf", b, c) * length[:, :, 0]
                + np.einsum("pfi,pfi->pf", c, a) * length[:, :, 1]
            )
            angle = 2.0 * np.arctan2(volume, dots)
            total[start : start + step] = angle.sum(axis=1) / (4.0 * np.pi)
        return total

    def signed_distance(self, points: Array) -> tuple[Array, Array]:
        """Signed distance (negative inside) and its unit gradient.

        Args:
            points: (n, 3) m.

        Returns:
            Distance (n,) m and gradient (n, 3); on the surface itself the gradient is the face
            normal.
        """
        points = np.asarray(points, dtype=np.float64).reshape(-1, 3)
        near = self.closest(points)
        offset = points - near.point
        safe = np.where(near.distance > 1e-9, near.distance, 1.0)
        # Straight above or below a triangle its normal tells the side; near sharp edges it may lie.
        cosine = (offset * near.normal).sum(axis=1) / safe
        sign = np.sign(cosine)
        unsure = np.abs(cosine) < 0.99
        sign[unsure] = np.where(self.winding_number(points[unsure]) > 0.5, -1.0, 1.0)
        gradient = np.where(
            (near.distance > 1e-9)[:, None], sign[:, None] * offset / safe[:, None], near.normal
        )
        return sign * near.distance, gradient


def closest_on_triangles(points: Array, triangles: Array) -> Array:
    """Closest point of each triangle to its query point, pairwise.

    Source: Ericson, Real-Time Collision Detection (2005), 5.1.5, written without branches: the
        point is
    either the projection (if it falls inside) or the best of the three clamped edge projections.

    Args:
        points: (n, 3) m.
        triangles: (n, 3, 3) corners, m.

    Returns:
        (n, 3) m.
    """
    a, b, c = triangles[:, 0], triangles[:, 1], triangles[:, 2]
    ab, ac, ap = b - a, c - a, points - a
    d00, d01, d11 = (ab * ab).sum(1), (ab * ac).sum(1), (ac * ac).sum(1)
    d20, d21 = (ap * ab).sum(1), (ap * ac).sum(1)
    determinant = d00 * d11 - d01 * d01
    safe = np.where(determinant > 0, determinant, 1.0)
    v = (d11 * d20 - d01 * d21) / safe
    w = (d00 * d21 - d01 * d20) / safe
    inside = (v >= 0) & (w >= 0) & (v + w <= 1) & (determinant > 0)
    best: Array = a + v[:, None] * ab + w[:, None] * ac
    best_squared = np.where(inside, ((best - points) ** 2).sum(1), np.inf)
    for start, edge in ((a, ab), (a, ac), (b, c - b)):
        length = (edge * edge).sum(1)
        t = ((points - start) * edge).sum(1) / np.where(length > 0, length, 1.0)
        candidate = start + np.clip(t, 0.0, 1.0)[:, None] * edge
        squared = ((candidate - points) ** 2).sum(1)
        better = ~inside & (squared < best_squared)
        best = np.where(better[:, None], candidate, best)
        best_squared = np.where(better, squared, best_squared)
    return best


def _split_long_edges(triangles: Array, longest: float) -> Array:
    """Halve the longest edge of every triangle until none is longer than `longest`, m."""
    done = []
    while len(triangles):
        edges = np.linalg.norm(np.roll(triangles, -1, axis=1) - triangles, axis=2)
        worst = edges.argmax(axis=1)
        small = edges.max(axis=1) <= longest
        done.append(triangles[small])
        rest, turn = triangles[~small], worst[~small]
        rows = np.arange(len(rest))
        p, q, r = rest[rows, turn], rest[rows, (turn + 1) % 3], rest[rows, (turn + 2) % 3]
        middle = 0.5 * (p + q)
        triangles = np.concatenate(
            [np.stack([p, middle, r], axis=1), np.stack([middle, q, r], axis=1)]
        )
    return np.concatenate(done)
