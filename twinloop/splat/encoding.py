"""The numbers that splat files hold instead of opacities, scales and quaternions.

Files of 3D Gaussian splatting hold what its optimiser moves freely: the logit of the opacity, the
logarithm of each scale (of metres), and a quaternion of any length. Float32 keeps neither form's
every value in the other, so what a file said is carried along (`Gaussians.stored`) and written
again where it still means the same.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from twinloop.splat.gaussians import Gaussians
from twinloop.splat.surfels import Surfels

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

FLAT = np.float32(np.log(1e-7))
"""Logarithm of the third scale (0.1 um) that a surfel gets where a file or a viewer wants one."""
SMALLEST = float(np.finfo(np.float32).tiny)
LOGIT, SCALES, QUATERNION = slice(0, 1), slice(1, 4), slice(4, 8)
"""Columns of `Gaussians.stored`."""


def opacities_of(logits: Float32) -> Float32:
    """Opacities of `logits`: the sigmoid, in double precision, rounded once."""
    with np.errstate(over="ignore"):
        return np.asarray(1 / (1 + np.exp(-logits.astype(np.float64))), np.float32)


def scales_of(logarithms: Float32) -> Float32:
    """Scales (m) of `logarithms`, never less than the smallest normal float32."""
    with np.errstate(over="ignore"):
        scales = np.exp(logarithms.astype(np.float64)).astype(np.float32)
    return np.maximum(scales, np.float32(SMALLEST))


def quaternions_of(raw: Float32) -> Float32:
    """Unit quaternions (n, 4) of `raw` ones of any length but 0."""
    q = raw.astype(np.float64)
    return np.asarray(q / np.linalg.norm(q, axis=1, keepdims=True), np.float32)


def decode(means: Float32, stored: Float32, sh: Float32) -> Gaussians:
    """Gaussians of what a file holds: means (n, 3) m, `stored` (n, 8), sh (n, bases, 3)."""
    return Gaussians(
        means,
        quaternions_of(stored[:, QUATERNION]),
        scales_of(stored[:, SCALES]),
        opacities_of(stored[:, 0]),
        sh,
        stored,
    )


def encode(splats: Gaussians | Surfels) -> Float32:
    """What a file holds (n, 8) for the opacities, scales and quaternions of `splats`.

    Opacities of exactly 0 and 1, which have no finite logit, get one that reads back as 0 and 1.
    A surfel's third scale is `FLAT`.
    """
    n = len(splats)
    out = np.empty((n, 8), np.float32)
    opacity = splats.opacities.astype(np.float64).clip(1e-46, 1 - 2.0**-26)
    out[:, 0] = np.log(opacity) - np.log1p(-opacity)
    axes = splats.scales.shape[1]
    out[:, SCALES] = FLAT
    out[:, 1 : 1 + axes] = np.log(splats.scales.astype(np.float64).clip(SMALLEST))
    out[:, QUATERNION] = splats.quaternions
    stored = splats.stored if isinstance(splats, Gaussians) else None
    if stored is None:
        return out
    same = np.empty((n, 8), bool)
    same[:, 0] = opacities_of(stored[:, 0]) == splats.opacities
    same[:, SCALES] = scales_of(stored[:, SCALES]) == splats.scales
    turned = quaternions_of(stored[:, QUATERNION]) == splats.quaternions
    same[:, QUATERNION] = turned.all(axis=1, keepdims=True)
    return np.where(same, stored, out)


def flat_gaussians(surfels: Surfels) -> Gaussians:
    """`surfels` as Gaussians of 0.1 um thickness, for what knows no surfels."""
    thickness = np.full((len(surfels), 1), np.exp(np.float64(FLAT)), np.float32)
    return Gaussians(
        surfels.means,
        surfels.quaternions,
        np.concatenate([surfels.scales, thickness], axis=1),
        surfels.opacities,
        surfels.sh,
    )
