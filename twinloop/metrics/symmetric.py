"""Pose errors of objects that look the same in several poses: ADD-S, MSSD and MSPD.

Equal to bop_toolkit's `adi`, `mssd` and `mspd` to rounding.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import ConvexHull, QhullError, cKDTree

from twinloop.geometry import camera, se3

Array = NDArray[np.float64]


def nearest_distance(estimate: Array, truth: Array, points: Array) -> Array:
    """ADD-S (ADI): mean distance from each true point to the nearest estimated one.

    Source: Hinterstoisser et al., ACCV 2012; the neighbours are looked up in the
    object's frame, where distances are the same and one tree serves all frames.

    Args:
        estimate: (..., 4, 4) estimated `T_world_object`.
        truth: (..., 4, 4) true `T_world_object`.
        points: (p, 3) points of the object in its frame, m; p > 0.

    Returns:
        (...,) m.
    """
    tree = cKDTree(points)
    between = se3.inverse(estimate) @ truth
    flat = between.reshape(-1, 4, 4)
    found = [np.mean(tree.query(se3.apply(T, points))[0]) for T in flat]
    return np.array(found).reshape(between.shape[:-2])


def surface_distance(estimate: Array, truth: Array, points: Array, symmetries: Array) -> Array:
    """MSSD: the largest distance of a point, under the symmetry that makes it smallest.

    Source: Hodan et al., "BOP Challenge 2020", ECCVW 2020. A distance between two
    affine images of a point is convex in it, so the largest is at a corner of the convex hull.

    Args:
        estimate: (..., 4, 4) estimated `T_world_object`.
        truth: (..., 4, 4) true `T_world_object`.
        points: (p, 3) points of the object in its frame, m.
        symmetries: (s, 4, 4) transforms of the object onto itself, the identity among them
            (`Symmetry.transforms`).

    Returns:
        (...,) m.
    """
    corners = _corners(points)
    between = se3.inverse(estimate) @ truth
    found = []
    for T in between.reshape(-1, 4, 4):
        change = T @ symmetries - np.eye(4)
        moved = corners @ np.swapaxes(change[:, :3, :3], 1, 2) + change[:, None, :3, 3]
        found.append(np.sqrt((moved**2).sum(axis=2).max(axis=1).min()))
    return np.array(found).reshape(between.shape[:-2])


def projection_distance(
    estimate: Array, truth: Array, points: Array, symmetries: Array, intrinsics: Array
) -> Array:
    """MSPD: the largest distance of a point's pixels, under the symmetry that makes it smallest.

    Source: Hodan et al., "BOP Challenge 2020", ECCVW 2020.

    Args:
        estimate: (..., 4, 4) estimated `T_camera_object` (OpenCV axes).
        truth: (..., 4, 4) true `T_camera_object`.
        points: (p, 3) points of the object in its frame, m.
        symmetries: (s, 4, 4) as for `surface_distance`.
        intrinsics: fx, fy, cx, cy, px.

    Returns:
        (...,) px.
    """
    shape = np.broadcast_shapes(estimate.shape, truth.shape)
    pairs = zip(
        np.broadcast_to(estimate, shape).reshape(-1, 4, 4),
        np.broadcast_to(truth, shape).reshape(-1, 4, 4),
        strict=True,
    )
    found = []
    for ours, theirs in pairs:
        seen = camera.project(se3.apply(ours, points), intrinsics)
        true = camera.project(se3.apply(theirs @ symmetries, points), intrinsics)
        found.append(np.sqrt(((seen - true) ** 2).sum(axis=2).max(axis=1).min()))
    return np.array(found).reshape(shape[:-2])


def _corners(points: Array) -> Array:
    """Those of points (p, 3) that are corners of their convex hull; all, where it is flat."""
    if len(points) < 16:
        return points
    try:
        return points[ConvexHull(points).vertices]
    except QhullError:
        return points
