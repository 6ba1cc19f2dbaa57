"""Open a scan folder, whatever it holds: one place that knows all formats."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from twinloop.capture.board import Board, load_board
from twinloop.capture.camera_yaml import load_camera
from twinloop.capture.files import inside, list_files, unpack
from twinloop.capture.formats import (
    arkit,
    bop,
    colmap,
    kalibr,
    lerobot,
    nerfstudio,
    opencv_yaml,
    polycam,
    record3d,
)
from twinloop.capture.guard import check_decodes
from twinloop.capture.photo_file import SUFFIXES as PHOTOS
from twinloop.capture.photos import Photos
from twinloop.capture.pictures import Pictures, commonest_size
from twinloop.capture.posed import PosedCapture
from twinloop.capture.projection import Camera
from twinloop.capture.scan_file import ScanFile, load_scan_file
from twinloop.capture.video import Video
from twinloop.errors import InputError

VIDEOS = {".mp4", ".mov", ".m4v", ".mkv", ".webm", ".avi"}


@dataclass(frozen=True)
class Scan:
    """An opened scan folder."""

    folder: Path
    """``raw/scan``."""
    file: ScanFile
    """What ``scan.yaml`` says."""
    format: str
    """What was found: "video", "photos", "colmap", ..."""
    pictures: Pictures
    """The pictures."""
    posed: PosedCapture | None
    """Lenses and poses of an export; None for plain videos and photos."""
    board: Board | None
    """The tag board in view."""
    lens: Camera | None
    """The lens of all pictures, when a calibration file names it."""
    notes: tuple[str, ...]
    """What was worked around, for the report."""


Reader = Callable[[Path, ScanFile], PosedCapture]
READERS: dict[str, tuple[Callable[[Path], bool], Reader]] = {
    "record3d": (record3d.detects, lambda path, _: record3d.read_record3d(path)),
    "polycam": (polycam.detects, lambda path, _: polycam.read_polycam(path)),
    "stray": (arkit.detects_stray, lambda path, _: arkit.read_stray(path)),
    "arkitscenes": (arkit.detects_arkitscenes, lambda path, _: arkit.read_arkitscenes(path)),
    "bop": (bop.detects, lambda path, file: bop.read_bop(path, file.mask_object)),
    "colmap": (colmap.detects, lambda path, _: colmap.read_colmap(path)),
    "nerfstudio": (nerfstudio.detects, lambda path, _: nerfstudio.read_nerfstudio(path)),
}
"""Exports, the most particular first. Where a COLMAP model lies beside a transforms.json made from
it, the model goes first: it proves itself on its own observations."""


WITHOUT_METRES = frozenset({"video", "photos", "colmap", "nerfstudio", "lerobot"})
"""Formats that promise no metres: something else has to give them."""


def look(folder: Path) -> str:
    """Return the format of a scan folder, without opening its pictures.

    Raises:
        InputError: Nothing usable is there; says what was looked for and what is there.
    """
    with tempfile.TemporaryDirectory(prefix="twinloop-scan-") as scratch:
        return _find(folder, load_scan_file(folder), Path(scratch))[0]


@contextmanager
def open_scan(folder: Path) -> Iterator[Scan]:
    """Look what a scan folder holds and open it; archives are unpacked until the end.

    Raises:
        InputError: Nothing usable is there, or what is there is damaged; says what was looked for.
    """
    file = load_scan_file(folder)
    with tempfile.TemporaryDirectory(prefix="twinloop-scan-") as scratch:
        kind, place = _find(folder, file, Path(scratch))
        posed: PosedCapture | None = None
        if kind == "video":
            check_decodes([place])
            pictures: Pictures = Video(place)
        elif kind == "photos":
            check_decodes(list_files(place, PHOTOS))
            pictures = Photos(place)
        elif kind == "lerobot":
            pictures = lerobot.read_lerobot_episode(place, file.episode, file.camera_name)
        else:
            posed = READERS[kind][1](place, file)
            pictures = posed.pictures
        board_name = file.board or ("board.yaml" if (folder / "board.yaml").is_file() else None)
        board = load_board(inside(folder, board_name)) if board_name else None
        lens = _lens(folder, file, pictures) if file.camera else None
        notes = (*pictures.notes, *(posed.notes if posed else ()))
        yield Scan(folder, file, kind, pictures, posed, board, lens, tuple(dict.fromkeys(notes)))


def _find(folder: Path, file: ScanFile, scratch: Path) -> tuple[str, Path]:
    """Format and place of what is to be read."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; a capture needs its scan.")
    place = inside(folder, file.source, folder / "scan.yaml") if file.source else folder
    if not place.exists():
        raise InputError(f"{folder / 'scan.yaml'}: source {file.source!r} does not exist.")
    if file.format not in ("auto", "video", "photos"):
        return file.format, _unpacked(place, scratch)
    if place.is_file():
        if place.suffix.lower() in {".r3d", ".zip"}:
            place = _unpacked(place, scratch)
        elif place.suffix.lower() in VIDEOS or file.format == "video":
            return "video", place
        elif place.suffix.lower() == ".json":
            return "nerfstudio", place
        else:
            raise InputError(
                f"{place}: no video ({', '.join(sorted(VIDEOS))}), .r3d, .zip or .json; name "
                "another source in scan.yaml."
            )
    for kind, (detects, _) in READERS.items():
        if file.format == "auto" and detects(place):
            return kind, place
    if file.format == "auto" and lerobot.detects(place):
        return "lerobot", place
    videos = [] if file.format == "photos" else list_files(place, VIDEOS)
    if len(videos) == 1:
        return "video", videos[0]
    if len(videos) > 1:
        raise InputError(
            f"{place}: holds {len(videos)} videos ({', '.join(v.name for v in videos[:5])}); name "
            "the scan's one as `source` in scan.yaml."
        )
    archives = list_files(place, {".r3d", ".zip"})
    if len(archives) == 1 and file.format == "auto":
        return _find_unpacked(archives[0], scratch)
    photos = None if file.format == "video" else _photo_folder(place)
    if photos is not None:
        return "photos", photos
    raise InputError(
        f"{place}: holds neither a video, nor photos (in it, or in photos/ or images/), nor an "
        f"export of {', '.join(READERS)}. It holds: "
        f"{', '.join(sorted(p.name for p in place.iterdir())[:10]) or 'nothing'}."
    )


