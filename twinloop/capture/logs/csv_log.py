"""Robot logs as text tables: columns by name, or by the map in ``robot.yaml``."""

from __future__ import annotations

import csv
import re
import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from twinloop.capture.files import read_text
from twinloop.capture.logs.joint_table import from_columns, nanoseconds, ordered, seconds
from twinloop.capture.logs.mapping import KINDS, WRENCH, LogMapping
from twinloop.capture.logs.streams import Capture, WrenchLog
from twinloop.capture.warning import CaptureWarning
from twinloop.errors import InputError

Array = NDArray[np.float64]

SEPARATORS = (",", ";", "\t")
LARGEST_FILE = 96 * 2**20
"""Largest table that is read, bytes; its fields take twenty times as much memory."""
MOST_COLUMNS = 1000
"""Most columns of a table."""
LONGEST_FIRST = sorted(KINDS, key=len, reverse=True)
"""Kinds such that ``command_velocity_a`` is not taken for the command of a joint ``velocity_a``."""


def read_csv_log(path: Path, mapping: LogMapping) -> Capture:
    """Read a table with a header, separated by comma, semicolon or tab.

    Without a column map, columns are ``time`` and ``<kind>_<joint>`` (``mapping.KINDS``), and the
    six ``force_x`` ... ``torque_z``; with one, other columns are left out.

    Raises:
        InputError: No header, decimal commas, an unknown or missing column, a field that is no
            number, a time that is missing or in another unit than declared.
    """
    header, body, columns = _table(path, mapping)
    joints = tuple(n.removeprefix("position_") for n in columns if n.startswith("position_"))
    if not joints and not all(name in columns for name in WRENCH):
        raise InputError(_expected(path, header, "no position_<joint>"))
    kinds = {name: _kind(name, joints) for name in columns if name not in ("time", *WRENCH)}
    unknown = [columns[name] for name, kind in kinds.items() if kind is None]
    if "time" not in columns or unknown:
        raise InputError(_expected(path, header, f"not understood: {unknown[:5]}"))
    table = _numbers(path, header, body)
    values = {name: table[:, header.index(column)] for name, column in columns.items()}
    missing = np.flatnonzero(~np.isfinite(values["time"]))
    if len(missing):
        raise InputError(f"{path}: line {int(missing[0]) + 2}: time is missing.")
    stamps = nanoseconds(path, "time", values["time"], mapping.time_unit)
    wrench = None
    if all(name in columns for name in WRENCH):
        rows = np.stack([values[name] for name in WRENCH], axis=1)
        told = np.isfinite(rows).all(axis=1)
        ticks, (rows,) = ordered(path, "time", stamps[told], [rows[told]])
        wrench = WrenchLog(seconds(ticks), rows[:, :3], rows[:, 3:], "")
    if not joints:
        return Capture(None, None, wrench)
    signals: dict[str, Array] = {}
    for name, kind in kinds.items():
        if kind is not None:
            signal = signals.setdefault(kind[0], np.full((len(table), len(joints)), np.nan))
            signal[:, joints.index(kind[1])] = values[name]
    states, control = from_columns(path, joints, stamps, signals, mapping)
    return Capture(states, control, wrench)


def _kind(name: str, joints: tuple[str, ...]) -> tuple[str, str] | None:
    """Kind and joint of a column such as ``position_elbow``."""
    for kind in LONGEST_FIRST:
        joint = name.removeprefix(f"{kind}_")
        if joint != name and joint in joints:
            return kind, joint
    return None


def _expected(path: Path, header: list[str], fault: str) -> str:
    return (
        f"{path}: columns must be time, position_<joint> and, if known, velocity_, effort_ and "
        f"command_<joint>; found {header[:6]}{' ...' if len(header) > 6 else ''}, {fault}. Other "
        "names: say which column is what in robot.yaml (`columns: {time: ..., position_a: ...}`)."
    )


def _table(
    path: Path, mapping: LogMapping
) -> tuple[list[str], list[tuple[int, list[str]]], dict[str, str]]:
    """Header, rows with their line numbers, and the column of each signal."""
    text = read_text(path, LARGEST_FILE)
    first = text.lstrip("\r\n").split("\n", 1)[0]
    separator = max(SEPARATORS, key=first.count)
    try:
        rows = list(csv.reader(text.splitlines(), delimiter=separator))
    except csv.Error as error:
        raise InputError(f"{path}: cannot be read as CSV text: {error}.") from error
    numbered = [(number, row) for number, row in enumerate(rows, start=1) if row]
    if not numbered:
        raise InputError(f"{path}: holds no header, only empty lines.")
    header = [name.strip() for name in numbered[0][1]]
    if all(re.fullmatch(r"[-+0-9.eE, ]*|nan", name) for name in header):
        raise InputError(
            f"{path}: the first line holds numbers ({', '.join(header[:4])} ...), expected the "
            "names of the columns; write a header line."
        )
    if len(header) > MOST_COLUMNS:
        raise InputError(
            f"{path}: has {len(header)} columns, at most {MOST_COLUMNS} are read; is the table "
            "turned? Expected one line for each time."
        )
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise InputError(f"{path}: columns stand twice: {twice}.")
    columns = dict(mapping.columns) or {name: name for name in header}
    if absent := sorted(set(columns.values()) - set(header)):
        raise InputError(
            f"{path}: robot.yaml names the columns {absent[:5]}, the file holds {header[:12]}"
            f"{' ...' if len(header) > 12 else ''}."
        )
    return header, _whole(path, header, numbered[1:], separator), columns


def _whole(
    path: Path, header: list[str], body: list[tuple[int, list[str]]], separator: str
) -> list[tuple[int, list[str]]]:
    """The rows, without a cut last one."""
    comma = re.compile(r"\s*[-+]?\d+,\d+\s*")
    if separator == ";" and any(comma.fullmatch(f) for _, row in body[:5] for f in row):
        raise InputError(
            f"{path}: numbers have decimal commas ({body[0][1][0]}); export the table with decimal "
            "points."
        )
    if len(body) > 1 and {len(row) for _, row in body[:-1]} == {2 * len(header)}:
        raise InputError(
            f"{path}: lines have {2 * len(header)} fields, the header has {len(header)}: numbers "
            "with decimal commas? Export the table with decimal points."
        )
    if len(body) > 1 and len(body[-1][1]) != len(header):
        warnings.warn(
            f"{path}: the last line is cut; {len(body) - 1} samples up to there are used.",
            CaptureWarning,
            stacklevel=2,
        )
        body = body[:-1]
    for number, row in body:
        if len(row) != len(header):
            raise InputError(
                f"{path}: line {number} has {len(row)} fields, the header has {len(header)}."
            )
    if not body:
        raise InputError(f"{path}: holds a header but no sample.")
    return body


def _numbers(path: Path, header: list[str], body: list[tuple[int, list[str]]]) -> Array:
    """Fields (n, column) as numbers; NaN where empty."""
    table = np.full((len(body), len(header)), np.nan)
    for k, (number, row) in enumerate(body):
        for column, field in enumerate(row):
            if field:
                try:
                    table[k, column] = float(field)
                except ValueError as error:
                    raise InputError(
                        f"{path}: line {number}, column {header[column]}: {field[:40]!r} is no "
                        "number."
                    ) from error
    return table
