"""The silhouette against the image: statistics of colour along lines across the contour.

Each line asks where along it the object ends, given the log odds of its pixels: a discrete
posterior over offsets whose mean and variance enter the Gauss-Newton (the sparse Gaussian scheme of
Stoiber et al., ACCV 2020 and IJCV 2022). Lines are looked up in one image of log odds per frame,
and contour points come from the pose itself, not from stored viewpoints.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import cv2
import numpy as np
from numpy.typing import NDArray

from twinloop.tracking.colours import ColourModel, bins
from twinloop.tracking.contour import Contour
from twinloop.tracking.solver import System, WorldCamera, line_jacobian, median, tukey

Array = NDArray[np.float64]
Image = NDArray[np.uint8]
Float32 = NDArray[np.float32]
Window = tuple[int, int, int, int]

OFFSETS = 12
"""Offsets of the contour that are weighed, in segments."""
STEP = 8
"""Segments of the model of an edge, half inside and half outside."""
AMPLITUDE, SLOPE = 0.43, 0.5
"""Confidence far from the edge and its softness, in segments (Stoiber 2022)."""
LEAST_SIGMA = 0.7
"""No line tells its offset better than this, px."""


@dataclass(frozen=True)
class OddsImage:
    """Log odds (h, w) that a pixel is the object's in the window (x0, y0, ...) of a camera.

    known: (h, w) float32, 1 where the pixel may be used, 0 where another body may be.
    """

    window: Window
    odds: Float32
    known: Float32

    @staticmethod
    def of(rgb: Image, window: Window, colours: ColourModel, known: NDArray[np.bool_]) -> OddsImage:
        """The image of a window of `rgb` (h, w, 3); `known` (h', w') bool is the window's."""
        x0, y0, x1, y1 = window
        odds = colours.table[bins(rgb[y0:y1, x0:x1])]
        return OddsImage(window, odds * known, known.astype(np.float32))

    @cached_property
    def clear(self) -> bool:
        """Whether all pixels may be used."""
        return bool(self.known.all())

    def lines(self, x: Float32, y: Float32) -> tuple[Float32, NDArray[np.bool_]]:
        """Log odds (n, m) along lines of pixels (n, m), and which lines (n,) may be used."""
        odds = np.asarray(cv2.remap(self.odds, x, y, cv2.INTER_LINEAR), np.float32)
        h, w = self.odds.shape
        if self.clear and min(x.min(), y.min()) >= 0 and x.max() <= w - 1 and y.max() <= h - 1:
            return odds, np.ones(len(x), np.bool_)
        known = np.asarray(cv2.remap(self.known, x, y, cv2.INTER_NEAREST))
        return odds, known.mean(1) > 0.9


def edge_model() -> tuple[Array, Array]:
    """Probability (STEP,) of being inside, and outside, for segments about an edge."""
    r = np.arange(STEP) - (STEP - 1) / 2
    inside = 0.5 - AMPLITUDE * np.tanh(r / (2 * SLOPE))
    return inside, 1 - inside


@dataclass(frozen=True)
class RegionTerm:
    """Lines across the contour of one camera.

    correlated: lines that carry all of the information; sigma: px added to each line's own spread,
    for the mesh and the image edge that are not where they should be.
    """

    camera: WorldCamera
    contour: Contour
    image: OddsImage
    scales: tuple[int, ...]
    correlated: float = 40.0
    sigma: float = 0.4

    def system(self, pose: Array, turn: int) -> System | None:
        """Normal equations at a pose; `turn` picks the scale, coarse ones first."""
        scale = self.scales[min(turn, len(self.scales) - 1)]
        c = self.contour
        if len(c.points) == 0:
            return None
        pixels, normals = contour_lines(self.camera, c, pose)
        segments = OFFSETS + STEP - 1
        at = np.arange(segments * scale, dtype=np.float32) - 0.5 * (segments * scale - 1)
        start = (pixels - self.image.window[:2]).astype(np.float32)
        way = normals.astype(np.float32)
        x, y = (start[:, i, None] + at * way[:, i, None] for i in range(2))
        odds, known = self.image.lines(x, y)
        room = max(3.0, 1.5 * scale)
        usable = known & (c.inside > room) & (c.outside > room)
        # What lies beyond the object's other side, or in a bay of it, says nothing of this edge.
        inside, outside = (v[:, None].astype(np.float32) for v in (c.inside, c.outside))
        odds *= (at >= -inside) & (at <= outside)
        summed = np.zeros((len(odds), segments), np.float32)
        for i in range(scale):
            summed += odds[:, i::scale]
        share = np.asarray(1 / (1 + np.exp(-np.clip(summed, -12, 12))), np.float32)
        mean, variance, certain = offsets(share)
        good = usable & certain
        if good.sum() < 12:
            return None
        residual = mean[good] * scale
        spread = np.sqrt(np.maximum(variance[good] * scale**2, LEAST_SIGMA**2) + self.sigma**2)
        along = line_jacobian(self.camera, pose, c.points[good], normals[good])
        weight = 1 / spread**2
        if scale <= 2:
            off = np.abs(residual - median(residual))
            weight = weight * tukey(off, max(6 * median(off), 3.0))
        kept = float((weight * spread**2).sum())
        if kept < 8:
            return None
        fraction = min(1.0, self.correlated / kept)
        weight = weight * fraction
        size = np.sqrt(float((weight * residual**2).sum() / max(weight.sum(), 1e-12)))
        return System(
            (along * weight[:, None]).T @ along,
            along.T @ (weight * residual),
            scale=size,
            used=int(good.sum()),
            offered=len(good),
        )


