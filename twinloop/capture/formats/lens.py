"""Lenses of other tools as :class:`~twinloop.capture.projection.Camera`, or a clear refusal.

COLMAP's formulas are those of OpenCV with fewer coefficients (COLMAP documentation, "Camera
models"), with the corner of the first pixel at (0, 0): its centre is (0.5, 0.5) there, (0, 0) here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from twinloop.capture.formats.image_list import Size, same_shape
from twinloop.capture.projection import Camera
from twinloop.errors import InputError

LARGEST_SIDE = 65_535
"""Most columns or rows of a picture."""
SMALLEST_FOCAL = 10.0
"""Focal lengths below this are no pixels but millimetres or fractions of the width, px."""

COLMAP_MODELS = {
    "SIMPLE_PINHOLE": 3,
    "PINHOLE": 4,
    "SIMPLE_RADIAL": 4,
    "RADIAL": 5,
    "OPENCV": 8,
    "OPENCV_FISHEYE": 8,
    "FULL_OPENCV": 12,
    "FOV": 5,
    "SIMPLE_RADIAL_FISHEYE": 4,
    "RADIAL_FISHEYE": 5,
    "THIN_PRISM_FISHEYE": 12,
    "RAD_TAN_THIN_PRISM_FISHEYE": 16,
    "SIMPLE_DIVISION": 4,
    "DIVISION": 5,
    "SIMPLE_FISHEYE": 3,
    "FISHEYE": 4,
    "EUCM": 6,
    "EQUIRECTANGULAR": 2,
}
"""COLMAP's models in the order of their numbers, and how many parameters each has."""
READ_MODELS = ("SIMPLE_PINHOLE", "PINHOLE", "SIMPLE_RADIAL", "RADIAL", "OPENCV", "FULL_OPENCV")


def checked(
    where: str,
    focal: tuple[float, float],
    centre: tuple[float, float],
    distortion: Sequence[float],
    size: Size,
) -> Camera:
    """Make a lens of numbers that a file gives.

    Args:
        where: File and camera, for messages.
        focal: fx, fy, px.
        centre: cx, cy, px; the centre of the first pixel is (0, 0).
        distortion: k1, k2, p1, p2, k3 of OpenCV's model.
        size: Columns and rows, px.

    Raises:
        InputError: A number is not finite, the size is absurd, the focal length is in other units
            than pixels, or the principal point lies outside the picture.
    """
    width, height = size
    values = np.array([*focal, *centre, *distortion], dtype=np.float64)
    if not np.isfinite(values).all():
        raise InputError(
            f"{where}: focal lengths {focal}, principal point {centre}, distortion "
            f"{tuple(distortion)}: finite numbers are expected. Calibrate again."
        )
    if not (0 < width <= LARGEST_SIDE and 0 < height <= LARGEST_SIDE):
        raise InputError(
            f"{where}: picture size {width} x {height}; 1 to {LARGEST_SIDE} px are expected."
        )
    if min(focal) < SMALLEST_FOCAL or max(focal) > 1000 * max(width, height):
        raise InputError(
            f"{where}: focal lengths {focal[0]:g} and {focal[1]:g} for a picture of {width} x "
            f"{height} px; pixels are expected, about {max(width, height)}. Are they millimetres, "
            "or fractions of the width? Convert them to pixels."
        )
    if not (-1 <= centre[0] <= width and -1 <= centre[1] <= height):
        raise InputError(
            f"{where}: the principal point ({centre[0]:g}, {centre[1]:g}) lies outside the picture "
            f"of {width} x {height} px. Are the numbers those of the turned picture, or of another "
            "size?"
        )
    return Camera(values[:4], values[4:], width, height)


def from_colmap(where: str, model: str, params: Sequence[float], size: Size) -> Camera:
    """Convert a lens of COLMAP.

    Args:
        where: File and camera, for messages.
        model: COLMAP's name of the model.
        params: Its parameters in COLMAP's order.
        size: Columns and rows, px.

    Raises:
        InputError: The model is none of COLMAP's, has another number of parameters, cannot be
            written with OpenCV's five coefficients, or its numbers are implausible.
    """
    if model not in COLMAP_MODELS:
        raise InputError(
            f"{where}: unknown camera model {model!r}; one of {', '.join(READ_MODELS)} is read."
        )
    if len(params) != COLMAP_MODELS[model]:
        raise InputError(
            f"{where}: camera model {model} with {len(params)} parameters, "
            f"{COLMAP_MODELS[model]} are expected."
        )
    if model not in READ_MODELS:
        raise InputError(
            f"{where}: camera model {model} is not read; {', '.join(READ_MODELS)} are. Undistort "
            "the pictures first: `colmap image_undistorter --image_path images --input_path "
            "sparse/0 --output_path undistorted`, and give the folder `undistorted`."
        )
    single = model in ("SIMPLE_PINHOLE", "SIMPLE_RADIAL", "RADIAL")
    fx = params[0]
    fy, cx, cy, *rest = params if single else params[1:]
    k1, k2, p1, p2, k3, *rational = [*rest, *[0.0] * 8][:8]
    if any(value != 0 for value in rational):
        raise InputError(
            f"{where}: FULL_OPENCV with k4, k5, k6 = {tuple(rational)}; only zeros are read. "
            "Calibrate with the model OPENCV, or undistort the pictures with `colmap "
            "image_undistorter`."
        )
    return checked(where, (fx, fy), (cx - 0.5, cy - 0.5), (k1, k2, p1, p2, k3), size)


def from_opencv(
    where: str,
    focal: tuple[float, float],
    centre: tuple[float, float],
    distortion: Sequence[float],
    size: Size,
) -> Camera:
    """Take over a lens of OpenCV, whose rational, prism and tilt terms must be zero.

    Args:
        where: File and camera, for messages.
        focal: fx, fy, px.
        centre: cx, cy, px.
        distortion: k1, k2, p1, p2[, k3[, k4, k5, k6[, ...]]].
        size: Columns and rows, px.

    Raises:
        InputError: Terms beyond k3 that are not zero, or implausible numbers.
    """
    if len(distortion) not in (0, 4, 5, 8, 12, 14):
        raise InputError(
            f"{where}: {len(distortion)} distortion coefficients; 0, 4 or 5 are expected."
        )
    if any(value != 0 for value in distortion[5:]):
        raise InputError(
            f"{where}: distortion coefficients beyond k3 are {tuple(distortion[5:])}; only zeros "
            "are read. Calibrate without CALIB_RATIONAL_MODEL, CALIB_THIN_PRISM_MODEL and "
            "CALIB_TILTED_MODEL."
        )
    return checked(where, focal, centre, [*distortion, *[0.0] * 5][:5], size)


def fitted(where: str, camera: Camera, size: Size) -> Camera:
    """Return the lens for pictures of another size, for example a folder of smaller copies.

    Args:
        where: Picture, for messages.
        camera: The lens at the size that the format declares.
        size: Columns and rows of the picture that is there, px.

    Raises:
        InputError: The picture has another aspect ratio: it was cropped or turned.
    """
    declared = (camera.width, camera.height)
    if size == declared:
        return camera
    if not same_shape(size, declared):
        swapped = same_shape(size[::-1], declared)
        raise InputError(
            f"{where}: the picture has {size[0]} x {size[1]} px, its lens is for {declared[0]} x "
            f"{declared[1]} px. "
            + (
                "The picture was turned after the calibration: export both upright."
                if swapped
                else "Was it cropped? Give the pictures that were calibrated."
            )
        )
    return camera.scaled(*size)
