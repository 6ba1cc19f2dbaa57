"""Poses of the flange that carries the camera, in whatever text a robot's software writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from twinloop.capture.logs.pose_stream import read_pose_stream
from twinloop.capture.pose_table import read_pose_table
from twinloop.errors import InputError
from twinloop.geometry import se3

Array = NDArray[np.float64]

STALE = 0.05
"""Longest time between a picture and the next pose, s."""


def read_flange_poses(path: Path) -> tuple[Array | None, Array]:
    """Read times (pose,) s, None where there are none, and T_base_flange (pose, 4, 4), m.

    A ``.csv`` has the columns of :func:`read_pose_table`; any other file or folder is read by
    :func:`read_pose_stream` (lines of time and matrix, TUM's layout, or a 4x4 text a pose).

    Raises:
        InputError: As these two.
    """
    if path.suffix.lower() == ".csv":
        return read_pose_table(path, "scan.yaml names it as robot_poses")
    stream = read_pose_stream(path)
    return stream.time, stream.T_parent_child


def at_pictures(path: Path, times_of_all: Array, index: NDArray[np.int64]) -> Array:
    """Poses (n, 4, 4) of the flange at pictures ``index`` (n,) of a scan.

    By order where one stands for each picture of the scan, else by time.

    Raises:
        InputError: There are fewer poses than pictures and no times, or none near a picture.
    """
    times, poses = read_flange_poses(path)
    if len(poses) == len(times_of_all):
        return np.asarray(poses[index])
    if times is None:
        raise InputError(
            f"{path}: {len(poses)} poses without times for {len(times_of_all)} pictures; give one "
            "pose per picture, or times on the pictures' clock."
        )
    picture_times = times_of_all[index]
    right = np.clip(np.searchsorted(times, picture_times), 1, len(times) - 1)
    left = right - 1
    gap = np.minimum(np.abs(times[right] - picture_times), np.abs(picture_times - times[left]))
    if gap.max() > STALE:
        worst = int(gap.argmax())
        raise InputError(
            f"{path}: {len(times)} poses from {times[0]:.3f} to {times[-1]:.3f} s for "
            f"{len(times_of_all)} pictures; the picture at {picture_times[worst]:.3f} s is "
            f"{gap[worst]:.3f} s away from the next pose, at most {STALE} s is accepted. Give one "
            "pose per picture, or the pictures' clock."
        )
    share = (picture_times - times[left]) / (times[right] - times[left])
    step = se3.log(se3.inverse(poses[left]) @ poses[right])
    return np.asarray(poses[left] @ se3.exp(share[:, None] * step))
