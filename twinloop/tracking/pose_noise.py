"""What a stream of poses says of its own faults: white noise, rounding, jumps, repetitions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import median_filter

from twinloop.tracking.solver import rotation_log

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

WINDOW = 101
"""Frames over which noise is taken to be the same."""
FEWEST = 12
"""Fewest residuals from which noise is estimated."""
PRIOR = np.array([5e-3] * 3 + [0.035] * 3)
"""Deviation where a stream is too short to tell: 5 mm and 2 deg."""
FLOOR = np.array([1e-5] * 3 + [1e-4] * 3)
"""Least deviation, m and rad: no tracker is better, and smoothing needs numbers it can invert."""
FASTEST = (3.0, 40.0)
"""Fastest motion that is believed, m/s and rad/s."""
LEAST_JUMP = (5e-3, 0.07)
"""Smaller deviations from the neighbours are no jumps, m and rad."""
UNLIKELY = 8.0
"""Robust deviations from the neighbours' median at which a pose is a jump."""
LEAST_NOISE = 2e-5
"""Noise below which a pose may well repeat itself to the last digit, m."""


def quantum(poses: Array) -> float:
    """The last digit of positions in `poses` (n, 4, 4), m; 0 where there is none to be seen."""
    values = poses[:, :3, 3]
    for digits in range(1, 9):
        scaled = values * 10.0**digits
        if np.abs(scaled - np.rint(scaled)).max(initial=0.0) < 1e-4:
            return float(10.0**-digits)
    return 0.0


def residuals(time: Array, poses: Array, usable: Mask) -> tuple[Array, NDArray[np.int64]]:
    """What four successive poses differ by from a motion of constant acceleration.

    A combination of four samples that vanishes for parabolas (the third divided difference,
    scaled to unit length) has the variance of one sample's white noise, whatever the motion.
    Rotations are compared as rotation vectors about the second sample's.

    Args:
        time: (n,) s.
        poses: (n, 4, 4).
        usable: (n,) frames to trust; others, and gaps of over three usual periods, part the clip.

    Returns:
        Residuals (m, 6) in m and rad, world axes, and the frame (m,) of each.
    """
    index = np.flatnonzero(usable)
    if len(index) < 4:
        return np.zeros((0, 6)), np.zeros(0, np.int64)
    four = np.stack([index[k : len(index) - 3 + k] for k in range(4)], axis=1)
    t = time[four]
    period = float(np.median(np.diff(time)))
    four = four[np.diff(t, axis=1).max(axis=1) < 3.5 * period]
    t = time[four]
    apart = t[:, :, None] - t[:, None, :] + np.eye(4)
    weight = 1.0 / apart.prod(axis=2)
    weight /= np.linalg.norm(weight, axis=1, keepdims=True)
    position = np.einsum("mk,mki->mi", weight, poses[four, :3, 3] - poses[four[:, 1], None, :3, 3])
    turn = poses[four, :3, :3] @ np.swapaxes(poses[four[:, 1], :3, :3], 1, 2)[:, None]
    rotation = np.einsum("mk,mki->mi", weight, rotation_log(turn))
    return np.concatenate([position, rotation], axis=1), four[:, 1]


def pose_noise(time: Array, poses: Array, usable: Mask, axes: Array, last_digit: float) -> Array:
    """Covariance (n, 6, 6) of white noise in a stream of poses, estimated from the stream.

    From the median size of :func:`residuals` over WINDOW frames, each along the source's axes, for
    position and rotation apart: robust against impacts, for which half of the residuals would have
    to be wrong. What all frames share (calibration, the model) does not show, nor does what
    changes slowly. Never below the rounding of the file, or FLOOR.

    Args:
        time: (n,) s.
        poses: (n, 4, 4) T_world_object.
        usable: (n,) frames to learn from.
        axes: (n, 3, 3) from the source's axes to the world's.
        last_digit: m, rounding of the positions.
    """
    found, frame = residuals(time, poses, usable)
    if len(found) < FEWEST:
        sigma = np.tile(PRIOR, (len(time), 1))
    else:
        along = np.swapaxes(axes[frame], 1, 2)
        own = np.concatenate(
            [
                np.einsum("mij,mj->mi", along, found[:, :3]),
                np.einsum("mij,mj->mi", along, found[:, 3:]),
            ],
            axis=1,
        )
        size = np.abs(own)
        if len(size) > WINDOW:
            middle = median_filter(size, size=(WINDOW, 1), mode="reflect")
        else:
            middle = np.broadcast_to(np.median(size, axis=0), size.shape)
        nearest = np.clip(np.searchsorted(frame, np.arange(len(time))), 0, len(frame) - 1)
        sigma = middle[nearest] / 0.6745
    # Digits of a rotation matrix are cut where those of the position are.
    rounding = np.array([last_digit] * 3 + [min(last_digit, 1e-3)] * 3) / np.sqrt(12)
    sigma = np.maximum(sigma, np.maximum(rounding, FLOOR))
    covariance = np.zeros((len(time), 6, 6))
    for part in (slice(0, 3), slice(3, 6)):
        covariance[:, part, part] = np.einsum("nij,nj,nkj->nik", axes, sigma[:, part] ** 2, axes)
    return covariance


