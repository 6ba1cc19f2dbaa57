"""Kalibr's ``camchain.yaml``: calibrated cameras, and how they stand to each other.

Layout: Kalibr documentation, "YAML formats".  ``pinhole`` with ``radtan`` (k1, k2, p1, p2) is
OpenCV's model; corners are found with OpenCV, so the centre of the first pixel is (0, 0).
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinloop.capture.files import natural_key
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

Array = NDArray[np.float64]

LARGEST_BASELINE = 20.0
"""Distance of neighbouring cameras that is believed, m; more are millimetres."""
_CAMERA = re.compile(r"^cam\d+\s*:", re.MULTILINE)
_COEFFICIENTS = {"radtan": 4, "none": 0}


def detects(folder: Path) -> bool:
    """Whether a file is a camchain, or a folder holds one, by the beginning of files."""
    return bool(find(folder, _belongs))


def _belongs(beginning: str) -> bool:
    return _CAMERA.search(beginning) is not None and "camera_model" in beginning


def read_kalibr(path: Path, size: Size | None = None) -> dict[str, Camera]:
    """Read the cameras of a chain, in their order.

    Cameras with other models than pinhole with radtan or none are left out with a warning.

    Args:
        path: The file, or a folder that holds just one.
        size: Columns and rows, px, for a file without ``resolution``; one with it must agree.

    Raises:
        InputError: The file cannot be read, has no camera, none that can be read, or implausible
            numbers.
    """
    file = only(path, _belongs, "Kalibr camchain")
    refused = {}
    cameras = {}
    for name, block in _blocks(file).items():
        model = str(block.get("camera_model", "pinhole"))
        distortion = str(block.get("distortion_model", "none"))
        if model != "pinhole" or distortion not in _COEFFICIENTS:
            refused[name] = f"{name} is {model}-{distortion}"
            continue
        cameras[name] = _camera(file, name, block, distortion, size)
    if refused:
        message = (
            f"{file}: {'; '.join(refused.values())}; pinhole-radtan and pinhole-none are read. "
            "Calibrate with `--models pinhole-radtan`, or undistort the pictures first."
        )
        if not cameras:
            raise InputError(message)
        warnings.warn(message, CaptureWarning, stacklevel=2)
    return cameras


def read_kalibr_camera(path: Path, name: str | None = None, size: Size | None = None) -> Camera:
    """Read one camera of a chain.

    Args:
        path: The file, or a folder that holds just one.
        name: For example "cam1"; None for the first, with a warning where there are others.
        size: As in :func:`read_kalibr`.

    Raises:
        InputError: As :func:`read_kalibr`, or no camera of this name can be read.
    """
    cameras = read_kalibr(path, size)
    if name is None:
        name = next(iter(cameras))
        if len(cameras) > 1:
            warnings.warn(
                f"{path}: holds the cameras {', '.join(cameras)}; {name} is used.",
                CaptureWarning,
                stacklevel=2,
            )
    if name not in cameras:
        raise InputError(f"{path}: no camera {name!r} that can be read; {', '.join(cameras)} are.")
    return cameras[name]


def read_kalibr_chain(path: Path) -> dict[str, Array]:
    """Read where the cameras stand: ``T_camera_first`` (4, 4), m, of each camera by its name.

    Raises:
        InputError: A camera after the first has no ``T_cn_cnm1``, or one that is no rigid
            transform in metres.
    """
    file = only(path, _belongs, "Kalibr camchain")
    chain: dict[str, Array] = {}
    T_camera_first = np.eye(4)
    for name, block in _blocks(file).items():
        if chain:
            T_camera_first = _rigid(f"{file}: {name}: T_cn_cnm1", block.get("T_cn_cnm1"))
            T_camera_first = T_camera_first @ next(reversed(chain.values()))
        chain[name] = T_camera_first
    return chain


def _blocks(file: Path) -> dict[str, Mapping[str, Any]]:
    content = read_calibration(file)
    names = sorted((n for n in content if re.fullmatch(r"cam\d+", n)), key=natural_key)
    if not names:
        raise InputError(
            f"{file}: no cameras; cam0, cam1, ... are expected, found "
            f"{', '.join(sorted(content))[:200] or 'nothing'}."
        )
    for name in names:
        if not isinstance(content[name], dict):
            raise InputError(f"{file}: {name}: a mapping is expected.")
    return {name: content[name] for name in names}


def _camera(
    file: Path, name: str, block: Mapping[str, Any], distortion: str, size: Size | None
) -> Camera:
    where = f"{file}: {name}"
    fx, fy, cx, cy = numbers_of(f"{where}: intrinsics", block.get("intrinsics"), (4,))
    coefficients = numbers_of(
        f"{where}: distortion_coeffs",
        block.get("distortion_coeffs") or [],
        (_COEFFICIENTS[distortion],),
    )
    said = None
    if block.get("resolution") is not None:
        columns, rows = numbers_of(f"{where}: resolution", block["resolution"], (2,))
        said = whole(f"{where}: resolution", columns), whole(f"{where}: resolution", rows)
    return from_opencv(where, (fx, fy), (cx, cy), coefficients, agreed_size(file, said, size))


def _rigid(where: str, value: Any) -> Array:
    matrix = np.array(numbers_of(where, value, (16,))).reshape(4, 4)
    rotation = matrix[:3, :3]
    if (
        not np.isfinite(matrix).all()
        or not np.allclose(matrix[3], [0, 0, 0, 1])
        or np.abs(rotation.T @ rotation - np.eye(3)).max() > 1e-3
        or np.linalg.det(rotation) < 0
    ):
        raise InputError(f"{where}: {matrix.tolist()} is no rigid transform, row by row.")
    baseline = float(np.linalg.norm(matrix[:3, 3]))
    if baseline > LARGEST_BASELINE:
        raise InputError(
            f"{where}: the cameras stand {baseline:g} m apart, at most {LARGEST_BASELINE:g} m are "
            "expected. Are they millimetres? Write metres."
        )
    return matrix
