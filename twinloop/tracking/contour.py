"""The silhouette of a mesh at a pose: contour points, exact to a fraction of a pixel.

A coarse mask gives the outline's course; each sampled point is then moved onto the silhouette by
halving along its normal with single rays, so that neither the mask's grid nor a model of stored
viewpoints limits the accuracy.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
import warp as wp
from numpy.typing import NDArray

from twinloop.geometry.raycast import MeshRenderer
from twinloop.tracking.contour_kernel import bisect_outline
from twinloop.tracking.solver import WorldCamera

Array = NDArray[np.float64]
Window = tuple[int, int, int, int]


@dataclass(frozen=True)
class Contour:
    """Points of the silhouette.

    points: (n, 3) m, object frame, on the rim; normals: (n, 3) unit, object frame: the direction
    whose image points away from the object; inside, outside: (n,) px along the normal over which
    the image holds the object, and something else, before the outline comes again (at most
    `LONGEST`).
    """

    points: Array
    normals: Array
    inside: Array
    outside: Array

    def thinned(self, count: int) -> Contour:
        """Every k-th point, so that about `count` are left."""
        every = slice(None, None, max(1, len(self.points) // count))
        return Contour(
            self.points[every], self.normals[every], self.inside[every], self.outside[every]
        )


LONGEST = 24
"""Distances along a normal are looked at up to here, px."""


def outline(
    mask: NDArray[np.bool_], step: int, count: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """About `count` points (n, 2) and outward normals (n, 2) along all borders of a mask.

    In pixels of the mask times `step`; borders shorter than 12 mask pixels are noise or too small
    to have a direction.
    """
    padded = np.zeros((mask.shape[0] + 2, mask.shape[1] + 2), np.uint8)
    padded[1:-1, 1:-1] = mask
    found, _ = cv2.findContours(padded, cv2.RETR_CCOMP, cv2.CHAIN_APPROX_NONE)
    borders = [np.asarray(c, np.float32).reshape(-1, 2) - 1 for c in found if len(c) >= 12]
    if not borders:
        return np.zeros((0, 2), np.float32), np.zeros((0, 2), np.float32)
    total = sum(len(b) for b in borders)
    smooth = cv2.GaussianBlur(padded.astype(np.float32), (0, 0), 1.5)[1:-1, 1:-1]
    gx, gy = cv2.Sobel(smooth, cv2.CV_32F, 1, 0), cv2.Sobel(smooth, cv2.CV_32F, 0, 1)
    points = []
    for border in borders:
        n = max(4, round(count * len(border) / total))
        at = np.linspace(0, len(border), min(n, len(border)), endpoint=False).astype(int)
        points.append(border[at])
    p = np.concatenate(points)
    i = p.astype(int)
    normals = -np.stack([gx[i[:, 1], i[:, 0]], gy[i[:, 1], i[:, 0]]], 1)
    length = np.linalg.norm(normals, axis=1)
    good = length > 1e-6
    normals = normals[good] / length[good, None]
    return p[good] * np.float32(step), normals


def contour(
    renderer: MeshRenderer,
    camera: WorldCamera,
    pose: Array,
    window: Window,
    mask: NDArray[np.bool_],
    step: int,
    count: int = 200,
) -> Contour:
    """Points of the silhouette under T_world_object `pose`.

    mask: the mesh's hits at every `step`-th pixel of `window` (x0, y0, x1, y1). Points beside the
    image's border are left out: what ends there is the picture, not the object.
    """
    pixels, directions = outline(mask, step, count)
    pixels = pixels + np.array(window[:2], np.float32)
    empty = Contour(np.zeros((0, 3)), np.zeros((0, 3)), np.zeros(0), np.zeros(0))
    if len(pixels) == 0:
        return empty
    T = camera.T_camera_world @ pose
    where = np.zeros(len(pixels), np.float32)
    depth = np.zeros(len(pixels), np.float32)
    rotation = T[:3, :3].T
    wp.launch(
        bisect_outline,
        dim=len(pixels),
        inputs=[
            renderer.mesh_id,
            wp.vec4(*(float(v) for v in camera.intrinsics)),
            wp.mat33(*rotation.reshape(-1).tolist()),
            wp.vec3(*(-rotation @ T[:3, 3]).tolist()),
            wp.array(np.ascontiguousarray(pixels), dtype=wp.vec2, device="cpu", copy=False),
            wp.array(np.ascontiguousarray(directions), dtype=wp.vec2, device="cpu", copy=False),
            1.5 * step + 0.5,
            6,
            wp.array(where, dtype=wp.float32, device="cpu", copy=False),
            wp.array(depth, dtype=wp.float32, device="cpu", copy=False),
        ],
        device="cpu",
    )
    exact = pixels + directions * where[:, None]
    size = np.array([camera.width, camera.height])
    good = (depth > 0) & (exact > 1.5).all(1) & (exact < size - 2.5).all(1)
    if not good.any():
        return empty
    exact, directions, depth = exact[good], directions[good], depth[good].astype(np.float64)
    inside, outside = room(mask, (exact - np.array(window[:2])) / step, directions / step)
    fx, fy, cx, cy = camera.intrinsics
    z = depth[:, None]
    ray = np.concatenate([(exact - [cx, cy]) / [fx, fy], np.ones((len(exact), 1))], 1)
    sideways = np.concatenate([directions * [1.0, fx / fy], np.zeros((len(exact), 1))], 1)
    sideways /= np.linalg.norm(sideways, axis=1, keepdims=True)
    return Contour((ray * z - T[:3, 3]) @ T[:3, :3], sideways @ T[:3, :3], inside, outside)


def room(mask: NDArray[np.bool_], pixels: Array, directions: Array) -> tuple[Array, Array]:
    """Distances (n,) px (inside, outside) along each normal until the mask changes again.

    pixels: (n, 2) in the mask; directions: (n, 2) mask pixels per image pixel.
    """
    reach = np.arange(1, LONGEST + 1, dtype=np.float32)
    out = []
    for sign, wanted in ((-1.0, 1), (1.0, 0)):
        x = (pixels[:, :1] + sign * directions[:, :1] * reach).astype(np.float32)
        y = (pixels[:, 1:] + sign * directions[:, 1:] * reach).astype(np.float32)
        there = np.asarray(cv2.remap(mask.astype(np.uint8), x, y, cv2.INTER_NEAREST)) == wanted
        there[:, :2] = True  # the outline itself is only known to a pixel of the mask
        out.append(np.cumprod(there, axis=1).sum(1).astype(np.float64))
    return out[0], out[1]
