"""ARKit recordings: folders of Stray Scanner, and scenes of Apple's ARKitScenes.

Stray Scanner (the app's ``docs/format.md`` and encoders): ``rgb.mp4``, ``camera_matrix.csv`` (3 x 3
at the stored size of the video), ``odometry.csv`` (timestamp, frame, x, y, z, qx, qy, qz, qw, in
later versions fx, fy, cx, cy: the camera with OpenCV's axes in ARKit's world, y up),
``depth/000007.png`` (mm; NumPy files in the first version), ``confidence/000007.png`` (0 to 2).

ARKitScenes (Apple, ``DATA.md`` and ``raw/README.md``): ``lowres_wide``, ``vga_wide`` and ``wide``
with pictures named ``<video>_<seconds>.png``, one ``.pincam`` each in ``<asset>_intrinsics``
(width, height, fx, fy, cx, cy), ``lowres_wide.traj`` (seconds, axis-angle and translation of world
to camera, OpenCV's axes, world z up), ``lowres_depth`` (mm) and ``confidence`` (0 to 2).
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation, Slerp

from twinloop.capture.files import inside, list_files, read_text
from twinloop.capture.formats.depth_files import DepthFiles, load_npy, usable
from twinloop.capture.formats.export_checks import (
    ARKIT_UP,
    check_extent,
    left_out,
    rigid,
    unposed,
)
from twinloop.capture.formats.image_list import ImageList, read_numbers
from twinloop.capture.formats.lens import checked, fitted
from twinloop.capture.formats.stray_odometry import match, read_odometry, read_rows
from twinloop.capture.formats.video_frames import VideoFrames
from twinloop.capture.posed import PosedCapture
from twinloop.capture.projection import Camera
from twinloop.capture.video import frame_times, probe_video, rotate_camera
from twinloop.errors import InputError
from twinloop.geometry import se3
from twinloop.progress import track

Array = NDArray[np.float64]

MEDIUM_CONFIDENCE = 1
"""Least confidence of ARKit's three (0, 1, 2) whose depth is used."""
LONGEST_GAP = 0.25
"""Longest gap between two samples of a trajectory that is bridged, s."""
SAME_STAMP = 0.0051
"""Stamps of one frame agree to this: names are rounded to milliseconds, assets to frames, s."""
_ASSETS = ("wide", "vga_wide", "lowres_wide")
_QUARTER = np.array([[0.0, 1, 0, 0], [-1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
"""Camera axes after the picture is turned a quarter counter-clockwise: x' = y, y' = -x."""


def detects_stray(folder: Path) -> bool:
    """Whether a folder is a recording of Stray Scanner."""
    names = ("rgb.mp4", "odometry.csv", "camera_matrix.csv")
    return all((folder / name).is_file() for name in names)


def detects_arkitscenes(folder: Path) -> bool:
    """Whether a folder is a scene of ARKitScenes, or holds its ``<video>_frames``."""
    return _scene(folder) is not None


def detects(folder: Path) -> bool:
    """Whether a folder is either."""
    return detects_stray(folder) or detects_arkitscenes(folder)


def read_stray(folder: Path) -> PosedCapture:
    """Read a recording of Stray Scanner.

    Frames of the video and rows of the odometry are matched by their stamps, because either may
    lack some; the pictures' times are the odometry's.

    Raises:
        InputError: A file is missing or damaged, the numbers are implausible, or video and odometry
            do not belong together.
    """
    video, path, lens = (
        inside(folder, name) for name in ("rgb.mp4", "odometry.csv", "camera_matrix.csv")
    )
    odometry = read_odometry(path)
    check_extent(odometry.T_world_camera, str(path))
    info = probe_video(video)
    stamps = frame_times(video)
    frames, rows, notes = match(stamps, odometry, folder)
    times = stamps[frames] if odometry.time is None else odometry.time[rows]
    pictures = VideoFrames(video, stamps, frames, times, notes)
    turns = info.rotation // 90 % 4
    stored = (info.height, info.width) if turns % 2 else (info.width, info.height)
    matrix = read_rows(lens, header=False)[1]
    if matrix.shape != (3, 3):
        raise InputError(
            f"{lens}: {' x '.join(map(str, matrix.shape))} numbers are there, 3 x 3 are expected."
        )
    single = matrix[[0, 1, 0, 1], [0, 1, 2, 2]]
    each = np.tile(single, (len(rows), 1))
    if odometry.intrinsics is not None:
        stated = odometry.intrinsics[rows]
        each = np.where(np.isfinite(stated).all(axis=1, keepdims=True), stated, each)
    cameras = tuple(_stray_lens(values, stored, info.rotation, lens) for values in each)
    T_world_camera = odometry.T_world_camera[rows] @ np.linalg.matrix_power(_QUARTER.T, turns)
    names = [f"{odometry.frame[row]:06d}" for row in rows]
    depths = _by_stem(folder / "depth", {".png", ".npy"})
    trust = _by_stem(folder / "confidence", {".png"})
    depth, more = usable(
        DepthFiles(
            tuple(depths.get(n) for n in names),
            (1e-3,) * len(names),
            _load_depth,
            confidence=tuple(trust.get(n) for n in names),
            least=MEDIUM_CONFIDENCE,
            turns=turns,
        ),
        "millimetres",
    )
    if turns:
        more += (f"The video is stored turned by {info.rotation} deg; all was turned upright.",)
    return PosedCapture(
        format="Stray Scanner",
        pictures=pictures,
        cameras=cameras,
        T_world_camera=T_world_camera,
        metric=True,
        up=ARKIT_UP,
        depth=depth,
        notes=(*notes, *unposed(T_world_camera, "tracking was lost"), *more),
    )


def read_arkitscenes(folder: Path) -> PosedCapture:
    """Read a scene of ARKitScenes: its largest pictures that have lenses.

    Poses are interpolated between the trajectory's samples.

    Raises:
        InputError: A file is missing or damaged, or the numbers are implausible.
    """
    root = _scene(folder)
    if root is None:
        raise InputError(
            f"{folder}: is no scene of ARKitScenes; lowres_wide.traj beside lowres_wide/ and "
            "lowres_wide_intrinsics/ is expected. Unpack the assets' archives in place."
        )
    trajectory = inside(root, "lowres_wide.traj")
    asset = _asset(root)
    intrinsics = root / f"{asset}_intrinsics"
    stamped = _by_stamp(root / asset, {".png", ".jpg"})
    lenses = _by_stamp(intrinsics, {".pincam"})
    found = {stamp: _nearby(lenses, stamp) for stamp in sorted(stamped)}
    there = [stamp for stamp, lens in found.items() if lens is not None]
    if not there:
        raise InputError(f"{intrinsics}: holds no lens of any of the {len(found)} pictures.")
    lacking = [stamped[s].name for s in found if found[s] is None]
    pictures = ImageList(
        root, [str(stamped[s].relative_to(root)) for s in there], times=there, where=trajectory
    )
    cameras = []
    sizes = zip(track(there, "lenses of ARKitScenes"), pictures.sizes, strict=True)
    for stamp, (width, height) in sizes:
        path = found[stamp]
        assert path is not None
        cameras.append(_pincam(path, (int(width), int(height))))
    T_world_camera = _interpolated(trajectory, np.array(there))
    check_extent(T_world_camera, str(trajectory))
    depths = _by_stamp(root / "lowres_depth", {".png"})
    trust = _by_stamp(root / "confidence", {".png"})
    depth, more = usable(
        DepthFiles(
            tuple(_nearby(depths, s) for s in there),
            (1e-3,) * len(there),
            read_numbers,
            confidence=tuple(_nearby(trust, s) for s in there),
            least=MEDIUM_CONFIDENCE,
        ),
        "millimetres",
    )
    return PosedCapture(
        format="ARKitScenes",
        pictures=pictures,
        cameras=tuple(cameras),
        T_world_camera=T_world_camera,
        metric=True,
        up=np.array([0.0, 0.0, 1.0]),
        depth=depth,
        notes=(
            f"The pictures of {asset} are used.",
            *left_out(lacking, len(found), "lenses"),
            *unposed(T_world_camera, f"the trajectory has a gap of over {LONGEST_GAP:g} s there"),
            *more,
        ),
    )


def _stray_lens(values: Array, stored: tuple[int, int], rotation: int, path: Path) -> Camera:
    fx, fy, cx, cy = (float(v) for v in values)
    off = np.abs(np.array([cx, cy]) / stored - 0.5)
    if not off.max() < 0.2:
        raise InputError(
            f"{path}: the principal point ({cx:g}, {cy:g}) is far from the middle of the video's "
            f"{stored[0]} x {stored[1]} px as stored; the video was resized or turned by another "
            "program. Use the app's own files."
        )
    # ARKit measures from the corner of the first pixel, we from its centre.
    camera = checked(str(path), (fx, fy), (cx - 0.5, cy - 0.5), [0.0] * 5, stored)
    return Camera(
        *rotate_camera(camera.intrinsics, camera.distortion, camera.width, camera.height, rotation)
    )


def _load_depth(path: Path) -> Array:
    return load_npy(path) if path.suffix == ".npy" else read_numbers(path)


def _by_stem(folder: Path, suffixes: set[str]) -> dict[str, Path]:
    return {p.stem: p for p in list_files(folder, suffixes)} if folder.is_dir() else {}


def _scene(folder: Path) -> Path | None:
    inner = [folder, *(sorted(folder.glob("*_frames"))[:1] if folder.is_dir() else [])]
    return next((root for root in inner if (root / "lowres_wide.traj").is_file()), None)


def _asset(root: Path) -> str:
    for asset in _ASSETS:
        if (root / asset).is_dir() and (root / f"{asset}_intrinsics").is_dir():
            return asset
    raise InputError(
        f"{root}: has none of {', '.join(_ASSETS)} together with its `_intrinsics`; unpack the "
        "assets' archives in place."
    )


def _by_stamp(folder: Path, suffixes: set[str]) -> dict[float, Path]:
    """Files by the seconds in their names (``41048190_3414.512.png``)."""
    found = {}
    for path in list_files(folder, suffixes) if folder.is_dir() else []:
        stamp = re.fullmatch(r"(?:.*_)?(\d{1,12}(?:\.\d{1,9})?)", path.stem)
        if stamp:
            found[float(stamp[1])] = path
    return found


def _nearby(files: dict[float, Path], stamp: float) -> Path | None:
    """The file of a stamp; names of one frame differ by rounding between the assets."""
    if stamp in files:
        return files[stamp]
    tried = (round(stamp + k * 1e-3, 3) for k in (-1, 1, -2, 2, -3, 3, -4, 4, -5, 5))
    return next((files[t] for t in tried if t in files), None)


def _pincam(path: Path, size: tuple[int, int]) -> Camera:
    try:
        width, height, fx, fy, cx, cy = (float(v) for v in read_text(path, 4096).split())
    except ValueError as error:
        raise InputError(
            f"{path}: width, height, fx, fy, cx and cy are expected ({error})."
        ) from error
    if not (np.isfinite([width, height]).all() and min(width, height) >= 1):
        raise InputError(f"{path}: a size of {width:g} x {height:g} px.")
    # ARKit measures from the corner of the first pixel, we from its centre.
    declared = (int(width), int(height))
    camera = checked(str(path), (fx, fy), (cx - 0.5, cy - 0.5), [0.0] * 5, declared)
    return fitted(str(path), camera, size)


def _interpolated(path: Path, times: Array) -> Array:
    """Poses (n, 4, 4) of a trajectory file at times (n,), NaN inside gaps and beyond its ends."""
    rows = []
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = [float(v) for v in line.split()]
        except ValueError as error:
            raise InputError(f"{path}: line {number} holds {line[:60]!r}: {error}.") from error
        if len(row) != 7:
            raise InputError(f"{path}: line {number} has {len(row)} values, 7 are expected.")
        rows.append(row)
    samples = np.array(rows).reshape(-1, 7)
    samples = samples[np.isfinite(samples).all(axis=1)]
    if len(samples) < 2 or not (np.diff(samples[:, 0]) > 0).all():
        raise InputError(
            f"{path}: {len(samples)} poses; two or more, sorted by time, are expected."
        )
    rotations = Rotation.from_rotvec(samples[:, 1:4])
    T = se3.inverse(rigid(rotations.as_matrix(), samples[:, 4:], str(path)))
    stamp = samples[:, 0]
    inner = np.clip(times, stamp[0], stamp[-1])
    after = np.clip(np.searchsorted(stamp, inner), 1, len(stamp) - 1)
    before = after - 1
    near = np.minimum(np.abs(times - stamp[before]), np.abs(times - stamp[after])) < SAME_STAMP
    bridged = (stamp[after] - stamp[before] < LONGEST_GAP) & (np.abs(times - inner) == 0)
    share = ((inner - stamp[before]) / (stamp[after] - stamp[before]))[:, np.newaxis]
    R = Slerp(stamp, Rotation.from_matrix(T[:, :3, :3]))(inner).as_matrix()
    position = (1 - share) * T[before, :3, 3] + share * T[after, :3, 3]
    poses = se3.from_rotation_position(R, position)
    poses[~(near | bridged)] = np.nan
    return np.asarray(poses, dtype=np.float64)
