"""Of the poses that look the same, the one that belongs to what came before."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from twinloop.geometry import se3
from twinloop.geometry.symmetry import Symmetry, nearest_equivalent
from twinloop.tracking.solver import Solution

Array = NDArray[np.float64]


def alike(solution: Solution, reference: Array, symmetry: Symmetry) -> Solution:
    """The solution at the equivalent of its pose that is turned least against a pose (4, 4)."""
    if symmetry.none:
        return solution
    pose = nearest_equivalent(solution.pose, reference, symmetry)
    # The object's origin is elsewhere by now; it moves by d + w x (its way).
    J, back = np.eye(6), np.eye(6)
    J[:3, 3:] = -se3.skew(pose[:3, 3] - solution.pose[:3, 3])
    back[:3, 3:] = -J[:3, 3:]
    return replace(
        solution,
        pose=pose,
        covariance=J @ solution.covariance @ J.T,
        information=back.T @ solution.information @ back,
    )
