"""The hand seen from its wrist: fingertips and their Jacobians, and the arm that carries it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from twinloop.errors import InputError
from twinloop.geometry import se3
from twinloop.hand.model import RobotModel

Array = NDArray[np.float64]


class HandKinematics:
    """Finger part of a robot: `n` hand joints below a wrist link, batched over leading dimensions.

    The wrist is the last link that all fingertips share; joints above it are the arm, below it the
    hand.

    Attributes:
        model: the whole robot.
        wrist: name of the wrist link.
        arm, hand: indices of arm and hand joints in the robot's joint vector.
        lower, upper: (n,) limits of the hand joints, rad.
    """

    def __init__(self, model: RobotModel) -> None:
        chains = [model.chain(model.tip(name).link) for name in model.tips]
        shared = sorted(set.intersection(*(set(chain) for chain in chains)))
        if not shared:
            raise InputError(
                f"robot {model.name}: its fingertips {list(model.tips)} share no link; expected "
                f"one wrist"
            )
        self.model = model
        self.wrist = model.joints[shared[-1]].link
        self.arm = np.array(shared)
        self.hand = np.array([i for i in range(model.dof) if i not in shared])
        self.lower, self.upper = model.joint_limits[self.hand].T
        self._tip_links = [model.tip(name).link for name in model.tips]
        self._tip_points = [np.array(model.tip(name).position) for name in model.tips]
        self._chains = [[i for i in chain if i not in shared] for chain in chains]
        zero = model.forward(np.zeros(model.dof))[self.wrist]
        self._zero = zero
        axes = [model.joints[i] for i in self.arm]
        self._slides = [k for k, joint in enumerate(axes) if joint.type == "prismatic"]
        self._turns = [k for k, joint in enumerate(axes) if joint.type == "revolute"]

    def full(self, hand: Array, arm: Array | None = None) -> Array:
        """Joint vector (..., dof) from hand joints (..., n) and arm joints (..., a)."""
        hand = np.asarray(hand, dtype=np.float64)
        q = np.zeros((*hand.shape[:-1], self.model.dof))
        q[..., self.hand] = hand
        if arm is not None:
            q[..., self.arm] = arm
        return q

    def links(self, hand: Array) -> dict[str, Array]:
        """`T_wrist_link` (..., 4, 4) of every link for hand joints (..., n)."""
        base = se3.inverse(self._zero)
        return self.model.forward(self.full(hand), base)

    def tips(self, hand: Array) -> tuple[Array, Array]:
        """Fingertip centres in the wrist frame and their Jacobians.

        Args:
            hand: (..., n) hand joints, rad.

        Returns:
            Positions (..., tip, 3) m and Jacobians (..., tip, 3, n) m/rad.
        """
        poses = self.links(hand)
        shape = np.asarray(hand).shape[:-1]
        column = {int(joint): k for k, joint in enumerate(self.hand)}
        points = np.zeros((*shape, len(self._tip_links), 3))
        jacobian = np.zeros((*shape, len(self._tip_links), 3, len(self.hand)))
        for k, link in enumerate(self._tip_links):
            point = poses[link][..., :3, :3] @ self._tip_points[k] + poses[link][..., :3, 3]
            points[..., k, :] = point
            for i in self._chains[k]:
                joint = self.model.joints[i]
                axis = poses[joint.link][..., :3, :3] @ np.array(joint.axis)
                arm = point - poses[joint.link][..., :3, 3]
                value = axis if joint.type == "prismatic" else np.cross(axis, arm)
                jacobian[..., k, :, column[i]] = value
        return points, jacobian

    def arm_for_wrist(self, T_base_wrist: Array) -> Array:
        """Arm joints (a,) that bring the wrist to a pose, for an arm of slides and one turn.

        Raises:
            InputError: the arm cannot reach the pose (tilted wrist, beyond limits): names what is
                wrong.
        """
        names = [self.model.joint_names[i] for i in self.arm]
        arm = np.zeros(len(self.arm))
        axes = np.array([self.model.joints[i].axis for i in self.arm], dtype=np.float64)
        if self._turns:
            turn = self._turns[-1]
            axis = axes[turn]
            relative = T_base_wrist[:3, :3] @ self._zero[:3, :3].T
            other = np.array([1.0, 0.0, 0.0]) if abs(axis[0]) < 0.9 else np.array([0.0, 1.0, 0.0])
            u = np.cross(axis, other)
            u /= np.linalg.norm(u)
            moved = relative @ u
            arm[turn] = np.arctan2(np.cross(u, moved) @ axis, u @ moved)
        now = self.model.forward(self.full(np.zeros(len(self.hand)), arm))[self.wrist]
        gap = T_base_wrist[:3, 3] - now[:3, 3]
        arm[self._slides] = np.linalg.lstsq(axes[self._slides].T, gap, rcond=None)[0]
        reached = self.model.forward(self.full(np.zeros(len(self.hand)), arm))[self.wrist]
        if np.abs(reached - T_base_wrist).max() > 1e-6:
            raise InputError(
                f"wrist pose {np.round(T_base_wrist, 4).tolist()}: the arm of {self.model.name} "
                f"({names}) cannot reach it; expected the palm parallel to the table"
            )
        limits = self.model.joint_limits[self.arm]
        beyond = (arm < limits[:, 0] - 1e-9) | (arm > limits[:, 1] + 1e-9)
        if beyond.any():
            i = int(np.argmax(beyond))
            raise InputError(
                f"wrist pose needs joint {names[i]} at {arm[i]:.4f}, its limits are "
                f"[{limits[i, 0]}, {limits[i, 1]}]; move the object into the arm's reach"
            )
        return arm


def solve_tips(
    kinematics: HandKinematics,
    targets: Array,
    start: Array,
    *,
    iterations: int = 40,
    posture: float = 2e-4,
) -> tuple[Array, Array]:
    """Hand joints that bring the fingertips to targets in the wrist frame, in one batch.

    Levenberg's damped least squares with an active set: a joint pushed against its limit is held
    there and the others take over. A weak pull to `start` picks one of the many solutions of a
    redundant finger; it fades over the iterations, so that it does not cost accuracy.

    Args:
        kinematics: the hand.
        targets: (b, tip, 3) wanted fingertip centres in the wrist frame, m.
        start: (n,) or (b, n) first guess and preferred posture, rad.
        iterations: number of steps.
        posture: weight of the preferred posture, m2 per rad2 (against squared tip error).

    Returns:
        Joints (b, n) rad within limits, tip errors (b, tip) m.
    """
    targets = np.asarray(targets, dtype=np.float64)
    preferred = np.broadcast_to(start, (len(targets), len(kinematics.hand)))
    q = np.clip(preferred, kinematics.lower, kinematics.upper).copy()
    n = q.shape[1]
    for step in range(iterations):
        points, jacobian = kinematics.tips(q)
        error = (points - targets).reshape(len(q), -1)
        matrix = jacobian.reshape(len(q), -1, n)
        pull = posture * 0.7**step
        gradient = np.einsum("bri,br->bi", matrix, error) + pull * (q - preferred)
        held = ((q <= kinematics.lower) & (gradient > 0)) | (
            (q >= kinematics.upper) & (gradient < 0)
        )
        free = (~held).astype(np.float64)
        matrix = matrix * free[:, None, :]
        normal = np.swapaxes(matrix, 1, 2) @ matrix
        damping = pull + 1e-7
        normal = normal + damping * np.eye(n) + np.einsum("bi,ij->bij", 1.0 - free, np.eye(n))
        move = -np.linalg.solve(normal, (gradient * free)[..., None])[..., 0]
        q = np.clip(q + np.clip(move, -0.5, 0.5), kinematics.lower, kinematics.upper)
    points, _ = kinematics.tips(q)
    return q, np.linalg.norm(points - targets, axis=2)
