"""Pose streams: FoundationPose folders, ISO text logs, TUM trajectories, and wrong ones."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from twinloop.capture.logs.pose_stream import read_pose_stream
from twinloop.capture.warning import CaptureWarning
from twinloop.errors import InputError


def poses(n: int = 12) -> np.ndarray:
    """Poses (n, 4, 4) within a metre."""
    T = np.tile(np.eye(4), (n, 1, 1))
    T[:, :3, :3] = Rotation.random(n, rng=np.random.default_rng(0)).as_matrix()
    T[:, :3, 3] = np.random.default_rng(1).uniform(-0.9, 0.9, (n, 3))
    return T


def folder_of(path: Path, T: np.ndarray, names=None) -> Path:
    """As FoundationPose's demo writes them: np.savetxt of 4x4, one file a frame."""
    path.mkdir()
    for k, pose in enumerate(T):
        np.savetxt(path / f"{names[k] if names else k}.txt", pose)
    return path


def test_foundation_pose_folder(tmp_path: Path) -> None:
    """Frame 10 comes after frame 9; the camera matrix beside the folder is read."""
    T = poses()
    K = np.array([[600.0, 0, 320], [0, 601, 240], [0, 0, 1]])
    np.savetxt(tmp_path / "cam_K.txt", K)
    stream = read_pose_stream(folder_of(tmp_path / "ob_in_cam", T))
    assert (stream.time, stream.parent, stream.child) == (None, "camera", "object")
    np.testing.assert_allclose(stream.T_parent_child, T, atol=1e-12)
    np.testing.assert_array_equal(stream.camera_matrix, K)


def test_folder_of_nanosecond_names(tmp_path: Path) -> None:
    """Names of 16 digits and more are stamps."""
    T = poses(3)
    stamps = [1_581_120_424_100_262_102 + k * 33_000_000 for k in range(3)]
    stream = read_pose_stream(folder_of(tmp_path / "poses", T, stamps))
    np.testing.assert_allclose(np.diff(stream.time), 0.033, atol=1e-6)
    assert stream.time[0] == pytest.approx(1581120424.1002621, abs=3e-7)
    assert stream.camera_matrix is None


def line(T: np.ndarray, kind: str) -> str:
    """The numbers of a pose as text."""
    if kind == "quaternion":
        values = [*T[:3, 3], *Rotation.from_matrix(T[:3, :3]).as_quat()]
    else:
        values = T[: 4 if kind == "4x4" else 3].ravel()
    return " ".join(f"{v:.7f}" for v in values)


def iso(k: int) -> str:
    """ISO time of row k."""
    return f"2026-03-01T12:00:{k:02d}.25"


@pytest.mark.parametrize("kind", ["4x4", "3x4", "quaternion"])
@pytest.mark.parametrize("clock", ["iso", "s", ""])
def test_text_logs(tmp_path: Path, kind: str, clock: str) -> None:
    """One pose a line, after an ISO time, seconds or nothing; TUM is seconds and a quaternion."""
    T = poses()
    path = tmp_path / "poses.txt"
    stamp = {"iso": lambda k: iso(k) + "Z ", "s": lambda k: f"{k + 0.25} ", "": lambda k: ""}[clock]
    lines = ["# time pose", *(stamp(k) + line(pose, kind) for k, pose in enumerate(T))]
    path.write_text("\n".join(lines) + "\n")
    if kind == "quaternion" and not clock:
        with pytest.raises(InputError, match="line 2: holds 7 numbers; expected 8, 12"):
            read_pose_stream(path)
        return
    stream = read_pose_stream(path)
    np.testing.assert_allclose(stream.T_parent_child, T, atol=1e-6)
    R = stream.T_parent_child[:, :3, :3]
    np.testing.assert_allclose(R @ np.swapaxes(R, 1, 2), np.tile(np.eye(3), (12, 1, 1)), atol=1e-12)
    if clock:
        np.testing.assert_allclose(np.diff(stream.time), 1.0, atol=1e-6)
        start = datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp() if clock == "iso" else 0.0
        assert stream.time[0] == pytest.approx(start + 0.25, abs=1e-6)
    else:
        assert stream.time is None


