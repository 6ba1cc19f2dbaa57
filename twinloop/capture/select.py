"""Choose the frames of a video that are worth keeping: sharp, new, from all sides."""

from __future__ import annotations

import itertools

import cv2
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

WINDOW = 31
"""Frames of the running median that sharpness is compared with."""


def shrink(grey: NDArray[np.uint8], max_side: int) -> NDArray[np.uint8]:
    """Shrink an image by area averaging so that its longer side is at most ``max_side`` px."""
    scale = max_side / max(grey.shape[:2])
    if scale >= 1:
        return grey
    size = (max(1, round(grey.shape[1] * scale)), max(1, round(grey.shape[0] * scale)))
    return np.asarray(cv2.resize(grey, size, interpolation=cv2.INTER_AREA), np.uint8)


def sharpness(grey: NDArray[np.uint8]) -> float:
    """Variance of the Laplacian: falls with blur, and depends on what is seen."""
    return float(cv2.Laplacian(grey, cv2.CV_32F).var())


def relative_sharpness(values: Array, window: int = WINDOW) -> Array:
    """Sharpness (n,) divided by its running median, so that frames of different content compare.

    About 1 is usual for its neighbourhood, well below 1 is blurred.
    """
    half = window // 2
    medians = [np.median(values[max(0, i - half) : i + half + 1]) for i in range(len(values))]
    return np.asarray(values / np.maximum(medians, 1e-9), dtype=np.float64)


def difference(a: NDArray[np.uint8], b: NDArray[np.uint8]) -> float:
    """Mean absolute difference of two grey images, grey levels; below 0.3 they are duplicates."""
    return float(cv2.absdiff(a, b).mean(dtype=np.float64))


def best_in_bins(quality: Array, usable: NDArray[np.bool_], bins: int) -> NDArray[np.int64]:
    """Split frames into at most ``bins`` equal runs and take the best usable one of each."""
    edges = np.linspace(0, len(quality), min(bins, len(quality)) + 1).round().astype(int)
    chosen = []
    for low, high in itertools.pairwise(edges):
        inside = np.flatnonzero(usable[low:high]) + low
        if len(inside):
            chosen.append(int(inside[np.argmax(quality[inside])]))
    return np.array(chosen, dtype=np.int64)


def spread_viewpoints(
    positions: Array, target: Array, quality: Array, count: int
) -> NDArray[np.int64]:
    """Choose cameras that look from as many different places as possible.

    Farthest-point sampling on the direction from the target and the logarithm of the distance;
    among equally new views the sharper one is taken.

    Args:
        positions: Camera positions (n, 3), m.
        target: What is looked at (3,), m.
        quality: Weight (n,), 1 for a good frame.
        count: How many to choose.

    Returns:
        Indices, increasing.
    """
    if len(positions) <= count:
        return np.arange(len(positions))
    offset = positions - target
    distance = np.linalg.norm(offset, axis=1)
    place = np.column_stack([offset / distance[:, None], 0.5 * np.log(distance)])
    weight = np.clip(quality, 0.05, 1.0)
    first = int(np.argmax(quality))
    chosen = [first]
    gap = np.linalg.norm(place - place[first], axis=1)
    while len(chosen) < count:
        best = int(np.argmax(gap * weight))
        chosen.append(best)
        gap = np.minimum(gap, np.linalg.norm(place - place[best], axis=1))
        gap[chosen] = 0.0
    return np.sort(np.array(chosen, dtype=np.int64))


def coverage(positions: Array, target: Array, sectors: int = 12) -> Array:
    """Number of cameras (sectors,) in each azimuth sector around ``target``, from +x towards +y."""
    offset = positions - target
    azimuth = np.arctan2(offset[:, 1], offset[:, 0]) % (2 * np.pi)
    index = np.minimum((azimuth / (2 * np.pi) * sectors).astype(int), sectors - 1)
    return np.bincount(index, minlength=sectors).astype(np.float64)
