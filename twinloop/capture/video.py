"""Read video files frame by frame with PyAV: true time stamps, pixels upright, colours sRGB.

Rules (each from a file that broke a reader): times are presentation stamps, never index / fps;
the start offset of the stream is kept, because it relates the camera to a robot log; the rotation
that phones store beside the stream is applied to the pixels; frame counts in headers are not
trusted; frames that an edit list hides stay hidden; HDR is tone-mapped; a truncated file is an
error and not a short video.
"""

from __future__ import annotations

import struct
import warnings
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import av
import numpy as np
from numpy.typing import NDArray

from twinloop.capture import hdr
from twinloop.capture.focal import focal_of_video
from twinloop.capture.limits import timed
from twinloop.capture.pictures import Picture
from twinloop.capture.video_file import Stamps, opened, read_stamps
from twinloop.capture.warning import CaptureWarning
from twinloop.errors import InputError

Array = NDArray[np.float64]

SEEK_GAP = 12
"""A jump over fewer frames than this is decoded through: seeking empties the decoder's threads."""


@dataclass(frozen=True)
class VideoInfo:
    """What the header of a video says, with the rotation applied."""

    width: int
    """Columns of the upright image, px."""
    height: int
    """Rows of the upright image, px."""
    rotation: int
    """Degrees counter-clockwise by which the stored pixels are turned: 0, 90, 180 or 270."""
    codec: str
    """Codec, for example "h264"."""
    transfer: int
    """FFmpeg's colour transfer number: 16 is PQ, 18 is HLG (both HDR), others are standard."""
    metadata: dict[str, str]
    """Tags of the container and of the stream, for example QuickTime's camera model."""
    interlaced: bool
    """Whether the first frame is made of two fields taken one after the other."""
    pixel_aspect: float
    """Width over height of a stored pixel."""


def probe_video(path: Path) -> VideoInfo:
    """Read size, rotation and tags of a video.

    Raises:
        InputError: The file is missing, empty, truncated, or holds no video.
    """
    with opened(path) as container:
        stream = container.streams.video[0]
        first = next(container.decode(stream), None)
        if first is None:
            raise InputError(f"{path}: no frame can be decoded; the video is empty or truncated.")
        _check_not_mirrored(first, path)
        rotation = _rotation(first, path)
        width, height = first.width, first.height
        if rotation in (90, 270):
            width, height = height, width
        tags = {**container.metadata, **stream.metadata}
        return VideoInfo(
            width=width,
            height=height,
            rotation=rotation,
            codec=stream.codec_context.name,
            transfer=int(first.color_trc),
            metadata={str(k): str(v) for k, v in tags.items()},
            interlaced=bool(first.interlaced_frame),
            pixel_aspect=float(stream.sample_aspect_ratio or 1),
        )


