"""Sparse optical flow with the checks that make its points trustworthy."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Image = NDArray[np.uint8]


def normalise_contrast(image: Image, size: int = 25) -> Image:
    """The image without its local mean and contrast (boxes of `size` px), so without lighting."""
    f = image.astype(np.float32)
    mean = cv2.blur(f, (size, size))
    variance = cv2.blur(f * f, (size, size)) - mean * mean
    flat = (f - mean) / (np.sqrt(np.maximum(variance, 0)) + 6.0)
    return np.asarray(np.clip(128 + 45 * flat, 0, 255), np.uint8)


def patches(image: Image, pixels: Array, half: int = 5) -> NDArray[np.float32]:
    """Bilinear patches (n, (2 half + 1)^2) around pixels (n, 2)."""
    d = np.arange(-half, half + 1, dtype=np.float32)
    gx, gy = np.meshgrid(d, d)
    x = pixels[:, :1].astype(np.float32) + gx.ravel()
    y = pixels[:, 1:].astype(np.float32) + gy.ravel()
    out = cv2.remap(image, x, y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    return np.asarray(out, np.float32).reshape(len(pixels), -1)


def correlation(first: NDArray[np.float32], second: NDArray[np.float32]) -> Array:
    """Zero-mean normalised cross-correlation (n,) of rows, in [-1, 1]."""
    a = first - first.mean(1, keepdims=True)
    b = second - second.mean(1, keepdims=True)
    norm = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return np.asarray((a * b).sum(1) / (norm + 1e-3), np.float64)


def track_points(
    first: Image,
    second: Image,
    start: Array,
    guess: Array,
    *,
    window: int = 15,
    levels: int = 3,
    round_trip: float = 1.0,
    minimum_correlation: float = 0.6,
) -> tuple[Array, NDArray[np.bool_]]:
    """Pyramidal Lucas-Kanade of pixels `start` (n, 2) from `first` to `second`.

    `guess` (n, 2) is where the flow starts. A point is kept when tracking it back returns within
    `round_trip` px and its patch correlates by `minimum_correlation` (Bouguet 2001; Kalal 2010).
    Returns (pixels (n, 2), kept (n,)).
    """
    if len(start) == 0:
        return np.zeros((0, 2)), np.zeros(0, np.bool_)
    criteria = (cv2.TERM_CRITERIA_EPS | cv2.TERM_CRITERIA_COUNT, 20, 0.01)
    options: dict[str, Any] = {
        "winSize": (window, window),
        "maxLevel": levels,
        "criteria": criteria,
    }
    flags = cv2.OPTFLOW_USE_INITIAL_FLOW
    a = np.ascontiguousarray(start[:, None], np.float32)
    b = np.ascontiguousarray(guess[:, None], np.float32)
    there, ok1, _ = cv2.calcOpticalFlowPyrLK(first, second, a, b.copy(), flags=flags, **options)
    back, ok2, _ = cv2.calcOpticalFlowPyrLK(second, first, there, a.copy(), flags=flags, **options)
    end = np.asarray(there, np.float64).reshape(-1, 2)
    miss = np.linalg.norm(np.asarray(back).reshape(-1, 2) - a[:, 0], axis=1)
    good = (np.ravel(ok1) > 0) & (np.ravel(ok2) > 0) & (miss < round_trip)
    h, w = second.shape
    good &= np.isfinite(end).all(1) & (end >= 2).all(1) & (end[:, 0] < w - 2) & (end[:, 1] < h - 2)
    if good.any():
        i = np.flatnonzero(good)
        score = correlation(patches(first, start[i]), patches(second, end[i]))
        good[i] = score > minimum_correlation
    return end, good
