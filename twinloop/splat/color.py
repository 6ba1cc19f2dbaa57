"""Colour of a mesh's vertices from posed pictures."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from twinloop.geometry.raycast import MeshRenderer
from twinloop.splat.surface import Faces, Float, vertex_normals
from twinloop.splat.views import Views


def vertex_colors(vertices: Float, faces: Faces, views: Views) -> NDArray[np.uint8]:
    """Colours (v, 3), sRGB: mean over the views that see a vertex, head-on views weighing most.

    A view sees a vertex when the surface faces it and the mesh itself does not hide it. Vertices
    that no view sees (the underside) take the colour of their nearest coloured neighbours.
    """
    renderer = MeshRenderer(vertices, faces)
    normals = vertex_normals(vertices, faces)
    height, width = views.mask.shape[1:]
    total, weight = np.zeros((len(vertices), 3)), np.zeros(len(vertices))
    tolerance = 0.02 * float(np.ptp(vertices, axis=0).max())
    for i in range(len(views)):
        T = views.T_camera_world[i]
        p = vertices @ T[:3, :3].T + T[:3, 3]
        fx, fy, cx, cy = views.intrinsics[i]
        x, y = fx * p[:, 0] / p[:, 2] + cx, fy * p[:, 1] / p[:, 2] + cy
        ok = (x >= 0) & (y >= 0) & (x <= width - 1) & (y <= height - 1) & (p[:, 2] > 0)
        if not ok.any():
            continue
        facing = -np.einsum("vi,vi->v", normals @ T[:3, :3].T, p) / np.linalg.norm(p, axis=1)
        depth = renderer.render(views.intrinsics[i], width, height, T).depth
        column, row = np.rint(x).astype(int), np.rint(y).astype(int)
        column, row = column.clip(0, width - 1), row.clip(0, height - 1)
        ok &= (facing > 0.15) & (views.mask[i][row, column] >= 128)
        ok &= p[:, 2] < depth[row, column] + tolerance
        here = np.flatnonzero(ok)
        if len(here) == 0:
            continue
        sample = _sampled(views.image[i], x[here], y[here])
        w = facing[here] ** 2
        total[here] += w[:, None] * sample
        weight[here] += w
    return _fill(vertices, total, weight)


def _sampled(image: NDArray[np.uint8], x: Float, y: Float) -> Float:
    """Colours (n, 3) of an image at columns x (n,) and rows y (n,), bilinear."""
    # OpenCV takes no picture of more than 32766 rows or columns, so the points fill a rectangle.
    width = 1024
    spare = -len(x) % width
    at = np.stack([np.pad(x, (0, spare)), np.pad(y, (0, spare))], axis=1).astype(np.float32)
    found = cv2.remap(image, at.reshape(-1, width, 2), None, cv2.INTER_LINEAR)
    return np.asarray(found.reshape(-1, image.shape[2])[: len(x)], np.float64)


def _fill(vertices: Float, total: Float, weight: Float) -> NDArray[np.uint8]:
    seen = weight > 0
    color = np.full((len(vertices), 3), 128.0)
    color[seen] = total[seen] / weight[seen, None]
    if seen.any() and not seen.all():
        from scipy.spatial import cKDTree

        nearest = range(1, min(8, int(seen.sum())) + 1)
        found = cKDTree(vertices[seen]).query(vertices[~seen], k=list(nearest))
        distance, near = np.asarray(found[0]), color[seen][np.asarray(found[1])]
        w = 1 / (distance + 1e-6)
        color[~seen] = (w[..., None] * near).sum(1) / w.sum(1, keepdims=True)
    return np.asarray(np.rint(color).clip(0, 255), np.uint8)
