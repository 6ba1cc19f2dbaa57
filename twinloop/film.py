"""Writing of mp4 files: own time stamps, rotation metadata as a phone leaves it, same bytes.

Determinism: one encoder thread, no decisions of x264 that vary from run to run, and no creation
time, so the bytes depend on the frames alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray

from twinloop.errors import InputError

TIME_BASE = Fraction(1, 90000)


def write_video(
    path: Path,
    frames: Iterable[NDArray[np.uint8]],
    times: Iterable[float],
    *,
    rate: float,
    rotation: int = 0,
    crf: int = 12,
) -> int:
    """Write RGB frames (h,w,3) with presentation times (s, increasing); returns their number.

    ``rotation`` is the turn, in degrees counter-clockwise, that a viewer must apply to the STORED
    frames (PyAV's ``frame.rotation``); frames given here are upright and are stored turned back.
    ``rate`` is nominal (metadata, and the length of the last frame). Height and width must be even.
    Raises InputError where times do not increase, or frames differ in size or are odd.
    """
    if rotation % 90:
        raise InputError(f"{path}: rotation {rotation} is not a multiple of 90 degrees")
    count, last, shape = 0, None, None
    with av.open(str(path), "w", format="mp4", options={"fflags": "+bitexact"}) as container:
        stream = container.add_stream("libx264", rate=Fraction(rate).limit_denominator(1000))
        stream.codec_context.thread_count = 1
        stream.codec_context.time_base = TIME_BASE
        stream.time_base = TIME_BASE
        stream.pix_fmt = "yuv420p"
        # With adaptive B frames or its macroblock tree x264 gives other bytes from run to run.
        x264 = "threads=1:b-adapt=0:mbtree=0"
        stream.options = {"crf": str(crf), "preset": "veryfast", "x264-params": x264}
        if rotation % 360:
            stream.set_display_rotation(float(rotation))
        for image, time in zip(frames, times, strict=True):
            stored = np.ascontiguousarray(np.rot90(image, -(rotation // 90)))
            if shape is None:
                shape = stored.shape
                if shape[0] % 2 or shape[1] % 2:
                    raise InputError(f"{path}: frame size {shape[1]}x{shape[0]} must be even")
                stream.height, stream.width = shape[:2]
            if stored.shape != shape:
                raise InputError(f"{path}: frame {count} is {stored.shape}, the first was {shape}")
            stamp = round(time / TIME_BASE)
            if last is not None and stamp <= last:
                raise InputError(f"{path}: time of frame {count} ({time} s) does not increase")
            frame = av.VideoFrame.from_ndarray(stored, format="rgb24")
            frame.pts, frame.time_base = stamp, TIME_BASE
            for packet in stream.encode(frame):
                container.mux(packet)
            last = stamp
            count += 1
        for packet in stream.encode():
            container.mux(packet)
    return count
