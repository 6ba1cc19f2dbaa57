"""A capture's robot.yaml names a shipped robot and cannot reach out of the capture."""

import pytest
from pydantic import ValidationError

from twinloop.capture.board import Pose
from twinloop.capture.camera_yaml import CameraFile
from twinloop.capture.push_session import PushList, RobotFile


@pytest.mark.parametrize("robot", ["../evil.yaml", "/etc/passwd", "a/b", "Twin Hand", ""])
def test_a_path_as_robot_is_refused(robot):
    """Only a plain name is taken: a path from another team's capture is not followed."""
    with pytest.raises(ValidationError, match="robot"):
        RobotFile(robot=robot, tip="index_tip", log_rate=300.0, effort_unit="N_or_Nm")


def test_a_name_is_taken():
    """The name of a shipped model passes."""
    found = RobotFile(robot="twinhand", tip="index_tip", log_rate=300.0, effort_unit="N_or_Nm")
    assert found.robot == "twinhand"


def test_all_pushes_held_out_is_refused():
    """A list that leaves nothing to identify from says so at once."""
    with pytest.raises(ValidationError, match="every push is held_out"):
        PushList.model_validate({"pushes": [{"name": "push_000", "held_out": True}]})


def test_nan_and_infinity_are_no_numbers_in_captures():
    """NaN would pass every comparison: it is refused where it is read."""
    with pytest.raises(ValidationError, match="finite"):
        Pose(quaternion_wxyz=(float("nan"), 0.0, 0.0, 0.0))
    with pytest.raises(ValidationError, match="finite"):
        CameraFile(width=9, height=9, intrinsics=(float("inf"), 1.0, 1.0, 1.0))
