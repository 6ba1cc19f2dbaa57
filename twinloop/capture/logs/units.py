"""Units of a log: converted to SI as declared, then held against the robot's limits.

A log in other units than declared still looks like a log.  What gives it away is physics: a joint
cannot leave its limits, its velocity is the slope of its position, and its drive has a largest
effort.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from twinloop.capture.logs.mapping import LogMapping
from twinloop.capture.logs.streams import Capture, ControlLog, RobotLog
from twinloop.capture.warning import CaptureWarning
from twinloop.errors import InputError
from twinloop.hand.model import Joint, RobotModel

Array = NDArray[np.float64]

SLACK = 0.05
"""Part of a joint's range by which it may seem to leave its limits: zeroing and elasticity."""
LEAST_UNIT = 3.0
"""Times the limits from which on a position is put down to its unit rather than to its zero."""
LARGEST_EFFORT = 3.0
"""Largest measured effort by the model's largest: peaks in contact exceed a drive's limit."""
LEAST_MOTION = 0.02
"""Part of a joint's range that it has to move for its velocity to be judged."""
LARGEST_RATIO = 2.0
"""Largest ratio, or inverse ratio, of velocity and slope of position."""
LEAST_CORRELATION = 0.9
"""Correlation of integrated velocity and position from which their ratio means something."""
LEAST_LIKENESS = 0.3
"""Correlation below which velocity and position are not of one joint."""
SUSPECTS = {
    "revolute": (("degrees", np.pi / 180, "angle_unit: deg"),),
    "prismatic": (("millimetres", 1e-3, "length_unit: mm"),),
}
"""Units that a joint's values may be in by mistake, as a factor to SI, and how to declare them."""
EFFORT_FACTORS = {"N_or_Nm": 1.0, "mN_or_mNm": 1e-3, "A": 1.0, "mA": 1e-3}


def in_si(capture: Capture, mapping: LogMapping, robot: RobotModel, path: Path) -> Capture:
    """The capture with the model's joint names and SI units, checked for plausibility.

    Args:
        capture: As the log holds it.
        mapping: The units that ``robot.yaml`` declares.
        robot: The robot's limits; joints it does not know are left out of the checks, but must not
            need a conversion.
        path: The log, for messages.

    Raises:
        InputError: See :func:`check_log`; or a joint's kind or torque constant is not known.
    """
    states, control = capture.states, capture.control
    if states is None:
        return capture
    joints = tuple(mapping.rename.get(name, name) for name in states.joints)
    if len(set(joints)) != len(joints):
        raise InputError(f"{path}: after `rename` of robot.yaml two joints are alike: {joints}.")
    motion, effort = factors(joints, mapping, robot, path)
    states = replace(
        states,
        joints=joints,
        position=states.position * motion,
        velocity=states.velocity * motion,
        effort=states.effort * effort,
        command=states.command * motion,
    )
    if control is not None:
        # Gains are the controller's, effort by motion.
        gain = effort / motion
        control = replace(
            control,
            joints=joints,
            position=control.position * motion,
            velocity=control.velocity * motion,
            effort=control.effort * effort,
            stiffness=None if control.stiffness is None else control.stiffness * gain,
            damping=None if control.damping is None else control.damping * gain,
        )
    states = replace(states, velocity=_measured(states, path))
    check_log(states, control, robot, path, capture.named)
    return replace(capture, states=states, control=control)


def _measured(states: RobotLog, path: Path) -> Array:
    """Velocities (sample, joint); NaN where a driver fills in zeros for what it cannot measure."""
    zero = (states.velocity == 0).all(axis=0) & (np.ptp(states.position, axis=0) > 0)
    if not zero.any():
        return states.velocity
    names = [name for name, empty in zip(states.joints, zero, strict=True) if empty]
    warnings.warn(
        f"{path}: the velocities of {names} are zero throughout although they move; they are taken "
        "for not measured.",
        CaptureWarning,
        stacklevel=2,
    )
    return np.where(zero, np.nan, states.velocity)


def factors(
    joints: tuple[str, ...], mapping: LogMapping, robot: RobotModel, path: Path
) -> tuple[Array, Array]:
    """Factors to SI of motions and of efforts, (joint,) each."""
    known = {joint.name: joint for joint in robot.joints}
    to_si = {
        "revolute": np.pi / 180 if mapping.angle_unit == "deg" else 1.0,
        "prismatic": 1e-3 if mapping.length_unit == "mm" else 1.0,
    }
    plain = all(factor == 1.0 for factor in to_si.values())
    strange = [name for name in joints if name not in known]
    if strange and not plain:
        raise InputError(
            f"{path}: whether joints {strange} turn or slide is not known, so that their units "
            f"cannot be converted; the robot {robot.name} has {list(robot.joint_names)}. Map names "
            "with `rename` in robot.yaml."
        )
    motion = [to_si[known[name].type] if name in known else 1.0 for name in joints]
    effort = np.full(len(joints), EFFORT_FACTORS[mapping.effort_unit])
    if mapping.effort_unit in ("A", "mA"):
        constant = mapping.torque_constant
        for k, name in enumerate(joints):
            if isinstance(constant, dict):
                if name not in constant:
                    raise InputError(
                        f"{path}: robot.yaml gives no torque_constant of joint {name}; efforts are "
                        f"declared in {mapping.effort_unit}."
                    )
                effort[k] *= constant[name]
            elif constant is not None:
                effort[k] *= constant
    return np.array(motion), effort


