"""Open foreign video files safely, and list their frames with true time stamps.

A packet list costs no decoding, but is not trusted blindly: packets are matched against the first
decoded frames, and where they disagree every frame is decoded once for its stamp.
"""

from __future__ import annotations

import itertools
import warnings
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

from twinloop.capture.limits import MAX_PIXELS, check_size
from twinloop.capture.warning import CaptureWarning
from twinloop.errors import InputError

FORMATS = (
    "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpegts,mpeg,mpegvideo,h264,hevc,ivf,asf,flv,ogg,"
    "mjpeg,dv,yuv4mpegpipe,nut,mxf,wav"
)
"""Containers that are opened: playlists, which lead to other files, are not."""
SAMPLE_IN_ORDER, SAMPLE_REORDERED = 6, 16
"""First frames that are decoded to see whether packets are frames."""
SLACK = 0.5
"""How much earlier than the header says packets may end, s."""


@dataclass(frozen=True)
class Stamps:
    """The frames of a video in order of presentation."""

    times: NDArray[np.float64]
    """Time on the camera's clock (n,), s, strictly increasing; the start offset is kept."""
    ticks: NDArray[np.int64] | None
    """Presentation stamps (n,), time base of the stream; None where they cannot be used."""
    keys: NDArray[np.int64]
    """Presentation and decoding stamp of each frame at which decoding can start (k, 2)."""
    notes: tuple[str, ...]
    """What was worked around."""


@dataclass
class _Packets:
    """What the packets of a stream say, in the order of the file."""

    pts: array[int] = field(default_factory=lambda: array("q"))
    dts: array[int] = field(default_factory=lambda: array("q"))
    keys: list[tuple[int, int]] = field(default_factory=list)
    end: int = 0
    unstamped: bool = False
    undated: bool = False
    hidden: int = 0
    damaged: int = 0


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """Open a video for decoding; faults inside the block become errors that name the file.

    Raises:
        InputError: Missing, empty, truncated, no video stream, larger than ``MAX_PIXELS``, a
            playlist, or a name that is no UTF-8.
    """
    try:
        path.name.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(f"{str(path)!a}: the file's name is no UTF-8; rename it.") from error
    if not path.is_file():
        raise InputError(f"{path}: no such video file. Check the capture folder's layout.")
    size = path.stat().st_size
    if size == 0:
        raise InputError(f"{path}: the video has 0 bytes. Copy it again from the camera.")
    # The prefix keeps a name such as "concat:a" from being taken for a protocol.
    source = f"file:{path}"
    options = {"protocol_whitelist": "file", "format_whitelist": FORMATS}
    try:
        with av.open(source, options=options, metadata_errors="replace") as container:
            if not container.streams.video:
                raise InputError(
                    f"{path}: holds no video stream (streams: "
                    f"{[s.type for s in container.streams]}). Is it the right file?"
                )
            stream = container.streams.video[0]
            context = stream.codec_context
            if context is None:
                raise InputError(f"{path}: its video codec is not known; convert it to H.264.")
            check_size(path, context.width, context.height)
            context.options = {"max_pixels": str(MAX_PIXELS)}
            stream.thread_type = "AUTO"
            yield container
    except MemoryError as error:
        raise InputError(
            f"{path} ({size} bytes): its decoder wants more memory than there is. Is the picture "
            "larger than it says? Convert it to H.264 of at most 4K."
        ) from error
    except (av.error.FFmpegError, ValueError, OverflowError) as error:
        raise InputError(
            f"{path} ({size} bytes): cannot be decoded as video "
            f"({getattr(error, 'strerror', None) or error}). "
            "It is truncated or no video; copy it again from the camera."
        ) from error


