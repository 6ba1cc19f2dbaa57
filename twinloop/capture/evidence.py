"""What tells a pixel of an object from the empty table: differences, their noise, the true edge."""

from __future__ import annotations

from dataclasses import dataclass, replace

import cv2
import numpy as np
from numpy.typing import NDArray

from twinloop.capture.hull import UNKNOWN
from twinloop.capture.plane import Mosaic, predict

Array = NDArray[np.float64]
Images = NDArray[np.uint8]
Flags = NDArray[np.bool_]

BUSY = 60.0
"""Range of table colours within a pixel's neighbours, grey levels, above which it is busy."""


@dataclass(frozen=True)
class Evidence:
    """A frame against the empty table."""

    table: Images
    """Colour of the empty table, RGB (y, x, 3)."""
    difference: Array
    """Distance to the range of colours the table can show, (y, x), grey levels, rms over RGB."""
    log_range: Array
    """Log of the volume of that range, (y, x), summed over RGB; large along edges of the print."""
    known: Flags
    """Where the table's look is known, (y, x)."""


def compare(image: Images, mosaic: Mosaic, intrinsics: Array, T_camera_board: Array) -> Evidence:
    """Compare a frame with the empty table; see :func:`twinloop.capture.plane.predict`."""
    table, low, high, known = predict(mosaic, intrinsics, T_camera_board, *image.shape[:2])
    over = np.maximum(cv2.subtract(image, high), cv2.subtract(low, image)).astype(np.float64)
    spread = np.log(cv2.subtract(high, low).astype(np.float64) + 8.0).sum(axis=2)
    return Evidence(table, np.sqrt((over**2).mean(axis=2)), spread, known)


def blank(evidence: Evidence) -> Evidence:
    """The same frame with nothing known of the table."""
    return replace(
        evidence,
        difference=np.zeros_like(evidence.difference),
        log_range=np.zeros_like(evidence.log_range),
        known=np.zeros_like(evidence.known),
    )


def ternary(evidence: Evidence, sigma: float) -> Images:
    """255 where a frame surely differs from the table, 0 where it surely agrees, else UNKNOWN."""
    differs = opened((evidence.difference > 4 * sigma + 6).astype(np.uint8) * 255)
    # Among the edges of the print anything may hide: agreeing there says nothing.
    blank = evidence.log_range < 3 * np.log(BUSY)
    return np.where(evidence.known & (blank | (differs > 0)), differs, UNKNOWN).astype(np.uint8)


def table_noise(
    evidence: list[Evidence], region: list[Images] | None, quantile: float = 0.75
) -> float:
    """Noise of table pixels against the mosaic, grey levels, from pixels outside ``region``."""
    samples = []
    for i, one in enumerate(evidence):
        usable = one.known if region is None else one.known & (region[i] == 0)
        samples.append(one.difference[usable][::7])
    values = np.concatenate(samples)
    return max(2.5, float(np.quantile(values, quantile))) if len(values) else 5.0


def even_edge(image: Images, mask: Images, evidence: Evidence) -> Images:
    """Place the edge where a pixel is covered by half.

    A cut calls a pixel object as soon as it looks unlike the table, which blends of both do.  For
    pixels at the edge the share of object colour is alpha = (I - B) (F - B) / |F - B|^2 with the
    object's colour F averaged over the mask's inside nearby, and the table's colour B.

    Args:
        image: RGB (y, x, 3).
        mask: (y, x), 255 on the object.
        evidence: The frame's empty table.

    Returns:
        The mask with its edge moved by a pixel at most.
    """
    core = cv2.erode(mask, np.ones((5, 5), np.uint8)) > 0
    rim = (dilate(mask, 1) > 0) & ~(cv2.erode(mask, np.ones((3, 3), np.uint8)) > 0)
    colour = image.astype(np.float32)

    def around(where: Flags) -> tuple[Array, Array]:
        weight = cv2.boxFilter(where.astype(np.float32), -1, (7, 7), normalize=False)
        total = cv2.boxFilter(colour * where[..., None], -1, (7, 7), normalize=False)
        return total / np.maximum(weight, 1e-3)[..., None], weight

    inside, enough = around(core)
    outside, _ = around(dilate(mask, 2) == 0)
    table = np.where(evidence.known[..., None], evidence.table.astype(np.float32), outside)
    contrast = inside - table
    power = (contrast**2).sum(axis=2)
    alpha = ((colour - table) * contrast).sum(axis=2) / np.maximum(power, 1.0)
    busy = evidence.known & (evidence.log_range > 3 * np.log(BUSY))
    sure = rim & (enough > 3) & (power > 3 * 25.0**2) & ~busy
    return np.where(sure, np.where(alpha >= 0.5, 255, 0), mask).astype(np.uint8)


def dilate(mask: Images, radius: int) -> Images:
    """Grow a mask by ``radius`` px."""
    kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * radius + 1, 2 * radius + 1))
    return np.asarray(cv2.dilate(mask, kernel), np.uint8)


def erode(mask: Images, radius: int) -> Images:
    """Shrink a mask by ``radius`` px."""
    kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * radius + 1, 2 * radius + 1))
    return np.asarray(cv2.erode(mask, kernel), np.uint8)


def opened(mask: Images) -> Images:
    """Drop specks of a mask that are thinner than two pixels."""
    return np.asarray(cv2.morphologyEx(mask, cv2.MORPH_OPEN, np.ones((2, 2), np.uint8)), np.uint8)
