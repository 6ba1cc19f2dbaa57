"""What ``robot.yaml`` says about a log: where each signal stands, in which unit and order."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

KINDS = (
    "position",
    "velocity",
    "effort",
    "command",
    "command_velocity",
    "command_effort",
    "stiffness",
    "damping",
)
"""Signals of a joint. ``command`` is the commanded position."""
WRENCH = ("force_x", "force_y", "force_z", "torque_x", "torque_y", "torque_z")
"""Columns of a force-torque sensor."""
SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
"""Time units, s."""

Positive = Annotated[float, Field(gt=0)]


class Topics(BaseModel):
    """ROS topics of the log; one that is not named is found by its type if it is the only one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    states: str | None = None
    """``sensor_msgs/JointState`` of what the robot measured; ``/joint_states`` if it exists."""
    commands: str | None = None
    """``sensor_msgs/JointState`` of what it was told; ``/joint_commands`` if it exists."""
    wrench: str | None = None
    """``geometry_msgs/WrenchStamped``."""
    image: str | None = None
    """``sensor_msgs/Image`` or ``CompressedImage``; all of them if not named."""


class LogMapping(BaseModel):
    """How to read a log; the defaults are those of ROS and SI units."""

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)

    topics: Topics = Topics()
    """Topics of an MCAP file or a bag."""
    columns: dict[str, str] = Field(default_factory=dict)
    """Columns of a CSV file or LeRobot table: ``{time: t_ns, position_elbow: q0, force_z: fz}``."""
    fields: dict[str, str] = Field(default_factory=dict)
    """Data sets of an HDF5 file: ``{position: data/demo_0/obs/qpos, time: data/demo_0/t}``."""
    time_unit: Literal["s", "ms", "us", "ns"] = "s"
    """Unit of the time column or data set."""
    joint_order: tuple[str, ...] = ()
    """Joints in the order of the log's columns, for logs that do not name them."""
    rename: dict[str, str] = Field(default_factory=dict)
    """Joint names of the robot model by the log's names."""
    angle_unit: Literal["rad", "deg"] = "rad"
    """Unit of revolute joints' positions, velocities (per s) and commands."""
    length_unit: Literal["m", "mm"] = "m"
    """Unit of prismatic joints' positions, velocities (per s) and commands."""
    effort_unit: Literal["N_or_Nm", "mN_or_mNm", "A", "mA"] = "N_or_Nm"
    """Unit of efforts: N of prismatic joints and N m of revolute ones, or motor currents."""
    torque_constant: Positive | dict[str, Positive] | None = None
    """Joint effort by motor current, N/A or N m/A at the joint (gear included): all, or each."""
    command_delay: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Time from a command's stamp until the drive acts on it, s, where it is known."""
    log_rate: Annotated[float, Field(gt=1.0, le=10000.0)] | None = None
    """Nominal rate of the log, Hz; the clock of logs that have no time stamps."""
    episode: Annotated[int, Field(ge=0)] | None = None
    """Episode of a LeRobot data set or demonstration of a robomimic file, if there are several."""

    @model_validator(mode="after")
    def _consistent(self) -> LogMapping:
        pattern = re.compile(rf"time|({'|'.join(KINDS)})_.+|{'|'.join(WRENCH)}")
        if wrong := [key for key in self.columns if not pattern.fullmatch(key)]:
            raise ValueError(
                f"columns: {wrong} are no signals; expected time, <kind>_<joint> with kind in "
                f"{list(KINDS)}, or {WRENCH[0]} ... {WRENCH[-1]}"
            )
        known = {"time", "time_nanoseconds", *KINDS}
        if wrong := sorted(set(self.fields) - known):
            raise ValueError(f"fields: {wrong} are no signals; expected some of {sorted(known)}")
        if self.effort_unit in ("A", "mA") and self.torque_constant is None:
            raise ValueError(
                f"effort_unit {self.effort_unit} needs torque_constant: N m/A (or N/A) at the joint"
            )
        if len(set(self.joint_order)) != len(self.joint_order):
            raise ValueError(f"joint_order: a joint stands twice: {list(self.joint_order)}")
        if len(set(self.rename.values())) != len(self.rename):
            raise ValueError(f"rename: two joints get the same name: {self.rename}")
        return self
