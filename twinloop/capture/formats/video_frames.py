"""Chosen frames of a video with times of their own, for formats that keep both apart."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from twinloop.capture.pictures import Picture
from twinloop.capture.video import probe_video, read_video
from twinloop.errors import InputError

Array = NDArray[np.float64]


class VideoFrames:
    """Chosen frames of a video, as :class:`twinloop.capture.pictures.Pictures`."""

    def __init__(
        self,
        path: Path,
        stamps: Array,
        chosen: NDArray[np.int64],
        times: Array,
        notes: tuple[str, ...] = (),
    ) -> None:
        """Take frames of a video.

        Args:
            path: The video.
            stamps: Times of all its frames, s, as ``twinloop.capture.video.frame_times`` says.
            chosen: Numbers of the frames to take (n,), not decreasing; a frame may come twice.
            times: Times of the taken frames (n,) s on the format's own clock, strictly increasing.
            notes: What the reader worked around, for the report.

        Raises:
            InputError: The video cannot be opened, no frame is taken, or times do not increase.
        """
        if not len(chosen):
            raise InputError(f"{path}: none of its {len(stamps)} frames belongs to the capture.")
        if not (np.isfinite(times).all() and (np.diff(times) > 0).all()):
            late = int(np.argmax(~(np.diff(times, prepend=-np.inf) > 0)))
            raise InputError(
                f"{path}: the time stamp of picture {late} is {times[late]} s; finite stamps that "
                "increase from picture to picture are expected."
            )
        self._path, self._stamps, self._notes = path, stamps, notes
        self._chosen, self._times = chosen, times
        info = probe_video(path)
        self._size = (info.width, info.height)

    @property
    def path(self) -> Path:
        """The video."""
        return self._path

    @property
    def times(self) -> Array:
        """Times of the pictures (n,) s on the format's clock."""
        return self._times

    @property
    def names(self) -> tuple[str, ...]:
        """``frame`` and the number in the video (n,)."""
        return tuple(f"frame {frame}" for frame in self._chosen)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Columns and rows of every upright picture (n, 2), px."""
        return np.tile(np.array(self._size, dtype=np.int64), (len(self._chosen), 1))

    @property
    def focal_prior(self) -> Array:
        """NaN (n,): formats that keep a video beside poses say more about its lens than tags."""
        return np.full(len(self._chosen), np.nan)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was worked around, one sentence each."""
        return self._notes

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
            InputError: A frame cannot be decoded; names it.
        """
        wanted = range(len(self._chosen)) if indices is None else sorted(set(indices))
        pictures: dict[int, list[int]] = {}
        for index in wanted:
            pictures.setdefault(int(self._chosen[index]), []).append(index)
        if not pictures:
            return
        for frame in read_video(
            self._path, indices=list(pictures), pixels=pixels, times=self._stamps
        ):
            for index in pictures[frame.index]:
                yield Picture(index, float(self._times[index]), frame.image)
