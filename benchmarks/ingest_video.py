"""Figures of video in ingest: speed on 4K 10-bit HLG beside OpenCV 5, memory over length.

`python -m benchmarks.ingest_video PATH` surveys a video and prints the peak of its memory; the
figures run it in processes of its own.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import av
import cv2
import numpy as np

from benchmarks.rows import Figure
from twinloop.capture.select import sharpness, shrink
from twinloop.capture.survey import survey
from twinloop.capture.video import Video

GROUP = 12
"""Frames that are encoded; longer videos repeat their packets."""


def write_clip(
    path: Path,
    groups: int,
    *,
    width: int,
    height: int,
    codec: str,
    pixels: str,
    options: dict[str, str],
    hdr: bool,
) -> None:
    """Write a moving, textured clip of ``groups * GROUP`` frames at 30 Hz."""
    rng = np.random.default_rng(0)
    coarse = rng.uniform(0.15, 0.7, (height // 24, width // 24, 3)).astype(np.float32)
    world = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)
    world += rng.normal(0, 0.01, (height, width, 1)).astype(np.float32)
    scaled = (np.clip(world, 0, 1) * 65535).astype(np.uint16)
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=30)
        stream.width, stream.height, stream.pix_fmt = width, height, pixels
        stream.options = options
        if hdr:
            context = stream.codec_context
            context.color_trc, context.color_primaries = 18, 9
            context.colorspace, context.color_range = 9, 1
        packets = []
        for i in range(GROUP):
            moved = np.ascontiguousarray(np.roll(scaled, (2 * i, 5 * i), axis=(0, 1)))
            frame = av.VideoFrame.from_ndarray(moved, format="rgb48le")
            frame = frame.reformat(format=pixels, dst_colorspace=9 if hdr else 1)
            frame.pts, frame.time_base = i, Fraction(1, 30)
            packets += stream.encode(frame)
        packets += stream.encode()
        step = packets[0].duration or round(Fraction(1, 30) / packets[0].time_base)
        stamps = [(p.pts, p.dts) for p in packets]
        for group in range(groups):
            for packet, (pts, dts) in zip(packets, stamps, strict=True):
                packet.pts = pts + group * GROUP * step
                packet.dts = dts + group * GROUP * step
                # The muxer takes the packet's content away: it is given a copy.
                copy = av.Packet(bytes(packet))
                copy.pts, copy.dts, copy.time_base = packet.pts, packet.dts, packet.time_base
                copy.stream, copy.is_keyframe = stream, packet.is_keyframe
                container.mux(copy)


def decode() -> list[Figure]:
    """4K 10-bit HLG as the survey and the photogrammetry read it, beside cv2.VideoCapture."""
    repeats = 3
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "hlg.mp4"
        write_clip(
            path,
            3,
            width=3840,
            height=2160,
            codec="libx265",
            pixels="yuv420p10le",
            options={
                "preset": "ultrafast",
                "crf": "24",
                "x265-params": f"keyint={GROUP}:open-gop=0:log-level=none",
            },
            hdr=True,
        )
        times = np.array(
            [[_ours(path, "grey"), _ours(path, "rgb"), _opencv(path)] for _ in range(repeats)]
        )
    grey, rgb = times[:, 2] / times[:, 0], times[:, 2] / times[:, 1]
    peer = f"OpenCV {cv2.__version__}"
    return [
        Figure(
            "4K 10-bit HLG, rated for the survey (decode, tone map to grey, shrink), times as fast",
            float(np.median(grey)),
            "x",
            2.0,
            "higher",
            repeats,
            [float(grey.min()), float(grey.max())],
            peer=peer,
        ),
        Figure(
            "4K 10-bit HLG, in colour (decode, tone map, shrink to 1200 px), times as fast",
            float(np.median(rgb)),
            "x",
            None,
            "higher",
            repeats,
            [float(rgb.min()), float(rgb.max())],
            peer=peer,
        ),
        Figure(
            "4K 10-bit HLG, rated for the survey, per frame",
            float(np.median(times[:, 0])),
            "s",
            None,
            "lower",
            repeats,
        ),
    ]


def memory() -> list[Figure]:
    """Peak memory of a process that surveys a video ten times as long, over that of the short."""
    with tempfile.TemporaryDirectory() as scratch:
        peaks = []
        for groups in (10, 100):
            path = Path(scratch) / f"{groups}.mp4"
            write_clip(
                path,
                groups,
                width=1280,
                height=720,
                codec="libx264",
                pixels="yuv420p",
                options={"preset": "veryfast", "x264-params": f"keyint={GROUP}:open-gop=0"},
                hdr=False,
            )
            command = [sys.executable, "-m", "benchmarks.ingest_video", str(path)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            peaks.append(float(done.stdout))
    return [
        Figure(
            "peak memory of the survey, video of 1200 frames over one of 120",
            peaks[1] / peaks[0],
            "x",
            1.1,
            "lower",
            2,
        ),
        Figure(
            "peak memory of the survey, 720p, 1200 frames",
            peaks[1] / 2**20,
            "MiB",
            None,
            "lower",
            1,
        ),
    ]


def _ours(path: Path, pixels: str) -> float:
    """Time per frame, s, opening and listing included."""
    started = time.perf_counter()
    video = Video(path)
    for picture in video.read(pixels="grey" if pixels == "grey" else "rgb"):
        small = shrink(picture.image, 480 if pixels == "grey" else 1200)
        if pixels == "grey":
            sharpness(small)
    return (time.perf_counter() - started) / len(video.times)


def _opencv(path: Path, most: int = GROUP) -> float:
    """Time per frame, s, of the same with OpenCV's reader, which gives grey only by way of BGR."""
    started = time.perf_counter()
    frames = 0
    for image in _captured(path, most):
        sharpness(shrink(np.asarray(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY), np.uint8), 480))
        frames += 1
    return (time.perf_counter() - started) / frames


def _captured(path: Path, most: int) -> Iterator[np.ndarray]:
    capture = cv2.VideoCapture(str(path))
    for _ in range(most):
        read, image = capture.read()
        if not read:
            break
        yield image
    capture.release()


def _peak() -> int:
    """Peak resident memory of this process, bytes.

    Of /proc, because getrusage counts what the parent had before it started this process.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024


if __name__ == "__main__":
    survey(Video(Path(sys.argv[1])))
    print(_peak())
