"""What ingest needs of any source of pictures: a video, a folder of photos, an export's frames."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Picture:
    """One decoded, upright picture."""

    index: int
    """Number of the picture in its source, in order of presentation, from 0."""
    time: float
    """Time on the camera's clock, s; a video stream's start offset is kept."""
    image: NDArray[np.uint8]
    """sRGB (height, width, 3), or grey (height, width)."""


class Pictures(Protocol):
    """Pictures in order, upright and in sRGB, read one at a time."""

    @property
    def path(self) -> Path:
        """The video file or folder, for messages."""

    @property
    def times(self) -> Array:
        """Time of every picture (n,) s, strictly increasing; whole numbers where unknown."""

    @property
    def names(self) -> tuple[str, ...]:
        """What people call each picture (n,): a file name, or "frame 12"."""

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Columns and rows of every upright picture (n, 2), px."""

    @property
    def focal_prior(self) -> Array:
        """Focal length of every picture by its tags (n,) px at full size; NaN where unknown."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What was worked around or done to the pictures, one sentence each, for the report."""

    def read(
        self,
        indices: Collection[int] | None = None,
        pixels: Literal["rgb", "grey"] = "rgb",
    ) -> Iterator[Picture]:
        """Decode pictures in order, one in memory at a time.

        Args:
            indices: Pictures to decode; None for all.
            pixels: "rgb" or "grey".

        Raises:
            InputError: A picture cannot be decoded; names it.
        """


def commonest_size(sizes: NDArray[np.int64]) -> tuple[int, int]:
    """Columns and rows that most pictures have, of their sizes (n, 2), px.

    Of equally common sizes it is the larger one, so that the choice does not hang on the order.
    """
    counts = Counter((int(w), int(h)) for w, h in sizes)
    return max(counts, key=lambda size: (counts[size], size))
