"""Track one object through one video, outside any project: ``twinloop.track(video, twin)``."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from twinloop.capture.board import Board
from twinloop.capture.warning import CaptureWarning
from twinloop.errors import InputError
from twinloop.progress import track as progress
from twinloop.tracking.clip import Undistortion, enlarge, watched
from twinloop.tracking.clip_setup import CameraLike, ClipSetup, box_mask, open_clip, read_mask
from twinloop.tracking.frame import CameraFrame, Frame
from twinloop.tracking.images import to_grey
from twinloop.tracking.initialise import find_start
from twinloop.tracking.mask_search import poses_in_mask
from twinloop.tracking.model import ObjectModel, build_model
from twinloop.tracking.model_checks import check_scale
from twinloop.tracking.modes import LEAST_TEXTURE
from twinloop.tracking.motion_hint import (
    REACH,
    PixelMotion,
    lost_note,
    motion_note,
    pixel_motion,
)
from twinloop.tracking.pose_files import check_ending, check_place, write_poses
from twinloop.tracking.pose_track import OK, UNCERTAIN, PoseTrack
from twinloop.tracking.preview import LiveWindow, Painter, check_film, write_preview
from twinloop.tracking.session import Followed, follow, second_object, shows_texture, zoom_for
from twinloop.tracking.settings import Settings
from twinloop.tracking.solver import WorldCamera
from twinloop.tracking.state import Start
from twinloop.tracking.tracker import Tracked, unobservable
from twinloop.tracking.twin_files import TwinFiles, Up, load_twin

Array = NDArray[np.float64]
Image = NDArray[np.uint8]
Mask = NDArray[np.bool_]

SIZE = 90.0
"""Objects smaller than this in the picture, px, have it enlarged."""
TRIES = 4
"""Pictures, spread over the clip, in which an object that is not in the first one is looked for."""


@dataclass(frozen=True)
class Twin:
    """A twin made ready to be tracked, for several clips: see :func:`read_twin`."""

    files: TwinFiles
    model: ObjectModel


def read_twin(path: str | Path, *, up: Up = "z", views: int = 48) -> Twin:
    """Read a twin or a mesh and render its reference views, which takes seconds.

    Args:
        path: A packaged twin (folder with twin.json), or a mesh (.obj, .ply, .stl) in metres.
        up: "z": the mesh stands on its z axis (packaged twins do); "any": that is not known.
        views: Reference views that are rendered from the twin.

    Raises:
        InputError: See :func:`~twinloop.tracking.twin_files.load_twin`.
    """
    files = load_twin(Path(path), up)
    return Twin(files, _model(files, views))


def _model(files: TwinFiles, views: int) -> ObjectModel:
    if views < 1:
        raise InputError(f"views is {views}; expected the number of views to render, 1 or more.")
    return build_model(
        files.vertices,
        files.faces,
        files.gaussians,
        T_world_object=files.T_world_object,
        views=views,
    )


@dataclass(frozen=True)
class VideoTrack(PoseTrack):
    """The object through a video, smoothed forward and backward; see PoseTrack for the arrays.

    camera: intrinsics and T_camera_world of the undistorted pictures; table: whether the world is
    the board's (z = 0 is the table), else it is the camera's; modes: what was measured, such as
    "region+texture+plane"; start: what found the object ("sift", "search", "outline", "hint",
    "none"); symmetry: in words, the turns under which the object looks the same;
    sure: whether no other pose fitted the start as well; motion: px from frame to frame, None when
    that is not known; notes: what a person should know, such as when the object was lost (`lost`
    lists the intervals).
    """

    camera: WorldCamera
    table: bool
    modes: str
    start: str
    symmetry: str
    sure: bool
    motion: PixelMotion | None
    notes: tuple[str, ...]

    def share(self, status: int) -> float:
        """Part of the frames with a status (0 ok, 1 uncertain, 2 lost)."""
        return float((self.status == status).mean())


def track(
    video: str | Path,
    twin: str | Path | Twin,
    *,
    camera: CameraLike | None = None,
    board: str | Path | Board | None = None,
    box: Sequence[float] | None = None,
    mask: str | Path | None = None,
    up: Up = "z",
    out: str | Path | None = None,
    preview: str | Path | None = None,
    live: bool = False,
    views: int = 48,
    settings: Settings | None = None,
) -> VideoTrack:
    """Poses of a twin in every frame of a video from a camera that stands still.

    Args:
        video: The file.
        twin: A packaged twin (folder with twin.json), a mesh (.obj, .ply, .stl) in metres, or what
            `read_twin` made of one (`up` and `views` are then its own).
        camera: camera.yaml, or (fx, fy, cx, cy) px; None: estimated from the board in the clip.
        board: board.yaml of the tag board that lies on the table: the world is the board's, and
            the table steadies the poses. None: the world is the camera (OpenCV axes).
        box: x, y, w, h (px) about the object in the first picture, where it is known.
        mask: PNG, bright where the object is in the first picture.
        up: "z": the mesh stands on its z axis (packaged twins do); "any": that is not known.
        out: .csv or .npz to write the poses to.
        preview: .mp4 to write, with the track drawn in.
        live: Show the track in a window while it is made.
        views: Reference views that are rendered from the twin.
        settings: How the tracker goes about it.

    Returns:
        The track. An object that is not there gives a track of lost frames and a note; notes come
        as a CaptureWarning, too.

    Raises:
        InputError: A file, value or mesh that cannot be; says which and what to do.
        MachineError: No window for `live`, or no room to write.
    """
    out = None if out is None else Path(out)
    preview = None if preview is None else Path(preview)
    if out is not None:
        check_ending(out)
    if preview is not None:
        check_film(preview)
    if not Path(video).is_file():
        raise InputError(f"{video}: is no file; expected a video.")
    given_files = [Path(f) for f in (video, twin, camera, board, mask) if isinstance(f, str | Path)]
    for made in (out, preview):
        if made is not None:
            check_place(made, given_files)
    if box is not None and mask is not None:
        raise InputError("box and mask are both given; expected one of them.")
    with ExitStack() as stack:
        window = stack.enter_context(LiveWindow()) if live else None
        stack.enter_context(_one_thread())
        files = twin.files if isinstance(twin, Twin) else load_twin(Path(twin), up)
        clip = open_clip(Path(video), camera, board)
        given = _first_mask(clip, box, mask)
        _check_size(files, clip, given)
        model = twin.model if isinstance(twin, Twin) else _model(files, views)
        run = _Run(Twin(files, model), clip, settings or Settings(), given)
        result = run.track(is_box=box is not None, window=window)
        if out is not None:
            write_poses(out, result)
        if preview is not None:
            write_preview(preview, lambda: run.drawn(result), result.time)
    for note in result.notes:
        warnings.warn(note, CaptureWarning, stacklevel=2)
    return result


@contextmanager
def _one_thread() -> Iterator[None]:
    """The order of OpenCV's features must not depend on the number of threads."""
    before = cv2.getNumThreads()
    cv2.setNumThreads(1)
    try:
        yield
    finally:
        cv2.setNumThreads(before)


