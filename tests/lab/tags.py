"""Where a printed tag's corners lie, written down apart from the code that draws it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from twinloop.lab.board import Tag


def tag_corners(tag: Tag) -> NDArray[np.float64]:
    """Corners (4,3) in the board frame: top-left, top-right, bottom-right, bottom-left."""
    h = 0.5 * tag.size
    x, y = tag.centre
    return np.array([[x - h, y + h, 0], [x + h, y + h, 0], [x + h, y - h, 0], [x - h, y - h, 0]])
