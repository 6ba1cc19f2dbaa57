"""Tables with other names, units and separators, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from twinloop.capture.robot_log import LogMapping, read_capture_log, read_robot_log
from twinloop.errors import InputError


def mapping(**fields) -> LogMapping:
    """Part of a robot.yaml."""
    return LogMapping.model_validate(fields)


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_separators_and_byte_order_mark(tmp_path: Path, separator: str, mark: str) -> None:
    """Spreadsheets write semicolons, tabs and a mark at the begin."""
    path = tmp_path / "robot.csv"
    rows = [["time", "position_a", "effort_a"], ["0.5", "1.25", "-3"], ["0.75", "1.5", ""]]
    path.write_text(mark + "\r\n".join(separator.join(row) for row in rows) + "\r\n")
    log = read_robot_log(path)
    np.testing.assert_array_equal(log.time, [0.5, 0.75])
    np.testing.assert_array_equal(log.position[:, 0], [1.25, 1.5])
    np.testing.assert_array_equal(log.effort[:, 0], [-3, np.nan])


def test_columns_by_map(tmp_path: Path) -> None:
    """Foreign names, nanoseconds, commands and gains of their own, other columns left out."""
    path = tmp_path / "robot.csv"
    path.write_text(
        "t_ns,q0,q1,q0_des,tau_ff,kp,mode\n"
        "1790000000000000000,0.1,0.2,,,,1\n"
        "1790000000004000000,0.3,0.4,0.5,0.25,80,1\n"
        "1790000000008000000,0.5,0.6,,,,1\n"
    )
    columns = {
        "time": "t_ns",
        "position_elbow": "q1",
        "position_wrist": "q0",
        "command_wrist": "q0_des",
        "command_effort_wrist": "tau_ff",
        "stiffness_wrist": "kp",
    }
    capture = read_capture_log(path, mapping(columns=columns, time_unit="ns", command_delay=0.002))
    states, control = capture.states, capture.control
    assert states.joints == control.joints == ("elbow", "wrist")
    np.testing.assert_allclose(np.diff(states.time), 0.004, atol=1e-6)
    np.testing.assert_array_equal(states.position, [[0.2, 0.1], [0.4, 0.3], [0.6, 0.5]])
    np.testing.assert_array_equal(control.time, states.time[1:2])
    np.testing.assert_array_equal(control.position, [[np.nan, 0.5]])
    np.testing.assert_array_equal(control.effort, [[np.nan, 0.25]])
    np.testing.assert_array_equal(control.stiffness, [[np.nan, 80]])
    assert (control.damping, control.delay) == (None, 0.002)
    # 2 ms after its stamp at 4 ms: not yet in force there.
    np.testing.assert_array_equal(states.command[:, 1], [np.nan, np.nan, 0.5])


def test_wrench_columns(tmp_path: Path) -> None:
    """A force-torque sensor's table, alone and slower than the joints."""
    path = tmp_path / "robot.csv"
    header = "time,force_x,force_y,force_z,torque_x,torque_y,torque_z"
    path.write_text(f"{header}\n0,1,2,3,4,5,6\n1,,,,,,\n2,7,8,9,1,2,3\n")
    capture = read_capture_log(path)
    assert capture.states is None
    np.testing.assert_array_equal(capture.wrench.time, [0, 2])
    np.testing.assert_array_equal(capture.wrench.torque, [[4, 5, 6], [1, 2, 3]])
    with pytest.raises(InputError, match="no joint states"):
        read_robot_log(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("time;position_a\n0,5;1,5\n", "decimal commas"),
        ("time,position_a\n0,5,1,5\n0,6,1,6\n", "decimal commas"),
        ("0,1\n1,2\n", "first line holds numbers"),
        ("time,position_a,position_a\n0,1,1\n", "columns stand twice"),
        ("time,position_a,velocity_b\n0,1,1\n", r"not understood: \['velocity_b'\]"),
        ("position_a,effort_a\n1,2\n", "columns must be time"),
        ("time,position_a\nnan,1\n", "time is missing"),
        ("time,position_a\n0,1\ninf,1\n", "line 3: time is missing"),
        ("time,position_a\n0,1\n1,x1\n2,3\n", "line 3, column position_a: 'x1' is no number"),
        (
            "time,position_a\n0,1\n4000000,1\n8000000,1\n",
            "differ by 4e\\+06 s.*Say `time_unit: ns`",
        ),
        ("\n\n", "holds no header"),
    ],
)
def test_wrong_tables(tmp_path: Path, text: str, words: str) -> None:
    """Each way of being wrong has its words."""
    path = tmp_path / "robot.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=words) as caught:
        read_robot_log(path)
    assert str(path) in str(caught.value)


def test_mapped_column_that_is_missing(tmp_path: Path) -> None:
    """The map's column and the file's columns are listed."""
    path = tmp_path / "robot.csv"
    path.write_text("t,q0\n0,1\n")
    with pytest.raises(InputError, match=r"names the columns \['q9'\], the file holds \['t', 'q0'"):
        read_robot_log(path, mapping(columns={"time": "t", "position_a": "q9"}))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"columns": {"angle_a": "q"}}, "are no signals"),
        ({"fields": {"angle": "q"}}, "are no signals"),
        ({"effort_unit": "mA"}, "needs torque_constant"),
        ({"joint_order": ["a", "a"]}, "stands twice"),
        ({"rename": {"a": "c", "b": "c"}}, "the same name"),
        ({"topics": {"state": "/x"}}, "Extra inputs"),
        ({"command_delay": float("nan")}, "finite"),
    ],
)
def test_wrong_maps(fields: dict, words: str) -> None:
    """Typing errors in robot.yaml are named, not passed over."""
    with pytest.raises(ValueError, match=words):
        mapping(**fields)
