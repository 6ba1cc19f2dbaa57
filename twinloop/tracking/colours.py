"""Which colours are the object's and which are not: histograms, and images of log odds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Image = NDArray[np.uint8]
Float32 = NDArray[np.float32]

BITS = 5
"""Bits per channel: 32 levels, coarse enough to be filled by one object's pixels."""
RARE = 2e-5
"""Probability given to colours never seen, so that one odd pixel decides nothing."""
LARGEST = 5.0
"""Log odds of a pixel are cut here: no single one can outvote a line."""


def bins(rgb: Image) -> NDArray[np.int32]:
    """Histogram bins of colours (..., 3) u1."""
    r, g, b = (np.asarray(rgb[..., i] >> (8 - BITS), np.int32) for i in range(3))
    return np.asarray((r << (2 * BITS)) | (g << BITS) | b)


def histogram(rgb: Image) -> Float32:
    """Probabilities (bins,) of colours (n, 3)."""
    return shared(bins(rgb).ravel())


def shared(found: NDArray[np.int32]) -> Float32:
    """Probabilities (bins,) of pixels in bins (n,); neighbouring bins share part of their count.

    Noise and lighting move colours over the borders of bins; without sharing, a pixel beside a
    border would count as never seen.
    """
    size = 1 << BITS
    counts = np.bincount(found, minlength=size**3).astype(np.float32)
    cube = counts.reshape(size, size, size)
    for axis in range(3):
        old = np.moveaxis(cube, axis, 0)
        cube = 0.6 * cube
        new, part = np.moveaxis(cube, axis, 0), np.float32(0.2) * old
        new[1:] += part[:-1]
        new[:-1] += part[1:]
    return np.asarray(cube.ravel() / max(float(cube.sum()), 1.0), np.float32)


@dataclass(frozen=True)
class ColourModel:
    """Colour probabilities (bins,) of the object and of what is around it."""

    inside: Float32
    outside: Float32

    @staticmethod
    def of(inside: Image, outside: Image) -> ColourModel:
        """The model of two sets of pixels (n, 3) u1."""
        return ColourModel(histogram(inside), histogram(outside))

    @staticmethod
    def split(rgb: Image, inside: NDArray[np.bool_], outside: NDArray[np.bool_]) -> ColourModel:
        """The model of an image (h, w, 3) u1 from masks (h, w) of its two sets of pixels."""
        found = bins(rgb)
        return ColourModel(shared(found[inside]), shared(found[outside]))

    def mixed(self, other: ColourModel, share: float) -> ColourModel:
        """This model with `share` of the other one: slow adaption to light."""
        return ColourModel(
            (1 - share) * self.inside + share * other.inside,
            (1 - share) * self.outside + share * other.outside,
        )

    @cached_property
    def table(self) -> Float32:
        """Log odds (bins,) that a pixel of this colour is the object's."""
        odds = np.log((self.inside + RARE) / (self.outside + RARE))
        return np.asarray(np.clip(odds, -LARGEST, LARGEST), np.float32)

    @property
    def overlap(self) -> float:
        """Bhattacharyya coefficient in [0, 1]: 1 when colours tell nothing."""
        return float(np.sqrt(self.inside * self.outside).sum())
