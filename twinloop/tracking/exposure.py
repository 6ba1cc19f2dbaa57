"""A camera that changes its exposure in the middle of a clip: colours are brought back.

What is known of colours was learned at the start. Most of what a camera that stands still sees does
not move, so that the median ratio of its pixels is the change of exposure (which multiplies values
in a power-law encoding, too).
"""

from __future__ import annotations

from dataclasses import replace

import cv2
import numpy as np
from numpy.typing import NDArray

from twinloop.tracking.frame import CameraFrame

Image = NDArray[np.uint8]

STEP = 8
"""Every so many pixels, across and down, one is compared."""
DARKEST, BRIGHTEST = 24, 245
"""Grey levels between which a pixel tells the exposure."""
LEAST_PIXELS = 50
AGREEING, WITHIN = 0.6, 0.08
"""Share of the pixels that must have the same ratio, and how much it may differ."""
LEAST_CHANGE = 0.04
"""Change of exposure from which on colours are brought back."""


class Exposure:
    """The exposure of one camera, compared with that of the frame that it was made with."""

    def __init__(self, frame: CameraFrame) -> None:
        """Remember the light of `frame`, in which colours are learned."""
        self.first = frame.grey[::STEP, ::STEP].astype(np.float32)
        self.place = frame.camera.T_camera_world

    def gain(self, frame: CameraFrame) -> float:
        """Brightness of `frame` in units of the first one's; 1 where nothing tells it.

        That is so for a camera that moved, and where less than 60 % of the pixels agree.
        """
        now = frame.grey[::STEP, ::STEP].astype(np.float32)
        moved = not np.allclose(self.place, frame.camera.T_camera_world, atol=1e-6)
        if moved or now.shape != self.first.shape:
            return 1.0
        told = (np.minimum(now, self.first) > DARKEST) & (np.maximum(now, self.first) < BRIGHTEST)
        if int(told.sum()) < LEAST_PIXELS:
            return 1.0
        ratio = now[told] / self.first[told]
        middle = float(np.median(ratio))
        agree = float((np.abs(ratio / middle - 1.0) < WITHIN).mean())
        return middle if agree > AGREEING else 1.0

    def even(self, frame: CameraFrame) -> CameraFrame:
        """The frame with its colours as they would be at the first one's exposure."""
        gain = self.gain(frame)
        if abs(gain - 1.0) < LEAST_CHANGE:
            return frame
        table = np.clip(np.rint(np.arange(256) / gain), 0, 255).astype(np.uint8)
        return replace(frame, rgb=np.asarray(cv2.LUT(frame.rgb, table), np.uint8))
