"""A table of poses over time: CSV with the columns time, x, y, z, qw, qx, qy, qz."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from twinloop.errors import InputError
from twinloop.geometry import quaternion, se3

Array = NDArray[np.float64]
COLUMNS = ("time", "x", "y", "z", "qw", "qx", "qy", "qz")
FARTHEST = 100.0
"""Farthest position, m."""
LARGEST_FILE = 64 * 2**20
"""Largest table that is read, bytes."""


def read_pose_table(path: Path, purpose: str) -> tuple[Array, Array]:
    """Read times (pose,) s and poses (pose, 4, 4), positions in m.

    Args:
        path: The file.
        purpose: Who needs it, for the message when it is missing.

    Raises:
        InputError: The file is missing, lacks a column, holds no numbers, times that do not
            increase, or quaternions that are not of length 1; says the row.
    """
    try:
        if path.exists() and not path.is_file():
            raise InputError(f"{path}: is no regular file; a table of poses is expected")
        if path.is_file() and (size := path.stat().st_size) > LARGEST_FILE:
            raise InputError(f"{path}: has {size} bytes, at most {LARGEST_FILE} are read")
        with path.open(newline="", encoding="utf-8-sig") as handle:
            reader = csv.DictReader(handle)
            header = tuple(reader.fieldnames or ())
            absent = [name for name in COLUMNS if name not in header]
            if absent:
                raise InputError(f"{path}: columns {absent} are missing; expected {list(COLUMNS)}")
            rows = [[float(row[name]) for name in COLUMNS] for row in reader]
    except FileNotFoundError:
        raise InputError(f"{path} does not exist; {purpose} (columns {COLUMNS})") from None
    except (OSError, ValueError, TypeError, csv.Error) as error:
        raise InputError(f"{path}: not a table of numbers: {error}") from error
    table = np.array(rows, dtype=np.float64).reshape(-1, len(COLUMNS))
    if len(table) == 0 or not np.isfinite(table).all():
        raise InputError(f"{path}: {len(table)} rows, some not finite; expected at least one pose")
    if (reach := float(np.abs(table[:, 1:4]).max())) > FARTHEST:
        raise InputError(
            f"{path}: a position is {reach:g} m from the origin, at most {FARTHEST:g} m is "
            f"expected. In millimetres it would be {reach / 1e3:g} m: convert to metres"
        )
    if (np.diff(table[:, 0]) <= 0).any():
        row = int(np.argmax(np.diff(table[:, 0]) <= 0)) + 2
        raise InputError(f"{path}: time of row {row} does not increase")
    norm = np.linalg.norm(table[:, 4:], axis=1)
    if (np.abs(norm - 1.0) > 1e-2).any():
        row = int(np.argmax(np.abs(norm - 1.0))) + 1
        raise InputError(
            f"{path}: quaternion of row {row} has norm {norm[row - 1]:.4f}, expected 1"
        )
    wxyz = quaternion.normalize(table[:, 4:])
    return table[:, 0], se3.from_position_quaternion(table[:, 1:4], wxyz)
