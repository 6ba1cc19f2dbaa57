"""Where the object stands at the start of a clip, with no help from a user.

The object rests on the table as it did in the scan, so that only x, y and yaw are unknown. First
the SIFT map over the mean of the resting frames; failing that, a search over the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from twinloop.tracking.appearance import Reference, synthesise
from twinloop.tracking.feature_map import localise
from twinloop.tracking.fit import Fit, fit_pose
from twinloop.tracking.measure import NOTHING
from twinloop.tracking.model import ObjectModel, shrink_image
from twinloop.tracking.solver import RestPrior, Solution, WorldCamera, project, rotation_exp

Array = NDArray[np.float64]
Image = NDArray[np.uint8]


@dataclass(frozen=True)
class Start:
    """The resting pose of a clip.

    `sure` is False when another yaw fits nearly as well; `method` is "sift", "hint" or "search";
    `resting` says whether the object stands as in the scan, so that the prior was used.
    """

    solution: Solution
    sure: bool
    method: str
    resting: bool


def rest_prior(model: ObjectModel, sigma_height: float, sigma_tilt: float) -> RestPrior:
    """The prior that the object stands as in the scan."""
    return RestPrior(model.up, model.rest_height, sigma_height, sigma_tilt)


def resting_pose(model: ObjectModel, x: float, y: float, yaw: float) -> Array:
    """T_world_object of the object resting as in the scan, turned by yaw (rad), at x, y (m)."""
    pose = np.eye(4)
    pose[:3, :3] = rotation_exp(np.array([0.0, 0.0, yaw])) @ model.rest_rotation
    pose[:3, 3] = [x, y, model.rest_height]
    return pose


def turn_about_z(pose: Array, angle: float) -> Array:
    """The pose turned by `angle` rad about the world's z axis through the object's origin."""
    out = pose.copy()
    out[:3, :3] = rotation_exp(np.array([0.0, 0.0, angle])) @ pose[:3, :3]
    return out


def is_resting(model: ObjectModel, pose: Array, tilt: float, height: float) -> bool:
    """Whether a pose is within `tilt` rad and `height` m of standing as in the scan."""
    up = pose[:3, :3] @ model.up
    return bool(
        np.arccos(np.clip(up[2], -1, 1)) < tilt and abs(pose[2, 3] - model.rest_height) < height
    )


def appearance_score(
    model: ObjectModel, camera: WorldCamera, image: Image, pose: Array, references: list[Reference]
) -> float:
    """Correlation in [-1, 1] of the object as in the scan with the image, -1 when out of view."""
    view = model.shape.view(camera, pose, margin=2)
    if view is None:
        return -1.0
    grey, valid = synthesise(
        references, camera, pose, view, tolerance=0.03 * model.shape.diameter, count=2
    )
    if valid.sum() < 30:
        return -1.0
    x0, y0, x1, y1 = view.window
    a = grey[valid].astype(np.float64)
    b = image[y0:y1, x0:x1][valid].astype(np.float64)
    if a.std() < 2 or b.std() < 2:
        return 0.0
    return float(np.corrcoef(a, b)[0, 1])


def shrink(camera: WorldCamera, image: Image, factor: int) -> tuple[WorldCamera, Image]:
    """Camera and image at 1/factor of their size (area averages)."""
    small, intrinsics = shrink_image(image, camera.intrinsics, factor)
    h, w = small.shape
    return WorldCamera(intrinsics, camera.T_camera_world, w, h), small


def expected_size(model: ObjectModel, camera: WorldCamera) -> float:
    """Pixels across the object where the camera's axis meets the table (else 1 m away)."""
    axis = camera.T_camera_world[2, :3]
    eye = np.linalg.inv(camera.T_camera_world)[:3, 3]
    distance = float(-eye[2] / axis[2]) if axis[2] < -1e-3 else 1.0
    return float(camera.intrinsics[0] * model.shape.diameter / max(distance, 0.05))


def table_points(camera: WorldCamera, height: float, spacing: float, reach: float) -> Array:
    """Points (n, 3) m on a grid at `height` that lie in the image, within `reach` of its centre."""
    T = np.linalg.inv(camera.T_camera_world)
    fx, fy, cx, cy = camera.intrinsics
    ray = T[:3, :3] @ np.array([(camera.width / 2 - cx) / fx, (camera.height / 2 - cy) / fy, 1.0])
    if ray[2] > -1e-3:
        return np.zeros((0, 3))
    centre = T[:3, 3] + ray * (height - T[2, 3]) / ray[2]
    steps = np.arange(-reach, reach + 1e-9, spacing)
    x, y = np.meshgrid(steps, steps, indexing="ij")
    points = np.stack([centre[0] + x.ravel(), centre[1] + y.ravel(), np.full(x.size, height)], 1)
    pixels, depth = project(camera, np.eye(4), points)
    margin = 0.02 * camera.width
    inside = (pixels > -margin).all(1) & (
        pixels < [camera.width + margin, camera.height + margin]
    ).all(1)
    return np.asarray(points[inside & (depth > 0.05)])


