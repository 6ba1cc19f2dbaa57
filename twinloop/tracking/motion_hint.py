"""How far an object moves in the picture from frame to frame, and what to do when that is too far.

A tracker looks for the object about where it expects it. What moves further than that from one
frame to the next is found again only later, or not at all, and the cure is a higher frame rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinloop.tracking.pose_track import LOST, OK, PoseTrack, lost_intervals
from twinloop.tracking.solver import WorldCamera, project

Array = NDArray[np.float64]

REACH = 18.0
"""Pixels that an object may jump from one frame to the next and be followed for certain: of drawn
boxes, 100 px large, plain ones were lost from 21 px on and printed ones from 29."""
MOVING = 1.0
"""Pixels from frame to frame from which on an object counts as moving."""
RATES = (30, 60, 90, 120, 240, 480, 960)
"""Frames per second that cameras offer."""
LISTED = 4
"""Intervals that a note lists."""


@dataclass(frozen=True)
class PixelMotion:
    """How far the object moves in the picture from frame to frame, px.

    median: of the frames in which it moves (more than 1 px), 0 when there are none; p95: 95 % of
    all steps are shorter; most: the longest; rate: frames per second, 0 when that is not known.
    Only frames that are ok count. Where others lie between, it is the way straight on, evenly
    spread: a lower bound.
    """

    median: float
    p95: float
    most: float
    rate: float


def pixel_motion(poses: PoseTrack, camera: WorldCamera, points: Array) -> PixelMotion | None:
    """The motion of `points` (p, 3) m, object frame, in a camera that stands still.

    None when fewer than two frames are ok.
    """
    sure = np.flatnonzero(poses.status == OK)
    ways = np.diff(poses.time)
    if len(sure) < 2 or not (ways > 0).any():
        return None
    step = float(np.median(ways[ways > 0]))
    points = points[:: max(1, len(points) // 32)]
    seen = np.array([project(camera, poses.pose[i], points)[0] for i in sure])
    way = np.linalg.norm(np.diff(seen, axis=0), axis=2).mean(axis=1)
    frames = np.maximum(np.rint(np.diff(poses.time[sure]) / step), 1.0)
    per_frame = np.repeat(way / frames, frames.astype(int))
    moving = per_frame[per_frame > MOVING]
    return PixelMotion(
        median=float(np.median(moving)) if len(moving) else 0.0,
        p95=float(np.percentile(per_frame, 95)),
        most=float(per_frame.max()),
        rate=1.0 / step,
    )


def suggested_rate(motion: PixelMotion, reach: float = REACH) -> int:
    """The lowest usual frame rate at which the longest step is within reach; 0 when all are.

    The highest usual one when none is enough.
    """
    if motion.most <= reach:
        return 0
    needed = motion.rate * motion.most / reach
    return next((rate for rate in RATES if rate >= needed), RATES[-1])


def motion_note(motion: PixelMotion | None, reach: float = REACH) -> str:
    """What a person should know of a motion that is too fast for the film, "" when none is.

    reach: px of `motion` that are followed for certain.
    """
    if motion is None or motion.most <= reach:
        return ""
    return (
        f"the object moves up to {motion.most:.0f} px from frame to frame (median of its motion "
        f"{motion.median:.0f} px, 95 % of all frames below {motion.p95:.0f} px); up to about "
        f"{reach:.0f} px are followed for certain. Film with {suggested_rate(motion, reach)} "
        f"frames per second or more (this clip has {motion.rate:.0f}), or move it more slowly."
    )


def lost_note(time: Array, status: NDArray[np.integer], reach: float = REACH) -> str:
    """When the object was lost after it was first seen, "" when it never was.

    Args:
        time: (n,) s.
        status: (n,) 0 ok, 1 uncertain, 2 lost.
        reach: px from frame to frame that are followed for certain.
    """
    found = np.flatnonzero(np.asarray(status) != LOST)
    if len(found) == 0:
        return ""
    spans = [s for s in lost_intervals(time, status) if s[0] > time[found[0]]]
    if not spans:
        return ""
    said = f"the object was lost {_listed(spans, float(time[-1]))}: those poses are guesses."
    if spans[-1][1] == time[-1]:
        said += (
            " At the end it was not found again. Was it hidden, out of the picture, or did it move "
            f"by more than about {reach:.0f} px from frame to frame? Then more frames per second, "
            "or a slower motion, help."
        )
    return said


def _listed(spans: Sequence[tuple[float, float]], last: float) -> str:
    """The intervals in words."""
    words = []
    for first, end in spans[:LISTED]:
        until = "the end" if end == last else f"{end:.2f} s"
        words.append(
            f"at {first:.2f} s" if first == end < last else f"from {first:.2f} s to {until}"
        )
    if len(spans) > LISTED:
        words.append(f"{len(spans) - LISTED} times more")
    return ", ".join(words)
