"""Where exactly the image ends the object: the share of object colour along lines across a contour.

Colour statistics find the contour to a pixel, but call a mixed pixel of an edge one or the other,
which moves the contour by tenths of a pixel in or out: a depth error of millimetres. Here each
line's own colours just inside and just outside are the ends of a scale on which its pixels are
measured; the sum of their shares is the place of the edge, whatever blurs it evenly.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from twinloop.tracking.contour import Contour
from twinloop.tracking.region import contour_lines
from twinloop.tracking.solver import System, WorldCamera, line_jacobian, median, tukey

Array = NDArray[np.float64]
Image = NDArray[np.uint8]
Window = tuple[int, int, int, int]

HALF = 7
"""Pixels of a line on each side."""
END = 3
"""Pixels at each end of a line that give its two colours."""


@dataclass(frozen=True)
class EdgeTerm:
    """Lines across the contour of one camera, measured to a part of a pixel.

    rgb: (h, w, 3) u1 of `window` (x0, y0, ...); known: (h, w) float32, 0 where another body may
    be; contrast: grey levels between the two colours of a line that count; correlated: lines that
    carry all of the information; sigma: px of one line.
    """

    camera: WorldCamera
    contour: Contour
    window: Window
    rgb: Image
    known: NDArray[np.float32]
    contrast: float = 25.0
    correlated: float = 60.0
    sigma: float = 0.5
    reach: float = 2.5

    def system(self, pose: Array, turn: int) -> System | None:
        """Normal equations at a pose that is right to two pixels or so."""
        c = self.contour
        if len(c.points) == 0:
            return None
        pixels, normals = contour_lines(self.camera, c, pose)
        at = np.arange(-HALF, HALF + 1, dtype=np.float64)
        x = (pixels[:, :1] - self.window[0] + at * normals[:, :1]).astype(np.float32)
        y = (pixels[:, 1:] - self.window[1] + at * normals[:, 1:]).astype(np.float32)
        colours = np.asarray(cv2.remap(self.rgb, x, y, cv2.INTER_LINEAR), np.float32)
        known = np.asarray(cv2.remap(self.known, x, y, cv2.INTER_NEAREST))
        offset, quality = edge_offsets(colours)
        # A line that something hides, or with too little room, is no witness for or against.
        asked = (known.min(1) > 0.5) & (c.inside >= HALF + 1) & (c.outside >= HALF + 1)
        good = asked & (quality > self.contrast) & (np.abs(offset) < self.reach)
        if good.sum() < 12:
            return None
        residual = offset[good]
        along = line_jacobian(self.camera, pose, c.points[good], normals[good])
        off = np.abs(residual - median(residual))
        weight = tukey(off, max(4 * 1.4826 * median(off), 0.8)) / self.sigma**2
        kept = max(float(weight.sum()) * self.sigma**2, 1e-9)
        scale = float(np.sqrt((weight * residual**2).sum() / max(kept, 1e-9)))
        weight = weight * min(1.0, self.correlated / kept) / max(scale, 1.0) ** 2
        return System(
            (along * weight[:, None]).T @ along,
            along.T @ (weight * residual),
            scale=scale,
            used=int(good.sum()),
            offered=int(asked.sum()),
        )


def edge_offsets(colours: NDArray[np.float32]) -> tuple[Array, Array]:
    """Offset (n,) px of the edge along each line, outwards, and the contrast (n,) that speaks.

    colours: (n, 2 HALF + 1, 3) grey levels from inside to outside. The contrast is what is left of
    the difference of the two ends when the unrest within the ends is taken away.
    """
    inner, outer = colours[:, :END], colours[:, -END:]
    a, b = inner.mean(1), outer.mean(1)
    across = a - b
    length = np.linalg.norm(across, axis=1)
    share = (
        np.einsum("nkc,nc->nk", colours - b[:, None], across) / np.maximum(length, 1)[:, None] ** 2
    )
    offset = np.clip(share, -0.25, 1.25).sum(1) - (HALF + 0.5)
    unrest = np.abs(np.diff(share, axis=1)).sum(1) - 1.0
    return np.asarray(offset, np.float64), np.asarray(length * (1 - unrest), np.float64)
