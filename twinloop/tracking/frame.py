"""What a tracker is given: one instant, seen by one or several calibrated cameras."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinloop.tracking.solver import WorldCamera

Image = NDArray[np.uint8]


@dataclass(frozen=True)
class CameraFrame:
    """One camera's undistorted image of an instant.

    camera: intrinsics and pose at that instant (a moving camera has another one each time);
    rgb: (h, w, 3) u1; grey: (h, w) u1; depth: (h, w) float32 m along the optical axis, 0 where
    none was measured, or None without such a sensor; ignore: (h, w) bool, true where a body known
    from elsewhere (the robot) may hide the object, or None.
    """

    camera: WorldCamera
    rgb: Image
    grey: Image
    depth: NDArray[np.float32] | None = None
    ignore: NDArray[np.bool_] | None = None


@dataclass(frozen=True)
class Frame:
    """An instant `time` (s, camera clock) as seen by all cameras."""

    time: float
    cameras: tuple[CameraFrame, ...]
