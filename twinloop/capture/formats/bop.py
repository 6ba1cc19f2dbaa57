"""Scenes of the BOP benchmark (scene-wise layout), and its files of results.

Layout (BOP toolkit, ``docs/bop_datasets_format.md``): ``rgb`` or ``gray``, ``depth`` (16-bit PNG
or TIFF; times ``depth_scale`` it is mm), ``scene_camera.json`` (``cam_K`` row by row, and perhaps
``cam_R_w2c``, ``cam_t_w2c``), ``scene_gt.json`` (``obj_id``, ``cam_R_m2c``, ``cam_t_m2c``),
``scene_gt_info.json`` (``visib_fract``), ``mask_visib/IMAGE_INSTANCE.png``.  Millimetres become
metres.  Camera axes and the first pixel's centre are OpenCV's.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinloop.capture.files import inside, list_files, read_json, read_text
from twinloop.capture.formats.depth_files import DepthFiles, usable
from twinloop.capture.formats.export_checks import (
    check_extent,
    left_out,
    numbers,
    rigid,
    unposed,
)
from twinloop.capture.formats.image_list import ImageList, decode, read_numbers
from twinloop.capture.formats.lens import checked
from twinloop.capture.posed import MaskReader, PosedCapture
from twinloop.errors import InputError
from twinloop.geometry import se3
from twinloop.progress import track

Array = NDArray[np.float64]

PICTURES = {".png", ".jpg", ".jpeg", ".tif", ".tiff"}
BELIEVED = (0.01, 100.0)
"""Distance of an object from the camera that is believed, m."""
RESULTS = "scene_id,im_id,obj_id,score,R,t,time"
"""First line of a file of results."""
_LENS = ("fx", "fy", "cx", "cy")


@dataclass(frozen=True)
class BopPose:
    """One estimate of a file of results."""

    scene: int
    """Number of the scene."""
    image: int
    """Number of the picture."""
    object: int
    """Number of the object."""
    score: float
    """Confidence, of the estimator's own scale."""
    T_camera_object: Array
    """Object pose (4, 4), m, OpenCV's camera axes."""
    seconds: float
    """Time that the estimator took for the picture, s; -1 where not measured."""


@dataclass(frozen=True)
class _Instance:
    number: int
    T_camera_object: Array
    visible: float


def detects(folder: Path) -> bool:
    """Whether a folder is one scene of a BOP data set."""
    lens = (folder / "scene_camera.json").is_file() or (folder / "camera.json").is_file()
    poses = (folder / "scene_camera.json").is_file() or (folder / "scene_gt.json").is_file()
    return lens and poses and any((folder / n).is_dir() for n in ("rgb", "gray"))


def read_bop(folder: Path, obj_id: int | None = None) -> PosedCapture:
    """Read a scene of a BOP data set, with the poses of one object.

    Args:
        folder: The scene: the folder with ``scene_camera.json``.
        obj_id: The object; None when the scene shows one only.

    Returns:
        The capture.  Where the scene tells no camera poses, ``T_world_camera`` is None and
        ``T_world_object`` is in each camera's own frame.

    Raises:
        InputError: No such object, or one must be named; a file is missing, damaged, or implausible
            in millimetres.
    """
    if not detects(folder):
        inner = sorted(p.parent.name for p in folder.glob("*/scene_camera.json"))[:10]
        raise InputError(
            f"{folder}: is no scene of a BOP data set; scene_camera.json beside rgb/ or gray/ is "
            f"expected. {'Give one of its scenes: ' + ', '.join(inner) if inner else ''}"
        )
    pictures_folder = folder / ("rgb" if (folder / "rgb").is_dir() else "gray")
    by_id = _by_number(pictures_folder, PICTURES)
    described, notes = _cameras(folder, by_id)
    ids = sorted(i for i in described if i in by_id)
    if not ids:
        raise InputError(
            f"{pictures_folder}: none of the {len(described)} pictures that scene_camera.json "
            "lists is there."
        )
    missing = [f"{i:06d}" for i in sorted(described) if i not in by_id]
    notes += left_out(missing, len(described), "pictures")
    pictures = ImageList(
        folder,
        [str(by_id[i].relative_to(folder)) for i in ids],
        where=folder / "scene_camera.json",
    )
    cameras, metres, w2c = [], [], []
    for i, size in zip(track(ids, "cameras of BOP"), pictures.sizes.tolist(), strict=True):
        where = f"{folder / 'scene_camera.json'}: picture {i}"
        entry = described[i]
        K = numbers(entry.get("cam_K"), (9,), f"{where}, cam_K").reshape(3, 3)
        if abs(K[2, 2] - 1) > 1e-6 or np.abs(K[2, :2]).max() > 1e-6:
            raise InputError(f"{where}: cam_K {K.tolist()} has no last row 0 0 1.")
        centre = (float(K[0, 2]), float(K[1, 2]))
        cameras.append(
            checked(where, (float(K[0, 0]), float(K[1, 1])), centre, [0.0] * 5, tuple(size))
        )
        metres.append(1e-3 * float(numbers(entry.get("depth_scale", 1.0), (), f"{where}: depth")))
        w2c.append(_pose(entry, "w2c", where))
    T_world_camera = None
    if any(np.isfinite(T).all() for T in w2c):
        T_world_camera = se3.inverse(np.array(w2c))
        check_extent(T_world_camera, f"{folder / 'scene_camera.json'}: cam_t_w2c, read as mm")
        notes += unposed(T_world_camera, "cam_R_w2c or cam_t_w2c is missing")
    instances, chosen, told = _object(folder, ids, obj_id)
    notes += told
    T_world_object = None
    if chosen is not None:
        T_camera_object = np.array(
            [x.T_camera_object if x else np.full((4, 4), np.nan) for x in instances]
        )
        T_world_object = (
            T_camera_object if T_world_camera is None else T_world_camera @ T_camera_object
        )
    depths = _by_number(folder / "depth", {".png", ".tif", ".tiff"})
    depth, more = usable(
        DepthFiles(tuple(depths.get(i) for i in ids), tuple(metres), read_numbers),
        "depth_scale times millimetres",
    )
    return PosedCapture(
        format="BOP",
        pictures=pictures,
        cameras=tuple(cameras),
        T_world_camera=T_world_camera,
        metric=True,
        mask=_masks(folder, ids, instances),
        depth=depth,
        T_world_object=T_world_object,
        notes=(*notes, *more),
    )