def repeats(time: Array, poses: Array, raw: Array, known: Mask) -> tuple[Mask, Mask]:
    """Frames (n,) in which a tracker was stuck, and single frames (n,) that repeat the one before.

    An object that rests gives a noise-free tracker the same pose again and again. Repetition is a
    fault where the stream is noisy elsewhere, or where it goes on with a leap.

    Args:
        time: (n,) s.
        poses: (n, 4, 4) m, world.
        raw: (n, 4, 4) in the source's own frame.
        known: (n,).
    """
    same = np.zeros(len(time), np.bool_)
    same[1:] = known[1:] & known[:-1] & (raw[1:] == raw[:-1]).all(axis=(1, 2))
    stuck, copied = np.zeros_like(same), np.zeros_like(same)
    if not same.any():
        return stuck, copied
    found, _ = residuals(time, poses, known & ~same)
    noise = 0.0
    if len(found) >= FEWEST:
        noise = float(np.median(np.linalg.norm(found[:, :3], axis=1)))
    noisy = noise > max(LEAST_NOISE, 2 * quantum(raw[known]))
    edges = np.flatnonzero(np.diff(np.concatenate([[0], same.astype(np.int8), [0]])))
    for a, b in edges.reshape(-1, 2).tolist():
        leap = False
        if b + 1 < len(time) and known[b : b + 2].all():
            first = float(np.linalg.norm(poses[b, :3, 3] - poses[b - 1, :3, 3]))
            after = float(np.linalg.norm(poses[b + 1, :3, 3] - poses[b, :3, 3]))
            leap = first > max(2e-3, 1.6 * after)
        if noisy or leap:
            (copied if b - a == 1 else stuck)[a:b] = True
    return stuck, copied


def jumps(time: Array, poses: Array, usable: Mask) -> tuple[Mask, Mask, Array]:
    """Frames that leave the motion and come back, frames beside a jump for good, and its size.

    Args:
        time: (n,) s.
        poses: (n, 4, 4).
        usable: (n,) frames to look at.

    Returns:
        out (n,): the pose is not that of the motion before and after; edge (n,): beside a step
        faster than FASTEST after which the motion goes on elsewhere; size (n, 2): m and rad of
        that step.
    """
    n = len(time)
    out, edge, size = np.zeros(n, np.bool_), np.zeros(n, np.bool_), np.zeros((n, 2))
    index = np.flatnonzero(usable)
    if len(index) < 3:
        return out, edge, size
    lonely = _off_median(poses[index])
    out[index[lonely]] = True
    index = index[~lonely]
    between = np.diff(time[index])
    steps = np.stack(apart(poses[index[:-1]], poses[index[1:]]), axis=1)
    # Over a gap an object may have gone far, but not farther than the fastest goes.
    fast = np.flatnonzero((steps > np.array(FASTEST) * between[:, None] + LEAST_JUMP).any(axis=1))
    k = 0
    while k < len(fast):
        a = int(fast[k])
        if k + 1 < len(fast):
            b = int(fast[k + 1])
            back = np.array(apart(poses[index[a]], poses[index[b + 1]]))
            gone = np.array(FASTEST) * (time[index[b + 1]] - time[index[a]])
            limit = np.minimum(gone, 0.5 * steps[a]) + LEAST_JUMP
            if (back < limit).all() and 2 * (b - a) < len(index):
                out[index[a + 1 : b + 1]] = True
                k += 2
                continue
        edge[index[a : a + 2]] = True
        size[index[a : a + 2]] = 0.5 * steps[a]
        k += 1
    return out, edge, size


def apart(first: Array, second: Array) -> tuple[Array, Array]:
    """Distance (...,) m and angle (...,) rad between poses (..., 4, 4)."""
    turn = second[..., :3, :3] @ np.swapaxes(first[..., :3, :3], -1, -2)
    distance = np.linalg.norm(second[..., :3, 3] - first[..., :3, 3], axis=-1)
    return np.asarray(distance), np.asarray(np.linalg.norm(rotation_log(turn), axis=-1))


def _off_median(poses: Array) -> Mask:
    """Which poses (n,) are far off the median of the five about them, and alone in that.

    A steady motion passes through that median, whatever its speed.
    """
    n = len(poses)
    off = np.zeros(n, np.bool_)
    if n < 7:
        return off
    about = np.arange(2, n - 2)[:, None] + np.arange(-2, 3)
    here = poses[2 : n - 2]
    position = np.median(poses[about, :3, 3] - here[:, None, :3, 3], axis=1)
    turn = poses[about, :3, :3] @ np.swapaxes(here[:, :3, :3], 1, 2)[:, None]
    rotation = np.median(rotation_log(turn), axis=1)
    for part, least in ((position, LEAST_JUMP[0]), (rotation, LEAST_JUMP[1])):
        length = np.linalg.norm(part, axis=1)
        usual = 1.4826 * float(np.median(length))
        off[2 : n - 2] |= length > max(least, UNLIKELY * usual)
    return off
