"""Object masks that another tool made: folders of SAM 2, XMem, Cutie, plain masks, alpha channels.

Layouts (``tools/vos_inference.py`` of SAM 2 writes the first two; XMem and Cutie the first):
one picture per frame whose pixel value is the object's number (palette PNG); a folder per object
with one picture per frame; a folder per frame with one picture per object.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from twinloop.capture.files import inside, list_files
from twinloop.capture.mask_names import match
from twinloop.capture.posed import MaskReader
from twinloop.capture.warning import CaptureWarning
from twinloop.errors import InputError
from twinloop.progress import track

Masks = NDArray[np.uint8]

SUFFIXES = frozenset({".png", ".tif", ".tiff", ".bmp", ".webp"})
FORMATS = ("PNG", "TIFF", "BMP", "WEBP")
"""Decoders that are tried, whatever the name says: Pillow knows more, some start programs."""
VOID = 255
"""Pixel value of "do not care" in a palette PNG that has other values too (DAVIS)."""
MOST_VALUES = 64
"""A grey picture with more values, or with white among others, is a soft mask, not numbers."""
LARGEST_PIXELS = 200_000_000
SAME_SHAPE = 0.01
"""Largest relative difference of aspect ratios that rounding explains."""


@dataclass(frozen=True)
class _Folder:
    """Mask files by picture and object; object None where the pixel values say it."""

    files: dict[int, dict[int | None, Path]]
    sizes: NDArray[np.int64]
    names: Sequence[str]


def masked_pictures(folder: Path, names: Sequence[str]) -> NDArray[np.bool_]:
    """Which pictures (n,) have a mask file, by its name alone; ``names`` as :func:`read_masks`.

    Raises:
        InputError: No mask fits a picture, or it is not clear which.
    """
    found = np.zeros(len(names), np.bool_)
    found[sorted(_layout(folder, names))] = True
    return found


def read_masks(
    folder: Path,
    names: Sequence[str],
    sizes: NDArray[np.int64],
    object_id: int | None = None,
) -> MaskReader:
    """Read the masks of one object; every file is looked at once before this returns.

    Args:
        folder: Folder of masks, of any of the layouts.
        names: What the pictures are called (n,): file names, or anything when masks are numbered.
        sizes: Columns and rows of the upright pictures (n, 2), px.
        object_id: Number of the object; None when there is only one.

    Returns:
        Mask by number of the picture, at the picture's size; None where there is none.

    Raises:
        InputError: No mask fits a picture, or it is not clear which; several objects and none
            chosen; a size that does not fit; masks made from unrotated pictures; an empty mask.

    Warns:
        CaptureWarning: Pictures without a mask; masks that cover the border instead of the middle.
    """
    found = _Folder(_layout(folder, names), sizes, names)
    counts: dict[int, dict[int, int]] = {}
    border: list[float] = []
    for number in track(sorted(found.files), "check masks"):
        for said, path in found.files[number].items():
            labels = _labels(path, sizes[number], names[number])
            values, pixels = np.unique(labels, return_counts=True)
            for value, count in zip(values.tolist(), pixels.tolist(), strict=True):
                if value:
                    key = int(value) if said is None else said
                    counts.setdefault(key, {})[number] = counts.get(key, {}).get(number, 0) + int(
                        count
                    )
    chosen = _choose(folder, counts, object_id)
    _refuse_empty(folder, found, counts[chosen])

    def read(index: int) -> Masks | None:
        for said, path in found.files.get(index, {}).items():
            if said not in (None, chosen):
                continue
            labels = _labels(path, sizes[index], names[index])
            mask = (labels == chosen) if said is None else (labels > 0)
            width, height = (int(v) for v in sizes[index])
            mask = mask.astype(np.uint8) * 255
            if mask.shape != (height, width):
                mask = cv2.resize(mask, (width, height), interpolation=cv2.INTER_NEAREST)
            return np.asarray(mask, np.uint8)
        return None

    for number in sorted(found.files)[:: max(1, len(found.files) // 8)]:
        mask = read(number)
        if mask is not None:
            rim = np.concatenate([mask[0], mask[-1], mask[:, 0], mask[:, -1]])
            border.append(float((rim > 0).mean()))
    if border and np.median(border) > 0.9:
        warnings.warn(
            f"{folder}: object {chosen} covers {np.median(border):.0%} of the pictures' border: "
            "are the masks inverted? White (or the object's number) has to be on the object.",
            CaptureWarning,
            stacklevel=2,
        )
    missing = sorted(set(range(len(names))) - set(found.files))
    if missing:
        shown = ", ".join(str(names[i]) for i in missing[:5])
        warnings.warn(
            f"{folder}: {len(missing)} of {len(names)} pictures have no mask ({shown}"
            f"{', ...' if len(missing) > 5 else ''}); they are left out.",
            CaptureWarning,
            stacklevel=2,
        )
    return read


def _layout(folder: Path, names: Sequence[str]) -> dict[int, dict[int | None, Path]]:
    """Mask files by picture and object."""
    flat = list_files(folder, SUFFIXES)
    if flat:
        return {i: {None: path} for i, path in match(folder, flat, names).items()}
    folders = sorted(p for p in folder.iterdir() if not p.name.startswith("."))
    folders = [p for p in folders if inside(folder, p.name).is_dir()]
    if len(folders) == 1 and not folders[0].name.isdecimal():
        return _layout(folders[0], names)
    if not folders:
        raise InputError(
            f"{folder}: holds no masks ({', '.join(sorted(SUFFIXES))}), nor folders of masks."
        )
    # Which of the two levels counts the frames: the one with as many names as there are pictures.
    stems = {p.stem for f in folders for p in list_files(f, SUFFIXES)}
    if stems and all(s.isdecimal() for s in stems) and _is_stem(folders, names, len(stems)):
        found: dict[int, dict[int | None, Path]] = {}
        for number, one in match(folder, folders, names).items():
            found[number] = {int(p.stem): p for p in list_files(one, SUFFIXES)}
        return found
    unnumbered = [p.name for p in folders if not p.name.isdecimal()]
    if unnumbered:
        raise InputError(
            f"{folder}: the folder {unnumbered[0]!r} is neither the number of an object nor the "
            "name of a picture; expected OBJECT/PICTURE.png, PICTURE/OBJECT.png or PICTURE.png."
        )
    found = {}
    for one in folders:
        for number, path in match(one, list_files(one, SUFFIXES), names).items():
            found.setdefault(number, {})[int(one.name)] = path
    return found


def _is_stem(folders: list[Path], names: Sequence[str], files: int) -> bool:
    pictures = {Path(n).stem for n in names}
    if all(f.name in pictures for f in folders):
        return True
    return len(folders) == len(names) and files < len(names)


def _opened(path: Path) -> Image.Image:
    """Open a picture whose header promises a size that is accepted; decodes nothing yet."""
    try:
        if path.stat().st_size == 0:
            raise InputError(f"{path}: has 0 bytes. Copy it again from where it was made.")
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            picture = Image.open(path, formats=FORMATS)
    except (
        OSError,
        UnidentifiedImageError,
        ValueError,
        SyntaxError,
        Image.DecompressionBombError,
        Image.DecompressionBombWarning,
    ) as error:
        raise InputError(f"{path}: cannot be read as a picture ({error}).") from error
    if picture.width * picture.height > LARGEST_PIXELS:
        raise InputError(
            f"{path}: says it has {picture.width} x {picture.height} px, at most "
            f"{LARGEST_PIXELS} px are read."
        )
    return picture


def _labels(path: Path, size: NDArray[np.int64], name: str) -> NDArray[np.int64]:
    """Numbers of objects (y, x) in a mask file, 0 for none."""
    with _opened(path) as picture:
        _check_size(path, picture.size, (int(size[0]), int(size[1])), name)
        try:
            if picture.mode in ("RGBA", "LA"):
                alpha = np.array(picture.getchannel("A"))
                if alpha.min() <= 127:
                    return np.asarray(np.where(alpha > 127, 255, 0), np.int64)
                picture = picture.convert(picture.mode[:-1])
            if picture.mode == "F":
                raise InputError(
                    f"{path}: has fractions or probabilities for pixels (32-bit floating point); "
                    "cut them at a threshold of your own and save 0 and 255 in 8 bits."
                )
            pixels = np.array(picture)
        except (OSError, ValueError, SyntaxError) as error:
            raise InputError(f"{path}: is damaged or cut off ({error}).") from error
        mode = picture.mode
    if pixels.ndim == 3:
        if (pixels != pixels[..., :1]).any():
            raise InputError(
                f"{path}: is a colour picture; a mask has grey values or a palette (PNG mode P), "
                "whose value is the object's number. Save the masks without colours."
            )
        pixels = pixels[..., 0]
    labels = pixels.astype(np.int64)
    values = np.unique(labels)
    if mode == "P":
        others = values[(values != 0) & (values != VOID)]
        return np.asarray(np.where(labels == VOID, 0, labels) if len(others) else labels)
    if len(values) > MOST_VALUES or (len(values) > 2 and values[-1] == 255):
        return np.asarray(np.where(labels > labels.max() / 2, 255, 0), np.int64)
    return labels


def _check_size(path: Path, size: tuple[int, int], picture: tuple[int, int], name: str) -> None:
    """Accept the picture's size and shrunk or enlarged ones of the same shape."""
    if size == picture:
        return
    ratio = (size[0] / size[1]) / (picture[0] / picture[1])
    slack = SAME_SHAPE + 1 / min(size)
    if abs(np.log(ratio)) <= slack:
        return
    turned = abs(np.log(size[1] / size[0] * picture[1] / picture[0])) <= slack
    hint = (
        " They are turned by 90 degrees: the masks were made from pictures whose rotation tag was "
        "ignored. Make them from upright pictures, or turn them."
        if turned
        else " Masks of whole, uncropped pictures are expected (a smaller size of the same shape "
        "is fine)."
    )
    raise InputError(
        f"{path}: has {size[0]} x {size[1]} px, but the picture {name} has {picture[0]} x "
        f"{picture[1]} px.{hint}"
    )


def _choose(folder: Path, counts: dict[int, dict[int, int]], object_id: int | None) -> int:
    """Number of the object, or why there is none."""
    listed = ", ".join(
        f"{k} ({sum(v.values())} pixels in {len(v)} masks)" for k, v in sorted(counts.items())[:20]
    )
    if not counts:
        raise InputError(f"{folder}: all masks are empty (0 object pixels in every one).")
    if object_id is None:
        if len(counts) > 1:
            raise InputError(
                f"{folder}: the masks show several objects: {listed}. Say which one is meant "
                "(mask_object)."
            )
        return next(iter(counts))
    if object_id not in counts:
        raise InputError(f"{folder}: object {object_id} is in no mask; there are {listed}.")
    return object_id


def _refuse_empty(folder: Path, found: _Folder, counts: dict[int, int]) -> None:
    empty = [i for i in sorted(found.files) if not counts.get(i)]
    if empty:
        raise InputError(
            f"{folder}: {len(empty)} of {len(found.files)} masks are empty (pictures {empty[:10]}, "
            f"0 object pixels; the others have {int(np.median(list(counts.values())))} at the "
            "median). Where the object is out of view, delete the mask to leave the picture out; "
            "else mask it again."
        )
