"""Pictures that let a person judge a track at a glance."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from twinloop.tracking.appearance import Shape
from twinloop.tracking.solver import WorldCamera, project

Array = NDArray[np.float64]
Image = NDArray[np.uint8]
COLOURS = {0: (40, 220, 60), 1: (255, 170, 0), 2: (255, 40, 40)}
"""Outline by status: ok green, uncertain orange, lost red."""


def draw_outline(
    image: Image, camera: WorldCamera, shape: Shape, pose: Array, status: int, scale: int = 2
) -> Image:
    """RGB copy, `scale` times as large, of an image with the mesh's outline and axes.

    image: (h, w) or (h, w, 3) u1 undistorted; pose: (4, 4) T_world_object. Axes x, y, z
    are red, green, blue and half of the mesh's size long.
    """
    h, w = image.shape[:2]
    big = cv2.resize(image, (w * scale, h * scale), interpolation=cv2.INTER_LINEAR)
    out = np.asarray(big if big.ndim == 3 else np.repeat(big[..., None], 3, 2), np.uint8)
    view = shape.view(camera, pose, margin=3)
    if view is None:
        return out
    corner = np.array(view.window[:2])
    contours, _ = cv2.findContours(
        view.mask.astype(np.uint8), cv2.RETR_CCOMP, cv2.CHAIN_APPROX_NONE
    )
    for contour in contours:
        line = (np.asarray(contour).reshape(-1, 2) + corner + 0.5) * scale - 0.5
        cv2.polylines(
            out, [np.rint(line).astype(np.int32)[:, None]], True, COLOURS[status], 1, cv2.LINE_AA
        )
    ends = np.vstack([np.zeros(3), np.eye(3) * shape.diameter * 0.3])
    pixels = (project(camera, pose, ends)[0] + 0.5) * scale - 0.5
    for k, colour in enumerate(((255, 60, 60), (60, 255, 60), (80, 120, 255))):
        a, b = (tuple(int(v) for v in np.rint(pixels[i])) for i in (0, k + 1))
        cv2.line(out, a, b, colour, 1, cv2.LINE_AA)
    return out


def crop_around(
    image: Image, camera: WorldCamera, poses: Array, shape: Shape, margin: float = 0.4
) -> tuple[int, int, int, int]:
    """Window (x0, y0, x1, y1) px that holds the object under all poses (n, 4, 4)."""
    h, w = image.shape[:2]
    pixels = np.concatenate([project(camera, p, shape.hull)[0] for p in poses])
    low, high = pixels.min(0), pixels.max(0)
    pad = margin * (high - low).max() / 2
    x0, y0 = np.clip(np.floor(low - pad), 0, [w - 9, h - 9]).astype(int)
    x1, y1 = np.clip(np.ceil(high + pad), [x0 + 8, y0 + 8], [w, h]).astype(int)
    return int(x0), int(y0), int(x1), int(y1)


def tile(picture: Image, label: str, width: int = 240, height: int = 210) -> Image:
    """The picture (h, w, 3) fitted into `width` x `height` px on white, under its label."""
    room = height - 22
    scale = min((width - 4) / picture.shape[1], room / picture.shape[0])
    size = (max(1, int(picture.shape[1] * scale)), max(1, int(picture.shape[0] * scale)))
    small = cv2.resize(picture, size, interpolation=cv2.INTER_AREA)
    out = np.full((height, width, 3), 255, np.uint8)
    x = (width - size[0]) // 2
    out[20 : 20 + size[1], x : x + size[0]] = small
    font = cv2.FONT_HERSHEY_SIMPLEX
    cv2.putText(out, label, (4, 14), font, 0.42, (20, 20, 20), 1, cv2.LINE_AA)
    return out
