"""A video of all frames with the object shaded, for the eye: a mask that is wrong stands out."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path

import av
import cv2
import numpy as np
from numpy.typing import NDArray

from twinloop.capture.mask_quality import DROP
from twinloop.errors import InputError
from twinloop.progress import track

Array = NDArray[np.float64]
Image = NDArray[np.uint8]

SHADE = (255, 120, 0)
"""Colour over the object, RGB."""
OUTLINE = (255, 255, 255)
BAD = (220, 20, 40)
"""Frame around, and bar of, a picture of low quality, RGB."""
LARGEST_SIDE = 400
"""Longer side of the video, px."""
RATE = 8
"""Pictures per second: slow enough to look at each."""


def write_overlay(
    path: Path,
    images: Iterable[Image],
    masks: Iterable[Image],
    quality: Array,
    *,
    drop: float = DROP,
) -> None:
    """Write an mp4 (H.264, yuv420p), the same bytes for the same pictures.

    Args:
        path: File to write.
        images: RGB (y, x, 3) of one size; taken one at a time.
        masks: (y, x), non-zero on the object.
        quality: (frame,) 0 to 1; shown as a bar at the lower edge.
        drop: Quality below which a picture gets a red border.

    Raises:
        InputError: There are no pictures, or they differ in size, number or from their masks.
    """
    fresh = path.with_name(path.name + ".part")
    try:
        count = _encode(fresh, path, images, masks, quality, drop)
        if count == 0:
            raise InputError(f"{path}: an overlay video needs at least one picture; got none.")
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


def shade(image: Image, mask: Image, quality: float, *, drop: float = DROP) -> Image:
    """Draw one picture (rows, columns, 3) of even size at most :data:`LARGEST_SIDE` px.

    Args:
        image: RGB (y, x, 3).
        mask: (y, x), non-zero on the object.
        quality: 0 to 1.
        drop: Quality below which it gets a red border.
    """
    height, width = image.shape[:2]
    scale = min(1.0, LARGEST_SIDE / max(height, width))
    columns, rows = (max(2, round(s * scale) // 2 * 2) for s in (width, height))
    small = cv2.resize(image, (columns, rows), interpolation=cv2.INTER_AREA).astype(np.float32)
    white = np.where(mask > 0, 255, 0).astype(np.uint8)
    cover = cv2.resize(white, (columns, rows), interpolation=cv2.INTER_AREA)
    alpha = 0.45 * cover[..., None].astype(np.float32) / 255
    # What is not object is darkened, so that holes and overhangs show on any colour.
    drawn = small * (0.6 + 0.4 * cover[..., None] / 255) * (1 - alpha) + alpha * np.array(
        SHADE, np.float32
    )
    result = np.asarray(np.rint(drawn).clip(0, 255), np.uint8)
    outline, _ = cv2.findContours(
        np.where(cover > 127, 255, 0).astype(np.uint8), cv2.RETR_LIST, cv2.CHAIN_APPROX_NONE
    )
    cv2.drawContours(result, outline, -1, OUTLINE, 1)
    low = not quality >= drop
    bar = max(2, rows // 60)
    filled = round(columns * float(np.clip(np.nan_to_num(quality), 0, 1)))
    result[-bar:] = 40
    result[-bar:, :filled] = BAD if low else (60, 180, 80)
    if low:
        edge = max(2, min(rows, columns) // 50)
        result[:edge] = result[-edge:] = BAD
        result[:, :edge] = result[:, -edge:] = BAD
    return result


def _encode(
    fresh: Path,
    path: Path,
    images: Iterable[Image],
    masks: Iterable[Image],
    quality: Array,
    drop: float,
) -> int:
    """Encode to ``fresh``; returns the number of pictures."""
    count, shape = 0, None
    with av.open(str(fresh), "w", format="mp4", options={"fflags": "+bitexact"}) as container:
        stream = container.add_stream("libx264", rate=RATE)
        stream.codec_context.thread_count = 1
        stream.codec_context.time_base = Fraction(1, RATE)
        stream.pix_fmt = "yuv420p"
        # x264's adaptive choice of B frames gave other bytes from run to run.
        x264 = "threads=1:bframes=0:rc-lookahead=0:mbtree=0"
        stream.options = {"crf": "27", "preset": "medium", "x264-params": x264}
        pictures = zip(images, masks, np.asarray(quality, np.float64), strict=True)
        try:
            for image, mask, value in track(pictures, "draw masks", total=len(quality)):
                if shape is None:
                    shape = image.shape
                if image.shape != shape or mask.shape != shape[:2]:
                    raise InputError(
                        f"{path}: picture {count} is {image.shape} with a mask {mask.shape}, the "
                        f"first one was {shape}; pictures of one size are expected."
                    )
                drawn = shade(image, mask, float(value), drop=drop)
                if not count:
                    stream.height, stream.width = drawn.shape[:2]
                frame = av.VideoFrame.from_ndarray(drawn, format="rgb24")
                frame.pts, frame.time_base = count, Fraction(1, RATE)
                container.mux(stream.encode(frame))
                count += 1
        except ValueError as error:
            raise InputError(
                f"{path}: {len(quality)} qualities do not fit the number of pictures and masks."
            ) from error
        if count:
            container.mux(stream.encode())
    return count
