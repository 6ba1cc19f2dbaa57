"""Windows around an object: pixels where they matter, the same number in every frame."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from twinloop.capture.projection import Camera, Undistorter, undistorter
from twinloop.geometry import se3
from twinloop.geometry.camera import project

Array = NDArray[np.float64]


def crop_windows(
    cameras: Sequence[Camera],
    box: tuple[Array, Array],
    T_camera_table: Array,
    max_side: int,
    margin: float | None,
) -> tuple[list[Undistorter], NDArray[np.int64]]:
    """Choose a pinhole camera per lens and one window of equal size per frame.

    Args:
        cameras: Lens of each frame (frame,), all of one picture size.
        box: Lowest and highest corner of the object, (3,) m each, table frame.
        T_camera_table: (frame, 4, 4).
        max_side: Longer side of the windows at most, px.  The picture is shrunk, never enlarged.
        margin: Room around the object on each side, per object size; None keeps whole pictures.

    Returns:
        The undistorter of each frame, and first column, first row, columns, rows (frame, 4) of
        each window.
    """
    full = np.array([cameras[0].width, cameras[0].height])
    if margin is None:
        lenses = undistorters(cameras, min(1.0, max_side / float(full.max())))
        whole = np.array([0, 0, lenses[0].width, lenses[0].height])
        return lenses, np.tile(whole, (len(T_camera_table), 1))
    size = _extent(undistorters(cameras, 1.0), box, T_camera_table)
    span = (size[:, 1] - size[:, 0]).max(axis=0) * (1 + 2 * margin)
    limit = np.minimum(span, full)
    lenses = undistorters(cameras, min(1.0, max_side / float(limit.max())))
    extent = _extent(lenses, box, T_camera_table)
    frame = np.array([lenses[0].width, lenses[0].height])
    span = (extent[:, 1] - extent[:, 0]).max(axis=0) * (1 + 2 * margin)
    window = np.minimum(np.ceil(span), np.minimum(frame, max_side)).astype(np.int64)
    first = np.rint(extent.mean(axis=1) - window / 2).astype(np.int64)
    first = np.clip(first, 0, frame - window)
    return lenses, np.concatenate([first, np.tile(window, (len(first), 1))], axis=1)


def undistorters(cameras: Sequence[Camera], scale: float) -> list[Undistorter]:
    """Undistorter of each frame (frame,); frames with the same lens share one and its maps."""
    made: dict[bytes, Undistorter] = {}
    chosen = []
    for camera in cameras:
        key = camera.vector.tobytes() + bytes(f"{camera.width}x{camera.height}", "ascii")
        if key not in made:
            made[key] = undistorter(camera, scale)
        chosen.append(made[key])
    return chosen


def _extent(
    lenses: Sequence[Undistorter], box: tuple[Array, Array], T_camera_table: Array
) -> Array:
    """Lowest and highest pixel (frame, 2, 2) of the box's corners."""
    corners = np.array(np.meshgrid(*np.stack(box, axis=1), indexing="ij")).reshape(3, -1).T
    seen = se3.apply(T_camera_table, corners)
    pixels = np.stack(
        [project(points, lens.intrinsics) for points, lens in zip(seen, lenses, strict=True)]
    )
    return np.stack([pixels.min(axis=1), pixels.max(axis=1)], axis=1)
