"""How well Gaussians reproduce pictures that they were not fitted to."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from twinloop.splat.draw import render
from twinloop.splat.gaussians import Gaussians
from twinloop.splat.views import Views, matte

EDGE = 3
"""Width (px) of the ring around the mask that is judged too."""


@dataclass(frozen=True)
class Comparison:
    """One judged picture: crops (h, w, 3) float 0..1 of truth and render over black, and scores.

    judged (h, w) bool: the pixels that count. psnr dB. overlap: intersection over union of the mask
    and of alpha > 0.5.
    """

    truth: NDArray[np.float32]
    shown: NDArray[np.float32]
    judged: NDArray[np.bool_]
    psnr: float
    overlap: float


def psnr(difference: NDArray[np.floating]) -> float:
    """Peak signal-to-noise ratio (dB) of differences between values in 0..1; 100 at most."""
    mse = float(np.mean(np.square(difference, dtype=np.float64))) if difference.size else 0.0
    return float(-10 * np.log10(max(mse, 1e-10)))


def compare(
    gaussians: Gaussians, views: Views, index: int, margin: int = 8, device: str = "cpu"
) -> Comparison:
    """Judge picture `index` of `views` (poses in the Gaussians' frame).

    What counts: the object's pixels (mask) and a ring of `EDGE` px around them. The picture is cut
    out over black by its mask (see `matte`), the render is over black anyway. So the real
    background never helps, the many empty pixels of the crop do not dilute the error, and colour
    that leaks over the outline costs.
    """
    height, width = views.mask.shape[1:]
    x0, y0, x1, y1 = views.box(index, margin) or (0, 0, width, height)
    k = views.intrinsics[index] - [0, 0, x0, y0]
    image, alpha = render(gaussians, k, x1 - x0, y1 - y0, views.T_camera_world[index], device)
    inside = (views.mask[index, y0:y1, x0:x1] >= 128).astype(np.uint8)
    cover = matte(views.mask[index, y0:y1, x0:x1])
    picture = views.image[index, y0:y1, x0:x1].astype(np.float32) / np.float32(255)
    truth = np.asarray(picture * cover[..., None], np.float32)
    kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * EDGE + 1, 2 * EDGE + 1))
    judged = cv2.dilate(inside, kernel) > 0
    shown = np.asarray(image.clip(0, 1), np.float32)
    solid = alpha > 0.5
    union = int((solid | (inside > 0)).sum())
    overlap = float((solid & (inside > 0)).sum() / union) if union else 0.0
    return Comparison(truth, shown, judged, psnr((shown - truth)[judged]), overlap)
