"""Moving, turning and scaling splats, their colours by direction included."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from twinloop.errors import InputError
from twinloop.geometry import quaternion
from twinloop.splat import harmonics
from twinloop.splat.gaussians import Gaussians
from twinloop.splat.surfels import Surfels

Splats = TypeVar("Splats", bound=Gaussians | Surfels)


def transformed(splats: Splats, T_new_old: ArrayLike, scale: float = 1.0) -> Splats:
    """`splats` scaled about the origin by `scale`, then moved by `T_new_old` (4, 4), m.

    A point x goes to R (scale x) + t. Colours turn along: what a camera that moves likewise sees
    does not change (see `harmonics`). An identity changes no bit.

    Raises:
        InputError: `T_new_old` is no rigid transform (say, has a reflection), `scale` is not
            positive and finite, or the result is beyond float32.
    """
    T = checked(T_new_old)
    if not 0 < scale < np.inf:
        raise InputError(f"scale is {scale}, expected a positive number such as 0.001 (mm to m)")
    R, t = T[:3, :3], T[:3, 3]
    changes: dict[str, Any] = {}
    with np.errstate(over="ignore", under="ignore"):
        if scale != 1:
            scales = (splats.scales.astype(np.float64) * scale).astype(np.float32)
            if len(scales) and not (scales.min() > 0 and np.isfinite(scales).all()):
                raise InputError(
                    f"scale is {scale:g}, which makes the splats' scales {scales.min():g} to "
                    f"{scales.max():g} m; expected metres above zero"
                )
            changes["scales"] = scales
        if scale != 1 or not np.array_equal(T, np.eye(4)):
            means = (splats.means.astype(np.float64) * scale @ R.T + t).astype(np.float32)
            if not np.isfinite(means).all():
                raise InputError(
                    f"scale {scale:g} and the move {t.tolist()} m take splats farther away than "
                    "their numbers (float32) hold; expected metres"
                )
            changes["means"] = means
    if not np.array_equal(R, np.eye(3)):
        turned = quaternion.multiply(quaternion.from_matrix(R), splats.quaternions)
        turned /= np.linalg.norm(turned, axis=1, keepdims=True)
        changes["quaternions"] = turned.astype(np.float32)
        changes["sh"] = harmonics.rotate(splats.sh, R)
    return replace(splats, **changes)


def checked(T: ArrayLike) -> np.ndarray:
    """`T` as float64 (4, 4).

    Raises:
        InputError: It is no rigid transform to within 1e-4.
    """
    T = np.asarray(T, np.float64)
    if T.shape != (4, 4) or not np.isfinite(T).all():
        raise InputError(f"expected a transform of 4x4 finite numbers, got {T.shape}: {T.tolist()}")
    R = T[:3, :3]
    if not np.allclose(R @ R.T, np.eye(3), atol=1e-4) or np.linalg.det(R) < 0:
        raise InputError(
            f"the transform's 3x3 part is no rotation (determinant {np.linalg.det(R):.6g}, "
            "expected 1, with orthogonal rows). Take a scale out of it and give that apart; splats "
            "cannot be mirrored or sheared."
        )
    if not np.allclose(T[3], [0, 0, 0, 1], atol=1e-9):
        raise InputError(f"the transform's last row is {T[3].tolist()}, expected 0 0 0 1")
    return T
