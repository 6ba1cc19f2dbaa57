"""What everything that tracks whole clips shares: the stage, the library call and the command."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, tee

import cv2
import numpy as np
from numpy.typing import NDArray

from twinloop.tracking.frame import CameraFrame, Frame
from twinloop.tracking.images import to_grey
from twinloop.tracking.initialise import find_start, first_modes
from twinloop.tracking.model import ObjectModel
from twinloop.tracking.modes import LEAST_TEXTURE, Modes
from twinloop.tracking.pose_track import PoseTrack
from twinloop.tracking.settings import Settings
from twinloop.tracking.solver import WorldCamera
from twinloop.tracking.state import Start
from twinloop.tracking.table_search import expected_size
from twinloop.tracking.tracker import Tracked, doubted, smooth_clip, track_frames, unseen

SHOWN = 0.25
"""Least part of its twin's texture (cells of the median view) that an object in view shows."""
APART = 0.5
"""Two objects are at least this part of a diameter from each other."""


@dataclass(frozen=True)
class Followed:
    """A clip that was tracked.

    found: every frame's result as the tracker gave it, going forward; poses: the same, smoothed
    forward and backward; start, modes: None where the object was never found.
    """

    found: list[Tracked]
    poses: PoseTrack
    start: Start | None
    modes: Modes | None


def zoom_for(model: ObjectModel, camera: WorldCamera, pixels: float) -> int:
    """How often (1 to 4) pictures are enlarged so that the object is `pixels` px large in them."""
    return int(np.clip(np.ceil(pixels / expected_size(model, camera)), 1, 4))


def follow(
    model: ObjectModel,
    first: Frame,
    start: Start | None,
    frames: Iterable[Frame],
    settings: Settings,
    *,
    plane: bool,
    knocks: Sequence[float] = (),
    each: Callable[[Frame, Tracked], None] = lambda frame, found: None,
) -> Followed:
    """Track all `frames` of a clip from `start`, found in the picture `first`, and smooth them.

    first: the instant in which `start` holds; frames that are older than it are lost ones. `plane`
    says that the world's z = 0 is a table on which the object stands. `knocks` are times, s, at
    which the camera was moved, known by the time their frames come (see `watched`): from the first
    one on it is not where it was said to be, so that no pose is sure. `each` is told every frame's
    result as it comes.
    """
    modes, found = None, []
    ahead, again = tee(frames)
    if start is None:
        results: Iterator[Tracked] = (unseen(frame.time, model) for frame in again)
    else:
        modes = first_modes(model, first, start.solution.pose, plane=plane)
        results = _results(model, again, first, start, modes, settings)
    for frame, result in zip(ahead, results, strict=True):
        if knocks and result.time >= knocks[0]:
            result = doubted(result)
        found.append(result)
        each(frame, result)
    return Followed(found, smooth_clip(found, first.cameras[0].camera, settings), start, modes)


def _results(
    model: ObjectModel,
    frames: Iterator[Frame],
    first: Frame,
    start: Start,
    modes: Modes,
    settings: Settings,
) -> Iterator[Tracked]:
    """Every frame's result; those before `first` are of an object that was not seen."""
    for frame in frames:
        if frame.time >= first.time:
            rest = chain([frame], frames)
            yield from track_frames(model, rest, start, modes, settings, first)
            return
        yield unseen(frame.time, model)


def shows_texture(model: ObjectModel, frame: Frame, start: Start) -> bool:
    """Whether a twin with texture shows some where it is said to be; always for one without.

    A search by looks or outline that finds a patch of bare table in the object's colours is wrong.
    """
    if model.texture < LEAST_TEXTURE:
        return True
    modes = first_modes(model, frame, start.solution.pose, plane=False)
    camera = frame.cameras[0].camera
    depth = float((camera.T_camera_world @ start.solution.pose)[2, 3])
    size = float(camera.intrinsics[0]) * model.shape.diameter / max(depth, 1e-3)
    return modes.texture_cells >= SHOWN * model.texture * min(size / 100.0, 1.0) ** 2


def without(frame: Frame, model: ObjectModel, pose: NDArray[np.float64]) -> Frame:
    """The frame with the object at `pose` painted over in the colour around it."""
    cameras = []
    for camera in frame.cameras:
        rgb = camera.rgb.copy()
        view = model.shape.view(camera.camera, pose, margin=12)
        if view is not None:
            x0, y0, x1, y1 = view.window
            inside = cv2.dilate(view.mask.astype(np.uint8), np.ones((11, 11), np.uint8)) > 0
            part = rgb[y0:y1, x0:x1]
            around = part[~inside]
            part[inside] = np.median(around, axis=0) if len(around) else 0
        cameras.append(CameraFrame(camera.camera, rgb, to_grey(rgb), camera.depth, camera.ignore))
    return replace(frame, cameras=tuple(cameras))


def second_object(
    model: ObjectModel, frame: Frame, start: Start, settings: Settings, *, table: bool
) -> Start | None:
    """Another object in `frame` that looks like the one at `start`, None when there is none.

    The one that was found is painted over and the object searched once more. Only a sure find
    counts: something of the object's colours is always somewhere.
    """
    pose = start.solution.pose
    other = find_start(
        model,
        without(frame, model, pose),
        settings,
        table=table,
        search=start.method != "sift",
    )
    if other is None or not other.sure or not shows_texture(model, frame, other):
        return None
    apart = float(np.linalg.norm(other.solution.pose[:3, 3] - pose[:3, 3]))
    return other if apart > APART * model.shape.diameter else None