def search_table(
    model: ObjectModel,
    camera: WorldCamera,
    image: Image,
    *,
    size: float = 32.0,
    yaws: int = 18,
    reach: float = 0.3,
) -> list[tuple[float, Array]]:
    """(score, pose) by falling score: the scan's looks matched over the table, every yaw.

    At a scale at which the object is about `size` px large, templates are made on a grid of table
    points and yaws and slid around (masked normalised cross-correlation); peaks go back to the
    table through their pixel.
    """
    factor = int(np.clip(expected_size(model, camera) / size, 1, 8))
    small_camera, small_image = shrink(camera, image, factor)
    references = model.shrunk(factor)
    spacing = 0.8 * model.shape.diameter
    found: list[tuple[float, Array]] = []
    eye = np.linalg.inv(camera.T_camera_world)
    for point in table_points(small_camera, model.rest_height, spacing, reach):
        for k in range(yaws):
            pose = resting_pose(model, point[0], point[1], 2 * np.pi * k / yaws)
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
                    resting_pose(model, where[0], where[1], 2 * np.pi * k / yaws),
                )
            )
    found.sort(key=lambda f: -f[0])
    return distinct(found[:60], 0.15 * model.shape.diameter, 0.2)


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


def has_rival(
    model: ObjectModel,
    camera: WorldCamera,
    image: Image,
    best: Fit,
    features: int,
    sigma: float,
) -> bool:
    """Whether another yaw at the same place explains the image about as well as the best fit.

    Yaws in steps of 30 deg are scored; those that look at all alike are fitted. A rival has most of
    the best fit's inliers and does not turn back to its pose.
    """
    assert best.solution is not None
    pose = best.solution.pose
    small_camera, small_image = shrink(camera, image, 2)
    scored = []
    for k in range(1, 12):
        other = turn_about_z(pose, k * np.pi / 6)
        score = appearance_score(model, small_camera, small_image, other, model.shrunk(2))
        scored.append((score, k, other))
    scored.sort(key=lambda s: -s[0])
    for score, _, other in scored[:3]:
        if score < 0.35:
            break
        fit, _ = refine(model, camera, image, other, features, sigma)
        if fit.solution is None or fit.inliers < 0.5 * best.inliers:
            continue
        cosine = (np.trace(fit.solution.pose[:3, :3].T @ pose[:3, :3]) - 1) / 2
        if np.arccos(np.clip(cosine, -1, 1)) > 0.25:
            return True
    return False


@dataclass(frozen=True)
class Candidate:
    """A possible start: how it was found, its fit, whether it rests as in the scan, its score."""

    method: str
    fit: Fit
    resting: bool
    score: float


def find_start(
    model: ObjectModel,
    camera: WorldCamera,
    image: Image,
    *,
    features: int,
    sigma: float,
    minimum_inliers: int,
    search: bool = True,
    hints: Sequence[Array] = (),
) -> Start | None:
    """The resting pose in `image` (h, w), the mean of the frames before anything moves, or None.

    `features` points at most are measured, each with `sigma` px. `hints` are poses (4, 4) worth a
    try, such as the starts of other clips; they are judged like all others. The table is searched
    only when neither the feature map nor a hint gives a sure pose.
    """
    half_camera, half_image = shrink(camera, image, 2)
    references = model.shrunk(2)
    candidates: list[Candidate] = []

    def consider(method: str, pose: Array) -> None:
        fit, resting = refine(model, camera, image, pose, features, sigma)
        if fit.solution is not None and fit.inliers >= minimum_inliers:
            pose = fit.solution.pose
            score = appearance_score(model, half_camera, half_image, pose, references)
            candidates.append(Candidate(method, fit, resting, score))

    def good() -> bool:
        return any(c.score > 0.6 and c.fit.inliers >= 2 * minimum_inliers for c in candidates)

    window = (0, 0, camera.width, camera.height)
    found = localise(model.features, image, camera, window, model.shape.diameter)
    if found is not None:
        consider("sift", found.pose)
    if not good():
        # Between pushes an object is mostly put back near its place, turned by quarter turns.
        turned = [turn_about_z(h, k * np.pi / 2) for h in hints for k in range(4)]
        scored = [
            (appearance_score(model, half_camera, half_image, p, references), i)
            for i, p in enumerate(turned)
        ]
        for score, i in sorted(scored, reverse=True)[:3]:
            if score > 0.15 and not good():
                consider("hint", turned[i])
    if search and not good():
        for score, pose in search_table(model, camera, image)[:4]:
            if score > 0.4:
                consider("search", pose)
    if not candidates:
        return None
    best = max(candidates, key=lambda c: c.score)
    assert best.fit.solution is not None
    sure = best.score > 0.5 and best.fit.inliers >= 2 * minimum_inliers
    sure = sure and not has_rival(model, camera, image, best.fit, features, sigma)
    return Start(best.fit.solution, sure, best.method, best.resting)


def refine(
    model: ObjectModel, camera: WorldCamera, image: Image, pose: Array, features: int, sigma: float
) -> tuple[Fit, bool]:
    """The fit from a first guess, with the resting prior where the guess stands upright."""
    resting = is_resting(model, pose, tilt=0.2, height=0.15 * model.shape.diameter)
    rest = rest_prior(model, 0.001, 0.006) if resting else None
    fit = Fit(None, NOTHING)
    for round_trip in (3.0, 1.5, 1.0, 1.0):
        fit = fit_pose(
            model,
            camera,
            image,
            pose,
            [(model.references, sigma)],
            features=features,
            rest=rest,
            round_trip=round_trip,
        )
        if fit.solution is None:
            break
        pose = fit.solution.pose
    return fit, resting
