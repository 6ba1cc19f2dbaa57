"""Finding the object again: other poses about the last one, and those its texture tells.

Full occlusion is where trackers go wrong silently: the object comes out turned, its outline nearly
fits, and nothing says so. So every start is solved and all are compared; a rival that explains the
frame as well makes the result uncertain until a frame decides.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from twinloop.geometry.symmetry import Symmetry, nearest_equivalent
from twinloop.tracking.feature_map import localise
from twinloop.tracking.fitter import Attempt, Fitter
from twinloop.tracking.frame import Frame
from twinloop.tracking.solver import rotation_exp, rotation_log
from twinloop.tracking.state import State

Array = NDArray[np.float64]

YAWS = (0.0, 0.25, -0.25, 0.5, -0.5, 0.9, -0.9, 1.4, -1.4)
"""Turns about the table's normal that an unseen push may have made, rad."""
SHIFTS = ((0.0, 0.0), (0.015, 0.0), (-0.015, 0.0), (0.0, 0.015), (0.0, -0.015))
SURE = 15
"""Features that must agree on a pose far away from where the object was."""
MARGIN = 0.05
"""Merit by which the best pose must beat another one to be the only one."""


def nearby(pose: Array, middle: Array, up: Array) -> list[Array]:
    """Poses turned about `up` (3,) through the object's middle (3,), and moved across it."""
    out = []
    across = np.linalg.svd(up[None])[2][1:]
    for yaw in YAWS:
        for shift in SHIFTS if yaw == 0.0 else SHIFTS[:1]:
            turn = rotation_exp(up * yaw)
            other = pose.copy()
            other[:3, :3] = turn @ pose[:3, :3]
            other[:3, 3] = middle + turn @ (pose[:3, 3] - middle) + shift @ across
            out.append(other)
    return out


def recover(
    fitter: Fitter, state: State, frame: Frame, best: Attempt | None, unseen: float
) -> Attempt | None:
    """The best of `best` and what other starts give; `state` becomes doubtful if two tie.

    `unseen` s is how long the object may have moved; a pose farther than it can have come counts
    only when its texture found it.
    """
    model, modes = fitter.model, fitter.modes
    found: list[Attempt] = [] if best is None else [best]
    camera = frame.cameras[0].camera

    def consider(pose: Array | None, round_trip: float = 1.0, far: bool = False) -> None:
        attempt = None if pose is None else fitter.attempt(frame, pose, round_trip=round_trip)
        if attempt is not None and (far or fitter.plausible(state.pose, attempt.pose, unseen)):
            found.append(attempt)

    if modes.texture:
        window = (0, 0, camera.width, camera.height)
        place = localise(
            model.features, frame.cameras[0].grey, camera, window, model.shape.diameter
        )
        if place is not None:
            consider(place.pose, 2.0, far=place.inliers >= SURE)
    if modes.region or modes.depth:
        up = np.array([0.0, 0.0, 1.0]) if modes.plane else -camera.T_camera_world[2, :3]
        hull = model.shape.hull
        middle = state.pose[:3, :3] @ (0.5 * (hull.min(0) + hull.max(0))) + state.pose[:3, 3]
        for pose in nearby(state.pose, middle, up):
            consider(fitter.coarse(frame, pose))
    if not found:
        return None
    found.sort(key=lambda a: -a.merit)
    first = found[0]
    if fitter.trusted(first):
        state.doubtful = any(
            a.merit > first.merit - MARGIN
            and differs(first.pose, a.pose, model.shape.diameter, fitter.symmetry)
            for a in found[1:]
        )
    return first


def differs(first: Array, second: Array, diameter: float, symmetry: Symmetry) -> bool:
    """Whether two poses are not the same one found twice, but for the object's symmetry."""
    second = nearest_equivalent(second, first, symmetry)
    turn = float(np.linalg.norm(rotation_log(first[:3, :3] @ second[:3, :3].T)))
    return bool(turn > 0.12 or np.linalg.norm(first[:3, 3] - second[:3, 3]) > 0.08 * diameter)
