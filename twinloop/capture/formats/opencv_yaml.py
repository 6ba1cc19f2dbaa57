"""Camera calibrations that OpenCV's FileStorage wrote (YAML, XML, JSON), and ROS's camera YAML.

Both use OpenCV's model with the centre of the first pixel at (0, 0), so numbers are taken as they
are.  The file may come from many scripts, each with names of its own; :data:`MATRIX_NAMES` and
:data:`DISTORTION_NAMES` list those that are known, without regard to case, ``_`` and ``-``.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from twinloop.capture.formats.calibration_file import (
    agreed_size,
    find,
    numbers_of,
    only,
    read_calibration,
    whole,
)
from twinloop.capture.formats.image_list import Size
from twinloop.capture.formats.lens import from_opencv
from twinloop.capture.projection import Camera
from twinloop.capture.warning import CaptureWarning
from twinloop.errors import InputError

MATRIX_NAMES = ("cameramatrix", "intrinsicmatrix", "k", "mtx", "intrinsics")
"""Names of the camera matrix."""
DISTORTION_NAMES = (
    "distortioncoefficients",
    "distcoeffs",
    "distcoeff",
    "distortioncoeffs",
    "d",
    "dist",
    "distortion",
)
"""Names of the distortion coefficients."""
_WIDTH_NAMES = ("imagewidth", "width")
_HEIGHT_NAMES = ("imageheight", "height")
_SIZE_NAMES = ("imagesize", "calibimagesize", "imgsize", "size", "resolution")
_PINHOLE_MODELS = ("plumbbob", "rationalpolynomial", "radtan", "opencv", "pinhole", "none", "")
_MARK = re.compile(r"camera_?matrix|intrinsic_?matrix|opencv-matrix", re.IGNORECASE)


def detects(folder: Path) -> bool:
    """Whether a file is such a calibration, or a folder holds one, by the beginning of files."""
    return bool(find(folder, _belongs))


def _belongs(beginning: str) -> bool:
    return _MARK.search(beginning) is not None


def read_opencv_camera(path: Path, size: Size | None = None) -> Camera:
    """Read a calibrated camera.

    Args:
        path: The file (.yaml, .yml, .xml, .json), or a folder that holds just one.
        size: Columns and rows of the calibrated pictures, px, for a file that does not say; one
            that does must agree.

    Raises:
        InputError: The file cannot be read, has no camera matrix or a transposed or skewed one,
            a fisheye lens, numbers in other units than pixels, or another size.
    """
    file = only(path, _belongs, "OpenCV calibration")
    content = read_calibration(file)
    named = {re.sub(r"[_\- ]", "", key).lower(): (key, value) for key, value in content.items()}
    _refuse_fisheye(file, named)
    key, value = _one(named, MATRIX_NAMES) or (None, None)
    if key is None:
        raise InputError(
            f"{file}: no camera matrix; camera_matrix and distortion_coefficients are expected, "
            f"found {', '.join(sorted(content))[:200] or 'nothing'}."
        )
    focal, centre = _matrix(f"{file}: {key}", value)
    distortion: Sequence[float] = ()
    coefficients = _one(named, DISTORTION_NAMES)
    if coefficients is None:
        warnings.warn(
            f"{file}: has no distortion coefficients; taken as zero.", CaptureWarning, stacklevel=2
        )
    else:
        where = f"{file}: {coefficients[0]}"
        distortion = numbers_of(where, coefficients[1], (0, 4, 5, 8, 12, 14))
    return from_opencv(
        str(file), focal, centre, distortion, agreed_size(file, _size(file, named), size)
    )


def _one(named: Mapping[str, tuple[str, Any]], names: Sequence[str]) -> tuple[str, Any] | None:
    return next((named[name] for name in names if name in named), None)


def _refuse_fisheye(file: Path, named: Mapping[str, tuple[str, Any]]) -> None:
    models = [str(named[key][1]) for key in ("distortionmodel", "cameramodel") if key in named]
    refused = [m for m in models if re.sub(r"[_\- ]", "", m).lower() not in _PINHOLE_MODELS]
    flag = _one(named, ("fisheyemodel", "fisheye"))
    if flag is not None and str(flag[1]).lower() not in ("0", "0.0", "false", ""):
        refused.append("fisheye")
    if refused:
        raise InputError(
            f"{file}: camera or distortion model {', '.join(refused)}; OpenCV's pinhole "
            "model with k1, k2, p1, p2, k3 (plumb_bob) is read. Calibrate without the fisheye "
            "model, or undistort the pictures first."
        )


def _matrix(where: str, value: Any) -> tuple[tuple[float, float], tuple[float, float]]:
    """Focal lengths and principal point of a camera matrix."""
    m = numbers_of(where, value, (9,))
    fx, skew, cx, zero, fy, cy, *last = m
    if any(last[:2]) and not (cx or cy):
        raise InputError(
            f"{where}: the principal point stands in the last row ({last}): the matrix is "
            "transposed, as MATLAB writes it. Transpose it, and subtract 1 from the principal "
            "point: MATLAB counts pixels from 1."
        )
    if last != [0, 0, 1] or zero != 0 or not abs(skew) <= 1e-6 * abs(fx):
        raise InputError(
            f"{where}: {m} is no camera matrix without skew; fx, 0, cx; 0, fy, cy; 0, 0, 1 is "
            "expected."
        )
    return (fx, fy), (cx, cy)


def _size(file: Path, named: Mapping[str, tuple[str, Any]]) -> Size | None:
    width, height = _one(named, _WIDTH_NAMES), _one(named, _HEIGHT_NAMES)
    if width is not None and height is not None:
        return whole(f"{file}: {width[0]}", width[1]), whole(f"{file}: {height[0]}", height[1])
    both = _one(named, _SIZE_NAMES)
    if both is None:
        return None
    columns, rows = numbers_of(f"{file}: {both[0]}", both[1], (2,))
    return whole(f"{file}: {both[0]}", columns), whole(f"{file}: {both[0]}", rows)
