"""What the engine needs of a mesh: body frame, support points and a distance grid.

The cost and the result do not depend on the number of vertices: the table sees a few dozen points
of the convex hull, the fingertip sees a distance grid.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.spatial import ConvexHull

from twinloop.errors import InputError
from twinloop.geometry.mesh import mass_properties
from twinloop.physics.sdf import DistanceGrid, bake

Array = npt.NDArray[np.float64]

# Vertices this close to the lowest one belong to the face the object stands on.
_BOTTOM_BAND = 1.5e-3
_CONTOUR_DIRECTIONS = 16
_HULL_DIRECTIONS = 48
# Load share of a hull point outside the footprint: an edge of a toppled object rests on a few.
_HULL_SHARE = 1.0 / 6.0


@dataclass(frozen=True)
class CollisionShape:
    """An object ready to be simulated. The body frame has the object frame's origin.

    Attributes:
        R_object_body: (3, 3) principal axes of the uniform mesh, as columns in the object frame.
        points: (N, 3) m, support points, body frame.
        across: (N, 3) m, part of ``points`` across the rest direction; the footprint scale acts
            on it.
        weight: (N,) share of the table stiffness without spread.
        weight_spread: (N,) change of that share per unit of spread; sums to zero.
        grid: Signed distances, body frame.
        down: (3,) unit, direction of gravity at rest, body frame.
        extent: (3,) m, root-mean-square extents of the uniform mesh about its centroid.
        centroid: (3,) m, of the uniform mesh, body frame.
        half_extent: (3,) m, half size of the bounding box, body frame.
        volume: m^3.
    """

    R_object_body: Array
    points: Array
    across: Array
    weight: Array
    weight_spread: Array
    grid: DistanceGrid
    down: Array
    extent: Array
    centroid: Array
    half_extent: Array
    volume: float


def collision_shape(
    vertices: Array,
    faces: npt.NDArray[np.int32],
    down: Array,
    *,
    margin: float = 0.02,
    cells: int = 48,
) -> CollisionShape:
    """Prepare a mesh for the engine.

    Args:
        vertices: (V, 3) m, object frame.
        faces: (F, 3) vertex indices, outward.
        down: (3,) direction of gravity in the object frame while the object stands still.
        margin: m, reach of the distance grid beyond the mesh; more than the tip radius.
        cells: Cells of the distance grid along the longest side.

    Raises:
        InputError: The mesh encloses no volume.
    """
    with np.errstate(all="ignore"):
        uniform = mass_properties(vertices, faces)
    if not uniform.volume > 0:
        raise InputError(
            f"mesh: enclosed volume is {uniform.volume:.3g} m^3, expected > 0; faces must point "
            "outward and the mesh must be closed"
        )
    R = principal_axes(uniform.inertia)
    moments = np.diagonal(R.T @ uniform.inertia @ R) / uniform.volume
    squared_extent = moments.sum() / 2 - moments
    body = vertices @ R
    down_body = R.T @ (down / np.linalg.norm(down))
    points, weight, spread = support_points(body, down_body)
    across = points - np.outer(points @ down_body, down_body)
    return CollisionShape(
        R_object_body=R,
        points=points,
        across=across,
        weight=weight,
        weight_spread=spread,
        grid=bake(body, faces, margin=margin, cells=cells),
        down=down_body,
        extent=np.sqrt(np.maximum(squared_extent, 1e-12)),
        centroid=uniform.centroid @ R,
        half_extent=np.ptp(body, axis=0) / 2,
        volume=uniform.volume,
    )


def principal_axes(inertia: Array) -> Array:
    """Right-handed principal axes as columns, each as close to a positive axis as possible."""
    _, vectors = np.linalg.eigh(inertia)
    order = np.argsort([int(np.argmax(np.abs(vectors[:, i]))) for i in range(3)], kind="stable")
    axes = vectors[:, order]
    largest = np.argmax(np.abs(axes), axis=0)
    axes = axes * np.sign(axes[largest, range(3)])
    if np.linalg.det(axes) < 0:
        axes[:, 2] = -axes[:, 2]
    return np.asarray(axes, dtype=np.float64)


def support_points(vertices: Array, down: Array) -> tuple[Array, Array, Array]:
    """Points that touch the table, their load shares and the change of share with spread.

    The face the object stands on is flattened (a scan cannot see it): its contour carries the load
    at spread 0, points inside it at spread 1, so that spread sets the torsional friction. Other
    hull points only touch when the object tilts or topples.
    """
    height = -(vertices @ down)
    lowest = float(np.percentile(height, 0.5))
    bottom = vertices[height < lowest + _BOTTOM_BAND]
    if len(bottom) < 3:
        bottom = vertices[np.argsort(height, kind="stable")[:8]]
    plane = float(np.median(-(bottom @ down)))
    e1 = np.cross(down, np.eye(3)[int(np.argmin(np.abs(down)))])
    e1 /= np.linalg.norm(e1)
    e2 = np.cross(down, e1)
    flat = np.stack([bottom @ e1, bottom @ e2], axis=1)
    angles = 2 * np.pi * np.arange(_CONTOUR_DIRECTIONS) / _CONTOUR_DIRECTIONS
    outward = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    contour = flat[_distinct(np.argmax(flat @ outward.T, axis=0))]
    centre = contour.mean(axis=0)
    inner = np.concatenate([centre[None], centre + 0.5 * (contour - centre)])
    foot = np.concatenate([contour, inner])
    foot = foot[:, :1] * e1 + foot[:, 1:] * e2 - plane * down
    hull = vertices[ConvexHull(vertices).vertices]
    extreme = hull[_distinct(np.argmax(hull @ _sphere(_HULL_DIRECTIONS).T, axis=0))]
    extreme = extreme[-(extreme @ down) > plane + _BOTTOM_BAND]
    weight = np.concatenate(
        [
            np.full(len(contour), 1 / len(contour)),
            np.zeros(len(inner)),
            np.full(len(extreme), _HULL_SHARE),
        ]
    )
    spread = np.concatenate(
        [
            np.full(len(contour), -1 / len(contour)),
            np.full(len(inner), 1 / len(inner)),
            np.zeros(len(extreme)),
        ]
    )
    return np.concatenate([foot, extreme]), weight, spread


def _distinct(index: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    return np.asarray(list(dict.fromkeys(index.tolist())), dtype=np.intp)


def _sphere(count: int) -> Array:
    """Evenly spread unit directions (Fibonacci lattice)."""
    i = np.arange(count) + 0.5
    z = 1 - 2 * i / count
    turn = np.pi * (1 + 5**0.5) * i
    r = np.sqrt(1 - z * z)
    return np.stack([r * np.cos(turn), r * np.sin(turn), z], axis=1)
