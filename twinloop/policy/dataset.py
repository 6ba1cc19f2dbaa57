"""Training examples: the demonstrated grasp seen from wrists that are off, solved anew.

Each example puts the nominal wrist a little beside its place, as a coarse approach does, and asks
the joint least squares of fingers and wrist for the answer: part of the error is taken by the
wrist, the rest by the fingers. Points, answer and contact labels are in that displaced wrist's
frame.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinloop.geometry import quaternion, se3
from twinloop.hand.kinematics import HandKinematics
from twinloop.policy.grasp import Grasp

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Examples:
    """A batch of training examples.

    Attributes:
        points: (b, p, 3) object surface in the displaced wrist frame, m.
        context: (b, 2) log widths of the intervals of mass and friction.
        joints: (b, n) hand joints, rad.
        wrist: (b, 4) wrist offset x, y, z (m), yaw (rad).
        contacts: (b, 2) labels in {0, 1}: at least three fingers touch; the object is in the hand.
        log_factor: (b,) log load factor F mu / (m g).
        error: (b, tip) distance of the pads from their contacts, m.
    """

    points: Array
    context: Array
    joints: Array
    wrist: Array
    contacts: Array
    log_factor: Array
    error: Array


def displacement(offset: Array) -> Array:
    """Poses (..., 4, 4) of wrist offsets (..., 4): x, y, z and yaw about z."""
    rotvec = np.zeros((*offset.shape[:-1], 3))
    rotvec[..., 2] = offset[..., 3]
    rotation = quaternion.to_matrix(quaternion.from_rotvec(rotvec))
    return se3.from_rotation_position(rotation, offset[..., :3])


def solve_hand_and_wrist(
    kinematics: HandKinematics,
    targets: Array,
    start: Array,
    *,
    iterations: int = 15,
    wrist_cost: tuple[float, float] = (0.6, 0.03),
    posture: float = 0.02,
    tip: float = 10.0,
) -> tuple[Array, Array, Array]:
    """Fingers and a small wrist motion that together bring the pads to their targets.

    Args:
        kinematics: the hand.
        targets: (b, tip, 3) wanted pad centres in the displaced wrist frame, m.
        start: (n,) the demonstrated posture, kept where possible, rad.
        iterations: Gauss-Newton steps.
        wrist_cost: weights of wrist translation, 1/m, and yaw, 1/rad.
        posture: weight of leaving the demonstrated posture, 1/rad.
        tip: weight of a pad's position, 1/m.

    Returns:
        Joints (b, n), wrist offsets (b, 4), pad errors (b, tip) m.
    """
    count, n = len(targets), len(start)
    joints = np.tile(start, (count, 1))
    offset = np.zeros((count, 4))
    cost = np.concatenate([np.full(n, posture), np.full(3, wrist_cost[0]), [wrist_cost[1]]]) ** 2
    for step in range(iterations):
        fade = 1.0 if step < iterations - 4 else 0.02
        local, jacobian = kinematics.tips(joints)
        pose = displacement(offset)
        arm = np.einsum("bij,btj->bti", pose[:, :3, :3], local)
        rows = np.concatenate(
            [
                np.einsum("bij,btjn->btin", pose[:, :3, :3], jacobian),
                np.broadcast_to(np.eye(3), (count, arm.shape[1], 3, 3)),
                np.cross(np.array([0.0, 0.0, 1.0]), arm)[..., None],
            ],
            axis=-1,
        )
        error = arm + pose[:, None, :3, 3] - targets
        gradient = tip**2 * np.einsum("btin,bti->bn", rows, error)
        gradient += fade * cost * np.concatenate([joints - start, offset], axis=1)
        normal = tip**2 * np.einsum("btin,btim->bnm", rows, rows) + np.diag(fade * cost + 1e-8)
        free = np.ones_like(gradient)
        below = (joints <= kinematics.lower) & (gradient[:, :n] > 0)
        above = (joints >= kinematics.upper) & (gradient[:, :n] < 0)
        free[:, :n] = ~(below | above)
        normal = normal * free[:, :, None] * free[:, None, :]
        normal += np.einsum("bi,ij->bij", 1.0 - free, np.eye(n + 4))
        move = -np.linalg.solve(normal, (gradient * free)[..., None])[..., 0]
        joints = np.clip(
            joints + np.clip(move[:, :n], -0.3, 0.3), kinematics.lower, kinematics.upper
        )
        offset = offset + move[:, n:]
    local, _ = kinematics.tips(joints)
    reached = se3.apply(displacement(offset), local)
    return joints, offset, np.linalg.norm(reached - targets, axis=2)


def make_examples(
    grasp: Grasp,
    points: Array,
    kinematics: HandKinematics,
    *,
    count: int,
    spread: tuple[float, float, float],
    margin: float,
    risk_quantile: float,
    touch: float,
    rng: np.random.Generator,
) -> Examples:
    """Draw examples around a grasp.

    Args:
        grasp: the demonstrated grasp.
        points: (p, 3) object surface, object frame, m.
        kinematics: the hand.
        count: number of examples.
        spread: half widths of the wrist's displacement: horizontal m, vertical m, yaw rad.
        margin: S of the force law.
        risk_quantile: standard normal quantile of 1 - risk.
        touch: a pad nearer than this to its contact counts as touching, m.
        rng: generator.
    """
    reach = np.array([spread[0], spread[0], spread[1], spread[2]])
    offset = rng.uniform(-reach, reach, size=(count, 4))
    offset[0] = 0.0
    # A few far away, so that the contact head sees grasps that do not come off.
    far = rng.random(count) < 0.06
    far[0] = False
    offset[far] *= rng.uniform(3.0, 12.0, size=(count, 1))[far]
    wrist = grasp.T_object_wrist @ displacement(offset)
    inverse = se3.inverse(wrist)
    seen = se3.apply(inverse, points)
    targets = se3.apply(inverse, grasp.pads)
    joints, answer, error = solve_hand_and_wrist(kinematics, targets, grasp.joints)
    touching = (error < touch).sum(axis=1)
    contacts = np.stack([touching >= 3, touching >= 2], axis=1).astype(np.float64)
    context = rng.uniform(0.0, 1.5, size=(count, 2))
    return Examples(
        points=seen,
        context=context,
        joints=joints,
        wrist=answer,
        contacts=contacts,
        log_factor=load_factor(context, margin, risk_quantile),
        error=error,
    )


def load_factor(context: Array, margin: float, risk_quantile: float) -> Array:
    """Log load factor (b,) that a grip needs at given interval widths (b, 2).

    For log-normal mass and friction whose 95 % intervals span a factor exp(w), log(m/mu) has
    standard deviation sqrt(w_m^2 + w_mu^2) / 3.92; the load exceeded with the accepted risk is that
    quantile, and F mu / (m g) = S / 2 times it.
    """
    sd = np.sqrt((context**2).sum(axis=1)) / 3.919927969080108
    result: Array = np.log(0.5 * margin) + risk_quantile * sd
    return result
