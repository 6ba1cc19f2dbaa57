"""Which log a push has, and what robot.yaml says about it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from twinloop.capture.camera_yaml import read_model
from twinloop.capture.push_session import LOGS, PushSession, RobotFile
from twinloop.errors import InputError


def session(folder: Path) -> PushSession:
    """A session without its YAML files."""
    return PushSession(folder, camera=None, board=None, robot=None, pushes=())  # type: ignore[arg-type]


def test_the_first_log_that_exists_is_taken(tmp_path: Path) -> None:
    """Each kind of log by its name; the folder is a bag or data set; none is an error."""
    push = tmp_path / "push_000"
    push.mkdir()
    with pytest.raises(InputError, match=r"robot\.mcap: no such file, and none of robot\.csv"):
        session(tmp_path).log("push_000")
    for name in reversed(LOGS):
        path = push / name
        if path.suffix:
            path.write_bytes(b"x")
        else:
            path.mkdir()
        assert session(tmp_path).log("push_000") == path


def test_robot_yaml_maps_the_log(tmp_path: Path) -> None:
    """Log fields stand beside the robot's; a wrong one is named with its value."""
    path = tmp_path / "robot.yaml"
    content = {"robot": "twinhand", "tip": "index_tip", "log_rate": 300, "angle_unit": "deg"}
    path.write_text(yaml.safe_dump({**content, "topics": {"states": "/arm"}}))
    robot = read_model(path, RobotFile)
    assert (robot.angle_unit, robot.topics.states, robot.effort_unit) == ("deg", "/arm", "N_or_Nm")
    path.write_text(yaml.safe_dump({**content, "angle_unit": "grad"}))
    with pytest.raises(InputError, match=r"angle_unit: .*found 'grad'") as caught:
        read_model(path, RobotFile)
    assert str(path) in str(caught.value)
