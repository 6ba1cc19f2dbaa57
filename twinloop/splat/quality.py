"""How well Gaussians reproduce pictures that they were not fitted to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinloop.splat.draw import render
from twinloop.splat.gaussians import Gaussians
from twinloop.splat.views import Views, matte, signed_distance

MIXED = 1.0
"""Half width (px) of the band along the outline whose pixels mix object and background."""
RING = 4.0
"""How far (px) outside the outline a render is still judged."""


@dataclass(frozen=True)
class Comparison:
    """One judged picture: crops (h, w, 3) float 0..1 of truth and render over black, and scores.

    judged (h, w) bool: the pixels that count. psnr dB over them; psnr_edge dB with the mixed pixels
    of the outline too. overlap: intersection over union of the mask and of alpha > 0.5.
    """

    truth: NDArray[np.float32]
    shown: NDArray[np.float32]
    judged: NDArray[np.bool_]
    psnr: float
    psnr_edge: float
    overlap: float


def psnr(difference: NDArray[np.floating]) -> float:
    """Peak signal-to-noise ratio (dB) of differences between values in 0..1; 100 at most."""
    mse = float(np.mean(np.square(difference, dtype=np.float64))) if difference.size else 0.0
    return float(-10 * np.log10(max(mse, 1e-10)))


def compare(
    gaussians: Gaussians, views: Views, index: int, margin: int = 8, device: str = "cpu"
) -> Comparison:
    """Judge picture `index` of `views` (poses in the Gaussians' frame).

    The picture is cut out over black by its mask (see `matte`); the render is over black anyway.
    What counts: the object's pixels, and a ring outside the outline where any colour is a leak. So
    the real background never helps, and the empty pixels of the crop do not dilute the error.
    Pixels within `MIXED` px of the outline mix the object with whatever is behind it, and have no
    true colour over black; they are left out of `psnr` and part of `psnr_edge`.
    """
    height, width = views.mask.shape[1:]
    x0, y0, x1, y1 = views.box(index, margin) or (0, 0, width, height)
    k = views.intrinsics[index] - [0, 0, x0, y0]
    image, alpha = render(gaussians, k, x1 - x0, y1 - y0, views.T_camera_world[index], device)
    mask = views.mask[index, y0:y1, x0:x1]
    distance = signed_distance(mask)
    picture = views.image[index, y0:y1, x0:x1].astype(np.float32) / np.float32(255)
    truth = np.asarray(picture * matte(mask)[..., None], np.float32)
    shown = np.asarray(image.clip(0, 1), np.float32)
    near = distance > -RING
    judged = near & (np.abs(distance) >= MIXED)
    solid, inside = alpha > 0.5, mask >= 128
    union = int((solid | inside).sum())
    overlap = float((solid & inside).sum() / union) if union else 0.0
    error = shown - truth
    return Comparison(truth, shown, judged, psnr(error[judged]), psnr(error[near]), overlap)
