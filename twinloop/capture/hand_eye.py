"""Where a camera sits on a robot: from pictures of a board and the robot's poses.

With G the flange pose (camera on the hand) or its inverse (camera beside the robot), X the camera's
pose on its mount and Z the board's pose, every view's camera sees the board at C = X^-1 G^-1 Z.
The start is closed form: rotations by logarithms of relative motions, then translations by least
squares (Park and Martin, "Robot sensor calibration: solving AX = XB on the Euclidean group", IEEE
Trans. Robotics and Automation 1994).  Then Levenberg-Marquardt on the reprojection error of all
views over the twelve parameters.  A robot does not repeat its poses exactly, which moves all points
of a view together; that error is integrated out (each view's residuals are whitened by it), which
halves the result's error against counting all points alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinloop.capture.calibrate import View, calibrate
from twinloop.capture.projection import Camera, project_with_jacobian
from twinloop.errors import InputError
from twinloop.geometry import quaternion, se3

Array = NDArray[np.float64]

FEWEST = 5
"""Poses that are needed at least."""
LEAST_TURN = np.radians(5.0)
"""Least rms rotation between poses about the second-best axis, rad."""
FARTHEST = 5.0
"""Longest reach of a robot, m; beyond, positions are surely in millimetres."""
WORST_PLACE = 0.02
"""Largest rms distance between the robot's and the pictures' poses, m."""
WORST_TURN = np.radians(3.0)
"""Largest rms angle between the robot's and the pictures' poses, rad."""
BOOTSTRAPS = 1000


@dataclass(frozen=True)
class Motions:
    """Relative motions of the mount and of the camera, every pair of views."""

    A: Array
    """Of the mount (pair, 4, 4)."""
    B: Array
    """Of the camera (pair, 4, 4): A X = X B."""

    @staticmethod
    def between(T_target_mount: Array, T_target_camera: Array) -> Motions:
        """All pairs of poses (n, 4, 4), each in its own fixed frame."""
        i, j = np.triu_indices(len(T_target_mount), 1)
        return Motions(
            se3.inverse(T_target_mount[i]) @ T_target_mount[j],
            se3.inverse(T_target_camera[i]) @ T_target_camera[j],
        )

    def spread(self) -> Array:
        """Rms rotation (3,) rad about the three main axes of turning, largest first."""
        turns = rotation_vectors(self.A)
        return np.asarray(np.linalg.svd(turns, compute_uv=False) / np.sqrt(len(turns)))

    def require_two_axes(self, where: str) -> None:
        """Refuse motions that leave the calibration open.

        Raises:
            InputError: The mount turns about one axis only, or hardly at all.
        """
        first, second, _ = np.degrees(self.spread())
        if second < np.degrees(LEAST_TURN):
            raise InputError(
                f"{where}: unidentifiable: between its poses the robot's hand turns by "
                f"{first:.1f} deg (rms) about one axis and by {second:.1f} deg about a second; at "
                f"least {np.degrees(LEAST_TURN):.0f} deg about two axes are needed. Tilt the wrist "
                "both ways, 15 to 30 deg, and repeat."
            )

    def rotation(self) -> Array:
        """Rotation of X (3, 3): log(A) = R log(B), least squares (Park and Martin, eq. 24)."""
        a, b = rotation_vectors(self.A), rotation_vectors(self.B)
        # Near half a turn the logarithm's sign is open; such pairs say nothing safe.
        safe = np.linalg.norm(a, axis=1) < np.radians(170)
        U, _, Vt = np.linalg.svd(a[safe].T @ b[safe])
        return np.asarray((U * [1.0, 1.0, np.linalg.det(U @ Vt)]) @ Vt)


def rotation_vectors(T: Array) -> Array:
    """Rotation vectors (n, 3) rad of poses (n, 4, 4)."""
    return quaternion.to_rotvec(quaternion.from_matrix(T[:, :3, :3]))


@dataclass(frozen=True)
class HandEye:
    """A camera's place on a robot."""

    eye_in_hand: bool
    """Whether the camera rides on the flange; else it stands beside the robot."""
    T_mount_camera: Array
    """Camera pose (4, 4) on the flange, or in the robot's base when it stands beside it."""
    T_target_board: Array
    """Board pose (4, 4) in the robot's base, or on the flange when the camera stands beside."""
    covariance: Array
    """Of ``T_mount_camera`` (6, 6): translation m, rotation rad, in the camera's axes; from the
    bootstrap."""
    translation_95: float
    """The true position is within this distance with 95 % (bootstrap over poses), m."""
    rotation_95: float
    """The true orientation is within this angle with 95 % (bootstrap over poses), rad."""
    rms: float
    """Reprojection error with the robot's poses taken as exact, px; holds the robot's error."""
    pose_rms: tuple[float, float]
    """Disagreement of robot and pictures over the poses: m and rad, rms."""


