"""Pictures of an image topic, decoded only when they are read."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from twinloop.capture.logs.joint_table import believed, ordering, seconds
from twinloop.capture.pictures import Picture
from twinloop.errors import InputError

Array = NDArray[np.float64]
Pixels = NDArray[np.uint8]

LARGEST = 100_000_000
"""Most pixels of a picture."""
CHANNELS = {
    "rgb8": (0, 1, 2),
    "bgr8": (2, 1, 0),
    "rgba8": (0, 1, 2),
    "bgra8": (2, 1, 0),
    "8UC3": (2, 1, 0),
    "mono8": (0, 0, 0),
    "8UC1": (0, 0, 0),
}
"""Place of red, green and blue in a pixel of 8-bit encodings; OpenCV's own order is blue first."""
WIDTHS = {"rgba8": 4, "bgra8": 4, "mono8": 1, "8UC1": 1}
"""Channels of those encodings that do not have three."""


@dataclass(frozen=True, slots=True)
class Picked:
    """What is kept of an image message in the first pass."""

    stamp: int
    """Header stamp, ns."""
    arrival: int
    """Arrival, ns."""
    width: int
    """Columns, px."""
    height: int
    """Rows, px."""

    @staticmethod
    def of(message: Any, stamp: int, arrival: int, where: str) -> Picked:
        """Read stamp and size of an Image or CompressedImage.

        Raises:
            InputError: The size is out of bounds, or a compressed picture has no readable header.
        """
        if hasattr(message, "encoding"):
            width, height = int(message.width), int(message.height)
        else:
            with _opened(message, where) as picture:
                width, height = picture.size
        if min(width, height) <= 0 or width * height > LARGEST:
            raise InputError(
                f"{where}: a picture of {width} x {height} px; at most {LARGEST} px are accepted."
            )
        return Picked(stamp, arrival, width, height)


def _opened(message: Any, where: str) -> Image.Image:
    said = str(message.format)
    if "compressedDepth" in said:
        raise InputError(f"{where}: holds a depth picture ({said!r}), no colours.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            return Image.open(io.BytesIO(_bytes(message.data)), formats=("JPEG", "PNG"))
    except (
        OSError,
        SyntaxError,
        ValueError,
        Image.DecompressionBombError,
        Image.DecompressionBombWarning,
    ) as error:
        raise InputError(
            f"{where}: a compressed picture (format {said!r}) cannot be opened as JPEG or PNG: "
            f"{error}."
        ) from error


def _bytes(data: Any) -> bytes:
    """The bytes of a message's field; a number, which ``bytes`` takes for a length, is refused."""
    if isinstance(data, (int, float, str)):
        raise TypeError(f"data is {data!r:.40}, expected bytes")
    return bytes(data)


def decode(message: Any, where: str) -> Pixels:
    """Pixels (height, width, 3) sRGB of an Image or CompressedImage.

    Raises:
        InputError: The encoding is no colour picture's, or the data do not fill the picture.
    """
    if not hasattr(message, "encoding"):
        with _opened(message, where) as picture:
            try:
                return np.asarray(picture.convert("RGB"), dtype=np.uint8)
            except (OSError, SyntaxError, ValueError) as error:
                raise InputError(f"{where}: the picture is damaged: {error}.") from error
    encoding = str(message.encoding)
    width, height, step = int(message.width), int(message.height), int(message.step)
    data = np.frombuffer(_bytes(message.data), dtype=np.uint8)
    deep = encoding == "mono16"
    if encoding not in CHANNELS and not deep:
        raise InputError(
            f"{where}: pictures are encoded as {encoding!r}; expected one of "
            f"{[*CHANNELS, 'mono16']}. Depth and raw sensor (Bayer, YUV) pictures are not read: "
            "record the rectified or colour topic."
        )
    channels = 2 if deep else WIDTHS.get(encoding, 3)
    if step < width * channels or len(data) != step * height:
        raise InputError(
            f"{where}: a {width} x {height} px picture as {encoding} with rows of {step} bytes "
            f"needs {step * height} bytes, the message has {len(data)}; truncated?"
        )
    rows = data.reshape(height, step)[:, : width * channels].reshape(height, width, channels)
    if deep:
        # The more significant byte is what an 8-bit camera would have said.
        return np.repeat(rows[..., 0 if message.is_bigendian else 1, None], 3, axis=2)
    return np.ascontiguousarray(rows[..., CHANNELS[encoding]])


@dataclass(frozen=True)
class ImageTopic:
    """Pictures of one topic; see :class:`twinloop.capture.pictures.Pictures`."""

    path: Path
    """The log file or bag."""
    topic: str
    """Topic."""
    times: Array
    """Header stamps (n,) s."""
    sizes: NDArray[np.int64]
    """Columns and rows (n, 2), px."""
    order: NDArray[np.intp]
    """Number of each picture's message on the topic (n,)."""
    messages: Callable[[], Iterator[Callable[[], Any]]]
    """Goes through the topic's messages once more, in file order; each decodes when called."""

    @staticmethod
    def of(
        path: Path,
        topic: str,
        picked: list[Picked],
        messages: Callable[[], Iterator[Callable[[], Any]]],
    ) -> ImageTopic:
        """Pictures of the messages ``picked`` in a first pass."""
        stamps = believed(path, topic, [p.stamp for p in picked], [p.arrival for p in picked])
        order = ordering(path, topic, stamps)
        sizes = np.array([(p.width, p.height) for p in picked], dtype=np.int64)
        return ImageTopic(path, topic, seconds(stamps[order]), sizes[order], order, messages)

    @property
    def names(self) -> tuple[str, ...]:
        """Topic and number of each picture."""
        return tuple(f"{self.topic} {k}" for k in range(len(self.times)))

    @property
    def focal_prior(self) -> Array:
        """NaN (n,): messages carry no focal length."""
        return np.full(len(self.times), np.nan)

    @property
    def notes(self) -> tuple[str, ...]:
        """Nothing is done to the pictures."""
        return ()

    def read(
        self,
        indices: Collection[int] | None = None,
        pixels: Literal["rgb", "grey"] = "rgb",
    ) -> Iterator[Picture]:
        """Decode pictures in order of their stamps; see ``Pictures.read``."""
        chosen = sorted(set(range(len(self.times)) if indices is None else indices))
        index_of = {int(self.order[index]): index for index in chosen}
        waiting: dict[int, Any] = {}
        due = iter(chosen)
        following = next(due, None)
        for number, message in enumerate(self.messages()):
            if number not in index_of:
                continue
            # Messages are out of order only by the few that are under way together.
            waiting[index_of[number]] = message
            while following is not None and following in waiting:
                yield self._picture(following, waiting.pop(following), pixels)
                following = next(due, None)
            if following is None:
                return

    def _picture(self, index: int, message: Callable[[], Any], pixels: str) -> Picture:
        where = f"{self.path}: {self.topic}: picture {index}"
        try:
            image = decode(message(), where)
        except InputError:
            raise
        except Exception as error:  # Decoders meet damaged bytes with errors of any kind.
            raise InputError(f"{where} cannot be decoded: {error}.") from error
        if pixels == "grey":
            image = np.asarray(Image.fromarray(image).convert("L"), dtype=np.uint8)
        return Picture(index, float(self.times[index]), image)