def contour_lines(camera: WorldCamera, contour: Contour, pose: Array) -> tuple[Array, Array]:
    """Pixels (n, 2) of the contour and its unit normals (n, 2) in the image, at a pose."""
    T = camera.T_camera_world @ pose
    p = contour.points @ T[:3, :3].T + T[:3, 3]
    d = contour.normals @ T[:3, :3].T
    z = np.maximum(p[:, 2:], 1e-6)
    ratio = p[:, :2] / z
    normals = (d[:, :2] - ratio * d[:, 2:]) * camera.intrinsics[:2]
    normals /= np.maximum(np.sqrt((normals * normals).sum(1)), 1e-12)[:, None]
    return ratio * camera.intrinsics[:2] + camera.intrinsics[2:], normals


def offsets(share: Float32) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Mean and variance (n,) of the contour's offset in segments, and which lines show an edge.

    share: (n, OFFSETS + STEP - 1) probability that each segment is inside.
    """
    ds = np.arange(OFFSETS) - (OFFSETS - 1) / 2
    # Eight factors above 0.07 are far from what a float32 cannot hold: no logarithms are needed.
    product = np.ones((len(share), OFFSETS), np.float32)
    for k, (inside, outside) in enumerate(zip(*edge_model(), strict=True)):
        product *= share[:, k : k + OFFSETS] * np.float32(inside - outside) + np.float32(outside)
    p = product.astype(np.float64)
    p /= p.sum(1, keepdims=True)
    mean = p @ ds
    variance = p @ ds**2 - mean**2
    certain = (p[:, 0] + p[:, -1] < 0.35) & (share.max(1) > 0.6) & (share.min(1) < 0.4)
    return mean, np.maximum(variance, 0.0), certain


def silhouette_score(image: OddsImage, mask: NDArray[np.bool_], corner: tuple[int, int]) -> float:
    """How well a silhouette explains the colours, in [-1, 1]: share inside minus share around.

    mask: (h, w) of the object with its first pixel at `corner` (x, y) px; the ring around it is a
    tenth of the mask's size wide. 0 when less than a fifth of the object is to be seen.
    """
    h, w = mask.shape
    x0, y0 = corner[0] - image.window[0], corner[1] - image.window[1]
    a, b = max(0, -x0), max(0, -y0)
    c = min(w, image.odds.shape[1] - x0)
    d = min(h, image.odds.shape[0] - y0)
    if c - a < 4 or d - b < 4:
        return 0.0
    part = mask[b:d, a:c]
    odds = image.odds[y0 + b : y0 + d, x0 + a : x0 + c]
    known = image.known[y0 + b : y0 + d, x0 + a : x0 + c] > 0.5
    width = max(3, int(0.1 * np.sqrt(max(int(mask.sum()), 1))))
    kernel = np.ones((2 * width + 1, 2 * width + 1), np.uint8)
    ring = (cv2.dilate(part.astype(np.uint8), kernel) > 0) & ~part & known
    core = part & known
    if core.sum() < 0.2 * mask.sum() or ring.sum() < 8:
        return 0.0
    like = 1 / (1 + np.exp(-2 * odds))
    return float(like[core].mean() - like[ring].mean())
