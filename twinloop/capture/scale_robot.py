"""Metric scale and the robot's base as world, from the robot's poses while it carried the camera.

With F the flange pose, X the camera on the flange, C the camera's pose in the model and s the
scale:  F X = T (s C)  for every picture, T the model's pose in the base.  Where X is unknown,
relative motions give R_A R_X = R_X R_B and (R_A - 1) t_X - s R_X t_B = -t_A (Park and Martin 1994;
scale as one more unknown: Andreff, Horaud and Espiau, "Robot hand-eye calibration using structure
from motion", IJRR 2001).  All unknowns are then refined together by Gauss-Newton.

A camera that looks at one point from one distance leaves X's offset along the optical axis and s
nearly exchangeable: with X unknown, the distance has to vary.  The scale's uncertainty shows it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinloop.capture.hand_eye import (
    WORST_PLACE,
    WORST_TURN,
    Motions,
    checked_poses,
    pose_disagreement,
)
from twinloop.capture.scale import MODEL_STD, MetricFrame
from twinloop.errors import InputError
from twinloop.geometry import quaternion, se3

Array = NDArray[np.float64]

LEAST_TRAVEL = 0.02
"""Least rms travel of the camera about its mean place, m."""
WORST_STD = 0.03
"""A scale known no better than this counts as unidentifiable."""
UNSURE = 4e-3
"""A scale known no better than this is reported with advice."""
FLOOR = (1e-5, 1e-5)
"""Least noise that is assumed of a pose: m and rad per axis."""
ROBUST = 3.0
"""Poses beyond this many standard deviations count less (Huber's weight)."""


@dataclass(frozen=True)
class RobotFrame:
    """The metric frame, and the camera's place on the flange that goes with it."""

    frame: MetricFrame
    """World is the robot's base."""
    T_flange_camera: Array
    """(4, 4): as given, or found."""


@dataclass(frozen=True)
class _State:
    scale: float
    T_base_model: Array
    T_flange_camera: Array

    def moved(self, step: Array) -> _State:
        X = self.T_flange_camera @ se3.exp(step[7:]) if len(step) > 7 else self.T_flange_camera
        return _State(
            self.scale * float(np.exp(step[0])), self.T_base_model @ se3.exp(step[1:7]), X
        )

    def residuals(self, F: Array, C: Array) -> Array:
        """Where the model has each camera, in the axes of where the robot has it (n, 6): m, rad."""
        scaled = C.copy()
        scaled[:, :3, 3] *= self.scale
        off = se3.inverse(F @ self.T_flange_camera) @ self.T_base_model @ scaled
        turn = quaternion.to_rotvec(quaternion.from_matrix(off[:, :3, :3]))
        return np.concatenate([off[:, :3, 3], turn], axis=1)


def from_robot_poses(
    T_model_camera: Array, T_base_flange: Array, T_flange_camera: Array | None = None
) -> RobotFrame:
    """Scale and base frame from pictures whose flange poses are known.

    Args:
        T_model_camera: Poses of the pictures in the model (n, 4, 4); NaN where not registered.
        T_base_flange: The robot's poses at the same times (n, 4, 4), m.
        T_flange_camera: The camera on the flange (4, 4); found together with the scale if None.

    Raises:
        InputError: Too few poses, poses in millimetres, motions that leave the scale open
            ("unidentifiable"), or poses that do not belong to the pictures.
    """
    where = "robot poses"
    T_model_camera = np.asarray(T_model_camera, dtype=np.float64)
    registered = np.asarray(np.isfinite(T_model_camera).all(axis=(1, 2)))
    F = np.asarray(T_base_flange, dtype=np.float64)
    if len(F) != len(registered):
        raise InputError(f"{where}: {len(F)} poses for {len(registered)} pictures; one for each")
    C = T_model_camera[registered]
    F = checked_poses(F[registered], len(C), where)
    if T_flange_camera is None:
        motions = Motions.between(F, C)
        motions.require_two_axes(where)
        X, scale = _closed_form(motions)
    else:
        X, scale = np.asarray(T_flange_camera, dtype=np.float64), np.nan
    travel = (F @ X)[:, :3, 3]
    moved = float(np.sqrt(((travel - travel.mean(axis=0)) ** 2).sum(axis=1).mean()))
    if moved < LEAST_TRAVEL:
        raise InputError(
            f"{where}: unidentifiable: the camera moved by {1e3 * moved:.1f} mm (rms) between its "
            f"{len(C)} poses, at least {1e3 * LEAST_TRAVEL:.0f} mm are needed to see the scale"
        )
    start = _placed(F @ X, C, X, scale)
    state, covariance = _refine(start, F, C, T_flange_camera is None)
    T = F @ state.T_flange_camera
    scaled = C.copy()
    scaled[:, :3, 3] *= state.scale
    off = se3.inverse(T) @ state.T_base_model @ scaled
    place, turn = pose_disagreement(off, np.eye(4))
    std = float(np.hypot(np.sqrt(covariance[0, 0]), MODEL_STD))
    if not state.scale > 0 or place > WORST_PLACE or turn > WORST_TURN:
        raise InputError(
            f"{where}: robot and pictures disagree by {1e3 * place:.1f} mm and "
            f"{np.degrees(turn):.1f} deg (rms over {len(C)} poses), at most "
            f"{1e3 * WORST_PLACE:.0f} mm and {np.degrees(WORST_TURN):.0f} deg are accepted. Do the "
            "poses belong to these pictures (clocks!), and are they base-to-flange, in metres?"
        )
    if std > WORST_STD:
        raise InputError(
            f"{where}: unidentifiable: the scale is known to {100 * std:.1f} % only, "
            f"{100 * WORST_STD:.0f} % are needed. Move the camera farther, turn it about two axes, "
            "and vary its distance from the object."
        )
    note = (
        f"The robot's poses give the scale: {len(C)} pictures agree with them to "
        f"{1e3 * place:.2f} mm and {np.degrees(turn):.3f} deg (rms)"
    )
    note += f", the scale is known to {100 * std:.2f} %."
    if T_flange_camera is None:
        note += " The camera's place on the flange was found with it."
    if std > UNSURE:
        note += (
            " Calibrate that place beforehand (hand-eye), or vary the camera's distance, to know "
            "the scale better."
        )
    frame = MetricFrame(state.scale, std, state.T_base_model, where, (note,))
    return RobotFrame(frame, state.T_flange_camera)


def _closed_form(motions: Motions) -> tuple[Array, float]:
    """Camera on the flange and scale, from relative motions."""
    R = motions.rotation()
    A = (motions.A[:, :3, :3] - np.eye(3)).reshape(-1, 3)
    b = (motions.B[:, :3, 3] @ R.T).reshape(-1, 1)
    solved = np.linalg.lstsq(
        np.concatenate([A, -b], axis=1), -motions.A[:, :3, 3].reshape(-1), rcond=None
    )[0]
    return se3.from_rotation_position(R, solved[:3]), float(solved[3])


def _placed(T_base_camera: Array, C: Array, X: Array, scale: float) -> _State:
    """The model in the base, and the scale when it is NaN, from known camera poses."""
    U, _, Vt = np.linalg.svd((T_base_camera[:, :3, :3] @ np.swapaxes(C[:, :3, :3], 1, 2)).sum(0))
    R = (U * [1.0, 1.0, np.linalg.det(U @ Vt)]) @ Vt
    turned = C[:, :3, 3] @ R.T
    at = T_base_camera[:, :3, 3]
    if np.isnan(scale):
        a, b = turned - turned.mean(axis=0), at - at.mean(axis=0)
        scale = float((a * b).sum() / max((a * a).sum(), 1e-300))
    # A scale that came out negative is refused by the caller; the logarithm needs a start.
    scale = max(scale, 1e-9)
    return _State(scale, se3.from_rotation_position(R, np.median(at - scale * turned, axis=0)), X)


def _refine(state: _State, F: Array, C: Array, find_camera: bool) -> tuple[_State, Array]:
    """Gauss-Newton over log scale, the model's pose and, if sought, the camera's.

    The noise of places and angles is estimated from their own residuals in turn.
    Returns the state and the covariance of its steps.
    """
    size = 13 if find_camera else 7
    covariance = np.eye(size)
    std = np.array([1e-3, 2e-3])
    freedom = 1 - size / (6 * len(C))
    for _ in range(30):
        residual = state.residuals(F, C)
        J = np.stack(
            [
                (state.moved(h).residuals(F, C) - state.moved(-h).residuals(F, C)) / 2e-6
                for h in 1e-6 * np.eye(size)
            ],
            axis=-1,
        )
        sigma = np.repeat(std, 3)
        length = np.sqrt(((residual / sigma) ** 2).mean(axis=1))
        weight = np.minimum(1.0, ROBUST / np.maximum(length, 1e-12))
        whitened = J / sigma[:, None]
        H = np.einsum("n,nia,nib->ab", weight, whitened, whitened)
        step = -np.linalg.lstsq(
            H, np.einsum("n,nia,ni->a", weight, whitened, residual / sigma), rcond=None
        )[0]
        covariance = np.linalg.pinv(H)
        state = state.moved(np.clip(step, -1.0, 1.0))
        residual = state.residuals(F, C)
        spread = np.stack([(residual[:, :3] ** 2).mean(1), (residual[:, 3:] ** 2).mean(1)])
        spread = (weight * spread).sum(axis=1) / weight.sum() / freedom
        std = np.maximum(np.sqrt(spread), FLOOR)
        if np.abs(step).max() < 1e-8:
            break
    return state, covariance
