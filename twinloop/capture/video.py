"""Read video files frame by frame with PyAV: true time stamps, pixels upright.

Rules (each from a file that broke a reader): times are presentation stamps, never index / fps;
the start offset of the stream is kept, because it relates the camera to a robot log; the rotation
that phones store beside the stream is applied to the pixels; frame counts in headers are not
trusted; a truncated file is an error and not a short video.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import av
import numpy as np
from numpy.typing import NDArray

from twinloop.capture.warning import CaptureWarning
from twinloop.errors import InputError

MAX_PIXELS = 64_000_000
"""Largest frame that is decoded: a header may claim anything."""


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
    """Tags of the container, for example QuickTime's camera model."""


@dataclass(frozen=True)
class VideoFrame:
    """One decoded, upright frame."""

    index: int
    """Number of the frame in order of presentation, from 0."""
    time: float
    """Presentation time on the camera's clock, s; the stream's start offset is kept."""
    image: NDArray[np.uint8]
    """RGB (height, width, 3), or grey (height, width)."""


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    if not path.is_file():
        raise InputError(f"{path}: no such video file. Check the capture folder's layout.")
    size = path.stat().st_size
    if size == 0:
        raise InputError(f"{path}: the video has 0 bytes. Copy it again from the camera.")
    try:
        with av.open(str(path)) as container:
            if not container.streams.video:
                raise InputError(
                    f"{path}: holds no video stream (streams: "
                    f"{[s.type for s in container.streams]}). Is it the right file?"
                )
            stream = container.streams.video[0]
            pixels = stream.codec_context.width * stream.codec_context.height
            if not 0 < pixels <= MAX_PIXELS:
                raise InputError(
                    f"{path}: the header says {stream.codec_context.width} x "
                    f"{stream.codec_context.height} px; 1 to {MAX_PIXELS} pixels are accepted."
                )
            stream.thread_type = "AUTO"
            yield container
    except av.error.FFmpegError as error:
        raise InputError(
            f"{path} ({size} bytes): cannot be decoded as video ({error.strerror}). "
            "It is truncated or no video; copy it again from the camera."
        ) from error


def probe_video(path: Path) -> VideoInfo:
    """Read size, rotation and tags of a video.

    Raises:
        InputError: The file is missing, empty, truncated, or holds no video.
    """
    with _opened(path) as container:
        stream = container.streams.video[0]
        first = next(container.decode(stream), None)
        if first is None:
            raise InputError(f"{path}: no frame can be decoded; the video is empty or truncated.")
        rotation = _rotation(first, path)
        width, height = first.width, first.height
        if rotation in (90, 270):
            width, height = height, width
        return VideoInfo(
            width=width,
            height=height,
            rotation=rotation,
            codec=stream.codec_context.name,
            transfer=int(getattr(first, "color_trc", 2) or 2),
            metadata={str(k): str(v) for k, v in container.metadata.items()},
        )


def frame_times(path: Path) -> NDArray[np.float64]:
    """Return the time of every frame, (n,) s, strictly increasing, on the camera's clock.

    Presentation stamps are used.  Where they do not increase (malformed files exist), decoding
    stamps are used instead and a :class:`CaptureWarning` says so.

    Raises:
        InputError: The file is truncated or unreadable, or neither kind of stamp increases.
    """
    with _opened(path) as container:
        stream = container.streams.video[0]
        base = stream.time_base
        presentation: list[int | None] = []
        decoding: list[int | None] = []
        end = 0
        for packet in container.demux(stream):
            if packet.size:
                presentation.append(packet.pts)
                decoding.append(packet.dts)
                if packet.pts is not None:
                    end = max(end, packet.pts + (packet.duration or 0))
        _check_complete(path, stream, presentation, end)
        if None not in presentation and _increasing(presentation) and not _edited(stream):
            # No reordering: packets are frames, so nothing has to be decoded for the stamps.
            return _seconds(presentation, base)
    with _opened(path) as container:
        stream = container.streams.video[0]
        presentation = [frame.pts for frame in container.decode(stream)]
    if not presentation:
        raise InputError(f"{path}: no frame can be decoded; the video is empty or truncated.")
    if None not in presentation and _increasing(presentation):
        return _seconds(presentation, base)
    steps = _faulty_steps(presentation)
    if len(decoding) == len(presentation) and _increasing(decoding):
        warnings.warn(
            f"{path}: {steps} of {len(presentation) - 1} presentation stamps do not increase; "
            "decoding stamps are used instead.",
            CaptureWarning,
            stacklevel=2,
        )
        return _seconds(decoding, base)
    raise InputError(
        f"{path}: {steps} of {len(presentation) - 1} presentation stamps do not increase, and "
        "decoding stamps do not either. Remux the file, for example with "
        "`ffmpeg -i in.mp4 -c copy out.mp4`."
    )


