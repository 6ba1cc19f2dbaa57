"""Files of a capture that came from elsewhere: names that stay inside, sizes that are bounded."""

from __future__ import annotations

import contextlib
import errno
import json
import lzma
import re
import shutil
import stat
import zipfile
import zlib
from collections.abc import Callable, Collection
from pathlib import Path, PurePosixPath
from typing import Any

from twinloop import beside
from twinloop.errors import InputError, MachineError, TwinloopError

LARGEST_TEXT = 256 * 2**20
"""Largest JSON, YAML or text file that is read, bytes."""
MOST_FILES = 100_000
"""Most files of a folder or members of an archive."""
LARGEST_UNPACKED = 64 * 2**30
"""Most bytes that an archive may unpack to."""

ALWAYS_UNPACKED = 2**30
"""Bytes that an archive may unpack to whatever its size."""
LARGEST_RATIO = 100
"""Unpacked by packed size up to which larger archives are believed: pictures hardly shrink."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Numbers of the system's errors that mean a full disk."""
CODECS = (zlib.error, lzma.LZMAError)
"""What decompressors raise on damaged data, beside errors of the language's own kinds."""


def inside(folder: Path, name: str, where: Path | None = None) -> Path:
    """Return ``folder / name``, for a name that a capture file gives.

    Args:
        folder: The capture's folder.
        name: Relative path as written; backslashes count as separators.
        where: File that says the name, for the message.

    Raises:
        InputError: The name is absolute, holds ``..`` or control characters, or leads out of the
            folder through a link, or round in circles.
    """
    said = f"{where}: names the file {name!r}, but " if where else f"{name!r}: "
    parts = PurePosixPath(name.replace("\\", "/"))
    if (
        not name
        or parts.is_absolute()
        or ".." in parts.parts
        or re.match(r"[A-Za-z]:", name)
        or any(ord(c) < 32 for c in name)
    ):
        raise InputError(f"{said}a path inside the capture's folder {folder} is expected.")
    path = folder.joinpath(*parts.parts)
    try:
        real = path.resolve()
        root = folder.resolve()
        path.exists()
    except (OSError, RuntimeError, ValueError) as error:
        raise InputError(
            f"{said}it cannot be followed ({error}): a loop of links, or a name that is too long?"
        ) from error
    if not real.is_relative_to(root):
        raise InputError(f"{said}it is a link that leads out of the capture's folder {folder}.")
    return path


def list_files(folder: Path, suffixes: Collection[str]) -> list[Path]:
    """Files (not in sub-folders) whose lower-case suffix is in ``suffixes``, in natural order.

    ``img2`` comes before ``img10``.  Hidden files are left out.

    Raises:
        InputError: The folder is missing, holds too many files, or a name that is no UTF-8, or a
            link that leads out of it.
    """
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise InputError(f"{folder}: cannot be listed as a folder ({error.strerror}).") from error
    if len(entries) > MOST_FILES:
        raise InputError(f"{folder}: holds {len(entries)} entries, {MOST_FILES} are accepted.")
    chosen = []
    for path in entries:
        if path.name.startswith(".") or path.suffix.lower() not in suffixes:
            continue
        try:
            path.name.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InputError(
                f"{folder}: holds a file whose name is no UTF-8 ({path.name!a}); rename it."
            ) from error
        inside(folder, path.name)
        if path.is_file():
            chosen.append(path)
    return sorted(chosen, key=lambda p: natural_key(p.name))


def natural_key(name: str) -> tuple[list[tuple[int, int, str]], str]:
    """Sort key by which ``img2`` comes before ``img10``, whatever the case."""
    # Every second part is digits; what str.isdigit() says goes for superscripts too.
    parts = enumerate(re.split(r"(\d+)", name))
    return [(0, int(p), "") if k % 2 else (1, 0, p.lower()) for k, p in parts if p], name


