"""Depth pictures beside the pictures: PNG, NumPy, OpenEXR and LZFSE files as metres."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from twinloop.capture.formats.image_list import MOST_PIXELS, read_numbers
from twinloop.errors import InputError, MachineError
from twinloop.extras import require

Array = NDArray[np.float64]

BELIEVED = (0.01, 100.0)
"""Median depth of a picture that is believed, m."""
CHECKED = 5
"""Depth pictures that are looked at when a capture is opened."""
EXTRA = "depth"
"""Extra of Twinloop with the packages that unpack depth."""


@dataclass(frozen=True)
class DepthFiles:
    """Depth of each picture by its index, in metres: a ``DepthReader``."""

    files: tuple[Path | None, ...]
    """Depth file of each picture (n,); None where there is none."""
    metres: tuple[float, ...]
    """Metres per unit of each file (n,)."""
    load: Callable[[Path], Array]
    """Decodes a depth file to (rows, columns)."""
    confidence: tuple[Path | None, ...] = ()
    """Confidence file of each picture; empty when there are none."""
    least: int = 0
    """Depth whose confidence is below this is unknown."""
    load_confidence: Callable[[Path], Array] = read_numbers
    """Decodes a confidence file to (rows, columns)."""
    turns: int = 0
    """Quarter turns counter-clockwise that the upright pictures have against the files."""

    def __call__(self, index: int) -> Array | None:
        """Depth (rows, columns) m along the optical axis, NaN where unknown; None without file.

        Raises:
            InputError: The file is damaged, or its confidence has another size.
        """
        path = self.files[index]
        if path is None:
            return None
        depth = self.load(path) * self.metres[index]
        depth[~(np.isfinite(depth) & (depth > 0))] = np.nan
        trust = self.confidence[index] if self.confidence else None
        if trust is not None:
            level = self.load_confidence(trust)
            if level.shape != depth.shape:
                raise InputError(
                    f"{trust}: has {level.shape[1]} x {level.shape[0]} px, its depth picture "
                    f"{path.name} {depth.shape[1]} x {depth.shape[0]} px; export again."
                )
            depth[level < self.least] = np.nan
        return np.ascontiguousarray(np.rot90(depth, self.turns))


def usable(reader: DepthFiles, unit: str) -> tuple[DepthFiles | None, tuple[str, ...]]:
    """Look at some depth pictures, as a check of their unit and contents.

    Args:
        reader: Depth of all pictures.
        unit: The unit that the format promises, for the message: "millimetres".

    Returns:
        The reader, or None when no depth can be had; and notes.

    Raises:
        InputError: A picture is damaged, or its depths cannot be in that unit; says both numbers.
    """
    there = [i for i, path in enumerate(reader.files) if path is not None]
    if not there:
        return None, ()
    notes = []
    if len(there) < len(reader.files):
        lacking = len(reader.files) - len(there)
        notes.append(f"{lacking} of {len(reader.files)} pictures have no depth.")
    empty = []
    chosen = sorted({there[i] for i in np.linspace(0, len(there) - 1, CHECKED).astype(int)})
    for index in chosen:
        try:
            depth = reader(index)
        except MachineError as error:
            return None, (f"Depth is not read: {error}",)
        if depth is None or np.isnan(depth).all():
            empty.append(index)
            continue
        middle = float(np.nanmedian(depth))
        if not BELIEVED[0] <= middle <= BELIEVED[1]:
            other = middle / 1000 if middle > 1 else middle * 1000
            raise InputError(
                f"{reader.files[index]}: the median depth is {middle:.4g} m if it is in {unit} as "
                f"the format says; {BELIEVED[0]:g} to {BELIEVED[1]:g} m are believed. In the other "
                f"of millimetres and metres it is {other:.4g} m. Convert the depth pictures."
            )
    if len(empty) == len(chosen):
        return None, (*notes, f"Depth is not used: all {len(chosen)} pictures looked at are empty.")
    if empty:
        notes.append(f"{len(empty)} of {len(chosen)} depth pictures looked at are empty.")
    if any(reader.confidence) and reader.least:
        notes.append("Depth of low confidence is unknown.")
    return reader, tuple(notes)


def load_npy(path: Path) -> Array:
    """Read a picture of numbers (rows, columns) from a NumPy file, never unpickling.

    Raises:
        InputError: The file is damaged, holds objects, is no picture or too large.
    """
    try:
        # A map of the file, because the header may claim more than the file has.
        numbers = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(numbers, np.ndarray) or numbers.dtype.kind not in "uif":
            raise ValueError("no plain numbers")
        if numbers.ndim != 2 or numbers.size > MOST_PIXELS:
            raise ValueError(f"shape {numbers.shape}")
        return np.array(numbers, dtype=np.float64)
    except (OSError, ValueError, EOFError, SyntaxError) as error:
        raise InputError(f"{path}: cannot be read as a NumPy depth picture ({error}).") from error


def load_exr(path: Path) -> Array:
    """Read a picture of numbers (rows, columns) from an OpenEXR file: channel R, Y, Z or its only.

    Raises:
        InputError: The file is damaged, too large, or has other channels.
        MachineError: The package OpenEXR is not installed.
    """
    exr = require("OpenEXR", EXTRA, "depth in OpenEXR files")
    try:
        with exr.File(str(path), header_only=True) as file:
            low, high = (np.asarray(corner) for corner in file.header()["dataWindow"])
        width, height = (int(v) for v in high - low + 1)
        if not 0 < width * height <= MOST_PIXELS:
            raise InputError(f"{path}: claims {width} x {height} px, at most {MOST_PIXELS} px.")
        with exr.File(str(path), separate_channels=True) as file:
            channels = {name: np.array(c.pixels) for name, c in file.channels().items()}
    except (RuntimeError, ValueError, TypeError, KeyError, OSError) as error:
        raise InputError(f"{path}: cannot be decoded as OpenEXR ({error}).") from error
    named = [n for n in ("R", "Y", "Z", *channels) if n in channels]
    if not named or channels[named[0]].shape != (height, width) or len(channels) > 4:
        raise InputError(f"{path}: channels {sorted(channels)}; one channel of depth is expected.")
    return channels[named[0]].astype(np.float64)


@dataclass(frozen=True)
class Lzfse:
    """Decodes LZFSE-packed pictures of known size (Record3D's ``.depth`` and ``.conf``)."""

    width: int
    """Columns."""
    height: int
    """Rows."""
    dtype: str
    """Type of the numbers: "<f4" or "u1"."""

    def __call__(self, path: Path) -> Array:
        """Return the picture (rows, columns).

        Raises:
            InputError: The file is damaged, or unpacks to another size.
            MachineError: The package lzfse is not installed.
        """
        lzfse = require("lzfse", EXTRA, "depth of Record3D captures")
        expected = self.width * self.height * np.dtype(self.dtype).itemsize
        try:
            packed = path.read_bytes() if path.stat().st_size <= 2 * expected + 1024 else b""
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror}).") from error
        claimed = int.from_bytes(packed[4:8], "little")
        try:
            # The first block says how much it unpacks to: an honest file does not exceed a picture.
            raw = lzfse.decompress(packed) if packed and claimed <= expected else b""
        except (lzfse.error, MemoryError) as error:
            raise InputError(f"{path}: cannot be unpacked as LZFSE; was it cut?") from error
        if len(raw) != expected:
            raise InputError(
                f"{path}: unpacks to {len(raw) or claimed} bytes, a picture of {self.width} x "
                f"{self.height} {self.dtype} has {expected}; was it cut, or is the size in the "
                "metadata wrong?"
            )
        return np.frombuffer(raw, self.dtype).reshape(self.height, self.width).astype(np.float64)
