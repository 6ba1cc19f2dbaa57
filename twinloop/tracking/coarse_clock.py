"""The offset between camera and robot clock to about a frame, before any object pose is known.

Where the robot's silhouette changes, the picture changes.  The joints tell the silhouette at any
time of the robot's clock, frames tell where the picture changed at times of the camera's: the right
offset lays one onto the other, in place as well as in time.  Place makes the peak sharp even while
the speed is constant, and keeps apart what else moves (the object, a hand).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from twinloop.tracking.robot_mask import JointMotion, RobotMask
from twinloop.tracking.solver import WorldCamera

Array = NDArray[np.float64]
Image = NDArray[np.uint8]

BLOCK = 4
"""Edge of a block in which change is summed, px of the reduced picture."""
WIDTH = 160
"""Width that pictures are reduced to, px."""
STEP = 1 / 240
"""Distance of the offsets that are tried, s."""
SLIGHT = 1e-4
"""Motion of a joint (m or rad) that the reduced picture does not show: encoders have noise."""
LEAST_PAIRS = 8
"""Fewest frames with robot motion from which an offset is told."""
MOST_PAIRS = 600
"""Most frames that are compared: those of a long clip in which most changes."""
LEAST_SCORE = 0.3
"""Least likeness (cosine) of seen and expected change at the best offset: 0.66 to 0.83 on pushes of
the lab, at most 0.39 with another push's log."""
CLEARANCE = 0.7
"""Another peak may be this high, by the best; higher, and the offset is ambiguous. 0.45 at most on
pushes of the lab, 0.72 and more with another push's log."""
PARTS = 8
"""Parts of the clip that are left out in turn, for the uncertainty."""


@dataclass(frozen=True)
class CoarseOffset:
    """robot_time = frame_time + value, s.

    std: s, from leaving out parts of the clip, never below a tenth of a frame; score: cosine of
    seen and expected change, 0 to 1; rival: score of the best other peak.
    """

    value: float
    std: float
    score: float
    rival: float


def coarse_offset(
    frames: Iterable[tuple[float, Image]],
    camera: WorldCamera,
    robot: RobotMask,
    joints: JointMotion,
    *,
    largest: float = 2.0,
    centre: float = 0.0,
) -> CoarseOffset | None:
    """Find the clock offset of one clip from a static camera.

    Args:
        frames: Time (s, camera clock, increasing) and undistorted grey picture (h, w) of each frame
            in turn.  Repeated and dropped frames are allowed.
        camera: Where the camera stands.
        robot: The robot's shapes.
        joints: Its motion, robot clock.
        largest: The offset is sought within +- this of `centre`, s.
        centre: s, about what offset: the difference of the epochs, where clip and log share none.

    Returns:
        The offset, or None where there is no evident peak: too few frames in which the robot moves
        in view, nothing alike, two offsets that explain the pictures alike, or parts of the clip
        that contradict each other by more than a frame.
    """
    small = _reduced(camera)
    times, change = _seen_change(frames, small)
    if len(times) < LEAST_PAIRS:
        return None
    span = np.diff(times, axis=1)[:, 0]
    period = float(np.median(span))
    # Pairs across a gap, or of a frame and its repetition, do not tell the change of one period.
    usual = np.abs(span - period) < 0.3 * period
    middle = times.mean(axis=1)[usual]
    change = change[usual]
    if len(middle) < LEAST_PAIRS:
        return None
    busiest = _busiest(change)
    middle, change = middle[busiest], change[busiest]
    low = max(middle[0] + centre - largest, joints.time[0])
    high = min(middle[-1] + centre + largest, joints.time[-1])
    if high - low < LEAST_PAIRS * period:
        return None
    grid = np.arange(low, high, STEP)
    expected = _expected_change(grid, period, small, robot, joints)
    lags = centre + np.arange(-largest, largest + STEP / 2, STEP)
    index = np.rint((middle[:, None] + lags - low) / STEP).astype(np.int64)
    valid = (index >= 0) & (index < len(grid))
    index = np.clip(index, 0, len(grid) - 1)
    product = (change @ expected.T)[np.arange(len(middle))[:, None], index] * valid
    energy = (expected**2).sum(axis=1)[index] * valid
    seen = (change**2).sum(axis=1)[:, None] * valid
    moving = energy > 1e-6 * max(float(energy.max()), 1e-12)
    every = np.ones(len(middle), np.bool_)
    score = _scores(product, energy, seen, moving, every)
    if not np.isfinite(score).any():
        return None
    best = int(np.argmax(score))
    rival = _rival(score, best, max(round(2.5 * period / STEP), 3))
    if score[best] < LEAST_SCORE or rival > CLEARANCE * score[best]:
        return None
    part = np.arange(len(middle)) * PARTS // len(middle)
    near = slice(max(best - round(6 * period / STEP), 0), best + round(6 * period / STEP) + 1)
    without = [
        _peak(_scores(product, energy, seen, moving, part != k)[near], lags[near])
        for k in range(PARTS)
    ]
    spread = np.sqrt((PARTS - 1) * np.var(without))  # the jackknife's variance
    std = float(max(spread, 0.1 * period))
    if std > period:
        return None  # parts of the clip contradict each other: this is another push's log
    return CoarseOffset(_peak(score[near], lags[near]), std, float(score[best]), rival)