def read_text(path: Path, largest: int = LARGEST_TEXT) -> str:
    """Read a UTF-8 text file of bounded size.

    Raises:
        InputError: The file is missing, empty, too large, or no UTF-8.
    """
    try:
        size = path.stat().st_size
        if not path.is_file():
            raise InputError(f"{path}: is no regular file.")
        if size == 0:
            raise InputError(f"{path}: has 0 bytes. Copy it again from where it was made.")
        if size > largest:
            raise InputError(f"{path}: has {size} bytes, at most {largest} are read.")
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file. Check the capture folder's layout.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as UTF-8 text: {error}") from error


def read_json(path: Path, largest: int = LARGEST_TEXT) -> Any:
    """Read a JSON file of bounded size.

    Raises:
        InputError: As :func:`read_text`, or no JSON; says line and column.
    """
    try:
        return json.loads(read_text(path, largest))
    except (ValueError, RecursionError) as error:
        # ValueError: no JSON, or a number of thousands of digits.
        raise InputError(f"{path}: is no JSON ({error}); was the export interrupted?") from error


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` make a file beside ``path`` that takes its place when it is whole.

    What runs that were killed left half written in that folder is removed.

    Raises:
        InputError: ``path`` is there and no regular file, or its folder is not.
        MachineError: The disk is full, or the folder cannot be written.
    """
    fresh = beside.fresh(path)
    try:
        if path.exists() and not path.is_file():
            raise InputError(f"{path}: cannot be written: it is there already and no regular file.")
        if not path.parent.is_dir():
            raise InputError(f"{path}: cannot be written: there is no folder {path.parent}.")
        beside.clear_killed(path.parent)
        write(fresh)
        fresh.replace(path)
    except OSError as error:
        raise MachineError(
            f"{path}: cannot be written ({error.strerror}); nothing was changed. Free some space, "
            "or name another place."
        ) from error
    finally:
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)


def unpack(archive: Path, into: Path) -> Path:
    """Unpack a zip archive of a capture app into the folder ``into``, and return that folder.

    Links, absolute names and names with ``..`` are refused; sizes are counted while unpacking,
    because a header may claim anything.

    Raises:
        InputError: No zip archive, damaged, encrypted, too large, or a member leads out.
        MachineError: The disk is full, or the folder cannot be written.
    """
    left = room = room_for(archive, into)
    try:
        with zipfile.ZipFile(archive) as packed:
            members = packed.infolist()
            if len(members) > MOST_FILES:
                raise InputError(
                    f"{archive}: holds {len(members)} members, {MOST_FILES} are accepted."
                )
            for member in members:
                if stat.S_ISLNK(member.external_attr >> 16):
                    raise InputError(f"{archive}: member {member.filename!r} is a link; refused.")
                if member.is_dir():
                    continue
                target = inside(into, member.filename, archive)
                target.parent.mkdir(parents=True, exist_ok=True)
                with packed.open(member) as source, target.open("wb") as sink:
                    while block := source.read(2**20):
                        left -= len(block)
                        if left < 0:
                            raise InputError(
                                f"{archive}: unpacks to more than {room} bytes, which is what is "
                                f"accepted of {archive.stat().st_size} bytes, or what the disk of "
                                f"{into} has room for."
                            )
                        sink.write(block)
    except OSError as error:
        raise unpacking_error(error, archive, into) from error
    except (zipfile.BadZipFile, RuntimeError, EOFError, ValueError, LookupError, *CODECS) as error:
        raise InputError(
            f"{archive}: cannot be unpacked as zip archive ({error}); copy it again."
        ) from error
    return into


def room_for(archive: Path, into: Path) -> int:
    """Most bytes that ``archive`` may unpack to in the folder ``into``."""
    packed = archive.stat().st_size
    believed = max(ALWAYS_UNPACKED, LARGEST_RATIO * packed)
    return min(LARGEST_UNPACKED, believed, max(shutil.disk_usage(into).free - 2**30, 0))


def unpacking_error(error: OSError, archive: Path, into: Path) -> TwinloopError:
    """What an error of the system means that came while ``archive`` was unpacked to ``into``."""
    if error.errno in FULL:
        return MachineError(
            f"{archive}: no space left in {into} while unpacking it ({error.strerror}). Free some, "
            "or let TMPDIR name a folder on a larger disk, and run again."
        )
    return InputError(f"{archive}: cannot be unpacked ({error}); is it whole?")
