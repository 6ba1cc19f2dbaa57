"""Read a demonstration capture: hand keypoints and the object's motion, `raw/demo`."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from twinloop.capture.pose_table import read_pose_table
from twinloop.errors import InputError

Array = NDArray[np.float64]
LARGEST_ARRAY = 512 * 2**20
"""Largest array of a hand's file, bytes."""


@dataclass(frozen=True)
class Demonstration:
    """A demonstration in the world of its capture.

    Attributes:
        time: (frame,) s.
        keypoints: (frame, 21, 3) hand in the world, m, MediaPipe order.
        handedness: "right" or "left".
        motion_time: (pose,) s.
        motion: (pose, 4, 4) `T_world_scanworld`: carries the object from where it stood in the scan
            to
            where it is now, so `T_world_object = motion @ T_scanworld_object`.
    """

    time: Array
    keypoints: Array
    handedness: str
    motion_time: Array
    motion: Array


def read_demonstration(folder: Path) -> Demonstration:
    """Read `hand.npz` and `object_motion.csv` of a demonstration folder.

    Raises:
        InputError: a file or array is missing or damaged; names file, array and what is expected.
    """
    time, keypoints, handedness = _read_hand(folder / "hand.npz")
    motion_time, motion = read_pose_table(
        folder / "object_motion.csv", "a demonstration needs the object's motion"
    )
    if len(time) and (time.max() < motion_time[0] or time.min() > motion_time[-1]):
        raise InputError(
            f"{folder}: hand.npz covers {time.min():.2f} to {time.max():.2f} s, object_motion.csv "
            f"{motion_time[0]:.2f} to {motion_time[-1]:.2f} s; both must be of one clip and clock"
        )
    return Demonstration(time, keypoints, handedness, motion_time, motion)


def _read_hand(path: Path) -> tuple[Array, Array, str]:
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: is no regular file; write it with numpy.savez")
    try:
        with np.load(path, allow_pickle=False) as archive:
            missing = {"time", "keypoints"} - set(archive.files)
            if missing:
                raise InputError(
                    f"{path}: arrays {sorted(missing)} are missing, found {sorted(archive.files)}; "
                    "expected `time` (frames,) s and `keypoints` (frames, 21, 3) m"
                )
            _refuse_forged_sizes(path)
            time = _real(path, "time", archive["time"])
            keypoints = _real(path, "keypoints", archive["keypoints"])
            hand = str(archive["handedness"]) if "handedness" in archive.files else "right"
    except FileNotFoundError:
        raise InputError(f"{path} does not exist; a demonstration needs hand keypoints") from None
    except InputError:
        raise
    except Exception as error:  # a damaged zip raises a dozen kinds, from zlib to tokenize
        raise InputError(
            f"{path} cannot be read as numbers without pickle ({type(error).__name__}: {error}); "
            "write it anew with numpy.savez(path, time=..., keypoints=...)"
        ) from error
    if hand not in ("right", "left"):
        raise InputError(f"{path}: handedness is {hand!r}, expected 'right' or 'left'")
    return time, keypoints, hand


def _refuse_forged_sizes(path: Path) -> None:
    """Compare the shapes that the arrays' headers claim with the bytes that are there.

    NumPy allocates what a header claims before it reads; a forged one would fill the memory.
    """
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            with archive.open(info) as stream:
                version = np.lib.format.read_magic(stream)
                read = {(1, 0): np.lib.format.read_array_header_1_0}.get(
                    version, np.lib.format.read_array_header_2_0
                )
                shape, _, dtype = read(stream)
            claimed = int(np.prod(shape, dtype=np.float64)) * dtype.itemsize
            if claimed > min(info.file_size, LARGEST_ARRAY):
                raise InputError(
                    f"{path}: {info.filename} claims {claimed} bytes of shape {shape}, but holds "
                    f"{info.file_size}, and at most {LARGEST_ARRAY} are read; the file is damaged "
                    "or forged"
                )


def _real(path: Path, name: str, values: Array) -> Array:
    if values.dtype.kind not in "fiu":
        raise InputError(f"{path}: {name} is of type {values.dtype}, expected real numbers")
    return np.asarray(values, dtype=np.float64)
