"""Captures of Record3D: an unpacked ``.r3d`` archive, or its export of EXR and JPG files.

Layout (Record3D's archives and the loaders of nerfstudio and OK-Robot): ``metadata`` or
``metadata.json`` with K column by column, ``w``, ``h``, ``dw``, ``dh``, ``fps``, ``poses`` as
qx, qy, qz, qw, tx, ty, tz of the camera in ARKit's axes, ``frameTimestamps``,
``perFrameIntrinsicCoeffs`` as fx, fy, cx, cy and ``initPose``; pictures ``rgbd/7.jpg`` with
``rgbd/7.depth`` (LZFSE, float32 metres) and ``rgbd/7.conf`` (LZFSE, 0 to 2), or ``rgb/7.jpg`` with
``depth/7.exr``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinloop.capture.files import inside, list_files, read_json, unpack
from twinloop.capture.formats.depth_files import DepthFiles, Lzfse, load_exr, usable
from twinloop.capture.formats.export_checks import (
    ARKIT_UP,
    OPENGL_TO_OPENCV,
    check_extent,
    from_quaternions,
    left_out,
    numbers,
    unposed,
)
from twinloop.capture.formats.image_list import ImageList, Size, same_shape
from twinloop.capture.formats.lens import checked, fitted
from twinloop.capture.posed import PosedCapture
from twinloop.capture.projection import Camera
from twinloop.errors import InputError

Array = NDArray[np.float64]

PICTURES = {".jpg", ".jpeg", ".png"}
MEDIUM_CONFIDENCE = 1
"""Least confidence of ARKit's three (0, 1, 2) whose depth is used."""
MOST_DEPTH_PIXELS = 2**24
"""Largest depth picture that the metadata may claim, px."""


@dataclass(frozen=True)
class _Layout:
    metadata: Path
    pictures: Path
    depth: Path
    packed: bool


def detects(folder: Path) -> bool:
    """Whether a folder is an unpacked ``.r3d`` archive or Record3D's export."""
    return _layout(folder) is not None


def read_record3d(path: Path, into: Path | None = None) -> PosedCapture:
    """Read a capture of Record3D.

    Args:
        path: The unpacked archive or exported folder; or an ``.r3d`` archive.
        into: Empty folder that the archive is unpacked to.

    Returns:
        The capture; its world has y up where the capture says how its first camera was held.

    Raises:
        InputError: The metadata are damaged, no picture is there, K or poses are implausible.
    """
    if path.is_file():
        if into is None:
            raise InputError(f"{path}: an archive; say the folder that it is to be unpacked to.")
        path = unpack(path, into)
    layout = _layout(path)
    if layout is None:
        raise InputError(
            f"{path}: is no capture of Record3D; `metadata` beside `rgbd/`, or `metadata.json` "
            "beside `rgb/` is expected."
        )
    inside(path, str(layout.metadata.relative_to(path)))
    content = read_json(layout.metadata)
    if not isinstance(content, dict):
        raise InputError(f"{layout.metadata}: a JSON object is expected.")
    where = str(layout.metadata)
    numbered = _numbered(layout.pictures)
    stated = content.get("poses")
    poses = numbers(stated, (None, 7), f"{where}: poses") if stated else np.empty((0, 7))
    count = len(poses) or max(numbered) + 1
    there = [i for i in range(count) if i in numbered]
    missing = [f"{i}.jpg" for i in range(count) if i not in numbered]
    surplus = [n for n in numbered if n >= count]
    if not there:
        raise InputError(f"{layout.pictures}: none of the {count} pictures of {where} is there.")
    notes = list(left_out(missing, count, "pictures"))
    if surplus:
        notes.append(f"{len(surplus)} pictures beyond the {count} poses are left out.")
    times, said = _times(content, count, there, where)
    pictures = ImageList(
        path,
        [str(numbered[i].relative_to(path)) for i in there],
        times=times,
        where=layout.metadata,
    )
    sizes = [(int(w), int(h)) for w, h in pictures.sizes]
    cameras = _lenses(content, there, count, sizes, where)
    T_world_camera, up, told = _poses(content, poses, where)
    if T_world_camera is not None:
        check_extent(T_world_camera, f"{where}: poses")
        T_world_camera = T_world_camera[there]
        told += unposed(T_world_camera, "tracking was lost")
    depth, more = _depth(content, layout, there, where)
    return PosedCapture(
        format="Record3D",
        pictures=pictures,
        cameras=cameras,
        T_world_camera=T_world_camera,
        metric=T_world_camera is not None or depth is not None,
        up=up,
        depth=depth,
        notes=(*notes, *said, *told, *more),
    )


