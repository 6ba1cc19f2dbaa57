"""Small video files of every kind that phones, cameras and editors write, made with PyAV."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

BASE = Fraction(1, 600)
STEP = 20
"""Time base and length of a frame at 30 Hz, as QuickTime files have them."""
QUIET = {"libx265": {"x265-params": "log-level=none"}}


def level(index: int) -> int:
    """Grey level of frame ``index`` of a counted clip."""
    return 16 + 3 * index


def number(image: np.ndarray) -> int:
    """Number of a counted frame, from its pixels."""
    return round((float(image.mean()) - 16) / 3)


def write_counted(
    path: Path,
    frames: int = 60,
    *,
    codec: str = "libx264",
    pixels: str = "yuv420p",
    gop: int = 20,
    options: dict[str, str] | None = None,
    cut: int = 0,
    times: Sequence[float] | None = None,
    mux: dict[str, str] | None = None,
    tags: dict[str, str] | None = None,
    size: tuple[int, int] = (64, 48),
) -> None:
    """Write grey frames that count up; the first ``cut`` are hidden by an edit list."""
    mux = dict(mux or {})
    if cut:
        # What trimming without encoding again does: packets stay, an edit list hides them.
        mux |= {"use_editlist": "1", "avoid_negative_ts": "disabled"}
    with av.open(str(path), "w", options=mux) as container:
        container.metadata.update(tags or {})
        stream = container.add_stream(codec, rate=30)
        stream.width, stream.height, stream.pix_fmt = *size, pixels
        stream.time_base = stream.codec_context.time_base = BASE
        stream.codec_context.gop_size = gop
        fast = {"preset": "veryfast", "crf": "12"} if codec.startswith("libx26") else {}
        stream.options = {**fast, **QUIET.get(codec, {}), **(options or {})}
        packets = []
        for i in range(frames):
            image = np.full((size[1], size[0], 3), level(i), np.uint8)
            frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            frame.pts = i * STEP if times is None else round(times[i] / BASE)
            frame.time_base = BASE
            packets += stream.encode(frame)
        packets += stream.encode()
        for packet in packets:
            packet.pts -= cut * STEP
            packet.dts -= cut * STEP
            container.mux(packet)


def write_planes(
    path: Path,
    planes: Sequence[np.ndarray],
    *,
    pixels: str,
    matrix: int,
    full: bool,
    transfer: int = 1,
    primaries: int = 1,
    codec: str = "libx264",
) -> None:
    """Write one frame, losslessly, whose stored Y, U and V are given."""
    height, width = planes[0].shape
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=30)
        stream.width, stream.height, stream.pix_fmt = width, height, pixels
        lossless = {"x265-params": "lossless=1:bframes=0:log-level=none"}
        stream.options = lossless if codec == "libx265" else {"qp": "0"}
        frame = av.VideoFrame(width, height, pixels)
        for plane, values in zip(frame.planes, planes, strict=True):
            row = np.zeros((values.shape[0], plane.line_size), np.uint8)
            stored = np.ascontiguousarray(values).view(np.uint8)
            row[:, : stored.shape[1]] = stored
            plane.update(row.tobytes())
        for tagged in (stream.codec_context, frame):
            tagged.colorspace, tagged.color_range = matrix, 2 if full else 1
            tagged.color_trc, tagged.color_primaries = transfer, primaries
        frame.pts, frame.time_base = 0, Fraction(1, 30)
        for packet in [*stream.encode(frame), *stream.encode()]:
            container.mux(packet)
