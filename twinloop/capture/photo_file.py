"""Open one foreign photo safely: is it whole, which way is up, what do its tags say.

Completeness is judged by the structure of the file, which costs no decoding; what the structure
hides comes out when the pixels are decoded.
"""

from __future__ import annotations

import mmap
import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from PIL import Image

from twinloop.capture.limits import check_size
from twinloop.errors import InputError
from twinloop.extras import require

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff", ".bmp", ".heic", ".heif")
"""Lower-case suffixes of photos."""
FORMATS = ("JPEG", "PNG", "WEBP", "TIFF", "BMP", "DIB")
"""Decoders that are tried: Pillow knows more, some of which start programs."""
FAULTS = (
    OSError,
    SyntaxError,
    ValueError,
    ArithmeticError,
    EOFError,
    LookupError,
    TypeError,
    RuntimeError,
    struct.error,
    Image.DecompressionBombError,
)
"""What decoders raise on damaged files."""
TAG_EXIF, TAG_ORIENTATION, TAG_TAKEN, TAG_FRACTION = 0x8769, 0x0112, 36867, 37521
"""EXIF: pointer to the Exif part, Orientation, DateTimeOriginal, SubSecTimeOriginal."""
COPY = "copy it again from the camera"


@contextmanager
def opened_photo(path: Path) -> Iterator[Image.Image]:
    """Open a photo; its header is read, and faults inside the block name the file.

    Raises:
        InputError: Missing, empty, no photo, damaged, or of more than ``MAX_PIXELS``.
        MachineError: HEIC without the package that reads it.
    """
    reader: Any = Image.open
    options: dict[str, Any] = {"formats": FORMATS}
    try:
        if not path.is_file():
            raise InputError(f"{path}: no such photo. Check the capture folder's layout.")
        if path.stat().st_size == 0:
            raise InputError(f"{path}: the photo has 0 bytes; {COPY}.")
        # By content: phones send HEIC under the name of a JPEG, and the other way round.
        with path.open("rb") as file:
            if file.read(12)[4:8] == b"ftyp":
                plugin = require("pillow_heif.as_plugin", "photos", "photos in HEIC")
                reader, options = plugin.HeifImageFile, {}
        with warnings.catch_warnings():
            # Sizes are bounded below, and what decoders remark on damaged tags is no news.
            warnings.simplefilter("ignore")
            with reader(path, **options) as image:
                check_size(path, *image.size)
                yield image
    except Image.DecompressionBombError as error:
        raise InputError(f"{path}: {error} Photos of at most 64 megapixels are read.") from error
    except FAULTS as error:
        raise InputError(f"{path}: cannot be decoded as photo ({error}); {COPY}.") from error


def try_photo(path: Path, pixels: bool) -> None:
    """Decode a photo to see whether the decoder survives; plain damage is no matter.

    Raises:
        MachineError: HEIC without the package that reads it.
    """
    try:
        with opened_photo(path) as image:
            if pixels:
                image.load()
    except InputError:
        return


def check_whole(path: Path, image: Image.Image) -> None:
    """Refuse a file that ends before its structure says.

    Raises:
        InputError: The file is truncated.
    """
    checks = {
        "JPEG": _jpeg_ends,
        "MPO": _jpeg_ends,
        "PNG": _png_ends,
        "WEBP": _webp_ends,
        "BMP": _bmp_ends,
        "HEIF": _boxes_end,
    }
    size = path.stat().st_size
    with path.open("rb") as file:
        if image.format == "TIFF":
            whole = _tiff_ends(image, size)
        else:
            whole = checks[image.format](file, size) if image.format in checks else True
    if not whole:
        raise InputError(f"{path} ({size} bytes): the photo is truncated; {COPY}.")


def upright_size(image: Image.Image, orientation: int) -> tuple[int, int]:
    """Columns and rows after turning, px."""
    width, height = image.size
    return (height, width) if orientation >= 5 else (width, height)


def tags(image: Image.Image) -> tuple[int, dict[int, Any]]:
    """Orientation (1 to 8) and the tags of the Exif part; damaged tags count as absent."""
    try:
        exif = image.getexif()
        orientation = exif.get(TAG_ORIENTATION, 1)
        part = dict(exif.get_ifd(TAG_EXIF))
    except FAULTS:
        return 1, {}
    known = isinstance(orientation, int) and 1 <= orientation <= 8
    return (orientation if known else 1), part


def time_taken(part: dict[int, Any]) -> float | None:
    """Time by the camera's calendar, s since 1970 as if it were UTC; None where unknown."""
    try:
        taken = datetime.strptime(str(part[TAG_TAKEN]).strip("\0 "), "%Y:%m:%d %H:%M:%S")
    except (KeyError, ValueError):
        return None
    digits = str(part.get(TAG_FRACTION, "")).strip("\0 ")
    fraction = float(f"0.{digits}") if digits.isascii() and digits.isdigit() else 0.0
    return taken.replace(tzinfo=UTC).timestamp() + fraction


def _jpeg_ends(file: BinaryIO, size: int) -> bool:
    """Whether an end marker follows the scan data; the thumbnail's own does not count."""
    at = 2
    while True:
        file.seek(at)
        head = file.read(4)
        if len(head) < 4 or head[0] != 0xFF:
            return False
        if head[1] == 0xFF:
            at += 1
            continue
        at += 2 + struct.unpack(">H", head[2:])[0]
        if head[1] == 0xDA:
            break
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return bool(data.rfind(b"\xff\xd9") >= at)


def _png_ends(file: BinaryIO, size: int) -> bool:
    at = 8
    while at + 12 <= size:
        file.seek(at)
        length, kind = struct.unpack(">I4s", file.read(8))
        at += 12 + length
        if kind == b"IEND":
            return bool(at <= size)
    return False


def _webp_ends(file: BinaryIO, size: int) -> bool:
    file.seek(4)
    return bool(struct.unpack("<I", file.read(4))[0] + 8 <= size)


def _bmp_ends(file: BinaryIO, size: int) -> bool:
    file.seek(2)
    return bool(struct.unpack("<I", file.read(4))[0] <= size)


def _boxes_end(file: BinaryIO, size: int) -> bool:
    """Whether the boxes of an ISO base media file (ISO/IEC 14496-12) lie in the file."""
    at = 0
    while at < size:
        file.seek(at)
        head = file.read(16)
        if len(head) < 8:
            return False
        length = struct.unpack(">I", head[:4])[0]
        if length == 0:
            return True
        if length == 1:
            length = struct.unpack(">Q", head[8:16])[0] if len(head) == 16 else size + 1
        if length < 8:
            return False
        at += length
    return at == size


def _tiff_ends(image: Image.Image, size: int) -> bool:
    """Whether the strips or tiles that the tags list lie in the file."""
    listed: Any = getattr(image, "tag_v2", {})
    for offsets, counts in ((273, 279), (324, 325)):
        starts, lengths = listed.get(offsets, ()), listed.get(counts, ())
        if any(s + n > size for s, n in zip(starts, lengths, strict=False)):
            return False
    return True