def _find_unpacked(archive: Path, scratch: Path) -> tuple[str, Path]:
    place = _unpacked(archive, scratch)
    for kind, (detects, _) in READERS.items():
        if detects(place):
            return kind, place
    folder = _photo_folder(place)
    if folder is not None:
        return "photos", folder
    raise InputError(
        f"{archive}: unpacked, it holds no photos and is no export of {', '.join(READERS)}."
    )


def _photo_folder(place: Path) -> Path | None:
    """Where the photos are: beside each other, or in one of two sub-folders; None without any."""
    for name in ("photos", "images", "."):
        folder = place / name
        if folder.is_dir() and list_files(folder, PHOTOS):
            return folder
    return None


def _unpacked(place: Path, scratch: Path) -> Path:
    """The folder that an archive unpacks to (its only sub-folder where it has just one)."""
    if not place.is_file() or place.suffix.lower() not in {".r3d", ".zip"}:
        return place
    unpack(place, scratch)
    inner = [p for p in scratch.iterdir() if p.name != "__MACOSX"]
    return inner[0] if len(inner) == 1 and inner[0].is_dir() else scratch


def _lens(folder: Path, file: ScanFile, pictures: Pictures) -> Camera:
    """The lens that ``scan.yaml`` names, at the size of the pictures."""
    assert file.camera is not None
    path = inside(folder, file.camera, folder / "scan.yaml")
    width, height = commonest_size(pictures.sizes)
    if kalibr.detects(path):
        lens = kalibr.read_kalibr_camera(path, file.camera_name, (width, height))
    elif opencv_yaml.detects(path):
        lens = opencv_yaml.read_opencv_camera(path, (width, height))
    else:
        known = load_camera(path)
        lens = Camera(
            np.array(known.intrinsics), np.array(known.distortion), known.width, known.height
        )
    if (lens.width < lens.height) != (width < height):
        raise InputError(
            f"{path}: the lens is of {lens.width} x {lens.height} px pictures, the scan's upright "
            f"pictures are {width} x {height} px: one of them is turned by 90 deg. Give the lens "
            "of the upright picture."
        )
    if abs(lens.width / lens.height - width / height) > 0.01 * width / height:
        raise InputError(
            f"{path}: the lens is of {lens.width} x {lens.height} px pictures, the scan's are "
            f"{width} x {height} px: another shape, so another crop of the sensor."
        )
    return lens.scaled(width, height)