def calibrate_hand_eye(
    T_base_flange: Array,
    views: Sequence[View],
    camera: Camera,
    *,
    eye_in_hand: bool = True,
    robot_std: tuple[float, float] = (3e-4, 5e-4),
    seed: int = 0,
) -> HandEye:
    """Find the camera on the hand, or beside the robot.

    Args:
        T_base_flange: The robot's poses (n, 4, 4) by forward kinematics, m; one per view.
        views: Board points and their pixels, one view per pose.
        camera: The lens.
        eye_in_hand: True: the camera rides on the flange, the board stands still.  False: the
            camera stands still, the board rides on the flange.
        robot_std: How well the robot knows its pose: m per axis and rad per axis, above 0.
        seed: Seed of the bootstrap.

    Raises:
        InputError: Too few poses, poses that are no rigid motions or in millimetres, motions that
            leave the result open ("unidentifiable"), or poses that do not belong to the pictures.
    """
    if min(robot_std) <= 0:
        raise InputError(f"hand-eye: robot_std {robot_std} must be above 0 m and rad")
    T_base_flange = checked_poses(T_base_flange, len(views), "hand-eye")
    alone = calibrate(views, camera.width, camera.height, known=camera)
    C = alone.T_camera_board
    G = T_base_flange if eye_in_hand else se3.inverse(T_base_flange)
    motions = Motions.between(G, se3.inverse(C))
    motions.require_two_axes("hand-eye")
    X = _closed_form(motions)
    Z = _mean_pose(G @ X @ C)
    place, turn = pose_disagreement(G @ X @ C, Z)
    if place > WORST_PLACE or turn > WORST_TURN:
        raise InputError(
            f"hand-eye: robot and pictures disagree by {1e3 * place:.1f} mm and "
            f"{np.degrees(turn):.1f} deg (rms over {len(views)} poses), at most "
            f"{1e3 * WORST_PLACE:.0f} mm and {np.degrees(WORST_TURN):.0f} deg are accepted. Do the "
            "poses belong to these pictures, in this order, and are they base-to-flange, in "
            f"metres? Does the camera {'ride on the hand' if eye_in_hand else 'stand still'}?"
        )
    X, Z, H, g, squares = _refine(G, X, Z, views, camera, eye_in_hand, robot_std, alone.sigma)
    covariance, place_95, turn_95 = _bootstrap(H, g, np.random.default_rng(seed))
    points = sum(len(view.points) for view in views)
    return HandEye(
        eye_in_hand,
        X,
        Z,
        covariance,
        place_95,
        turn_95,
        float(np.sqrt(squares / points)),
        pose_disagreement(G @ X @ C, Z),
    )