def read_bop_results(path: Path) -> tuple[BopPose, ...]:
    """Read a file of results in BOP's format (``scene_id,im_id,obj_id,score,R,t,time``).

    Raises:
        InputError: A line is cut or holds no numbers, a matrix is no rotation, or distances cannot
            be millimetres; says the line.
    """
    found = []
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        if not line.strip() or (number == 1 and line.replace(" ", "").startswith(RESULTS)):
            continue
        where = f"{path}: line {number}"
        cells = line.split(",")
        if len(cells) != 7:
            raise InputError(f"{where} has {len(cells)} values, 7 are expected: {RESULTS}.")
        try:
            scene, image, thing = (int(v) for v in cells[:3])
            score, seconds = float(cells[3]), float(cells[6])
            R = np.array([float(v) for v in cells[4].split()])
            t = np.array([float(v) for v in cells[5].split()])
        except ValueError as error:
            raise InputError(f"{where} holds no numbers ({error}).") from error
        if R.shape != (9,) or t.shape != (3,):
            raise InputError(
                f"{where}: R has {R.size} and t {t.size} numbers; 9 and 3 are expected."
            )
        T = rigid(R.reshape(1, 3, 3), t[np.newaxis] / 1000, where)[0]
        if not np.isfinite(T).all():
            raise InputError(f"{where}: R or t holds a number that is not finite.")
        _check_distance(np.linalg.norm(T[:3, 3]), where)
        found.append(BopPose(scene, image, thing, score, T, seconds))
    if not found:
        raise InputError(f"{path}: holds no estimates.")
    return tuple(found)


def _by_number(folder: Path, suffixes: set[str]) -> dict[int, Path]:
    files = list_files(folder, suffixes) if folder.is_dir() else []
    return {int(p.stem): p for p in files if p.stem.isdecimal()}


def _by_image(path: Path) -> dict[int, Any]:
    """Content of a JSON file by the number of the picture."""
    content = read_json(path)
    if not isinstance(content, dict) or not all(k.lstrip("-").isdecimal() for k in content):
        raise InputError(f"{path}: an object with the pictures' numbers as keys is expected.")
    return {int(k): v for k, v in content.items()}


def _cameras(folder: Path, by_id: dict[int, Path]) -> tuple[dict[int, Any], tuple[str, ...]]:
    """What is said of each picture's camera."""
    path = inside(folder, "scene_camera.json")
    if path.is_file():
        described = _by_image(path)
        for i, entry in described.items():
            if not isinstance(entry, dict):
                raise InputError(f"{path}: picture {i}: an object is expected, {entry!r} is there.")
        return described, ()
    path = inside(folder, "camera.json")
    content = read_json(path)
    if not isinstance(content, dict):
        raise InputError(f"{path}: an object is expected.")
    fx, fy, cx, cy = (float(numbers(content.get(n), (), f"{path}: {n}")) for n in _LENS)
    entry = {
        "cam_K": [fx, 0, cx, 0, fy, cy, 0, 0, 1],
        "depth_scale": content.get("depth_scale", 1.0),
    }
    return dict.fromkeys(by_id, entry), (
        "There is no scene_camera.json: camera.json is taken as the lens of all pictures.",
    )


