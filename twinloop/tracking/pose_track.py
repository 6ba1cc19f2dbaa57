"""Object poses through a clip, however they were found."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
OK, UNCERTAIN, LOST = 0, 1, 2


@dataclass(frozen=True)
class PoseTrack:
    """The object through a clip of n frames.

    time: (n,) s, camera clock, increasing; pose: (n, 4, 4) T_world_object; covariance: (n, 6, 6) of
    a left perturbation in world axes (m, rad; see solver); status: (n,) 0 ok, 1 uncertain, 2 lost
    (the pose of a lost frame is a guess whose covariance says so); velocity: (n, 6) m/s of the
    object's origin and rad/s, world axes; velocity_covariance: (n, 6, 6).
    """

    time: Array
    pose: Array
    covariance: Array
    status: NDArray[np.int8]
    velocity: Array
    velocity_covariance: Array

    @property
    def lost(self) -> list[tuple[float, float]]:
        """Intervals in which the object was lost; see lost_intervals."""
        return lost_intervals(self.time, self.status)


def lost_intervals(time: Array, status: NDArray[np.integer]) -> list[tuple[float, float]]:
    """First and last time, s, of every run of lost frames.

    Args:
        time: (n,) s.
        status: (n,) 0 ok, 1 uncertain, 2 lost.
    """
    lost = np.concatenate([[False], np.asarray(status) == LOST, [False]]).astype(np.int8)
    change = np.diff(lost)
    first, after = np.flatnonzero(change == 1), np.flatnonzero(change == -1)
    return [(float(time[i]), float(time[j - 1])) for i, j in zip(first, after, strict=True)]
