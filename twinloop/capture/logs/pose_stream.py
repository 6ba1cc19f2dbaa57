"""Plain poses: FoundationPose's folder of 4x4 texts, one text log, or a TUM trajectory."""

from __future__ import annotations

import re
import warnings
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from twinloop.capture.files import inside, list_files, read_text
from twinloop.capture.logs.joint_table import nanoseconds, ordering, seconds
from twinloop.capture.logs.streams import PoseStream
from twinloop.capture.warning import CaptureWarning
from twinloop.errors import InputError
from twinloop.geometry import se3

Array = NDArray[np.float64]

INTRINSICS = "cam_K.txt"
FARTHEST = 10.0
"""Translations beyond this are not in metres, m: captures are of a table."""
LEAST_ROUND = 1e-3
"""Largest deviation of R R^T from 1 that rounding in a text explains."""
LARGEST_POSE = 2**16
"""Largest text of one pose, bytes."""
EPOCH_DIGITS = 16
"""File names of so many digits are nanoseconds since 1970, shorter ones frame numbers."""
ISO = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,9})\d*)?(Z|[+-]\d\d:?\d\d)?[\s,;]*"
)


def read_pose_stream(path: Path) -> PoseStream:
    """Read poses ``T_parent_child`` from a folder of 4x4 texts, or from one text log.

    A folder holds one pose a file (FoundationPose's ``ob_in_cam``), in natural order of the names;
    names of 16 digits and more are nanoseconds, others have no time.  ``cam_K.txt`` inside or
    beside it is read too.  A log holds one pose a line: a time (ISO 8601, or s), then 16 or 12
    numbers of the matrix row by row, or x y z qx qy qz qw (TUM); 12 or 16 numbers may stand without
    a time.  Lines with ``#`` are comments.

    Raises:
        InputError: A line has another count of numbers, a matrix is no rigid motion (says whether
            it is transposed or mirrored), translations look like millimetres, a time is missing.
    """
    if path.is_dir():
        return _read_folder(path)
    return _read_log(path)


def _read_folder(folder: Path) -> PoseStream:
    files = [f for f in list_files(folder, {".txt"}) if f.name != INTRINSICS]
    if not files:
        raise InputError(f"{folder}: holds no .txt files; expected one 4x4 pose a file.")
    rows = []
    for file in files:
        values = _numbers(read_text(file, LARGEST_POSE), str(file))
        if len(values) not in (12, 16):
            raise InputError(f"{file}: holds {len(values)} numbers, expected a 4x4 matrix.")
        rows.append(_square(np.array(values)))
    T = checked_poses(np.stack(rows), folder, [f.name for f in files])
    time = None
    stems = [f.stem for f in files]
    if all(stem.isdigit() and EPOCH_DIGITS <= len(stem) <= 19 for stem in stems):
        stamps = np.array([int(stem) for stem in stems], dtype=np.int64)
        order = ordering(folder, "file names", stamps)
        time, T = seconds(stamps[order]), T[order]
    beside = [inside(folder, INTRINSICS), folder.parent / INTRINSICS]
    K = next((_camera_matrix(f) for f in beside if f.is_file()), None)
    return PoseStream(time, T, "camera", "object", K)


def _camera_matrix(path: Path) -> Array:
    K = _numbers(read_text(path, LARGEST_POSE), str(path))
    if len(K) != 9 or not (K[0] > 0 and K[4] > 0 and K[6:] == [0.0, 0.0, 1.0]):
        raise InputError(f"{path}: expected a camera matrix fx 0 cx / 0 fy cy / 0 0 1, found {K}.")
    return np.array(K).reshape(3, 3)


def _read_log(path: Path) -> PoseStream:
    times: list[float] = []
    rows: list[list[float]] = []
    zones: set[bool] = set()
    lines: list[str] = []
    text = read_text(path).splitlines()
    for number, line in enumerate(text, start=1):
        content = line.split("#")[0].strip()
        if not content:
            continue
        where = f"{path}: line {number}"
        try:
            stamp, zoned, values = _line(content, where)
            if rows and len(values) != len(rows[0]):
                raise InputError(
                    f"{where}: holds a pose of {len(values)} numbers, earlier ones {len(rows[0])}."
                )
        except InputError:
            if number < len(text) or not rows:
                raise
            warnings.warn(
                f"{where}: the last line is cut; the {len(rows)} poses before it are used.",
                CaptureWarning,
                stacklevel=2,
            )
            break
        zones.add(zoned)
        times.append(stamp)
        rows.append(values)
        lines.append(f"line {number}")
    if not rows:
        raise InputError(f"{path}: holds no pose.")
    if len(zones) > 1:
        raise InputError(f"{path}: some times have a time zone, others do not; write all alike.")
    table = np.array(rows, dtype=np.float64)
    if table.shape[1] == 7:
        T = from_quaternions(table[:, [0, 1, 2, 6, 3, 4, 5]])
    else:
        T = np.stack([_square(row) for row in table])
    T = checked_poses(T, path, lines)
    if np.isnan(times).all():
        return PoseStream(None, T, "", "")
    stamps = nanoseconds(path, "time", np.array(times), "s")
    order = ordering(path, "time", stamps)
    return PoseStream(seconds(stamps[order]), T[order], "", "")


