"""Rows of Parquet files that came from elsewhere, with bounds on what is read."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinloop.errors import InputError
from twinloop.extras import require

Array = NDArray[np.float64]

LARGEST_TABLE = 2**32
"""Largest Parquet table that is read, bytes unpacked."""
MOST_ROWS = 10_000_000
"""Most rows of a Parquet file."""
_NUMBERS = ("bool", "int", "uint", "float", "double", "halffloat")


def rows_where(path: Path, key: str, value: int, wanted: Callable[[str], bool]) -> Any:
    """Read the rows of a Parquet file whose column ``key`` equals ``value``.

    Args:
        path: The file.
        key: A column of whole numbers.
        value: Its wanted value.
        wanted: Tells by its name whether a column is read.

    Returns:
        A pyarrow table of the wanted columns and ``key``.

    Raises:
        InputError: The file is missing, damaged, too large, or lacks the column.
        MachineError: pyarrow is not installed.
    """
    parquet = require("pyarrow.parquet", "logs", "LeRobot data")
    arrow = require("pyarrow", "logs", "LeRobot data")
    compute = require("pyarrow.compute", "logs", "LeRobot data")
    if not path.is_file():
        raise InputError(f"{path}: no such file; was the data set downloaded whole?")
    try:
        with parquet.ParquetFile(path) as file:
            head = file.metadata
            size = sum(head.row_group(g).total_byte_size for g in range(head.num_row_groups))
            if head.num_rows > MOST_ROWS or size > LARGEST_TABLE:
                raise InputError(
                    f"{path}: claims {head.num_rows} rows and {size} bytes; {MOST_ROWS} rows and "
                    f"{LARGEST_TABLE} bytes are read."
                )
            names = file.schema_arrow.names
            if key not in names:
                raise InputError(f"{path}: has no column {key}, but {names[:20]}.")
            chosen = [name for name in names if name == key or wanted(name)]
            parts = []
            for group in range(head.num_row_groups):
                part = file.read_row_group(group, columns=chosen)
                parts.append(part.filter(compute.equal(part[key], value)))
            if not parts:
                raise InputError(f"{path}: holds no rows.")
            return arrow.concat_tables(parts)
    except (arrow.ArrowException, OSError, ValueError, KeyError) as error:
        raise InputError(
            f"{path} ({path.stat().st_size} bytes): cannot be read as Parquet ({error}). It is "
            "truncated or was never closed (a recording needs `finalize()`); download it again."
        ) from error


def column_numbers(column: Any, name: str, path: Path) -> Array | None:
    """A column of numbers, or of lists of numbers of equal length, as (n, k).

    Args:
        column: Column of a pyarrow table.
        name: Its name, for the message.
        path: Its file, for the message.

    Returns:
        The numbers; None when the column holds something else.

    Raises:
        InputError: Lists of different lengths, or gaps.
    """
    kind = str(column.type)
    inner = re.fullmatch(
        r"(?:fixed_size_list|list|large_list)<\w+: (\w+?)(?: not null)?>(?:\[\d+\])?", kind
    )
    if not (inner[1] if inner else kind).rstrip("0123456789").startswith(_NUMBERS):
        return None
    try:
        values = np.array(column.to_pylist(), dtype=np.float64)
    except (ValueError, TypeError) as error:
        raise InputError(
            f"{path}: column {name!r}: rows of equal length without gaps are expected ({error})."
        ) from error
    return values.reshape(len(values), -1)
