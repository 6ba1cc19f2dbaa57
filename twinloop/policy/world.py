"""Index maps of a MuJoCo world that holds the robot and one object, whoever built it."""

from __future__ import annotations

import mujoco
import numpy as np
from numpy.typing import NDArray

from twinloop.errors import InputError
from twinloop.geometry import quaternion, se3
from twinloop.hand.kinematics import HandKinematics

Array = NDArray[np.float64]


class World:
    """A compiled model seen through the robot's names.

    Args:
        model: compiled world with the robot's joints, actuators (named as the joints) and tip
            sites.
        kinematics: the robot's hand.
        base: (4, 4) `T_world_base` of the robot in this world.
        body: name of the object's body, which has a free joint.

    Raises:
        InputError: an actuator, joint, site or body is missing; names it.
    """

    def __init__(
        self, model: mujoco.MjModel, kinematics: HandKinematics, base: Array, body: str = "object"
    ) -> None:
        self.model, self.kinematics = model, kinematics
        self.base = np.asarray(base, dtype=np.float64)
        robot = kinematics.model
        kinds = mujoco.mjtObj
        self.actuators = np.array(
            [_find(model, kinds.mjOBJ_ACTUATOR, name) for name in robot.joint_names]
        )
        joints = [_find(model, kinds.mjOBJ_JOINT, name) for name in robot.joint_names]
        self.qpos = np.array([model.jnt_qposadr[joint] for joint in joints])
        self.dofs = np.array([model.jnt_dofadr[joint] for joint in joints])
        self.wrist = _find(model, kinds.mjOBJ_BODY, kinematics.wrist)
        self.sites = [_find(model, kinds.mjOBJ_SITE, name) for name in robot.tips]
        self.tip_bodies = [
            _find(model, kinds.mjOBJ_BODY, robot.tip(name).link) for name in robot.tips
        ]
        self.body = _find(model, kinds.mjOBJ_BODY, body)
        joint = int(model.body_jntadr[self.body])
        if joint < 0 or model.jnt_type[joint] != mujoco.mjtJoint.mjJNT_FREE:
            raise InputError(f"body {body!r} has no free joint; expected a freely moving object")
        self.free = int(model.jnt_qposadr[joint])

    def place(self, data: mujoco.MjData, T_world_object: Array) -> None:
        """Put the object at a pose, at rest."""
        position, wxyz = se3.to_position_quaternion(T_world_object)
        data.qpos[self.free : self.free + 3] = position
        data.qpos[self.free + 3 : self.free + 7] = wxyz

    def object_pose(self, data: mujoco.MjData) -> Array:
        """`T_world_object` (4, 4) now."""
        free = data.qpos[self.free : self.free + 7]
        return se3.from_position_quaternion(free[:3], free[3:])

    def object_in_wrist(self, data: mujoco.MjData) -> Array:
        """`T_wrist_object` (4, 4): how the object sits in the hand."""
        wrist = se3.from_rotation_position(self.wrist_rotation(data), data.xpos[self.wrist])
        body = data.xmat[self.body].reshape(3, 3)
        return se3.inverse(wrist) @ se3.from_rotation_position(body, data.xpos[self.body])

    def wrist_rotation(self, data: mujoco.MjData) -> Array:
        """(3, 3) orientation of the wrist in the world."""
        return np.asarray(data.xmat[self.wrist], dtype=np.float64).reshape(3, 3)

    def tip_jacobians(self, data: mujoco.MjData) -> Array:
        """(tip, 3, n) Jacobians of the pads by the hand joints, world axes.

        MuJoCo's kinematics of the robot, equal to `HandKinematics.tips` and thirty times as fast.
        """
        full = np.zeros((3, self.model.nv))
        result = np.empty((len(self.sites), 3, len(self.kinematics.hand)))
        columns = self.dofs[self.kinematics.hand]
        for tip, site in enumerate(self.sites):
            mujoco.mj_jacSite(self.model, data, full, None, site)
            result[tip] = full[:, columns]
        return result

    def pad_forces(self, data: mujoco.MjData) -> Array:
        """(tip,) normal force between each pad's link and the object, N: for scoring only."""
        forces = np.zeros(len(self.tip_bodies))
        wrench = np.zeros(6)
        owner = self.model.geom_bodyid
        for index in range(data.ncon):
            contact = data.contact[index]
            a, b = int(owner[contact.geom1]), int(owner[contact.geom2])
            if self.body not in (a, b):
                continue
            other = b if a == self.body else a
            if other in self.tip_bodies:
                mujoco.mj_contactForce(self.model, data, index, wrench)
                forces[self.tip_bodies.index(other)] += wrench[0]
        return forces


def level(T_world_object: Array) -> Array:
    """The same pose with z straight up: position kept, yaw of the object's x axis kept.

    The arm carries the palm parallel to the table, so a small tilt of a tracked pose must not reach
    it.
    """
    yaw = np.arctan2(T_world_object[1, 0], T_world_object[0, 0])
    result = np.eye(4)
    result[:3, :3] = quaternion.to_matrix(quaternion.from_rotvec(np.array([0.0, 0.0, float(yaw)])))
    result[:3, 3] = T_world_object[:3, 3]
    return result


def _find(model: mujoco.MjModel, kind: mujoco.mjtObj, name: str) -> int:
    found = mujoco.mj_name2id(model, kind, name)
    if found < 0:
        what = kind.name.removeprefix("mjOBJ_").lower()
        raise InputError(f"world has no {what} {name!r}; expected the robot's and object's names")
    return int(found)
