"""Units and joint order are declared, converted, and held against the robot's limits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from twinloop.capture.logs.mapping import LogMapping
from twinloop.capture.logs.streams import Capture, ControlLog, RobotLog
from twinloop.capture.logs.units import in_si
from twinloop.capture.warning import CaptureWarning
from twinloop.errors import InputError
from twinloop.hand.model import RobotModel

PATH = Path("robot.mcap")
ROBOT = RobotModel.load("twinhand")
JOINTS = ("arm_x", "arm_z", "index_1")
STIFFNESS = 8.0


def capture(joints: tuple[str, ...] = JOINTS, noise: float = 2e-5) -> Capture:
    """A log in SI units: encoders with noise, velocities that drives estimate, smooth motion."""
    rng = np.random.default_rng(0)
    time = np.arange(600) / 300
    middle, swing = np.array([0.0, 0.4, 0.5]), np.array([0.3, 0.2, 0.8])
    pulse = np.array([3.0, 9.0, 5.0])
    phase = time[:, None] * pulse
    position = middle + swing * np.sin(phase) + noise * rng.normal(size=(600, 3))
    velocity = swing * pulse * np.cos(phase) + 40 * noise * rng.normal(size=(600, 3))
    effort = np.array([10.0, 12.0, 0.5]) * np.cos(phase)
    gains = np.full((600, 3), STIFFNESS)
    control = ControlLog(joints, time, position, velocity, effort, gains, 0.1 * gains)
    states = RobotLog(joints, time, position, velocity, effort, control.held(time))
    return Capture(states, control)


def turned(log: Capture, **changes) -> Capture:
    """The log with other arrays in its states."""
    return replace(log, states=replace(log.states, **changes))


def mapping(**fields) -> LogMapping:
    """Part of a robot.yaml."""
    return LogMapping.model_validate(fields)


def test_si_passes_unchanged() -> None:
    """Nothing is changed in a log that is what it says."""
    log = capture()
    found = in_si(log, mapping(), ROBOT, PATH)
    for kind in ("position", "velocity", "effort", "command"):
        np.testing.assert_array_equal(getattr(found.states, kind), getattr(log.states, kind))
    np.testing.assert_array_equal(found.control.stiffness, STIFFNESS)


def test_declared_units_are_converted() -> None:
    """Degrees, millimetres and motor currents, by the kind of joint; gains follow both."""
    si = capture()
    motion = np.array([1e3, 1e3, 180 / np.pi])
    current = 1e3 / np.array([2.0, 2.0, 0.05])
    states = replace(
        si.states,
        joints=("x", "z", "knuckle"),
        position=si.states.position * motion,
        velocity=si.states.velocity * motion,
        effort=si.states.effort * current,
        command=si.states.command * motion,
    )
    control = replace(
        si.control,
        joints=states.joints,
        position=si.control.position * motion,
        velocity=si.control.velocity * motion,
        effort=si.control.effort * current,
        stiffness=si.control.stiffness * current / motion,
        damping=si.control.damping * current / motion,
    )
    declared = mapping(
        angle_unit="deg",
        length_unit="mm",
        effort_unit="mA",
        torque_constant={"arm_x": 2.0, "arm_z": 2.0, "index_1": 0.05},
        rename={"x": "arm_x", "z": "arm_z", "knuckle": "index_1"},
    )
    found = in_si(Capture(states, control), declared, ROBOT, PATH)
    assert found.states.joints == found.control.joints == JOINTS
    for kind in ("position", "velocity", "effort", "command"):
        np.testing.assert_allclose(getattr(found.states, kind), getattr(si.states, kind))
    for kind in ("position", "velocity", "effort", "stiffness", "damping"):
        np.testing.assert_allclose(getattr(found.control, kind), getattr(si.control, kind))


def test_degrees_for_radians() -> None:
    """The value, the limits and the likely unit are said."""
    log = capture()
    degrees = log.states.position * [1, 1, 180 / np.pi]
    words = (
        r"position of joint index_1 reads 74\.\d+, its limits are -0.8 .. 1.75 rad: in degrees\? "
        "Then say `angle_unit: deg`"
    )
    with pytest.raises(InputError, match=words):
        in_si(turned(log, position=degrees), mapping(), ROBOT, PATH)


def test_millimetres_for_metres_and_commands() -> None:
    """Sliding joints, and the control log apart from the measured one."""
    log = capture()
    with pytest.raises(InputError, match=r"arm_x reads .* -0.6 .. 0.6 m: in millimetres\?"):
        in_si(turned(log, position=log.states.position * 1e3), mapping(), ROBOT, PATH)
    control = replace(log.control, position=log.control.position * [1, 1e3, 1])
    with pytest.raises(InputError, match="commanded position of joint arm_z"):
        in_si(replace(log, control=control), mapping(), ROBOT, PATH)


def test_another_robot() -> None:
    """Values that no unit explains."""
    log = capture()
    with pytest.raises(InputError, match="is this the robot of robot\\.yaml, zeroed"):
        in_si(turned(log, position=log.states.position + 1), mapping(), ROBOT, PATH)


def test_swapped_joint_order() -> None:
    """Where the log names no joints, a wrong order shows in the limits; what fits is listed."""
    log = replace(capture(joints=("index_1", "arm_z", "arm_x")), named=False)
    with pytest.raises(InputError, match=r"column 2 is this one by joint_order.*'index_1'.*order"):
        in_si(log, mapping(), ROBOT, PATH)


@pytest.mark.parametrize(
    ("factor", "words"),
    [
        (180 / np.pi, r"velocity of joint index_1 is 57\.3 x its position's slope"),
        (1e-3, r"is 0\.001 x its position's slope"),
        (-1.0, "has the opposite sign"),
    ],
)
def test_velocity_is_the_slope_of_position(factor: float, words: str) -> None:
    """Wrong units or sign of the velocity alone."""
    log = capture()
    with pytest.raises(InputError, match=words):
        in_si(turned(log, velocity=log.states.velocity * [1, 1, factor]), mapping(), ROBOT, PATH)


def test_velocities_of_swapped_columns() -> None:
    """Another joint's velocity."""
    log = capture()
    with pytest.raises(InputError, match="has nothing to do with its position"):
        in_si(turned(log, velocity=log.states.velocity[:, [1, 0, 2]]), mapping(), ROBOT, PATH)


