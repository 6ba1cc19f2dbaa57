"""A folder of photos as pictures: upright, in sRGB, 8 bits, one in memory at a time."""

from __future__ import annotations

import io
import warnings
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageCms

from twinloop.capture.files import list_files
from twinloop.capture.focal import focal_of_photo
from twinloop.capture.limits import timed
from twinloop.capture.photo_file import (
    SUFFIXES,
    check_whole,
    opened_photo,
    tags,
    time_taken,
    upright_size,
)
from twinloop.capture.pictures import Picture
from twinloop.capture.warning import CaptureWarning
from twinloop.errors import InputError

Array = NDArray[np.float64]

TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""What makes a photo upright, by EXIF Orientation (Exif 2.32, tag 274)."""
WITH_ALPHA = ("RGBA", "RGBa", "LA", "La", "PA")
"""Pillow's modes with an alpha channel."""


@dataclass(frozen=True)
class _Photo:
    """What the header of a photo says."""

    path: Path
    size: tuple[int, int]
    orientation: int
    profile: str
    taken: float | None
    focal: float


class Photos:
    """The photos of a folder; implements :class:`~twinloop.capture.pictures.Pictures`.

    Order and times are those of EXIF where every photo says when it was taken and no two agree;
    otherwise natural order of names, and times 0, 1, 2.
    """

    def __init__(self, folder: Path) -> None:
        """Read the headers.

        A photo that is damaged is left out with a :class:`CaptureWarning` while others remain.

        Raises:
            InputError: The folder is missing or holds no photo, a name is no UTF-8 or a link leads
                out, a photo is too large, or all are damaged.
            MachineError: A photo is HEIC, and the package that reads it is missing.
        """
        paths = list_files(folder, SUFFIXES)
        if not paths:
            raise InputError(
                f"{folder}: holds no photo; files named {', '.join(SUFFIXES)} are expected."
            )
        photos, faults = [], []
        for path in paths:
            try:
                photos.append(_look(path))
            except InputError as error:
                faults.append(str(error))
        if not photos:
            raise InputError(f"{folder}: none of {len(paths)} photos can be read. {faults[0]}")
        self._notes = [f"Left out: {fault}" for fault in faults]
        if faults:
            warnings.warn(
                f"{folder}: {len(faults)} of {len(paths)} photos are left out: {faults[0]}",
                CaptureWarning,
                stacklevel=2,
            )
        times = np.array([np.nan if p.taken is None else p.taken for p in photos])
        if np.isfinite(times).all() and len(set(times.tolist())) == len(times):
            order = np.argsort(times)
            self._photos = tuple(photos[i] for i in order)
            self._times = times[order]
        else:
            self._photos = tuple(photos)
            self._times = np.arange(len(photos), dtype=np.float64)
            said = int(np.isfinite(times).sum())
            self._notes.append(
                f"Photos count 0, 1, 2 in order of their names: {said} of {len(photos)} say when "
                f"they were taken, at {len(set(times[np.isfinite(times)].tolist()))} times."
            )
        self._path = folder

    @property
    def path(self) -> Path:
        """The folder."""
        return self._path

    @property
    def times(self) -> Array:
        """When each photo was taken (n,) s, by the camera's calendar, or 0, 1, 2."""
        return self._times

    @property
    def names(self) -> tuple[str, ...]:
        """File names (n,)."""
        return tuple(p.path.name for p in self._photos)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Columns and rows of every upright photo (n, 2), px; they may differ."""
        return np.array([p.size for p in self._photos], np.int64)

    @property
    def focal_prior(self) -> Array:
        """Focal length by EXIF (n,) px; NaN where unknown."""
        return np.array([p.focal for p in self._photos])

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out or done to the photos."""
        notes = list(self._notes)
        turned = sum(p.orientation != 1 for p in self._photos)
        if turned:
            notes.append(f"{turned} of {len(self._photos)} photos turned by their EXIF tag.")
        for profile, count in sorted(Counter(p.profile for p in self._photos).items()):
            if profile:
                notes.append(f"{count} photos converted from {profile!r} to sRGB.")
        if len({p.size for p in self._photos}) > 1:
            notes.append("Photos differ in size.")
        return tuple(notes)

    def read(
        self,
        indices: Collection[int] | None = None,
        pixels: Literal["rgb", "grey"] = "rgb",
    ) -> Iterator[Picture]:
        """Decode photos in order, one in memory at a time.

        Args:
            indices: Photos to decode; None for all.
            pixels: "rgb" or "grey".

        Raises:
            InputError: A photo does not exist, cannot be decoded or takes too long; names it.
        """
        count = len(self._photos)
        wanted = range(count) if indices is None else sorted({int(i) for i in indices})
        if wanted and (wanted[0] < 0 or wanted[-1] >= count):
            outside = wanted[0] if wanted[0] < 0 else wanted[-1]
            raise InputError(f"{self.path}: holds photos 0 to {count - 1}, not {outside}.")
        images = ((i, _decode(self._photos[i])) for i in wanted)
        for index, image in timed(images, self.path):
            array = np.asarray(image if pixels == "rgb" else image.convert("L"), np.uint8)
            yield Picture(index, float(self._times[index]), array)

    def alpha(self, index: int) -> NDArray[np.uint8] | None:
        """Alpha channel of a photo (height, width), upright; None where it has none.

        Raises:
            InputError: The photo cannot be decoded.
        """
        photo = self._photos[index]
        with opened_photo(photo.path) as image:
            if image.mode not in WITH_ALPHA and "transparency" not in image.info:
                return None
            alpha = _turned(image.convert("RGBA").getchannel("A"), photo.orientation)
            return np.array(alpha, np.uint8)