class Video:
    """The frames of a video file; implements :class:`~twinloop.capture.pictures.Pictures`.

    Reading sparse frames seeks to the key frame before each instead of decoding all.
    """

    def __init__(self, path: Path) -> None:
        """List the frames; none is held.

        Raises:
            InputError: Missing, empty, truncated, no video, or without usable time stamps.
        """
        self._path = path
        self.info = probe_video(path)
        self._stamps = read_stamps(path)

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    @property
    def times(self) -> Array:
        """Presentation time of every frame (n,) s, strictly increasing, start offset kept."""
        return self._stamps.times

    @property
    def names(self) -> tuple[str, ...]:
        """Frames are called "frame 0", "frame 1" and so on (n,)."""
        return tuple(f"frame {i}" for i in range(len(self.times)))

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Columns and rows of every upright frame (n, 2), px."""
        size = np.array([self.info.width, self.info.height], np.int64)
        return np.broadcast_to(size, (len(self.times), 2))

    @property
    def focal_prior(self) -> Array:
        """Focal length by the phone's tags (n,) px; NaN where unknown."""
        focal = focal_of_video(self.info.metadata, self.info.width, self.info.height)
        return np.full(len(self.times), focal)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was worked around or done to the frames."""
        info = self.info
        notes = list(self._stamps.notes)
        if info.rotation:
            notes.append(f"Turned by {info.rotation} deg, as the rotation tag says.")
        if info.transfer in hdr.NAMES:
            notes.append(f"Tone-mapped from {hdr.NAMES[info.transfer]} (HDR) to sRGB.")
        if info.interlaced:
            notes.append("Interlaced: both fields are kept as one frame, moving edges are combed.")
        if abs(info.pixel_aspect - 1) > 1e-3:
            notes.append(f"Pixels are not square ({info.pixel_aspect:.3f} as wide as high).")
        if self.times[0] > 0.05:
            notes.append(f"Starts at {self.times[0]:.3f} s; the offset is kept.")
        return tuple(notes)

    def read(
        self,
        indices: Collection[int] | None = None,
        pixels: Literal["rgb", "grey"] = "rgb",
    ) -> Iterator[Picture]:
        """Decode frames in order, one in memory at a time.

        Args:
            indices: Frames to decode; None for all.
            pixels: "rgb", or "grey" (cheaper).

        Raises:
            InputError: A frame does not exist or cannot be decoded, or takes too long; names it.
        """
        count = len(self.times)
        wanted = range(count) if indices is None else sorted({int(i) for i in indices})
        if not wanted:
            return
        if wanted[0] < 0 or wanted[-1] >= count:
            outside = wanted[0] if wanted[0] < 0 else wanted[-1]
            raise InputError(f"{self.path}: holds frames 0 to {count - 1}, not {outside}.")
        tone = hdr.ToneMapper(self.info.transfer) if self.info.transfer in hdr.NAMES else None
        warned = False
        for index, frame in timed(_frames(self.path, self._stamps, wanted), self.path):
            if frame.is_corrupt and not warned:
                warned = True
                warnings.warn(
                    f"{self.path}: frame {index} is damaged; what it shows may be wrong.",
                    CaptureWarning,
                    stacklevel=2,
                )
            image = self._upright(index, frame, pixels, tone)
            yield Picture(index, float(self.times[index]), image)

    def _upright(
        self,
        index: int,
        frame: Any,
        pixels: Literal["rgb", "grey"],
        tone: hdr.ToneMapper | None,
    ) -> NDArray[np.uint8]:
        rotation = _rotation(frame, self.path)
        size = (frame.width, frame.height)
        size = size[::-1] if rotation in (90, 270) else size
        if size != (self.info.width, self.info.height):
            raise InputError(
                f"{self.path}: frame {index} has {size[0]} x {size[1]} px, the first has "
                f"{self.info.width} x {self.info.height}. Split the video where its size changes."
            )
        try:
            if tone is not None:
                image = tone.rgb(frame) if pixels == "rgb" else tone.grey(frame)
            else:
                image = frame.to_ndarray(format="rgb24" if pixels == "rgb" else "gray")
        except (av.error.FFmpegError, ValueError) as error:
            raise InputError(
                f"{self.path}: frame {index}: pixels stored as {frame.format.name} cannot be "
                f"converted ({error}). Convert the video to 8-bit H.264."
            ) from error
        return np.ascontiguousarray(np.rot90(image, rotation // 90))


def frame_times(path: Path) -> Array:
    """Return the time of every frame, (n,) s, strictly increasing, on the camera's clock.

    Presentation stamps are used.  Where they do not increase (malformed files exist), decoding
    stamps are used instead and a :class:`CaptureWarning` says so.

    Raises:
        InputError: The file is truncated or unreadable, or neither kind of stamp increases.
    """
    return read_stamps(path).times


def read_video(
    path: Path,
    *,
    indices: Collection[int] | None = None,
    pixels: Literal["rgb", "grey"] = "rgb",
    times: Array | None = None,
) -> Iterator[Picture]:
    """Decode frames of a video in order, as :meth:`Video.read` does.

    Args:
        path: The video.
        indices: Frames to decode; None for all.
        pixels: "rgb" or "grey".
        times: Time of every frame (n,) s to give out; None for the file's own.

    Raises:
        InputError: The file is missing, truncated, or has no usable time stamps, or ``times`` are
            those of another video.
    """
    video = Video(path)
    if times is not None and len(times) != len(video.times):
        raise InputError(f"{path}: holds {len(video.times)} frames, {len(times)} times are given.")
    for picture in video.read(indices, pixels):
        time = picture.time if times is None else float(times[picture.index])
        yield Picture(picture.index, time, picture.image)


def rotate_camera(
    intrinsics: NDArray[np.float64],
    distortion: NDArray[np.float64],
    width: int,
    height: int,
    rotation: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64], int, int]:
    """Turn a camera model together with its pixels.

    Args:
        intrinsics: (4,) fx, fy, cx, cy of the stored (unturned) image, px.
        distortion: (5,) k1, k2, p1, p2, k3 of OpenCV's model.
        width: Columns of the stored image, px.
        height: Rows of the stored image, px.
        rotation: Degrees counter-clockwise that the pixels are turned (``VideoInfo.rotation``).

    Returns:
        Intrinsics, distortion, width and height of the turned image.  One quarter turn maps pixel
        (u, v) to (v, width - 1 - u), hence x' = y, y' = -x and p1' = -p2, p2' = p1.
    """
    fx, fy, cx, cy = (float(v) for v in intrinsics)
    k1, k2, p1, p2, k3 = (float(v) for v in distortion)
    for _ in range(rotation // 90 % 4):
        fx, fy, cx, cy = fy, fx, cy, width - 1 - cx
        p1, p2 = -p2, p1
        width, height = height, width
    return np.array([fx, fy, cx, cy]), np.array([k1, k2, p1, p2, k3]), width, height


def _frames(path: Path, stamps: Stamps, wanted: Sequence[int]) -> Iterator[tuple[int, Any]]:
    """Yield the wanted frames (increasing numbers), each once, decoded where seeking is enough."""
    if stamps.ticks is None:
        yield from _counted(path, wanted, len(stamps.times))
        return
    done = 0
    for keys in (stamps.keys, stamps.keys[:0]):
        # Where seeking misses a frame, the rest is found by decoding from the start.
        for index, frame in _matched(path, stamps.ticks, keys, wanted[done:]):
            done += 1
            yield index, frame
        if done == len(wanted):
            return
    missing = wanted[done]
    raise InputError(
        f"{path}: frame {missing} of {len(stamps.times)} (at {stamps.times[missing]:.3f} s) cannot "
        "be decoded; the file is damaged. Copy it again from the camera."
    )


def _matched(
    path: Path, ticks: NDArray[np.int64], keys: NDArray[np.int64], wanted: Sequence[int]
) -> Iterator[tuple[int, Any]]:
    """Yield frames by their stamps, jumping to key frames; stops at one that does not come."""
    first = np.searchsorted(ticks, keys[:, 0])
    with opened(path) as container:
        stream = container.streams.video[0]
        frames = container.decode(stream)
        at = -1
        for index in wanted:
            key = int(np.searchsorted(keys[:, 0], ticks[index], side="right")) - 1
            if key >= 0 and first[key] - at > SEEK_GAP:
                try:
                    container.seek(int(keys[key, 1]), stream=stream)
                except av.error.FFmpegError:
                    return
                frames = container.decode(stream)
            try:
                frame = next((f for f in frames if f.pts is None or f.pts >= ticks[index]), None)
            except av.error.FFmpegError as error:
                raise InputError(
                    f"{path}: frame {index} of {len(ticks)} cannot be decoded, or one that it "
                    f"needs ({error.strerror}); the file is damaged. Copy it again from the camera."
                ) from error
            if frame is None or frame.pts != ticks[index]:
                return
            at = index
            yield index, frame


def _counted(path: Path, wanted: Sequence[int], count: int) -> Iterator[tuple[int, Any]]:
    """Yield frames by their order, for files whose stamps name no frame."""
    left = list(reversed(wanted))
    with opened(path) as container:
        for index, frame in enumerate(container.decode(video=0)):
            if left and index == left[-1]:
                yield left.pop(), frame
            if not left:
                return
    raise InputError(
        f"{path}: frame {left[-1]} of {count} cannot be decoded; the file is damaged. Copy it "
        "again from the camera."
    )


def _rotation(frame: Any, path: Path) -> int:
    """Quarter turns of the display matrix, degrees counter-clockwise."""
    rotation = int(frame.rotation) % 360
    if rotation % 90:
        raise InputError(
            f"{path}: rotation metadata is {rotation} deg; only multiples of 90 are understood."
        )
    return rotation


def _check_not_mirrored(frame: Any, path: Path) -> None:
    """Refuse a display matrix that is no rotation.

    For the first frame alone: PyAV keeps a frame whose side data were looked at until the garbage
    collector finds it, and memory must not grow with the video.
    """
    matrix = frame.side_data.get("DISPLAYMATRIX")
    if matrix is not None and len(bytes(matrix)) == 36:
        a, b, _, c, d, *_ = struct.unpack("<9i", bytes(matrix))
        if a * d - b * c < 0:
            raise InputError(
                f"{path}: its display matrix mirrors the picture, and a mirrored world has no "
                "geometry. Turn mirroring off (front cameras) and film again."
            )
