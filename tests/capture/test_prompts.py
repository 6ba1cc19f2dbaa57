"""What the user points at: checked against the pictures, carried into undistorted windows."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from pydantic import ValidationError

from twinloop.capture.projection import Camera, Undistorter
from twinloop.capture.prompts import Prompts, ViewPrompt, by_picture
from twinloop.errors import InputError

PICTURES = SimpleNamespace(
    path=Path("scan.mp4"), names=("frame 0", "frame 1"), sizes=np.array([[90, 160], [90, 160]])
)


def test_prompts_are_sorted_by_picture() -> None:
    """A box and clicks as YAML gives them."""
    prompts = Prompts.model_validate(
        {
            "box": [{"picture": 1, "xyxy": [10, 20, 50, 150]}],
            "inside": [[1, 30, 80], [0, 20.5, 70]],
            "outside": [[1, 5, 5]],
        }
    )
    found = by_picture(prompts, PICTURES)
    assert sorted(found) == [0, 1]
    np.testing.assert_array_equal(found[1].box, [10, 20, 50, 150])
    np.testing.assert_array_equal(found[0].inside, [[20.5, 70]])
    assert found[0].box is None
    np.testing.assert_array_equal(found[1].outside, [[5, 5]])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"box": [{"picture": 0, "xyxy": [50, 20, 10, 150]}]}, "left, top, right, bottom"),
        ({"box": [{"picture": 0, "xyxy": [0, 0, float("nan"), 9]}]}, "finite"),
        ({"inside": [[-1, 3, 3]]}, "greater than or equal to 0"),
        ({"box": [{"picture": 0, "xyxy": [0, 0, 9, 9]}] * 2}, "one per picture"),
        ({"boxes": []}, "Extra inputs"),
    ],
)
def test_malformed_prompts(content: dict, message: str) -> None:
    """Swapped corners, NaN, negative numbers, two boxes, unknown words."""
    with pytest.raises(ValidationError, match=message):
        Prompts.model_validate(content)


def test_prompts_outside_of_pictures() -> None:
    """A picture that does not exist; a pixel beyond the picture, with a hint."""
    with pytest.raises(InputError, match=r"name picture 2, but there are 2 \(0 to 1\)"):
        by_picture(Prompts(inside=((2, 3.0, 3.0),)), PICTURES)
    with pytest.raises(InputError, match=r"at \(150, 30\) px, outside .* 90 x 160 px.*Swap u and"):
        by_picture(Prompts(inside=((0, 150.0, 30.0),)), PICTURES)
    with pytest.raises(InputError, match="prompt 'box' of picture 1"):
        by_picture(
            Prompts.model_validate({"box": [{"picture": 1, "xyxy": [0, 0, 95, 9]}]}), PICTURES
        )


def test_clicks_follow_the_lens() -> None:
    """A point seen through the lens lands where the pinhole window sees it; the rest drops."""
    lens = Camera(np.array([80.0, 82.0, 44.0, 80.0]), np.array([-0.2, 0.05, 0, 0, 0]), 90, 160)
    pinhole = Undistorter(lens, 45, 80, np.array([38.0, 39.0, 22.0, 40.0]))
    window = np.array([5, 20, 30, 40])
    points = np.array([[0.05, -0.1, 1.0], [0.6, 0.0, 1.0]])
    clicks = lens.project(points)
    moved = ViewPrompt(None, clicks, clicks[:0]).undistorted(pinhole, window)
    expected = points[:1, :2] * pinhole.intrinsics[:2] + pinhole.intrinsics[2:] - [5, 20]
    np.testing.assert_allclose(moved.inside, expected, atol=1e-4)
    boxed = ViewPrompt(np.array([30.0, 50.0, 60.0, 110.0])).undistorted(pinhole, window)
    corner = lens.normalize(np.array([[30.0, 50.0]])) * pinhole.intrinsics[:2]
    assert boxed.box[0] <= corner[0, 0] + 22 - 5 + 1e-6
    assert (boxed.box >= 0).all()
    assert (boxed.box <= [29, 39, 29, 39]).all()
    half = ViewPrompt(np.array([-0.5, -0.5, 9.5, 19.5])).scaled(np.array([0.5, 0.5]))
    np.testing.assert_allclose(half.box, [-0.5, -0.5, 4.5, 9.5])