def read_video(
    path: Path,
    *,
    indices: Collection[int] | None = None,
    pixels: Literal["rgb", "grey"] = "rgb",
    times: NDArray[np.float64] | None = None,
) -> Iterator[VideoFrame]:
    """Decode frames in order; only one is held in memory at a time.

    Args:
        path: The video.
        indices: Frames to convert and yield (all are decoded up to the last); None for all.
        pixels: "rgb" or "grey" (luma only, cheaper).
        times: What :func:`frame_times` returned, when it is known already.

    Raises:
        InputError: The file is missing, truncated, or has no usable time stamps.
    """
    times = frame_times(path) if times is None else times
    wanted = None if indices is None else frozenset(indices)
    last = len(times) - 1 if not wanted else max(wanted)
    if wanted is not None and not wanted:
        return
    with _opened(path) as container:
        stream = container.streams.video[0]
        for index, frame in enumerate(container.decode(stream)):
            if index >= len(times):
                raise InputError(f"{path}: more frames decode than the {len(times)} packets hold.")
            if wanted is None or index in wanted:
                image = frame.to_ndarray(format="rgb24" if pixels == "rgb" else "gray")
                turned = np.rot90(image, _rotation(frame, path) // 90)
                yield VideoFrame(index, float(times[index]), np.ascontiguousarray(turned))
            if index >= last:
                return
        raise InputError(
            f"{path}: only {index + 1} of {last + 1} frames can be decoded; the file is damaged. "
            "Copy it again from the camera."
        )


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


def _rotation(frame: Any, path: Path) -> int:
    rotation = int(frame.rotation) % 360
    if rotation % 90:
        raise InputError(
            f"{path}: rotation metadata is {rotation} deg; only multiples of 90 are understood."
        )
    return rotation


def _increasing(stamps: list[int | None]) -> bool:
    return _faulty_steps(stamps) == 0


def _faulty_steps(stamps: list[int | None]) -> int:
    pairs = itertools.pairwise(stamps)
    return sum(1 for a, b in pairs if a is None or b is None or b <= a)


def _seconds(stamps: list[int | None], base: Fraction) -> NDArray[np.float64]:
    return np.array([float(s * base) for s in stamps if s is not None], dtype=np.float64)


def _edited(stream: Any) -> bool:
    """Whether the container hides packets (edit list), so that packets are not frames."""
    return bool(stream.start_time is not None and stream.start_time < 0) or (
        stream.frames > 0
        and stream.duration is not None
        and stream.average_rate is not None
        and stream.duration * stream.time_base * stream.average_rate < stream.frames - 1.5
    )


def _check_complete(path: Path, stream: Any, stamps: list[int | None], last: int) -> None:
    """Refuse a file whose packets end well before its header says."""
    known = sorted(s for s in stamps if s is not None)
    if not known:
        raise InputError(f"{path}: holds no video packets; the video is empty or truncated.")
    if stream.duration is None:
        return
    end = float(((stream.start_time or 0) + stream.duration) * stream.time_base)
    have = float(last * stream.time_base)
    step = float(np.max(np.diff(known), initial=0) * stream.time_base)
    if end - have > max(0.5, 0.05 * end, 2 * step):
        raise InputError(
            f"{path}: the header says {end:.2f} s, but packets end at {have:.2f} s "
            f"({len(known)} packets); the file is truncated. Copy it again from the camera."
        )
