"""Splats as SPZ, Niantic's small lossy format, through the library `gsply` (extra `splat`).

A Gaussian takes 20 bytes and its colours by direction 9, 24 or 45 more, before compression. What is
lost: positions are rounded to a grid of at most 2**-12 m (finer where the extent allows, 1 um for a
thing within 8 m), scales to 6.25 % steps from 45 um up, opacities and colours to 8 bits (colours
between -0.44 and 1.44), rotations to about 0.3 degrees. Axes are left as they are.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from twinloop.capture.files import write_whole
from twinloop.errors import InputError, MachineError
from twinloop.extras import require
from twinloop.splat.encoding import decode, encode, flat_gaussians
from twinloop.splat.gaussians import Gaussians
from twinloop.splat.ply import MOST, check
from twinloop.splat.ply_table import beginning
from twinloop.splat.surfels import Surfels

MAGIC = 0x5053474E
FINEST, COARSEST = 20, 12
"""Most and fewest bits behind the point of a position in metres."""
WIDEST = float(np.exp(255 / 16 - 10))
"""Largest scale, m: a byte of sixteenths of the logarithm, from exp(-10) m on."""
BASES = {0: 1, 1: 4, 2: 9, 3: 16}


def write_spz(splats: Gaussians | Surfels, path: Path) -> None:
    """Write `splats` as SPZ version 3, which all its readers know; the same bytes every time.

    Surfels become Gaussians as thin as the format allows (45 um).

    Raises:
        InputError: What no file can hold (see `twinloop.splat.ply.check`), positions beyond
            2048 m, or scales beyond `WIDEST`.
        MachineError: `gsply` is not installed, the disk is full, or the folder cannot be written.
    """
    check(splats, str(path))
    library = _library("writing SPZ")
    gaussians = flat_gaussians(splats) if isinstance(splats, Surfels) else splats
    reach = float(np.abs(gaussians.means).max())
    bits = min(FINEST, int(np.floor(23 - np.log2(max(reach, 1e-9) * 1.0000002))))
    if bits < COARSEST:
        raise InputError(
            f"{path}: Gaussians lie up to {reach:.0f} m from the origin, SPZ holds 2048 m; is the "
            "unit wrong? `twinloop splat transform --scale 0.001` turns mm into m"
        )
    if (widest := float(gaussians.scales.max())) > WIDEST:
        raise InputError(
            f"{path}: scales reach {widest:.3g} m, SPZ holds {WIDEST:.3g} m; is the unit wrong? "
            "`twinloop splat transform --scale 0.001` turns mm into m"
        )
    stored = encode(gaussians)
    data = library.GSData.from_arrays(
        means=gaussians.means,
        scales=stored[:, 1:4],
        quats=stored[:, 4:8],
        opacities=stored[:, 0],
        sh0=gaussians.sh[:, 0],
        shN=gaussians.sh[:, 1:] if gaussians.degree else None,
        format="ply",
    )

    def write(fresh: Path) -> None:
        try:
            library.write_spz(fresh, data, version=3, fractional_bits=bits)
        except RuntimeError as error:  # what the library makes of the system's errors
            raise MachineError(
                f"{path}: cannot be written ({error}); nothing was changed. Is the disk full? Free "
                "some space, or name another place."
            ) from error

    write_whole(path, write)


def read_spz(path: Path) -> Gaussians:
    """Read Gaussians from SPZ of version 1 to 4.

    Raises:
        InputError: No such file, no SPZ, damaged, or more than `MOST` Gaussians.
        MachineError: `gsply` is not installed.
    """
    _check_header(path)
    library = _library("reading SPZ")
    try:
        data = library.read_spz(path)
    except Exception as error:  # the library raises what its decompressors raise
        raise InputError(f"{path}: is damaged or no SPZ ({error})") from error
    n = len(data.means)
    first = np.asarray(data.sh0, np.float32).reshape(n, 1, 3)
    rest = np.zeros((n, 0, 3), np.float32) if data.shN is None else np.asarray(data.shN)
    stored = np.concatenate(
        [np.reshape(data.opacities, (n, 1)), np.asarray(data.scales), np.asarray(data.quats)],
        axis=1,
    ).astype(np.float32)
    if not (np.abs(stored[:, 4:]).max(axis=1) > 0).all() or not np.isfinite(stored).all():
        raise InputError(f"{path}: holds rotations or scales that are no numbers; it is damaged")
    sh = np.ascontiguousarray(np.concatenate([first, rest], axis=1), np.float32)
    return decode(np.array(data.means, np.float32), stored, sh)


def _library(purpose: str) -> Any:
    library = require("gsply", "splat", purpose)
    library.use_backend("cpp")  # its other one compiles itself for ten seconds at first use
    return library


def _check_header(path: Path) -> None:
    """Refuse what is no SPZ, and sizes that the file cannot bear, before anything is unpacked."""
    head = beginning(path, 1 << 16)
    if head[:2] == b"\x1f\x8b":
        try:
            head = zlib.decompressobj(31).decompress(head, 16)
        except zlib.error as error:
            raise InputError(f"{path}: is damaged or no SPZ ({error})") from error
    if len(head) < 16 or struct.unpack_from("<I", head)[0] != MAGIC:
        raise InputError(f"{path}: is no SPZ file: it does not begin like one")
    version, count, degree = struct.unpack_from("<IIB", head, 4)
    if version not in (1, 2, 3, 4) or degree not in BASES:
        raise InputError(
            f"{path}: is SPZ version {version} of degree {degree}, expected version 1 to 4 and "
            "degree 0 to 3"
        )
    # Deflate packs a thousand to one at most, zstd more; neither reaches that with real splats.
    if not 0 < count <= min(MOST, 100 * path.stat().st_size):
        raise InputError(
            f"{path}: its header promises {count} Gaussians in {path.stat().st_size} bytes, "
            f"expected 1 to {MOST} and a file that can hold them; it is cut or damaged"
        )
    if version < 4:
        _check_size(path, 16 + count * (16 + (3 if version < 3 else 4) + 3 * (BASES[degree] - 1)))


def _check_size(path: Path, most: int) -> None:
    """Unpack in pieces, keeping none, and refuse more than `most` bytes (and a little)."""
    unpacker, size = zlib.decompressobj(31), 0
    with path.open("rb") as file:
        while piece := file.read(1 << 16):
            while piece:
                try:
                    size += len(unpacker.decompress(piece, 1 << 20))
                except zlib.error as error:
                    raise InputError(f"{path}: is damaged ({error})") from error
                piece = unpacker.unconsumed_tail
                if size > most + (1 << 20):
                    raise InputError(
                        f"{path}: unpacks to more than the {most} bytes that its header needs"
                    )
    if size < most:
        raise InputError(f"{path}: unpacks to {size} of {most} bytes; it is cut or damaged")
