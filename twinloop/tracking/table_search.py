"""Search over the table for an object of known looks or outline, at a coarse scale."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from twinloop.tracking.appearance import synthesise
from twinloop.tracking.colours import LARGEST, ColourModel, bins
from twinloop.tracking.frame import CameraFrame
from twinloop.tracking.images import shrink_image
from twinloop.tracking.model import ObjectModel
from twinloop.tracking.resting import Rest
from twinloop.tracking.solver import WorldCamera, project

Array = NDArray[np.float64]
Image = NDArray[np.uint8]


def expected_size(model: ObjectModel, camera: WorldCamera) -> float:
    """Pixels across the object where the camera's axis meets the table (else 1 m away)."""
    axis = camera.T_camera_world[2, :3]
    eye = np.linalg.inv(camera.T_camera_world)[:3, 3]
    distance = float(-eye[2] / axis[2]) if axis[2] < -1e-3 else 1.0
    return float(camera.intrinsics[0] * model.shape.diameter / max(distance, 0.05))


def table_points(
    camera: WorldCamera, height: float, spacing: float, reach: float, centre: Array | None = None
) -> Array:
    """Points (n, 3) m on a grid at `height` that lie in the image, within `reach` of a `centre`.

    The centre (2,) m is by default what the middle of the image shows.
    """
    if centre is None:
        T = np.linalg.inv(camera.T_camera_world)
        fx, fy, cx, cy = camera.intrinsics
        middle = np.array([(camera.width / 2 - cx) / fx, (camera.height / 2 - cy) / fy, 1.0])
        ray = T[:3, :3] @ middle
        if ray[2] > -1e-3:
            return np.zeros((0, 3))
        centre = (T[:3, 3] + ray * (height - T[2, 3]) / ray[2])[:2]
    steps = np.arange(-reach, reach + 1e-9, spacing)
    steps = steps + 0.5 * (reach - steps[-1])
    x, y = np.meshgrid(steps, steps, indexing="ij")
    points = np.stack([centre[0] + x.ravel(), centre[1] + y.ravel(), np.full(x.size, height)], 1)
    pixels, depth = project(camera, np.eye(4), points)
    margin = 0.02 * camera.width
    inside = (pixels > -margin).all(1) & (
        pixels < [camera.width + margin, camera.height + margin]
    ).all(1)
    return np.asarray(points[inside & (depth > 0.05)])


def search_looks(
    model: ObjectModel,
    camera: WorldCamera,
    image: Image,
    *,
    size: float = 64.0,
    yaws: int = 36,
    reach: float = 0.3,
) -> list[tuple[float, Array]]:
    """(score, pose) by falling score: the scan's looks matched over the table, every yaw.

    At a scale at which the object is about `size` px large, templates are made on a grid of table
    points and yaws and slid around (masked normalised cross-correlation); peaks go back to the
    table through their pixel.
    """
    factor = int(np.clip(expected_size(model, camera) / size, 1, 8))
    small_image, intrinsics = shrink_image(image, camera.intrinsics, factor)
    h, w = small_image.shape
    small_camera = WorldCamera(intrinsics, camera.T_camera_world, w, h)
    references = model.shrunk(factor)
    rest = model.rests[0]
    spacing = 0.8 * model.shape.diameter
    found: list[tuple[float, Array]] = []
    eye = np.linalg.inv(camera.T_camera_world)
    for point in table_points(small_camera, model.rest_height, spacing, reach):
        for k in range(yaws):
            pose = rest.pose(point[0], point[1], 2 * np.pi * k / yaws)
            view = model.shape.view(small_camera, pose, margin=1)
            if view is None:
                continue
            grey, valid = synthesise(
                references, small_camera, pose, view, tolerance=0.06 * model.shape.diameter, count=2
            )
            if valid.sum() < 25:
                continue
            x0, y0, x1, y1 = view.window
            pad = int(
                0.6 * spacing * small_camera.intrinsics[0] / max(_depth(small_camera, point), 0.05)
            )
            a, b = max(x0 - pad, 0), max(y0 - pad, 0)
            area = small_image[
                b : min(y1 + pad, small_camera.height), a : min(x1 + pad, small_camera.width)
            ]
            if area.shape[0] < y1 - y0 or area.shape[1] < x1 - x0 or grey[valid].std() < 3:
                continue
            result = cv2.matchTemplate(
                area, grey, cv2.TM_CCOEFF_NORMED, mask=valid.astype(np.uint8)
            )
            result = np.where(np.isfinite(result), result, -1.0)
            row, column = np.unravel_index(int(np.argmax(result)), result.shape)
            shift = np.array([a + column - x0, b + row - y0], np.float64)
            pixel = project(small_camera, np.eye(4), point[None])[0][0] + shift
            fx, fy, cx, cy = small_camera.intrinsics
            ray = eye[:3, :3] @ np.array([(pixel[0] - cx) / fx, (pixel[1] - cy) / fy, 1.0])
            where = eye[:3, 3] + ray * (model.rest_height - eye[2, 3]) / ray[2]
            found.append(
                (
                    float(result[row, column]),
                    rest.pose(where[0], where[1], 2 * np.pi * k / yaws),
                )
            )
    found.sort(key=lambda f: -f[0])
    return distinct(found[:60], 0.15 * model.shape.diameter, 0.2)


