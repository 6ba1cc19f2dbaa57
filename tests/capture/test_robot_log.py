"""Robot logs in MCAP and CSV, whole, cut and wrong."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from mcap.writer import CompressionType
from mcap_ros2.writer import Writer

from twinloop.capture.logs.streams import ControlLog
from twinloop.capture.robot_log import read_robot_log
from twinloop.capture.warning import CaptureWarning
from twinloop.errors import InputError

JOINT_STATE = """std_msgs/Header header
string[] name
float64[] position
float64[] velocity
float64[] effort
================================================================================
MSG: std_msgs/Header
builtin_interfaces/Time stamp
string frame_id
================================================================================
MSG: builtin_interfaces/Time
int32 sec
uint32 nanosec
"""
KINDS = ("position", "velocity", "effort", "command")
JOINTS = ("slide", "turn", "tip")


def values(n: int = 400) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Stamps, ns, that look like a clock of 2026, and arrays (n, joint) per kind."""
    rng = np.random.default_rng(0)
    stamps = 1_790_000_000_000_000_000 + np.arange(n) * 3_333_333
    return stamps, {kind: rng.normal(size=(n, 3)) for kind in KINDS}


def message(stamp: int, names, position, velocity=(), effort=()) -> dict:
    """A JointState."""
    return {
        "header": {
            "stamp": {"sec": int(stamp) // 10**9, "nanosec": int(stamp) % 10**9},
            "frame_id": "base",
        },
        "name": list(names),
        "position": list(position),
        "velocity": list(velocity),
        "effort": list(effort),
    }


def write_mcap(
    path: Path, stamps, arrays, *, compression=CompressionType.ZSTD, chunk=2**20, turn=False
) -> None:
    """Write states and commands; log times are late, as arrival times are."""
    with path.open("wb") as stream:
        writer = Writer(stream, compression=compression, chunk_size=chunk)
        schema = writer.register_msgdef("sensor_msgs/msg/JointState", JOINT_STATE)
        order = [2, 0, 1] if turn else [0, 1, 2]
        for k, stamp in enumerate(stamps):
            late = int(stamp) + 7_000_000
            state = message(stamp, JOINTS, *(arrays[kind][k] for kind in KINDS[:3]))
            target = message(stamp, [JOINTS[i] for i in order], arrays["command"][k][order])
            writer.write_message("/joint_states", schema, state, late, late, k)
            writer.write_message("/joint_commands", schema, target, late, late, k)
        writer.finish()


def write_csv(path: Path, stamps, arrays) -> None:
    """Write the same as columns."""
    header = ["time"] + [f"{kind}_{joint}" for kind in KINDS for joint in JOINTS]
    lines = [",".join(header)]
    for k, stamp in enumerate(stamps):
        seconds = f"{int(stamp) // 10**9}.{int(stamp) % 10**9:09d}"
        lines.append(
            ",".join([seconds, *(repr(float(v)) for kind in KINDS for v in arrays[kind][k])])
        )
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(
    "compression", [CompressionType.ZSTD, CompressionType.LZ4, CompressionType.NONE]
)
def test_both_formats_give_the_same(tmp_path: Path, compression: CompressionType) -> None:
    """Header stamps and values of MCAP and CSV are equal; joints are matched by name."""
    stamps, arrays = values()
    write_mcap(tmp_path / "robot.mcap", stamps, arrays, compression=compression, turn=True)
    write_csv(tmp_path / "robot.csv", stamps, arrays)
    mcap, table = read_robot_log(tmp_path / "robot.mcap"), read_robot_log(tmp_path / "robot.csv")
    assert mcap.joints == table.joints == JOINTS
    np.testing.assert_allclose(mcap.time, table.time, atol=3e-7)
    np.testing.assert_allclose(mcap.time, stamps * 1e-9, atol=3e-7)
    for kind in KINDS:
        np.testing.assert_array_equal(getattr(mcap, kind), getattr(table, kind))
        np.testing.assert_array_equal(getattr(mcap, kind), arrays[kind])


def test_command_holds_until_the_next(tmp_path: Path) -> None:
    """Commands at a lower rate are held; before the first one there is none."""
    with (tmp_path / "robot.mcap").open("wb") as stream:
        writer = Writer(stream)
        schema = writer.register_msgdef("sensor_msgs/msg/JointState", JOINT_STATE)
        for k in range(6):
            state = message(k * 10**8, ["a"], [float(k)])
            writer.write_message("/joint_states", schema, state, k, k, k)
        for stamp, target in ((15 * 10**7, 1.0), (4 * 10**8, 2.0)):
            writer.write_message(
                "/joint_commands", schema, message(stamp, ["a"], [target]), 9, 9, 0
            )
        writer.finish()
    log = read_robot_log(tmp_path / "robot.mcap")
    np.testing.assert_array_equal(log.command[:, 0], [np.nan, np.nan, 1, 1, 2, 2])
    assert np.isnan(log.velocity).all()


@pytest.mark.parametrize("chunk", [2**20, 4096])
@pytest.mark.parametrize("compression", [CompressionType.ZSTD, CompressionType.NONE])
def test_cut_mcap_is_salvaged(tmp_path: Path, chunk: int, compression: CompressionType) -> None:
    """Half a file gives about half the samples, right ones, with a warning that counts them.

    Zstd unpacks in blocks of 128 KiB, so a short log would lose all its one block.
    """
    stamps, arrays = values(3000)
    path = tmp_path / "robot.mcap"
    write_mcap(path, stamps, arrays, chunk=chunk, compression=compression)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.warns(CaptureWarning, match="messages up to there are used"):
        log = read_robot_log(path)
    n = len(log.time)
    assert 0.25 * len(stamps) < n < 0.75 * len(stamps)
    np.testing.assert_array_equal(log.position, arrays["position"][:n])


def test_damaged_length_does_not_fill_the_memory(tmp_path: Path) -> None:
    """A record that claims 2^60 bytes is refused with what it claims."""
    path = tmp_path / "robot.mcap"
    path.write_bytes(b"\x89MCAP0\r\n" + struct.pack("<BQ", 6, 2**60) + bytes(100))
    with pytest.raises(InputError, match="claims 1152921504606846976 bytes"):
        read_robot_log(path)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("robot.mcap", b"", "0 bytes"),
        ("robot.mcap", b"\x00" * 300, "not those of MCAP"),
        ("robot.csv", b"time,angle\n0,1\n", "columns must be"),
        ("robot.csv", b"time,position_a\n", "no sample"),
        ("robot.csv", b"time,position_a\n0,x\n", "no number"),
        ("robot.csv", b"time,position_a\n0,1\n1\n2,3\n", "line 3 has 1 fields"),
        ("robot.csv", b"time,position_a\n5,1\n,2\n", "line 3: time is missing"),
        ("robot.csv", b"time,position_a\n50,1\n51,1\n2,3\n", "jumps back by 49.0 s"),
        ("robot.csv", b"\xff\xfe\x81", "cannot be read as UTF-8 text"),
        ("robot.log", b"time", "ends in .mcap, .csv, .bag"),
    ],
)
def test_wrong_files_say_what_is_wrong(
    tmp_path: Path, name: str, content: bytes, words: str
) -> None:
    """Each way of being wrong has its words, and the file is named."""
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=words) as caught:
        read_robot_log(path)
    assert str(path) in str(caught.value)


