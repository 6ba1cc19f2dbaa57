"""Visual hull on a voxel grid: the space that all masks agree on, and its silhouettes."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from twinloop.geometry.camera import matrix

Array = NDArray[np.float64]
Images = NDArray[np.uint8]
Flags = NDArray[np.bool_]


UNKNOWN = 128
"""Mask value of a pixel that votes neither way."""


@dataclass(frozen=True)
class VoxelGrid:
    """Cubes in the board frame."""

    lower: Array
    """Centre of voxel [0, 0, 0], m."""
    voxel: float
    """Edge, m."""
    shape: tuple[int, int, int]
    """Voxels along x, y, z."""

    @staticmethod
    def over(low: Array, high: Array, count: int) -> VoxelGrid:
        """A grid of about ``count`` voxels over the box from ``low`` to ``high`` (3,) m."""
        extent = np.maximum(high - low, 1e-4)
        voxel = float((np.prod(extent) / count) ** (1 / 3))
        nx, ny, nz = np.maximum(np.ceil(extent / voxel).astype(int), 1)
        return VoxelGrid(low + voxel / 2, voxel, (int(nx), int(ny), int(nz)))


def project_all(points: Array, intrinsics: Array, T_camera_board: Array) -> tuple[Array, Array]:
    """Pixels (n, 2) and depths (n,) m of points (n, 3) in one camera."""
    P = matrix(intrinsics) @ T_camera_board[:3]
    q = points @ P[:, :3].T + P[:, 3]
    return q[:, :2] / np.where(np.abs(q[:, 2:]) < 1e-9, 1e-9, q[:, 2:]), q[:, 2]


def votes(
    masks: Images, intrinsics: Array, T_camera_board: Array, grid: VoxelGrid
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Count for every voxel how many frames see it, and in how many of them it is on the mask.

    Args:
        masks: (frame, y, x): 255 on the object, 0 beside it, ``UNKNOWN`` where no one can tell.
        intrinsics: (frame, 4) px.
        T_camera_board: (frame, 4, 4).
        grid: Voxels.

    Returns:
        Frames that hold the voxel, frames whose mask holds it; both of the grid's shape.
    """
    seen = np.zeros(grid.shape, np.int32)
    inside = np.zeros(grid.shape, np.int32)
    height, width = masks.shape[1:]
    x, y, z = (grid.lower[i] + np.arange(grid.shape[i]) * grid.voxel for i in range(3))
    for mask, k, T in zip(masks, intrinsics, T_camera_board, strict=True):
        # Homogeneous pixels are sums of one term per axis: three additions instead of a product.
        P = matrix(k) @ T[:3]
        terms = (P[:, 3:] + P[:, :1] * x, P[:, 1:2] * y, P[:, 2:3] * z)
        a, b, c = (t.astype(np.float32) for t in terms)
        h = (a[:, :, None] + b[:, None, :])[:, :, :, None] + c[:, None, None, :]
        inverse = 1.0 / np.maximum(h[2], 1e-6)
        # A border of UNKNOWN takes up whatever is out of view.
        u = np.clip(h[0] * inverse + 1.5, 0, width + 1).astype(np.int32)
        v = np.clip(h[1] * inverse + 1.5, 0, height + 1).astype(np.int32)
        padded = np.pad(mask, 1, constant_values=UNKNOWN)
        value = padded.reshape(-1)[v * (width + 2) + u]
        seen += value != UNKNOWN
        inside += value == 255
    return seen, inside


def largest_component(occupied: Flags) -> Flags:
    """Keep the largest 26-connected piece of a voxel array."""
    label, count = ndimage.label(occupied, structure=np.ones((3, 3, 3)))
    if count == 0:
        return occupied
    sizes = np.bincount(label.ravel())
    sizes[0] = 0
    return np.asarray(label == int(sizes.argmax()))


def carve(
    masks: Images,
    intrinsics: Array,
    T_camera_board: Array,
    grid: VoxelGrid,
    tolerance: float = 0.02,
) -> Flags:
    """Visual hull: voxels that nearly all frames that see them have on the mask.

    Args:
        masks: (frame, y, x), non-zero on the object.
        intrinsics: (frame, 4) px.
        T_camera_board: (frame, 4, 4).
        grid: Voxels.
        tolerance: Share of frames that may disagree, so that one bad mask cuts no hole.
    """
    seen, inside = votes(masks, intrinsics, T_camera_board, grid)
    enough = seen >= max(2, len(masks) // 4)

    def hull(spared: int) -> Flags:
        return largest_component(enough & (seen - inside <= tolerance * seen + 0.5 + spared))

    # A frame in which the object was missed would cut off all that it does not show: when sparing
    # one more frame brings back a large part, there is such a frame.
    kept = hull(0)
    for spared in range(1, 1 + max(1, len(masks) // 10)):
        wider = hull(spared)
        if kept.sum() >= 0.7 * wider.sum():
            return kept
        kept = wider
    return kept


def silhouette(
    occupied: Flags,
    grid: VoxelGrid,
    intrinsics: Array,
    T_camera_board: Array,
    shape: tuple[int, int],
) -> Images:
    """Picture of the hull in one camera, (height, width), 255 on the hull."""
    surface = occupied & ~ndimage.binary_erosion(occupied)
    index = np.argwhere(surface)
    image = np.zeros(shape, np.uint8)
    if not len(index):
        return image
    points = grid.lower + index * grid.voxel
    uv, depth = project_all(points, intrinsics, T_camera_board)
    pixel = matrix(intrinsics)[0, 0] * grid.voxel / float(np.median(depth))
    u, v = np.rint(uv[:, 0]).astype(int), np.rint(uv[:, 1]).astype(int)
    ok = (u >= 0) & (u < shape[1]) & (v >= 0) & (v < shape[0]) & (depth > 0)
    image[v[ok], u[ok]] = 255
    # A hull of voxel centres is right on average when each covers half a voxel around it.
    radius = int(np.ceil(pixel * 0.5))
    closing = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * radius + 1, 2 * radius + 1))
    image = np.asarray(cv2.dilate(image, closing), np.uint8)
    image = np.asarray(cv2.morphologyEx(image, cv2.MORPH_CLOSE, closing), np.uint8)
    shrink = radius - round(pixel * 0.5)
    if shrink:
        kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * shrink + 1, 2 * shrink + 1))
        image = np.asarray(cv2.erode(image, kernel), np.uint8)
    return image


@dataclass(frozen=True)
class Shape:
    """A body made of voxels, board frame."""

    occupied: Flags
    """(x, y, z)."""
    grid: VoxelGrid
    """Where the voxels lie."""

    def box(self, margin: float) -> tuple[Array, Array]:
        """Lowest and highest corner (3,) m, grown by a share of its size and a voxel."""
        index = np.argwhere(self.occupied)
        low = self.grid.lower + (index.min(axis=0) - 0.5) * self.grid.voxel
        high = self.grid.lower + (index.max(axis=0) + 0.5) * self.grid.voxel
        grown = margin * (high - low) + self.grid.voxel
        low, high = low - grown, high + grown
        low[2] = max(low[2], 0.0)
        return low, high

    def silhouettes(
        self, intrinsics: Array, T_camera_board: Array, shape: tuple[int, int]
    ) -> Images:
        """Its pictures in all cameras, (frame, height, width), 255 on the body."""
        return np.stack(
            [
                silhouette(self.occupied, self.grid, k, T, shape)
                for k, T in zip(intrinsics, T_camera_board, strict=True)
            ]
        )