def _first_mask(
    clip: ClipSetup, box: Sequence[float] | None, mask: str | Path | None
) -> Mask | None:
    """Where the object is in the first picture, as filmed (h, w), or None."""
    size = clip.lens.width, clip.lens.height
    if box is not None:
        return box_mask(box, *size)
    return None if mask is None else read_mask(Path(mask), *size)


def _check_size(files: TwinFiles, clip: ClipSetup, mask: Mask | None) -> None:
    """Refuse a mesh of a size that it cannot have in this picture, where the board gives metres."""
    if clip.table:
        straight = None if mask is None else _straight(mask, Undistortion(clip.lens))
        check_scale(files.vertices, clip.camera, files.where, silhouette=straight)


class _Run:
    """One clip on its way from pictures to poses."""

    def __init__(self, twin: Twin, clip: ClipSetup, settings: Settings, mask: Mask | None) -> None:
        # What was rendered for other clips would decide what is rendered for this one.
        self.files, self.model, self.clip = twin.files, twin.model.fresh(), clip
        # A focal length that is not known exactly is an error along the line of sight.
        floor = float(np.hypot(settings.floor_range, clip.focal_std))
        self.settings = replace(settings, floor_range=floor)
        zoom = zoom_for(self.model, clip.camera, SIZE) if clip.table else 1
        self.camera, self.undistort = enlarge(clip.camera, zoom), Undistortion(clip.lens, zoom)
        self.plain = Undistortion(clip.lens)
        self.mask = None if mask is None else _straight(mask, self.undistort)
        self.notes = list(clip.notes)

    def track(self, *, is_box: bool, window: LiveWindow | None) -> VideoTrack:
        """Find the object, follow it, and say what there is to say."""
        first, start = self.begin(is_box)
        table, twice = self.clip.table, False
        if start is None:
            self.notes.append(self.missing())
        elif self.mask is None:
            other = second_object(self.model, first, start, self.settings, table=table)
            twice = other is not None
        knocks: list[float] = []
        every = progress(self.frames(), "track", len(self.clip.video.times))
        followed = follow(
            self.model,
            first,
            start,
            watched(every, self.model, start, knocks),
            self.settings,
            plane=table,
            knocks=knocks,
            each=self.shower(window),
        )
        if twice and start is not None:
            self.notes.append(
                "two objects in view look like the twin: which one is meant is not known, so no "
                "frame is ok. Give a box or a mask about it, or take the other one away."
            )
            followed = self.doubted(followed)
        elif start is not None and not start.proven:
            self.notes.append(
                "only a poor outline speaks for the object, so no frame is ok: is "
                f"{self.files.where} the mesh of what is in view, in metres?"
            )
        elif start is not None and not start.sure:
            self.notes.append(
                "at the start another pose fits about as well (a symmetric or featureless object, "
                "or a poor view): frames are uncertain until one decides."
            )
        if knocks:
            self.notes.append(
                f"the camera moved at about {knocks[0]:.2f} s: from there on poses are in "
                "another frame, and uncertain. Fix the camera, or cut the clip there."
            )
        if hidden := unobservable(self.model, followed.modes):
            self.notes.append(f"{hidden}: the object looks the same at every such angle.")
        poses = followed.poses
        moved = pixel_motion(poses, self.clip.camera, self.model.shape.hull)
        # Enlarged pictures leave less of the film's own pixels to be searched.
        reach = REACH * float(self.clip.camera.intrinsics[0] / self.camera.intrinsics[0])
        said = motion_note(moved, reach), lost_note(poses.time, poses.status, reach)
        self.notes.extend(note for note in said if note)
        return VideoTrack(
            poses.time,
            poses.pose,
            poses.covariance,
            poses.status,
            poses.velocity,
            poses.velocity_covariance,
            self.clip.camera,
            table,
            "none" if followed.modes is None else followed.modes.names,
            "none" if start is None else start.method,
            self.model.symmetry.describe(),
            start is not None and start.sure and not twice,
            moved,
            tuple(self.notes),
        )

    def begin(self, is_box: bool) -> tuple[Frame, Start | None]:
        """The object's start, in the first picture or, if it is not there, in a later one."""
        hints: list[Array] = []
        if self.mask is not None and not self.clip.table:
            hints = poses_in_mask(self.model, self.camera, self.mask, box=is_box)
        count = len(self.clip.video.times)
        tries = 1 if self.mask is not None else TRIES
        where = np.unique(np.linspace(0, count - 1, tries + 1).astype(int)[:-1]).tolist()
        first: Frame | None = None
        for frame in progress(self.frames(where), "find the object", len(where)):
            first = first or frame
            start = find_start(
                self.model,
                frame,
                self.settings,
                table=self.clip.table,
                hints=hints,
                mask=self.mask,
            )
            if start is not None and shows_texture(self.model, frame, start):
                if frame.time > first.time:
                    self.notes.append(
                        f"the object was not found before {frame.time:.2f} s: earlier frames are "
                        "lost."
                    )
                return frame, start
        assert first is not None  # a video has frames
        return first, None

    def missing(self) -> str:
        """What to do about an object that was not found."""
        said = "the object was not found in the clip: every frame is lost. Is it in view, and is "
        said += f"{self.files.where} its twin?"
        if self.mask is None and self.model.look is None:
            said += " A bare mesh has no looks to be found by: give a box or a mask about it."
        elif self.mask is None and self.model.texture < LEAST_TEXTURE and not self.clip.table:
            said += (
                " A twin without texture is found only on a table (give the board) or from a box "
                "or mask about it."
            )
        elif self.mask is None:
            said += " A box or a mask about it helps."
        return said

    def frames(self, indices: Sequence[int] | None = None) -> Iterator[Frame]:
        """Undistorted frames of the clip."""
        for picture in self.clip.video.read(indices):
            rgb = self.undistort(np.asarray(picture.image, np.uint8))
            yield Frame(picture.time, (CameraFrame(self.camera, rgb, to_grey(rgb)),))

    def shower(self, window: LiveWindow | None) -> Callable[[Frame, Tracked], None]:
        """Shows each frame's result in the window, or nothing."""
        if window is None:
            return lambda frame, found: None
        painter = Painter(self.camera, self.model.shape, self.files.vertices, self.files.faces)

        def show(frame: Frame, found: Tracked) -> None:
            rgb = frame.cameras[0].rgb
            window.show(painter.draw(rgb, found.time, found.pose, found.covariance, found.status))

        return show

    def doubted(self, followed: Followed) -> Followed:
        """The same poses, of which none is ok."""
        status = followed.poses.status.copy()
        status[status == OK] = UNCERTAIN
        return replace(followed, poses=replace(followed.poses, status=status))

    def drawn(self, result: PoseTrack) -> Iterator[Image]:
        """The clip's pictures with the track drawn in."""
        shape, files = self.model.shape, self.files
        painter = Painter(self.clip.camera, shape, files.vertices, files.faces)
        pictures = progress(self.clip.video.read(), "draw", len(result.time))
        for i, picture in enumerate(pictures):
            rgb = self.plain(np.asarray(picture.image, np.uint8))
            pose, spread = result.pose[i], result.covariance[i]
            yield painter.draw(rgb, float(result.time[i]), pose, spread, int(result.status[i]))


def _straight(mask: Mask, undistort: Undistortion) -> Mask:
    """A mask as filmed, undistorted like the pictures."""
    return undistort(mask.astype(np.uint8) * 255) > 127
