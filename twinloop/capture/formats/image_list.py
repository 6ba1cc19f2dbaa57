"""Pictures that a format lists by name, decoded as the format's lenses and poses mean them.

COLMAP and nerfstudio calibrate the pixels as they are stored, whatever the orientation tag says.
Others write the size of the upright picture.  So the size that the format declares decides: a
picture is turned by its tag only when that alone makes it fit.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageCms, ImageOps

from twinloop.capture.files import inside
from twinloop.capture.pictures import Picture
from twinloop.capture.warning import CaptureWarning
from twinloop.errors import InputError

Array = NDArray[np.float64]
Size = tuple[int, int]

MOST_PIXELS = 2**27
"""Most pixels of a picture that is decoded; a header may claim anything."""
READ_BY_PIL = ("BMP", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""Formats that are opened: Pillow knows many more, some of which start other programs."""
_ORIENTATION = 0x0112
_SWAPS_SIDES = (5, 6, 7, 8)


@dataclass(frozen=True)
class _File:
    path: Path
    size: Size
    turned: bool


class ImageList:
    """Image files in a chosen order, as :class:`twinloop.capture.pictures.Pictures`."""

    def __init__(
        self,
        folder: Path,
        names: Sequence[str],
        declared: Sequence[Size | None] | None = None,
        times: Sequence[float] | None = None,
        notes: Sequence[str] = (),
        where: Path | None = None,
    ) -> None:
        """Look at the headers of the files.

        Args:
            folder: Folder that the names are relative to, and must not leave.
            names: File names (n,), sub-folders allowed, in order.
            declared: Columns and rows of each picture by the format (n,), None where it does not
                say; a picture is turned by its tag only when it fits this size only turned.
            times: Times (n,) s, strictly increasing; None for 0, 1, 2, ...
            notes: What the reader worked around, for the report.
            where: File that lists the names, for messages.

        Raises:
            InputError: A file is missing, no picture, too large, or a time is not later than the
                one before; names the file.
        """
        if not names:
            raise InputError(f"{where or folder}: lists no pictures; at least one is expected.")
        self._folder = folder
        self._names = tuple(names)
        sizes = declared if declared is not None else [None] * len(names)
        self._files = tuple(
            _look_at(inside(folder, name, where), size)
            for name, size in zip(names, sizes, strict=True)
        )
        self._times = np.asarray(range(len(names)) if times is None else times, dtype=np.float64)
        if self._times.shape != (len(names),):
            raise InputError(
                f"{where or folder}: {len(names)} pictures, {self._times.size} times; one time for "
                "each picture is expected."
            )
        late = ~(np.diff(self._times, prepend=-np.inf) > 0) | ~np.isfinite(self._times)
        if late.any():
            first = int(np.argmax(late))
            raise InputError(
                f"{where or folder}: picture {self._names[first]} has the time "
                f"{self._times[first]} s; times must be finite and increase from picture to "
                "picture. Sort the list by time."
            )
        turned = sum(file.turned for file in self._files)
        extra = (
            [f"{turned} of {len(names)} pictures were turned by their orientation tag."]
            if turned
            else []
        )
        self._notes = (*notes, *extra)

    @property
    def path(self) -> Path:
        """The folder."""
        return self._folder

    @property
    def times(self) -> Array:
        """Time of every picture (n,) s; its number where none was given."""
        return self._times

    @property
    def names(self) -> tuple[str, ...]:
        """File names relative to the folder (n,)."""
        return self._names

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Columns and rows of every picture (n, 2) as :meth:`read` gives it, px."""
        return np.array([file.size for file in self._files], dtype=np.int64)

    @property
    def focal_prior(self) -> Array:
        """NaN (n,): the format that lists the pictures says more about the lens than tags do."""
        return np.full(len(self._files), np.nan)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was worked around, one sentence each."""
        return self._notes

    def read(
        self,
        indices: Collection[int] | None = None,
        pixels: Literal["rgb", "grey"] = "rgb",
    ) -> Iterator[Picture]:
        """Decode pictures in order, one in memory at a time.

        Args:
            indices: Pictures to decode; None for all.
            pixels: "rgb" or "grey".

        Raises:
            InputError: A picture cannot be decoded; names it.
        """
        chosen = range(len(self._files)) if indices is None else sorted(set(indices))
        for index in chosen:
            file = self._files[index]
            image = decode(file.path, pixels, file.turned)
            if image.shape[1::-1] != file.size:
                raise InputError(
                    f"{file.path}: was {file.size[0]} x {file.size[1]} px when the capture was "
                    f"opened, is {image.shape[1]} x {image.shape[0]} px now; leave the files alone "
                    "while they are read."
                )
            yield Picture(index, float(self._times[index]), image)


