"""A made-up robot push with known contact force: log, tip, face, and the object's poses."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.ndimage import gaussian_filter1d

from twinloop.hand.model import RobotModel

Array = np.ndarray
RATE = 300.0


@dataclass(frozen=True)
class MadeUpPush:
    """What happens in a push.

    time (n,) s world clock; position, velocity, effort (n, joint); force (n, 3) N on the object;
    tip (n, 3) m; travel (n,) m of the object along +x; contact: bool (n,).
    """

    time: Array
    position: Array
    velocity: Array
    effort: Array
    force: Array
    tip: Array
    travel: Array
    contact: Array


def made_up_push(robot: RobotModel, seed: int = 0, speed: float = 0.1) -> MadeUpPush:
    """The arm drives the poking index along +x: free air, stick, push, stop, return.

    Efforts are the exact equation of motion (links as point masses, this robot's own friction 20 %
    off the datasheet) plus noise.
    """
    rng = np.random.default_rng(seed)
    time = np.arange(0, 1.8, 1 / RATE)
    fine = np.arange(-0.2, 2.0, 1 / 3000)
    rate = np.select(
        [fine < 0.3, fine < 0.65, fine < 0.7, fine < 1.05, fine < 1.15, fine < 1.5],
        [0.0, speed, 0.35 * speed, speed, 0.0, -1.5 * speed],
        0.0,
    )
    rate = gaussian_filter1d(rate, 45)
    path = np.cumsum(rate) / 3000
    x, v = np.interp(time, fine, path), np.interp(time, fine, rate)
    a = np.interp(time, fine, np.gradient(rate, 1 / 3000))
    touch = float(np.interp(0.65, time, x))
    contact = (time > 0.65) & (time < 1.16)
    travel = np.maximum.accumulate(np.clip(x - touch, 0, None) * (time > 0.65))
    force = np.zeros((len(time), 3))
    ramp = np.clip((time - 0.65) / 0.04, 0, 1) * np.clip((1.16 - time) / 0.04, 0, 1)
    force[:, 0] = 1.5 * ramp
    q = np.tile(robot.posture("poke"), (len(time), 1))
    q[:, robot.index("arm_yaw")] = -np.pi / 2
    q[:, robot.index("arm_z")] = 0.25
    arm = robot.index("arm_x")
    q[:, arm] = -0.1 + x
    dq = np.zeros_like(q)
    dq[:, arm] = v
    ddq = np.zeros_like(q)
    ddq[:, arm] = a
    effort = np.einsum("nij,ni->nj", robot.jacobian(q, "index_tip"), force)
    for geom in robot.geoms:
        centre = np.array(geom.centre)
        if geom.shape == "capsule":
            centre = 0.5 * (np.array(geom.start) + np.array(geom.to))
        jacobian = robot.point_jacobian(q[0], geom.link, centre)
        effort += geom.mass * ddq @ jacobian.T @ jacobian
    coulomb, viscous = robot.joint_friction.T
    rotor = np.array([joint.armature for joint in robot.joints])
    effort += rotor * ddq + 1.2 * viscous * dq + 0.8 * coulomb * np.sign(dq) * (np.abs(dq) > 1e-4)
    effort += rng.normal(0, 1, effort.shape) * 0.003 * robot.effort_limits
    return MadeUpPush(
        time,
        q + rng.normal(0, 2e-5, q.shape),
        dq + rng.normal(0, 8e-4, q.shape),
        effort,
        force,
        robot.tip_positions(q)[:, robot.tips.index("index_tip")],
        travel,
        contact,
    )


def object_poses(push: MadeUpPush, camera_time: Array) -> Array:
    """(m, 4, 4) poses of the pushed object at world times (m,)."""
    out = np.tile(np.eye(4), (len(camera_time), 1, 1))
    out[:, 0, 3] = push.tip[0, 0] + 0.12 + np.interp(camera_time, push.time, push.travel)
    out[:, 2, 3] = 0.04
    return out


def write_log(path: Path, robot: RobotModel, push: MadeUpPush, offset: float) -> None:
    """The CSV log with the robot's clock `offset` s ahead."""
    names = robot.joint_names
    kinds = ("position", "velocity", "effort", "command")
    header = ",".join(["time"] + [f"{kind}_{name}" for kind in kinds for name in names])
    blocks = [push.position, push.velocity, push.effort, push.position]
    table = np.column_stack([push.time + offset, *blocks])
    np.savetxt(path, table, delimiter=",", header=header, comments="", fmt="%.9g")
