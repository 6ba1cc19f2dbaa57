"""A track as a file: CSV for people and spreadsheets, NPZ for programs; whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from twinloop.capture.files import write_whole
from twinloop.errors import InputError
from twinloop.geometry import se3
from twinloop.tracking.pose_track import PoseTrack

ENDINGS = (".csv", ".npz")
STATUS = ("ok", "uncertain", "lost")
"""Words for the statuses 0, 1 and 2."""
AXES = ("x", "y", "z", "rx", "ry", "rz")


def check_ending(path: Path) -> None:
    """Refuse a name that says no format.

    Raises:
        InputError: Another ending than .csv or .npz.
    """
    if path.suffix.lower() not in ENDINGS:
        raise InputError(f"{path}: expected a name that ends in {' or '.join(ENDINGS)}.")


def check_place(path: Path, inputs: Sequence[Path]) -> None:
    """Refuse a place that no file can have or that an input has, before the work is done.

    Raises:
        InputError: A folder, in a folder that is not there, or one of `inputs`.
    """
    if path.is_dir() or not path.parent.is_dir():
        what = "is a folder" if path.is_dir() else f"{path.parent} is no folder"
        raise InputError(f"{path}: {what}; expected the name of a file in a folder that exists.")
    if any(path.exists() and other.exists() and path.samefile(other) for other in inputs):
        raise InputError(f"{path}: is an input, and would be overwritten; choose another name.")


def write_poses(path: Path, poses: PoseTrack) -> None:
    """Write a track.

    .csv: one line a frame: time (s, camera clock), status (a word), x, y, z (m) and qw, qx, qy, qz
    of T_world_object, vx .. wz (m/s, rad/s, world axes) and cov_A_B, the upper triangle of the
    covariance (m, rad; left perturbation in world axes). .npz: the arrays of
    :class:`~twinloop.tracking.pose_track.PoseTrack` under their names.

    Raises:
        InputError: Another ending, or the place is no file's.
        MachineError: The disk is full, or the folder cannot be written.
    """
    check_ending(path)
    if path.suffix.lower() == ".npz":

        def write(fresh: Path) -> None:
            with fresh.open("wb") as file:
                np.savez(
                    file,
                    allow_pickle=False,
                    time=poses.time,
                    pose=poses.pose,
                    covariance=poses.covariance,
                    status=poses.status,
                    velocity=poses.velocity,
                    velocity_covariance=poses.velocity_covariance,
                )

        write_whole(path, write)
        return
    text = csv_text(poses)
    write_whole(path, lambda fresh: fresh.write_text(text, encoding="utf-8"))


def csv_text(poses: PoseTrack) -> str:
    """The CSV of a track; see :func:`write_poses`."""
    upper = [(i, j) for i in range(6) for j in range(i, 6)]
    names = ["time", "status", "x", "y", "z", "qw", "qx", "qy", "qz"]
    names += ["vx", "vy", "vz", "wx", "wy", "wz"]
    names += [f"cov_{AXES[i]}_{AXES[j]}" for i, j in upper]
    position, quaternion = se3.to_position_quaternion(poses.pose)
    lines = [",".join(names)]
    for n, time in enumerate(poses.time):
        pose = [*position[n], *quaternion[n]]
        spread = [poses.covariance[n, i, j] for i, j in upper]
        numbers = [f"{v:.9g}" for v in (*pose, *poses.velocity[n], *spread)]
        lines.append(",".join([f"{time:.6f}", STATUS[int(poses.status[n])], *numbers]))
    return "\n".join(lines) + "\n"
