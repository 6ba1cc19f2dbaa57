"""Lenses and poses of ``transforms.json``, as nerfstudio, instant-ngp and Blender's NeRFs write it.

Conventions (nerfstudio documentation, "Data conventions"; instant-ngp, "NeRF dataset tips"):
``transform_matrix`` maps camera to world with OpenGL axes (y up, looking along -z).  Both programs
take the principal point over from COLMAP, where the centre of the first pixel is (0.5, 0.5).  The
positions of the file are ``applied_scale * (applied_transform @ original)``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinloop.capture.formats.image_list import Size
from twinloop.capture.formats.lens import checked
from twinloop.capture.projection import Camera
from twinloop.errors import InputError
from twinloop.geometry import se3

Array = NDArray[np.float64]

PINHOLE_MODELS = ("OPENCV", "PINHOLE", "SIMPLE_PINHOLE", "SIMPLE_RADIAL", "RADIAL", "PERSPECTIVE")
"""Values of ``camera_model`` that are read."""
_OPENGL_FROM_OPENCV = np.diag([1.0, -1.0, -1.0, 1.0])
_LARGEST_SKEW = 1e-2
"""How far from a rotation a pose may be: files with three digits are accepted."""


def number(where: str, block: Mapping[str, Any], key: str) -> float | None:
    """Number of a key; None where it is absent or null.

    Raises:
        InputError: It is something else than a number.
    """
    value = block.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{where}: {key} is {str(value)[:40]!r}; a number is expected.")
    try:
        return float(value)
    except OverflowError as error:
        raise InputError(f"{where}: {key} has {len(str(value))} digits.") from error


def declared_size(where: str, block: Mapping[str, Any]) -> Size | None:
    """Columns and rows as ``w`` and ``h`` say; None where they do not.

    Raises:
        InputError: Only one of them is there, or they are no whole numbers.
    """
    width, height = number(where, block, "w"), number(where, block, "h")
    if width is None and height is None:
        return None
    if (
        width is None
        or height is None
        or not (width.is_integer() and height.is_integer() and width > 0 and height > 0)
    ):
        raise InputError(
            f"{where}: w is {width}, h is {height}; columns and rows of the pictures are expected "
            "as two whole numbers, or neither."
        )
    return int(width), int(height)


def camera(where: str, block: Mapping[str, Any], size: Size) -> Camera:
    """Lens of a frame.

    Args:
        where: File and frame, for messages.
        block: Keys of the frame over those of the file.
        size: Columns and rows that the numbers are for, px.

    Raises:
        InputError: A fisheye or panorama, no focal length, or implausible numbers.
    """
    model = block.get("camera_model") or "OPENCV"
    k4 = number(where, block, "k4") or 0.0
    if model not in PINHOLE_MODELS or block.get("is_fisheye") or k4 != 0:
        raise InputError(
            f"{where}: camera_model {model!r}, is_fisheye {block.get('is_fisheye', False)}, k4 "
            f"{k4:g}; OPENCV (k1, k2, k3, p1, p2) and PINHOLE are read. Undistort the pictures "
            "first, for example with `colmap image_undistorter`."
        )
    width, height = size
    fx = _focal(where, block, "fl_x", "camera_angle_x", width)
    fy = _focal(where, block, "fl_y", "camera_angle_y", height)
    fx, fy = fx if fx is not None else fy, fy if fy is not None else fx
    if fx is None or fy is None:
        raise InputError(
            f"{where}: no focal length; fl_x and fl_y (px), or camera_angle_x (rad) are expected."
        )
    cx, cy = number(where, block, "cx"), number(where, block, "cy")
    centre = (
        (width / 2 if cx is None else cx) - 0.5,
        (height / 2 if cy is None else cy) - 0.5,
    )
    distortion = [number(where, block, key) or 0.0 for key in ("k1", "k2", "p1", "p2", "k3")]
    return checked(where, (fx, fy), centre, distortion, size)


def _focal(
    where: str, block: Mapping[str, Any], length: str, angle: str, side: int
) -> float | None:
    focal = number(where, block, length)
    if focal is not None:
        return focal
    opening = number(where, block, angle)
    if opening is None:
        return None
    if not 0 < opening < np.pi:
        raise InputError(
            f"{where}: {angle} is {opening:g}; radians between 0 and pi are expected. Degrees?"
        )
    return float(side / 2 / np.tan(opening / 2))


@dataclass(frozen=True)
class Applied:
    """What was done to the world of the poses after reconstruction."""

    transform: Array
    """Original world to the file's world (4, 4), before scaling."""
    scale: float
    """Factor of all positions after that."""

    def undone(self, points: Array) -> Array:
        """Points (n, 3) of the file's world in the original world."""
        return np.asarray(
            np.linalg.solve(
                self.transform[:3, :3], (points / self.scale - self.transform[:3, 3]).T
            ).T
        )


