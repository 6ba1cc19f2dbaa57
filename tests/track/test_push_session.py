"""A capture's robot.yaml names a shipped robot and cannot reach out of the capture."""

import pytest
from pydantic import ValidationError

from twinloop.capture.push_session import RobotFile


@pytest.mark.parametrize("robot", ["../evil.yaml", "/etc/passwd", "a/b", "Twin Hand", ""])
def test_a_path_as_robot_is_refused(robot):
    """Only a plain name is taken: a path from another team's capture is not followed."""
    with pytest.raises(ValidationError, match="robot"):
        RobotFile(robot=robot, tip="index_tip", log_rate=300.0, effort_unit="N_or_Nm")


def test_a_name_is_taken():
    """The name of a shipped model passes."""
    found = RobotFile(robot="twinhand", tip="index_tip", log_rate=300.0, effort_unit="N_or_Nm")
    assert found.robot == "twinhand"
