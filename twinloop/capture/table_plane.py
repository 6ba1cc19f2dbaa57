"""The plane that an object stands on, from sparse points and camera poses, where no board tells.

RANSAC (Fischler and Bolles 1981) over point triples near what the cameras look at, then least
squares on the inliers.  Cameras lie above a table and nothing that is seen lies below it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinloop.errors import InputError
from twinloop.geometry import se3

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

TRIALS = 1500
"""Triples of points that are tried."""
NEAR = 0.8
"""Points farther from the target are not looked at, relative to the cameras' median distance."""
TOLERANCE = 0.004
"""Least distance at which a point counts as on the plane, relative to the same."""
LEAST_POINTS = 30
"""Fewest points that make a plane."""
LEAST_SHARE = 0.08
"""Least share of the near points that the plane must hold."""
UP_ANGLE = 25.0
"""Largest angle between the plane's normal and a given up direction, degrees."""


@dataclass(frozen=True)
class TablePlane:
    """The plane ``normal @ x == offset``; the cameras lie where it is greater."""

    normal: Array
    """Unit normal (3,), towards the cameras."""
    offset: float
    """Distance from the origin along the normal, in the points' unit."""
    inliers: Flags
    """Which of the points lie on it (m,)."""
    share: float
    """Share of the points near the target that lie on it."""
    tilt_std: float
    """Standard deviation of the normal about its worst axis, degrees."""
    offset_std: float
    """Standard deviation of the height below the target, in the points' unit."""
    rival: float
    """Points on the best plane of another orientation, relative to those on this one: near 1 means
    that the choice is doubtful."""

    def height(self, points: Array) -> Array:
        """Height (n,) of points (n, 3) above the plane."""
        return np.asarray(points @ self.normal - self.offset)


def looked_at(T_world_camera: Array) -> Array:
    """Point (3,) nearest to all optical axes of poses (n, 4, 4), least squares.

    Axes that are all alike leave it undetermined along them; a weak pull to the mean camera centre
    moved forward by the cameras' spread keeps it in front.
    """
    centres, axes = T_world_camera[:, :3, 3], T_world_camera[:, :3, 2]
    across = np.eye(3) - axes[:, :, None] * axes[:, None, :]
    spread = float(np.linalg.norm(centres - centres.mean(axis=0), axis=1).mean())
    ahead = centres.mean(axis=0) + axes.mean(axis=0) * spread
    pull = 1e-6 * len(centres)
    A = across.sum(axis=0) + pull * np.eye(3)
    b = np.einsum("nij,nj->i", across, centres) + pull * ahead
    return np.asarray(np.linalg.solve(A, b))


def find_table_plane(
    points: Array,
    T_world_camera: Array,
    *,
    target: Array | None = None,
    up: Array | None = None,
    seed: int = 0,
    where: str = "points",
) -> TablePlane:
    """Find the dominant plane under what the cameras look at.

    Args:
        points: Points on what is seen (m, 3), any unit.
        T_world_camera: Camera poses (n, 4, 4) in the same world; NaN ones are ignored.
        target: Where the object is (3,); None for the point nearest to all optical axes.
        up: Direction against gravity (3,), where known.
        seed: Seed of the drawn triples.
        where: Name of the capture, for messages.

    Raises:
        InputError: No plane holds enough points with all cameras on one side of it
            (unidentifiable); says what was found.
    """
    poses = T_world_camera[np.isfinite(T_world_camera).all(axis=(1, 2))]
    usable = np.asarray(np.isfinite(points).all(axis=1))
    if len(poses) < 2 or usable.sum() < LEAST_POINTS:
        raise InputError(
            f"{where}: the table plane is unidentifiable from {int(usable.sum())} points and "
            f"{len(poses)} cameras; at least {LEAST_POINTS} and 2 are needed. {_ADVICE}"
        )
    target = looked_at(poses) if target is None else np.asarray(target, np.float64)
    centres = poses[:, :3, 3]
    distance = float(np.median(np.linalg.norm(centres - target, axis=1)))
    near = usable & (np.linalg.norm(points - target, axis=1) < NEAR * distance)
    cloud = points[near]
    tolerance = TOLERANCE * distance
    found = _search(cloud, centres, up, tolerance, np.random.default_rng(seed))
    if found is None:
        raise InputError(
            f"{where}: the table plane is unidentifiable: none of {TRIALS} planes through three of "
            f"{len(cloud)} points near the object has all cameras on one side"
            + (f" within {UP_ANGLE:.0f} degrees of the given up. " if up is not None else ". ")
            + _ADVICE
        )
    normal, offset, rival = found
    fine = tolerance
    for _ in range(8):
        height = np.abs(cloud @ normal - offset)
        on = height < fine
        if on.sum() < 3:
            break
        # Three standard deviations by the median, so that the object's foot does not count.
        fine = min(fine, max(3 * 1.4826 * float(np.median(height[on])), 1e-7 * distance))
        on = height < fine
        middle = cloud[on].mean(axis=0)
        fitted = np.linalg.svd(cloud[on] - middle, full_matrices=False)[2][2]
        normal = fitted * np.sign(fitted @ (centres.mean(axis=0) - middle))
        offset = float(normal @ middle)
    on = np.abs(cloud @ normal - offset) < tolerance
    count, share = int(on.sum()), float(on.mean()) if len(cloud) else 0.0
    line = False
    if count > 3:
        extent = np.linalg.svd(cloud[on] - cloud[on].mean(axis=0), compute_uv=False)
        line = bool(extent[1] < 0.05 * extent[0])
    if count < LEAST_POINTS or share < LEAST_SHARE or line:
        shape = "a line of " if line else ""
        raise InputError(
            f"{where}: the table plane is unidentifiable: the best one holds {shape}{count} of "
            f"{len(cloud)} points near the object ({share:.0%}), at least {LEAST_POINTS} and "
            f"{LEAST_SHARE:.0%}, spread over an area, are needed. {_ADVICE}"
        )
    exact = np.abs(cloud @ normal - offset) < fine
    tilt, below = _uncertainty(cloud[exact], normal, offset, target)
    inliers = np.zeros(len(points), bool)
    inliers[np.flatnonzero(near)[on]] = True
    return TablePlane(normal, offset, inliers, share, tilt, below, rival)