def decode(
    path: Path, pixels: Literal["rgb", "grey"] = "rgb", turned: bool = False
) -> NDArray[np.uint8]:
    """Decode a picture to sRGB (rows, columns, 3) or grey (rows, columns).

    Args:
        path: The file.
        pixels: "rgb" or "grey".
        turned: Whether the orientation tag is applied.

    Raises:
        InputError: The file cannot be decoded, or is too large; names it.
    """
    with _opened(path) as image:
        upright = ImageOps.exif_transpose(image) if turned else image
        if upright.mode in ("I;16", "I;16L", "I;16B", "I;16N"):
            grey = np.asarray(upright, dtype=np.float64) / 257
            upright = Image.fromarray(np.rint(grey).astype(np.uint8))
        if upright.mode in ("I", "F"):
            raise InputError(
                f"{path}: holds numbers (mode {upright.mode}), not a picture; is it a depth map?"
            )
        colour = _to_srgb(upright, path)
        return np.array(colour.convert("L" if pixels == "grey" else "RGB"), dtype=np.uint8)


def read_numbers(path: Path) -> Array:
    """Read a picture of numbers (rows, columns), such as 16-bit depth, without conversion.

    Raises:
        InputError: The file cannot be decoded, is too large, or has several channels.
    """
    with _opened(path) as image:
        numbers = np.array(image, dtype=np.float64)
    if numbers.ndim != 2:
        raise InputError(f"{path}: has {numbers.shape[-1]} channels, one is expected.")
    return numbers


def _look_at(path: Path, declared: Size | None) -> _File:
    with _opened(path) as image:
        stored = image.size
        tag = image.getexif().get(_ORIENTATION, 1)
    upright = stored[::-1] if tag in _SWAPS_SIDES else stored
    turned = declared is not None and not same_shape(stored, declared)
    turned = turned and same_shape(upright, declared or stored)
    return _File(path, upright if turned else stored, turned)


def same_shape(size: Size, other: Size) -> bool:
    """Whether two sizes (columns, rows) have one aspect ratio, up to rounding to whole pixels."""
    (w, h), (v, k) = sorted([size, other])
    return abs(w * k - h * v) <= max(v, k)


@contextmanager
def _opened(path: Path) -> Iterator[Image.Image]:
    if not path.is_file():
        raise InputError(f"{path}: no such picture.")
    Image.init()  # without it, Pillow knows only some of the formats by name
    try:
        with warnings.catch_warnings():
            # The bound here takes the place of Pillow's warning.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(path, formats=READ_BY_PIL) as image:
                if image.width * image.height > MOST_PIXELS:
                    raise InputError(
                        f"{path}: claims {image.width} x {image.height} px, at most {MOST_PIXELS} "
                        "px are read. Make it smaller."
                    )
                yield image
    except InputError:
        raise
    except Exception as error:  # what plugins raise on cut or forged files has no common class
        size = path.stat().st_size
        raise InputError(
            f"{path}: cannot be decoded as a picture ({size} bytes; {error or type(error)}). Copy "
            f"it again, or save it as JPEG or PNG."
        ) from error


def _to_srgb(image: Image.Image, path: Path) -> Image.Image:
    """Apply an embedded colour profile: phones write Display P3."""
    profile = image.info.get("icc_profile")
    if not profile or image.mode not in ("RGB", "RGBA"):
        return image
    try:
        source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        if "srgb" in ImageCms.getProfileDescription(source).lower():
            return image
        converted = ImageCms.profileToProfile(
            image.convert("RGB"), source, ImageCms.createProfile("sRGB"), outputMode="RGB"
        )
    except (ImageCms.PyCMSError, OSError) as error:
        warnings.warn(
            f"{path}: its colour profile cannot be applied ({error}); taken as sRGB.",
            CaptureWarning,
            stacklevel=2,
        )
        return image
    return converted if converted is not None else image
