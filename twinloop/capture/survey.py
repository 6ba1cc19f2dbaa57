"""Rate all pictures of a scan, and look closer at the best of each stretch of time.

Memory does not grow with the length of a video: one decoded picture is held at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

import cv2
import numpy as np
from numpy.typing import NDArray

from twinloop.capture.board import Board, Detections, detect_tags
from twinloop.capture.pictures import Pictures, commonest_size
from twinloop.capture.select import (
    best_in_bins,
    difference,
    relative_sharpness,
    sharpness,
    shrink,
)
from twinloop.progress import track

Array = NDArray[np.float64]


class Verdict(IntEnum):
    """Why a picture of the scan was kept or dropped."""

    KEPT = 0
    SPARE = 1
    """A sharper picture was near in time."""
    BLURRED = 2
    DUPLICATE = 3
    NO_BOARD = 4
    """Too few tags were found."""
    MISFIT = 5
    """The board does not fit the common lens there: blur, or rolling shutter."""
    REDUNDANT = 6
    """Other pictures see the object from nearly the same place."""
    BAD_MASK = 7
    """The mask contradicts those of the others: the object is hidden, gone or moved there."""
    OTHER_SIZE = 8
    """The picture has another size than most: another camera, or turned."""
    NOT_REGISTERED = 9
    """Structure from motion, or the tool that exported the capture, found no pose."""
    NO_MASK = 10
    """There are mask files, and none for this picture."""


@dataclass(frozen=True)
class Survey:
    """All pictures of the scan, rated."""

    times: Array
    """Presentation times (source,), s."""
    sharpness: Array
    """Relative to the running median, (source,)."""
    change: Array
    """Mean grey difference to the picture before, (source,), grey levels; inf for the first."""


@dataclass(frozen=True)
class Shot:
    """A candidate picture."""

    index: int
    """Number in the scan."""
    small: NDArray[np.uint8]
    """RGB picture, shrunk."""
    tags: Detections
    """Tags found in the picture at full size."""
    size: tuple[int, int]
    """Columns and rows of the picture at full size, px."""


def survey(pictures: Pictures) -> Survey:
    """Rate every picture; memory does not grow with their number."""
    times = pictures.times
    values, change = [], []
    before: NDArray[np.uint8] | None = None
    for picture in track(pictures.read(pixels="grey"), "rate frames", total=len(times)):
        small = shrink(picture.image, 480)
        values.append(sharpness(small))
        tiny = shrink(small, 160)
        new = before is None or before.shape != tiny.shape
        change.append(np.inf if new or before is None else difference(tiny, before))
        before = tiny
    return Survey(times, relative_sharpness(np.array(values)), np.array(change))


def candidates(
    rated: Survey,
    sizes: NDArray[np.int64],
    count: int,
    min_sharpness: float,
    min_change: float,
    posed: NDArray[np.bool_] | None = None,
    wanted: frozenset[int] = frozenset(),
    masked: NDArray[np.bool_] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
    """Pictures to look closer at, and the verdict so far, (source,).

    Args:
        rated: The survey.
        sizes: Columns and rows (source, 2), px; the commonest size is used.
        count: Candidates at most.
        min_sharpness: Least sharpness relative to the running median.
        min_change: Least difference to the picture before, grey levels.
        posed: Pictures whose pose is known already (source,); None when none has to be.
        wanted: Pictures that the user points at: taken even if blurred or alike.
        masked: Pictures that have a mask file (source,); None when there are no such files.
    """
    verdict = np.full(len(rated.times), Verdict.SPARE, np.int8)
    verdict[rated.change < min_change] = Verdict.DUPLICATE
    verdict[rated.sharpness < min_sharpness] = Verdict.BLURRED
    named = np.array(sorted(i for i in wanted if i < len(verdict)), dtype=np.int64)
    verdict[named] = Verdict.SPARE
    if masked is not None:
        unmasked = ~masked
        # A click for the scale needs no mask.
        unmasked[named] = False
        verdict[unmasked] = Verdict.NO_MASK
    if posed is not None:
        verdict[~posed] = Verdict.NOT_REGISTERED
    verdict[(sizes != commonest_size(sizes)).any(axis=1)] = Verdict.OTHER_SIZE
    chosen = best_in_bins(rated.sharpness, verdict == Verdict.SPARE, count)
    named = named[verdict[named] == Verdict.SPARE]
    return np.union1d(chosen, named), verdict


def shots(
    pictures: Pictures, indices: NDArray[np.int64], board: Board | None, small_side: int
) -> Iterator[Shot]:
    """Decode the named pictures, find the board in each at full size, keep a small picture."""
    nothing = Detections(np.zeros(0, np.int64), np.zeros((0, 4, 2)), 0)
    frames = pictures.read(frozenset(int(i) for i in indices))
    label = "find tags" if board else "look closer"
    for frame in track(frames, label, total=len(indices)):
        tags = nothing
        if board is not None:
            grey = np.asarray(cv2.cvtColor(frame.image, cv2.COLOR_RGB2GRAY), np.uint8)
            tags = detect_tags(grey, board)
        height, width = frame.image.shape[:2]
        yield Shot(frame.index, shrink(frame.image, small_side), tags, (width, height))