def read_stamps(path: Path) -> Stamps:
    """List the frames of a video.

    Presentation stamps are used.  Where they do not increase (malformed files exist), decoding
    stamps are used instead and a :class:`CaptureWarning` says so.

    Raises:
        InputError: The file is truncated or unreadable, or neither kind of stamp increases.
    """
    with opened(path) as container:
        stream = container.streams.video[0]
        base = Fraction(stream.time_base)
        packets = _demux(path, container, stream)
    notes = []
    if packets.hidden:
        notes.append(f"{packets.hidden} packets outside the edit list (a trimmed clip) left out.")
    if packets.damaged:
        notes.append(f"{packets.damaged} of {len(packets.pts)} packets are damaged.")
    stamps = list(packets.pts)
    in_order = _faulty_steps(stamps) == 0
    count = SAMPLE_IN_ORDER if in_order else SAMPLE_REORDERED
    with opened(path) as container:
        sample = [f.pts for f in itertools.islice(container.decode(video=0), count)]
    if not sample:
        raise InputError(f"{path}: no frame can be decoded; the video is empty or truncated.")
    keys = np.array(sorted(packets.keys), np.int64).reshape(-1, 2)
    if not packets.unstamped and None not in sample:
        # Frames that need what lies before a cut cannot be decoded, and come first.
        ticks = np.sort(np.array([s for s in stamps if s >= sample[0]], np.int64))
        if ticks[: len(sample)].tolist() == sample and (np.diff(ticks) > 0).all():
            if len(ticks) < len(stamps):
                notes.append(f"{len(stamps) - len(ticks)} frames before the first key frame lost.")
            return Stamps(_seconds(ticks.tolist(), base), ticks, keys, tuple(notes))
    with opened(path) as container:
        presented = [frame.pts for frame in container.decode(video=0)]
    if _faulty_steps(presented) == 0:
        ticks = np.array(presented, np.int64)
        return Stamps(_seconds(presented, base), ticks, keys, tuple(notes))
    steps = f"{_faulty_steps(presented)} of {len(presented) - 1} presentation stamps"
    decoding = list(packets.dts)
    if not packets.undated and len(decoding) == len(presented) and _faulty_steps(decoding) == 0:
        note = f"{steps} do not increase; decoding stamps are used instead."
        warnings.warn(f"{path}: {note}", CaptureWarning, stacklevel=2)
        return Stamps(_seconds(decoding, base), None, keys, (*notes, note))
    raise InputError(
        f"{path}: {steps} do not increase, and decoding stamps do not either. Remux the file, for "
        "example with `ffmpeg -i in.mp4 -c copy out.mp4`."
    )


def _demux(path: Path, container: Any, stream: Any) -> _Packets:
    packets = _Packets()
    torn = False
    for packet in container.demux(stream):
        if not packet.size:
            continue
        torn = bool(packet.is_corrupt)
        packets.damaged += torn
        pts, dts = packet.pts, packet.dts
        if pts is not None:
            packets.end = max(packets.end, pts + (packet.duration or 0))
            if packet.is_keyframe:
                packets.keys.append((pts, pts if dts is None else dts))
        if packet.is_discard:
            packets.hidden += 1
            continue
        packets.unstamped |= pts is None
        packets.undated |= dts is None
        packets.pts.append(0 if pts is None else pts)
        packets.dts.append(0 if dts is None else dts)
    if not packets.pts:
        raise InputError(f"{path}: holds no video packets; the video is empty or truncated.")
    if torn:
        raise InputError(
            f"{path}: the last of {len(packets.pts)} packets is cut; the file is truncated. Copy "
            "it again from the camera."
        )
    if not packets.unstamped:
        _check_complete(path, container, stream, packets)
    return packets


def _check_complete(path: Path, container: Any, stream: Any, packets: _Packets) -> None:
    """Refuse a file whose packets end well before its header says."""
    if stream.duration is not None:
        end = float(((stream.start_time or 0) + stream.duration) * stream.time_base)
    elif container.duration is not None and len(container.streams) == 1:
        end = float((container.start_time or 0) + container.duration) / av.time_base
    else:
        return
    have = float(packets.end * stream.time_base)
    step = float(np.max(np.diff(np.sort(packets.pts)), initial=0) * stream.time_base)
    if end - have > max(SLACK, 0.05 * end, 2 * step):
        raise InputError(
            f"{path}: the header says {end:.2f} s, but packets end at {have:.2f} s "
            f"({len(packets.pts)} packets); the file is truncated. Copy it again from the camera."
        )


def _faulty_steps(stamps: Sequence[int | None]) -> int:
    pairs = itertools.pairwise(stamps)
    unknown = int(len(stamps) == 1 and stamps[0] is None)
    return unknown + sum(1 for a, b in pairs if a is None or b is None or b <= a)


def _seconds(stamps: Sequence[int], base: Fraction) -> NDArray[np.float64]:
    return np.array([float(s * base) for s in stamps], dtype=np.float64)