def search_outline(
    model: ObjectModel,
    frame: CameraFrame,
    colours: ColourModel | None,
    mask: NDArray[np.bool_] | None,
    *,
    rests: Sequence[Rest],
    size: float = 40.0,
    yaws: int = 24,
    reach: float = 0.3,
    centre: Array | None = None,
) -> list[tuple[float, Array]]:
    """(score, pose) by falling score: silhouettes at every yaw over the table.

    The ways to stand of `rests` are tried, within `reach` m of `centre` (2,) m, by default of what
    the middle of the image shows. The score is the mean log odds inside the
    silhouette less that in a ring around it, from `colours`, or from `mask` (h, w) bool where the
    object is known to be; without either, nothing.
    """
    camera = frame.camera
    if mask is not None:
        odds = np.where(mask, LARGEST, -LARGEST).astype(np.float32)
    elif colours is not None:
        odds = cv2.blur(colours.table[bins(frame.rgb)], (3, 3))
        if frame.ignore is not None:
            odds[frame.ignore] = 0.0
    else:
        return []
    factor = int(np.clip(expected_size(model, camera) / size, 1, 8))
    h, w = odds.shape[0] // factor, odds.shape[1] // factor
    small = cv2.resize(odds[: h * factor, : w * factor], (w, h), interpolation=cv2.INTER_AREA)
    half = np.array([0.0, 0.0, 1.0, 1.0]) * (0.5 - 0.5 / factor)
    coarse = WorldCamera(camera.intrinsics / factor - half, camera.T_camera_world, w, h)
    found: list[tuple[float, Array]] = []
    eye = np.linalg.inv(camera.T_camera_world)
    fx, fy, cx, cy = coarse.intrinsics
    spacing = 0.8 * model.shape.diameter
    for rest in rests:
        for point in table_points(coarse, rest.height, spacing, reach, centre):
            for k in range(yaws):
                yaw = 2 * np.pi * k / yaws
                pose = rest.pose(point[0], point[1], yaw)
                view = model.shape.view(coarse, pose, margin=6)
                if view is None:
                    continue
                kernel, inside = silhouette_kernel(view.mask)
                if inside < 20:
                    continue
                x0, y0, x1, y1 = view.window
                pad = int(0.6 * spacing * fx / max(_depth(coarse, point), 0.05))
                a, b = max(x0 - pad, 0), max(y0 - pad, 0)
                area = small[b : min(y1 + pad, h), a : min(x1 + pad, w)]
                if area.shape[0] < kernel.shape[0] or area.shape[1] < kernel.shape[1]:
                    continue
                result = cv2.matchTemplate(area, kernel, cv2.TM_CCORR)
                row, column = np.unravel_index(int(np.argmax(result)), result.shape)
                shift = np.array([a + column - x0, b + row - y0], np.float64)
                pixel = project(coarse, np.eye(4), point[None])[0][0] + shift
                ray = eye[:3, :3] @ np.array([(pixel[0] - cx) / fx, (pixel[1] - cy) / fy, 1.0])
                where = eye[:3, 3] + ray * (rest.height - eye[2, 3]) / ray[2]
                # Larger silhouettes explain more of the image: all else alike, they win.
                score = float(result[row, column]) * np.sqrt(inside) / size
                found.append((score, rest.pose(where[0], where[1], yaw)))
    found.sort(key=lambda f: -f[0])
    return distinct(found[:120], 0.15 * model.shape.diameter, 0.2)


def silhouette_kernel(mask: NDArray[np.bool_]) -> tuple[NDArray[np.float32], int]:
    """Weights (h, w) that add to 1 inside the silhouette, to -1 in a ring around; its size."""
    inner = mask.astype(np.uint8)
    ring = (cv2.dilate(inner, np.ones((9, 9), np.uint8)) > 0) & ~mask
    inside = int(mask.sum())
    if inside == 0 or not ring.any():
        return mask.astype(np.float32), 0
    return (mask / np.float32(inside) - ring / np.float32(ring.sum())).astype(np.float32), inside


def _depth(camera: WorldCamera, point: Array) -> float:
    """Depth of a world point (3,) in the camera, m."""
    return float((camera.T_camera_world[:3, :3] @ point + camera.T_camera_world[:3, 3])[2])


def distinct(
    found: list[tuple[float, Array]], distance: float, angle: float
) -> list[tuple[float, Array]]:
    """The candidates of which no better one is within `distance` m and `angle` rad."""
    kept: list[tuple[float, Array]] = []
    for score, pose in found:
        near = False
        for _, other in kept:
            cosine = (np.trace(pose[:3, :3].T @ other[:3, :3]) - 1) / 2
            near |= bool(
                np.linalg.norm(pose[:3, 3] - other[:3, 3]) < distance
                and np.arccos(np.clip(cosine, -1, 1)) < angle
            )
        if not near:
            kept.append((score, pose))
    return kept
