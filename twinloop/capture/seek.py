"""Where the object is, roughly: by the print it stands on, and by points above the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinloop.capture.hull import Shape
from twinloop.capture.mask import find_object
from twinloop.capture.multiview_mask import find_box
from twinloop.capture.prompts import ViewPrompt
from twinloop.errors import InputError
from twinloop.geometry import se3

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Place:
    """A box around the object."""

    way: str
    """What it was found by: "board", "views", or "board and views"."""
    box: tuple[Array, Array]
    """Lowest and highest corner (3,) m, table frame."""
    rough: Shape | None
    """Rough shape, where the print alone is to go by."""


def seek(
    images: NDArray[np.uint8],
    intrinsics: Array,
    T_camera_table: Array,
    points: Array | None,
    bounds: Array | None,
    prompts: Mapping[int, ViewPrompt],
    max_height: float,
) -> Place:
    """Find the object in small pictures.

    There are two signs of it: what stands out from the print's look (:func:`find_object`), and
    points above the table (:func:`find_box`).  The first misses parts that have the paper's colour,
    the second parts without texture, so both boxes are joined; one sign is enough.  Boxes that are
    apart are of two things: then it is the one that is pointed at, or else stands on the board.

    Args:
        images: Undistorted RGB (frame, y, x, 3), some 200 px.
        intrinsics: fx, fy, cx, cy (frame, 4), px.
        T_camera_table: (frame, 4, 4).
        points: Sparse points (m, 3) m, table frame.
        bounds: Lowest and highest x, y of the board (2, 2) m; None without a board.
        prompts: What the user pointed at, by number of the frame.
        max_height: Tallest object looked for, m.

    Raises:
        InputError: Neither sign is seen.
    """
    boxes: list[tuple[Array, Array]] = []
    rough: Shape | None = None
    faults: list[InputError] = []
    if bounds is not None:
        try:
            rough = find_object(images, intrinsics, T_camera_table, bounds, max_height)
            boxes.append(rough.box(0.1))
        except InputError as error:
            faults.append(error)
    try:
        size = (images.shape[2], images.shape[1])
        known = np.zeros((0, 3)) if points is None else points
        box = find_box(known, se3.inverse(T_camera_table), intrinsics, size, prompts)
        if rough is None or _meet(box, boxes[0]):
            boxes.append(box)
            rough = None
        elif prompts:
            boxes, rough = [box], None
    except InputError as error:
        faults.append(error)
    if not boxes:
        raise faults[0]
    low = np.min([b[0] for b in boxes], axis=0)
    high = np.max([b[1] for b in boxes], axis=0)
    way = "board" if rough is not None else "views" if bounds is None else "board and views"
    return Place(way, (low, high), rough)


def _meet(one: tuple[Array, Array], other: tuple[Array, Array]) -> bool:
    """Whether two boxes have volume in common."""
    return bool((np.minimum(one[1], other[1]) > np.maximum(one[0], other[0])).all())
