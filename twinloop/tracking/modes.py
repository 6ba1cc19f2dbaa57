"""What a track can lean on, decided by measurement and said in the artifact."""

from __future__ import annotations

from dataclasses import dataclass

LEAST_TEXTURE = 12.0
"""Cells of 8 px with texture that make flow on the object worth its time."""
LARGEST_OVERLAP = 0.8
"""Colours of object and background that overlap by more than this give no outline."""


@dataclass(frozen=True)
class Modes:
    """The measurements in use, and the figures that chose them.

    texture_cells: textured 8 px cells of the object in the first image; overlap: Bhattacharyya
    coefficient in [0, 1] of the colours of the object and of what is around it.
    """

    region: bool
    texture: bool
    depth: bool
    plane: bool
    texture_cells: float
    overlap: float

    @property
    def names(self) -> str:
        """The modes in use, such as "region+texture+plane"."""
        every = ("region", "texture", "depth", "plane")
        return "+".join(name for name in every if getattr(self, name)) or "none"


def choose_modes(texture_cells: float, overlap: float, *, depth: bool, plane: bool) -> Modes:
    """The modes for an object with so much texture and colours so alike those around it.

    An object without texture is followed by its outline even where colours tell little, unless
    there is depth: something has to be.
    """
    texture = texture_cells >= LEAST_TEXTURE
    region = overlap < LARGEST_OVERLAP or not (texture or depth)
    return Modes(region, texture, depth, plane, float(texture_cells), float(overlap))
