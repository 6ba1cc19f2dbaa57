"""SIFT keypoints of the posed scan frames as 3-D object points, and poses found from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from twinloop.tracking.appearance import Reference, Window
from twinloop.tracking.solver import WorldCamera

Array = NDArray[np.float64]
Image = NDArray[np.uint8]


@dataclass(frozen=True)
class FeatureMap:
    """descriptors: (n, 128) float32 RootSIFT of unit length; points: (n, 3) m, object frame."""

    descriptors: NDArray[np.float32]
    points: Array


@dataclass(frozen=True)
class Localisation:
    """A pose found from the map.

    pose: (4, 4) T_world_object; inliers: matches that agree with it, of the `offered` ones.
    """

    pose: Array
    inliers: int
    offered: int


def root_sift(descriptors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Hellinger-normalised SIFT (Arandjelovic and Zisserman 2012): unit length, (n, 128)."""
    total = descriptors.sum(1, keepdims=True)
    return np.asarray(np.sqrt(descriptors / np.maximum(total, 1e-6)), np.float32)


def detect(
    image: Image, mask: Image | None, window: Window, limit: int
) -> tuple[Array, NDArray[np.float32]]:
    """SIFT pixels (n, 2) in the full image and RootSIFT (n, 128) inside `window`."""
    x0, y0, x1, y1 = window
    crop = np.ascontiguousarray(image[y0:y1, x0:x1])
    inside = None if mask is None else np.ascontiguousarray(mask[y0:y1, x0:x1])
    sift: Any = cv2
    keypoints, descriptors = sift.SIFT_create(
        nfeatures=limit, contrastThreshold=0.02
    ).detectAndCompute(crop, inside)
    if descriptors is None or len(keypoints) == 0:
        return np.zeros((0, 2)), np.zeros((0, 128), np.float32)
    pixels = np.array([k.pt for k in keypoints], np.float64) + np.array([x0, y0])
    return pixels, root_sift(np.asarray(descriptors, np.float32))


def build_map(references: list[Reference], per_view: int = 250) -> FeatureMap:
    """The map of all references: their SIFT keypoints lifted to the mesh by the rendered depth."""
    descriptors, points = [np.zeros((0, 128), np.float32)], [np.zeros((0, 3))]
    for r in references:
        solid = cv2.erode((r.depth > 0).astype(np.uint8), np.ones((5, 5), np.uint8))
        ys, xs = np.nonzero(solid)
        if len(ys) == 0:
            continue
        h, w = r.image.shape
        window = (
            max(int(xs.min()) - 16, 0),
            max(int(ys.min()) - 16, 0),
            min(int(xs.max()) + 17, w),
            min(int(ys.max()) + 17, h),
        )
        pixels, d = detect(r.image, solid * np.uint8(255), window, per_view)
        if len(pixels) == 0:
            continue
        x, y = pixels[:, 0].astype(np.float32), pixels[:, 1].astype(np.float32)
        z = np.ravel(cv2.remap(r.depth, x[:, None], y[:, None], cv2.INTER_NEAREST))
        near = z > 0
        fx, fy, cx, cy = r.intrinsics
        ray = np.stack([(x - cx) / fx, (y - cy) / fy, np.ones(len(x))], 1)[near] * z[near, None]
        T = r.T_camera_object
        points.append((ray - T[:3, 3]) @ T[:3, :3])
        descriptors.append(d[near])
    return FeatureMap(np.concatenate(descriptors), np.concatenate(points))


def match(
    features: FeatureMap, descriptors: NDArray[np.float32], apart: float, ratio: float = 0.8
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """(indices of descriptors, indices of map points) that pass the ratio test.

    The rival of a match is the best map point at least `apart` m away from it: the same place seen
    in several scan frames is no ambiguity.
    """
    none = np.zeros(0, np.intp)
    if len(descriptors) == 0 or len(features.points) < 2:
        return none, none
    similarity = descriptors @ features.descriptors.T
    k = min(8, similarity.shape[1])
    top = np.argpartition(-similarity, k - 1, axis=1)[:, :k]
    value = np.take_along_axis(similarity, top, 1)
    order = np.argsort(-value, axis=1, kind="stable")
    top, value = np.take_along_axis(top, order, 1), np.take_along_axis(value, order, 1)
    distance = np.sqrt(np.maximum(2 - 2 * value, 1e-9))
    where = features.points[top]
    other = np.linalg.norm(where - where[:, :1], axis=2) > apart
    rival = np.where(other, distance, np.maximum(distance[:, -1:], distance[:, :1])).min(1)
    # When the whole shortlist is one place the true rival is farther than its last entry.
    accepted = (distance[:, 0] < ratio * rival) | ((~other).all(1) & (distance[:, 0] < 0.6))
    i = np.flatnonzero(accepted & (distance[:, 0] < 0.9))
    return i, top[i, 0]


def localise(
    features: FeatureMap,
    image: Image,
    camera: WorldCamera,
    window: Window,
    diameter: float,
    *,
    minimum: int = 8,
    limit: int = 600,
    threshold: float = 3.0,
) -> Localisation | None:
    """Object pose from SIFT matches and PnP RANSAC; None when fewer than `minimum` agree.

    `diameter` (m) of the object sets how far apart two map points are different places, `threshold`
    px which matches agree.
    """
    pixels, descriptors = detect(image, None, window, limit)
    i, j = match(features, descriptors, 0.04 * diameter)
    if len(i) < minimum:
        return None
    points, seen = features.points[j], pixels[i]
    cv2.setRNGSeed(0)
    found, rvec, tvec, inliers = cv2.solvePnPRansac(
        points,
        seen,
        camera.matrix,
        None,
        iterationsCount=600,
        reprojectionError=threshold,
        confidence=0.999,
        flags=cv2.SOLVEPNP_SQPNP,
    )
    if not found or inliers is None or len(inliers) < minimum:
        return None
    k = np.ravel(inliers)
    rvec, tvec = cv2.solvePnPRefineLM(points[k], seen[k], camera.matrix, None, rvec, tvec)
    T = np.eye(4)
    T[:3, :3], T[:3, 3] = cv2.Rodrigues(rvec)[0], np.ravel(tvec)
    if T[2, 3] <= 0:
        return None
    return Localisation(np.linalg.inv(camera.T_camera_world) @ T, len(k), len(i))
