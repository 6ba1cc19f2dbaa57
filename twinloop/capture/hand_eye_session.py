"""The folder of a hand-eye calibration: pictures of a board, and the robot's pose in each.

``camera.yaml`` is the lens, ``board.yaml`` the board, ``images/`` holds the pictures, ``poses.csv``
one line for each picture: ``image,x,y,z,qw,qx,qy,qz``, its file name and the flange in the robot's
base, m.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml
from numpy.typing import NDArray

from twinloop.capture.board import detect_tags, load_board
from twinloop.capture.calibrate import View
from twinloop.capture.camera_yaml import load_camera
from twinloop.capture.files import read_text
from twinloop.capture.hand_eye import HandEye
from twinloop.capture.photos import Photos
from twinloop.capture.projection import Camera
from twinloop.errors import InputError
from twinloop.geometry import quaternion, se3
from twinloop.progress import track

Array = NDArray[np.float64]
COLUMNS = ("image", "x", "y", "z", "qw", "qx", "qy", "qz")
FEWEST_TAGS = 2
"""Tags that a picture must show."""


@dataclass(frozen=True)
class Session:
    """What was measured."""

    T_base_flange: Array
    """Poses of the pictures that show the board (n, 4, 4), m."""
    views: list[View]
    """What they show of it (n,)."""
    camera: Camera
    """The lens."""
    left_out: tuple[str, ...]
    """Pictures without enough of the board."""


def read_session(folder: Path) -> Session:
    """Read a folder and find the board in its pictures.

    Raises:
        InputError: A file is missing or damaged, a picture has no pose or a pose no picture, sizes
            differ from camera.yaml, or the board is nowhere; names it.
    """
    lens = load_camera(folder / "camera.yaml")
    camera = Camera(
        np.array(lens.intrinsics), np.array(lens.distortion), int(lens.width), int(lens.height)
    )
    board = load_board(folder / "board.yaml")
    poses = read_poses(folder / "poses.csv")
    photos = Photos(folder / "images")
    missing = sorted(set(poses) - set(photos.names))
    extra = sorted(set(photos.names) - set(poses))
    if missing or extra:
        raise InputError(
            f"{folder / 'poses.csv'}: names {len(poses)} pictures, {folder / 'images'} holds "
            f"{len(photos.names)}; without a picture: {missing[:5]}, without a pose: {extra[:5]}"
        )
    for name, size in zip(photos.names, photos.sizes.tolist(), strict=True):
        if tuple(size) != (camera.width, camera.height):
            raise InputError(
                f"{folder / 'images' / name}: {size[0]} x {size[1]} px upright, camera.yaml is for "
                f"{camera.width} x {camera.height} px: calibrate the lens at this size"
            )
    views, kept, left_out, foreign = [], [], [], 0
    for picture in track(photos.read(pixels="grey"), "find the board", total=len(poses)):
        name = photos.names[picture.index]
        tags = detect_tags(picture.image, board)
        foreign += tags.foreign
        if len(tags.ids) < FEWEST_TAGS:
            left_out.append(name)
            continue
        views.append(View(picture.index, *tags.pairs(board)))
        kept.append(poses[name])
    if not views:
        raise InputError(
            f"{folder / 'images'}: none of {len(poses)} pictures shows {FEWEST_TAGS} tags of "
            f"board.yaml (family {board.family}); {foreign} tags with other numbers were seen"
        )
    return Session(np.stack(kept), views, camera, tuple(left_out))


def read_poses(path: Path) -> dict[str, Array]:
    """Flange poses (4, 4) by the name of their picture.

    Raises:
        InputError: A column is missing, a value is no number, a quaternion has not the norm 1, or
            a picture stands twice; names the line.
    """
    rows = csv.DictReader(io.StringIO(read_text(path)), skipinitialspace=True)
    absent = [column for column in COLUMNS if column not in (rows.fieldnames or ())]
    if absent:
        raise InputError(
            f"{path}: the columns {', '.join(absent)} are missing; its first line must be "
            f"{','.join(COLUMNS)}"
        )
    poses: dict[str, Array] = {}
    try:
        for row in rows:
            where = f"{path}, line {rows.line_num}"
            name = row["image"]
            if not name or name in poses:
                raise InputError(f"{where}: the picture {name!r} is not named, or stands twice")
            try:
                values = np.array([float(row[column]) for column in COLUMNS[1:]])
            except (TypeError, ValueError) as error:
                raise InputError(f"{where}: {error}; expected seven numbers") from error
            norm = float(np.linalg.norm(values[3:]))
            if not np.isfinite(values).all() or abs(norm - 1) > 1e-3:
                raise InputError(
                    f"{where}: position {values[:3].tolist()} m, quaternion of norm {norm:.4f}; "
                    "expected finite numbers and the norm 1 (order qw, qx, qy, qz)"
                )
            poses[name] = se3.from_position_quaternion(values[:3], quaternion.normalize(values[3:]))
    except csv.Error as error:
        raise InputError(f"{path}, line {rows.line_num}: no CSV ({error})") from error
    return poses


def result_text(found: HandEye) -> str:
    """The result as YAML: poses, 95 % bounds, residuals; SI units, quaternions wxyz."""
    content: dict[str, object] = {"eye_in_hand": found.eye_in_hand}
    on, of = ("flange", "base") if found.eye_in_hand else ("base", "flange")
    for name, T in (
        (f"T_{on}_camera", found.T_mount_camera),
        (f"T_{of}_board", found.T_target_board),
    ):
        position, wxyz = se3.to_position_quaternion(T)
        content[name] = {
            "position": [round(float(x), 7) for x in position],
            "quaternion_wxyz": [round(float(x), 8) for x in wxyz],
        }
    content["position_95"] = round(found.translation_95, 7)
    content["rotation_95"] = round(found.rotation_95, 7)
    content["reprojection_rms_px"] = round(found.rms, 4)
    content["robot_rms"] = [round(x, 7) for x in found.pose_rms]
    return yaml.safe_dump(content, sort_keys=False, default_flow_style=None)
