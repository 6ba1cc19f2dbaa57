"""What a robot's log holds, whatever the file: measured state, commands, wrenches, poses, images.

Times are stamps of measurement on the robot's clock, s, strictly increasing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from twinloop.capture.pictures import Pictures

Array = NDArray[np.float64]


@dataclass(frozen=True)
class RobotLog:
    """What a robot reported; NaN where it said nothing.

    Units are m or rad, m/s or rad/s, N or N m, by the joint's kind.
    """

    joints: tuple[str, ...]
    """Joint names."""
    time: Array
    """Time of each sample on the robot's clock, (sample,) s, strictly increasing."""
    position: Array
    """(sample, joint)."""
    velocity: Array
    """(sample, joint)."""
    effort: Array
    """(sample, joint)."""
    command: Array
    """Commanded position in force at the sample, (sample, joint): a view of the control log, each
    command held until the next one; NaN before the first."""


@dataclass(frozen=True)
class ControlLog:
    """What a robot was told, apart from what it measured; NaN where nothing was said."""

    joints: tuple[str, ...]
    """Joint names, in the order of the measured log."""
    time: Array
    """Time of each command on the robot's clock, (command,) s, strictly increasing."""
    position: Array
    """Commanded positions (command, joint), m or rad."""
    velocity: Array
    """Commanded velocities (command, joint), m/s or rad/s."""
    effort: Array
    """Commanded (feed-forward) efforts (command, joint), N or N m."""
    stiffness: Array | None = None
    """Controller stiffness (command, joint), N/m or N m/rad, where logged."""
    damping: Array | None = None
    """Controller damping (command, joint), N s/m or N m s/rad, where logged."""
    delay: float | None = None
    """Time from a command's stamp until the drive acts on it, s, where stated."""

    def held(self, time: Array) -> Array:
        """Commanded position in force at ``time`` (n,) s: (n, joint); NaN before the first.

        A command is in force from its stamp and the delay on.
        """
        held = np.full((len(time), len(self.joints)), np.nan)
        last = np.searchsorted(self.time + (self.delay or 0.0), time, side="right") - 1
        held[last >= 0] = self.position[last[last >= 0]]
        return held


@dataclass(frozen=True)
class WrenchLog:
    """Readings of a force-torque sensor."""

    time: Array
    """(sample,) s."""
    force: Array
    """(sample, 3) N, in the sensor's frame."""
    torque: Array
    """(sample, 3) N m, about the frame's origin."""
    frame: str
    """Name of the sensor's frame; empty where the log does not name it."""


@dataclass(frozen=True)
class PoseStream:
    """Poses of one frame in another."""

    time: Array | None
    """(n,) s, strictly increasing; None where the poses have only an order."""
    T_parent_child: Array
    """(n, 4, 4), m; the product of rotations is checked to be one."""
    parent: str
    """Frame in which the poses are given."""
    child: str
    """Frame whose poses they are."""
    camera_matrix: Array | None = None
    """Camera matrix (3, 3) px that lies beside the poses, if any."""


@dataclass(frozen=True)
class Capture:
    """All streams of one log file or bag."""

    states: RobotLog | None
    """Measured joint states; None if there are none."""
    control: ControlLog | None = None
    """Commands; None if there are none."""
    wrench: WrenchLog | None = None
    """Force-torque readings; None if there are none."""
    poses: Mapping[str, PoseStream] = field(default_factory=dict)
    """Pose streams by child frame (TF) or by topic (PoseStamped)."""
    images: Mapping[str, Pictures] = field(default_factory=dict)
    """Pictures by topic, decoded only when read."""
    named: bool = True
    """Whether the log itself names the joints; else the names come from ``joint_order``."""
