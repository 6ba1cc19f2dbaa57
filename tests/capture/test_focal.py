"""Focal lengths by tags, as phones and careless editors write them."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from PIL.TiffImagePlugin import IFDRational

from twinloop.capture.focal import focal_from_35mm, focal_of_photo, focal_of_video


def test_film_frame_is_36_mm_wide() -> None:
    """26 mm on 4032 x 3024 px is 2912 px, either way up."""
    assert focal_from_35mm(26, 4032, 3024) == pytest.approx(2912)
    assert focal_from_35mm(26, 3024, 4032) == pytest.approx(2912)


@pytest.mark.parametrize("value", [0, -5, 0.4, 2500, float("nan"), float("inf")])
def test_nonsense_is_unknown(value: float) -> None:
    """0 means unknown in EXIF, and no lens has 2500 mm."""
    assert np.isnan(focal_from_35mm(value, 4000, 3000))


def test_exif_of_a_photo() -> None:
    """The 35 mm tag wins; else focal length times the resolution of the sensor, per inch or cm."""
    assert focal_of_photo({41989: 28, 37386: 4.2}, 4000, 3000) == pytest.approx(28 / 36 * 4000)
    # 35 mm lens on a sensor with 4288 px over 23.6 mm.
    per_cm = {37386: 35.0, 41486: 4288 / 2.36, 41488: 3, 40962: 4288, 40963: 2848}
    expected = 35 * 4288 / 23.6
    assert focal_of_photo(per_cm, 4288, 2848) == pytest.approx(expected)
    assert focal_of_photo(per_cm, 2144, 1424) == pytest.approx(expected / 2)
    per_inch = {37386: 35.0, 41486: Fraction(4288) / Fraction("23.6") * Fraction("25.4")}
    assert focal_of_photo(per_inch, 4288, 2848) == pytest.approx(expected)


@pytest.mark.parametrize(
    "tags",
    [
        {},
        {41989: 0},
        {41989: "wide"},
        {41989: (26, 27)},
        {37386: 4.2},
        {37386: IFDRational(1, 0), 41486: 100},
        {37386: 4.2, 41486: 0},
        {37386: 4.2, 41486: 1000, 41488: 9},
        {37386: 4.2, 41486: float("nan"), 41488: float("nan")},
        # Pixels per inch of a print, a common mistake: a lens that would see 177 degrees.
        {37386: 4.2, 41486: 300, 41488: 2},
    ],
)
def test_useless_tags_give_no_guess(tags: dict[int, object]) -> None:
    """Missing, empty, textual, listed, divided by zero, or beyond any lens."""
    assert np.isnan(focal_of_photo(tags, 4000, 3000))


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("com.apple.quicktime.camera.focal_length.35mm_equivalent", "26", 26),
        ("com.apple.quicktime.camera.focal_length.35mm_equivalent", "13.00mm", 13),
        ("com.android.camera.FocalLengthIn35mmFilm", "24", 24),
        ("com.apple.quicktime.camera.focal_length.35mm_equivalent", "0", None),
        ("com.apple.quicktime.camera.focal_length.35mm_equivalent", "9" * 50, None),
        ("com.apple.quicktime.camera.focal_length.35mm_equivalent", "none", None),
        ("com.apple.quicktime.model", "26", None),
    ],
)
def test_tags_of_videos(name: str, value: str, expected: float | None) -> None:
    """Apple's name and others that end alike; nonsense gives no guess."""
    focal = focal_of_video({"encoder": "x", name: value}, 1080, 1920)
    if expected is None:
        assert np.isnan(focal)
    else:
        assert focal == pytest.approx(expected / 36 * 1920)