def _look(path: Path) -> _Photo:
    with opened_photo(path) as image:
        check_whole(path, image)
        orientation, part = tags(image)
        width, height = upright_size(image, orientation)
        return _Photo(
            path,
            (width, height),
            orientation,
            _profile_name(image),
            time_taken(part),
            focal_of_photo(part, width, height),
        )


def _decode(photo: _Photo) -> Image.Image:
    """RGB picture, upright, in sRGB."""
    with opened_photo(photo.path) as image:
        image.load()
        return _turned(_srgb(image, photo), photo.orientation)


def _turned(image: Image.Image, orientation: int) -> Image.Image:
    return image.transpose(TURNS[orientation]) if orientation in TURNS else image


def _srgb(image: Image.Image, photo: _Photo) -> Image.Image:
    """Any of Pillow's modes to 8-bit RGB; an alpha channel is dropped, not blended."""
    if image.mode.startswith("I;16"):
        # 16 bits to 8, rounded; Pillow itself would clip at 255.
        grey = (np.asarray(image).astype(np.uint32) + 128) // 257
        return Image.fromarray(grey.astype(np.uint8)).convert("RGB")
    if image.mode in ("I", "F"):
        raise InputError(
            f"{photo.path}: pixels of 32 bits have no known white; save the photo with 8 or 16."
        )
    if image.mode not in ("L", "RGB", "CMYK"):
        has_alpha = image.mode in WITH_ALPHA or "transparency" in image.info
        image = image.convert("RGBA").convert("RGB") if has_alpha else image.convert("RGB")
    if photo.profile:
        try:
            source = ImageCms.ImageCmsProfile(io.BytesIO(image.info["icc_profile"]))
            target = ImageCms.createProfile("sRGB")
            converted = ImageCms.profileToProfile(image, source, target, outputMode="RGB")
        except (ImageCms.PyCMSError, OSError, KeyError) as error:
            raise InputError(
                f"{photo.path}: its colour profile {photo.profile!r} cannot be applied ({error}). "
                "Save the photo as sRGB."
            ) from error
        if converted is not None:
            image = converted
    return image.convert("RGB")


def _profile_name(image: Image.Image) -> str:
    """Name of the colour profile that has to be converted from; "" for sRGB, none or damaged."""
    data = image.info.get("icc_profile")
    if not data:
        return ""
    try:
        profile = ImageCms.ImageCmsProfile(io.BytesIO(data))
        space = profile.profile.xcolor_space.strip()
        name = ImageCms.getProfileDescription(profile).strip()
    except (ImageCms.PyCMSError, OSError, UnicodeError):
        return ""
    fits = {"RGB": "RGB", "P": "RGB", "RGBA": "RGB", "L": "GRAY", "CMYK": "CMYK"}
    if "srgb" in name.lower() or fits.get(image.mode) != space:
        return ""
    return name or "unnamed profile"
