"""The files of a COLMAP model, text and binary, without COLMAP.

Layouts: COLMAP documentation, "Output format".  Numbers are little endian.  Rigs and frames
(COLMAP 3.12 and later) add nothing here: every image carries its own pose as well.  A count in a
header is believed only when the file is long enough for it.
"""

from __future__ import annotations

import struct
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from twinloop.capture.files import read_text
from twinloop.capture.formats.lens import COLMAP_MODELS, from_colmap
from twinloop.capture.projection import Camera
from twinloop.capture.warning import CaptureWarning
from twinloop.errors import InputError

Array = NDArray[np.float64]
Item = TypeVar("Item")

LARGEST_BINARY = 4 * 2**30
"""Largest binary file that is read, bytes."""
_MODEL_NAMES = tuple(COLMAP_MODELS)
_NO_POINT = 2**64 - 1
_OBSERVATION = np.dtype([("xy", "<f8", 2), ("point", "<u8")])
_LONGEST_NAME = 4096
_LARGEST_NORM_ERROR = 1e-3


@dataclass(frozen=True)
class Registered:
    """A picture of a model."""

    name: str
    """File name as listed."""
    camera_id: int
    """Number of its camera."""
    quaternion: Array
    """wxyz (4,), rotates world to camera; unit."""
    translation: Array
    """World to camera (3,), in the model's unit."""
    pixels: Array
    """Observations of points (k, 2) px, centre of the first pixel at (0, 0)."""
    point_ids: NDArray[np.uint64]
    """Which point each observation is of (k,)."""


@dataclass(frozen=True)
class Points:
    """Sparse points of a model."""

    ids: NDArray[np.uint64]
    """Numbers (m,)."""
    positions: Array
    """World coordinates (m, 3), in the model's unit."""
    errors: Array
    """Mean reprojection error as the model says (m,), px."""
    tracks: NDArray[np.int64]
    """Number of observations (m,)."""


@dataclass(frozen=True)
class Model:
    """A model as its files say."""

    folder: Path
    """Folder of the files."""
    cameras: dict[int, Camera]
    """Lenses by number."""
    images: tuple[Registered, ...]
    """Pictures in the order of the file."""
    points: Points
    """Sparse points."""


def holds_model(folder: Path) -> bool:
    """Whether cameras and images files of one kind lie in a folder."""
    return any(
        (folder / f"cameras{s}").is_file() and (folder / f"images{s}").is_file()
        for s in (".bin", ".txt")
    )


def read_model(folder: Path) -> Model:
    """Read a model; the binary files where both kinds are there, as COLMAP does.

    Raises:
        InputError: A file is missing, cut, longer than its counts say, or holds a camera model
            that is not read, a pose that is no pose, or a number that is not finite.
    """
    if not holds_model(folder):
        raise InputError(
            f"{folder}: no COLMAP model; cameras.bin and images.bin, or cameras.txt and "
            "images.txt, are expected."
        )
    binary = (folder / "cameras.bin").is_file() and (folder / "images.bin").is_file()
    suffix = ".bin" if binary else ".txt"
    readers: tuple[Callable[[Path], Any], ...] = (
        (_binary_cameras, _binary_images, _binary_points)
        if binary
        else (_text_cameras, _text_images, _text_points)
    )
    cameras = readers[0](folder / f"cameras{suffix}")
    images = readers[1](folder / f"images{suffix}")
    seen: set[str] = set()
    for image in images:
        if image.camera_id not in cameras:
            raise InputError(
                f"{folder}: picture {image.name!r} is of camera {image.camera_id}, which "
                f"cameras{suffix} does not list (it lists {len(cameras)}). The files are of two "
                "models: copy the whole folder again."
            )
        if image.name in seen:
            raise InputError(f"{folder / f'images{suffix}'}: lists {image.name!r} twice.")
        seen.add(image.name)
    points_path = folder / f"points3D{suffix}"
    points = readers[2](points_path) if points_path.is_file() else _as_points([], points_path)
    return Model(folder, cameras, images, points)


def _text_cameras(path: Path) -> dict[int, Camera]:
    cameras: dict[int, Camera] = {}
    for number, line in _lines(path):
        fields = line.split()
        where = f"{path}: line {number}"
        if len(fields) < 5:
            _fail(where, line, "CAMERA_ID MODEL WIDTH HEIGHT PARAMS...")
        identity, width, height = _parse(where, line, int, fields[0], fields[2], fields[3])
        params = _parse(where, line, float, *fields[4:])
        cameras[identity] = from_colmap(where, fields[1], params, (width, height))
    return cameras


