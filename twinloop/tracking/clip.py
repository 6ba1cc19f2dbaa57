"""Clips from files: undistorted frames, the resting image, where the camera stands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from twinloop.capture.board import Board, detect_tags
from twinloop.capture.camera_yaml import CameraFile
from twinloop.capture.video import read_video
from twinloop.errors import InputError
from twinloop.geometry.camera import matrix
from twinloop.tracking.camera_knock import CameraWatch
from twinloop.tracking.frame import CameraFrame, Frame
from twinloop.tracking.images import to_grey
from twinloop.tracking.model import ObjectModel
from twinloop.tracking.solver import WorldCamera
from twinloop.tracking.state import Start

Array = NDArray[np.float64]
Image = NDArray[np.uint8]


KNOCKED = 3
"""Frames in a row that must show the camera moved: one may be a flash, or a hand over the board."""


@dataclass(frozen=True)
class RestImage:
    """Mean of the first frames of a clip, distorted as filmed: image (h, w, 3) of `frames`."""

    image: Image
    frames: int


class Undistortion:
    """Removes the lens distortion of a `camera.yaml`; the intrinsics stay the same.

    With `zoom` the image is enlarged as often afterwards: an object of few pixels has no room for
    the windows of optical flow otherwise.
    """

    def __init__(self, camera: CameraFile, zoom: int = 1) -> None:
        """Prepare the look-up table of `camera`."""
        self.zoom = zoom
        self.identity = not np.any(camera.distortion)
        size = (camera.width, camera.height)
        k, pinhole = np.array(camera.distortion), matrix(camera.intrinsics)
        maps = cv2.initUndistortRectifyMap(pinhole, k, np.eye(3), pinhole, size, cv2.CV_16SC2)
        self.first, self.second = maps

    def __call__(self, image: Image) -> Image:
        """The undistorted image, (h, w) or (h, w, 3) u1."""
        if not self.identity:
            image = np.asarray(
                cv2.remap(image, self.first, self.second, cv2.INTER_LINEAR), np.uint8
            )
        if self.zoom == 1:
            return image
        h, w = image.shape[:2]
        size = (w * self.zoom, h * self.zoom)
        return np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_CUBIC), np.uint8)


def enlarge(camera: WorldCamera, zoom: int) -> WorldCamera:
    """The camera whose images are `zoom` times as large (a pixel's centre is at integers)."""
    fx, fy, cx, cy = camera.intrinsics * zoom
    shift = 0.5 * (zoom - 1)
    return WorldCamera(
        np.array([fx, fy, cx + shift, cy + shift]),
        camera.T_camera_world,
        camera.width * zoom,
        camera.height * zoom,
    )


def read_clip(path: Path, camera: CameraFile) -> Iterator[tuple[float, Image]]:
    """Time (s) and RGB image (h, w, 3) u1, distorted as filmed, of each frame.

    Raises:
        InputError: Unreadable video, no frame, or not of the size in camera.yaml.
    """
    count = 0
    for frame in read_video(path):
        if frame.image.shape[:2] != (camera.height, camera.width):
            raise InputError(
                f"{path}: frames are {frame.image.shape[1]} x {frame.image.shape[0]} px but "
                f"camera.yaml says {camera.width} x {camera.height}; use the camera.yaml of this "
                "camera and resolution."
            )
        count += 1
        yield frame.time, frame.image
    if count == 0:
        raise InputError(f"{path}: the clip has no frame; film the push again.")


def clip_frames(
    path: Path,
    file: CameraFile,
    camera: WorldCamera,
    undistort: Undistortion,
    hidden: Callable[[float], NDArray[np.bool_] | None] = lambda time: None,
) -> Iterator[Frame]:
    """The frames of one static camera, ready to be tracked.

    `hidden` says for a time (s) which pixels (h, w) of the undistorted image the robot may hide.
    """
    for time, image in read_clip(path, file):
        rgb = undistort(image)
        yield Frame(time, (CameraFrame(camera, rgb, to_grey(rgb), ignore=hidden(time)),))


def rest_image(path: Path, camera: CameraFile, duration: float) -> RestImage:
    """Mean of the frames of the first `duration` s, in which nothing moves near the object."""
    total, count, start = np.zeros((camera.height, camera.width, 3)), 0, None
    for time, image in read_clip(path, camera):
        start = time if start is None else start
        if time - start > duration:
            break
        total += image
        count += 1
    return RestImage(np.asarray(np.clip(np.rint(total / count), 0, 255), np.uint8), count)


def locate_camera(
    images: dict[str, Image], camera: CameraFile, board: Board
) -> tuple[WorldCamera, float]:
    """Where the static camera stands, from the board in one image of each clip.

    All clips' tag corners go into one pose (Levenberg-Marquardt on the reprojection error).
    Returns the camera and the root mean square error in px.

    Raises:
        InputError: No tag is seen in a clip, or the clips disagree: the camera was moved.
    """
    points, pixels, owner = [], [], []
    for i, (name, image) in enumerate(images.items()):
        found = detect_tags(to_grey(image), board)
        on_board, seen = found.pairs(board)
        if len(seen) == 0:
            foreign = f"; {found.foreign} other tag(s) are in view" if found.foreign else ""
            raise InputError(
                f"{name}: no tag of board.yaml is seen in the first frames{foreign}. Film with the "
                f"board in view and unoccluded, and check its family ({board.family}) and ids."
            )
        points.append(on_board)
        pixels.append(seen)
        owner.append(np.full(len(seen), i))
    every, seen, who = np.concatenate(points), np.concatenate(pixels), np.concatenate(owner)
    k, pinhole = np.array(camera.distortion), matrix(camera.intrinsics)
    ok, rvec, tvec = cv2.solvePnP(every, seen, pinhole, k, flags=cv2.SOLVEPNP_IPPE)
    rvec, tvec = cv2.solvePnPRefineLM(every, seen, pinhole, k, rvec, tvec)
    shown = np.asarray(cv2.projectPoints(every, rvec, tvec, pinhole, k)[0]).reshape(-1, 2)
    error = np.linalg.norm(shown - seen, axis=1)
    for i, name in enumerate(images):
        worst = float(np.median(error[who == i]))
        if not ok or worst > 3.0:
            raise InputError(
                f"{name}: the board is {worst:.1f} px (median) off the camera pose of all clips, "
                "expected below 3 px. The camera or the board was moved between the pushes, or "
                "camera.yaml belongs to another camera; put such clips in a session of their own."
            )
    T_camera_board = np.eye(4)
    T_camera_board[:3, :3], T_camera_board[:3, 3] = cv2.Rodrigues(rvec)[0], np.ravel(tvec)
    T_camera_world = T_camera_board @ np.linalg.inv(board.T_world_board.matrix)
    rms = float(np.sqrt((error**2).mean()))
    return (
        WorldCamera(np.array(camera.intrinsics), T_camera_world, camera.width, camera.height),
        rms,
    )


def watched(
    frames: Iterable[Frame], model: ObjectModel, start: Start | None, knocks: list[float]
) -> Iterator[Frame]:
    """The frames of a static camera; times at which it was found moved are added to `knocks`.

    The object as it stands at the `start`, with as much room around it, is no background.
    """
    watch: CameraWatch | None = None
    run = 0
    for frame in frames:
        view = frame.cameras[0]
        if watch is None:
            exclude = np.zeros(view.grey.shape, np.bool_)
            if start is not None:
                margin = int(0.5 * view.camera.intrinsics[0] * model.shape.diameter)
                window = model.shape.window(view.camera, start.solution.pose, margin)
                if window is not None:
                    exclude[window[1] : window[3], window[0] : window[2]] = True
            watch = CameraWatch(view.grey, exclude)
        shift = watch.check(view.grey, view.ignore)
        run = run + 1 if shift.moved and shift.sure else 0
        if run == KNOCKED:
            knocks.append(frame.time)
        yield frame
