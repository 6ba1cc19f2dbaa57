"""Contact force from efforts and the clock offset, against made-up pushes with known answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.tracking.push_log import RATE, MadeUpPush, made_up_push, object_poses
from twinloop.errors import InputError
from twinloop.hand.model import RobotModel
from twinloop.tracking.clock import Offset, combine, estimate_offset
from twinloop.tracking.contact_force import separate
from twinloop.tracking.joint_signals import (
    JointSignals,
    gaussian_kernels,
    joint_signals,
    order_joints,
    smooth,
    uniform,
)

HERE = Path("robot.csv")


@pytest.fixture(scope="module")
def robot() -> RobotModel:
    """The shipped robot."""
    return RobotModel.load("twinhand")


def signals_of(robot: RobotModel, push: MadeUpPush) -> JointSignals:
    """Smoothed signals of a made-up push."""
    columns = (push.position, push.velocity, push.effort, push.position)
    return joint_signals(
        robot,
        np.eye(4),
        "index_tip",
        push.time,
        *columns,
        rate=RATE,
        sigma=0.008,
        where=HERE,
    )


def test_kernels_are_exact_on_lines() -> None:
    """Smoothing keeps a line; the derivative kernel gives its slope."""
    dt = 1 / 300
    g, d = gaussian_kernels(dt, 0.01)
    line = (3.0 + 2.0 * np.arange(200) * dt)[:, None]
    assert smooth(line, g, slope=True) == pytest.approx(line, abs=1e-12)
    assert smooth(line, d, slope=True) == pytest.approx(2.0, abs=1e-9)


def test_force_and_friction_are_recovered(robot: RobotModel) -> None:
    """Push force within 4 %, impulse within 3 %, arm friction within 15 %, honest deviations."""
    pushes = [made_up_push(robot, seed) for seed in (0, 1)]
    signals = [signals_of(robot, p) for p in pushes]
    model, forces = separate(robot, signals, "index_tip", margin=0.04, still=0.25)
    arm = robot.index("arm_x")
    coulomb, _ = robot.joint_friction[arm]
    assert model.value[arm, 2] == pytest.approx(0.8 * coulomb, rel=0.25)
    for push, found in zip(pushes, forces, strict=True):
        pushing = (push.time > 0.8) & (push.time < 1.0)
        assert found.force[pushing, 0].mean() == pytest.approx(1.5, rel=0.04)
        assert found.force[:, 0].sum() == pytest.approx(push.force[:, 0].sum(), rel=0.03)
        error = (found.force - push.force) / found.std
        assert 0.1 < np.sqrt((error[pushing] ** 2).mean()) < 2.0
        assert found.touching[pushing].all()
        assert not found.touching[push.time < 0.6].any()


@pytest.mark.parametrize("offset", [-0.1, -0.013, 0.043, 0.1])
def test_clock_offset_within_3_ms(robot: RobotModel, offset: float) -> None:
    """From contact alone, with 0.3 mm pose noise and dropped frames, at offsets up to 100 ms."""
    rng = np.random.default_rng(3)
    push = made_up_push(robot)
    frame_time = np.arange(0.0, 1.75, 1 / 60)
    frame_time = frame_time[rng.random(len(frame_time)) > 0.05]
    poses = object_poses(push, frame_time)
    poses[:, :3, 3] += rng.normal(0, 0.0003, (len(poses), 3))
    found = estimate_offset(
        push.time + offset,
        push.tip,
        push.force,
        push.contact,
        frame_time,
        poses,
        np.ones(len(poses), np.bool_),
        largest=0.15,
        sigma=0.0005,
    )
    assert found is not None
    assert found.value == pytest.approx(offset, abs=0.003)
    assert abs(found.value - offset) < 4 * found.std
    assert found.std < 0.01


def test_no_contact_gives_no_offset(robot: RobotModel) -> None:
    """A push that touches nothing says nothing of the clocks."""
    push = made_up_push(robot)
    times = np.arange(0.0, 1.75, 1 / 60)
    nothing = np.zeros(len(push.time), np.bool_)
    found = estimate_offset(
        push.time,
        push.tip,
        0 * push.force,
        nothing,
        times,
        object_poses(push, times),
        np.ones(len(times), np.bool_),
        largest=0.15,
        sigma=0.0005,
    )
    assert found is None


def test_combining_offsets() -> None:
    """Pushes that agree share; an outlier keeps its own; unknown ones get the mean with doubt."""
    offsets = [Offset(0.043, 0.001, 1e-4), Offset(0.0435, 0.001, 1e-4), Offset(0.2, 0.001, 1e-4)]
    found = combine([*offsets, None], floor=5e-4, fallback=0.1)
    assert found[0].value == found[1].value == pytest.approx(0.04325, abs=0.003)
    assert found[2].value == pytest.approx(0.2)
    assert found[3].std > found[0].std
    assert combine([None], floor=5e-4, fallback=0.1)[0].std == pytest.approx(0.1)


def test_bad_logs_are_refused(robot: RobotModel) -> None:
    """Missing joints, a gap, and values that are not numbers are named."""
    with pytest.raises(InputError, match="arm_x"):
        order_joints(robot, robot.joint_names[1:], np.zeros((5, robot.dof - 1)), HERE)
    time = np.arange(100) / 300
    values = np.zeros((100, 2))
    with pytest.raises(InputError, match="without a sample"):
        uniform(time + 0.5 * (np.arange(100) > 50), [values], 300.0, HERE)
    values[7, 1] = np.nan
    with pytest.raises(InputError, match="sample 7, column 1"):
        uniform(time, [values], 300.0, HERE)
    with pytest.raises(InputError, match="do not increase"):
        uniform(np.zeros(100), [values], 300.0, HERE)