def checked_poses(poses: Array, count: int, where: str) -> Array:
    """Robot poses as an array (n, 4, 4).

    Raises:
        InputError: Not ``count`` poses, fewer than :data:`FEWEST`, not rigid, or in millimetres.
    """
    poses = np.asarray(poses, dtype=np.float64)
    if poses.ndim != 3 or poses.shape[1:] != (4, 4) or len(poses) != count:
        raise InputError(
            f"{where}: robot poses of shape {poses.shape}, expected ({count}, 4, 4): one for each "
            "picture"
        )
    if count < FEWEST:
        raise InputError(
            f"{where}: unidentifiable from {count} poses; at least {FEWEST} are needed, 15 are good"
        )
    finite = np.asarray(np.isfinite(poses).all(axis=(1, 2)))
    R = np.where(finite[:, None, None], poses[:, :3, :3], 0.0)
    bad: NDArray[np.bool_] = np.abs(R @ np.swapaxes(R, 1, 2) - np.eye(3)).max(axis=(1, 2)) > 1e-3
    bad |= np.linalg.det(R) <= 0
    bad |= np.abs(poses[:, 3] - [0.0, 0.0, 0.0, 1.0]).max(axis=1) > 1e-6
    if bad.any():
        raise InputError(
            f"{where}: pose {int(np.argmax(bad))} is no rigid motion (a rotation matrix, a "
            "position, last row 0 0 0 1)"
        )
    reach = float(np.abs(poses[:, :3, 3]).max())
    if reach > FARTHEST:
        raise InputError(
            f"{where}: a robot position is {reach:g} m from its base; at most {FARTHEST:g} m is "
            f"expected. In millimetres it would be {reach / 1e3:g} m: convert to metres."
        )
    return poses


def pose_disagreement(poses: Array, mean: Array) -> tuple[float, float]:
    """Rms distance, m, and angle, rad, of poses (n, 4, 4) that should all be ``mean``."""
    off = se3.inverse(mean) @ poses
    place = np.linalg.norm(off[:, :3, 3], axis=1)
    turn = np.linalg.norm(rotation_vectors(off), axis=1)
    return float(np.sqrt((place**2).mean())), float(np.sqrt((turn**2).mean()))


def _closed_form(motions: Motions) -> Array:
    R = motions.rotation()
    A = (motions.A[:, :3, :3] - np.eye(3)).reshape(-1, 3)
    b = (motions.B[:, :3, 3] @ R.T - motions.A[:, :3, 3]).reshape(-1)
    return se3.from_rotation_position(R, np.linalg.lstsq(A, b, rcond=None)[0])


def _mean_pose(poses: Array) -> Array:
    U, _, Vt = np.linalg.svd(poses[:, :3, :3].mean(axis=0))
    R = (U * [1.0, 1.0, np.linalg.det(U @ Vt)]) @ Vt
    return se3.from_rotation_position(R, np.median(poses[:, :3, 3], axis=0))


def _adjoint(T: Array) -> Array:
    """Adjoints (..., 6, 6) of poses for twists of translation, then rotation."""
    R = T[..., :3, :3]
    adjoint = np.zeros((*T.shape[:-2], 6, 6))
    adjoint[..., :3, :3] = adjoint[..., 3:, 3:] = R
    adjoint[..., :3, 3:] = se3.skew(T[..., :3, 3]) @ R
    return adjoint


