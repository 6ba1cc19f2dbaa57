"""A depth camera's image against the mesh: distances along the surface's normals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinloop.tracking.appearance import View
from twinloop.tracking.solver import System, WorldCamera, tukey

Array = NDArray[np.float64]


@dataclass(frozen=True)
class DepthTerm:
    """Surface points of one camera's view against its depth image (projective point-to-plane ICP).

    points, normals: (n, 3) object frame; depth: (h, w) float32 m, 0 unknown; sigma: m of one pixel
    at 1 m, growing with the square of the distance; cutoffs: m, one per iteration; correlated:
    pixels that carry all of the information, for the errors of a depth camera are not independent.
    """

    camera: WorldCamera
    points: Array
    normals: Array
    depth: NDArray[np.float32]
    sigma: float = 0.004
    cutoffs: tuple[float, ...] = (0.02, 0.012, 0.008)
    correlated: float = 40.0

    def system(self, pose: Array, turn: int) -> System | None:
        """Normal equations at `pose`; None when fewer than 20 pixels are near the surface."""
        rotation = self.camera.T_camera_world[:3, :3]
        turned = self.points @ pose[:3, :3].T
        p = (turned + pose[:3, 3]) @ rotation.T + self.camera.T_camera_world[:3, 3]
        normal = self.normals @ pose[:3, :3].T
        fx, fy, cx, cy = self.camera.intrinsics
        z = np.maximum(p[:, 2], 1e-6)
        u = np.rint(fx * p[:, 0] / z + cx).astype(int)
        v = np.rint(fy * p[:, 1] / z + cy).astype(int)
        inside = (u >= 0) & (v >= 0) & (u < self.depth.shape[1]) & (v < self.depth.shape[0])
        measured = np.zeros(len(p))
        measured[inside] = self.depth[v[inside], u[inside]]
        seen = np.stack([(u - cx) / fx * measured, (v - cy) / fy * measured, measured], 1)
        residual = np.einsum("ni,ni->n", (seen - p) @ rotation, normal)
        cutoff = self.cutoffs[min(turn, len(self.cutoffs) - 1)]
        good = (measured > 0) & (np.abs(residual) < cutoff)
        if good.sum() < 20:
            return None
        residual, normal, turned = residual[good], normal[good], turned[good]
        sigma = self.sigma * measured[good] ** 2
        weight = tukey(np.abs(residual), cutoff) / sigma**2
        kept = float((weight * sigma**2).sum())
        scale = float(np.sqrt((weight * residual**2).sum() / max(kept, 1e-9)))
        weight = weight * min(1.0, self.correlated / max(kept, 1e-9)) / max(scale, 1.0) ** 2
        jacobian = np.concatenate([normal, np.cross(turned, normal)], 1)
        return System(
            (jacobian * weight[:, None]).T @ jacobian,
            jacobian.T @ (weight * residual),
            scale=scale,
            used=int(good.sum()),
            offered=len(p),
        )


def depth_term(
    camera: WorldCamera, view: View, pose: Array, depth: NDArray[np.float32], count: int = 400
) -> DepthTerm | None:
    """The term of a view's surface that faces the camera, `count` points at most."""
    rows, columns = np.nonzero(view.hits)
    if len(rows) < 20:
        return None
    every = max(1, len(rows) // count)
    rows, columns = rows[::every], columns[::every]
    points = view.points[rows * view.step, columns * view.step].astype(np.float64)
    normals = view.normals[rows, columns].astype(np.float64)
    T = camera.T_camera_world @ pose
    sight = points @ T[:3, :3].T + T[:3, 3]
    sight /= np.linalg.norm(sight, axis=1, keepdims=True)
    facing = np.einsum("ni,ni->n", sight, normals @ T[:3, :3].T) < -0.25
    if facing.sum() < 20:
        return None
    return DepthTerm(camera, points[facing], normals[facing], depth)


def nearer_bodies(
    view: View, camera: WorldCamera, pose: Array, depth: NDArray[np.float32], margin: float
) -> NDArray[np.bool_]:
    """Pixels (h, w) of the view's window where something stands `margin` m or more before it."""
    x0, y0, x1, y1 = view.window
    T = camera.T_camera_world @ pose
    expected = view.points @ T[2, :3].astype(np.float32) + np.float32(T[2, 3])
    live = depth[y0:y1, x0:x1]
    far = np.where(view.mask, expected, float(expected[view.mask].mean()) if view.mask.any() else 0)
    return np.asarray((live > 0) & (live < far - margin))
