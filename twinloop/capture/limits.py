"""Bounds on what is decoded of foreign pictures: size before, time while decoding."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from twinloop.errors import InputError

MAX_PIXELS = 64_000_000
"""Largest picture that is decoded: a header may claim anything."""
SLOWEST = 30.0
"""Longest time that one picture may take to decode, s."""

Item = TypeVar("Item")


def check_size(path: Path, width: int, height: int) -> None:
    """Refuse a picture of more than ``MAX_PIXELS``, before any of it is decoded.

    Raises:
        InputError: Too large, or empty.
    """
    if width <= 0 or height <= 0 or width * height > MAX_PIXELS:
        raise InputError(
            f"{path}: the header says {width} x {height} px; 1 to {MAX_PIXELS} pixels are accepted."
        )


def timed(items: Iterator[Item], path: Path, seconds: float = SLOWEST) -> Iterator[Item]:
    """Pass decoded pictures on while each takes at most ``seconds`` to come.

    Raises:
        InputError: One took longer; names the file and the picture's number in the row.
    """
    for number in itertools.count():
        started = time.monotonic()
        try:
            item = next(items)
        except StopIteration:
            return
        took = time.monotonic() - started
        if took > seconds:
            raise InputError(
                f"{path}: picture {number} of those read took {took:.0f} s to decode, at most "
                f"{seconds:g} s are accepted. The file is damaged, or the machine is overloaded."
            )
        yield item
