"""Human hand keypoints: order, which hand, and the scale that makes fingertips meet the object.

Order of the 21 keypoints (MediaPipe, also used by MANO exports): wrist; then thumb, index, middle,
ring, little finger with four points each from the palm to the tip.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from twinloop.errors import InputError
from twinloop.geometry.sdf import SignedDistance

Array = NDArray[np.float64]
WRIST = 0
THUMB_TIP, INDEX_TIP, MIDDLE_TIP, RING_TIP, LITTLE_TIP = 4, 8, 12, 16, 20
PAD_DEPTH = 0.008
"""Distance of a human fingertip keypoint from the skin of its pad, m (half a finger)."""


def check_keypoints(time: Array, keypoints: Array, where: str) -> None:
    """Refuse keypoints that are not a hand in metres.

    Raises:
        InputError: wrong shape, values that are not finite, times that do not increase, or a hand
            whose
            size cannot be metres.
    """
    if keypoints.ndim != 3 or keypoints.shape[1:] != (21, 3) or len(keypoints) != len(time):
        raise InputError(
            f"{where}: keypoints of shape {keypoints.shape} for {len(time)} times; expected "
            "(frames, 21, 3) in MediaPipe order, one per time"
        )
    if len(time) < 3:
        raise InputError(f"{where}: {len(time)} frames; a demonstration needs at least 3")
    bad = ~np.isfinite(keypoints).all(axis=(1, 2))
    if bad.any() or not np.isfinite(time).all():
        frame = int(np.argmax(bad))
        raise InputError(f"{where}: keypoints of frame {frame} are not finite; remove that frame")
    if (np.diff(time) <= 0).any():
        frame = int(np.argmax(np.diff(time) <= 0)) + 1
        raise InputError(
            f"{where}: time of frame {frame} is {time[frame]} s, not after the one before"
        )
    length = float(np.median(np.linalg.norm(keypoints[:, 9] - keypoints[:, WRIST], axis=1)))
    if not 0.03 < length < 0.25:
        raise InputError(
            f"{where}: the palm (wrist to middle knuckle) measures {length:.4f} m; expected about "
            f"0.09 m. "
            "Keypoints must be in metres in the world frame"
        )


def scale_hand(keypoints: Array, scale: float) -> Array:
    """Hand (..., 21, 3) enlarged about its own wrist."""
    wrist = keypoints[..., WRIST : WRIST + 1, :]
    scaled: Array = wrist + scale * (keypoints - wrist)
    return scaled


def solve_scale(
    keypoints: Array,
    tips: list[int],
    surface: SignedDistance,
    frames: NDArray[np.int64],
    *,
    prior_sd: float = 0.15,
    sd: float = 0.004,
) -> float:
    """Scale of the hand such that its fingertips lie one pad depth off the object while grasping.

    A monocular hand estimate is known up to scale only; the object's metric size settles it.
    Minimises robust squared distances by search over the scale, with a weak prior at 1 because a
    scale that moves tips along the surface changes nothing.

    Args:
        keypoints: (frame, 21, 3) in the object frame, m.
        tips: keypoint indices of the fingertips that touch.
        surface: object surface in the object frame: its mesh, or a distance grid baked of it.
        frames: indices of frames in which the object is held.
        prior_sd: standard deviation of the log scale.
        sd: expected distance error of a tip, m.

    Returns:
        Scale in [0.6, 1.6]; 1 where there is no frame to learn from.
    """
    if len(frames) == 0:
        return 1.0
    chosen = keypoints[frames[:: max(1, len(frames) // 8)]]

    def cost(scale: float) -> float:
        points = scale_hand(chosen, scale)[:, tips].reshape(-1, 3)
        distance, _ = surface.signed_distance(points)
        error = (distance - PAD_DEPTH) / sd
        robust = np.minimum(error**2, 9.0).mean()
        return float(robust + (np.log(scale) / prior_sd) ** 2 / len(tips))

    low, high = 0.6, 1.6
    best = 1.0
    for _ in range(4):
        grid = np.linspace(low, high, 11)
        values = [cost(float(value)) for value in grid]
        index = int(np.argmin(values))
        best = float(grid[index])
        low, high = float(grid[max(index - 1, 0)]), float(grid[min(index + 1, 10)])
    return best


def grasp_frames(tip_distance: Array, moved: Array, reach: float) -> NDArray[np.int64]:
    """Frames in which the object is held.

    Where the object moves it is held, because nothing else moves it in a demonstration. If it never
    moves, the frames count in which thumb and at least one finger are close to it.

    Args:
        tip_distance: (frame, tip) distance of fingertips from the surface, thumb last, m.
        moved: (frame,) how far the object is from where it stood at first, m.
        reach: a tip nearer than this touches, m.
    """
    near = (tip_distance[:, -1] < reach) & (tip_distance[:, :-1].min(axis=1) < reach)
    carried = moved > 0.005
    held = near & carried
    if held.any():
        return np.flatnonzero(held)
    return np.flatnonzero(near)