def applied(where: str, block: Mapping[str, Any]) -> Applied:
    """Read ``applied_transform`` and ``applied_scale``; nothing where they are absent.

    Raises:
        InputError: No transform of 3 or 4 rows without mirroring, or no positive scale.
    """
    scale = number(where, block, "applied_scale")
    transform = np.eye(4)
    if block.get("applied_transform") is not None:
        transform = _matrix(f"{where}: applied_transform", block["applied_transform"])
        if not np.isfinite(transform).all() or not np.linalg.det(transform[:3, :3]) > 1e-12:
            raise InputError(
                f"{where}: applied_transform {transform[:3].tolist()} mirrors or flattens the "
                "world, or is not finite; a rotation is expected."
            )
    if scale is not None and not 0 < scale < np.inf:
        raise InputError(f"{where}: applied_scale is {scale}; a positive number is expected.")
    return Applied(transform, 1.0 if scale is None else scale)


def pose(where: str, value: Any, undo: Applied) -> Array | None:
    """Pose of a frame.

    Args:
        where: File and frame, for messages.
        value: Its ``transform_matrix``.
        undo: What was done to the world.

    Returns:
        ``T_world_camera`` (4, 4) in the original world, OpenCV axes; None where the frame has
        numbers that are not finite: it was not registered.

    Raises:
        InputError: No 4x4 matrix, a transposed one, or one that mirrors or shears.
    """
    matrix = _matrix(f"{where}: transform_matrix", value)
    if not np.isfinite(matrix).all():
        return None
    turned: Array = np.asarray(np.linalg.solve(undo.transform[:3, :3], matrix[:3, :3]), np.float64)
    rotation = _rotation(where, turned)
    position = undo.undone(matrix[None, :3, 3])[0]
    return se3.from_rotation_position(rotation, position) @ _OPENGL_FROM_OPENCV


def _matrix(where: str, value: Any) -> Array:
    try:
        matrix = np.array(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{where}: 3 or 4 rows of 4 numbers are expected ({error}).") from error
    if matrix.shape == (3, 4):
        matrix = np.vstack([matrix, [0, 0, 0, 1]])
    if matrix.shape != (4, 4):
        raise InputError(
            f"{where}: has the shape {matrix.shape}; 3 or 4 rows of 4 numbers are expected."
        )
    if not np.allclose(matrix[3], [0, 0, 0, 1], atol=1e-6) and np.isfinite(matrix).all():
        transposed = np.allclose(matrix[:, 3], [0, 0, 0, 1], atol=1e-6)
        raise InputError(
            f"{where}: the last row is {matrix[3].tolist()}; 0, 0, 0, 1 is expected."
            + (" It is transposed: write it row by row." if transposed else "")
        )
    return matrix


def _rotation(where: str, matrix: Array) -> Array:
    """The nearest rotation of a scaled rotation."""
    determinant = float(np.linalg.det(matrix))
    scale = np.cbrt(determinant)
    if determinant <= 0 or np.abs(matrix.T @ matrix / scale**2 - np.eye(3)).max() > _LARGEST_SKEW:
        raise InputError(
            f"{where}: transform_matrix has the determinant {determinant:.4g} and is no rotation, "
            "scaled or not: it mirrors or shears. Camera-to-world with OpenGL axes (y up, looking "
            "along -z) is expected."
        )
    left, _, right = np.linalg.svd(matrix)
    return np.asarray(left @ right)