def check_log(
    states: RobotLog,
    control: ControlLog | None,
    robot: RobotModel,
    path: Path,
    named: bool = True,
) -> None:
    """Refuse a log that cannot be this robot's in SI units.

    Raises:
        InputError: A position beyond the limits, a velocity that is not the position's slope, an
            effort beyond the drive's; names joint, value, limit and the likely reason.
    """
    known = {joint.name: joint for joint in robot.joints}
    for k, name in enumerate(states.joints):
        if joint := known.get(name):
            _check_range(joint, states.position, k, path, "", named, robot)
            if control is not None:
                _check_range(joint, control.position, k, path, "commanded ", named, robot)
    # Ranges first: they tell the likely reason, of which the rest may be a consequence.
    for k, name in enumerate(states.joints):
        if joint := known.get(name):
            _check_slope(joint, states, k, path)
            _check_effort(joint, states.effort[:, k], path)


def _check_range(
    joint: Joint, values: Array, k: int, path: Path, what: str, named: bool, robot: RobotModel
) -> None:
    column = values[:, k]
    column = column[np.isfinite(column)]
    if not len(column) or _fits(joint, column):
        return
    middle = 0.5 * (joint.lower + joint.upper)
    worst = float(column[np.abs(column - middle).argmax()])
    unit = "rad" if joint.type == "revolute" else "m"
    largest = LEAST_UNIT * max(abs(joint.lower), abs(joint.upper))
    hints = [
        f"in {name}? Then say `{declare}` in robot.yaml"
        for name, factor, declare in SUSPECTS[joint.type]
        if abs(worst) > largest and _fits(joint, column * factor)
    ]
    if not named:
        fitting = [other.name for other in robot.joints if _fits(other, column)]
        hints.append(
            f"the log does not name its joints, and column {k} is this one by joint_order; its "
            f"values would fit {fitting or 'no joint'}: is the order right?"
        )
    raise InputError(
        f"{path}: {what}position of joint {joint.name} reads {worst:.4g}, its limits are "
        f"{joint.lower:g} .. {joint.upper:g} {unit}: "
        + (" Or: ".join(hints) if hints else "is this the robot of robot.yaml, zeroed?")
        + "."
    )


def _fits(joint: Joint, values: Array) -> bool:
    slack = SLACK * (joint.upper - joint.lower)
    return bool(values.min() >= joint.lower - slack and values.max() <= joint.upper + slack)


def _check_effort(joint: Joint, values: Array, path: Path) -> None:
    values = values[np.isfinite(values)]
    largest = float(np.abs(values).max()) if len(values) else 0.0
    if largest > LARGEST_EFFORT * joint.effort:
        unit = "N m" if joint.type == "revolute" else "N"
        raise InputError(
            f"{path}: effort of joint {joint.name} reaches {largest:.4g}, {LARGEST_EFFORT:g} times "
            f"its largest of {joint.effort:g} {unit} is {LARGEST_EFFORT * joint.effort:.4g}. In "
            "milli-units, or a motor current? Say effort_unit (and torque_constant) in robot.yaml."
        )


def _check_slope(joint: Joint, states: RobotLog, k: int, path: Path) -> None:
    """Hold the integral of the velocity against the position, both without their linear trend.

    Integrals are compared and not slopes, since differences of encoder counts are mostly noise; a
    trend is left out, since a small bias of the velocity makes one.
    """
    position, velocity = states.position[:, k], states.velocity[:, k]
    told = np.isfinite(position) & np.isfinite(velocity)
    if told.sum() < 20:
        return
    time, position, velocity = states.time[told], position[told], velocity[told]
    steps = np.diff(time) * 0.5 * (velocity[1:] + velocity[:-1])
    travelled = _without_trend(time, np.concatenate([[0.0], np.cumsum(steps)]))
    moved = _without_trend(time, position)
    if np.ptp(moved) < LEAST_MOTION * (joint.upper - joint.lower):
        return
    power, own = float(moved @ moved), float(travelled @ travelled)
    correlation = float(travelled @ moved) / np.sqrt(max(power * own, 1e-300))
    ratio = np.sqrt(own / power)
    if correlation < -LEAST_CORRELATION:
        raise InputError(
            f"{path}: velocity of joint {joint.name} has the opposite sign of its position's slope "
            f"(correlation {correlation:.2f}); one of both is measured the other way round."
        )
    if correlation < LEAST_LIKENESS:
        raise InputError(
            f"{path}: velocity of joint {joint.name} has nothing to do with its position "
            f"(correlation {correlation:.2f}, expected over {LEAST_CORRELATION}); are the columns "
            "of two joints swapped?"
        )
    if correlation > LEAST_CORRELATION and not 1 / LARGEST_RATIO < ratio < LARGEST_RATIO:
        raise InputError(
            f"{path}: velocity of joint {joint.name} is {ratio:.3g} x its position's slope, "
            "expected 1. Units of angles (57.3), lengths (1000) or times may be mixed; declare "
            "time_unit, or convert the velocities."
        )


def _without_trend(time: Array, values: Array) -> Array:
    t = time - time.mean()
    v = values - values.mean()
    return np.asarray(v - t * float(t @ v) / max(float(t @ t), 1e-300))
