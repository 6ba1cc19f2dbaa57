"""Rigid bodies in the tables of motion-capture systems: OptiTrack Motive's CSV, or named columns.

Motive's export (its CSV format 1.2 and later) starts with one line of pairs (``Length Units``,
``Rotation Type``, ``Export Frame Rate``), then rows of labels in the second column (``Type``,
``Name``, ``ID``, ``Parent``), a row that says Rotation or Position, and the row ``Frame, Time
(Seconds), X, Y, Z, W, ...``.  Cells of a body that was not seen are empty.  Axes are the system's
own: Motive's y axis points up unless it was told otherwise.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from twinloop.capture.files import read_text
from twinloop.errors import InputError
from twinloop.geometry import quaternion, se3

Array = NDArray[np.float64]

UNITS = {
    "m": 1.0,
    "meters": 1.0,
    "metres": 1.0,
    "cm": 1e-2,
    "centimeters": 1e-2,
    "centimetres": 1e-2,
    "mm": 1e-3,
    "millimeters": 1e-3,
    "millimetres": 1e-3,
}
"""Names of units of length, in m."""
FARTHEST = 30.0
"""Farthest that a body is from the origin of its system, m: a large hall."""
COLUMNS = ("time", "x", "y", "z", "qw", "qx", "qy", "qz")
"""What a table of named columns has to hold."""


@dataclass(frozen=True)
class MocapBody:
    """A rigid body's poses in the capture system's frame.

    time: (n,) s, the system's clock; T_mocap_body: (n, 4, 4) m, NaN where it was not seen; name:
    the body's; unit: m that one unit of the file's lengths is.
    """

    time: Array
    T_mocap_body: Array
    name: str
    unit: float


def read_motive_csv(path: Path, body: str | None = None) -> MocapBody:
    """Read one rigid body of a CSV exported by OptiTrack Motive.

    Args:
        path: The file.
        body: The rigid body's name; None when the file holds one only.

    Raises:
        InputError: Not such a file; rotations are no quaternions; no unit of length is stated; no
            such body, or one must be named; a cell is no number; positions are too far away.
    """
    rows = list(csv.reader(read_text(path).splitlines()))
    if not rows or rows[0][0].strip() != "Format Version":
        raise InputError(
            f"{path}: starts with {rows[0][0][:40]!r} instead of 'Format Version'; expected a CSV "
            "exported by OptiTrack Motive. Another table can be read by its columns' names."
        )
    said = {k.strip(): v.strip() for k, v in zip(rows[0][::2], rows[0][1::2], strict=False)}
    rotation = said.get("Rotation Type", "")
    if rotation != "Quaternion":
        raise InputError(
            f"{path}: Rotation Type is {rotation!r}, expected 'Quaternion'. Export the take again "
            "with quaternions."
        )
    unit = UNITS.get(said.get("Length Units", "").lower())
    if unit is None:
        raise InputError(
            f"{path}: Length Units is {said.get('Length Units')!r}, expected one of Meters, "
            "Centimeters, Millimeters."
        )
    head = next((i for i, row in enumerate(rows) if row[:1] == ["Frame"]), None)
    labels = {row[1].strip(): row for row in rows[1:head] if len(row) > 2 and not row[0].strip()}
    if head is None or head < 3 or not {"Type", "Name"} <= set(labels):
        raise InputError(f"{path}: has no rows Type, Name and Frame; was the export cut short?")
    kinds = labels["Type"]
    names = labels["Name"]
    # The row above Frame says of each column whether it is a rotation or a position.
    groups = rows[head - 1]
    letters = rows[head]
    columns: dict[str, dict[str, int]] = {}
    for k in range(2, min(map(len, (kinds, names, groups, letters)))):
        if kinds[k].strip() == "Rigid Body" and groups[k].strip() in ("Rotation", "Position"):
            key = groups[k].strip()[0] + letters[k].strip()
            columns.setdefault(names[k].strip(), {})[key] = k
    chosen = _chosen(path, columns, body)
    wanted = ("PX", "PY", "PZ", "RW", "RX", "RY", "RZ")
    absent = [c for c in wanted if c not in columns[chosen]]
    if absent:
        raise InputError(
            f"{path}: body {chosen!r} lacks columns {absent} (R rotation, P position)."
        )
    table = _numbers(path, rows[head + 1 :], [1, *(columns[chosen][c] for c in wanted)], head + 2)
    return _body(path, table, chosen, unit)


def read_mocap_csv(
    path: Path, unit: str, columns: Mapping[str, str] | None = None, name: str = "body"
) -> MocapBody:
    """Read a table of poses with a row of column names.

    Args:
        path: The file. Empty cells, and rows of zeros only, mean that the body was not seen.
        unit: Of the positions: m, cm or mm.
        columns: The file's names of time (s), x, y, z, qw, qx, qy, qz, where they differ.
        name: What to call the body.

    Raises:
        InputError: The unit is unknown, a column is missing, a cell is no number, a quaternion is
            not of length 1, or positions are too far away.
    """
    scale = UNITS.get(unit.lower())
    if scale is None:
        raise InputError(f"{path}: unit {unit!r} is unknown; expected m, cm or mm.")
    rows = list(csv.reader(read_text(path).splitlines()))
    header = [cell.strip() for cell in rows[0]]
    wanted = [(columns or {}).get(c, c) for c in COLUMNS]
    absent = [c for c in wanted if c not in header]
    if absent:
        raise InputError(
            f"{path}: columns {absent} are missing; the file has {header[:20]}. Name the columns "
            f"of {list(COLUMNS)}."
        )
    table = _numbers(path, rows[1:], [header.index(c) for c in wanted], 2)
    return _body(path, table, name, scale)


def _chosen(path: Path, columns: Mapping[str, object], body: str | None) -> str:
    if body is None and len(columns) == 1:
        return next(iter(columns))
    if body is None or body not in columns:
        raise InputError(
            f"{path}: holds the rigid bodies {sorted(columns)}, "
            f"{'name one of them' if body is None else f'no {body!r}'}."
        )
    return body


def _numbers(path: Path, rows: list[list[str]], columns: list[int], first: int) -> Array:
    """Cells (n, k) of rows; NaN where they are empty. A cut last row is left out."""
    out: list[list[float]] = []
    for number, row in enumerate(rows, start=first):
        if not any(cell.strip() for cell in row):
            continue
        if len(row) <= max(columns):
            if number == first + len(rows) - 1 and out:
                break
            raise InputError(
                f"{path}: row {number} has {len(row)} cells, expected {max(columns) + 1} at least."
            )
        try:
            out.append([float(row[c]) if row[c].strip() else np.nan for c in columns])
        except ValueError as error:
            raise InputError(f"{path}: row {number}: {error}; expected numbers.") from error
    if not out:
        raise InputError(f"{path}: holds no row of poses.")
    return np.array(out)


def _body(path: Path, table: Array, name: str, unit: float) -> MocapBody:
    """Poses of rows time, x, y, z, qw, qx, qy, qz in the file's unit."""
    time, position, wxyz = table[:, 0], table[:, 1:4] * unit, table[:, 4:]
    bad = np.flatnonzero(~np.isfinite(time))
    if len(bad):
        raise InputError(f"{path}: the time of pose {bad[0]} is missing.")
    for i, (a, b) in enumerate(pairwise(time.tolist())):
        if b <= a:
            raise InputError(
                f"{path}: times do not increase at pose {i + 1} ({a} -> {b} s); expected seconds, "
                "in order."
            )
    with np.errstate(invalid="ignore"):
        seen = np.isfinite(table).all(axis=1) & (np.abs(table[:, 1:]).max(axis=1) > 0)
        length = np.linalg.norm(wxyz, axis=1)
    wrong = np.flatnonzero(seen & (np.abs(length - 1) > 0.01))
    if len(wrong):
        i = int(wrong[0])
        raise InputError(
            f"{path}: the quaternion of pose {i} has length {length[i]:.4g}, expected 1."
        )
    if not seen.any():
        raise InputError(f"{path}: the body {name!r} is seen in none of {len(table)} rows.")
    reach = float(np.linalg.norm(position[seen], axis=1).max())
    if reach > FARTHEST:
        raise InputError(
            f"{path}: the body {name!r} is {reach:.5g} m from the origin, {FARTHEST:g} m at most "
            f"is expected. In millimetres it would be {reach / unit * 1e-3:.4g} m."
        )
    T = np.full((len(table), 4, 4), np.nan)
    T[seen] = se3.from_position_quaternion(position[seen], quaternion.normalize(wxyz[seen]))
    return MocapBody(time, T, name, unit)
