"""Points on what is seen, from pictures whose lens and poses are known already."""

from __future__ import annotations

import itertools

import cv2
import numpy as np
from numpy.typing import NDArray

from twinloop.capture.hull import project_all
from twinloop.geometry import se3
from twinloop.geometry.camera import matrix

Array = NDArray[np.float64]
Images = NDArray[np.uint8]

RATIO = 0.8
"""Lowe's bound on the distance to the best match relative to the second ("Distinctive image
features from scale-invariant keypoints", IJCV 2004)."""
WORST = 1.0
"""Largest reprojection error of a point, px."""
LEAST_ANGLE = np.radians(2.0)
"""Least angle between a point's two rays."""


def sparse_points(
    images: Images,
    intrinsics: Array,
    T_world_camera: Array,
    *,
    features: int = 2000,
    reach: int = 2,
) -> Array:
    """Match SIFT features between neighbouring views and triangulate them.

    Args:
        images: Undistorted RGB (frame, y, x, 3), in the order they were taken.
        intrinsics: fx, fy, cx, cy (frame, 4), px.
        T_world_camera: (frame, 4, 4).
        features: Most features of a picture.
        reach: Following views that each is matched with.

    Returns:
        Points (m, 3), m; one for each pair of views that sees it.
    """
    sift = cv2.SIFT.create(features, contrastThreshold=0.01)
    found = [sift.detectAndCompute(cv2.cvtColor(i, cv2.COLOR_RGB2GRAY), None) for i in images]
    T = se3.inverse(T_world_camera)
    points = [np.zeros((0, 3))]
    for i, j in itertools.combinations(range(len(found)), 2):
        if j - i > reach or found[i][1] is None or found[j][1] is None:
            continue
        (first, a), (second, b) = found[i], found[j]
        pairs = [p for p in cv2.BFMatcher().knnMatch(a, b, k=2) if len(p) == 2]
        kept = [p[0] for p in pairs if p[0].distance < RATIO * p[1].distance]
        if not kept:
            continue
        u = np.array([first[m.queryIdx].pt for m in kept])
        v = np.array([second[m.trainIdx].pt for m in kept])
        P, Q = (matrix(intrinsics[n]) @ T[n][:3] for n in (i, j))
        X = cv2.triangulatePoints(P, Q, u.T, v.T)
        with np.errstate(divide="ignore", invalid="ignore"):
            X = np.asarray((X[:3] / X[3]).T, np.float64)
        X, u, v = (values[np.isfinite(X).all(axis=1)] for values in (X, u, v))
        good = np.ones(len(X), bool)
        rays = []
        for n, seen in ((i, u), (j, v)):
            pixels, depth = project_all(X, intrinsics[n], T[n])
            good &= (depth > 0) & (np.linalg.norm(pixels - seen, axis=1) < WORST)
            ray = X - T_world_camera[n, :3, 3]
            rays.append(ray / np.linalg.norm(ray, axis=1, keepdims=True))
        points.append(X[good & ((rays[0] * rays[1]).sum(axis=1) < np.cos(LEAST_ANGLE))])
    return np.concatenate(points)