@pytest.mark.parametrize(
    "text",
    ["2026-03-01 13:00:00,5+01:00;", "2026-03-01T12:00:00.5Z,", "2026-03-01T12:00:00.500000000"],
)
def test_ways_to_write_a_time(tmp_path: Path, text: str) -> None:
    """Time zones, decimal commas, nanoseconds and separators."""
    path = tmp_path / "poses.csv"
    numbers = "[" + ", ".join(line(poses(1)[0], "4x4").split()) + "]"
    path.write_text(f"{text} {numbers}\n")
    start = datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()
    assert read_pose_stream(path).time[0] == pytest.approx(start + 0.5, abs=1e-6)


def scaled(T: np.ndarray) -> np.ndarray:
    """In millimetres."""
    return T * np.array([[1, 1, 1, 1000.0]] * 3 + [[1, 1, 1, 1]])


def mirrored(T: np.ndarray) -> np.ndarray:
    """With z turned round."""
    return T * np.array([1, 1, -1.0, 1])


def stretched(T: np.ndarray) -> np.ndarray:
    """With a scale of 2 % in the rotation."""
    return T * np.array([1.02, 1.02, 1.02, 1])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (scaled, r"expected at most 10.0 m. In millimetres it would be \d\.\d+ m"),
        (mirrored, "is mirrored"),
        (stretched, "deviates from 1 by 0.0404"),
        (lambda T: T.T, "it is transposed"),
        (lambda T: T * np.nan, "holds NaN"),
        (lambda T: T[:, :3], "holds 12 numbers|last row|no rotation"),
    ],
)
def test_matrices_that_are_no_poses(tmp_path: Path, change, words: str) -> None:
    """Units, handedness, row order and rounding are told apart, and the file is named."""
    T = poses(3)
    path = tmp_path / "poses"
    path.mkdir()
    for k in range(3):
        np.savetxt(path / f"{k}.txt", change(T[k]))
    with pytest.raises(InputError, match=words) as caught:
        read_pose_stream(path)
    assert ".txt" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "0 bytes"),
        ("# only words\n", "holds no pose"),
        ("0 1 2 3\n1 2 3 4\n", "line 1: holds 4 numbers"),
        ("0 0 0 0 0 0 0 1\n1 0 0 0 0 0 0 x\n2 0 0 0 0 0 0 1\n", "line 2: could not convert"),
        ("nan 0 0 0 0 0 0 1\n", "line 1: the time is nan"),
        ("0 0 0 0 0 0 0 2\n", "length is not 1"),
        ("9 0 0 0 0 0 0 1\n1 0 0 0 0 0 0 1\n", "jumps back by 8.0 s"),
        ("2026-13-01T00:00:00Z 0 0 0 0 0 0 1\n", "is no time"),
        (
            "2026-01-01T00:00:00Z 0 0 0 0 0 0 1\n2026-01-01T00:00:01 0 0 0 0 0 0 1\n",
            "some times have a time zone",
        ),
        ("0 0 0 0 0 0 0 1\n1 " + "0 " * 12 + "\n2 0 0 0 0 0 0 1\n", "earlier ones 7"),
    ],
)
def test_wrong_text_logs(tmp_path: Path, text: str, words: str) -> None:
    """Line and reason are named."""
    path = tmp_path / "poses.txt"
    path.write_text(text)
    with pytest.raises(InputError, match=words) as caught:
        read_pose_stream(path)
    assert str(path) in str(caught.value)


def test_cut_text_log(tmp_path: Path) -> None:
    """A last line without all its numbers is left out, with a warning."""
    path = tmp_path / "poses.txt"
    path.write_text("".join(f"{k} 0 0 0 0 0 0 1\n" for k in range(5))[:-6])
    with pytest.warns(CaptureWarning, match="the 4 poses before it are used"):
        assert len(read_pose_stream(path).time) == 4


def test_folders_without_poses(tmp_path: Path) -> None:
    """An empty folder, a damaged camera matrix, a link out of the folder."""
    with pytest.raises(InputError, match="holds no \\.txt files"):
        read_pose_stream(folder_of(tmp_path / "empty", poses(0)))
    path = folder_of(tmp_path / "poses", poses(2))
    (path / "cam_K.txt").write_text("1 2 3")
    with pytest.raises(InputError, match="expected a camera matrix"):
        read_pose_stream(path)
    (path / "cam_K.txt").unlink()
    (tmp_path / "secret.txt").write_text("1")
    (path / "9.txt").symlink_to(tmp_path / "secret.txt")
    with pytest.raises(InputError, match="leads out of"):
        read_pose_stream(path)
