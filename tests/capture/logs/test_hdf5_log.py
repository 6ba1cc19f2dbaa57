"""HDF5 logs in the layouts of robomimic, DROID and ALOHA, written by h5py, and unsafe ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from twinloop.capture.robot_log import LogMapping, read_capture_log, read_robot_log
from twinloop.capture.warning import CaptureWarning
from twinloop.errors import InputError

h5py = pytest.importorskip("h5py", reason="HDF5 logs need h5py")

N = 50
RNG = np.random.default_rng(0)
Q, DQ, TAU, TARGET = RNG.normal(size=(4, N, 3))
JOINTS = ("a", "b", "c")


def mapping(**fields) -> LogMapping:
    """Part of a robot.yaml."""
    return LogMapping.model_validate({"joint_order": JOINTS, **fields})


def write(path: Path, content: dict[str, object]) -> Path:
    """Write data sets by path."""
    with h5py.File(path, "w") as file:
        for name, values in content.items():
            file[name] = values
    return path


def robomimic(path: Path, demos: int = 1) -> Path:
    """As robosuite's conversion writes them; actions are steps of the gripper's pose."""
    content = {}
    for k in range(demos):
        content[f"data/demo_{k}/obs/robot0_joint_pos"] = Q + k
        content[f"data/demo_{k}/obs/robot0_joint_vel"] = DQ
        content[f"data/demo_{k}/obs/robot0_eef_pos"] = Q
        content[f"data/demo_{k}/actions"] = np.zeros((N, 7))
    return write(path, content)


def test_robomimic(tmp_path: Path) -> None:
    """There are no times: the declared rate is used, and said; without it the log is refused."""
    path = robomimic(tmp_path / "robot.hdf5")
    with pytest.warns(CaptureWarning, match="50 samples are taken to be 20 Hz apart"):
        capture = read_capture_log(path, mapping(log_rate=20))
    np.testing.assert_allclose(capture.states.time, np.arange(N) / 20, atol=1e-9)
    np.testing.assert_array_equal(capture.states.position, Q)
    np.testing.assert_array_equal(capture.states.velocity, DQ)
    assert capture.control is None
    assert not capture.named
    with pytest.raises(InputError, match="no time stamps; declare the rate"):
        read_robot_log(path, mapping())


@pytest.mark.filterwarnings("ignore::twinloop.capture.warning.CaptureWarning")
def test_demonstrations_are_chosen(tmp_path: Path) -> None:
    """Of several, robot.yaml has to say which."""
    path = robomimic(tmp_path / "robot.h5", 3)
    log = read_robot_log(path, mapping(log_rate=20, episode=2))
    np.testing.assert_array_equal(log.position, Q + 2)
    for fields in ({}, {"episode": 7}):
        with pytest.raises(InputError, match="holds 3 demonstrations"):
            read_robot_log(path, mapping(log_rate=20, **fields))


def test_droid(tmp_path: Path) -> None:
    """Robot times in seconds and nanoseconds, commands beside measured values."""
    stamps = 1_690_000_000_900_000_000 + np.arange(N) * 66_666_667
    state, robot = "observation/robot_state", "observation/timestamp/robot_state"
    path = write(
        tmp_path / "trajectory.h5",
        {
            f"{state}/joint_positions": Q,
            f"{state}/joint_velocities": DQ,
            f"{state}/motor_torques_measured": TAU,
            f"{state}/gripper_position": Q[:, 0],
            "action/joint_position": TARGET,
            f"{robot}/robot_timestamp_seconds": stamps // 10**9,
            f"{robot}/robot_timestamp_nanos": stamps % 10**9,
        },
    )
    capture = read_capture_log(path, mapping())
    np.testing.assert_allclose(capture.states.time, stamps * 1e-9, atol=3e-7)
    np.testing.assert_array_equal(capture.states.effort, TAU)
    np.testing.assert_array_equal(capture.control.position, TARGET)
    assert np.isnan(capture.control.velocity).all()
    with h5py.File(path, "a") as file:
        file[f"{robot}/robot_timestamp_nanos"][3] = -5
    with pytest.raises(InputError, match="expected 0 to 1e9 ns"):
        read_robot_log(path, mapping())


def test_fields_by_map(tmp_path: Path) -> None:
    """Any layout, times in ms; a mapped data set that is missing is named."""
    path = write(tmp_path / "a.h5", {"log/q": Q, "log/t": 1e12 + np.arange(N) * 10.0, "log/u": Q})
    fields = {"position": "log/q", "time": "log/t", "command": "log/u"}
    capture = read_capture_log(path, mapping(fields=fields, time_unit="ms"))
    np.testing.assert_allclose(np.diff(capture.states.time), 0.01, atol=3e-7)
    np.testing.assert_array_equal(capture.control.position, Q)
    fields["effort"] = "log/tau"
    with pytest.raises(InputError, match=r"log/tau: no such data set"):
        read_robot_log(path, mapping(fields=fields, time_unit="ms"))


@pytest.mark.parametrize(
    ("content", "fields", "words"),
    [
        ({"x/y": Q}, {}, r"no known layout .*it holds \['x'\]"),
        ({"observations/qpos": Q}, {"joint_order": ["a"]}, "has 3 columns .* names 1 joints"),
        ({"observations/qpos": Q, "action": Q[:9]}, {}, r"shape \(9, 3\), positions have \(50, 3"),
        ({"observations/qpos": np.zeros((2, 2, 2))}, {}, r"has the shape \(2, 2, 2\)"),
        ({"observations/qpos": [b"a", b"b"]}, {}, "expected numbers"),
        ({"observations/qpos/deeper": Q}, {}, "is a group"),
        (
            {"observations/qpos": Q, "t": np.full(N, np.nan)},
            {"fields": {"position": "observations/qpos", "time": "t"}},
            "time of sample 0 is nan",
        ),
    ],
)
def test_wrong_contents(tmp_path: Path, content, fields, words: str) -> None:
    """Each names the data set and what was expected."""
    path = write(tmp_path / "robot.h5", content)
    with pytest.raises(InputError, match=words):
        read_robot_log(path, mapping(log_rate=50, **fields))


def test_links_out_of_the_file_are_refused(tmp_path: Path) -> None:
    """External and soft links, virtual and external data, and object references."""
    secret = write(tmp_path / "secret.h5", {"q": Q})
    (tmp_path / "raw.bin").write_bytes(Q.tobytes())
    path = tmp_path / "robot.h5"

    def external(group) -> None:
        group["qpos"] = h5py.ExternalLink(str(secret), "q")

    def soft(group) -> None:
        group["qpos"] = h5py.SoftLink("/observations/qpos")

    def virtual(group) -> None:
        layout = h5py.VirtualLayout(shape=Q.shape, dtype="f8")
        layout[:] = h5py.VirtualSource(str(secret), "q", shape=Q.shape)
        group.create_virtual_dataset("qpos", layout)

    def elsewhere(group) -> None:
        group.create_dataset(
            "qpos", Q.shape, "f8", external=[(str(tmp_path / "raw.bin"), 0, Q.nbytes)]
        )

    def reference(group) -> None:
        group.create_dataset("qpos", (N,), dtype=h5py.ref_dtype)

    for make, words in (
        (external, "may lead out of the file"),
        (soft, "may lead out of the file"),
        (virtual, "in other files; refused"),
        (elsewhere, "in other files; refused"),
        (reference, "references are refused"),
    ):
        with h5py.File(path, "w") as file:
            make(file.create_group("observations"))
        with pytest.raises(InputError, match=words):
            read_robot_log(path, mapping(log_rate=50, fields={"position": "observations/qpos"}))


def test_sizes_that_lie(tmp_path: Path) -> None:
    """A data set that claims terabytes in a small file is refused before it is read."""
    path = tmp_path / "robot.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("observations/qpos", (2**40, 3), "f8", chunks=(1024, 3))
    assert path.stat().st_size < 10_000
    with pytest.raises(InputError, match=r"has the shape \(1099511627776, 3\)"):
        read_robot_log(path, mapping(log_rate=50))


def test_truncated_and_foreign_files(tmp_path: Path) -> None:
    """How much is missing is said; other files are no HDF5."""
    path = robomimic(tmp_path / "robot.hdf5")
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError, match=f"truncated: {len(data) // 2} bytes of {len(data)}"):
        read_robot_log(path, mapping(log_rate=20))
    path.write_bytes(b"time,position_a\n" * 99)
    with pytest.raises(InputError, match="cannot be read as HDF5"):
        read_robot_log(path, mapping(log_rate=20))
    damaged = bytearray(data)
    damaged[600:3000] = b"\xff" * 2400
    path.write_bytes(damaged)
    with pytest.raises(InputError):
        read_robot_log(path, mapping(log_rate=20))