def _normal_equations(
    G: Array,
    X: Array,
    Z: Array,
    views: Sequence[View],
    camera: Camera,
    robot_covariance: Array,
    pixel_std: float,
) -> tuple[Array, Array, Array, float]:
    """Normal equations of each view, its cost, and the sum of squared residuals.

    Twelve parameters: X <- X exp(a), Z <- Z exp(b).  Then C <- exp(-a) C exp(b), a twist on the
    left of C.  ``robot_covariance`` (n, 6, 6) is that of the same twist by the robot's error.
    With J of the pixels by that twist, the residuals' covariance is s2 I + J S J^T, and by
    Woodbury's identity only 6 x 6 matrices are needed.
    """
    count = len(views)
    H, g, cost, squares = np.zeros((count, 12, 12)), np.zeros((count, 12)), np.zeros(count), 0.0
    C = se3.inverse(X) @ se3.inverse(G) @ Z
    by_parameters = np.concatenate([np.tile(-np.eye(6), (count, 1, 1)), _adjoint(C)], axis=2)
    for i, view in enumerate(views):
        points = se3.apply(C[i], view.points)
        if points[:, 2].min() < 1e-6:
            cost[i] = np.inf
            continue
        pixels, by_point, _ = project_with_jacobian(camera, points)
        residual = (pixels - view.pixels).reshape(-1) / pixel_std
        J = np.concatenate([by_point, -by_point @ se3.skew(points)], axis=2).reshape(-1, 6)
        J /= pixel_std
        N, n = J.T @ J, J.T @ residual
        # (I + J S J^T)^-1 = I - J (S^-1 + N)^-1 J^T
        inner = np.linalg.inv(np.linalg.inv(robot_covariance[i]) + N)
        shrunk = np.eye(6) - N @ inner
        H[i] = by_parameters[i].T @ (shrunk @ N) @ by_parameters[i]
        g[i] = by_parameters[i].T @ (shrunk @ n)
        cost[i] = residual @ residual - n @ inner @ n
        squares += float(residual @ residual) * pixel_std**2
    return H, g, cost, squares


def _refine(
    G: Array,
    X: Array,
    Z: Array,
    views: Sequence[View],
    camera: Camera,
    eye_in_hand: bool,
    robot_std: tuple[float, float],
    pixel_std: float,
) -> tuple[Array, Array, Array, Array, float]:
    """Levenberg-Marquardt; returns X, Z, each view's H and g there, and the squared residuals."""
    variance = np.diag(np.repeat(np.square(robot_std), 3))
    # The robot errs by a small motion of the flange; carried to the camera's axes.
    carry = _adjoint(se3.inverse(X))
    carried = (
        np.tile(carry, (len(G), 1, 1)) if eye_in_hand else _adjoint(se3.inverse(X) @ se3.inverse(G))
    )
    robot_covariance = carried @ variance @ np.swapaxes(carried, 1, 2)
    damping = 1e-4
    H, g, cost, squares = _normal_equations(G, X, Z, views, camera, robot_covariance, pixel_std)
    for _ in range(50):
        total = H.sum(axis=0)
        step = -np.linalg.solve(total + damping * np.diag(np.diag(total)), g.sum(axis=0))
        trial_X, trial_Z = X @ se3.exp(step[:6]), Z @ se3.exp(step[6:])
        trial = _normal_equations(G, trial_X, trial_Z, views, camera, robot_covariance, pixel_std)
        if trial[2].sum() <= cost.sum():
            X, Z, damping = trial_X, trial_Z, max(damping / 10, 1e-12)
            H, g, cost, squares = trial
            if np.abs(step).max() < 1e-10:
                break
        else:
            damping *= 10
            if damping > 1e8:
                break
    return X, Z, H, g, squares


def _bootstrap(H: Array, g: Array, rng: np.random.Generator) -> tuple[Array, float, float]:
    """Resample the poses; one Gauss-Newton step from the optimum solves each sample.

    Returns the covariance of X's six numbers and the 95 % radii of position, m, and angle, rad.
    """
    count = len(H)
    draws = rng.multinomial(count, np.full(count, 1 / count), size=BOOTSTRAPS)
    # A sample of few distinct poses may leave the result open; the prior keeps it solvable.
    prior = 1e-3 * H.mean(axis=0)
    normal = np.einsum("bn,nij->bij", draws, H) + prior
    steps = -np.linalg.solve(normal, np.einsum("bn,ni->bi", draws, g)[..., None])[..., 0]
    # 6 equations a pose, 12 unknowns: residuals are smaller than errors by this.
    steps *= np.sqrt(6 * count / (6 * count - 12))
    moved = steps[:, :6]
    place, turn = (np.linalg.norm(moved[:, part], axis=1) for part in (slice(3), slice(3, 6)))
    return (
        np.asarray(np.cov(moved.T)),
        float(np.quantile(place, 0.95)),
        float(np.quantile(turn, 0.95)),
    )
