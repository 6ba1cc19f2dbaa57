"""Windows around an object: pixels where they matter, the same number in every frame."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from twinloop.capture.projection import Camera, Undistorter, undistorter
from twinloop.geometry import se3
from twinloop.geometry.camera import project

Array = NDArray[np.float64]


def crop_windows(
    camera: Camera,
    box: tuple[Array, Array],
    T_camera_board: Array,
    max_side: int,
    margin: float | None,
) -> tuple[Undistorter, NDArray[np.int64]]:
    """Choose a pinhole camera and one window of equal size per frame.

    Args:
        camera: The lens.
        box: Lowest and highest corner of the object, (3,) m each, board frame.
        T_camera_board: (frame, 4, 4).
        max_side: Longer side of the windows at most, px.  The picture is shrunk, never enlarged.
        margin: Room around the object on each side, per object size; None keeps whole pictures.

    Returns:
        The undistorter, and first column, first row, columns, rows (frame, 4) of each window.
    """
    if margin is None:
        lens = undistorter(camera, min(1.0, max_side / max(camera.width, camera.height)))
        whole = np.array([0, 0, lens.width, lens.height])
        return lens, np.tile(whole, (len(T_camera_board), 1))
    size = _extent(undistorter(camera, 1.0), box, T_camera_board)
    span = (size[:, 1] - size[:, 0]).max(axis=0) * (1 + 2 * margin)
    limit = np.minimum(span, [camera.width, camera.height])
    lens = undistorter(camera, min(1.0, max_side / float(limit.max())))
    extent = _extent(lens, box, T_camera_board)
    frame = np.array([lens.width, lens.height])
    span = (extent[:, 1] - extent[:, 0]).max(axis=0) * (1 + 2 * margin)
    window = np.minimum(np.ceil(span), np.minimum(frame, max_side)).astype(np.int64)
    first = np.rint(extent.mean(axis=1) - window / 2).astype(np.int64)
    first = np.clip(first, 0, frame - window)
    return lens, np.concatenate([first, np.tile(window, (len(first), 1))], axis=1)


def _extent(lens: Undistorter, box: tuple[Array, Array], T_camera_board: Array) -> Array:
    """Lowest and highest pixel (frame, 2, 2) of the box's corners."""
    corners = np.array(np.meshgrid(*np.stack(box, axis=1), indexing="ij")).reshape(3, -1).T
    pixels = project(se3.apply(T_camera_board, corners), lens.intrinsics)
    return np.stack([pixels.min(axis=1), pixels.max(axis=1)], axis=1)
