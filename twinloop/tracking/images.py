"""Grey images, and images at a part of their size."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Image = NDArray[np.uint8]


def to_grey(image: Image) -> Image:
    """Grey image (h, w) u1 of an RGB or grey one (ITU-R BT.601 weights, fixed point)."""
    if image.ndim == 2:
        return np.ascontiguousarray(image)
    return np.asarray(cv2.cvtColor(np.ascontiguousarray(image), cv2.COLOR_RGB2GRAY), np.uint8)


def shrink_image(image: Image, intrinsics: Array, factor: int) -> tuple[Image, Array]:
    """Image (h, w) or (h, w, 3) and intrinsics (4,) at 1/factor of the size (area averages)."""
    h, w = image.shape[:2]
    size = (max(w // factor, 1), max(h // factor, 1))
    cut = image[: size[1] * factor, : size[0] * factor]
    small = np.asarray(cv2.resize(cut, size, interpolation=cv2.INTER_AREA), np.uint8)
    half = np.array([0.0, 0.0, 1.0, 1.0]) * (0.5 - 0.5 / factor)
    return small, intrinsics / factor - half
