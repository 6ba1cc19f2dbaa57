"""Object pose through one clip of a static camera.

Each frame: predict by constant velocity; flow from the last frame (robust to looks); flow from the
object as live keyframes and scan frames show it at that pose (free of drift); one robust
Gauss-Newton over all points and the table contact; SIFT relocalisation when that fails.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from twinloop.tracking.appearance import Reference
from twinloop.tracking.feature_map import localise
from twinloop.tracking.fit import Fit, fit_pose
from twinloop.tracking.initialise import Start
from twinloop.tracking.measure import measure_previous
from twinloop.tracking.model import ObjectModel
from twinloop.tracking.solver import (
    Contact,
    Correspondences,
    Solution,
    WorldCamera,
    perturb,
    project,
    rotation_log,
    solve_pose,
)

Array = NDArray[np.float64]
Image = NDArray[np.uint8]
OK, UNCERTAIN, LOST = 0, 1, 2


@dataclass(frozen=True)
class Settings:
    """How to track; lengths in m, angles in rad, times in s, image lengths in px."""

    features: int = 80
    sigma_live: float = 0.5
    sigma_scan: float = 0.8
    contact_sigma: float = 0.001
    contact_cutoff: float = 0.006
    floor_position: float = 0.00025
    floor_rotation: float = 0.0015
    floor_range: float = 0.0006
    time_sigma: float = 0.001
    minimum_inliers: int = 8
    correlated: float = 25.0
    keyframe_angle: float = 0.2
    maximum_keyframes: int = 12
    relocalise_every: int = 3


@dataclass(frozen=True)
class ClipTrack:
    """The object through a clip.

    pose: (frame, 4, 4) T_world_object; covariance: (frame, 6, 6) m, rad (see solver); status:
    (frame,) 0 ok, 1 uncertain, 2 lost; inliers: (frame,) points behind the pose.
    """

    pose: Array
    covariance: Array
    status: NDArray[np.int8]
    inliers: NDArray[np.int32]


@dataclass
class State:
    """What one frame hands to the next."""

    pose: Array
    time: float
    velocity: Array = field(default_factory=lambda: np.zeros(6))
    seen: Correspondences = field(default_factory=lambda: Correspondences.join([]))
    image: Image | None = None
    lost: int = 0


def with_floor(covariance: Array, camera: WorldCamera, pose: Array, settings: Settings) -> Array:
    """Covariance plus what no frame can average out: calibration, mesh and reference errors.

    An isotropic floor, and along the line of sight a part of the range (scale and focal length).
    """
    eye = np.linalg.inv(camera.T_camera_world)[:3, 3]
    sight = pose[:3, 3] - eye
    distance = float(np.linalg.norm(sight))
    sight = sight / distance
    out = covariance.copy()
    out[:3, :3] += np.eye(3) * settings.floor_position**2
    out[:3, :3] += np.outer(sight, sight) * (settings.floor_range * distance) ** 2
    out[3:, 3:] += np.eye(3) * settings.floor_rotation**2
    return 0.5 * (out + out.T)


def motion(first: Array, second: Array) -> Array:
    """The left perturbation (6,) that carries the pose `first` to `second`."""
    rotation = second[:3, :3] @ first[:3, :3].T
    return np.concatenate([second[:3, 3] - first[:3, 3], rotation_log(rotation)])


def similar(keyframes: list[Reference], camera: WorldCamera, pose: Array) -> float:
    """Smallest rotation (rad) between the pose and those of the keyframes."""
    rotation = (camera.T_camera_world @ pose)[:3, :3]
    angles = [
        np.linalg.norm(rotation_log(rotation @ k.T_camera_object[:3, :3].T)) for k in keyframes
    ]
    return float(min(angles, default=np.inf))


class Tracker:
    """Tracks one object through one clip; `step` once per frame, in order."""

    def __init__(
        self,
        model: ObjectModel,
        camera: WorldCamera,
        rest: Solution,
        image: Image,
        time: float,
        settings: Settings,
    ) -> None:
        """Start from the resting pose `rest` found in `image` (h, w) at `time` s."""
        self.model, self.camera, self.settings = model, camera, settings
        self.state = State(rest.pose, time, image=image)
        reference = model.shape.reference(
            image, camera.intrinsics, camera.T_camera_world @ rest.pose
        )
        self.keyframes: list[Reference] = [reference]
        self.contact = Contact(
            model.shape.hull, model.contact_height, settings.contact_sigma, settings.contact_cutoff
        )

    def step(self, image: Image, time: float) -> tuple[Array, Array, int, int]:
        """Pose, covariance, status and inliers of the frame `image` (h, w) u1 at `time` s."""
        state = self.state
        dt = time - state.time
        predicted = perturb(state.pose, state.velocity * min(max(dt, 0.0), 0.1))
        best = self._attempt(image, self._flow_pose(image, predicted))
        if not self._trusted(best) and (state.lost % self.settings.relocalise_every == 0):
            best = self._relocalise(image, best)
        solution = best.solution
        if solution is None or not self._trusted(best):
            return self._hold()
        fresh = state.lost > 0 or dt > 0.1
        moved = motion(state.pose, solution.pose) / max(dt, 1e-3)
        self.state = State(
            solution.pose, time, np.zeros(6) if fresh else moved, best.seen, image, 0
        )
        inliers, ratio = best.inliers, best.ratio
        covariance = with_floor(solution.covariance, self.camera, solution.pose, self.settings)
        if not fresh:
            # The shutter's middle and the time stamp differ by some part of the exposure.
            covariance = covariance + np.outer(moved, moved) * self.settings.time_sigma**2
        sigma = float(np.sqrt(np.linalg.eigvalsh(covariance[:3, :3])[-1]))
        sure = inliers >= 2 * self.settings.minimum_inliers and ratio > 0.3 and sigma < 0.005
        turned = similar(self.keyframes, self.camera, solution.pose)
        if (
            sure
            and turned > self.settings.keyframe_angle
            and len(self.keyframes) < self.settings.maximum_keyframes
        ):
            pose_camera = self.camera.T_camera_world @ solution.pose
            self.keyframes.append(
                self.model.shape.reference(image, self.camera.intrinsics, pose_camera)
            )
        return solution.pose, covariance, OK if sure else UNCERTAIN, inliers

    def _flow_pose(self, image: Image, predicted: Array) -> Array:
        """The predicted pose, improved by flow of the last frame's points."""
        state = self.state
        if state.image is None or len(state.seen.points) < 6:
            return predicted
        window = self.model.shape.window(self.camera, predicted, 40)
        before = self.model.shape.window(self.camera, state.pose, 40)
        if window is None or before is None:
            return predicted
        both = (
            min(window[0], before[0]),
            min(window[1], before[1]),
            max(window[2], before[2]),
            max(window[3], before[3]),
        )
        # A start needs no more points than this.
        every = slice(None, None, max(1, len(state.seen.points) // self.settings.features))
        points, pixels = state.seen.points[every], state.seen.pixels[every]
        guess, _ = project(self.camera, predicted, points)
        flow = measure_previous(
            state.image,
            image,
            points,
            pixels,
            guess,
            both,
            sigma=self.settings.sigma_live,
        )
        if len(flow.seen.points) < 6:
            return predicted
        solution = solve_pose(
            self.camera, predicted, flow.seen, contact=self.contact, cutoffs=(30.0, 10.0, 6.0, 4.0)
        )
        return solution.pose

    def _attempt(self, image: Image, pose: Array, rounds: int = 1) -> Fit:
        """Measure at `pose` against keyframes and scan, and solve; `rounds` times."""
        settings = self.settings
        return fit_pose(
            self.model,
            self.camera,
            image,
            pose,
            [
                (self.keyframes, settings.sigma_live),
                (self.model.references, settings.sigma_scan),
            ],
            features=settings.features,
            contact=self.contact,
            rounds=rounds,
            correlated=settings.correlated,
        )

    def _trusted(self, fit: Fit) -> bool:
        """Whether enough of the points agree on one pose."""
        return fit.inliers >= self.settings.minimum_inliers and fit.ratio > 0.15

    def _relocalise(self, image: Image, best: Fit) -> Fit:
        """The better of `best` and a pose from the SIFT map over the whole image."""
        window = (0, 0, self.camera.width, self.camera.height)
        found = localise(self.model.features, image, self.camera, window, self.model.shape.diameter)
        if found is None:
            return best
        other = self._attempt(image, found.pose, rounds=2)
        return other if other.inliers > best.inliers else best

    def _hold(self) -> tuple[Array, Array, int, int]:
        """The last pose with a covariance that grows while nothing is seen."""
        state = self.state
        state.lost += 1
        state.velocity = np.zeros(6)
        state.seen = Correspondences.join([])
        spread = 0.02 * np.sqrt(state.lost)
        covariance = np.diag([spread**2] * 3 + [(10 * spread) ** 2] * 3)
        return state.pose.copy(), covariance, LOST, 0


def unknown_track(model: ObjectModel, frames: int) -> ClipTrack:
    """The track of a clip in which the object was never found: everything lost."""
    pose = np.eye(4)
    pose[2, 3] = model.rest_height
    return ClipTrack(
        np.tile(pose, (frames, 1, 1)),
        np.tile(np.diag([1.0] * 3 + [np.pi**2] * 3), (frames, 1, 1)),
        np.full(frames, LOST, np.int8),
        np.zeros(frames, np.int32),
    )


def track_clip(
    model: ObjectModel,
    camera: WorldCamera,
    frames: Iterable[tuple[float, Image]],
    rest_image: Image,
    start: Start | None,
    settings: Settings,
) -> tuple[Array, ClipTrack]:
    """Track all `frames` (time s, undistorted grey (h, w) u1), in order.

    `rest_image` is the mean of the resting frames and `start` what was found in it; when nothing
    was, or when the start is ambiguous (a symmetric or plain object), all frames are lost, or
    uncertain at best. Returns the times (frame,) s and the track.
    """
    if start is None:
        times = np.array([t for t, _ in frames])
        return times, unknown_track(model, len(times))
    tracker: Tracker | None = None
    times_list, rows = [], []
    for time, image in frames:
        if tracker is None:
            tracker = Tracker(model, camera, start.solution, rest_image, time, settings)
        times_list.append(time)
        rows.append(tracker.step(image, time))
    status = np.array([r[2] for r in rows], np.int8)
    if not start.sure:
        status = np.maximum(status, UNCERTAIN).astype(np.int8)
    return np.array(times_list), ClipTrack(
        np.array([r[0] for r in rows]),
        np.array([r[1] for r in rows]),
        status,
        np.array([r[3] for r in rows], np.int32),
    )
