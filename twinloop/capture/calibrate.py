"""Find the lens and the camera poses from a tag board seen in many frames.

One robust joint least squares over fx, fy, cx, cy, k1, k2, p1, p2, k3 (OpenCV's model) and one pose
per frame, solved by Levenberg-Marquardt on the Schur complement of the poses.  The start comes
from homographies (Zhang, "A flexible new technique for camera calibration", PAMI 2000, with the
principal point in the centre), because OpenCV 5's own solver falls into bad minima without a guess.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from twinloop.capture.projection import Camera, project_with_jacobian
from twinloop.errors import InputError
from twinloop.geometry import quaternion, se3

Array = NDArray[np.float64]

FIRST_SIGMA = 0.5
"""Corner error assumed at the start, px; afterwards it is estimated from the residuals."""
ROBUST = 3.0
"""Residuals of more than this many standard deviations count less (Cauchy's weight)."""


@dataclass(frozen=True)
class View:
    """Board points seen in one frame."""

    frame: int
    """Number of the frame, for messages."""
    points: Array
    """Points (n, 3) in the board frame, m; z = 0."""
    pixels: Array
    """Where they appear, (n, 2) px."""


@dataclass(frozen=True)
class Calibration:
    """Lens and poses."""

    camera: Camera
    """The lens."""
    camera_std: Array
    """Standard deviation (9,) of the lens's nine numbers, from the residuals' scatter."""
    T_camera_board: Array
    """Pose of the board in each frame's camera, (view, 4, 4)."""
    rms: Array
    """Reprojection error of each view, (view,) px, all corners counted alike."""
    inliers: Array
    """Share of corners within the robust bound, (view,)."""
    sigma: float
    """Standard deviation of a corner's coordinates, estimated from the residuals, px."""

    @property
    def T_board_camera(self) -> Array:  # noqa: N802
        """Camera pose in the board frame, (view, 4, 4)."""
        return se3.inverse(self.T_camera_board)


def calibrate(
    views: Sequence[View],
    width: int,
    height: int,
    *,
    known: Camera | None = None,
    iterations: int = 50,
) -> Calibration:
    """Estimate the lens (unless ``known``) and the pose of every view.

    Args:
        views: At least one view with a known lens, three without; at least 4 points each.
        width: Columns of the image, px.
        height: Rows of the image, px.
        known: The lens, when it has been calibrated before.
        iterations: Most Levenberg-Marquardt steps.

    Raises:
        InputError: Too few views or points, all from the same direction, or a board that does not
            fit the images.
    """
    if len(views) < (1 if known else 3):
        raise InputError(
            f"calibration: {len(views)} frames show the board, at least {1 if known else 3} are "
            "needed. Film the board from several sides, whole and in focus."
        )
    for view in views:
        if len(view.points) < 4:
            raise InputError(
                f"calibration: frame {view.frame} has {len(view.points)} board points, expected 4 "
                "or more."
            )
    homographies = [_homography(view) for view in views]
    if known is None:
        focal = _focal_from_homographies(homographies, width, height)
        camera = Camera(
            np.array([focal, focal, (width - 1) / 2, (height - 1) / 2]), np.zeros(5), width, height
        )
    else:
        camera = known
    poses = np.stack(
        [_pose_from_homography(_homography(view, camera), view) for view in views]
        if known
        else [
            _pose_from_homography(_normalized(H, camera), v)
            for H, v in zip(homographies, views, strict=True)
        ]
    )
    problem = _Problem.of(views)
    sigma, std = FIRST_SIGMA, np.zeros(9)
    for _ in range(4):
        camera, poses, std = _solve(problem, camera, poses, known is None, iterations, sigma)
        residuals, _, _ = problem.residuals(camera, poses)
        error = np.linalg.norm(residuals, axis=1)
        # The median length of two normal errors is 1.1774 standard deviations.
        sigma = max(0.02, min(sigma, float(np.median(error)) / 1.1774))
    starts = problem.starts
    counts = np.diff(np.append(starts, len(error)))
    rms = np.sqrt(np.add.reduceat(error**2, starts) / counts)
    inliers = np.add.reduceat((error < ROBUST * sigma).astype(float), starts) / counts
    T = np.tile(np.eye(4), (len(views), 1, 1))
    T[:, :3] = poses
    return Calibration(camera, std, T, rms, inliers, sigma)


@dataclass(frozen=True)
class _Problem:
    points: Array
    pixels: Array
    view: NDArray[np.int64]
    starts: NDArray[np.int64]

    @staticmethod
    def of(views: Sequence[View]) -> _Problem:
        counts = np.array([len(v.points) for v in views])
        return _Problem(
            np.concatenate([v.points for v in views]),
            np.concatenate([v.pixels for v in views]),
            np.repeat(np.arange(len(views)), counts),
            np.concatenate([[0], np.cumsum(counts)[:-1]]),
        )

    def residuals(self, camera: Camera, poses: Array) -> tuple[Array, Array, Array]:
        """Residuals (n, 2) px, their derivatives by the lens (n, 2, 9) and the pose (n, 2, 6)."""
        turned = np.einsum("nij,nj->ni", poses[self.view, :, :3], self.points)
        in_camera = turned + poses[self.view, :, 3]
        pixels, by_point, by_lens = project_with_jacobian(camera, in_camera)
        # Left perturbation R <- exp(w) R, t <- t + d:  d(point)/dw = -[R X]x,  d(point)/dd = I.
        cross = np.zeros((len(turned), 3, 3))
        x, y, z = turned.T
        cross[:, 0, 1], cross[:, 0, 2], cross[:, 1, 2] = z, -y, x
        cross -= np.swapaxes(cross, 1, 2)
        by_pose = np.concatenate([by_point @ cross, by_point], axis=2)
        return pixels - self.pixels, by_lens, by_pose


def _solve(
    problem: _Problem,
    camera: Camera,
    poses: Array,
    refine_lens: bool,
    iterations: int,
    sigma: float,
) -> tuple[Camera, Array, Array]:
    mean, precision = _prior(camera, sigma)
    damping = 1e-3
    cost = _cost(problem, camera, poses, mean, precision, sigma)
    schur = np.eye(9)
    for _ in range(iterations):
        residuals, J_lens, J_pose = problem.residuals(camera, poses)
        error = np.linalg.norm(residuals, axis=1)
        weight = 1.0 / (1.0 + (error / (ROBUST * sigma)) ** 2)
        W_lens = J_lens * weight[:, None, None]
        W_pose = J_pose * weight[:, None, None]
        A = np.einsum("nia,nib->ab", W_lens, J_lens) + precision
        a = np.einsum("nia,ni->a", W_lens, residuals) + precision @ (camera.vector - mean)
        B = np.add.reduceat(np.einsum("nia,nib->nab", W_pose, J_pose), problem.starts)
        b = np.add.reduceat(np.einsum("nia,ni->na", W_pose, residuals), problem.starts)
        E = np.add.reduceat(np.einsum("nia,nib->nab", W_lens, J_pose), problem.starts)
        improved = False
        for _ in range(8):
            B_damped = B + damping * np.einsum("fab,ab->fab", B, np.eye(6))
            B_inverse = np.linalg.inv(B_damped)
            EB = E @ B_inverse
            schur = A + damping * np.diag(np.diag(A)) - np.einsum("fab,fcb->ac", EB, E)
            lens_step = (
                -np.linalg.solve(schur, a - np.einsum("fab,fb->a", EB, b))
                if refine_lens
                else np.zeros(9)
            )
            pose_step = -np.einsum(
                "fab,fb->fa", B_inverse, b + np.einsum("fab,a->fb", E, lens_step)
            )
            trial_camera = camera.moved(lens_step)
            trial_poses = _moved(poses, pose_step)
            trial = _cost(problem, trial_camera, trial_poses, mean, precision, sigma)
            if trial < cost:
                improved = True
                break
            damping *= 10
        if not improved:
            break
        gain = (cost - trial) / cost
        camera, poses, cost = trial_camera, trial_poses, trial
        damping = max(damping / 10, 1e-12)
        if gain < 1e-9:
            break
    std = (
        np.sqrt(np.maximum(np.diag(np.linalg.inv(schur)), 0.0)) * sigma
        if refine_lens
        else np.zeros(9)
    )
    return camera, poses, std


def _prior(camera: Camera, sigma_corner: float) -> tuple[Array, Array]:
    """Weak knowledge of any lens: mean (9,) and precision (9, 9) in units of px residuals.

    It decides only what few or frontal views leave open: pixels are square within 0.05 %, the
    principal point is near the centre, the higher distortion terms are small.
    """
    size = max(camera.width, camera.height)
    mean = camera.vector.copy()
    mean[2:4] = (camera.width - 1) / 2, (camera.height - 1) / 2
    mean[4:] = 0.0
    sigma = np.array([size, size, 0.05 * size, 0.05 * size, 0.5, 0.5, 0.01, 0.01, 0.3])
    precision = np.diag((sigma_corner / sigma) ** 2)
    square = np.zeros(9)
    square[:2] = 1.0, -1.0
    precision += np.outer(square, square) * (sigma_corner / (0.0005 * mean[0])) ** 2
    return mean, precision


def _cost(
    problem: _Problem,
    camera: Camera,
    poses: Array,
    mean: Array,
    precision: Array,
    sigma: float,
) -> float:
    depth = (
        np.einsum("nj,nj->n", poses[problem.view, 2, :3], problem.points)
        + poses[problem.view, 2, 3]
    )
    if not (depth > 1e-6).all() or not (camera.intrinsics[:2] > 0).all():
        return np.inf
    residuals, _, _ = problem.residuals(camera, poses)
    error = np.linalg.norm(residuals, axis=1)
    bound = (ROBUST * sigma) ** 2
    robust = bound * np.log1p(error**2 / bound)
    off = camera.vector - mean
    return float(robust.sum() + off @ precision @ off)


def _moved(poses: Array, step: Array) -> Array:
    moved = poses.copy()
    moved[:, :, :3] = quaternion.to_matrix(quaternion.from_rotvec(step[:, :3])) @ poses[:, :, :3]
    moved[:, :, 3] += step[:, 3:]
    return moved


def _homography(view: View, camera: Camera | None = None) -> Array:
    """Map board x, y to pixels, or to normalised image coordinates of ``camera``."""
    target = view.pixels if camera is None else camera.normalize(view.pixels)
    H, _ = cv2.findHomography(view.points[:, :2], target, 0)
    if H is None or not np.isfinite(H).all() or abs(np.linalg.det(H)) < 1e-15:
        raise InputError(
            f"calibration: the {len(view.points)} board points of frame {view.frame} define no "
            "plane-to-image map (are they on one line?)."
        )
    return np.asarray(H, dtype=np.float64)


def _normalized(H: Array, camera: Camera) -> Array:
    return np.asarray(np.linalg.solve(camera.matrix, H))


def _focal_from_homographies(homographies: list[Array], width: int, height: int) -> float:
    """Focal length, px, that makes the board's axes orthogonal and of equal length in all views."""
    size = float(max(width, height))
    centre = np.array(
        [[1 / size, 0, -(width - 1) / 2 / size], [0, 1 / size, -(height - 1) / 2 / size], [0, 0, 1]]
    )
    slopes, offsets = [], []
    for H in homographies:
        G = centre @ H
        G /= np.linalg.norm(G[:, :2])
        h1, h2 = G[:, 0], G[:, 1]
        slopes += [h1[0] * h2[0] + h1[1] * h2[1], h1[0] ** 2 + h1[1] ** 2 - h2[0] ** 2 - h2[1] ** 2]
        offsets += [h1[2] * h2[2], h1[2] ** 2 - h2[2] ** 2]
    a, b = np.array(slopes), np.array(offsets)
    inverse_square = -float(a @ b) / max(float(a @ a), 1e-300)
    # Outside what cameras have (10 to 150 deg) the views are too frontal to tell: start at a
    # phone's usual main lens, the joint solution corrects it.
    if not 1 / 6.0**2 < inverse_square < 1 / 0.15**2:
        return 0.8 * size
    return size / float(np.sqrt(inverse_square))


def _pose_from_homography(H: Array, view: View) -> Array:
    """Board pose [R t], (3, 4), from a homography to normalised coordinates."""
    scale = 2.0 / (np.linalg.norm(H[:, 0]) + np.linalg.norm(H[:, 1]))
    if (H[2] @ np.r_[view.points[:, :2].mean(axis=0), 1.0]) < 0:
        scale = -scale
    r1, r2, t = (H * scale).T
    U, _, Vt = np.linalg.svd(np.column_stack([r1, r2, np.cross(r1, r2)]))
    R = U @ np.diag([1.0, 1.0, np.linalg.det(U @ Vt)]) @ Vt
    return np.column_stack([R, t])
