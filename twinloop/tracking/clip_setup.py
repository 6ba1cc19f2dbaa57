"""A single clip and what is known of its camera: files and numbers become a camera and a mask."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Picture
from PIL import UnidentifiedImageError
from pydantic import ValidationError

from twinloop.capture.board import Board, load_board
from twinloop.capture.camera_yaml import CameraFile, load_camera
from twinloop.capture.video import Video
from twinloop.errors import InputError
from twinloop.tracking.clip import locate_camera
from twinloop.tracking.clip_lens import MOST, lens_of_clip
from twinloop.tracking.solver import WorldCamera

Array = NDArray[np.float64]
Image = NDArray[np.uint8]
Mask = NDArray[np.bool_]
CameraLike = str | Path | CameraFile | Sequence[float]
LEAST_SIDE = 4
"""Narrowest box that may hold the object, px."""


@dataclass(frozen=True)
class ClipSetup:
    """A clip with its camera.

    lens: as filmed; camera: where it stands, undistorted; by the board the world's z = 0 is the
    table (`table`), without one the camera is the world; focal_std: relative, 0 for a lens that
    was given; notes: what a person should know.
    """

    video: Video
    lens: CameraFile
    camera: WorldCamera
    table: bool
    focal_std: float
    notes: tuple[str, ...]


def open_clip(path: Path, camera: CameraLike | None, board: str | Path | Board | None) -> ClipSetup:
    """Open a clip and find out where its camera stands.

    Args:
        path: The video.
        camera: camera.yaml, or fx, fy, cx, cy (px, no distortion); None: from the board.
        board: board.yaml: gives the table, gravity and the lens; None: the world is the camera.

    Raises:
        InputError: Unreadable files, no lens and none to be had, a lens of another picture size,
            or no board in the first picture.
    """
    video = Video(path)
    tags = board if board is None or isinstance(board, Board) else load_board(Path(board))
    notes: list[str] = []
    focal_std = 0.0
    if camera is None:
        lens, focal_std, how = _estimated(video, tags)
        notes.append(how)
    else:
        lens = _given(camera, video)
    size = (video.info.width, video.info.height)
    if (lens.width, lens.height) != size:
        raise InputError(
            f"{path}: frames are {size[0]} x {size[1]} px but the camera's are {lens.width} x "
            f"{lens.height} px; use the camera.yaml of this camera and resolution."
        )
    if tags is None:
        free = WorldCamera(np.array(lens.intrinsics), np.eye(4), lens.width, lens.height)
        return ClipSetup(video, lens, free, False, focal_std, tuple(notes))
    first = next(iter(video.read([0]))).image
    stands, _ = locate_camera({str(path): first}, lens, tags)
    return ClipSetup(video, lens, stands, True, focal_std, tuple(notes))


def _given(camera: CameraLike, video: Video) -> CameraFile:
    """The lens that the caller names."""
    if isinstance(camera, CameraFile):
        return camera
    if isinstance(camera, str | Path):
        return load_camera(Path(camera))
    numbers = tuple(float(v) for v in camera)
    if len(numbers) != 4:
        raise InputError(
            f"camera has {len(numbers)} numbers {numbers}; expected fx, fy, cx, cy in px, or the "
            "path of a camera.yaml."
        )
    try:
        return CameraFile(
            width=video.info.width,
            height=video.info.height,
            intrinsics=(numbers[0], numbers[1], numbers[2], numbers[3]),
        )
    except ValidationError as error:
        said = error.errors(include_url=False)[0]["msg"]
        raise InputError(f"camera {numbers}: {said}; expected fx, fy, cx, cy in px.") from error


def _estimated(video: Video, board: Board | None) -> tuple[CameraFile, float, str]:
    """Lens from the board in the clip, the focal length's relative deviation, and how."""
    hint = float(video.focal_prior[0])
    if board is None:
        tagged = f" (its tags say about {hint:.0f} px, which is too coarse)" if hint > 0 else ""
        raise InputError(
            f"{video.path}: the camera's intrinsics are not given{tagged}. Give the camera "
            "(camera.yaml, or fx, fy, cx, cy in px), or the board.yaml of a tag board that is in "
            "view: they are estimated from it. `twinloop board` prints one."
        )
    chosen = np.unique(np.linspace(0, len(video.times) - 1, MOST).round().astype(int))
    pictures = [np.asarray(p.image, np.uint8) for p in video.read(chosen.tolist(), "grey")]
    found = lens_of_clip(pictures, board, str(video.path), hint)
    intrinsics, bend = found.camera.intrinsics.tolist(), found.camera.distortion.tolist()
    lens = CameraFile(
        width=found.camera.width,
        height=found.camera.height,
        intrinsics=(intrinsics[0], intrinsics[1], intrinsics[2], intrinsics[3]),
        distortion=(bend[0], bend[1], bend[2], bend[3], bend[4]),
    )
    std = found.focal_std / intrinsics[0]
    return lens, std, f"intrinsics from {found.how}: focal length known to {100 * std:.1f} %"


def box_mask(box: Sequence[float], width: int, height: int) -> Mask:
    """Mask (h, w) of the box x, y, w, h (px, as filmed).

    Raises:
        InputError: Not four numbers, or not within the picture.
    """
    try:
        numbers = [float(v) for v in box]
    except (TypeError, ValueError):
        numbers = []
    if len(numbers) != 4 or not np.isfinite(numbers).all():
        raise InputError(f"box {box!r}: expected x, y, w, h in px.")
    x, y, w, h = numbers
    x0, y0 = max(round(x), 0), max(round(y), 0)
    x1, y1 = min(round(x + w), width), min(round(y + h), height)
    if x1 - x0 < LEAST_SIDE or y1 - y0 < LEAST_SIDE:
        raise InputError(
            f"box {x:g}, {y:g}, {w:g}, {h:g}: covers {max(x1 - x0, 0)} x {max(y1 - y0, 0)} px of "
            f"the picture of {width} x {height} px; expected x, y, w, h in px about the object in "
            "the first picture."
        )
    mask = np.zeros((height, width), bool)
    mask[y0:y1, x0:x1] = True
    return mask


def read_mask(path: Path, width: int, height: int) -> Mask:
    """Mask (h, w) from a picture of the clip's size, bright on the object.

    Raises:
        InputError: No picture, of another size, or none or all of it bright.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Picture.DecompressionBombWarning)
            with Picture.open(path, formats=("PNG", "BMP", "TIFF")) as picture:
                if picture.size != (width, height):
                    raise InputError(
                        f"{path}: has {picture.width} x {picture.height} px, the clip {width} x "
                        f"{height} px; expected the object's mask in the first picture."
                    )
                pixels = np.asarray(picture.convert("L"))
    except (
        OSError,
        UnidentifiedImageError,
        ValueError,
        SyntaxError,
        Picture.DecompressionBombError,
        Picture.DecompressionBombWarning,
    ) as error:
        raise InputError(f"{path}: cannot be read as a mask ({error}); expected a PNG.") from error
    mask: Mask = pixels > pixels.max() / 2
    if mask.sum() < LEAST_SIDE**2 or mask.all():
        raise InputError(
            f"{path}: {int(mask.sum())} of {mask.size} px are bright; expected the object bright "
            "and all else dark."
        )
    return mask
