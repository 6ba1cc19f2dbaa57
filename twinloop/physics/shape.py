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
from twinloop.geometry.sdf import DistanceGrid, bake

Array = npt.NDArray[np.float64]

# Vertices this close to the lowest one belong to the face the object stands on.
_BOTTOM_BAND = 1.5e-3
_CONTOUR_DIRECTIONS = 16
_HULL_DIRECTIONS = 48
# Angles around the bottom edge at which it is sampled, and load share of a point of it off the
# table: a tilted object rests on a few of them.
_ARC = (0.0, 0.3, 0.7, 1.3)
_ARC_SHARE = 2.0
# The edge stands for the hull up to this height, as a share of the footprint's half width.
_ARC_HEIGHT = 0.3
# Load share of a hull point outside the footprint: an edge of a toppled object rests on a few.
_HULL_SHARE = 1.0 / 6.0


@dataclass(frozen=True)
class CollisionShape:
    """An object ready to be simulated. The body frame has the object frame's origin.

    Attributes:
        R_object_body: (3, 3) principal axes of the uniform mesh, as columns in the object frame.
        points: (N, 3) m, support points, body frame.
        rounding: (N, 3) shift of ``points`` per metre of edge radius.
        weight: (N,) share of the table stiffness without spread.
        weight_spread: (N,) change of that share per unit of spread; sums to zero.
        foot_width: m, half width of the footprint where it is narrowest.
        grid: Signed distances, object frame.
        down: (3,) unit, direction of gravity at rest, body frame.
        extent: (3,) m, root-mean-square extents of the uniform mesh about its centroid.
        centroid: (3,) m, of the uniform mesh, body frame.
        half_extent: (3,) m, half size of the bounding box, body frame.
        volume: m^3.
    """

    R_object_body: Array
    points: Array
    rounding: Array
    weight: Array
    weight_spread: Array
    foot_width: float
    grid: DistanceGrid
    down: Array
    extent: Array
    centroid: Array
    half_extent: Array
    volume: float

    def sample(self, points: Array) -> tuple[Array, Array]:
        """Distance (N,) m of points (N, 3) m and its gradient (N, 3), both in the body frame.

        Beyond the grid: infinity and zero, as `DistanceGrid.sample`.

        Raises:
            InputError: Points that are not (N, 3) or not finite.
        """
        distance, gradient = self.grid.sample(points @ self.R_object_body.T)
        return distance, gradient @ self.R_object_body


def collision_shape(
    vertices: Array,
    faces: npt.NDArray[np.int32],
    down: Array,
    *,
    grid: DistanceGrid | None = None,
    margin: float = 0.02,
    cells: int = 48,
) -> CollisionShape:
    """Prepare a mesh for the engine.

    Args:
        vertices: (V, 3) m, object frame.
        faces: (F, 3) vertex indices, outward.
        down: (3,) direction of gravity in the object frame while the object stands still.
        grid: Signed distances of the mesh, object frame; None: baked here, which `margin` and
            `cells` are for.
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
    support = support_points(body, down_body)
    return CollisionShape(
        R_object_body=R,
        points=support.points,
        rounding=support.rounding,
        weight=support.weight,
        weight_spread=support.weight_spread,
        foot_width=support.foot_width,
        grid=bake(vertices, faces, margin=margin, cells=cells) if grid is None else grid,
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


@dataclass(frozen=True)
class Support:
    """Points that touch the table. Fields as in ``CollisionShape``."""

    points: Array
    rounding: Array
    weight: Array
    weight_spread: Array
    foot_width: float


def support_points(vertices: Array, down: Array) -> Support:
    """Support points of a body that rests with ``down`` along gravity.

    The face it stands on is flattened and its edge given a radius that is an unknown of the
    identification, because a scan from above sees neither. A point of the edge stands at
    ``points + radius * rounding``. The contour carries the load at spread 0, points inside it at
    spread 1, so that spread sets the torsional friction. Other hull points only touch when the
    object topples.
    """
    height = -(vertices @ down)
    lowest = float(np.percentile(height, 0.5))
    bottom = vertices[height < lowest + _BOTTOM_BAND]
    if len(bottom) < 3:
        bottom = vertices[np.argsort(height, kind="stable")[:8]]
    plane = float(np.median(-(bottom @ down)))
    e1 = np.cross(down, np.eye(3)[int(np.argmin(np.abs(down)))])
    e1 /= np.linalg.norm(e1)
    frame = np.stack([e1, np.cross(e1, down), -down])  # rows: across, across, up; right-handed
    angles = 2 * np.pi * np.arange(_CONTOUR_DIRECTIONS) / _CONTOUR_DIRECTIONS
    outward = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    flat = bottom @ frame[:2].T
    contour = flat[_distinct(np.argmax(flat @ outward.T, axis=0))]
    mitre = _mitre(contour)
    centre = contour.mean(axis=0)
    inner = np.concatenate([centre[None], centre + 0.5 * (contour - centre)])
    arcs, arc_rounding = [], []
    for angle in _ARC:
        arcs.append(np.column_stack([contour, np.full(len(contour), plane)]))
        rise = np.full(len(contour), 1 - np.cos(angle))
        arc_rounding.append(np.column_stack([-mitre * (1 - np.sin(angle)), rise]))
    inner = np.column_stack([inner, np.full(len(inner), plane)])
    hull = vertices[ConvexHull(vertices).vertices]
    extreme = hull[_distinct(np.argmax(hull @ _sphere(_HULL_DIRECTIONS).T, axis=0))]
    foot_width = float(np.ptp(contour @ outward.T, axis=0).min()) / 2
    extreme = extreme[-(extreme @ down) > plane + max(_BOTTOM_BAND, _ARC_HEIGHT * foot_width)]
    edge, n = np.concatenate(arcs), len(contour)
    return Support(
        points=np.concatenate([np.concatenate([edge, inner]) @ frame, extreme]),
        rounding=np.concatenate(
            [np.concatenate(arc_rounding) @ frame, np.zeros((len(inner) + len(extreme), 3))]
        ),
        weight=np.concatenate(
            [
                np.full(n, 1 / n),
                np.full(len(edge) - n, _ARC_SHARE / n),
                np.zeros(len(inner)),
                np.full(len(extreme), _HULL_SHARE),
            ]
        ),
        weight_spread=np.concatenate(
            [
                np.full(n, -1 / n),
                np.zeros(len(edge) - n),
                np.full(len(inner), 1 / len(inner)),
                np.zeros(len(extreme)),
            ]
        ),
        foot_width=foot_width,
    )


def _mitre(polygon: Array) -> Array:
    """(N, 2) shift of each corner when the sides of a counter-clockwise polygon move out by 1."""
    side = np.roll(polygon, -1, axis=0) - polygon
    length = np.maximum(np.linalg.norm(side, axis=1, keepdims=True), 1e-12)
    after = np.stack([side[:, 1], -side[:, 0]], axis=1) / length
    before = np.roll(after, 1, axis=0)
    turn = 1 + np.sum(before * after, axis=1, keepdims=True)
    return np.asarray((before + after) / np.maximum(turn, 0.3))


def _distinct(index: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    return np.asarray(list(dict.fromkeys(index.tolist())), dtype=np.intp)


def _sphere(count: int) -> Array:
    """Evenly spread unit directions (Fibonacci lattice)."""
    i = np.arange(count) + 0.5
    z = 1 - 2 * i / count
    turn = np.pi * (1 + 5**0.5) * i
    r = np.sqrt(1 - z * z)
    return np.stack([r * np.cos(turn), r * np.sin(turn), z], axis=1)
