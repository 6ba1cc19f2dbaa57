"""Flange poses of a scan: every text that a robot's software writes gives the same poses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from twinloop.capture.flange_poses import at_pictures
from twinloop.errors import InputError
from twinloop.geometry import se3

TIMES = np.arange(8) * 0.04 + 100.0
TWIST = np.array([0.1, -0.2, 0.3, 0.2, 0.1, -0.4])
POSES = se3.exp(np.linspace(0, 1, 8)[:, None] * TWIST)


def write(path: Path, times: np.ndarray, poses: np.ndarray) -> Path:
    """CSV with a header, or TUM's lines, by the suffix."""
    position, wxyz = se3.to_position_quaternion(poses)
    if path.suffix == ".csv":
        table = np.column_stack([times, position, wxyz])
        header = "time,x,y,z,qw,qx,qy,qz"
        np.savetxt(path, table, delimiter=",", header=header, comments="", fmt="%.12g")
    else:
        np.savetxt(path, np.column_stack([times, position, np.roll(wxyz, -1, axis=1)]), fmt="%.12g")
    return path


@pytest.mark.parametrize("name", ["flange.csv", "flange.txt"])
def test_by_order_and_by_time(tmp_path: Path, name: str) -> None:
    """One pose a picture goes by order; else poses are interpolated along the motion."""
    path = write(tmp_path / name, TIMES, POSES)
    index = np.array([1, 4])
    np.testing.assert_allclose(at_pictures(path, np.arange(8.0), index), POSES[index], atol=1e-9)
    between = np.array([100.02, 100.1, 200.0])
    found = at_pictures(path, between, np.array([0, 1]))
    expected = se3.exp(((between[:2] - 100) / 0.28)[:, None] * TWIST)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_pictures_without_a_pose_are_told(tmp_path: Path) -> None:
    """Far from every pose, and poses without times, are refused with the numbers."""
    path = write(tmp_path / "flange.txt", TIMES, POSES)
    with pytest.raises(InputError, match=r"200\.000 s is 99\.7\d* s away"):
        at_pictures(path, np.array([100.02, 200.0]), np.array([0, 1]))
    folder = tmp_path / "poses"
    folder.mkdir()
    for i, pose in enumerate(POSES):
        np.savetxt(folder / f"{i:04d}.txt", pose)
    np.testing.assert_allclose(at_pictures(folder, np.arange(8.0), np.array([2])), POSES[[2]])
    with pytest.raises(InputError, match="8 poses without times for 3 pictures"):
        at_pictures(folder, np.arange(3.0), np.array([0]))
