"""The trained policy as one object: what it sees, what it answers, and how that becomes a grasp."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinloop.geometry import se3
from twinloop.hand.kinematics import HandKinematics, solve_tips
from twinloop.policy.dataset import displacement
from twinloop.policy.force_law import distribute
from twinloop.policy.grasp import CLEARANCE, Grasp, GraspRequest, finger_offsets
from twinloop.policy.runner import Action, GraspRunner, Physics

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Refinement:
    """What the twin simulation changed after imitation.

    Attributes:
        height: added to the pads' height, m.
        shift: added along the hand's lateral direction, m.
        log_gain: added to the log of the side force.
    """

    height: float = 0.0
    shift: float = 0.0
    log_gain: float = 0.0

    def array(self) -> Array:
        """(3,) height, shift, log gain."""
        return np.array([self.height, self.shift, self.log_gain])


@dataclass(frozen=True)
class GraspPolicy:
    """A grasp policy for one object.

    Attributes:
        network: the trained network.
        points: (p, 3) object surface that it looks at, object frame, m.
        T_object_wrist: (4, 4) nominal wrist of the demonstrated grasp.
        physics: identified mass and friction with intervals.
        refinement: correction found in the twin.
        kinematics: the hand.
    """

    network: GraspRunner
    points: Array
    T_object_wrist: Array
    physics: Physics
    refinement: Refinement
    kinematics: HandKinematics

    def act(self, T_object_wrist: Array, physics: Physics | None = None) -> Action:
        """Raw answer of the network for a coarse wrist pose in the object frame (4, 4)."""
        seen = se3.apply(se3.inverse(T_object_wrist), self.points)
        return self.network.act(seen, physics or self.physics)

    def plan(
        self, T_object_wrist: Array | None = None, refinement: Refinement | None = None
    ) -> tuple[Grasp, float, Action]:
        """Grasp from where the wrist happens to be.

        Args:
            T_object_wrist: (4, 4) coarse wrist pose in the object frame, upright; nominal if None.
            refinement: replaces the policy's own (used while searching it).

        Returns:
            The grasp in the object frame, the force for each side N, and the raw action.
        """
        coarse = self.T_object_wrist if T_object_wrist is None else T_object_wrist
        change = self.refinement if refinement is None else refinement
        action = self.act(coarse)
        wrist = coarse @ displacement(action.wrist_offset)
        local, _ = self.kinematics.tips(action.joints)
        _, thumb = finger_offsets(self.kinematics)
        pressing = np.where(thumb, -1.0, 1.0)[:, None] * np.array([1.0, 0.0, 0.0])
        opened, _ = solve_tips(
            self.kinematics, (local - CLEARANCE * pressing)[None], action.joints, iterations=15
        )
        wrist = wrist.copy()
        wrist[:3, 3] += change.height * wrist[:3, 2] + change.shift * wrist[:3, 1]
        pads = se3.apply(wrist, local)
        normals = pressing @ wrist[:3, :3].T
        closing = wrist[:3, 0]
        request = GraspRequest(
            yaw=float(np.arctan2(closing[1], closing[0])),
            height=float(pads[:, 2].mean()),
            shift=float(wrist[:3, 3] @ wrist[:3, 1]),
        )
        grasp = Grasp(
            request=request,
            T_object_wrist=wrist,
            joints=action.joints,
            open_joints=opened[0],
            pads=pads,
            points=pads + self.kinematics.model.tip_radius * normals,
            normals=normals,
            tip_error=0.0,
            alignment=1.0,
        )
        return grasp, action.side_force * float(np.exp(change.log_gain)), action


def finger_forces(
    kinematics: HandKinematics, grasp: Grasp, side_force: float, *, reserve: bool = True
) -> Array:
    """Normal forces (tip,) N that a grip commands for a wanted side force.

    What the joints' dry friction may swallow is added (unless `reserve` is False, as for baselines
    that know no such thing), then everything is capped at what the weakest joint can hold.
    """
    if side_force <= 0.0:
        return np.zeros(len(grasp.pads))
    wanted = side_force + (hidden_force(kinematics, grasp) if reserve else 0.0)
    capped = min(wanted, payload_side_force(kinematics, grasp))
    return distribute(grasp.points, grasp.normals, capped, grasp.closing)


def hidden_force(kinematics: HandKinematics, grasp: Grasp) -> float:
    """Side force that dry friction of the joints may hide, N.

    By virtual work: a pad force f does not move its finger while f dx < sum_j c_j |dq_j| for the
    joint motion dq that moves the pad by dx. Summed over the fingers of a side, the larger side
    counts. Below this force a commanded effort says nothing about the contact, so light objects
    would slip.
    """
    _, jacobian = kinematics.tips(grasp.joints)
    pressing = grasp.pressing @ grasp.T_object_wrist[:3, :3]
    gram = jacobian @ np.swapaxes(jacobian, 1, 2) + 1e-6 * np.eye(3)
    pull = np.linalg.solve(gram, pressing[..., None])[..., 0]
    motion = np.abs(np.einsum("tin,ti->tn", jacobian, pull))
    coulomb = kinematics.model.joint_friction[kinematics.hand, 0]
    hidden = motion @ coulomb
    thumb = grasp.normals @ grasp.closing < 0
    return float(max(hidden[thumb].sum(), hidden[~thumb].sum()))


def payload_side_force(kinematics: HandKinematics, grasp: Grasp, reserve: float = 0.95) -> float:
    """Largest side force that no joint's effort limit cuts, N.

    tau = J^T f grows linearly with the force, so the limit is a ratio of efforts. A share is kept
    for holding the weight.
    """
    _, jacobian = kinematics.tips(grasp.joints)
    unit = distribute(grasp.points, grasp.normals, 1.0, grasp.closing)
    pressed = unit[:, None] * (grasp.pressing @ grasp.T_object_wrist[:3, :3])
    torque = np.abs(np.einsum("tin,ti->n", jacobian, pressed))
    limits = kinematics.model.effort_limits[kinematics.hand]
    return float(reserve * (limits / np.maximum(torque, 1e-9)).min())
