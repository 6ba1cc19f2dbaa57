"""A first guess of the focal length from the tags that cameras write.

The 35 mm equivalent relates the longer side of the picture to the 36 mm of a film frame.  Video is
often cropped and stabilised beyond what the tag says: it starts a calibration, and replaces none.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

FILM_WIDTH = 36.0
"""Longer side of a 35 mm film frame, mm."""
LONGEST = 2000.0
"""Longest focal length that is believed, mm."""
TAG_35MM, TAG_MM, TAG_PER_X, TAG_UNIT = 41989, 37386, 41486, 41488
"""EXIF: FocalLengthIn35mmFilm, FocalLength, FocalPlaneXResolution and its unit."""
TAG_WIDTH, TAG_HEIGHT = 40962, 40963
"""EXIF: PixelXDimension and PixelYDimension, columns and rows as taken."""
UNITS = {2: 25.4, 3: 10.0, 4: 1.0, 5: 0.001}
"""Lengths of the units of EXIF's FocalPlaneResolutionUnit, mm."""
VIDEO_KEYS = re.compile(r"focallength(in)?35mm(equivalent|film|format)?$")
"""Ends of tag names, letters and digits alone, as in QuickTime's "focal_length.35mm_equivalent"."""


def focal_from_35mm(equivalent: float, width: int, height: int) -> float:
    """Focal length, px, of a picture of ``width`` x ``height`` px by its 35 mm equivalent, mm.

    NaN where the tag is nonsense: 0 (by EXIF "unknown"), negative, or above ``LONGEST``.
    """
    if not math.isfinite(equivalent) or not 1.0 <= equivalent <= LONGEST:
        return math.nan
    return equivalent / FILM_WIDTH * max(width, height)


def focal_of_photo(exif: Mapping[int, Any], width: int, height: int) -> float:
    """Focal length, px, by EXIF tags, NaN where they do not say.

    Args:
        exif: Tags of the photo's Exif part, by number.
        width: Columns of the photo, px (either way up: the longer side counts).
        height: Rows, px.

    The 35 mm equivalent is taken first; else the focal length times the sensor's resolution,
    scaled from the size that the photo was taken at.
    """
    focal = focal_from_35mm(_number(exif.get(TAG_35MM)), width, height)
    if math.isfinite(focal):
        return focal
    length, per_unit = _number(exif.get(TAG_MM)), _number(exif.get(TAG_PER_X))
    unit = UNITS.get(int(_number(exif.get(TAG_UNIT, 2), 2)))
    if unit is None or not 0.5 <= length <= LONGEST or not per_unit > 0:
        return math.nan
    taken = max(_number(exif.get(TAG_WIDTH), 0), _number(exif.get(TAG_HEIGHT), 0))
    longer = max(width, height)
    focal = length * per_unit / unit * (longer / taken if taken > 0 else 1.0)
    # A lens sees between 5 and 150 degrees; beyond that, the unit of the resolution is wrong.
    return focal if 0.13 * longer <= focal <= 12 * longer else math.nan


def focal_of_video(tags: Mapping[str, str], width: int, height: int) -> float:
    """Focal length, px, by the tags of a container or stream, NaN where they do not say.

    Apple writes "com.apple.quicktime.camera.focal_length.35mm_equivalent", a number or "26.00mm";
    other makers use names that end alike.
    """
    for name, value in sorted(tags.items()):
        if VIDEO_KEYS.search(re.sub(r"[^a-z0-9]", "", name.lower())):
            number = re.match(r"\s*(\d{1,6}(?:\.\d{1,6})?)\s*(?:mm)?\s*$", value)
            if number:
                focal = focal_from_35mm(float(number[1]), width, height)
                if math.isfinite(focal):
                    return focal
    return math.nan


def _number(value: Any, default: float = math.nan) -> float:
    """A tag's number; foreign tags hold fractions with denominator 0, text, or lists."""
    try:
        number = float(value)
    except (TypeError, ValueError, ZeroDivisionError, OverflowError):
        return default
    return number if math.isfinite(number) else default
