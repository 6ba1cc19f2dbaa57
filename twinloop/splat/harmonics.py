"""Real spherical harmonics of colour: the basis, and how coefficients turn with an object.

The basis is that of 3D Gaussian splatting (Kerbl et al. 2023): to degree 3, ordered by band and,
within a band, by order, with the signs of the original code.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

Float = NDArray[np.float64]

MOST_BASES = 16
"""Coefficients per channel at degree 3, the highest that is drawn."""


def basis(directions: ArrayLike) -> Float:
    """Values (..., 16) of the basis to degree 3 at unit `directions` (..., 3)."""
    x, y, z = np.moveaxis(np.asarray(directions, np.float64), -1, 0)
    xx, yy, zz = x * x, y * y, z * z
    return np.stack(
        [
            np.full_like(x, 0.28209479177387814),
            -0.4886025119029199 * y,
            0.4886025119029199 * z,
            -0.4886025119029199 * x,
            1.0925484305920792 * x * y,
            -1.0925484305920792 * y * z,
            0.31539156525252005 * (2 * zz - xx - yy),
            -1.0925484305920792 * x * z,
            0.5462742152960396 * (xx - yy),
            -0.5900435899266435 * y * (3 * xx - yy),
            2.890611442640554 * x * y * z,
            -0.4570457994644658 * y * (4 * zz - xx - yy),
            0.3731763325901154 * z * (2 * zz - 3 * xx - 3 * yy),
            -0.4570457994644658 * x * (4 * zz - xx - yy),
            1.445305721320277 * z * (xx - yy),
            -0.5900435899266435 * x * (xx - 3 * yy),
        ],
        axis=-1,
    )


def _inverse(values: Float, band: int) -> Float:
    return np.asarray(np.linalg.pinv(values[:, band * band : (band + 1) ** 2]), np.float64)


@cache
def _probes() -> tuple[Float, tuple[Float, ...]]:
    """Directions (n, 3) spread over the sphere, and each band's projector (2l + 1, n) on them."""
    n = 64
    z = 1 - (2 * np.arange(n) + 1) / n
    turn = np.pi * (1 + 5**0.5) * np.arange(n)
    r = np.sqrt(1 - z * z)
    directions = np.stack([r * np.cos(turn), r * np.sin(turn), z], axis=1)
    values = basis(directions)
    return directions, tuple(_inverse(values, k) for k in range(4))


def rotation_matrices(rotation: ArrayLike, degree: int) -> list[Float]:
    """How the coefficients of each band 0 to `degree` (at most 3) turn with an object.

    A colour c(d) seen along d becomes c(R^T d) when the object turns by R. A band is closed under
    rotation, so its (2l + 1, 2l + 1) matrix follows from the basis's values at more directions than
    it has functions: the least-squares problem is consistent and its solution exact.

    Args:
        rotation: R (3, 3), which maps the object's old directions to new ones.
        degree: Highest band.
    """
    R = np.asarray(rotation, np.float64)
    directions, projectors = _probes()
    turned = basis(directions @ R)
    return [projectors[k] @ turned[:, k * k : (k + 1) ** 2] for k in range(degree + 1)]


def rotate(coefficients: NDArray[np.float32], rotation: ArrayLike) -> NDArray[np.float32]:
    """Turn `coefficients` (n, bases, channels) with an object by `rotation` (3, 3), which see."""
    out = np.array(coefficients, np.float32)
    degree = round(coefficients.shape[1] ** 0.5) - 1
    for k, matrix in enumerate(rotation_matrices(rotation, degree)[1:], start=1):
        band = slice(k * k, (k + 1) ** 2)
        out[:, band] = np.einsum("ij,njc->nic", matrix, coefficients[:, band].astype(np.float64))
    return out