def _reduced(camera: WorldCamera) -> WorldCamera:
    """The camera of pictures reduced to WIDTH columns, of whole blocks."""
    width = WIDTH
    height = max(round(camera.height * WIDTH / camera.width / BLOCK), 1) * BLOCK
    scale = np.array([width / camera.width, height / camera.height])
    fx, fy, cx, cy = camera.intrinsics
    # A pixel's centre is at integers: the picture's corner, at -0.5, is what stays.
    centre = (np.array([cx, cy]) + 0.5) * scale - 0.5
    return WorldCamera(
        np.array([fx * scale[0], fy * scale[1], *centre]), camera.T_camera_world, width, height
    )


def _seen_change(
    frames: Iterable[tuple[float, Image]], small: WorldCamera
) -> tuple[Array, NDArray[np.float32]]:
    """Times (n, 2) s of frames and their predecessors, and change (n, blocks) between them.

    Change is what exceeds noise, after the exposure has been made alike; the square root keeps one
    bright edge from outweighing the rest.
    """
    times: list[tuple[float, float]] = []
    changes: list[NDArray[np.float32]] = []
    last: tuple[float, NDArray[np.float32]] | None = None
    for time, image in frames:
        reduced = cv2.resize(image, (small.width, small.height), interpolation=cv2.INTER_AREA)
        now = np.asarray(reduced, np.float32)
        if last is not None and time > last[0]:
            before = last[1]
            gain = float(np.median(now[::3, ::3] / np.maximum(before[::3, ::3], 1.0)))
            difference = np.abs(now - gain * before)
            noise = float(np.median(difference)) / 0.6745
            excess = np.sqrt(np.maximum(difference - 4 * noise - 1.0, 0.0))
            times.append((last[0], time))
            changes.append(_blocks(excess))
        last = (time, now)
    if not changes:
        return np.zeros((0, 2)), np.zeros((0, 0), np.float32)
    return np.array(times), np.stack(changes)


def _busiest(change: NDArray[np.float32]) -> slice:
    """The stretch of at most MOST_PAIRS frames in which most changes."""
    total = np.cumsum(np.concatenate([[0.0], change.sum(axis=1)]))
    if len(change) <= MOST_PAIRS:
        return slice(0, len(change))
    start = int(np.argmax(total[MOST_PAIRS:] - total[:-MOST_PAIRS]))
    return slice(start, start + MOST_PAIRS)


def _blocks(picture: NDArray[np.float32]) -> NDArray[np.float32]:
    """Sums (blocks,) over blocks of a picture (h, w)."""
    h, w = picture.shape
    blocks = picture.reshape(h // BLOCK, BLOCK, w // BLOCK, BLOCK).sum(axis=(1, 3))
    return np.asarray(blocks, np.float32).reshape(-1)


def _expected_change(
    grid: Array, period: float, small: WorldCamera, robot: RobotMask, joints: JointMotion
) -> NDArray[np.float32]:
    """Change (n, blocks) of the silhouette over the `period` s about each time of `grid`."""
    span = max(round(period / STEP), 1)
    first = grid[0] - span * STEP / 2
    masks: deque[NDArray[np.float32]] = deque(maxlen=span + 1)
    out: list[NDArray[np.float32]] = []
    last: Array | None = None
    for k in range(len(grid) + span):
        q = joints.at(float(first + k * STEP))
        if last is None or np.abs(q - last).max() > SLIGHT:
            drawn = robot.mask(small, q, margin=0.0).astype(np.float32)
            last = q
        masks.append(drawn)
        if k >= span:
            out.append(_blocks(np.abs(masks[-1] - masks[0])))
    return np.stack(out)


def _scores(
    product: Array, energy: Array, seen: Array, moving: NDArray[np.bool_], used: NDArray[np.bool_]
) -> Array:
    """Cosine of seen and expected change at each offset (lag,), -inf where too little moves."""
    count = moving[used].sum(axis=0)
    norm = np.sqrt(energy[used].sum(axis=0) * seen[used].sum(axis=0))
    score = product[used].sum(axis=0) / np.maximum(norm, 1e-12)
    return np.where((count >= LEAST_PAIRS) & (norm > 0), score, -np.inf)


def _rival(score: Array, best: int, reach: int) -> float:
    """The highest local maximum farther than `reach` offsets from the best one."""
    finite = np.where(np.isfinite(score), score, 0.0)
    inner = np.arange(1, len(finite) - 1)
    tops = inner[(finite[1:-1] >= finite[:-2]) & (finite[1:-1] >= finite[2:])]
    tops = tops[np.abs(tops - best) > reach]
    return float(finite[tops].max(initial=0.0))


def _peak(score: Array, lags: Array) -> float:
    """The place (s) of the highest score, by the parabola through it and its neighbours."""
    top = int(np.argmax(score))
    if not 0 < top < len(score) - 1 or not np.isfinite(score[top - 1 : top + 2]).all():
        return float(lags[top])
    before, here, after = score[top - 1 : top + 2]
    bend = before - 2 * here + after
    shift = 0.0 if bend >= 0 else 0.5 * (before - after) / bend
    return float(lags[top] + shift * (lags[1] - lags[0]))