def _text_images(path: Path) -> tuple[Registered, ...]:
    images = []
    # Every other line is of observations, and empty where an image has none.
    lines = [(i, s) for i, s in enumerate(_split(path), 1) if s[:1] != "#"]
    position = 0
    while position < len(lines):
        number, line = lines[position]
        if not line.strip():
            position += 1
            continue
        where = f"{path}: line {number}"
        fields = line.split(maxsplit=9)
        if len(fields) != 10:
            _fail(where, line, "IMAGE_ID QW QX QY QZ TX TY TZ CAMERA_ID NAME")
        pose = np.array(_parse(where, line, float, *fields[1:8]))
        (camera_id,) = _parse(where, line, int, fields[8])
        seen = lines[position + 1] if position + 1 < len(lines) else (number + 1, "")
        observations = _text_observations(f"{path}: line {seen[0]}", seen[1])
        images.append(_registered(where, fields[9].strip(), camera_id, pose, observations))
        position += 2
    return tuple(images)


def _text_observations(where: str, line: str) -> NDArray[np.void]:
    fields = line.split()
    if len(fields) % 3:
        _fail(where, line[:80], "X Y POINT3D_ID for each observation (a whole number of triples)")
    numbers = np.array(_parse(where, line[:80], float, *fields)).reshape(-1, 3)
    found = np.zeros(len(numbers), _OBSERVATION)
    found["xy"] = numbers[:, :2]
    ids = _parse(where, line[:80], int, *fields[2::3])
    found["point"] = [_NO_POINT if i < 0 else min(i, _NO_POINT) for i in ids]
    return found