_ADVICE = (
    "Lay a tag board or a printed page under the object, and film more of the table around it."
)


def _search(
    cloud: Array, centres: Array, up: Array | None, tolerance: float, rng: np.random.Generator
) -> tuple[Array, float, float] | None:
    """Best plane by points on it less points below it, and its best rival's relative count."""
    if len(cloud) < 3:
        return None
    triples = cloud[rng.integers(0, len(cloud), (TRIALS, 3))]
    normals = np.cross(triples[:, 1] - triples[:, 0], triples[:, 2] - triples[:, 0])
    length = np.linalg.norm(normals, axis=1)
    good = length > 1e-12 * np.max(length, initial=1e-300)
    normals, triples = normals[good] / length[good, None], triples[good]
    offsets = np.einsum("ti,ti->t", normals, triples[:, 0])
    sides = centres @ normals.T - offsets
    flip = np.where(np.median(sides, axis=0) < 0, -1.0, 1.0)
    normals, offsets, sides = normals * flip[:, None], offsets * flip, sides * flip
    good = (sides > 0).mean(axis=0) >= 0.97
    if up is not None:
        direction = np.asarray(up, np.float64) / np.linalg.norm(up)
        good &= normals @ direction > np.cos(np.radians(UP_ANGLE))
    if not good.any():
        return None
    normals, offsets = normals[good], offsets[good]
    heights = cloud @ normals.T - offsets
    on = (np.abs(heights) < tolerance).sum(axis=0)
    # Triangulation leaves some points anywhere, so a few below count against a plane, not veto it.
    score = on - (heights < -2 * tolerance).sum(axis=0)
    best = int(np.argmax(score))
    others = np.abs(normals @ normals[best]) < np.cos(np.radians(20))
    rival = float(score[others].max(initial=0)) / max(float(score[best]), 1.0)
    return normals[best], float(offsets[best]), max(rival, 0.0)


def _uncertainty(
    inliers: Array, normal: Array, offset: float, target: Array
) -> tuple[float, float]:
    """Standard deviations of the tilt, degrees, and of the plane's height below the target.

    Linear regression of height on two coordinates in the plane; the slope's variance is
    sigma^2 / sum(d^2) along each axis.
    """
    heights = inliers @ normal - offset
    middle = inliers.mean(axis=0)
    _, spread, axes = np.linalg.svd(inliers - middle, full_matrices=False)
    sigma = float(np.sqrt((heights**2).sum() / max(len(heights) - 3, 1)))
    slopes = sigma / spread[:2]
    lever = axes[:2] @ (target - middle)
    height = float(np.sqrt(sigma**2 / len(heights) + ((slopes * lever) ** 2).sum()))
    return float(np.degrees(slopes.max())), height


def world_from_plane(plane: TablePlane, target: Array) -> Array:
    """Transform (4, 4) from the points' world to the table's: z up, origin below ``target`` (3,).

    x is the projection of the world axis that lies flattest in the plane, so that equal inputs give
    equal axes.
    """
    z = plane.normal
    flattest = np.eye(3)[int(np.argmin(np.abs(z)))]
    x = flattest - z * (z @ flattest)
    x /= np.linalg.norm(x)
    rotation = np.stack([x, np.cross(z, x), z])
    foot = target - z * (z @ target - plane.offset)
    return se3.from_rotation_position(rotation, -rotation @ foot)
