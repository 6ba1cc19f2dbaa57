"""Tables of joint values: from messages that name joints, or from columns; ordered by stamp."""

from __future__ import annotations

import warnings
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinloop.capture.logs.mapping import SECONDS, LogMapping
from twinloop.capture.logs.streams import ControlLog, RobotLog
from twinloop.capture.warning import CaptureWarning
from twinloop.errors import InputError

Array = NDArray[np.float64]
Stamps = NDArray[np.int64]

LONGEST_BACK = 1_000_000_000
"""Largest step back of a clock that is put down to messages out of order, ns."""
TARGETS = ("command", "command_velocity", "command_effort")
"""Signals of the controller's targets."""
GAINS = ("stiffness", "damping")
"""Signals of the controller's gains."""
LATEST = 2**62
"""Latest time stamp that is believed, ns: the year 2116."""


class JointTable:
    """Collects the ``JointState`` messages of one topic."""

    def __init__(self, path: Path, topic: str) -> None:
        self.path, self.topic = path, topic
        self.joints: tuple[str, ...] = ()
        self.stamps: list[int] = []
        self.arrivals: list[int] = []
        self.rows = (array("d"), array("d"), array("d"))

    def add(self, message: Any, stamp: int, arrival: int) -> None:
        """Add a message with its header stamp and arrival time, ns.

        Raises:
            InputError: Joints differ from the earlier ones, or a list is too short.
            TypeError, ValueError: Names are no texts, or values no numbers.
        """
        names = tuple(message.name)
        if isinstance(message.name, str) or not all(isinstance(name, str) for name in names):
            raise TypeError(f"joint names {names!r:.80}, expected texts")
        if not self.joints:
            self.joints = names
            if len(set(names)) != len(names) or not names:
                raise InputError(f"{self.path}: {self.topic}: joint names are not unique: {names}.")
        elif names != self.joints:
            raise InputError(
                f"{self.path}: {self.topic}: message {len(self.stamps)} names joints {names}, "
                f"earlier ones {self.joints}. Record one robot per topic."
            )
        nothing = (np.nan,) * len(names)
        found: list[tuple[float, ...]] = []
        for kind in ("position", "velocity", "effort"):
            values = tuple(float(value) for value in getattr(message, kind))
            if values and len(values) != len(names):
                raise InputError(
                    f"{self.path}: {self.topic}: message {len(self.stamps)} has {len(values)} "
                    f"values of {kind}, expected {len(names)} or none."
                )
            found.append(values or nothing)
        # All or nothing: rows and stamps stay of one length.
        for rows, values in zip(self.rows, found, strict=True):
            rows.extend(values)
        self.stamps.append(stamp)
        self.arrivals.append(arrival)

    def arrays(self, joints: tuple[str, ...]) -> tuple[Array, list[Array]]:
        """Time (n,) s and the three arrays (n, joint) in the order of ``joints``."""
        missing = sorted(set(joints) - set(self.joints))
        if missing:
            raise InputError(f"{self.path}: {self.topic}: joints {missing} are missing.")
        order = [self.joints.index(joint) for joint in joints]
        stamps = believed(self.path, self.topic, self.stamps, self.arrivals)
        width = len(self.joints)
        values = [np.array(r, dtype=np.float64).reshape(-1, width)[:, order] for r in self.rows]
        stamps, values = ordered(self.path, self.topic, stamps, values)
        return seconds(stamps), values


def believed(path: Path, topic: str, stamps: list[int], arrivals: list[int]) -> Stamps:
    """Header stamps (n,) ns; the arrival times where the publisher fills in no stamp at all.

    Raises:
        InputError: Some stamps are zero and others are not, or none of both times is set.
    """
    header: Stamps = np.array(stamps, dtype=np.int64)
    empty = header == 0
    if not empty.all():
        # A first stamp of zero is a clock that counts from the start of the recording.
        if empty[1:].any():
            raise InputError(
                f"{path}: {topic}: {int(empty.sum())} of {len(header)} header stamps are zero "
                f"(message {int(np.flatnonzero(empty)[-1])}); the publisher has to fill in all of "
                "them, or none."
            )
        return header
    if not 0 <= min(arrivals) <= max(arrivals) <= LATEST:
        raise InputError(
            f"{path}: {topic}: header stamps are zero, and arrival times go from {min(arrivals)} "
            f"to {max(arrivals)} ns; expected 0 to {LATEST} ns. The file is damaged."
        )
    arrival: Stamps = np.array(arrivals, dtype=np.int64)
    if not arrival.any():
        raise InputError(
            f"{path}: {topic}: all {len(header)} messages have a zero header stamp, and no arrival "
            "time is recorded either; let the publisher set header.stamp."
        )
    warnings.warn(
        f"{path}: {topic}: all {len(header)} header stamps are zero; arrival times are used, which "
        "are late by an unknown, changing delay. Let the publisher set header.stamp.",
        CaptureWarning,
        stacklevel=2,
    )
    return arrival


