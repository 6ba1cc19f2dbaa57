"""How far a frame's mask can be trusted, between 0 and 1.

From three shares, each 1 for a good mask: how well the mask agrees with the silhouette of the hull
that all masks share, how well with the pixels that have the object's colours in the other frames,
and how much of its edge lies where colours change; the root of their product.  A frame in which the
object is hidden, moved or badly cut loses at least one of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Images = NDArray[np.uint8]
Flags = NDArray[np.bool_]

BINS = 8
"""Histogram bins per colour channel."""
DROP = 0.65
"""Quality below which a frame is better left out; see :func:`weights`."""
SIDE = 3
"""Distance on either side of the edge at which colours are compared, px."""


def quality(
    images: Images, masks: Images, silhouettes: Images, support: Array | None = None
) -> Array:
    """Rate every frame's mask.

    Args:
        images: RGB (frame, y, x, 3).
        masks: (frame, y, x), non-zero on the object.
        silhouettes: Pictures of the hull of all masks (frame, y, x), non-zero on it; see
            :meth:`twinloop.capture.hull.Shape.silhouettes`.
        support: Share of each mask's pixels whose colours speak for the object (frame,), where the
            masks were cut here; None when they came from elsewhere.

    Returns:
        (frame,), 0 for an empty mask.
    """
    on = masks > 0
    agreement = _agreement(on, silhouettes > 0)
    like = _relative(_colour_overlap(images, on))
    if support is not None:
        like = np.minimum(like, _relative(support))
    edge = _relative(np.array([_contrast(i, m) for i, m in zip(images, on, strict=True)]))
    found = np.sqrt(agreement * like) * np.sqrt(edge)
    return np.where(on.any(axis=(1, 2)), np.clip(found, 0.0, 1.0), 0.0)


def weights(found: Array, drop: float = DROP) -> Array:
    """Weight of every frame in what follows: 0 below ``drop``, then rising to 1, (frame,)."""
    return np.where(found < drop, 0.0, np.clip((found - drop) / (1 - drop) * 2, 0.1, 1.0))


def describe(found: Array, names: Sequence[str], drop: float = DROP) -> str | None:
    """A sentence on the frames that fall below ``drop``; None when there is none."""
    low = [int(i) for i in np.flatnonzero(found < drop)]
    if not low:
        return None
    worst = sorted(low, key=lambda i: float(found[i]))[:5]
    shown = ", ".join(f"{names[i]}: {found[i]:.2f}" for i in worst)
    return (
        f"{len(low)} of {len(found)} masks have a quality below {drop} and are left out ({shown}; "
        f"median of all {np.median(found):.2f})."
    )


def _agreement(masks: Flags, silhouettes: Flags) -> Array:
    both = (masks & silhouettes).sum(axis=(1, 2))
    either = (masks | silhouettes).sum(axis=(1, 2))
    return np.asarray(both / np.maximum(either, 1), np.float64)


def _relative(values: Array) -> Array:
    """Share of what is usual among the frames, at most 1: objects differ in looks, frames less."""
    usual = float(np.median(values))
    return np.clip(values / max(usual, 1e-6), 0.0, 1.0)


def _colour_overlap(images: Images, masks: Flags) -> Array:
    """Overlap (frame,) of each mask with the pixels in and around it that have object colours."""
    step = 256 // BINS
    code = (images // step).astype(np.int64) @ np.array([BINS * BINS, BINS, 1])
    near = np.stack([_grown(m) for m in masks]) & ~masks
    inside, around = _counts(code, masks), _counts(code, near)
    share = np.zeros(len(images))
    for i, (c, m, n) in enumerate(zip(code, masks, near, strict=True)):
        # Judged by the other frames: its own mask would vouch for itself.
        own, other = inside.sum(axis=0) - inside[i], around.sum(axis=0) - around[i]
        alike = own / max(own.sum(), 1) > other / max(other.sum(), 1)
        share[i] = alike[c[m]].sum() / max(int(m.sum()) + int(alike[c[n]].sum()), 1)
    return share


def _counts(code: NDArray[np.int64], where: Flags) -> NDArray[np.int64]:
    """Histogram (frame, BINS^3) of the colours of the pixels ``where`` (frame, y, x)."""
    pairs = zip(code, where, strict=True)
    return np.stack([np.bincount(c[w], minlength=BINS**3) for c, w in pairs])


def _grown(mask: Flags) -> Flags:
    radius = max(3, round(0.15 * np.sqrt(mask.sum())))
    kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * radius + 1, 2 * radius + 1))
    return np.asarray(cv2.dilate(mask.astype(np.uint8), kernel) > 0)


def _contrast(image: Images, mask: Flags) -> float:
    """Share of the mask's edge across which colours change more than they do beside it."""
    signed = cv2.distanceTransform(mask.astype(np.uint8), cv2.DIST_L2, 3) - cv2.distanceTransform(
        (~mask).astype(np.uint8), cv2.DIST_L2, 3
    )
    rim = np.abs(signed) <= 1.0
    rim[[0, -1]] = False
    rim[:, [0, -1]] = False
    if not rim.any():
        return 0.0
    smooth = cv2.GaussianBlur(image.astype(np.float32), (0, 0), 1.0)
    along_x = cv2.Sobel(smooth, cv2.CV_32F, 1, 0, ksize=3)
    along_y = cv2.Sobel(smooth, cv2.CV_32F, 0, 1, ksize=3)
    slope = np.sqrt((along_x**2 + along_y**2).sum(axis=2))
    # An edge is where the slope peaks: compare with what lies a few pixels to either side.
    beside = (np.abs(signed) > SIDE) & (np.abs(signed) <= 3 * SIDE)
    level = float(np.quantile(slope[beside], 0.6)) if beside.any() else 0.0
    peak = cv2.dilate(slope, np.ones((3, 3), np.uint8))
    return float((peak[rim] > max(level, 30.0)).mean())