def _pose(entry: dict[str, Any], name: str, where: str) -> Array:
    """A pose in metres; NaN where the entry has none."""
    if f"cam_R_{name}" not in entry or f"cam_t_{name}" not in entry:
        return np.full((4, 4), np.nan)
    R = numbers(entry[f"cam_R_{name}"], (9,), f"{where}, cam_R_{name}").reshape(1, 3, 3)
    t = numbers(entry[f"cam_t_{name}"], (3,), f"{where}, cam_t_{name}")
    T: Array = rigid(R, t[np.newaxis] / 1000, where)[0]
    return T


def _object(
    folder: Path, ids: list[int], obj_id: int | None
) -> tuple[list[_Instance | None], int | None, tuple[str, ...]]:
    """The instance of the chosen object in each picture, the object, and notes."""
    path = inside(folder, "scene_gt.json")
    if not path.is_file():
        if obj_id is not None:
            raise InputError(f"{path}: is missing, so object {obj_id} cannot be found.")
        return [None] * len(ids), None, ("There is no scene_gt.json: object poses are unknown.",)
    truth = _by_image(path)
    info = inside(folder, "scene_gt_info.json")
    visible = _by_image(info) if info.is_file() else {}
    known = sorted({_id(e, path) for i in ids for e in _entries(truth, i, path)})
    if obj_id is None and len(known) != 1:
        raise InputError(f"{path}: the objects {known} are there; say which one is wanted.")
    chosen = known[0] if obj_id is None else obj_id
    if chosen not in known:
        raise InputError(f"{path}: object {chosen} is not there; there are {known}.")
    instances: list[_Instance | None] = []
    several = 0
    for i in ids:
        where = f"{path}: picture {i}"
        found = []
        for number, entry in enumerate(_entries(truth, i, path)):
            if _id(entry, path) == chosen:
                pose = _pose(entry, "m2c", where)
                if np.isfinite(pose).all():
                    _check_distance(np.linalg.norm(pose[:3, 3]), where)
                found.append(_Instance(number, pose, _fraction(visible, i, number)))
        several += len(found) > 1
        instances.append(max(found, key=lambda x: x.visible, default=None))
    notes: tuple[str, ...] = ()
    absent = sum(x is None for x in instances)
    if absent:
        notes += (f"Object {chosen} is absent from {absent} of {len(ids)} pictures.",)
    if several:
        notes += (
            f"{several} of {len(ids)} pictures show object {chosen} more than once; the least "
            "occluded one is taken.",
        )
    return instances, chosen, notes


def _entries(truth: dict[int, Any], image: int, path: Path) -> list[dict[str, Any]]:
    entries = truth.get(image, [])
    if not isinstance(entries, list) or not all(isinstance(e, dict) for e in entries):
        raise InputError(f"{path}: picture {image}: a list of objects is expected.")
    return entries


def _id(entry: dict[str, Any], path: Path) -> int:
    value = entry.get("obj_id")
    if not isinstance(value, int):
        raise InputError(f"{path}: obj_id is {value!r}; a whole number is expected.")
    return value


def _fraction(visible: dict[int, Any], image: int, number: int) -> float:
    entries = visible.get(image)
    if isinstance(entries, list) and number < len(entries) and isinstance(entries[number], dict):
        value = entries[number].get("visib_fract")
        return float(value) if isinstance(value, int | float) else 0.0
    return 0.0


def _check_distance(metres: np.floating[Any], where: str) -> None:
    if not BELIEVED[0] <= metres <= BELIEVED[1]:
        raise InputError(
            f"{where}: the object is {1000 * metres:.4g} mm from the camera, as BOP's unit is; if "
            f"the file is in metres it is {1000 * metres:.4g} m. {BELIEVED[0]:g} to "
            f"{BELIEVED[1]:g} m are believed. Convert translations to millimetres."
        )


def _masks(folder: Path, ids: list[int], instances: list[_Instance | None]) -> MaskReader | None:
    """Masks of the visible part of the object; of the whole object where only those exist."""
    base = next((folder / n for n in ("mask_visib", "mask") if (folder / n).is_dir()), None)
    if base is None:
        return None
    files = {p.stem: p for p in list_files(base, {".png"})}
    names = [f"{i:06d}_{x.number:06d}" if x else "" for i, x in zip(ids, instances, strict=True)]
    if not any(n in files for n in names):
        return None

    def read(index: int) -> NDArray[np.uint8] | None:
        path = files.get(names[index])
        if path is None:
            return None
        return np.where(decode(path, "grey") > 0, 255, 0).astype(np.uint8)

    return read
