"""What a user points at to say which thing is the object: boxes and clicks in some pictures.

Pixels are those of the full upright picture, the centre of the first one being (0, 0).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, model_validator

from twinloop.capture.pictures import Pictures
from twinloop.capture.projection import Undistorter
from twinloop.errors import InputError

Array = NDArray[np.float64]
Index = Annotated[int, Field(ge=0, lt=2**31)]
Click = tuple[Index, FiniteFloat, FiniteFloat]


class Box(BaseModel):
    """A rectangle around the object in one picture."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    picture: Index = Field(description="number of the picture in its source, from 0")
    xyxy: tuple[FiniteFloat, FiniteFloat, FiniteFloat, FiniteFloat] = Field(
        description="left, top, right, bottom, px of the full upright picture"
    )

    @model_validator(mode="after")
    def _ordered(self) -> Box:
        left, top, right, bottom = self.xyxy
        if right - left < 2 or bottom - top < 2:
            raise ValueError(
                f"box {self.xyxy}: expected left, top, right, bottom with at least 2 px in "
                "between; were a corner and a size given?"
            )
        return self


class Prompts(BaseModel):
    """Boxes and clicks of a user."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    box: tuple[Box, ...] = Field((), description="rectangles around the object, one per picture")
    inside: tuple[Click, ...] = Field(
        (), description="[picture, u, v]: a pixel that is on the object"
    )
    outside: tuple[Click, ...] = Field(
        (), description="[picture, u, v]: a pixel that is not on the object"
    )

    @model_validator(mode="after")
    def _one_box_per_picture(self) -> Prompts:
        numbers = [box.picture for box in self.box]
        if len(set(numbers)) < len(numbers):
            raise ValueError(f"boxes of pictures {sorted(numbers)}: one per picture is expected")
        return self

    @property
    def pictures(self) -> tuple[int, ...]:
        """Numbers of the pictures that are pointed at, sorted."""
        clicks = {int(click[0]) for click in (*self.inside, *self.outside)}
        return tuple(sorted(clicks | {box.picture for box in self.box}))


@dataclass(frozen=True)
class ViewPrompt:
    """What the user points at in one picture, in its own pixels."""

    box: Array | None = None
    """Left, top, right, bottom (4,), or None."""
    inside: Array = field(default_factory=lambda: np.zeros((0, 2)))
    """Pixels u, v on the object, (n, 2)."""
    outside: Array = field(default_factory=lambda: np.zeros((0, 2)))
    """Pixels u, v beside it, (n, 2)."""

    def scaled(self, ratio: Array) -> ViewPrompt:
        """For the picture resized by ``ratio`` (2,) (areas scale, not centres)."""
        box = None if self.box is None else (self.box + 0.5) * np.tile(ratio, 2) - 0.5
        return ViewPrompt(
            box, (self.inside + 0.5) * ratio - 0.5, (self.outside + 0.5) * ratio - 0.5
        )

    def undistorted(self, lens: Undistorter, window: NDArray[np.int64]) -> ViewPrompt:
        """For a window of the undistorted picture.

        Args:
            lens: What undistorts the full picture.
            window: First column, first row, columns, rows (4,) of the part that is kept.

        The box becomes the upright one around its bent outline; clicks outside the window drop.
        """
        corner, size = window[:2].astype(np.float64), window[2:]

        def moved(pixels: Array) -> Array:
            if not len(pixels):
                return pixels
            xy = lens.source.normalize(pixels)
            return xy * lens.intrinsics[:2] + lens.intrinsics[2:] - corner

        def kept(pixels: Array) -> Array:
            found = moved(pixels)
            return found[((found > -0.5) & (found < size - 0.5)).all(axis=1)]

        box = None
        if self.box is not None:
            share = np.linspace(0.0, 1.0, 9)[:, None]
            left, top, right, bottom = self.box
            rim = np.array([[left, top], [right, top], [right, bottom], [left, bottom]])
            sides = [a + share * (b - a) for a, b in zip(rim, np.roll(rim, -1, 0), strict=True)]
            outline = moved(np.concatenate(sides))
            box = np.r_[outline.min(axis=0), outline.max(axis=0)]
            box = np.clip(box, 0, np.tile(size - 1.0, 2))
        return replace(self, box=box, inside=kept(self.inside), outside=kept(self.outside))


def by_picture(prompts: Prompts, pictures: Pictures) -> dict[int, ViewPrompt]:
    """Sort prompts by picture and check them against the pictures' sizes.

    Returns:
        What is pointed at, by the picture's number in its source; pixels of the full picture.

    Raises:
        InputError: A picture does not exist, or a pixel lies outside of it; says size and value.
    """
    sizes = pictures.sizes
    for number in prompts.pictures:
        if number >= len(sizes):
            raise InputError(
                f"{pictures.path}: the prompts name picture {number}, but there are {len(sizes)} "
                f"(0 to {len(sizes) - 1}); pictures are counted from 0 in order of presentation."
            )
    found: dict[int, ViewPrompt] = {}
    for number in prompts.pictures:
        size = sizes[number]
        boxes = [np.array(b.xyxy) for b in prompts.box if b.picture == number]
        inside = _clicks(prompts.inside, number)
        outside = _clicks(prompts.outside, number)
        corners = [b.reshape(2, 2) for b in boxes]
        for what, pixels in (("box", corners), ("inside", [inside]), ("outside", [outside])):
            _refuse_beyond(pictures, number, size, what, pixels)
        found[number] = ViewPrompt(boxes[0] if boxes else None, inside, outside)
    return found


def _clicks(clicks: tuple[Click, ...], number: int) -> Array:
    return np.array([c[1:] for c in clicks if c[0] == number], dtype=np.float64).reshape(-1, 2)


def _refuse_beyond(
    pictures: Pictures, number: int, size: NDArray[np.int64], what: str, pixels: list[Array]
) -> None:
    for pixel in (p for group in pixels for p in group):
        # A corner may lie on the picture's rim, a pixel's width beyond its last centre.
        slack = 1.0 if what == "box" else 0.5
        if (pixel < -slack).any() or (pixel > size - 1 + slack).any():
            turned = (pixel[::-1] <= size).all() and (pixel >= 0).all()
            hint = " Swap u and v?" if turned else ""
            raise InputError(
                f"{pictures.path}: prompt {what!r} of picture {number} "
                f"({pictures.names[number]}) is at ({pixel[0]:g}, {pixel[1]:g}) px, outside the "
                f"upright picture of {size[0]} x {size[1]} px. Pixels of the full picture after "
                f"its rotation are expected.{hint}"
            )