def test_missing_log_and_missing_topic(tmp_path: Path) -> None:
    """A missing file and a file without joint states are named."""
    with pytest.raises(InputError, match="no such robot log"):
        read_robot_log(tmp_path / "robot.mcap")
    path = tmp_path / "robot.mcap"
    with path.open("wb") as stream:
        writer = Writer(stream)
        schema = writer.register_msgdef("std_msgs/msg/String", "string data")
        writer.write_message("/other", schema, {"data": "a"}, 1, 1, 0)
        writer.finish()
    with pytest.raises(InputError, match=r"no message on /joint_states \(topics: \['/other'\]"):
        read_robot_log(path)


def test_inconsistent_messages_are_refused(tmp_path: Path) -> None:
    """Other joints, or a value too few, in a later message: message number and both lists."""
    for bad, words in (
        (message(2, ["b"], [1.0]), "message 1 names joints"),
        (message(2, ["a"], [1.0, 2.0]), "has 2 values of position, expected 1"),
    ):
        path = tmp_path / "robot.mcap"
        with path.open("wb") as stream:
            writer = Writer(stream)
            schema = writer.register_msgdef("sensor_msgs/msg/JointState", JOINT_STATE)
            writer.write_message("/joint_states", schema, message(1, ["a"], [0.0]), 1, 1, 0)
            writer.write_message("/joint_states", schema, bad, 2, 2, 1)
            writer.finish()
        with pytest.raises(InputError, match=words):
            read_robot_log(path)


def test_repeated_and_cut_csv_lines(tmp_path: Path) -> None:
    """A repeated stamp is dropped and a cut last line ignored, each with a warning."""
    path = tmp_path / "robot.csv"
    path.write_text("time,position_a,command_a\n0,1,\n1,2,5\n1,3,5\n2,4")
    with pytest.warns(CaptureWarning) as caught:
        log = read_robot_log(path)
    assert len(caught) == 2
    np.testing.assert_array_equal(log.time, [0, 1])
    np.testing.assert_array_equal(log.command[:, 0], [np.nan, 5])


def test_reader_needs_no_video_library() -> None:
    """Reading a log alone does not load OpenCV."""
    code = "import sys, twinloop.capture.robot_log; sys.exit('cv2' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    assert (
        subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0
    )


def test_a_command_is_in_force_after_its_delay() -> None:
    """What robot.yaml says of the drive's delay counts where commands and states are joined."""
    told = np.array([[1.0], [2.0], [3.0]])
    nothing = np.full((3, 1), np.nan)
    at = np.array([0.0, 0.01, 0.02, 0.03])
    for delay, held in (
        (None, [1, 2, 3, 3]),
        (0.01, [np.nan, 1, 2, 3]),
        (0.015, [np.nan, np.nan, 1, 2]),
    ):
        control = ControlLog(
            ("a",), np.array([0.0, 0.01, 0.02]), told, nothing, nothing, delay=delay
        )
        np.testing.assert_array_equal(control.held(at)[:, 0], held)
