"""Unit quaternions, wxyz, for arrays of any leading shape."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Float = NDArray[np.float64]


def normalize(q: ArrayLike) -> Float:
    """Return ``q`` (..., 4) scaled to unit norm with a non-negative real part."""
    raw = np.asarray(q, dtype=np.float64)
    unit: Float = raw / np.linalg.norm(raw, axis=-1, keepdims=True)
    return np.where(unit[..., :1] < 0, -unit, unit)


def multiply(a: ArrayLike, b: ArrayLike) -> Float:
    """Return the Hamilton product of ``a`` (..., 4) and ``b`` (..., 4): rotate by b, then by a."""
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    aw, ax, ay, az = np.moveaxis(a, -1, 0)
    bw, bx, by, bz = np.moveaxis(b, -1, 0)
    return np.stack(
        [
            aw * bw - ax * bx - ay * by - az * bz,
            aw * bx + ax * bw + ay * bz - az * by,
            aw * by - ax * bz + ay * bw + az * bx,
            aw * bz + ax * by - ay * bx + az * bw,
        ],
        axis=-1,
    )


def conjugate(q: ArrayLike) -> Float:
    """Return the inverse rotation of ``q`` (..., 4)."""
    flipped: Float = np.asarray(q, dtype=np.float64) * np.array([1.0, -1.0, -1.0, -1.0])
    return flipped


def to_matrix(q: ArrayLike) -> Float:
    """Return rotation matrices (..., 3, 3) of ``q`` (..., 4)."""
    w, x, y, z = np.moveaxis(np.asarray(q, dtype=np.float64), -1, 0)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


def from_matrix(rotation: ArrayLike) -> Float:
    """Return quaternions (..., 4), real part not negative, of matrices (..., 3, 3).

    Takes the best conditioned of the four textbook forms for each matrix (Shepperd's method).
    """
    m = np.asarray(rotation, dtype=np.float64)
    m00, m11, m22 = m[..., 0, 0], m[..., 1, 1], m[..., 2, 2]
    diagonal = np.stack(
        [m00 + m11 + m22, m00 - m11 - m22, m11 - m00 - m22, m22 - m00 - m11], axis=-1
    )
    # Each row of K is the quaternion scaled by 4 times its own k-th component.
    yz = m[..., 2, 1] - m[..., 1, 2]
    zx = m[..., 0, 2] - m[..., 2, 0]
    xy = m[..., 1, 0] - m[..., 0, 1]
    sxy = m[..., 1, 0] + m[..., 0, 1]
    szx = m[..., 0, 2] + m[..., 2, 0]
    syz = m[..., 2, 1] + m[..., 1, 2]
    one = 1 + diagonal
    forms = np.stack(
        [
            np.stack([one[..., 0], yz, zx, xy], axis=-1),
            np.stack([yz, one[..., 1], sxy, szx], axis=-1),
            np.stack([zx, sxy, one[..., 2], syz], axis=-1),
            np.stack([xy, szx, syz, one[..., 3]], axis=-1),
        ],
        axis=-2,
    )
    best = np.argmax(diagonal, axis=-1)[..., None, None]
    return normalize(np.take_along_axis(forms, best, axis=-2)[..., 0, :])


def rotate(q: ArrayLike, v: ArrayLike) -> Float:
    """Return ``v`` (..., 3) rotated by ``q`` (..., 4)."""
    rotated: Float = np.einsum("...ij,...j->...i", to_matrix(q), np.asarray(v, dtype=np.float64))
    return rotated


def from_rotvec(rotvec: ArrayLike) -> Float:
    """Return quaternions of rotation vectors (..., 3) [rad]."""
    r = np.asarray(rotvec, dtype=np.float64)
    half = 0.5 * np.linalg.norm(r, axis=-1, keepdims=True)
    return np.concatenate([np.cos(half), 0.5 * np.sinc(half / np.pi) * r], axis=-1)


def to_rotvec(q: ArrayLike) -> Float:
    """Return the shortest rotation vectors (..., 3) [rad] of ``q`` (..., 4)."""
    unit = normalize(q)
    norm = np.linalg.norm(unit[..., 1:], axis=-1, keepdims=True)
    full = 2 * np.arctan2(norm, unit[..., :1])
    small = norm < 1e-12
    rotvec: Float = unit[..., 1:] * np.where(small, 2.0, full / np.where(small, 1.0, norm))
    return rotvec


def angle(a: ArrayLike, b: ArrayLike) -> Float:
    """Return the rotation angle [rad] between ``a`` and ``b`` (..., 4)."""
    return np.asarray(np.linalg.norm(to_rotvec(multiply(conjugate(a), b)), axis=-1))


def slerp(times: ArrayLike, knots: ArrayLike, q: ArrayLike) -> Float:
    """Interpolate ``q`` (n, 4), given at ``knots`` (n,), at ``times`` (m,): returns (m, 4).

    Times outside the knots take the end values.
    """
    times, knots = np.asarray(times, dtype=np.float64), np.asarray(knots, dtype=np.float64)
    q = np.asarray(q, dtype=np.float64)
    if len(knots) == 1:
        return np.repeat(q, len(times), axis=0)
    left = np.clip(np.searchsorted(knots, times, side="right") - 1, 0, len(knots) - 2)
    share = np.clip((times - knots[left]) / (knots[left + 1] - knots[left]), 0, 1)
    step = to_rotvec(multiply(conjugate(q[left]), q[left + 1]))
    return multiply(q[left], from_rotvec(step * share[:, None]))
