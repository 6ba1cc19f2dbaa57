"""Copy a capture from elsewhere into the project: plain files of plain names, or a refusal."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path

from twinloop.capture.files import FULL, MOST_FILES, inside
from twinloop.errors import InputError, MachineError

REFUSED = (".dvcignore",)
"""Names that DVC does not take within data."""
RESERVE = 2**28
"""Bytes of the disk that stay free."""


def check_copy(folder: Path) -> list[str]:
    """What :func:`copy_capture` would refuse, one sentence each (the first few)."""
    try:
        _files(folder)
    except InputError as error:
        return [str(error)]
    return []


def copy_capture(source: Path, target: Path) -> None:
    """Copy all files below ``source`` to the new folder ``target``; links become what they name.

    Raises:
        InputError: A pipe, socket or device, a link into nothing, in circles or out of the folder,
            a name that is no UTF-8 or holds control characters, too many files, an unreadable file.
        MachineError: The disk has no room, or cannot be written.
    """
    files = _files(source)
    target.mkdir(parents=True)
    need = sum(size for _, size in files)
    free = shutil.disk_usage(target).free
    if need + RESERVE > free:
        raise MachineError(
            f"{source}: holds {need / 1e6:.0f} MB, but the disk of {target} has "
            f"{free / 1e6:.0f} MB free; free some space and add it again."
        )
    for relative, _ in files:
        to = target / relative
        try:
            with (source / relative).open("rb"):
                pass
        except OSError as error:
            raise InputError(f"{source / relative}: cannot be read ({error.strerror}).") from error
        try:
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source / relative, to)
        except OSError as error:
            full = "no space left; free some" if error.errno in FULL else f"{error.strerror}"
            raise MachineError(f"{to}: cannot be written ({full}), then add it again.") from error


def _files(folder: Path) -> list[tuple[Path, int]]:
    """Files below a folder, relative to it and sorted, and their sizes, bytes."""
    found: list[tuple[Path, int]] = []
    waiting: list[tuple[Path, frozenset[tuple[int, int]]]] = [(Path(), frozenset())]
    while waiting:
        relative, above = waiting.pop()
        try:
            state = (folder / relative).stat()
            names = sorted(p.name for p in (folder / relative).iterdir())
        except OSError as error:
            raise InputError(
                f"{folder / relative}: cannot be listed ({error.strerror})."
            ) from error
        own = (state.st_dev, state.st_ino)
        if own in above:
            raise InputError(
                f"{folder / relative}: is a link to a folder that it lies in; remove it."
            )
        for name in names:
            size = _size(folder, relative / name)
            if size is None:
                waiting.append((relative / name, above | {own}))
            else:
                found.append((relative / name, size))
            if len(found) + len(waiting) > MOST_FILES:
                raise InputError(
                    f"{folder}: holds over {MOST_FILES} files; is it a capture's folder?"
                )
    return sorted(found)


def _size(folder: Path, relative: Path) -> int | None:
    """Bytes of a file that may be copied; None for a folder."""
    path = folder / relative
    try:
        relative.name.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(
            f"{folder}: holds {str(relative)!a}, whose name is no UTF-8; rename it."
        ) from error
    if relative.name in REFUSED:
        raise InputError(f"{path}: DVC takes no file of this name within data; remove it.")
    inside(folder, relative.as_posix())
    try:
        state = path.stat()
    except OSError as error:
        raise InputError(
            f"{path}: is a link into nothing ({error.strerror}); remove it."
        ) from error
    if stat.S_ISDIR(state.st_mode):
        return None
    if not stat.S_ISREG(state.st_mode):
        raise InputError(f"{path}: is a pipe, socket or device, no file; remove it.")
    return state.st_size