def test_zeros_for_velocities_that_are_not_measured() -> None:
    """Drivers without tachometers fill in zeros: taken for missing, and said."""
    log = capture()
    empty = turned(log, velocity=log.states.velocity * [1, 0, 1])
    with pytest.warns(CaptureWarning, match=r"velocities of \['arm_z'\] are zero throughout"):
        velocity = in_si(empty, mapping(), ROBOT, PATH).states.velocity
    assert np.isnan(velocity).all(axis=0).tolist() == [False, True, False]


@pytest.mark.parametrize("bias", [0.0, 0.02])
@pytest.mark.parametrize("swing", [0.0, 1e-3, 1.0])
def test_noise_and_bias_are_no_units(bias: float, swing: float) -> None:
    """Joints at rest, slow ones, noisy encoders and biased velocities pass."""
    log = capture(noise=2e-4)
    start = log.states.position[:1]
    moved = turned(
        log,
        position=start
        + swing * (log.states.position - start)
        + 1e-4 * np.random.default_rng(2).normal(size=(600, 3)),
        velocity=swing * log.states.velocity
        + 0.008 * np.random.default_rng(1).normal(size=(600, 3))
        + bias,
    )
    in_si(moved, mapping(), ROBOT, PATH)


def test_efforts_in_milli_units() -> None:
    """Beyond three times what the drive can do."""
    log = capture()
    words = "effort of joint arm_x reaches 1e\\+04, 3 times its largest of 40 N is 120"
    with pytest.raises(InputError, match=words):
        in_si(turned(log, effort=log.states.effort * 1e3), mapping(), ROBOT, PATH)


def test_joints_that_cannot_be_converted() -> None:
    """Unknown joints pass in SI, not in other units; a torque constant is needed for each."""
    log = capture(joints=("arm_x", "arm_z", "gripper"))
    in_si(log, mapping(), ROBOT, PATH)
    with pytest.raises(InputError, match=r"\['gripper'\] turn or slide is not known"):
        in_si(log, mapping(angle_unit="deg"), ROBOT, PATH)
    with pytest.raises(InputError, match="no torque_constant of joint arm_z"):
        in_si(log, mapping(effort_unit="A", torque_constant={"arm_x": 1.0}), ROBOT, PATH)
    with pytest.raises(InputError, match="two joints are alike"):
        in_si(log, mapping(rename={"gripper": "arm_x"}), ROBOT, PATH)
