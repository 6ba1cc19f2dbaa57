"""How a tracker goes about it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Settings:
    """How to track; lengths in m, angles in rad, times in s, image lengths in px.

    features, sigma_live, sigma_scan, correlated: points of texture; edges, edges_with_points: lines
    that carry all that the outline tells, alone and beside points; contact_*, rest_*: the table;
    floor_*: errors that no averaging removes (range: as a part of the distance); prior_speed,
    prior_turn: m/s and rad/s by which a motion may differ from the last one; unseen_*: the same of
    an object that nothing sees; fastest, fastest_turn: m/s, rad/s that no pushed object exceeds;
    photometric: whether the twin's picture has the last word, pixel by pixel, where texture is
    followed; least_*: below them a pose is not believed; good_quality, largest_sigma and
    usual_merit (share of that of former frames): what `ok` asks for; learning: share of a frame's
    colours taken over.
    """

    features: int = 80
    sigma_live: float = 0.5
    sigma_scan: float = 0.8
    correlated: float = 25.0
    photometric: bool = True
    edges: float = 60.0
    edges_with_points: float = 8.0
    contact_sigma: float = 0.0004
    contact_cutoff: float = 0.006
    rest_tilt: float = 0.01
    rest_cutoff: float = 0.08
    floor_position: float = 0.0001
    floor_rotation: float = 0.0008
    floor_range: float = 0.0006
    time_sigma: float = 0.001
    prior_speed: float = 0.6
    prior_turn: float = 12.0
    fastest: float = 1.5
    fastest_turn: float = 20.0
    unseen_speed: float = 0.08
    unseen_turn: float = 1.5
    minimum_inliers: int = 8
    least_quality: float = 0.35
    good_quality: float = 0.55
    least_visible: float = 0.25
    usual_merit: float = 0.88
    largest_sigma: float = 0.005
    learning: float = 0.05
    keyframe_angle: float = 0.2
    maximum_keyframes: int = 12
    recover_every: int = 3
    check_every: int = 3

    def prior(self, velocity: Array, dt: float, lost: int) -> Array:
        """Covariance (6, 6) of the prediction `dt` s ahead; wider the longer nothing was seen."""
        dt = min(max(dt, 1 / 240), 0.5) * (1 + lost)
        speed = self.prior_speed + 0.5 * float(np.linalg.norm(velocity[:3]))
        turn = self.prior_turn + 0.5 * float(np.linalg.norm(velocity[3:]))
        return np.diag([(speed * dt) ** 2] * 3 + [(turn * dt) ** 2] * 3)
