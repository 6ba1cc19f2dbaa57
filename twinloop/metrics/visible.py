"""Visible surface discrepancy: how much of what the camera sees of an object is misplaced."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from twinloop.errors import InputError
from twinloop.geometry import camera

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


def visible_discrepancy(
    estimate: NDArray[np.floating],
    truth: NDArray[np.floating],
    scene: NDArray[np.floating],
    intrinsics: ArrayLike,
    delta: float,
    taus: ArrayLike,
    diameter: float | None = None,
    cost: Literal["step", "tlinear"] = "step",
) -> Array:
    """VSD of one pose for each tolerance: 0 where all that is seen fits, 1 where nothing does.

    Equal to bop_toolkit's `vsd` to rounding, its visibility rule "bop19" included: a pixel without
    measured depth counts as showing the object; the comparison with `delta` is in float32 there,
    and so it is here. Source: Hodan et al., "BOP: Benchmark for 6D Object Pose Estimation", ECCV
    2018 (step), and "On Evaluation of 6D Object Pose Estimation", ECCVW 2016 (tlinear, visibility).

    Args:
        estimate: (h, w) depth of the object alone at the estimated pose, m along the optical axis,
            0 where it is not.
        truth: (h, w) the same at the true pose.
        scene: (h, w) measured depth, m, 0 where there is none.
        intrinsics: fx, fy, cx, cy, px.
        delta: m a surface may lie behind the measured one and count as visible (BOP: 0.015).
        taus: (t,) tolerances, m, or parts of the diameter where one is given (BOP: 0.05 to 0.5).
        diameter: m, to which distances are related; None leaves them in m.
        cost: "step" counts pixels at `tau` or further, "tlinear" counts them in part, as 1 from
            `tau` on.

    Returns:
        (t,) errors in [0, 1].

    Raises:
        InputError: pictures of different sizes, a tolerance or diameter that is not positive.
    """
    tau = np.atleast_1d(np.asarray(taus, np.float64))
    if not (estimate.shape == truth.shape == scene.shape and scene.ndim == 2):
        raise InputError(
            f"VSD: depth maps of the shapes {estimate.shape}, {truth.shape} and {scene.shape}; "
            "expected three (h, w) of one camera"
        )
    if not (tau > 0).all() or (diameter is not None and not diameter > 0):
        raise InputError(
            f"VSD: tolerances {tau.tolist()} and diameter {diameter}; expected positive values, "
            "tolerances as parts of the diameter where one is given"
        )
    rays = np.linalg.norm(camera.rays(intrinsics, scene.shape[1], scene.shape[0]), axis=2)
    ours, true, seen = (rays * np.asarray(d, np.float64) for d in (estimate, truth, scene))
    shows_truth = _visible(seen, true, delta)
    shows_ours = _visible(seen, ours, delta) | (shows_truth & (ours > 0))
    both = shows_truth & shows_ours
    either = int((shows_truth | shows_ours).sum())
    if either == 0:
        return np.ones(len(tau))
    off = np.abs(true[both] - ours[both]) / (1.0 if diameter is None else diameter)
    parts = off[:, None] >= tau if cost == "step" else np.minimum(off[:, None] / tau, 1.0)
    return np.asarray((parts.sum(axis=0) + (either - int(both.sum()))) / either)


def _visible(seen: Array, model: Array, delta: float) -> Mask:
    """Where (h, w) the model at distances `model` is not behind what is seen at `seen`, m."""
    behind = model.astype(np.float32) - seen.astype(np.float32)
    return np.asarray(((behind <= delta) | (seen == 0)) & (model > 0))
