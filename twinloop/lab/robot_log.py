"""The robot's log as a real one has it: noisy encoders and efforts, in MCAP and in CSV.

MCAP holds ROS 2 ``sensor_msgs/JointState`` on ``/joint_states`` and ``/joint_commands``; CSV holds
the same numbers. Same values give the same bytes: no wall-clock time is written.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from mcap_ros2.writer import Writer
from numpy.typing import NDArray

from twinloop.hand.model import RobotModel
from twinloop.lab.spec import NoiseSpec
from twinloop.lab.world import Rollout

FloatArray = NDArray[np.float64]

JOINT_STATE = """std_msgs/Header header
string[] name
float64[] position
float64[] velocity
float64[] effort
================================================================================
MSG: std_msgs/Header
builtin_interfaces/Time stamp
string frame_id
================================================================================
MSG: builtin_interfaces/Time
int32 sec
uint32 nanosec
"""
"""``sensor_msgs/msg/JointState`` with the definitions that it uses."""


@dataclass(frozen=True)
class RobotLog:
    """What the robot reports.

    time (k,) s on its own clock; position, velocity, effort, command (k, joint) in m or rad, m/s or
    rad/s, N or N m.
    """

    joints: tuple[str, ...]
    time: FloatArray
    position: FloatArray
    velocity: FloatArray
    effort: FloatArray
    command: FloatArray


def measure(
    robot: RobotModel, rollout: Rollout, noise: NoiseSpec, rng: np.random.Generator
) -> RobotLog:
    """Add the robot's sensor noise to what happened and move it to the robot's clock.

    Encoders and efforts have white noise, efforts in proportion to the joint's limit as motor
    currents do; the velocity is the drive's own estimate. Values are rounded as a log file's are.
    """
    shape = rollout.position.shape
    position = rollout.position + rng.normal(0.0, noise.position, shape)
    # Drives filter differenced encoder counts over about ten samples.
    velocity = rollout.velocity + rng.normal(0.0, 40.0 * noise.position, shape)
    effort = rollout.effort + rng.normal(0.0, 1.0, shape) * noise.effort * robot.effort_limits
    return RobotLog(
        joints=robot.joint_names,
        time=np.round(rollout.sample_time + noise.clock_offset, 9),
        position=np.round(position, 7),
        velocity=np.round(velocity, 6),
        effort=np.round(effort, 5),
        command=np.round(rollout.command, 7),
    )


def write_csv(path: Path, log: RobotLog) -> None:
    """Write columns time, position_<joint>, velocity_<joint>, effort_<joint>, command_<joint>."""
    blocks = {
        "position": log.position,
        "velocity": log.velocity,
        "effort": log.effort,
        "command": log.command,
    }
    header = ["time"] + [f"{kind}_{joint}" for kind in blocks for joint in log.joints]
    table = np.column_stack([log.time, *blocks.values()])
    text = io.StringIO()
    np.savetxt(text, table, fmt=["%.9f"] + ["%.10g"] * (table.shape[1] - 1), delimiter=",")
    path.write_text(",".join(header) + "\n" + text.getvalue(), encoding="utf-8")


def write_mcap(path: Path, log: RobotLog) -> None:
    """Write the log as ROS 2 messages; publish and log times equal the header stamps."""
    names = list(log.joints)
    with path.open("wb") as stream:
        writer = Writer(stream)
        schema = writer.register_msgdef("sensor_msgs/msg/JointState", JOINT_STATE)
        for k, time in enumerate(log.time):
            nanoseconds = round(float(time) * 1e9)
            sec, nanosec = divmod(nanoseconds, 1_000_000_000)
            header = {"stamp": {"sec": sec, "nanosec": nanosec}, "frame_id": "base"}
            state = {
                "header": header,
                "name": names,
                "position": log.position[k].tolist(),
                "velocity": log.velocity[k].tolist(),
                "effort": log.effort[k].tolist(),
            }
            command = {
                "header": header,
                "name": names,
                "position": log.command[k].tolist(),
                "velocity": [],
                "effort": [],
            }
            for topic, message in (("/joint_states", state), ("/joint_commands", command)):
                writer.write_message(topic, schema, message, nanoseconds, nanoseconds, k)
        writer.finish()
