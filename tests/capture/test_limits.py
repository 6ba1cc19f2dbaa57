"""Bounds on foreign pictures."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from twinloop.capture.limits import MAX_PIXELS, check_size, timed
from twinloop.errors import InputError


def test_a_picture_that_takes_too_long() -> None:
    """Quick ones pass, the slow one is counted; what the receiver does takes no time of theirs."""

    def slow() -> Iterator[int]:
        yield from range(2)
        time.sleep(0.3)
        yield 2

    passed = timed(slow(), Path("v.mp4"), seconds=0.2)
    assert next(passed) == 0
    time.sleep(0.3)
    assert list(itertools.islice(passed, 1)) == [1]
    with pytest.raises(InputError, match=r"v\.mp4: picture 2 "):
        next(passed)
    assert list(timed(iter("ab"), Path("v.mp4"))) == ["a", "b"]


@pytest.mark.parametrize(("width", "height"), [(0, 10), (10, -1), (8001, 8000), (2**31, 2**31)])
def test_sizes_out_of_bounds(width: int, height: int) -> None:
    """Empty and giant pictures name the file and what its header says."""
    with pytest.raises(InputError, match=rf"v\.mp4: the header says {width} x {height} px"):
        check_size(Path("v.mp4"), width, height)
    check_size(Path("v.mp4"), 8000, MAX_PIXELS // 8000)
