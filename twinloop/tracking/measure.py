"""2D-3D measurements of one frame: the object as predicted against the object as seen."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from twinloop.tracking.appearance import Reference, Shape, View, synthesise
from twinloop.tracking.flow import normalise_contrast, track_points
from twinloop.tracking.solver import Correspondences, WorldCamera

Array = NDArray[np.float64]
Image = NDArray[np.uint8]


@dataclass(frozen=True)
class Measurement:
    """What was measured in a frame.

    seen: the points that passed all checks; offered: how many were tried; score: correlation in
    [-1, 1] of the synthesised and the live image over the object.
    """

    seen: Correspondences
    offered: int
    score: float


NOTHING = Measurement(Correspondences.join([]), 0, -1.0)


def paste(live: Image, grey: Image, valid: NDArray[np.bool_]) -> tuple[Image, float]:
    """The live window with the synthesised object in it, brought to the live exposure.

    Gain and offset come from mean and deviation over the valid pixels; the live background around
    the object keeps windows on its edge from seeing a false step. Also returns the correlation.
    """
    a, b = grey[valid].astype(np.float32), live[valid].astype(np.float32)
    gain = float(np.clip(b.std() / max(float(a.std()), 1.0), 0.4, 2.5))
    out = live.copy()
    out[valid] = np.clip((a - a.mean()) * gain + b.mean(), 0, 255).astype(np.uint8)
    return out, float(np.corrcoef(a, b)[0, 1]) if a.std() > 1 and b.std() > 1 else 0.0


def object_points(view: View, pixels: Array) -> tuple[Array, NDArray[np.bool_]]:
    """Object points (n, 3) under pixels (n, 2) of the view's window, and which are on the mesh."""
    x = pixels[:, :1].astype(np.float32)
    y = pixels[:, 1:].astype(np.float32)
    points = cv2.remap(view.points, x, y, cv2.INTER_LINEAR).reshape(-1, 3)
    solid = cv2.remap(view.mask.astype(np.float32), x, y, cv2.INTER_LINEAR).ravel() > 0.999
    return np.asarray(points, np.float64), solid


def measure_view(
    live: Image,
    camera: WorldCamera,
    shape: Shape,
    pose: Array,
    view: View,
    references: list[Reference],
    *,
    sigma: float,
    count: int,
    window: int = 15,
    round_trip: float = 1.0,
    known: NDArray[np.bool_] | None = None,
) -> Measurement:
    """Flow from the object as `references` show it at `pose` to the live image.

    live: (h, w) u1 full undistorted image; sigma: px, of one point; count: features at most;
    known: (h, w) bool of the view's window, false where another body may hide the object.
    """
    grey, valid = synthesise(references, camera, pose, view, tolerance=0.03 * shape.diameter)
    x0, y0, x1, y1 = view.window
    crop = np.ascontiguousarray(live[y0:y1, x0:x1])
    if known is not None:
        valid &= known
    if valid.sum() < 40:
        return NOTHING
    made, score = paste(crop, grey, valid)
    first, second = normalise_contrast(made), normalise_contrast(crop)
    inner = cv2.erode(valid.astype(np.uint8), np.ones((5, 5), np.uint8), borderValue=0)
    corners = cv2.goodFeaturesToTrack(
        first, count, 0.01, 4, mask=inner * np.uint8(255), blockSize=5
    )
    if corners is None:
        return Measurement(NOTHING.seen, 0, score)
    start = np.asarray(corners, np.float64).reshape(-1, 2)
    end, good = track_points(first, second, start, start, window=window, round_trip=round_trip)
    points, solid = object_points(view, start)
    keep = good & solid
    pixels = end[keep] + np.array([x0, y0])
    return Measurement(
        Correspondences(points[keep], pixels, np.full(len(pixels), sigma)), len(start), score
    )


def measure_previous(
    previous: Image,
    live: Image,
    points: Array,
    pixels: Array,
    guess: Array,
    window: tuple[int, int, int, int],
    *,
    sigma: float,
    levels: int = 3,
) -> Measurement:
    """Flow of the last frame's points (object (n, 3), pixels (n, 2)) into the live image.

    guess: (n, 2) predicted pixels; window: the part of the image both frames are cut to.
    """
    if len(points) == 0:
        return NOTHING
    x0, y0, x1, y1 = window
    a = np.ascontiguousarray(previous[y0:y1, x0:x1])
    b = np.ascontiguousarray(live[y0:y1, x0:x1])
    corner = np.array([x0, y0], np.float64)
    end, good = track_points(a, b, pixels - corner, guess - corner, levels=levels)
    return Measurement(
        Correspondences(points[good], end[good] + corner, np.full(int(good.sum()), sigma)),
        len(points),
        0.0,
    )
