"""The last part of a pixel: the twin's picture laid over the live image, all pixels at once.

Flow follows a few dozen corners; the picture that the rasteriser draws of the twin has thousands of
pixels. Each is carried by the mesh into the live image and compared there, after light that varies
slowly over the object has been taken out of both (forward-additive image alignment, Baker and
Matthews 2004, with depth from the mesh).
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from twinloop.tracking.solver import System, WorldCamera, point_system, tukey

Array = NDArray[np.float64]
Image = NDArray[np.uint8]
Float32 = NDArray[np.float32]

LIGHT = 6.0
"""Light is what varies over more than this many px (standard deviation of the window)."""
INDEPENDENT = 20.0
"""Neighbouring pixels share blur, compression and model errors: one in so many counts."""
LEAST = 150
"""Fewer pixels than this tell less than corners do."""


@dataclass(frozen=True)
class PhotometricTerm:
    """A picture of the object against one camera's image.

    points: (h, w, 3) float32 object points of the picture's pixels; picture: (h, w) float32 grey
    without slow light; valid: (h, w) bool; live: (H, W) u1 undistorted; sigma: grey levels that a
    pixel differs by at best; correlated: independent pixels that carry all of the information.
    """

    camera: WorldCamera
    points: Float32
    picture: Float32
    valid: NDArray[np.bool_]
    live: Image
    sigma: float = 3.0
    correlated: float = 120.0

    def system(self, pose: Array, turn: int) -> System | None:
        """Normal equations at a pose that is right to a pixel or two."""
        T = (self.camera.T_camera_world @ pose).astype(np.float32)
        p = self.points @ T[:3, :3].T + T[:3, 3]
        z = np.maximum(p[..., 2], 1e-4)
        fx, fy, cx, cy = (float(v) for v in self.camera.intrinsics)
        x = (fx * p[..., 0] / z + cx).astype(np.float32)
        y = (fy * p[..., 1] / z + cy).astype(np.float32)
        h, w = self.live.shape
        valid = self.valid & (x > 2) & (y > 2) & (x < w - 3) & (y < h - 3)
        if valid.sum() < LEAST:
            return None
        live = self.live.astype(np.float32)
        seen = without_light(np.asarray(cv2.remap(live, x, y, cv2.INTER_LINEAR)), valid)
        a, b = self.picture[valid], seen[valid]
        gain = float(np.clip(a @ b / max(float(a @ a), 1e-6), 0.3, 3.0))
        residual = (gain * a - b).astype(np.float64)
        # Differences over two pixels of the live image, by the same interpolation.
        u, v = x[valid][:, None], y[valid][:, None]
        dx = 0.5 * (cv2.remap(live, u + 1, v, 1) - cv2.remap(live, u - 1, v, 1)).ravel()
        dy = 0.5 * (cv2.remap(live, u, v + 1, 1) - cv2.remap(live, u, v - 1, 1)).ravel()
        _, jacobian = point_system(
            self.camera,
            pose,
            self.points[valid].astype(np.float64),
            np.zeros((int(valid.sum()), 2)),
        )
        along = dx[:, None] * jacobian[:, 0] + dy[:, None] * jacobian[:, 1]
        spread = 1.4826 * float(np.median(np.abs(residual)))
        sigma = max(spread, self.sigma)
        weight = tukey(np.abs(residual), 4 * sigma)
        kept = float(weight.sum())
        if kept < 0.3 * len(residual):
            return None
        weight = weight / sigma**2 * min(1 / INDEPENDENT, self.correlated / kept)
        weighted = along * weight[:, None]
        return System(
            weighted.T @ along,
            weighted.T @ residual,
            scale=spread / self.sigma,
            used=int((weight > 0).sum() / INDEPENDENT),
            offered=int(len(residual) / INDEPENDENT),
        )


def without_light(grey: Float32, valid: NDArray[np.bool_]) -> Float32:
    """The image less its smooth part over the valid pixels (h, w); 0 elsewhere."""
    weight = valid.astype(np.float32)
    size = (0, 0)
    total = cv2.GaussianBlur(grey * weight, size, LIGHT)
    count = cv2.GaussianBlur(weight, size, LIGHT)
    return np.asarray((grey - total / np.maximum(count, 1e-3)) * weight, np.float32)


def photometric_term(
    camera: WorldCamera,
    points: Float32,
    grey: Image,
    valid: NDArray[np.bool_],
    live: Image,
    largest: int = 12000,
) -> PhotometricTerm | None:
    """The term of a picture `grey` (h, w) whose pixels show object points (h, w, 3).

    Its rim is left out, where picture and image mix with what lies behind, and of large pictures
    only every other pixel counts.
    """
    inner = cv2.erode(valid.astype(np.uint8), np.ones((5, 5), np.uint8), borderValue=0) > 0
    if inner.sum() < LEAST:
        return None
    picture = without_light(grey.astype(np.float32), valid)
    step = int(np.ceil(np.sqrt(float(inner.sum()) / largest)))
    part = (slice(None, None, step), slice(None, None, step))
    return PhotometricTerm(
        camera,
        np.ascontiguousarray(points[part]),
        np.ascontiguousarray(picture[part]),
        np.ascontiguousarray(inner[part]),
        live,
    )
