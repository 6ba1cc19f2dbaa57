"""Object pose through one clip, from one or several cameras.

Each frame: predict by constant velocity; find the outline coarsely and follow the last frame's
points; there, measure outline, texture and depth finely; one robust Gauss-Newton over all of it and
what is known of the table. When that fails the pose is held and its covariance grows, and other
poses are tried until one explains the image.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from twinloop.geometry.symmetry import unobservable_axes, unobservable_motions
from twinloop.tracking.exposure import Exposure
from twinloop.tracking.fitter import Attempt, Fitter, table_knowledge
from twinloop.tracking.frame import CameraFrame, Frame
from twinloop.tracking.measure import measure_previous
from twinloop.tracking.model import ObjectModel
from twinloop.tracking.modes import Modes
from twinloop.tracking.pose_track import LOST, OK, UNCERTAIN, PoseTrack
from twinloop.tracking.priors import PosePrior, motion
from twinloop.tracking.recovery import recover
from twinloop.tracking.settings import Settings
from twinloop.tracking.sight import (
    Eye,
    colours_at,
    look,
    present,
    view_colours,
)
from twinloop.tracking.smooth import smooth
from twinloop.tracking.solver import (
    Correspondences,
    PointTerm,
    Term,
    WorldCamera,
    perturb,
    project,
    rotation_log,
    solve_pose,
)
from twinloop.tracking.state import Start, State

Array = NDArray[np.float64]


ANY_ANGLE = np.pi / np.sqrt(3)
"""Standard deviation of an angle of which nothing is known, rad."""


@dataclass(frozen=True)
class Tracked:
    """One frame's result.

    pose: (4, 4) T_world_object; covariance: (6, 6) m, rad; status: 0 ok, 1 uncertain, 2 lost;
    measurements: how many stand behind the pose; visible: share of the object that nothing hides.
    """

    time: float
    pose: Array
    covariance: Array
    status: int
    measurements: int
    visible: float


class Tracker:
    """Tracks one object through one clip; `step` once per frame, in order."""

    def __init__(
        self, model: ObjectModel, frame: Frame, start: Start, modes: Modes, settings: Settings
    ) -> None:
        """Start from the pose found in `frame` (its time is only the first one's)."""
        self.model, self.modes, self.settings = model, modes, settings
        self.state = State(start.solution.pose, frame.time, start.solution.covariance)
        self.state.doubtful, self.proven = not start.sure, start.proven
        eyes = [Eye() for _ in frame.cameras]
        knowledge = table_knowledge(model, settings) if modes.plane else []
        self.fitter = Fitter(model, modes, settings, eyes, knowledge)
        self.exposures = [Exposure(camera) for camera in frame.cameras]
        for eye, camera in zip(self.fitter.eyes, frame.cameras, strict=True):
            self._learn(eye, camera, self.state.pose)

    def _learn(self, eye: Eye, frame: CameraFrame, pose: Array) -> None:
        """Take colours and a first live view from a frame whose pose is known."""
        eye.colours = colours_at(self.model, frame, pose)
        sight = look(self.model, frame, pose, eye, self.modes)
        if sight is None:
            return
        eye.score = sight.score
        if self.modes.texture:
            eye.keyframes.append(
                self.model.shape.reference(
                    frame.grey, frame.camera.intrinsics, frame.camera.T_camera_world @ pose
                )
            )

    def step(self, frame: Frame) -> Tracked:
        """The object in the next frame."""
        state, settings = self.state, self.settings
        even = zip(self.exposures, frame.cameras, strict=True)
        frame = replace(frame, cameras=tuple(light.even(camera) for light, camera in even))
        dt = frame.time - state.time
        predicted = perturb(state.pose, state.velocity * min(max(dt, 0.0), 0.1))
        best = self._follow(frame, predicted, dt)
        state.checked += 1
        unseen = max(dt, 1 / 240) * (1 + state.lost)
        trusted = (
            best is not None
            and self.fitter.trusted(best, again=state.lost > 0)
            and self.fitter.plausible(state.pose, best.pose, unseen)
        )
        low = best is not None and best.merit < settings.usual_merit * state.usual
        again = state.doubtful and state.checked >= settings.check_every
        missing = not trusted or (low and state.lost > 0)
        if (missing and state.lost % settings.recover_every == 0) or again:
            best = recover(self.fitter, state, frame, best if trusted else None, unseen)
            state.checked = 0
            trusted = best is not None and self.fitter.trusted(best, again=state.lost > 0)
        low = best is not None and best.merit < settings.usual_merit * state.usual
        if best is None or not trusted or (low and state.lost > 0):
            # What was out of sight has to be seen well before it is believed again.
            return self._hold(frame, 0.0 if best is None else best.visible)
        best = self.fitter.refine(frame, best)
        solution = best.solution
        jumped = not self.fitter.plausible(state.pose, best.pose, max(dt, 1 / 240))
        fresh = state.lost > 0 or jumped or dt > 0.1 or dt <= 0
        moved = motion(state.pose, solution.pose) / max(dt, 1e-3)
        # What explains less than it did errs by more than its measurements' scatter says.
        wider = (settings.usual_merit * state.usual / best.merit) ** 4 if low else 1.0
        covariance = with_floor(
            wider * solution.covariance, frame.cameras[0].camera, solution.pose, settings
        )
        if not fresh:
            # The shutter's middle and the time stamp differ by some part of the exposure.
            covariance = covariance + np.outer(moved, moved) * settings.time_sigma**2
        for way in unobservable_motions(self.fitter.symmetry, solution.pose):
            covariance = covariance + np.outer(way, way) * ANY_ANGLE**2
        sure = self.fitter.sure(best, covariance) and not state.doubtful and self.proven
        if low:
            # It explains clearly less than the pose did before: nearly right is how a wrong one
            # looks after an occlusion.
            sure, state.doubtful = False, True
        elif best.visible > 0.8:
            share = 0.1 if state.usual > 0 else 1.0
            state.usual += share * (best.merit - state.usual)
        self.state = State(solution.pose, frame.time, covariance, np.zeros(6) if fresh else moved)
        self.state.doubtful, self.state.checked = state.doubtful, state.checked
        self.state.usual = state.usual
        self.state.confirmed = sure or (state.confirmed and state.lost == 0)
        self._remember(frame, best, sure)
        return Tracked(
            frame.time,
            solution.pose,
            covariance,
            OK if sure else UNCERTAIN,
            best.used,
            best.visible,
        )

    def _follow(self, frame: Frame, predicted: Array, dt: float) -> Attempt | None:
        """From the prediction by outline and flow to a first pose, and on to the final one."""
        spread = self.settings.prior(self.state.velocity, dt, self.state.lost)
        prior = PosePrior(predicted, spread)
        coarse: list[Term | None] = [prior]
        sights = []
        for eye, camera in zip(self.fitter.eyes, frame.cameras, strict=True):
            sight = look(self.model, camera, predicted, eye, self.modes)
            sights.append(sight)
            if sight is not None:
                coarse.append(sight.region((4, 2, 1, 1)))
                coarse.append(self._flow(eye, camera, predicted))
        pose = solve_pose(predicted, self.fitter.knowledge + present(coarse), 5).pose
        return self.fitter.attempt(frame, pose, tuple(sights), at=predicted, prior=prior)

    def _flow(self, eye: Eye, frame: CameraFrame, predicted: Array) -> PointTerm | None:
        """The last frame's points, followed into this one."""
        if eye.last is None or len(eye.seen.points) < 6:
            return None
        window = self.model.shape.window(frame.camera, predicted, 40)
        before = self.model.shape.window(eye.last.camera, self.state.pose, 40)
        if window is None or before is None:
            return None
        both = (
            min(window[0], before[0]),
            min(window[1], before[1]),
            max(window[2], before[2]),
            max(window[3], before[3]),
        )
        # A start needs no more points than this.
        every = slice(None, None, max(1, len(eye.seen.points) // self.settings.features))
        points, pixels = eye.seen.points[every], eye.seen.pixels[every]
        guess, _ = project(frame.camera, predicted, points)
        sigma = self.settings.sigma_live
        flow = measure_previous(eye.last.grey, frame.grey, points, pixels, guess, both, sigma=sigma)
        if len(flow.seen.points) < 6:
            return None
        return PointTerm(frame.camera, flow.seen, (30.0, 10.0, 6.0, 4.0))

    def _remember(self, frame: Frame, best: Attempt, sure: bool) -> None:
        """Points for the next frame; colours and live views from frames that are sure."""
        settings = self.settings
        for eye, camera, sight, seen in zip(
            self.fitter.eyes, frame.cameras, best.sights, best.seen, strict=True
        ):
            eye.seen, eye.last = seen, camera
            if not sure or sight is None:
                continue
            if best.visible > 0.8 and eye.colours is not None:
                fresh = view_colours(camera, sight.view, sight.known)
                if fresh is not None:
                    eye.colours = eye.colours.mixed(fresh, settings.learning)
            full = len(eye.keyframes) >= settings.maximum_keyframes
            if not self.modes.texture or full or best.visible < 0.9:
                continue
            T = camera.camera.T_camera_world @ best.pose
            if turned(eye, T) > settings.keyframe_angle:
                eye.keyframes.append(
                    self.model.shape.reference(camera.grey, camera.camera.intrinsics, T)
                )

    def _hold(self, frame: Frame, visible: float) -> Tracked:
        """The last pose with a covariance that grows while nothing is seen."""
        state, settings = self.state, self.settings
        dt = min(max(frame.time - state.time, 0.0), 0.5)
        state.lost += 1
        state.velocity = np.zeros(6)
        for eye in self.fitter.eyes:
            eye.seen, eye.last = Correspondences.join([]), None
        grow = np.diag([settings.unseen_speed**2] * 3 + [settings.unseen_turn**2] * 3) * (
            dt * max(dt, 1 / 60)
        )
        state.covariance = state.covariance + grow
        state.time = frame.time
        return Tracked(frame.time, state.pose.copy(), state.covariance.copy(), LOST, 0, visible)


def turned(eye: Eye, T_camera_object: Array) -> float:
    """Smallest rotation (rad) between a pose and those of the keyframes."""
    return min(
        (
            float(
                np.linalg.norm(rotation_log(T_camera_object[:3, :3] @ k.T_camera_object[:3, :3].T))
            )
            for k in eye.keyframes
        ),
        default=np.inf,
    )


def with_floor(covariance: Array, camera: WorldCamera, pose: Array, settings: Settings) -> Array:
    """Covariance plus what no frame can average out: calibration, mesh and reference errors.

    An isotropic floor, and along the line of sight a part of the range (scale and focal length).
    """
    eye = np.linalg.inv(camera.T_camera_world)[:3, 3]
    sight = pose[:3, 3] - eye
    distance = float(np.linalg.norm(sight))
    sight = sight / max(distance, 1e-9)
    out = covariance.copy()
    out[:3, :3] += np.eye(3) * settings.floor_position**2
    out[:3, :3] += np.outer(sight, sight) * (settings.floor_range * distance) ** 2
    out[3:, 3:] += np.eye(3) * settings.floor_rotation**2
    return 0.5 * (out + out.T)


def track_frames(
    model: ObjectModel,
    frames: Iterable[Frame],
    start: Start,
    modes: Modes,
    settings: Settings,
    first: Frame | None = None,
) -> Iterator[Tracked]:
    """Track all `frames` in order from `start`, found in `first` (by default their first one)."""
    tracker: Tracker | None = None
    for frame in frames:
        if tracker is None:
            origin = frame if first is None else Frame(frame.time, first.cameras)
            tracker = Tracker(model, origin, start, modes, settings)
        yield tracker.step(frame)


def unseen(time: float, model: ObjectModel) -> Tracked:
    """The frame at `time` s of a clip in which the object was never found."""
    pose = np.eye(4)
    pose[2, 3] = model.rest_height
    return Tracked(time, pose, np.diag([1.0] * 3 + [np.pi**2] * 3), LOST, 0, 0.0)


def doubted(frame: Tracked) -> Tracked:
    """The frame with a status no better than uncertain."""
    return replace(frame, status=max(frame.status, UNCERTAIN))


def unobservable(model: ObjectModel, modes: Modes | None) -> str:
    """What of the pose no picture tells: "" or, for a plain body of revolution, the angle."""
    if modes is None or modes.texture or not unobservable_axes(model.symmetry):
        return ""
    axis = unobservable_axes(model.symmetry)[0].direction
    upright = abs(float(axis @ model.up)) > 0.98
    return "yaw unobservable" if upright else "turn about the axis of symmetry unobservable"


def smooth_clip(found: Sequence[Tracked], camera: WorldCamera, settings: Settings) -> PoseTrack:
    """A clip's frames smoothed forward and backward; the floor is one error of the whole clip."""
    common = with_floor(np.zeros((6, 6)), camera, found[0].pose, settings)
    return smooth(
        np.array([f.time for f in found]),
        np.array([f.pose for f in found]),
        np.array([f.covariance for f in found]),
        np.array([f.status for f in found], np.int8),
        common=common,
    )
