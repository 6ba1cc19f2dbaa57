"""Pictures with lens and pose as other tools export them: what every reader of a format returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinloop.capture.pictures import Pictures
from twinloop.capture.projection import Camera

Array = NDArray[np.float64]

MaskReader = Callable[[int], "NDArray[np.uint8] | None"]
"""Mask (height, width) of a picture by its index, 255 on the object; None when there is none."""
DepthReader = Callable[[int], "Array | None"]
"""Depth (rows, columns) m along the optical axis of a picture by its index, NaN where unknown; its
size may differ from the picture's (same field of view)."""


@dataclass(frozen=True)
class PosedCapture:
    """Pictures with their lenses and, where known, poses.

    The centre of the first pixel is (0, 0) in ``cameras``; COLMAP's and nerfstudio's (0.5, 0.5) is
    converted by the reader.
    """

    format: str
    """Name of the format, for the report."""
    pictures: Pictures
    """The pictures; those that the format lists but that do not exist are left out and noted."""
    cameras: tuple[Camera, ...]
    """Lens of each picture at its full upright size (n,)."""
    T_world_camera: Array | None
    """Camera poses (n, 4, 4) in the capture's own world, OpenCV axes; NaN where not registered.
    None when the format knows lenses only."""
    metric: bool
    """Whether the format promises metres."""
    up: Array | None = None
    """Unit vector against gravity in the capture's world (3,), where the format defines it."""
    points: Array | None = None
    """Sparse points on what is seen (m, 3) in the capture's world."""
    mask: MaskReader | None = None
    """Object masks."""
    depth: DepthReader | None = None
    """Depth pictures."""
    T_world_object: Array | None = None
    """Object pose in each picture (n, 4, 4) where the format has it (BOP); NaN where unknown."""
    notes: tuple[str, ...] = ()
    """What was worked around, one sentence each, for the report."""
