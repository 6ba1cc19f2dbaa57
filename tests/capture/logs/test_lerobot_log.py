"""Joint signals of LeRobot data sets that LeRobot itself wrote."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from twinloop.capture.robot_log import LogMapping, read_capture_log, read_robot_log
from twinloop.capture.warning import CaptureWarning
from twinloop.errors import InputError

pytest.importorskip("pyarrow", reason="LeRobot's tables are Parquet: needs pyarrow")

DATA = Path(__file__).parents[2] / "data"
VERSIONS = ("lerobot_v2", "lerobot_v3")
STEPS = np.arange(10)
STATE = np.stack([0.1 * STEPS, -0.05 * STEPS, np.ones(10)], axis=1)
"""What episode 1 was given; actions are 0.01 more, samples 0.1 s apart."""


@pytest.mark.parametrize("name", VERSIONS)
def test_states_and_actions_by_name(name: str) -> None:
    """Names lose LeRobot's suffix; actions are commands."""
    capture = read_capture_log(DATA / name, LogMapping(episode=1))
    assert capture.states.joints == ("shoulder", "elbow", "gripper")
    assert capture.named
    np.testing.assert_allclose(capture.states.time, 0.1 * STEPS, atol=1e-6)
    np.testing.assert_allclose(capture.states.position, STATE, atol=1e-6)
    np.testing.assert_allclose(capture.control.position, STATE + 0.01, atol=1e-6)
    assert np.isnan(capture.states.effort).all()


def test_columns_by_map() -> None:
    """By name and by place."""
    columns = {
        "position_lift": "observation.state.elbow.pos",
        "position_turn": "observation.state[0]",
        "command_turn": "action.shoulder.pos",
    }
    mapping = LogMapping(columns=columns, episode=1)
    capture = read_capture_log(DATA / "lerobot_v3", mapping)
    assert capture.states.joints == ("lift", "turn")
    np.testing.assert_allclose(capture.states.position, STATE[:, [1, 0]], atol=1e-6)
    np.testing.assert_allclose(capture.control.position[:, 1], STATE[:, 0] + 0.01, atol=1e-6)
    assert np.isnan(capture.control.position[:, 0]).all()
    for name, place in (("position_lift", "observation.state.knee"), ("effort_knee", "action[0]")):
        mapping = LogMapping(columns={**columns, name: place})
        with pytest.raises(InputError, match=f"maps {name} to"):
            read_robot_log(DATA / "lerobot_v3", mapping)


def test_other_names(tmp_path: Path) -> None:
    """Without names joint_order is needed; actions of other joints are left out, and said."""
    folder = Path(shutil.copytree(DATA / "lerobot_v2", tmp_path / "robot"))
    info = json.loads((folder / "meta" / "info.json").read_text())
    info["features"]["action"]["names"] = ["x", "y", "z"]
    (folder / "meta" / "info.json").write_text(json.dumps(info))
    with pytest.warns(CaptureWarning, match="no command is read"):
        assert read_capture_log(folder).control is None
    for feature in ("observation.state", "action"):
        info["features"][feature]["names"] = None
    (folder / "meta" / "info.json").write_text(json.dumps(info))
    with pytest.raises(InputError, match="names 0 joints in joint_order"):
        read_robot_log(folder)
    capture = read_capture_log(folder, LogMapping(joint_order=("a", "b", "c")))
    assert not capture.named
    assert capture.control.joints == ("a", "b", "c")


def test_cut_parquet(tmp_path: Path) -> None:
    """The index of a Parquet file is at its end: nothing can be saved, and the file is named."""
    folder = Path(shutil.copytree(DATA / "lerobot_v3", tmp_path / "robot"))
    (path,) = (folder / "data").rglob("*.parquet")
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        read_robot_log(folder)
