"""Posed, masked pictures of an object, and what their masks say about its outline.

Images follow OpenCV: the first pixel's centre is (0, 0).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt
from scipy.special import ndtri

Float = NDArray[np.float64]
Float32 = NDArray[np.float32]


@dataclass(frozen=True)
class Views:
    """Posed, masked pictures.

    image: (view, y, x, 3) uint8 RGB. mask: (view, y, x) uint8, 0 outside to 255 inside.
    intrinsics: (view, 4) fx, fy, cx, cy, px. T_camera_world: (view, 4, 4). coverage: whether the
    mask already says how much of each pixel is covered (renders do), not just in or out.
    """

    image: NDArray[np.uint8]
    mask: NDArray[np.uint8]
    intrinsics: Float
    T_camera_world: Float
    coverage: bool = False

    def __len__(self) -> int:
        return len(self.mask)

    def moved(self, T_world_object: Float) -> Views:
        """The same pictures with poses relative to an object's frame."""
        return replace(self, T_camera_world=self.T_camera_world @ T_world_object)

    def matte(self, index: int) -> Float32:
        """How much of each pixel (y, x) of a picture the object covers, 0..1."""
        if self.coverage:
            return np.asarray(self.mask[index] / np.float32(255), np.float32)
        return matte(self.mask[index])

    def box(self, index: int, margin: int) -> tuple[int, int, int, int] | None:
        """Bounding box x0, y0, x1, y1 of a mask plus `margin` px; None if the mask is empty."""
        x, y, w, h = cv2.boundingRect((self.mask[index] >= 128).astype(np.uint8))
        if w == 0:
            return None
        height, width = self.mask.shape[1:]
        return (
            max(x - margin, 0),
            max(y - margin, 0),
            min(x + w + margin, width),
            min(y + h + margin, height),
        )


def signed_distance(mask: NDArray[np.uint8], blur: float = 1.0) -> Float32:
    """Signed distance (px, positive inside) to the outline of a mask, sub-pixel.

    Far from the outline it is the exact Euclidean distance transform. Near it, where that transform
    only knows whole pixels, the mask is blurred with a Gaussian of `blur` px: a straight edge at
    distance d then has the grey value Phi(d / blur), which is solved for d.
    """
    level = mask.astype(np.float32) / 255
    inside = level >= 0.5
    if not inside.any():
        return np.full(mask.shape, -float(np.hypot(*mask.shape)), np.float32)
    coarse = np.where(
        inside, distance_transform_edt(inside) - 0.5, 0.5 - distance_transform_edt(~inside)
    )
    soft: Float32 = cv2.GaussianBlur(level, (0, 0), blur, borderType=cv2.BORDER_REPLICATE)
    fine = blur * ndtri(np.clip(soft.astype(np.float64), 1e-4, 1 - 1e-4))
    weight = np.clip(2 - np.abs(coarse) / blur, 0, 1)
    return np.asarray(weight * fine + (1 - weight) * coarse, np.float32)


def matte(mask: NDArray[np.uint8]) -> Float32:
    """How much of each pixel the object covers, 0..1, from the sub-pixel outline of its mask."""
    return np.asarray(np.clip(signed_distance(mask) + 0.5, 0, 1), np.float32)
