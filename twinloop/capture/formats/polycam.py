"""Raw exports of Polycam.

Layout (Polycam's own ``polyform`` repository): ``keyframes/`` with ``images``, ``cameras``,
``corrected_images``, ``corrected_cameras`` (after the app's own optimisation), ``depth`` (16-bit
PNG, mm) and ``confidence`` (0, 127, 255), whose files share a name: microseconds.  A camera file
holds fx, fy, cx, cy, width, height, blur_score and t_00 to t_23, the upper rows of the camera's
pose in ARKit's axes, gravity-aligned with y up.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinloop.capture.files import list_files, read_json
from twinloop.capture.formats.depth_files import DepthFiles, usable
from twinloop.capture.formats.export_checks import (
    ARKIT_UP,
    OPENGL_TO_OPENCV,
    check_extent,
    left_out,
    listed,
    numbers,
    rigid,
    unposed,
)
from twinloop.capture.formats.image_list import ImageList, decode, read_numbers
from twinloop.capture.formats.lens import checked, fitted
from twinloop.capture.posed import MaskReader, PosedCapture
from twinloop.errors import InputError
from twinloop.progress import track

Array = NDArray[np.float64]

PICTURES = {".jpg", ".jpeg", ".png"}
MEDIUM_CONFIDENCE = 127
"""Least confidence of Polycam's three (0, 127, 255) whose depth is used."""
_ENTRIES = [f"t_{row}{column}" for row in range(3) for column in range(4)]


def detects(folder: Path) -> bool:
    """Whether a folder is a raw export of Polycam."""
    return _cameras_folder(_root(folder)) is not None


def read_polycam(folder: Path) -> PosedCapture:
    """Read a raw export of Polycam; the optimised cameras and pictures where there are any.

    Raises:
        InputError: A camera file is damaged or implausible, or no picture is there.
    """
    root = _root(folder)
    cameras_folder = _cameras_folder(root)
    if cameras_folder is None:
        raise InputError(
            f"{folder}: is no raw export of Polycam; keyframes/cameras with one JSON file per "
            "picture is expected. Turn developer mode on in the app, and export `raw data`."
        )
    corrected = cameras_folder.name == "corrected_cameras"
    pictures_folder = root / ("corrected_images" if corrected else "images")
    files = list_files(cameras_folder, {".json"})
    by_name = {p.stem: p for p in list_files(pictures_folder, PICTURES)}
    there = [p for p in files if p.stem in by_name]
    if not there:
        raise InputError(
            f"{pictures_folder}: none of the {len(files)} pictures that {cameras_folder.name} "
            "describes is there. Was the export unpacked whole?"
        )
    notes = [
        *left_out([p.stem for p in files if p.stem not in by_name], len(files), "pictures"),
        *_undescribed([n for n in by_name if not (cameras_folder / f"{n}.json").is_file()]),
        "The app's optimised poses and undistorted pictures are used."
        if corrected
        else "There are no optimised poses: ARKit's own are used, and pictures keep the little "
        "distortion of the phone's lens.",
    ]
    pictures = ImageList(
        root,
        [str(by_name[p.stem].relative_to(root)) for p in there],
        times=_times([p.stem for p in there]),
        where=cameras_folder,
    )
    cameras, rows = [], []
    described = zip(track(there, "cameras of Polycam"), pictures.sizes, strict=True)
    for path, (width, height) in described:
        content = _camera(path)
        fx, fy, cx, cy, w, h = (
            float(numbers(content[n], (), f"{path}: {n}"))
            for n in ("fx", "fy", "cx", "cy", "width", "height")
        )
        if not (np.isfinite([w, h]).all() and min(w, h) >= 1):
            raise InputError(f"{path}: width {w:g}, height {h:g}: a size in pixels is expected.")
        # ARKit measures from the corner of the first pixel, we from its centre.
        centre = (cx - 0.5, cy - 0.5)
        camera = checked(str(path), (fx, fy), centre, [0.0] * 5, (int(w), int(h)))
        cameras.append(fitted(str(path), camera, (int(width), int(height))))
        entries = numbers([content[n] for n in _ENTRIES], (12,), f"{path}: t_00 to t_23")
        rows.append(entries.reshape(3, 4))
    T_world_camera = (
        rigid([r[:, :3] for r in rows], [r[:, 3] for r in rows], str(cameras_folder))
        @ OPENGL_TO_OPENCV
    )
    check_extent(T_world_camera, str(cameras_folder))
    depth, more = usable(
        DepthFiles(
            _beside(root / "depth", there),
            (1e-3,) * len(there),
            read_numbers,
            confidence=_beside(root / "confidence", there),
            least=MEDIUM_CONFIDENCE,
        ),
        "millimetres",
    )
    return PosedCapture(
        format="Polycam",
        pictures=pictures,
        cameras=tuple(cameras),
        T_world_camera=T_world_camera,
        metric=True,
        up=ARKIT_UP,
        mask=_masks(_beside(root / "masks", there)),
        depth=depth,
        notes=(*notes, *unposed(T_world_camera, "the file says no finite numbers"), *more),
    )


def _root(folder: Path) -> Path:
    return folder / "keyframes" if (folder / "keyframes").is_dir() else folder


def _cameras_folder(root: Path) -> Path | None:
    """The optimised cameras, when their pictures are there too; else ARKit's."""
    for cameras, images in (("corrected_cameras", "corrected_images"), ("cameras", "images")):
        if (root / images).is_dir() and (root / cameras).is_dir():
            files = sorted((root / cameras).glob("*.json"))
            if files and _is_camera(files[0]):
                return root / cameras
    return None


def _is_camera(path: Path) -> bool:
    try:
        content = read_json(path)
    except InputError:
        return True
    return isinstance(content, dict) and "t_00" in content


def _camera(path: Path) -> dict[str, Any]:
    content = read_json(path)
    wanted = ["fx", "fy", "cx", "cy", "width", "height", *_ENTRIES]
    lacking = [n for n in wanted if not isinstance(content, dict) or n not in content]
    if lacking:
        raise InputError(f"{path}: lacks {listed(lacking)}; export again from Polycam.")
    return dict(content)


def _undescribed(names: list[str]) -> tuple[str, ...]:
    if not names:
        return ()
    return (f"{len(names)} pictures without camera file are left out: {listed(sorted(names))}.",)


def _times(stems: list[str]) -> list[float] | None:
    """Seconds by names in microseconds; None where names are no times."""
    if not all(s.isdecimal() and len(s) < 19 for s in stems):
        return None
    times = [int(s) * 1e-6 for s in stems]
    return times if all(b > a for a, b in itertools.pairwise(times)) else None


def _beside(folder: Path, there: list[Path]) -> tuple[Path | None, ...]:
    """The PNG of each picture in a folder of the export, which may be missing."""
    found = {p.stem: p for p in list_files(folder, {".png"})} if folder.is_dir() else {}
    return tuple(found.get(p.stem) for p in there)


def _masks(files: tuple[Path | None, ...]) -> MaskReader | None:
    if not any(files):
        return None

    def read(index: int) -> NDArray[np.uint8] | None:
        path = files[index]
        if path is None:
            return None
        return np.where(decode(path, "grey") >= 128, 255, 0).astype(np.uint8)

    return read