def _layout(folder: Path) -> _Layout | None:
    for root in (folder, folder / "EXR_RGBD"):
        for name in ("metadata", "metadata.json"):
            if not (root / name).is_file():
                continue
            if (root / "rgbd").is_dir():
                return _Layout(root / name, root / "rgbd", root / "rgbd", packed=True)
            if (root / "rgb").is_dir():
                return _Layout(root / name, root / "rgb", root / "depth", packed=False)
    return None


def _numbered(folder: Path) -> dict[int, Path]:
    """Pictures by their number."""
    found = {int(p.stem): p for p in list_files(folder, PICTURES) if p.stem.isdecimal()}
    if not found:
        raise InputError(f"{folder}: holds no picture that is named by a number, such as 0.jpg.")
    return found


def _times(
    content: dict[str, Any], count: int, there: list[int], where: str
) -> tuple[list[float], tuple[str, ...]]:
    stated = content.get("frameTimestamps")
    if isinstance(stated, list) and len(stated) == count:
        stamps = numbers(stated, (None,), f"{where}: frameTimestamps")[there]
        if np.isfinite(stamps).all() and (np.diff(stamps) > 0).all():
            return stamps.tolist(), ()
    rate = content.get("fps")
    if not isinstance(rate, int | float) or not 0 < rate < 1e4:
        return [float(i) for i in there], ("No time stamps and no rate: pictures are numbered.",)
    said = "Time stamps do not increase" if stated else "There are no time stamps"
    return [i / rate for i in there], (f"{said}: {rate:g} pictures a second are assumed.",)


def _lenses(
    content: dict[str, Any], there: list[int], count: int, sizes: list[Size], where: str
) -> tuple[Camera, ...]:
    single = _row_major(numbers(content.get("K"), (9,), f"{where}: K"), where)
    coefficients = np.tile(single, (count, 1))
    stated = content.get("perFrameIntrinsicCoeffs")
    if isinstance(stated, list) and len(stated) == count:
        coefficients = numbers(stated, (None, 4), f"{where}: perFrameIntrinsicCoeffs")
    width, height = (numbers(content.get(n), (), f"{where}: {n}") for n in ("w", "h"))
    if not (np.isfinite([width, height]).all() and min(width, height) >= 1):
        raise InputError(f"{where}: w {width}, h {height}: a size in pixels is expected.")
    cameras = []
    for i, size in zip(there, sizes, strict=True):
        fx, fy, cx, cy = (float(v) for v in coefficients[i])
        # Some captures state the sensor's size, but pictures and K are those of the turned phone.
        declared = (int(width), int(height))
        if not same_shape(size, declared) and same_shape(size, declared[::-1]):
            declared = declared[::-1]
        label = f"{where}: picture {i}"
        # ARKit measures from the corner of the first pixel, we from its centre.
        camera = checked(label, (fx, fy), (cx - 0.5, cy - 0.5), [0.0] * 5, declared)
        off = np.abs(np.array([cx, cy]) / declared - 0.5)
        if off.max() > 0.2:
            raise InputError(
                f"{label}: the principal point ({cx:g}, {cy:g}) is far from the middle of "
                f"{declared[0]} x {declared[1]} px: K belongs to the picture turned by 90 deg "
                "or to another size. Export again from the app."
            )
        cameras.append(fitted(label, camera, size))
    return tuple(cameras)


