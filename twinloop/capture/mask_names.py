"""Which mask belongs to which picture: by name, or by number, or an error that shows both."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from pathlib import Path

from twinloop.capture.warning import CaptureWarning
from twinloop.errors import InputError


def match(folder: Path, files: Sequence[Path], names: Sequence[str]) -> dict[int, Path]:
    """Assign mask files (or folders of a frame) to pictures.

    A mask has the picture's name (``IMG_1.png``, ``IMG_1_mask.png`` or ``IMG_1.jpg.png`` for
    ``IMG_1.jpg``), or the picture's number from 0 (``00000.png``).

    Args:
        folder: For messages.
        files: Masks.
        names: What the pictures are called (n,).

    Returns:
        Mask by number of the picture.

    Raises:
        InputError: No mask, or two, for a picture, or name and number disagree; names both.

    Warns:
        CaptureWarning: Masks are numbered from 1.
    """
    by_name = _by_name(folder, files, names)
    if len(by_name) == len(files):
        return by_name
    numbers = _numbers(files)
    if numbers is None:
        if by_name:
            strange = next(p for p in files if p not in by_name.values())
            raise InputError(
                f"{folder}: {len(by_name)} masks are called like a picture, but {strange.name!r} "
                f"is not (pictures are called like {names[0]!r}). Remove it or rename it."
            )
        raise InputError(
            f"{folder}: no mask is called like a picture or numbered: masks are called like "
            f"{files[0].name!r}, pictures like {names[0]!r}."
        )
    start = 0
    if min(numbers) == 1 and max(numbers) == len(names):
        start = 1
    elif max(numbers) >= len(names):
        raise InputError(
            f"{folder}: masks are numbered {min(numbers)} to {max(numbers)}, pictures 0 to "
            f"{len(names) - 1}. Were the masks made from another video, or at another frame rate?"
        )
    by_number = {n - start: path for n, path in zip(numbers, files, strict=True)}
    clash = [i for i in by_name if by_number.get(i) != by_name[i]]
    if clash:
        i = clash[0]
        other = by_number[i].name if i in by_number else "none"
        raise InputError(
            f"{folder}: it is not clear which mask belongs to picture {i} ({names[i]}): by name "
            f"{by_name[i].name!r}, by number {other!r}. Name the masks like the pictures."
        )
    if start:
        warnings.warn(
            f"{folder}: the masks are numbered from 1 to {len(names)}, there are {len(names)} "
            "pictures: number 1 is taken for the first picture.",
            CaptureWarning,
            stacklevel=3,
        )
    return by_number


def _by_name(folder: Path, files: Sequence[Path], names: Sequence[str]) -> dict[int, Path]:
    index: dict[str, int | None] = {}
    for i, name in enumerate(names):
        # None: several pictures have this stem.
        stem = Path(name).stem
        index[stem] = i if stem not in index else None
        index.setdefault(Path(name).name, i)
    found: dict[int, Path] = {}
    for path in files:
        stem = path.stem if path.suffix else path.name
        short = re.sub(r"[._-]mask$", "", stem, flags=re.IGNORECASE)
        key = next((s for s in (stem, short) if s in index), None)
        if key is None:
            continue
        picture = index[key]
        if picture is None:
            raise InputError(
                f"{folder}: the mask {path.name!r} fits several pictures that are called {key!r}; "
                "name the masks like the pictures with their suffix (IMG_1.jpg.png)."
            )
        if picture in found:
            raise InputError(
                f"{folder}: the masks {found[picture].name!r} and {path.name!r} both fit the "
                f"picture {names[picture]!r}; keep one."
            )
        found[picture] = path
    return found


def _numbers(files: Sequence[Path]) -> list[int] | None:
    """Numbers that the names consist of, perhaps after a common prefix; None if any has none."""
    found = [re.fullmatch(r"(\D*)(\d{1,9})", p.stem if p.suffix else p.name) for p in files]
    hits = [m for m in found if m is not None]
    if len(hits) < len(files) or len({m[1] for m in hits}) != 1:
        return None
    numbers = [int(m[2]) for m in hits]
    return numbers if len(set(numbers)) == len(numbers) else None
