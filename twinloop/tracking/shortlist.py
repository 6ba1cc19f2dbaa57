"""Which of many starts are worth a fit: most are turned down at a glance.

A fit costs as much as a whole frame. A start that is all hidden, that slides into a pose already
found, or whose silhouette has the wrong colours afterwards cannot end up as the best one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from twinloop.geometry.symmetry import nearest_equivalent
from twinloop.tracking.fitter import Fitter
from twinloop.tracking.frame import Frame
from twinloop.tracking.priors import motion
from twinloop.tracking.sight import Glance, glance

Array = NDArray[np.float64]

TURN, SHIFT = 0.06, 0.03
"""Poses nearer to each other (rad; part of the diameter) lead to the same fit."""
LEAST = 0.35
"""A silhouette must score this part of what it did at the start, for no fit mends more."""
MOST = 6
"""Starts that are fitted, the best ones first."""


def shortlist(
    fitter: Fitter, frame: Frame, starts: Sequence[Array], found: Sequence[Array]
) -> list[Array]:
    """Those of `starts` (4, 4) that deserve a fit, moved to the outline, the likeliest first.

    `found` are poses that were fitted already.
    """
    kept: list[tuple[float, Array]] = []
    for start in starts:
        first = best_glance(fitter, frame, start)
        if first is not None and first.visible < fitter.settings.least_visible:
            continue
        pose = fitter.coarse(frame, start)
        if pose is None or any(same(fitter, pose, other) for other in found):
            continue
        if any(same(fitter, pose, other) for _, other in kept):
            continue
        then = best_glance(fitter, frame, pose)
        score = 1.0 if then is None else then.score
        usual = max(max(eye.score for eye in fitter.eyes), 0.15)
        if score > LEAST * usual:
            kept.append((score, pose))
    kept.sort(key=lambda k: -k[0])
    return [pose for _, pose in kept[:MOST]]


def best_glance(fitter: Fitter, frame: Frame, pose: Array) -> Glance | None:
    """The glance of the camera that sees most; None when none tells anything."""
    glances = [
        glance(fitter.model, camera, pose, eye)
        for eye, camera in zip(fitter.eyes, frame.cameras, strict=True)
    ]
    return max((g for g in glances if g is not None), key=lambda g: g.visible, default=None)


def same(fitter: Fitter, first: Array, second: Array) -> bool:
    """Whether a fit from the one pose leads where a fit from the other does."""
    step = motion(first, nearest_equivalent(second, first, fitter.symmetry))
    diameter = fitter.model.shape.diameter
    return bool(np.linalg.norm(step[:3]) < SHIFT * diameter and np.linalg.norm(step[3:]) < TURN)
