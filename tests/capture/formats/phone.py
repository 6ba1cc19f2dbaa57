"""A phone that looks at one bright point: poses, pictures and depth by ARKit's own formulas.

Independent of the readers: OpenGL axes, pixels from the corner of the first one, and no matrix of
the library.
"""

from __future__ import annotations

import cv2
import numpy as np
import pytest

POINT = np.array([0.12, 0.31, -0.9])
"""The bright point in ARKit's world, y up, m."""
LENS = (90.0, 91.0, 49.0, 34.5)
"""fx, fy, cx, cy, px from the corner of the first pixel."""
SIZE = (96, 72)
"""Columns and rows, px."""
DEPTH_SIZE = (32, 24)
"""Columns and rows of depth, px."""


def pose(i: int, roll: float = 0.0) -> np.ndarray:
    """Camera to world (4, 4) with OpenGL's axes: x right, y up, z backward."""
    eye = POINT + [0.5 * np.sin(0.2 * i), 0.2 + 0.02 * i, 0.5 * np.cos(0.2 * i)]
    aim = POINT + [0.02 * i - 0.03, 0.03, 0.01]
    z = (eye - aim) / np.linalg.norm(eye - aim)
    x = np.cross([0.0, 1.0, 0.0], z)
    x /= np.linalg.norm(x)
    y = np.cross(z, x)
    T = np.eye(4)
    c, s = np.cos(roll), np.sin(roll)
    T[:3, :3] = np.stack([c * x + s * y, -s * x + c * y, z], axis=1)
    T[:3, 3] = eye
    return T


def seen(T: np.ndarray, lens=LENS) -> tuple[float, float, float]:
    """Column and row of the point from the corner of the first pixel, px, and its depth, m."""
    p = np.linalg.inv(T) @ [*POINT, 1.0]
    fx, fy, cx, cy = lens
    return cx + fx * p[0] / -p[2], cy - fy * p[1] / -p[2], -p[2]


def picture(T: np.ndarray, lens=LENS, size=SIZE) -> np.ndarray:
    """Picture (rows, columns, 3) with a soft spot where the point is."""
    u, v, _ = seen(T, lens)
    row, column = np.indices(size[::-1])
    spot = np.exp(-((column + 0.5 - u) ** 2 + (row + 0.5 - v) ** 2) / (2 * 3.0**2))
    return np.repeat((20 + 220 * spot)[..., None], 3, axis=2).round().astype(np.uint8)


def depth_mm(T: np.ndarray) -> np.ndarray:
    """Depth (rows, columns) mm: everywhere that of the point."""
    return np.full(DEPTH_SIZE[::-1], round(1000 * seen(T)[2]), np.uint16)


def spot(image: np.ndarray) -> np.ndarray:
    """Centre of the spot (2,) px from the centre of the first pixel."""
    weight = np.clip(image[..., 0].astype(float) - 40, 0, None)
    row, column = np.indices(weight.shape)
    return np.array([(weight * column).sum(), (weight * row).sum()]) / weight.sum()


def xyzw(T: np.ndarray) -> list[float]:
    """Quaternion x, y, z, w of a pose, by the rotation's axis and angle."""
    turn, _ = cv2.Rodrigues(T[:3, :3])
    angle = float(np.linalg.norm(turn))
    axis = turn[:, 0] / angle if angle else np.zeros(3)
    return [*(axis * np.sin(angle / 2)), np.cos(angle / 2)]


def check_geometry(capture, tolerance=0.12) -> int:
    """Assert that every posed picture shows the point where its lens and pose say; count them."""
    count = 0
    for image in capture.pictures.read():
        T = capture.T_world_camera[image.index]
        if np.isnan(T).any():
            continue
        camera = capture.cameras[image.index]
        local = T[:3, :3].T @ (POINT - T[:3, 3])
        assert local[2] > 0
        np.testing.assert_allclose(
            camera.project(local[None])[0], spot(image.image), atol=tolerance
        )
        assert (camera.width, camera.height) == image.image.shape[1::-1]
        if capture.depth is not None and (depth := capture.depth(image.index)) is not None:
            assert np.nanmedian(depth) == pytest.approx(local[2], abs=6e-4)
        count += 1
    return count
