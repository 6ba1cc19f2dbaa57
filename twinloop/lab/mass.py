"""Mass, centre of mass and inertia of a body of shell, contents and lumps, by exact integrals.

Each piece is summed as moments (mass, first moment, second moment matrix) about the origin; moments
of pieces add.  Polyhedra: signed tetrahedra with one corner at a common point (Tonon, J. Math.
Stat. 1 (2005) gives the same closed form); shells: triangles, with the exact second moment of a
linear simplex.  For contents cut by a plane the common corner is put ON the plane, so that the cap,
which would close the cut, has zero volume and needs no triangulating.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Moments:
    """Mass (kg), first moment int x dm (3,), second moment int x x^T dm (3,3), about the origin."""

    mass: float
    first: Array
    second: Array

    def __add__(self, other: Moments) -> Moments:
        """Moments of both bodies together."""
        return Moments(self.mass + other.mass, self.first + other.first, self.second + other.second)

    def scaled_to(self, mass: float) -> Moments:
        """The same shape with another total mass (kg)."""
        k = mass / self.mass
        return Moments(mass, self.first * k, self.second * k)

    def com(self) -> Array:
        """Centre of mass (3,), m."""
        return np.asarray(self.first / self.mass)

    def inertia(self) -> Array:
        """Inertia matrix (3,3) about the centre of mass, kg m^2."""
        com = self.com()
        second = self.second - self.mass * np.outer(com, com)
        return np.asarray(np.trace(second) * np.eye(3) - second)


def _simplex_moments(weights: Array, corners: Array) -> Moments:
    """Moments of linear simplices: weights (n,) kg each, corners (n,k,3).

    For a simplex with k corners: mean of x x^T = (sum c c^T + (sum c)(sum c)^T) / (k (k+1)).
    """
    k = corners.shape[1]
    total = corners.sum(axis=1)
    first = np.einsum("n,ni->i", weights, total) / k
    second = np.einsum("n,nki,nkj->ij", weights, corners, corners)
    second = second + np.einsum("n,ni,nj->ij", weights, total, total)
    return Moments(float(weights.sum()), first, second / (k * (k + 1)))


def solid_moments(vertices: Array, faces: NDArray[np.integer]) -> Moments:
    """Moments of the closed solid at density 1: vertices (v,3) m, faces (f,3) outward."""
    return _fan_moments(vertices[faces], np.zeros(3))


def shell_moments(vertices: Array, faces: NDArray[np.integer]) -> Moments:
    """Moments of the surface as a thin wall of areal density 1."""
    triangles = vertices[faces]
    cross = np.cross(triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0])
    return _simplex_moments(0.5 * np.linalg.norm(cross, axis=1), triangles)


def ball_moments(mass: float, centre: Array, radius: float) -> Moments:
    """Moments of a solid ball: mass kg, centre (3,) m, radius m."""
    second = mass * (np.outer(centre, centre) + radius**2 / 5.0 * np.eye(3))
    return Moments(mass, mass * centre, second)


def _fan_moments(triangles: Array, apex: Array) -> Moments:
    """Moments at density 1 of the signed tetrahedra from ``apex`` to each triangle (n,3,3)."""
    edges = triangles - apex
    volume = np.einsum("ni,ni->n", edges[:, 0], np.cross(edges[:, 1], edges[:, 2])) / 6.0
    tips = np.broadcast_to(apex, (len(triangles), 1, 3))
    return _simplex_moments(volume, np.concatenate([triangles, tips], axis=1))


def clip_triangles(triangles: Array, normal: Array, offset: float) -> Array:
    """The parts of triangles (n,3,3) with ``x . normal <= offset``, as triangles (m,3,3).

    Winding is kept. The cut itself is left open (see the module's note).
    """
    height = triangles @ normal - offset
    below = height <= 0.0
    kept = [triangles[below.all(axis=1)]]
    for corner in range(3):  # roll so that the lone corner comes first
        order = [corner, (corner + 1) % 3, (corner + 2) % 3]
        t, h, b = triangles[:, order], height[:, order], below[:, order]
        alone_in = b[:, 0] & ~b[:, 1] & ~b[:, 2]
        alone_out = ~b[:, 0] & b[:, 1] & b[:, 2]
        for mask in (alone_in, alone_out):
            c, g = t[mask], h[mask]
            p = c[:, 0] + (c[:, 1] - c[:, 0]) * (g[:, 0] / (g[:, 0] - g[:, 1]))[:, None]
            q = c[:, 0] + (c[:, 2] - c[:, 0]) * (g[:, 0] / (g[:, 0] - g[:, 2]))[:, None]
            if mask is alone_in:
                kept.append(np.stack([c[:, 0], p, q], axis=1))
            else:
                kept.append(np.stack([p, c[:, 1], c[:, 2]], axis=1))
                kept.append(np.stack([p, c[:, 2], q], axis=1))
    return np.concatenate(kept)


def contents_moments(
    vertices: Array, faces: NDArray[np.integer], level: float, direction: Array
) -> Moments:
    """Moments at density 1 of the contents that fill a share ``level`` of the inside.

    The contents have settled along ``direction`` (3,), so their free surface is normal to it: they
    are the part of the solid with ``x . (-direction) <= offset``, offset found so that the share is
    right.
    """
    triangles = vertices[faces]
    if level >= 1.0:
        return solid_moments(vertices, faces)
    normal = -np.asarray(direction, dtype=np.float64)
    normal = normal / np.linalg.norm(normal)
    whole = _fan_moments(triangles, np.zeros(3)).mass

    def moments(offset: float) -> Moments:
        return _fan_moments(clip_triangles(triangles, normal, offset), offset * normal)

    heights = vertices @ normal
    low, high = float(heights.min()), float(heights.max())
    offset = brentq(lambda o: moments(o).mass / whole - level, low, high, xtol=1e-12)
    return moments(float(offset))