def _row_major(K: Array, where: str) -> Array:
    """The numbers fx, fy, cx, cy of K, which Record3D writes column by column."""
    columns = K.reshape(3, 3)
    if columns[0, 2] != 0 or columns[1, 2] != 0 or columns[2, 2] != 1:
        raise InputError(
            f"{where}: K is {K.tolist()}; a camera matrix column by column (fx, 0, 0, 0, fy, 0, "
            "cx, cy, 1) is expected. Was the file rewritten row by row?"
        )
    return np.array([columns[0, 0], columns[1, 1], columns[2, 0], columns[2, 1]])


def _poses(
    content: dict[str, Any], poses: Array, where: str
) -> tuple[Array | None, Array | None, tuple[str, ...]]:
    """Poses with OpenCV's axes, the direction against gravity, and notes."""
    if not len(poses) or (len(poses) > 1 and np.all(poses == poses[0])):
        return None, None, ("No camera poses: the front camera records none.",)
    T = from_quaternions(poses[:, 4:], poses[:, :4], f"{where}: poses")
    known = np.isfinite(T).all(axis=(1, 2))
    if not known.any():
        return None, None, ("No camera poses: all are unknown.",)
    start = content.get("initPose")
    T_start = np.eye(4)
    if isinstance(start, list) and len(start) == 7:
        pose = numbers(start, (7,), f"{where}: initPose")
        T_start = from_quaternions(pose[np.newaxis, 4:], pose[np.newaxis, :4], where)[0]
    first = T[int(np.argmax(known))]
    up: Array | None = ARKIT_UP
    notes: tuple[str, ...] = ()
    if _alike(first, np.eye(4)):
        # Poses are relative to the first camera, whose own attitude initPose tells.
        if _alike(T_start, np.eye(4)) or not np.isfinite(T_start).all():
            up = None
            notes = ("The first camera is the origin: which way is up is not known.",)
        else:
            T = T_start @ T
    return T @ OPENGL_TO_OPENCV, up, notes


def _alike(A: Array, B: Array) -> bool:
    """Whether two poses agree to 2 cm and about 2 deg."""
    return bool(np.abs(A[:3, 3] - B[:3, 3]).max() < 0.02 and np.abs(A - B)[:3, :3].max() < 0.035)


def _depth(
    content: dict[str, Any], layout: _Layout, there: list[int], where: str
) -> tuple[DepthFiles | None, tuple[str, ...]]:
    suffix = ".depth" if layout.packed else ".exr"
    if not layout.depth.is_dir():
        return None, ()
    files = _beside(layout.depth, suffix, there)
    if not layout.packed:
        return usable(DepthFiles(files, (1.0,) * len(there), load_exr), "metres")
    if not any(files):
        return None, ()
    width, height = (
        int(np.nan_to_num(numbers(content.get(n), (), f"{where}: {n}"))) for n in ("dw", "dh")
    )
    if not 0 < width * height <= MOST_DEPTH_PIXELS or min(width, height) < 1:
        raise InputError(
            f"{where}: dw {width}, dh {height}: a depth picture of 1 to {MOST_DEPTH_PIXELS} px is "
            "expected."
        )
    reader = DepthFiles(
        files,
        (1.0,) * len(there),
        Lzfse(width, height, "<f4"),
        confidence=_beside(layout.depth, ".conf", there),
        least=MEDIUM_CONFIDENCE,
        load_confidence=Lzfse(width, height, "u1"),
    )
    return usable(reader, "metres")


def _beside(folder: Path, suffix: str, there: list[int]) -> tuple[Path | None, ...]:
    paths = [inside(folder, f"{i}{suffix}") for i in there]
    return tuple(p if p.is_file() else None for p in paths)
