"""Properties of closed triangle meshes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Float = NDArray[np.float64]


@dataclass(frozen=True)
class MassProperties:
    """Volume [m^3], centroid (3,) [m] and inertia (3, 3) [m^5] about it, at density 1."""

    volume: float
    centroid: Float
    inertia: Float


def mass_properties(vertices: ArrayLike, faces: ArrayLike) -> MassProperties:
    """Return the exact mass properties of a closed mesh of density 1 kg/m^3.

    Sums signed tetrahedra between each face and the origin (Tonon 2004, second moments).

    Args:
        vertices: (n, 3) [m].
        faces: (m, 3) indices, counter-clockwise from outside.
    """
    triangles = np.asarray(vertices, dtype=np.float64)[np.asarray(faces)]
    a, b, c = triangles[:, 0], triangles[:, 1], triangles[:, 2]
    volumes = np.einsum("ij,ij->i", a, np.cross(b, c)) / 6
    volume = float(volumes.sum())
    corners = a + b + c
    centroid = (volumes[:, None] * corners).sum(0) / (4 * volume)
    second = sum(np.einsum("i,ij,ik->jk", volumes, p, p) for p in (a, b, c, corners))
    second = np.asarray(second) / 20 - volume * np.outer(centroid, centroid)
    return MassProperties(volume, centroid, np.trace(second) * np.eye(3) - second)