def whole(nanoseconds: Array) -> Stamps:
    """Nearest whole nanoseconds."""
    return np.asarray(np.rint(nanoseconds), dtype=np.int64)


def seconds(stamps: Stamps) -> Array:
    """Stamps (n,) ns as s."""
    return stamps.astype(np.float64) * 1e-9


def ordered(
    path: Path, what: str, stamps: Stamps, values: list[Array]
) -> tuple[Stamps, list[Array]]:
    """Sort by stamp; drop repeated stamps, refuse a clock that jumps back a lot."""
    order = ordering(path, what, stamps)
    return stamps[order], [v[order] for v in values]


def ordering(path: Path, what: str, stamps: Stamps) -> NDArray[np.intp]:
    """Indices that sort by stamp and leave out repeated stamps (with a warning).

    Raises:
        InputError: The clock jumps back by over a second.
    """
    back = np.diff(stamps)
    if len(back) and back.min() < -LONGEST_BACK:
        worst = int(back.argmin())
        raise InputError(
            f"{path}: {what}: the clock jumps back by {-back[worst] * 1e-9:.1f} s after sample "
            f"{worst}. Are these two recordings in one file?"
        )
    order = np.argsort(stamps, kind="stable")
    keep: NDArray[np.intp] = order[np.append(True, np.diff(stamps[order]) > 0)]
    if len(keep) < len(stamps):
        warnings.warn(
            f"{path}: {what}: {len(stamps) - len(keep)} of {len(stamps)} samples repeat a stamp "
            "and are dropped.",
            CaptureWarning,
            stacklevel=2,
        )
    return keep


def nanoseconds(path: Path, what: str, values: Array, unit: str) -> Stamps:
    """Whole nanoseconds of a time column (n,), as in an MCAP file, so that both give equal times.

    Raises:
        InputError: A time is NaN or beyond all clocks, or the unit is implausible.
    """
    times = values * SECONDS[unit]
    bad = np.flatnonzero(~np.isfinite(times))
    if len(bad):
        raise InputError(f"{path}: {what}: time of sample {int(bad[0])} is {values[bad[0]]}.")
    step = float(np.median(np.abs(np.diff(times)))) if len(times) > 2 else 0.0
    if step > 60.0 or np.abs(times).max() > LATEST * 1e-9:
        raw = step / SECONDS[unit]
        guess = next((u for u in ("ms", "us", "ns") if raw * SECONDS[u] < 2.0), "ns")
        raise InputError(
            f"{path}: {what}: successive times differ by {raw:g} {unit}, and the last one is "
            f"{values[-1]:g} {unit}, which no robot's clock shows. In {guess}? Say `time_unit: "
            f"{guess}` in robot.yaml."
        )
    return whole(times * 1e9)


def from_columns(
    path: Path,
    joints: tuple[str, ...],
    stamps: Stamps,
    signals: Mapping[str, Array],
    mapping: LogMapping,
) -> tuple[RobotLog, ControlLog | None]:
    """Measured and control log of arrays that share one clock.

    Args:
        path: The log, for messages.
        joints: Joint names.
        stamps: Time of each row (n,) ns.
        signals: Arrays (n, joint) by kind (see ``mapping.KINDS``); ``position`` is needed.
        mapping: What ``robot.yaml`` says.
    """
    names = list(signals)
    stamps, arrays = ordered(path, "time", stamps, [signals[name] for name in names])
    values = dict(zip(names, arrays, strict=True))
    time = seconds(stamps)
    nothing = np.full(values["position"].shape, np.nan)
    position, speed, effort = (values.get(n, nothing) for n in TARGETS)
    told = np.isfinite(np.hstack([position, speed, effort])).any(axis=1)
    control = None
    if told.any():
        stiffness, damping = (values[n][told] if n in values else None for n in GAINS)
        control = ControlLog(
            joints,
            time[told],
            position[told],
            speed[told],
            effort[told],
            stiffness,
            damping,
            mapping.command_delay,
        )
    command = control.held(time) if control else nothing
    velocity, torque = values.get("velocity", nothing), values.get("effort", nothing)
    return RobotLog(joints, time, values["position"], velocity, torque, command), control
