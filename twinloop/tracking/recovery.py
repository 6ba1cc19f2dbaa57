"""Finding the object again: other poses about the last one, and those its texture tells.

Full occlusion is where trackers go wrong silently: the object comes out turned, its outline nearly
fits, and nothing says so. So every start is solved and all are compared; a rival that explains the
frame as well makes the result uncertain until a frame decides.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from twinloop.geometry.symmetry import Symmetry, nearest_equivalent
from twinloop.tracking.alike import alike
from twinloop.tracking.feature_map import localise
from twinloop.tracking.fitter import Attempt, Fitter
from twinloop.tracking.frame import CameraFrame, Frame
from twinloop.tracking.shortlist import shortlist
from twinloop.tracking.solver import rotation_exp, rotation_log
from twinloop.tracking.state import State
from twinloop.tracking.table_search import search_outline

Array = NDArray[np.float64]

YAWS = (0.0, 0.25, -0.25, 0.5, -0.5, 0.9, -0.9, 1.4, -1.4, 2.2, -2.2, np.pi)
"""Turns about the table's normal by which a pose may be wrong, rad: a push, or a wrong start."""
SHIFTS = ((0.0, 0.0), (0.015, 0.0), (-0.015, 0.0), (0.0, 0.015), (0.0, -0.015))
SURE = 15
"""Features that must agree on a pose far away from where the object was."""
WHOLE = 0.6
"""Share of the object that has to be seen for a pose found again to be the only one."""
WHOLE_EVERY = 3
"""Tries of which one looks for features in the whole image."""
MARGIN = 0.05
"""By how much a pose must explain more than another one to be the only one."""
REACH, FASTER = 0.05, 0.15
"""An object out of sight is sought this far about its last place (m), and so much further for every
second (m/s)."""
SOUGHT = 6
"""Poses of a search of the table that are fitted."""


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


def explained(attempt: Attempt) -> float:
    """How much of the object a pose explains: what it leaves out as hidden may as well be wrong."""
    return attempt.merit * (0.5 + 0.5 * attempt.visible)


def recover(
    fitter: Fitter, state: State, frame: Frame, best: Attempt | None, unseen: float
) -> Attempt | None:
    """The best of `best` and what other starts give.

    `state` becomes doubtful when two of them tie, or when much of the object is hidden.

    `unseen` s is how long the object may have moved; a pose farther than it can have come counts
    only when its texture found it, or when the last one was never sure itself.
    """
    model, modes = fitter.model, fitter.modes
    found: list[Attempt] = [] if best is None else [best]
    camera = frame.cameras[0].camera

    def consider(pose: Array | None, round_trip: float = 1.0, far: bool = False) -> None:
        attempt = None if pose is None else fitter.attempt(frame, pose, round_trip=round_trip)
        if attempt is not None and (far or fitter.plausible(state.pose, attempt.pose, unseen)):
            found.append(attempt)

    if modes.texture:
        window = where_to_search(fitter, state, frame, seen=best is not None)
        place = localise(
            model.features, frame.cameras[0].grey, camera, window, model.shape.diameter
        )
        if place is not None:
            consider(place.pose, 2.0, far=place.inliers >= SURE)
    if modes.region or modes.depth:
        up = np.array([0.0, 0.0, 1.0]) if modes.plane else -camera.T_camera_world[2, :3]
        hull = model.shape.hull
        middle = state.pose[:3, :3] @ (0.5 * (hull.min(0) + hull.max(0))) + state.pose[:3, 3]
        starts = nearby(state.pose, middle, up)
        usual = fitter.settings.usual_merit * state.usual
        if modes.region and modes.plane and (best is None or best.merit < usual):
            starts += sought(fitter, state.pose, frame.cameras[0], REACH + FASTER * unseen)
        for pose in shortlist(fitter, frame, starts, [a.pose for a in found]):
            consider(pose, far=not state.confirmed)
    if not found:
        return None
    first = max(found, key=explained)
    if best is not None and explained(best) > explained(first) - MARGIN:
        # Of equals the one that was followed: poses do not jump for nothing.
        first = best
    if fitter.trusted(first):
        # A part of an object fits many poses: all are asked again once it is seen whole.
        state.doubtful = first.visible < WHOLE or any(
            explained(a) > explained(first) - MARGIN
            and differs(first.pose, a.pose, model.shape.diameter, fitter.symmetry)
            for a in found
        )
    # Poses that look alike are one; it does not jump from one to another behind an occlusion.
    return replace(first, solution=alike(first.solution, state.pose, fitter.symmetry))


def sought(fitter: Fitter, last: Array, frame: CameraFrame, reach: float) -> list[Array]:
    """Poses that a search of the table about the `last` one finds, resting as it did."""
    model, colours = fitter.model, fitter.eyes[0].colours
    rest = max(model.rests, key=lambda r: float(r.up @ last[2, :3]))
    found = search_outline(
        model, frame, colours, None, rests=(rest,), centre=last[:2, 3], reach=min(reach, 0.3)
    )
    return [pose for _, pose in found[:SOUGHT]]


def where_to_search(
    fitter: Fitter, state: State, frame: Frame, *, seen: bool
) -> tuple[int, int, int, int]:
    """Window (x0, y0, x1, y1) px of the first camera in which features are looked for.

    The whole image costs several frames' time: of an object that is out of sight it is searched
    every few tries, in between and for one that is `seen` only what is around its last pose.
    """
    camera = frame.cameras[0].camera
    whole = (0, 0, camera.width, camera.height)
    last = fitter.model.shape.window(camera, state.pose, 0)
    tries = state.lost // fitter.settings.recover_every
    if last is None or (not seen and tries % WHOLE_EVERY == 0):
        return whole
    if not seen and (min(last[:2]) <= 0 or last[2] >= camera.width or last[3] >= camera.height):
        # What leaves the picture may come back anywhere.
        return whole
    margin = max(last[2] - last[0], last[3] - last[1]) // 2
    return fitter.model.shape.window(camera, state.pose, margin) or whole


def differs(first: Array, second: Array, diameter: float, symmetry: Symmetry) -> bool:
    """Whether two poses are not the same one found twice, but for the object's symmetry."""
    second = nearest_equivalent(second, first, symmetry)
    turn = float(np.linalg.norm(rotation_log(first[:3, :3] @ second[:3, :3].T)))
    return bool(turn > 0.12 or np.linalg.norm(first[:3, 3] - second[:3, 3]) > 0.08 * diameter)
