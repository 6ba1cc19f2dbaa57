"""The robot log's files: same numbers in both, right clock, right noise, same bytes."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from mcap_ros2.reader import read_ros2_messages

from twinloop.hand.model import RobotModel
from twinloop.lab.robot_log import RobotLog, measure, write_csv, write_mcap
from twinloop.lab.spec import NoiseSpec
from twinloop.lab.world import Rollout

ROBOT = RobotModel.load("twinhand")
NOISE = NoiseSpec(clock_offset=0.043)


@pytest.fixture(scope="module")
def rollout() -> Rollout:
    """A smooth made-up motion of 2 s."""
    time = np.arange(600) / 300
    wave = np.sin(np.outer(time, np.linspace(1, 3, ROBOT.dof)))
    return Rollout(
        time=time,
        qpos=np.zeros((600, ROBOT.dof + 7)),
        sample_time=time,
        position=0.1 * wave,
        velocity=0.2 * wave,
        effort=0.3 * wave,
        command=0.11 * wave,
        contact_force=np.zeros((600, 3)),
    )


@pytest.fixture(scope="module")
def log(rollout: Rollout) -> RobotLog:
    """Its log."""
    return measure(ROBOT, rollout, NOISE, np.random.default_rng(0))


def test_noise_has_the_declared_size(rollout: Rollout, log: RobotLog) -> None:
    """Standard deviations of encoder and effort noise, and the clock offset."""
    assert np.std(log.position - rollout.position) == pytest.approx(NOISE.position, rel=0.05)
    share = (log.effort - rollout.effort) / ROBOT.effort_limits
    assert np.std(share) == pytest.approx(NOISE.effort, rel=0.05)
    np.testing.assert_allclose(log.time - rollout.sample_time, NOISE.clock_offset, atol=1e-9)
    np.testing.assert_allclose(log.command, rollout.command, atol=1e-7)


def test_mcap_and_csv_hold_the_same_numbers(log: RobotLog, tmp_path: Path) -> None:
    """Every sample of both files, by name and by header stamp."""
    write_csv(tmp_path / "robot.csv", log)
    write_mcap(tmp_path / "robot.mcap", log)
    with (tmp_path / "robot.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    states, commands = [], []
    for message in read_ros2_messages(str(tmp_path / "robot.mcap")):
        target = states if message.channel.topic == "/joint_states" else commands
        target.append(message.ros_msg)
    assert len(rows) == len(states) == len(commands) == len(log.time)
    for k in (0, 17, len(rows) - 1):
        stamp = states[k].header.stamp
        assert stamp.sec + 1e-9 * stamp.nanosec == pytest.approx(float(rows[k]["time"]), abs=1e-9)
        assert list(states[k].name) == list(ROBOT.joint_names)
        for j, joint in enumerate(ROBOT.joint_names):
            for kind in ("position", "velocity", "effort"):
                value = getattr(states[k], kind)[j]
                assert value == pytest.approx(float(rows[k][f"{kind}_{joint}"]), abs=1e-9)
            value = commands[k].position[j]
            assert value == pytest.approx(float(rows[k][f"command_{joint}"]), abs=1e-9)


def test_same_log_gives_the_same_bytes(log: RobotLog, tmp_path: Path) -> None:
    """No wall-clock time enters either file."""
    for name, write in (("a.csv", write_csv), ("a.mcap", write_mcap)):
        write(tmp_path / name, log)
        first = (tmp_path / name).read_bytes()
        write(tmp_path / name, log)
        assert (tmp_path / name).read_bytes() == first
