"""Where the object may be, from its mask or a box in one picture: no table, no looks needed."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from twinloop.errors import InputError
from twinloop.tracking.look import rotation_to, sphere
from twinloop.tracking.model import ObjectModel
from twinloop.tracking.solver import WorldCamera, project, rotation_exp
from twinloop.tracking.table_search import distinct

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

DIRECTIONS, ROLLS = 96, 24
"""Directions from which the object is tried, and turns about each."""
KEPT = 300
"""Of these, by their bounding boxes, outlines are compared."""
SIZE = 64
"""Pixels across the mask at which outlines are compared."""


def poses_in_mask(
    model: ObjectModel, camera: WorldCamera, mask: Mask, *, box: bool, most: int = 12
) -> list[Array]:
    """Poses (4, 4) whose outline fills `mask` (h, w), the best first.

    Each rotation of a grid is put where its convex hull's bounding box has the middle and the size
    of the mask's; of those whose boxes agree best, the hulls of outline and mask are compared. A
    `box` says nothing of the outline: bounding boxes alone are compared then.

    Raises:
        InputError: The mask is empty.
    """
    rows, columns = np.nonzero(mask)
    if len(rows) == 0:
        raise InputError("mask: is empty; expected the object's pixels in the first picture.")
    seen = np.array([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1], np.float64)
    candidates = []
    for direction in sphere(DIRECTIONS):
        facing = rotation_to(direction).T  # carries `direction` to the camera's axis
        for k in range(ROLLS):
            turn = rotation_exp(np.array([0.0, 0.0, 2 * np.pi * k / ROLLS])) @ facing
            candidates.append(_placed(model, camera, turn, seen))
    candidates.sort(key=lambda c: -c[0])
    if box:
        found = candidates[:KEPT]
    else:
        scale = SIZE / float(max(seen[2:] - seen[:2]))
        outline = _hull(np.stack([columns, rows], axis=1).astype(np.float64), seen, scale)
        found = []
        for _, pose in candidates[:KEPT]:
            pixels, _ = project(camera, pose, model.shape.hull)
            found.append((_overlap(_hull(pixels, seen, scale), outline), pose))
        found.sort(key=lambda f: -f[0])
    return [
        pose for _, pose in distinct(found[: KEPT // 3], 0.3 * model.shape.diameter, 0.3)[:most]
    ]


def _placed(
    model: ObjectModel, camera: WorldCamera, turn: Array, seen: Array
) -> tuple[float, Array]:
    """Agreement of bounding boxes in [0, 1], and T_world_object of the object turned by `turn`.

    turn: (3, 3) object to camera; seen: (4,) x0, y0, x1, y1 px.
    """
    fx, fy, cx, cy = camera.intrinsics
    points = model.shape.hull @ turn.T
    middle = 0.5 * (points.min(0) + points.max(0))
    size = np.ptp(points, axis=0)
    target = seen[2:] - seen[:2]
    depth = float(np.hypot(fx * size[0], fy * size[1]) / np.hypot(*target)) + 0.5 * size[2]
    T_world_camera = np.linalg.inv(camera.T_camera_world)
    T, centre = np.eye(4), 0.5 * (seen[:2] + seen[2:])
    aim, low, high = centre.copy(), seen[:2], seen[2:]
    for _ in range(3):  # perspective moves the box's middle and changes its size a little
        ray = np.array([(aim[0] - cx) / fx, (aim[1] - cy) / fy, 1.0])
        T[:3, :3], T[:3, 3] = turn, ray * depth - middle
        p = points - middle + ray * depth
        if p[:, 2].min() < 1e-3:
            return 0.0, np.asarray(T_world_camera @ T)
        u = np.stack([fx * p[:, 0] / p[:, 2] + cx, fy * p[:, 1] / p[:, 2] + cy], axis=1)
        low, high = u.min(0), u.max(0)
        depth *= float(np.hypot(*(high - low)) / np.hypot(*target))
        aim += centre - 0.5 * (low + high)
    inner = np.minimum(high, seen[2:]) - np.maximum(low, seen[:2])
    common = float(np.prod(np.maximum(inner, 0.0)))
    both = float(np.prod(high - low) + np.prod(target)) - common
    return common / both, np.asarray(T_world_camera @ T)


def _hull(pixels: Array, seen: Array, scale: float) -> NDArray[np.uint8]:
    """Filled convex hull of pixels (n, 2), in the box `seen` and around it, at `scale`."""
    side = 2 * SIZE
    points = (pixels - 0.5 * (seen[:2] + seen[2:])) * scale + 0.5 * side
    out = np.zeros((side, side), np.uint8)
    corners = np.clip(points, -side, 2 * side).astype(np.float32)
    cv2.fillConvexPoly(out, np.rint(cv2.convexHull(corners)).astype(np.int32), 1)
    return out


def _overlap(first: NDArray[np.uint8], second: NDArray[np.uint8]) -> float:
    """Intersection over union of two drawings."""
    union = int((first | second).sum())
    return int((first & second).sum()) / union if union else 0.0
