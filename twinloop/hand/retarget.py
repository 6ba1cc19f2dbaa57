"""From a human hand to the robot hand: joints and wrist over a demonstration, then contact.

One damped least-squares problem over all frames: fingertips follow the human's, the wrist stays
near the human palm, joints stay in their limits and change smoothly. Frames are coupled only to
their neighbours, so the normal equations are block tridiagonal and cost grows with the number of
frames. The refinement adds the object's signed distance: pads of holding fingers lie on the
surface, no pad is inside it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinloop.geometry import quaternion, se3
from twinloop.geometry.sdf import SignedDistance
from twinloop.hand.keypoints import INDEX_TIP, MIDDLE_TIP, RING_TIP, THUMB_TIP, WRIST
from twinloop.hand.kinematics import HandKinematics
from twinloop.metrics.chamfer import fit_rigid

Array = NDArray[np.float64]


@dataclass(frozen=True)
class RetargetWeights:
    """Weights of the least-squares terms.

    Attributes:
        tip: fingertip position, 1/m.
        wrist_position: wrist near the human palm, 1/m.
        wrist_rotation: wrist turned as the human palm, 1/rad.
        posture: joints near the preferred posture, 1/rad.
        smooth_joint: change of joints between frames, 1/rad.
        smooth_wrist: change of the wrist between frames, 1/m and, times 0.1, 1/rad.
        contact: signed distance of pads, 1/m.
    """

    tip: float = 10.0
    wrist_position: float = 0.5
    wrist_rotation: float = 0.05
    posture: float = 0.02
    smooth_joint: float = 0.15
    smooth_wrist: float = 3.0
    contact: float = 300.0


@dataclass
class Motion:
    """A motion of hand and wrist.

    Attributes:
        joints: (frame, n) hand joints, rad.
        wrist: (frame, 4, 4) wrist pose in the frame of the targets (the object's).
        tips: (frame, tip, 3) pad centres, m.
        error: (frame, tip) distance of pads from the human fingertips, m.
    """

    joints: Array
    wrist: Array
    tips: Array
    error: Array


def finger_map(keypoints: Array, kinematics: HandKinematics) -> list[int]:
    """Human keypoint index for each robot tip, order of the robot's tips (thumb last).

    The robot's fingers stand in a row opposite the thumb, without a left or right hand of its own.
    Its first finger takes the human's index or ring fingertip, whichever fits without crossing
    fingers.
    """
    robot, _ = kinematics.tips(np.clip(_closed(kinematics), kinematics.lower, kinematics.upper))
    options = (
        [INDEX_TIP, MIDDLE_TIP, RING_TIP, THUMB_TIP],
        [RING_TIP, MIDDLE_TIP, INDEX_TIP, THUMB_TIP],
    )
    sample = keypoints[:: max(1, len(keypoints) // 20)]
    costs = []
    for option in options:
        cost = 0.0
        for hand in sample:
            source = np.concatenate([robot, np.zeros((1, 3))])
            target = np.concatenate([hand[option], hand[WRIST : WRIST + 1]])
            fitted = se3.apply(fit_rigid(source, target), source)
            cost += float(((fitted - target) ** 2).sum())
        costs.append(cost)
    return options[int(np.argmin(costs))]


def initial_wrist(targets: Array, palm: Array, kinematics: HandKinematics) -> Array:
    """Wrist poses (frame, 4, 4) from a rigid fit of the half-closed robot hand to the human's.

    Args:
        targets: (frame, tip, 3) wanted pad centres, m.
        palm: (frame, 3) human wrist, m.
        kinematics: the hand.
    """
    robot, _ = kinematics.tips(np.clip(_closed(kinematics), kinematics.lower, kinematics.upper))
    # The human wrist lies behind the palm, the robot's wrist frame is the palm itself.
    source = np.concatenate([robot, np.array([[0.0, 0.0, 0.03]])])
    return np.stack(
        [
            fit_rigid(source, np.concatenate([target, wrist[None]]))
            for target, wrist in zip(targets, palm, strict=True)
        ]
    )


def retarget(
    targets: Array,
    palm: Array,
    kinematics: HandKinematics,
    *,
    weights: RetargetWeights | None = None,
    iterations: int = 12,
) -> Motion:
    """Follow human fingertips with the robot hand.

    Args:
        targets: (frame, tip, 3) wanted pad centres in the object frame, m.
        palm: (frame, 3) human wrist keypoint in the object frame, m.
        kinematics: the hand.
        weights: see `RetargetWeights`.
        iterations: Gauss-Newton steps.

    Returns:
        The motion; joints are inside their limits.
    """
    weights = weights or RetargetWeights()
    start = np.clip(_closed(kinematics), kinematics.lower, kinematics.upper)
    wrist = initial_wrist(targets, palm, kinematics)
    joints = np.tile(start, (len(targets), 1))
    return _solve(targets, wrist, joints, wrist, start, kinematics, weights, iterations)


def refine_contacts(
    motion: Motion,
    targets: Array,
    holding: NDArray[np.bool_],
    surface: SignedDistance,
    kinematics: HandKinematics,
    *,
    weights: RetargetWeights | None = None,
    iterations: int = 8,
) -> Motion:
    """Move pads onto the surface where a finger holds, and out of it everywhere.

    Args:
        motion: result of `retarget`.
        targets: (frame, tip, 3) human fingertips in the object frame, m.
        holding: (frame, tip) which finger touches in which frame.
        surface: object surface in the object frame: its mesh, or a distance grid baked of it.
        kinematics: the hand.
        weights: see `RetargetWeights`; `contact` is what this adds.
        iterations: Gauss-Newton steps.
    """
    weights = weights or RetargetWeights()
    return _solve(
        targets,
        motion.wrist,
        motion.joints,
        motion.wrist,
        motion.joints,
        kinematics,
        weights,
        iterations,
        surface,
        holding,
    )


def _solve(
    targets: Array,
    wrist: Array,
    joints: Array,
    wrist_liked: Array,
    joints_liked: Array,
    kinematics: HandKinematics,
    weights: RetargetWeights,
    iterations: int,
    surface: SignedDistance | None = None,
    holding: NDArray[np.bool_] | None = None,
) -> Motion:
    wrist, joints = wrist.copy(), joints.copy()
    frames, n = joints.shape
    smooth = np.concatenate(
        [
            np.full(n, weights.smooth_joint),
            np.full(3, 0.1 * weights.smooth_wrist),
            np.full(3, weights.smooth_wrist),
        ]
    )
    radius = kinematics.model.tip_radius
    entered = np.zeros(targets.shape[:2], dtype=bool)
    for _ in range(iterations):
        local, jacobian = kinematics.tips(joints)
        rotation = wrist[:, :3, :3]
        arm = np.einsum("fij,ftj->fti", rotation, local)
        tips = arm + wrist[:, None, :3, 3]
        # Columns: joints, wrist rotation (left perturbation about the wrist), wrist translation.
        full = np.concatenate(
            [
                np.einsum("fij,ftjn->ftin", rotation, jacobian),
                -se3.skew(arm),
                np.broadcast_to(np.eye(3), (frames, tips.shape[1], 3, 3)),
            ],
            axis=-1,
        )
        blocks = weights.tip**2 * np.einsum("ftin,ftim->fnm", full, full)
        gradient = weights.tip**2 * np.einsum("ftin,fti->fn", full, tips - targets)
        if surface is not None and holding is not None:
            distance, normal = surface.signed_distance(tips.reshape(-1, 3))
            gap = distance.reshape(frames, -1) - radius
            row = np.einsum("fti,ftin->ftn", normal.reshape(frames, -1, 3), full)
            # A pad that was inside once stays on the surface: letting go would let it in again.
            entered |= gap < 0
            on = (holding | entered) * weights.contact**2
            blocks += np.einsum("ft,ftn,ftm->fnm", on, row, row)
            gradient += np.einsum("ft,ftn,ft->fn", on, row, gap)
        liked = np.concatenate(
            [
                np.full(n, weights.posture**2),
                np.full(3, weights.wrist_rotation**2),
                np.full(3, weights.wrist_position**2),
            ]
        )
        turn = quaternion.to_rotvec(
            quaternion.from_matrix(rotation @ np.swapaxes(wrist_liked[:, :3, :3], 1, 2))
        )
        shift = wrist[:, :3, 3] - wrist_liked[:, :3, 3]
        offset = np.concatenate([joints - joints_liked, turn, shift], axis=1)
        gradient += liked * offset
        blocks += np.diag(liked + 1e-9)
        value = np.concatenate([joints, _unrolled(rotation), wrist[:, :3, 3]], axis=1)
        difference = np.diff(value, axis=0) * smooth**2
        gradient[1:] += difference
        gradient[:-1] -= difference
        neighbours = np.full(frames, 2.0)
        neighbours[[0, -1]] = 1.0
        blocks += neighbours[:, None, None] * np.diag(smooth**2)
        free = np.ones((frames, n + 6))
        below = (joints <= kinematics.lower) & (gradient[:, :n] > 0)
        above = (joints >= kinematics.upper) & (gradient[:, :n] < 0)
        free[:, :n] = ~(below | above)
        step = -_block_tridiagonal(blocks, -(smooth**2), gradient, free)
        joints = np.clip(
            joints + np.clip(step[:, :n], -0.4, 0.4), kinematics.lower, kinematics.upper
        )
        turn_step = quaternion.to_matrix(
            quaternion.from_rotvec(np.clip(step[:, n : n + 3], -0.3, 0.3))
        )
        wrist[:, :3, :3] = turn_step @ rotation
        wrist[:, :3, 3] += np.clip(step[:, n + 3 :], -0.05, 0.05)
    local, _ = kinematics.tips(joints)
    tips = se3.apply(wrist, local)
    return Motion(joints, wrist, tips, np.linalg.norm(tips - targets, axis=2))


def _unrolled(rotation: Array) -> Array:
    """Running sum of the rotations between frames (frame, 3), whose differences are smoothed."""
    step = rotation[1:] @ np.swapaxes(rotation[:-1], 1, 2)
    turn = quaternion.to_rotvec(quaternion.from_matrix(step))
    return np.concatenate([np.zeros((1, 3)), np.cumsum(turn, axis=0)])


def _block_tridiagonal(blocks: Array, coupling: Array, right: Array, free: Array) -> Array:
    """Solve the symmetric block tridiagonal system by block elimination (Thomas).

    Args:
        blocks: (f, k, k) diagonal blocks.
        coupling: (k,) diagonal of every off-diagonal block.
        right: (f, k) right-hand side.
        free: (f, k) 1 for unknowns, 0 for those held at zero.
    """
    frames, size = right.shape
    identity = np.eye(size)
    upper = np.empty((frames, size, size))
    reduced = np.empty((frames, size))
    previous = np.zeros((size, size))
    carried = np.zeros(size)
    for f in range(frames):
        block = blocks[f] * free[f][:, None] * free[f][None] + np.diag(1.0 - free[f])
        link = coupling * free[f] * (free[f - 1] if f else 0.0)
        block = block - link[:, None] * previous
        value = right[f] * free[f] - link * carried
        after = coupling * free[f] * (free[f + 1] if f + 1 < frames else 0.0)
        solved = np.linalg.solve(block, np.concatenate([after * identity, value[:, None]], axis=1))
        upper[f], reduced[f] = solved[:, :size], solved[:, size]
        previous, carried = upper[f], reduced[f]
    result = np.empty((frames, size))
    result[-1] = reduced[-1]
    for f in range(frames - 2, -1, -1):
        result[f] = reduced[f] - upper[f] @ result[f + 1]
    return result


def _closed(kinematics: HandKinematics) -> Array:
    """Half-closed hand: fingers bent towards the thumb, the preferred posture of the fit."""
    names = [kinematics.model.joint_names[i] for i in kinematics.hand]
    bend = {"0": 0.0, "1": -0.2, "2": 0.5, "3": 0.4}
    return np.array([bend.get(name.rsplit("_", 1)[-1], 0.0) for name in names])