def _text_points(path: Path) -> Points:
    rows = []
    for number, line in _lines(path):
        fields = line.split()
        where = f"{path}: line {number}"
        if len(fields) < 8 or len(fields) % 2:
            _fail(where, line[:80], "POINT3D_ID X Y Z R G B ERROR and pairs IMAGE_ID POINT2D_IDX")
        (identity,) = _parse(where, line[:80], int, fields[0])
        if not 0 <= identity < _NO_POINT:
            _fail(where, line[:80], "a POINT3D_ID that is not negative")
        x, y, z, error = _parse(where, line[:80], float, *fields[1:4], fields[7])
        rows.append((identity, x, y, z, error, (len(fields) - 8) // 2))
    return _as_points(rows, path)


def _lines(path: Path) -> list[tuple[int, str]]:
    lines = enumerate(_split(path), 1)
    return [(i, line) for i, line in lines if line.strip() and not line.startswith("#")]


def _split(path: Path) -> list[str]:
    # Not splitlines(): it splits at characters that a file name may hold.
    return read_text(path).replace("\r\n", "\n").split("\n")


def _parse(where: str, line: str, kind: Callable[[str], Item], *fields: str) -> list[Item]:
    try:
        return [kind(field) for field in fields]
    except (ValueError, OverflowError):
        _fail(where, line, f"{kind.__name__} numbers")


def _fail(where: str, line: str, expected: str) -> NoReturn:
    raise InputError(
        f"{where}: {line.strip()[:80]!r}; {expected} expected. Was the file edited or cut?"
    )


class _Reader:
    """Takes numbers off a binary file, and fails with the place where it ends too early."""

    def __init__(self, path: Path, smallest: int) -> None:
        size = path.stat().st_size
        if size > LARGEST_BINARY:
            raise InputError(f"{path}: has {size} bytes, at most {LARGEST_BINARY} are read.")
        self.path = path
        self._data = path.read_bytes()
        self._at = 0
        (self.count,) = self.take("<Q", "the number of entries")
        if self.count * smallest > size:
            raise InputError(
                f"{path}: claims {self.count} entries of at least {smallest} bytes, but has "
                f"{size} bytes. It was cut while being copied: copy it again."
            )

    def take(self, layout: str, what: str) -> tuple[Any, ...]:
        start = self._step(struct.calcsize(layout), what)
        return struct.unpack_from(layout, self._data, start)

    def take_many(self, dtype: np.dtype[np.void], count: int, what: str) -> NDArray[np.void]:
        start = self._step(count * dtype.itemsize, what)
        return np.frombuffer(self._data, dtype, count, start)

    def take_name(self, what: str) -> str:
        end = self._data.find(b"\0", self._at, self._at + _LONGEST_NAME)
        if end < 0:
            raise InputError(f"{self.path}: {what} has no name that ends, at byte {self._at}.")
        raw = self._data[self._at : end]
        self._at = end + 1
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(
                f"{self.path}: the file name {raw!r} of {what} is no UTF-8. Rename the pictures "
                "and reconstruct again."
            ) from error

    def finish(self) -> None:
        if self._at != len(self._data):
            raise InputError(
                f"{self.path}: {len(self._data) - self._at} bytes follow the {self.count} entries "
                "that it claims. It is damaged: copy it again."
            )

    def _step(self, size: int, what: str) -> int:
        start = self._at
        if start + size > len(self._data):
            raise InputError(
                f"{self.path}: ends at byte {len(self._data)} inside {what}. It was cut while "
                "being copied: copy it again."
            )
        self._at += size
        return start


def _binary_cameras(path: Path) -> dict[int, Camera]:
    reader = _Reader(path, 4 + 4 + 16 + 16)
    cameras: dict[int, Camera] = {}
    for entry in range(reader.count):
        what = f"camera {entry + 1} of {reader.count}"
        identity, model, width, height = reader.take("<IiQQ", what)
        if not 0 <= model < len(_MODEL_NAMES):
            raise InputError(
                f"{path}: {what} has the camera model number {model}; 0 to "
                f"{len(_MODEL_NAMES) - 1} are known."
            )
        name = _MODEL_NAMES[model]
        params = reader.take(f"<{COLMAP_MODELS[name]}d", what)
        cameras[identity] = from_colmap(f"{path}: camera {identity}", name, params, (width, height))
    reader.finish()
    return cameras


def _binary_images(path: Path) -> tuple[Registered, ...]:
    reader = _Reader(path, 4 + 7 * 8 + 4 + 1 + 8)
    images = []
    for entry in range(reader.count):
        what = f"image {entry + 1} of {reader.count}"
        head = reader.take("<I7dI", what)
        name = reader.take_name(what)
        (count,) = reader.take("<Q", what)
        observations = reader.take_many(_OBSERVATION, count, what)
        where = f"{path}: {what}"
        images.append(_registered(where, name, head[8], np.array(head[1:8]), observations))
    reader.finish()
    return tuple(images)


def _binary_points(path: Path) -> Points:
    reader = _Reader(path, 8 + 3 * 8 + 3 + 8 + 8)
    rows = []
    for entry in range(reader.count):
        what = f"point {entry + 1} of {reader.count}"
        identity, x, y, z, _, _, _, error, track = reader.take("<Q3d3BdQ", what)
        reader.take_many(np.dtype([("image", "<u4"), ("index", "<u4")]), track, what)
        rows.append((identity, x, y, z, error, track))
    reader.finish()
    return _as_points(rows, path)


def _registered(
    where: str, name: str, camera_id: int, pose: Array, observations: NDArray[np.void]
) -> Registered:
    norm = float(np.linalg.norm(pose[:4]))
    if not np.isfinite(pose).all() or not 0.5 < norm < 2:
        raise InputError(
            f"{where} ({name}): rotation {pose[:4].tolist()}, translation {pose[4:].tolist()}; a "
            "unit quaternion (w, x, y, z) and finite numbers are expected. Remove the picture from "
            "the model, or export it again."
        )
    if abs(norm - 1) > _LARGEST_NORM_ERROR:
        warnings.warn(
            f"{where} ({name}): the quaternion has the norm {norm:.4g}, 1 is expected; it was "
            "scaled.",
            CaptureWarning,
            stacklevel=2,
        )
    seen = observations[observations["point"] != _NO_POINT]
    return Registered(
        name, camera_id, pose[:4] / norm, pose[4:], seen["xy"] - 0.5, seen["point"].copy()
    )


def _as_points(rows: list[tuple[int, float, float, float, float, int]], path: Path) -> Points:
    ids = np.array([row[0] for row in rows], dtype=np.uint64)
    numbers = np.array([row[1:5] for row in rows], dtype=np.float64).reshape(-1, 4)
    broken = ~np.isfinite(numbers[:, :3]).all(axis=1)
    if broken.any():
        raise InputError(
            f"{path}: point {ids[np.argmax(broken)]} has the position "
            f"{numbers[np.argmax(broken), :3].tolist()}; finite numbers are expected."
        )
    tracks = np.array([row[5] for row in rows], dtype=np.int64)
    return Points(ids, numbers[:, :3], numbers[:, 3], tracks)
