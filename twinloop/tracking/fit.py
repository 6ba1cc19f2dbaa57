"""Fit a pose to one image by measuring and solving in turns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinloop.tracking.appearance import Reference
from twinloop.tracking.measure import NOTHING, Measurement, measure_view
from twinloop.tracking.model import ObjectModel
from twinloop.tracking.solver import (
    Contact,
    Correspondences,
    RestPrior,
    Solution,
    WorldCamera,
    solve_pose,
)

Array = NDArray[np.float64]
Image = NDArray[np.uint8]
Source = tuple[list[Reference], float]


@dataclass(frozen=True)
class Fit:
    """A solution (None when nothing could be measured) and the measurement behind it."""

    solution: Solution | None
    measured: Measurement

    @property
    def inliers(self) -> int:
        """Number of points that agree with the pose."""
        return 0 if self.solution is None else int(self.solution.inliers.sum())

    @property
    def ratio(self) -> float:
        """Inliers per point that was tried."""
        return self.inliers / max(self.measured.offered, 1)

    @property
    def seen(self) -> Correspondences:
        """The points that agree with the pose."""
        s, keep = self.measured.seen, None if self.solution is None else self.solution.inliers
        if keep is None:
            return Correspondences.join([])
        return Correspondences(s.points[keep], s.pixels[keep], s.sigma[keep])


def fit_pose(
    model: ObjectModel,
    camera: WorldCamera,
    image: Image,
    pose: Array,
    sources: list[Source],
    *,
    features: int,
    contact: Contact | None = None,
    rest: RestPrior | None = None,
    rounds: int = 1,
    round_trip: float = 1.0,
    ignore: NDArray[np.bool_] | None = None,
    correlated: float = 25.0,
) -> Fit:
    """Measure the object of `model` at `pose` against every source (references, sigma px), solve.

    `rounds` times, each from the pose that the last one found. image: (h, w) u1 undistorted.
    """
    fit = Fit(None, NOTHING)
    for _ in range(rounds):
        view = model.shape.view(camera, pose)
        if view is None:
            return fit
        parts = [
            measure_view(
                image,
                camera,
                model.shape,
                pose,
                view,
                references,
                sigma=sigma,
                count=features,
                round_trip=round_trip,
                ignore=ignore,
            )
            for references, sigma in sources
        ]
        measured = Measurement(
            Correspondences.join([p.seen for p in parts]),
            sum(p.offered for p in parts),
            max(p.score for p in parts),
        )
        if len(measured.seen.points) < 6:
            return Fit(None, measured)
        fit = Fit(
            solve_pose(
                camera, pose, measured.seen, contact=contact, rest=rest, correlated=correlated
            ),
            measured,
        )
        assert fit.solution is not None
        pose = fit.solution.pose
    return fit
