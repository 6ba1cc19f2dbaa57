"""Checks that readers of exports share: shapes, rigid poses, metres, and what is left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from twinloop.errors import InputError
from twinloop.geometry import quaternion

Array = NDArray[np.float64]

OPENGL_TO_OPENCV = np.diag([1.0, -1.0, -1.0, 1.0])
"""From OpenCV's camera axes (x right, y down, z forward) to those of OpenGL and ARKit (x right,
y up, z backward); ``T_world_camera`` of ARKit times this is ours.  It is its own inverse."""
ARKIT_UP = np.array([0.0, 1.0, 0.0])
"""Against gravity in ARKit's world (Apple, ``ARConfiguration.WorldAlignment.gravity``)."""
LARGEST_EXTENT = 100.0
"""Largest spread of camera positions that is believed, m."""
NAMED = 5
"""Most missing files that a note names."""


def numbers(value: Any, shape: tuple[int | None, ...], where: str) -> Array:
    """Return numbers of a JSON file as an array.

    Args:
        value: What the file says.
        shape: Expected shape; None for any length.
        where: File and field, for the message.

    Raises:
        InputError: Something that is no number, or another shape.
    """
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        array = np.array(0.0)
    fits = array.ndim == len(shape) and all(
        e in (None, n) for e, n in zip(shape, array.shape, strict=True)
    )
    if not fits or isinstance(value, str | bool):
        expected = " x ".join("n" if e is None else str(e) for e in shape) or "one"
        raise InputError(f"{where}: {str(value)[:60]!r} is there, {expected} numbers are expected.")
    return array


def rigid(rotation: ArrayLike, position: ArrayLike, where: str) -> Array:
    """Assemble rigid transforms (n, 4, 4) of rotations (n, 3, 3) and positions (n, 3).

    A transform with a number that is not finite is NaN as a whole.

    Raises:
        InputError: A matrix is no rotation (not orthonormal, or a mirror).
    """
    R, t = np.asarray(rotation, dtype=np.float64), np.asarray(position, dtype=np.float64)
    T = np.tile(np.eye(4), (len(t), 1, 1))
    T[:, :3, :3], T[:, :3, 3] = R, t
    known = np.asarray(np.isfinite(T).all(axis=(1, 2)))
    T[~known] = np.nan
    proper = np.where(known[:, np.newaxis, np.newaxis], R, np.eye(3))
    defect = np.abs(proper @ proper.swapaxes(-1, -2) - np.eye(3)).max(axis=(1, 2))
    wrong = (defect > 1e-2) | (np.linalg.det(proper) < 0)
    if wrong.any():
        first = int(np.argmax(wrong))
        raise InputError(
            f"{where}: pose {first} has the matrix {np.round(R[first], 4).tolist()}, which is no "
            f"rotation (its rows are orthonormal up to {defect[first]:.2g}, its determinant is "
            f"{np.linalg.det(R[first]):.3g}; 0 and 1 are expected). Is a scale or a mirror in it?"
        )
    return T


def from_quaternions(position: ArrayLike, xyzw: ArrayLike, where: str) -> Array:
    """Assemble rigid transforms (n, 4, 4) of positions (n, 3) and quaternions xyzw (n, 4).

    A transform with a number that is not finite, or the quaternion 0 (tracking had not begun), is
    NaN as a whole.

    Raises:
        InputError: A quaternion is not of unit length.
    """
    q = np.roll(np.asarray(xyzw, dtype=np.float64), 1, axis=-1)
    norm = np.linalg.norm(q, axis=-1)
    q[norm == 0] = np.nan
    wrong = np.abs(norm - 1) > 0.01
    wrong &= norm > 0
    if wrong.any():
        first = int(np.argmax(wrong))
        raise InputError(
            f"{where}: pose {first} has the quaternion {np.asarray(xyzw)[first].tolist()}, whose "
            f"length is {norm[first]:.4g}; 1 is expected. Are the columns in the order x, y, z, w?"
        )
    with np.errstate(invalid="ignore"):
        rotation = quaternion.to_matrix(quaternion.normalize(q))
    return rigid(rotation, position, where)


def check_extent(T_world_camera: Array, where: str) -> None:
    """Refuse camera positions that cannot be metres.

    Args:
        T_world_camera: Camera poses (n, 4, 4), said to be in metres; NaN where unknown.
        where: File, for the message.

    Raises:
        InputError: They spread over more than ``LARGEST_EXTENT``; says both readings.
    """
    known = np.isfinite(T_world_camera).all(axis=(1, 2))
    if not known.any():
        return
    positions = T_world_camera[known, :3, 3]
    extent = float(np.linalg.norm(np.ptp(positions, axis=0)))
    if extent > LARGEST_EXTENT:
        raise InputError(
            f"{where}: the camera positions spread over {extent:.4g} m, at most "
            f"{LARGEST_EXTENT:g} m are believed. Are they in millimetres ({extent / 1000:.4g} m)? "
            "Convert them to metres."
        )


def listed(names: Sequence[str]) -> str:
    """The first names of a list, and that there are more."""
    return ", ".join(names[:NAMED]) + (", ..." if len(names) > NAMED else "")


def left_out(missing: Sequence[str], total: int, what: str) -> tuple[str, ...]:
    """A note on what a format lists but what is not there; empty when nothing is missing.

    Args:
        missing: Names of what is missing.
        total: How many are listed.
        what: What they are: "pictures".
    """
    if not missing:
        return ()
    return (
        f"{len(missing)} of {total} listed {what} are missing and left out: {listed(missing)}.",
    )


def unposed(T_world_camera: Array, what: str) -> tuple[str, ...]:
    """A note on pictures without pose; empty when all have one."""
    count = int((~np.isfinite(T_world_camera).all(axis=(1, 2))).sum())
    if not count:
        return ()
    return (f"{count} of {len(T_world_camera)} pictures have no pose: {what}.",)


def nearest(stamps: Array, times: Array) -> NDArray[np.int64]:
    """Number of the nearest of ``stamps`` (m,), which increase, to each of ``times`` (n,)."""
    right = np.clip(np.searchsorted(stamps, times), 0, len(stamps) - 1)
    left = np.maximum(right - 1, 0)
    closer = np.abs(stamps[right] - times) < np.abs(stamps[left] - times)
    return np.where(closer, right, left).astype(np.int64)