def _line(content: str, where: str) -> tuple[float, bool, list[float]]:
    """Time (NaN if none), whether its zone is given or not needed, and the pose's numbers."""
    zoned = True
    if match := ISO.match(content):
        day, clock, fraction, zone = match.groups()
        zoned = zone is not None
        try:
            moment = datetime.fromisoformat(f"{day}T{clock}{zone or '+00:00'}").astimezone(UTC)
        except ValueError as error:
            raise InputError(f"{where}: {match.group().strip()!r} is no time: {error}.") from error
        stamp = moment.timestamp() + (float(f"0.{fraction}") if fraction else 0.0)
        values = _numbers(content[match.end() :], where)
        counts: tuple[int, ...] = (7, 12, 16)
    else:
        values = _numbers(content, where)
        stamp = np.nan
        counts = (8, 12, 13, 16, 17)
    if len(values) not in counts:
        raise InputError(
            f"{where}: holds {len(values)} numbers{' after the time' if counts[0] == 7 else ''}; "
            f"expected {', '.join(map(str, counts))}: a time, then x y z qx qy qz qw or a 3x4 or "
            "4x4 matrix row by row."
        )
    if counts[0] != 7 and len(values) in (8, 13, 17):
        stamp, values = values[0], values[1:]
        if not np.isfinite(stamp):
            raise InputError(f"{where}: the time is {stamp}.")
    return stamp, zoned, values


def _numbers(text: str, where: str) -> list[float]:
    try:
        return [float(word) for word in re.split(r"[\s,;\[\]()]+", text) if word]
    except ValueError as error:
        raise InputError(f"{where}: {error}; expected numbers.") from error


def _square(values: Array) -> Array:
    """4x4 matrix of its 12 or 16 numbers."""
    if len(values) == 16:
        return values.reshape(4, 4)
    return np.vstack([values.reshape(3, 4), [0.0, 0.0, 0.0, 1.0]])


def from_quaternions(rows: Array) -> Array:
    """Poses (n, 4, 4) of rows x y z qw qx qy qz (n, 7); NaN where |q| is not within 1 % of 1."""
    length = np.linalg.norm(rows[:, 3:], axis=1, keepdims=True)
    wxyz = np.where(np.abs(length - 1.0) < 0.01, rows[:, 3:], np.nan) / np.maximum(length, 0.5)
    return se3.from_position_quaternion(rows[:, :3], wxyz)


def checked_poses(
    T: Array, path: Path, names: str | list[str], farthest: float = FARTHEST
) -> Array:
    """Poses (n, 4, 4) whose rotations are exactly orthonormal.

    Args:
        T: As read.
        path: The source, for messages.
        names: What to call each pose; or the stream, whose poses are numbered.
        farthest: Largest distance that is believed, m.

    Raises:
        InputError: A pose is no rigid motion in metres; says which, and the likely reason.
    """

    def name(k: int) -> str:
        return f"{path}: {names[k] if isinstance(names, list) else f'{names}: pose {k}'}"

    for k in np.flatnonzero(~np.isfinite(T).all(axis=(1, 2)))[:1]:
        raise InputError(
            f"{name(int(k))}: holds NaN, infinity or a quaternion whose length is not 1; expected "
            "a pose. Leave out frames in which the object is lost."
        )
    transposed = np.abs(T[:, :3, 3]).max(axis=1) + np.abs(T[:, 3, 3] - 1) < 1e-9
    for k in np.flatnonzero(np.abs(T[:, 3] - [0, 0, 0, 1]).max(axis=1) > 1e-6)[:1]:
        hint = "; it is transposed (written column by column)" if transposed[k] else ""
        raise InputError(f"{name(int(k))}: the last row is {T[k, 3]}, expected 0 0 0 1{hint}.")
    R = T[:, :3, :3]
    error = np.abs(R @ np.swapaxes(R, 1, 2) - np.eye(3)).max(axis=(1, 2))
    for k in np.flatnonzero(error > LEAST_ROUND)[:1]:
        scale = float(np.cbrt(np.abs(np.linalg.det(R[k]))))
        raise InputError(
            f"{name(int(k))}: R R^T deviates from 1 by {error[k]:.3g} (at most {LEAST_ROUND} is "
            f"accepted; scale {scale:.4g}), so that it is no rotation."
        )
    for k in np.flatnonzero(np.linalg.det(R) < 0)[:1]:
        raise InputError(f"{name(int(k))}: the rotation is mirrored; an axis has the wrong sign.")
    distance = np.linalg.norm(T[:, :3, 3], axis=1)
    if len(distance) and distance.max() > farthest:
        raise InputError(
            f"{name(int(distance.argmax()))}: is {distance.max():.5g} away (median "
            f"{np.median(distance):.5g}), expected at most {farthest} m. In millimetres it would "
            f"be {distance.max() * 1e-3:.5g} m: divide the translations by 1000."
        )
    U, _, Vt = np.linalg.svd(R)
    T = T.copy()
    T[:, :3, :3] = U @ Vt
    return T
