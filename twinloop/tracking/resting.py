"""How an object can rest on a table: the stable faces of its convex hull."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import ConvexHull

from twinloop.tracking.solver import rotation_exp

Array = NDArray[np.float64]

FLAT = 0.02
"""Hull facets whose normals are within this many rad are one face of a noisy mesh."""


@dataclass(frozen=True)
class Rest:
    """One way to rest.

    rotation: (3, 3) of T_world_object for one yaw; height: m of the object's origin above the
    table; share: likelihood, 1 for all faces together.
    """

    rotation: Array
    height: float
    share: float

    @property
    def up(self) -> Array:
        """(3,) object axis that points up."""
        return np.asarray(self.rotation[2])

    def pose(self, x: float, y: float, yaw: float) -> Array:
        """T_world_object of the object resting thus, turned by yaw (rad), at x, y (m)."""
        out = np.eye(4)
        out[:3, :3] = rotation_exp(np.array([0.0, 0.0, yaw])) @ self.rotation
        out[:3, 3] = [x, y, self.height]
        return out


def resting_faces(
    hull: Array, T_world_object: Array | None = None, largest: int = 8
) -> tuple[Rest, ...]:
    """Stable ways to rest, the likeliest first; at most `largest`.

    A face of the hull (h, 3) is stable when the hull's centroid lies above it; its likelihood is
    taken as the solid angle under which it is seen from there (Boothroyd and Ho 1977). How the
    object stood in the scan, if known, comes first.
    """
    body = ConvexHull(hull)
    normals = body.equations[:, :3]
    corners = hull[body.simplices]
    middle = hull.mean(0)
    volumes = (
        np.abs(
            np.einsum(
                "fi,fi->f",
                corners[:, 0] - middle,
                np.cross(corners[:, 1] - middle, corners[:, 2] - middle),
            )
        )
        / 6
    )
    centroid = np.einsum("f,fi->i", volumes, (corners.sum(1) + middle) / 4) / volumes.sum()
    order = np.argsort(-volumes, kind="stable")
    groups: list[list[int]] = []
    for i in order:
        for group in groups:
            if normals[i] @ normals[group[0]] > np.cos(FLAT * 3):
                group.append(int(i))
                break
        else:
            groups.append([int(i)])
    found: list[Rest] = []
    for group in groups:
        angle = sum(solid_angle(corners[i] - centroid) for i in group)
        area = np.array([_area(corners[i]) for i in group])
        down = (normals[group] * area[:, None]).sum(0)
        down /= np.linalg.norm(down)
        foot = centroid + down * float((hull @ down).max() - centroid @ down)
        inside = any(_above(corners[i], foot, normals[i]) for i in group)
        if not inside or angle < 0.02:
            continue
        found.append(_rest(hull, -down, angle / (4 * np.pi)))
    found.sort(key=lambda r: -r.share)
    if T_world_object is not None:
        first = Rest(np.array(T_world_object[:3, :3]), float(T_world_object[2, 3]), 1.0)
        found = [first, *(r for r in found if r.up @ first.up < np.cos(0.1))]
    if not found:
        found = [_rest(hull, np.array([0.0, 0.0, 1.0]), 1.0)]
    return tuple(found[:largest])


def _rest(hull: Array, up: Array, share: float) -> Rest:
    """The rest with object axis `up` upwards."""
    other = np.eye(3)[int(np.argmin(np.abs(up)))]
    x = np.cross(other, up)
    x /= np.linalg.norm(x)
    rotation = np.stack([x, np.cross(up, x), up])
    return Rest(rotation, float(-(hull @ up).min()), share)


def _area(triangle: Array) -> float:
    """Area of a triangle (3, 3)."""
    return 0.5 * float(
        np.linalg.norm(np.cross(triangle[1] - triangle[0], triangle[2] - triangle[0]))
    )


def _above(triangle: Array, point: Array, normal: Array) -> bool:
    """Whether `point` projects along `normal` into the triangle (3, 3), with a little slack."""
    sides = [
        float(np.cross(triangle[(k + 1) % 3] - triangle[k], point - triangle[k]) @ normal)
        for k in range(3)
    ]
    slack = 1e-3 * _area(triangle)
    return min(sides) > -slack or max(sides) < slack


def solid_angle(triangle: Array) -> float:
    """Solid angle, sr, of a triangle (3, 3) seen from the origin (van Oosterom, Strackee 1983)."""
    a, b, c = (v / np.linalg.norm(v) for v in triangle)
    top = abs(float(a @ np.cross(b, c)))
    return 2 * float(np.arctan2(top, 1 + a @ b + b @ c + c @ a))
