"""Binary segmentation by a minimum cut with our own log odds, solved by OpenCV's GrabCut.

``cv2.grabCut`` holds a fast max-flow solver, but wants colours and its own colour models.  Here the
log odds of a pixel are written into the first channel, with two frozen one-Gaussian models placed
so that the difference of their log densities is linear in that channel; the picture goes into the
other two, whose variance is so large that they steer only where the boundary snaps to.
"""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

LIMIT = 12.0
"""Log odds are clipped to plus or minus this."""
SMOOTHNESS = 50.0
"""GrabCut's own weight of a cut between equal neighbours (gamma in Rother et al. 2004)."""


def cut(
    log_odds: NDArray[np.float64],
    grey: NDArray[np.uint8],
    fixed: NDArray[np.bool_],
    smoothness: float,
) -> NDArray[np.bool_]:
    """Label pixels so that log odds are obeyed and the boundary is short and on picture edges.

    Args:
        log_odds: (y, x), positive where the object is likely, nats.
        grey: Picture (y, x) whose edges attract the boundary.
        fixed: (y, x), true where the pixel is background for certain.
        smoothness: Cost of cutting between two equal neighbours, nats.

    Returns:
        True on the object, (y, x).
    """
    coded = np.rint(127.5 * (1 + np.clip(log_odds, -LIMIT, LIMIT) / LIMIT)).astype(np.uint8)
    image = np.dstack([coded // 2, grey, grey])
    labels = np.where(coded > 127, cv2.GC_PR_FGD, cv2.GC_PR_BGD).astype(np.uint8)
    labels[fixed] = cv2.GC_BGD
    free = labels != cv2.GC_BGD
    if not free.any() or not (labels == cv2.GC_PR_FGD).any():
        return np.zeros(grey.shape, bool)
    # d log p = 127.5 (c - 63.75) / variance for models at 0 and 127.5 on the halved channel.
    scale = SMOOTHNESS / smoothness
    variance = 127.5 * 63.75 / (scale * LIMIT)
    background, foreground = _model(0.0, variance), _model(127.5, variance)
    cv2.grabCut(image, labels, None, background, foreground, 1, cv2.GC_EVAL_FREEZE_MODEL)
    return np.asarray((labels == cv2.GC_PR_FGD) | (labels == cv2.GC_FGD))


def _model(mean: float, variance: float) -> NDArray[np.float64]:
    """GrabCut's mixture of five Gaussians (weights, means, covariances), one of them used."""
    model = np.zeros((1, 65))
    model[0, 0] = 1.0
    model[0, 5:8] = mean, 127.5, 127.5
    covariance = np.diag([variance, 1e7, 1e7])
    model[0, 20:29] = covariance.ravel()
    return model
