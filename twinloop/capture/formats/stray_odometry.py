"""The odometry of Stray Scanner, and which of its rows belongs to which frame of the video."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from twinloop.capture.files import read_text
from twinloop.capture.formats.export_checks import from_quaternions, nearest
from twinloop.capture.warning import CaptureWarning
from twinloop.errors import InputError

Array = NDArray[np.float64]

MOST_SHIFT = 3
"""Most frames or rows that may be missing at the begin."""
_COLUMNS = ("timestamp", "frame", "x", "y", "z", "qx", "qy", "qz", "qw")


@dataclass(frozen=True)
class Odometry:
    """Camera poses that the app wrote, one a row."""

    time: Array | None
    """Stamps (n,) s, strictly increasing; None in recordings of the first versions."""
    frame: NDArray[np.int64]
    """Numbers of the depth pictures (n,)."""
    T_world_camera: Array
    """Poses (n, 4, 4) with OpenCV's axes, NaN where tracking was lost."""
    intrinsics: Array | None
    """fx, fy, cx, cy of each row (n, 4) px, in recordings that have them; NaN where empty."""


def read_rows(path: Path, header: bool) -> tuple[list[str], Array]:
    """Read a CSV file of numbers.

    Args:
        path: The file.
        header: Whether the first line may hold names.

    Returns:
        Names in lower case (none where the first line holds numbers), and the numbers (n, k).

    Raises:
        InputError: The file is empty, a line has another number of values (a last line that was cut
            is left out with a :class:`CaptureWarning`), or a value is no number; says the line.
    """
    text = read_text(path)
    lines = [line for line in text.splitlines() if line.strip()]
    names: list[str] = []
    if header and lines and re.search(r"[A-Za-z]", re.sub(r"(?i)nan|inf|\de", "", lines[0])):
        names = [name.strip().lower() for name in lines.pop(0).split(",")]
    rows: list[list[float]] = []
    for number, line in enumerate(lines, start=1 + bool(names)):
        cells = [cell.strip() for cell in line.split(",")]
        expected = len(names) or len(rows[0] if rows else cells)
        if len(cells) != expected and rows and line is lines[-1] and text[-1] not in "\r\n":
            warnings.warn(
                f"{path}: line {number} was cut ({len(cells)} of {expected} values) and is left "
                "out; did the recording end by itself?",
                CaptureWarning,
                stacklevel=2,
            )
            break
        if len(cells) != expected:
            raise InputError(
                f"{path}: line {number} has {len(cells)} values, {expected} are expected."
            )
        try:
            # The app leaves cells empty where the phone tells nothing.
            rows.append([float(cell) if cell else np.nan for cell in cells])
        except ValueError as error:
            raise InputError(f"{path}: line {number} holds {line[:60]!r}: {error}.") from error
    if not rows:
        raise InputError(f"{path}: holds no numbers; was the recording interrupted?")
    return names, np.array(rows)


def read_odometry(path: Path) -> Odometry:
    """Read ``odometry.csv``.

    Raises:
        InputError: Columns are missing, stamps do not increase, or a quaternion is implausible.
    """
    names, values = read_rows(path, header=True)
    if not names:
        names = list(_COLUMNS[2:] if values.shape[1] == 7 else _COLUMNS)
    missing = [n for n in _COLUMNS[2:] if n not in names]
    if missing or len(names) != values.shape[1]:
        raise InputError(
            f"{path}: the columns {names} are there, {', '.join(_COLUMNS)} are expected."
        )
    columns = dict(zip(names, values.T, strict=True))
    time = columns.get("timestamp")
    if time is not None and not (np.isfinite(time).all() and (np.diff(time) > 0).all()):
        row = int(np.argmax(~(np.diff(time, prepend=-np.inf) > 0)))
        raise InputError(f"{path}: the timestamp of row {row} is {time[row]}; it must increase.")
    frame = columns.get("frame", np.arange(len(values), dtype=np.float64))
    if not ((frame >= 0) & (frame < 1e9)).all():
        raise InputError(f"{path}: the column `frame` must hold numbers of frames.")
    position = np.stack([columns[n] for n in ("x", "y", "z")], axis=1)
    xyzw = np.stack([columns[n] for n in ("qx", "qy", "qz", "qw")], axis=1)
    lens = ("fx", "fy", "cx", "cy")
    return Odometry(
        time=time,
        frame=frame.astype(np.int64),
        T_world_camera=from_quaternions(position, xyzw, str(path)),
        intrinsics=np.stack([columns[n] for n in lens], axis=1)
        if all(n in columns for n in lens)
        else None,
    )


def match(
    stamps: Array, odometry: Odometry, folder: Path
) -> tuple[NDArray[np.int64], NDArray[np.int64], tuple[str, ...]]:
    """Match frames of the video to rows of the odometry by time, because either may lack some.

    Args:
        stamps: Times of the video's frames (m,) s; their origin is arbitrary.
        odometry: The rows.
        folder: The recording, for messages.

    Returns:
        Frames (k,), the row of each (k,), and notes.

    Raises:
        InputError: Less than half of them agree.
    """
    n, m = len(odometry.frame), len(stamps)
    together = np.arange(min(n, m))
    counts = f"The video has {m} frames, the odometry {n} rows"
    if odometry.time is None:
        if n == m:
            return together, together, ()
        return together, together, (f"{counts}; the first {len(together)} are used.",)
    row_time = odometry.time - odometry.time[0]
    half = 0.5 * float(np.median(np.diff(stamps))) if m > 1 else 0.05
    tried: list[tuple[tuple[int, float, int], NDArray[np.int64], NDArray[np.int64]]] = []
    for shift in range(-min(MOST_SHIFT, n - 1), min(MOST_SHIFT, m - 1) + 1):
        begin = stamps[shift] if shift >= 0 else stamps[0] - row_time[-shift]
        rows = nearest(row_time + begin, stamps)
        error = np.abs(row_time[rows] + begin - stamps)
        frames = np.flatnonzero(error < half)
        frames = frames[np.diff(rows[frames], prepend=-1) > 0]
        score = (len(frames), -round(float(np.median(error)), 4), -abs(shift))
        tried.append((score, frames.astype(np.int64), rows[frames].astype(np.int64)))
    best, frames, rows = max(tried, key=lambda t: t[0])
    if len(frames) >= 0.5 * max(n, m):
        if len(frames) == max(n, m):
            return frames, rows, ()
        notes = [f"{counts}; {len(frames)} agree in time."]
        if sum(score[:2] == best[:2] for score, _, _ in tried) > 1:
            notes.append("Stamps are even, so those at the end are taken to be the missing ones.")
        return frames, rows, tuple(notes)
    if n == m:
        return together, together, ("Stamps of video and odometry disagree; matched by number.",)
    raise InputError(
        f"{folder}: rgb.mp4 has {m} frames over {stamps[-1] - stamps[0]:.3f} s, odometry.csv {n} "
        f"rows over {row_time[-1]:.3f} s, and only {len(frames)} agree in time. Do they belong to "
        "one recording?"
    )
