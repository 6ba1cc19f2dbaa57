"""Rigid transforms as 4x4 matrices; ``T_a_b`` maps coordinates in b to coordinates in a."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from twinloop.geometry import quaternion

Float = NDArray[np.float64]


def from_position_quaternion(position: ArrayLike, wxyz: ArrayLike) -> Float:
    """Return transforms (..., 4, 4) of positions (..., 3) [m] and quaternions (..., 4)."""
    position = np.asarray(position, dtype=np.float64)
    return from_rotation_position(quaternion.to_matrix(wxyz), position)


def from_rotation_position(rotation: ArrayLike, position: ArrayLike) -> Float:
    """Return transforms (..., 4, 4) of rotations (..., 3, 3) and positions (..., 3)."""
    rotation = np.asarray(rotation, dtype=np.float64)
    position = np.asarray(position, dtype=np.float64)
    shape = np.broadcast_shapes(rotation.shape[:-2], position.shape[:-1])
    transform = np.zeros((*shape, 4, 4))
    transform[..., :3, :3] = rotation
    transform[..., :3, 3] = position
    transform[..., 3, 3] = 1.0
    return transform


def to_position_quaternion(transform: ArrayLike) -> tuple[Float, Float]:
    """Return positions (..., 3) and unit quaternions (..., 4) of transforms (..., 4, 4)."""
    transform = np.asarray(transform, dtype=np.float64)
    return transform[..., :3, 3].copy(), quaternion.from_matrix(transform[..., :3, :3])


def inverse(transform: ArrayLike) -> Float:
    """Return the inverse of rigid transforms (..., 4, 4)."""
    transform = np.asarray(transform, dtype=np.float64)
    rotation = np.swapaxes(transform[..., :3, :3], -1, -2)
    return from_rotation_position(
        rotation, -np.einsum("...ij,...j->...i", rotation, transform[..., :3, 3])
    )


def apply(transform: ArrayLike, points: ArrayLike) -> Float:
    """Map ``points`` (..., n, 3) by ``transform`` (..., 4, 4)."""
    transform = np.asarray(transform, dtype=np.float64)
    points = np.asarray(points, dtype=np.float64)
    rotation = np.swapaxes(transform[..., :3, :3], -1, -2)
    return np.asarray(points @ rotation + transform[..., None, :3, 3])


def skew(v: ArrayLike) -> Float:
    """Return cross-product matrices (..., 3, 3) of vectors (..., 3)."""
    x, y, z = np.moveaxis(np.asarray(v, dtype=np.float64), -1, 0)
    zero = np.zeros_like(x)
    return np.stack(
        [
            np.stack([zero, -z, y], axis=-1),
            np.stack([z, zero, -x], axis=-1),
            np.stack([-y, x, zero], axis=-1),
        ],
        axis=-2,
    )


def exp(twist: ArrayLike) -> Float:
    """Return the exponential (..., 4, 4) of twists (..., 6): translation part, then rotation.

    Closed form with the left Jacobian of SO(3) (Sola et al. 2018, "A micro Lie theory", eq. 172).
    """
    twist = np.asarray(twist, dtype=np.float64)
    rho, phi = twist[..., :3], twist[..., 3:]
    return from_rotation_position(
        quaternion.to_matrix(quaternion.from_rotvec(phi)),
        np.einsum("...ij,...j->...i", left_jacobian(phi), rho),
    )


def log(transform: ArrayLike) -> Float:
    """Return the twists (..., 6) whose :func:`exp` is ``transform`` (..., 4, 4)."""
    transform = np.asarray(transform, dtype=np.float64)
    phi = quaternion.to_rotvec(quaternion.from_matrix(transform[..., :3, :3]))
    rho = np.linalg.solve(left_jacobian(phi), transform[..., :3, 3, None])[..., 0]
    return np.concatenate([rho, phi], axis=-1)


def left_jacobian(phi: ArrayLike) -> Float:
    """Return the left Jacobian of SO(3) (..., 3, 3) at rotation vectors (..., 3)."""
    phi = np.asarray(phi, dtype=np.float64)
    theta = np.linalg.norm(phi, axis=-1)[..., None, None]
    small = theta < 1e-4
    safe = np.where(small, 1.0, theta)
    a = np.where(small, 0.5 - theta**2 / 24, (1 - np.cos(safe)) / safe**2)
    b = np.where(small, 1 / 6 - theta**2 / 120, (safe - np.sin(safe)) / safe**3)
    s = skew(phi)
    return np.asarray(np.eye(3) + a * s + b * (s @ s))
