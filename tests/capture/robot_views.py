"""A robot that looks at a board, or shows one to a camera, with exact truth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from twinloop.capture.calibrate import View
from twinloop.capture.projection import Camera
from twinloop.geometry import se3
from twinloop.geometry.camera import look_at

CAMERA = Camera(
    np.array([620.0, 621.0, 322.0, 238.0]), np.array([0.05, -0.1, 0.0005, -0.0004, 0.0]), 640, 480
)


@dataclass(frozen=True)
class RobotViews:
    """What the robot and the camera report, and the truth."""

    T_base_flange: np.ndarray
    """As the robot reports them (n, 4, 4)."""
    views: list[View]
    T_mount_camera: np.ndarray
    T_target_board: np.ndarray


def turned(degrees: np.ndarray) -> np.ndarray:
    """Pure rotation (4, 4) of a rotation vector in degrees."""
    return se3.exp(np.r_[np.zeros(3), np.radians(degrees)])


def robot_views(
    seed: int,
    count: int = 15,
    *,
    eye_in_hand: bool = True,
    pixel_std: float = 0.3,
    robot_std: tuple[float, float] = (3e-4, np.radians(0.03)),
    axes: int = 3,
) -> RobotViews:
    """Views of a 6 x 4 grid of points 30 mm apart from 0.45 to 0.75 m, tilted by 25 deg (1 sigma).

    ``robot_std``: m and rad per axis by which a reported pose is off; ``axes``: 1 for turns about
    the camera's x axis only.
    """
    rng = np.random.default_rng([seed, 77])
    grid = np.stack(np.meshgrid(np.arange(6), np.arange(4), indexing="ij"), -1).reshape(-1, 2)
    points = np.column_stack([(grid - [2.5, 1.5]) * 0.03, np.zeros(24)])
    if eye_in_hand:
        T_mount_camera = se3.exp(np.r_[0.03, -0.05, 0.08, rng.normal(0, 0.2, 3)])
        T_target_board = turned(rng.normal(0, 5, 3))
        T_target_board[:3, 3] = [0.5, 0.1, 0.02]
    else:
        T_mount_camera = look_at(np.array([0.9, -0.5, 0.6]), np.array([0.45, 0.0, 0.3]))
        T_mount_camera = T_mount_camera @ turned(rng.normal(0, 5, 3))
        T_target_board = se3.exp(np.r_[0.02, 0.01, 0.05, rng.normal(0, 0.3, 3)])
    poses, views = [], []
    while len(views) < count:
        tilt = rng.normal(0, 25, 3) * (np.arange(3) < axes)
        # Board seen from its front: x right, y up the page turns into y down.
        T_camera_board = turned(tilt) @ np.diag([1.0, -1.0, -1.0, 1.0])
        T_camera_board[:3, 3] = [*rng.uniform(-0.1, 0.1, 2), rng.uniform(0.45, 0.75)]
        seen = se3.apply(T_camera_board, points)
        if T_camera_board[2, 2] > -0.4 or seen[:, 2].min() < 0.2:
            continue
        pixels = CAMERA.project(seen)
        if (pixels < 5).any() or (pixels > [634, 474]).any():
            continue
        C = T_camera_board
        if eye_in_hand:
            T = T_target_board @ se3.inverse(C) @ se3.inverse(T_mount_camera)
        else:
            T = T_mount_camera @ C @ se3.inverse(T_target_board)
        off = np.r_[rng.normal(0, robot_std[0], 3), rng.normal(0, robot_std[1], 3)]
        poses.append(T @ se3.exp(off))
        views.append(View(len(views), points, pixels + rng.normal(0, pixel_std, pixels.shape)))
    return RobotViews(np.stack(poses), views, T_mount_camera, T_target_board)
