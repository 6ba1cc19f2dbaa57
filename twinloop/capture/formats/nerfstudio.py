"""``transforms.json`` of nerfstudio and instant-ngp: pictures, lenses, poses, points, masks, depth.

nerfstudio scales and centres poses when it trains; the file holds them before that, and what was
done earlier (``applied_transform``, ``applied_scale``) is undone here.  The unit of the world is
whatever the first program's was, and the file does not say, so it is never taken for metres.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import trimesh
from numpy.typing import NDArray
from PIL import Image

from twinloop.capture.files import inside, natural_key, read_json
from twinloop.capture.formats import transforms
from twinloop.capture.formats.image_list import ImageList, Size, decode, read_numbers, same_shape
from twinloop.capture.formats.lens import fitted
from twinloop.capture.posed import PosedCapture
from twinloop.capture.projection import Camera
from twinloop.capture.warning import CaptureWarning
from twinloop.errors import InputError

Array = NDArray[np.float64]

MOST_FRAMES = 100_000
"""Most frames that are read."""
LARGEST_POINTS = 2 * 2**30
"""Largest point file that is read, bytes."""
MILLIMETRES = 1e-3
"""Unit of depth pictures where the file does not say, m."""
PLAUSIBLE_DEPTH = (0.01, 1000.0)
"""Median depth of a picture that is believed, m."""
_GUESSED_SUFFIXES = (".png", ".jpg", ".jpeg", ".JPG", ".PNG", ".JPEG")


@dataclass(frozen=True)
class _Frame:
    where: str
    name: str
    """File name of the picture, relative to the file's folder."""
    block: Mapping[str, Any]
    """Keys of the frame over those of the file."""


def detects(folder: Path) -> bool:
    """Whether a folder holds a ``transforms.json``."""
    return (folder / "transforms.json").is_file()


def read_nerfstudio(path: Path) -> PosedCapture:
    """Read ``transforms.json`` and what it lists.

    Frames whose picture does not exist are left out with a warning that counts them.  Frames whose
    pose is not finite stay, with a pose of NaN.

    Args:
        path: The JSON file, or the folder of ``transforms.json``.

    Raises:
        InputError: No such file, no frames, none of the pictures exists, a fisheye lens, a matrix
            that is no pose, a name that leads out of the folder, or points that cannot be read.
    """
    file = path if path.suffix.lower() == ".json" else path / "transforms.json"
    content = read_json(file)
    if not isinstance(content, dict) or not isinstance(content.get("frames"), list):
        raise InputError(f"{file}: a mapping with a list `frames` is expected.")
    undo = transforms.applied(str(file), content)
    frames, notes = _present(file, content)
    pictures = ImageList(
        file.parent,
        [frame.name for frame in frames],
        declared=[transforms.declared_size(frame.where, frame.block) for frame in frames],
        where=file,
    )
    sizes: list[Size] = [(width, height) for width, height in pictures.sizes.tolist()]
    cameras = tuple(_lens(frame, size) for frame, size in zip(frames, sizes, strict=True))
    poses = _poses(file, frames, undo)
    lost = int(np.isnan(poses[:, 0, 0]).sum())
    if lost:
        notes.append(f"{lost} of {len(frames)} frames have a pose that is not finite.")
    if undo.scale != 1 or not np.array_equal(undo.transform, np.eye(4)):
        notes.append("applied_transform and applied_scale were undone.")
    points, no_points = _points(file, content, undo)
    masks, no_masks = _listed(file, frames, ("mask_path",), "masks")
    depths, no_depths = _listed(file, frames, ("depth_file_path", "depth_path"), "depth pictures")
    unit = _depth_unit(str(file), content)
    return PosedCapture(
        format="nerfstudio",
        pictures=pictures,
        cameras=cameras,
        T_world_camera=poses,
        metric=False,
        points=points,
        mask=None if masks is None else lambda index: _mask(masks[index], sizes[index]),
        depth=None if depths is None else lambda index: _depth(depths[index], unit),
        notes=(*notes, *no_points, *no_masks, *no_depths),
    )


def _present(file: Path, content: Mapping[str, Any]) -> tuple[list[_Frame], list[str]]:
    """The frames whose picture exists, in natural order of names."""
    listed = content["frames"]
    if not 0 < len(listed) <= MOST_FRAMES:
        raise InputError(f"{file}: lists {len(listed)} frames; 1 to {MOST_FRAMES} are expected.")
    common = {key: value for key, value in content.items() if key != "frames"}
    there: dict[str, _Frame] = {}
    missing: list[str] = []
    for index, frame in enumerate(listed):
        where = f"{file}: frame {index}"
        if not isinstance(frame, dict) or not isinstance(frame.get("file_path"), str):
            raise InputError(f"{where}: a mapping with the text `file_path` is expected.")
        name = _picture_name(file, frame["file_path"])
        if name is None:
            missing.append(frame["file_path"])
        elif name in there:
            raise InputError(f"{where}: {name} is listed twice; give each picture one pose.")
        else:
            there[name] = _Frame(f"{where} ({name})", name, {**common, **frame})
    if not there:
        raise InputError(
            f"{file}: none of its {len(missing)} pictures exists (the first is {missing[0]!r}, "
            f"looked for in {file.parent}). Put the pictures beside the file."
        )
    frames = [there[name] for name in sorted(there, key=natural_key)]
    if not missing:
        return frames, []
    note = (
        f"{len(missing)} of {len(listed)} listed pictures do not exist and are left out (the first "
        f"is {missing[0]})."
    )
    warnings.warn(f"{file}: {note}", CaptureWarning, stacklevel=3)
    return frames, [note]


def _picture_name(file: Path, said: str) -> str | None:
    """The name of the file that ``file_path`` means: some programs leave out the suffix."""
    for suffix in ("", *_GUESSED_SUFFIXES):
        path = inside(file.parent, said + suffix, file)
        if path.is_file():
            return path.relative_to(file.parent).as_posix()
    return None


def _lens(frame: _Frame, size: Size) -> Camera:
    declared = transforms.declared_size(frame.where, frame.block)
    lens = transforms.camera(frame.where, frame.block, declared or size)
    return fitted(frame.where, lens, size)


def _poses(file: Path, frames: Sequence[_Frame], undo: transforms.Applied) -> Array:
    poses = np.full((len(frames), 4, 4), np.nan)
    for index, frame in enumerate(frames):
        found = transforms.pose(frame.where, frame.block.get("transform_matrix"), undo)
        if found is not None:
            poses[index] = found
    if np.isnan(poses).all():
        raise InputError(f"{file}: no frame has a pose of finite numbers.")
    return poses


def _points(
    file: Path, content: Mapping[str, Any], undo: transforms.Applied
) -> tuple[Array | None, list[str]]:
    """Sparse points of the file's world, in the original world."""
    said = content.get("ply_file_path")
    if said is not None and not isinstance(said, str):
        raise InputError(f"{file}: ply_file_path is {str(said)[:40]!r}; a file name is expected.")
    path = inside(file.parent, said or "sparse_pc.ply", file)
    if not path.is_file():
        return None, [f"The points {said} do not exist."] if said else []
    points = read_ply_points(path)
    return undo.undone(points), []


def read_ply_points(path: Path) -> Array:
    """Positions (m, 3) of a PLY point cloud, text or binary.

    Raises:
        InputError: No PLY, fewer points than its header says, or a position that is not finite.
    """
    if path.stat().st_size > LARGEST_POINTS:
        raise InputError(f"{path}: is larger than {LARGEST_POINTS} bytes.")
    try:
        with path.open("rb") as stream:
            head = stream.read(4096)
            stream.seek(0)
            cloud: Any = trimesh.load(stream, file_type="ply", process=False)
        points = np.array(cloud.vertices, dtype=np.float64).reshape(-1, 3)
    except Exception as error:  # trimesh trips over forged headers in many ways
        raise InputError(f"{path}: cannot be read as PLY points ({error}).") from error
    count = re.search(rb"element vertex (\d+)", head)
    if count is None or int(count[1]) != len(points):
        raise InputError(
            f"{path}: holds {len(points)} points, its header says "
            f"{count[1].decode() if count else 'nothing'}. Was it cut while being copied?"
        )
    if not np.isfinite(points).all():
        raise InputError(f"{path}: holds a point that is not finite.")
    return points


def _listed(
    file: Path, frames: Sequence[_Frame], keys: Sequence[str], what: str
) -> tuple[list[Path | None] | None, list[str]]:
    """Files beside the pictures (n,), None where a frame has none; None when no frame has any."""
    paths: list[Path | None] = []
    missing: list[str] = []
    for frame in frames:
        said = next((frame.block[key] for key in keys if frame.block.get(key) is not None), None)
        if said is None:
            paths.append(None)
            continue
        if not isinstance(said, str):
            raise InputError(f"{frame.where}: {keys[0]} is {str(said)[:40]!r}; a name is expected.")
        path = inside(file.parent, said, file)
        if not path.is_file():
            missing.append(said)
        paths.append(path if path.is_file() else None)
    found = paths if any(paths) else None
    if not missing:
        return found, []
    note = f"{len(missing)} of {len(frames)} {what} do not exist (the first is {missing[0]})."
    warnings.warn(f"{file}: {note}", CaptureWarning, stacklevel=3)
    return found, [note]


def _mask(path: Path | None, size: Size) -> NDArray[np.uint8] | None:
    if path is None:
        return None
    grey = decode(path, "grey")
    found = (grey.shape[1], grey.shape[0])
    if not same_shape(found, size):
        raise InputError(
            f"{path}: the mask has {found[0]} x {found[1]} px, its picture {size[0]} x {size[1]}; "
            "the same shape is expected. Was one of them turned?"
        )
    if found != size:
        grey = np.asarray(Image.fromarray(grey).resize(size, Image.Resampling.NEAREST))
    return np.where(grey > 127, 255, 0).astype(np.uint8)


def _depth_unit(where: str, content: Mapping[str, Any]) -> float:
    """Metres for one unit of a depth picture: nerfstudio's millimetres, or as instant-ngp says."""
    for key in ("depth_unit_scale_factor", "integer_depth_scale"):
        unit = transforms.number(where, content, key)
        if unit is not None:
            if not 0 < unit < np.inf:
                raise InputError(f"{where}: {key} is {unit}; a positive number is expected.")
            return unit
    return MILLIMETRES


def _depth(path: Path | None, unit: float) -> Array | None:
    if path is None:
        return None
    raw = _numpy_depth(path) if path.suffix.lower() == ".npy" else read_numbers(path)
    depth = np.where(np.isfinite(raw) & (raw > 0), raw * unit, np.nan)
    if np.isnan(depth).all():
        return depth
    median = float(np.nanmedian(depth))
    low, high = PLAUSIBLE_DEPTH
    if not low <= median <= high:
        raise InputError(
            f"{path}: the median depth is {median:.3g} m with {unit:g} m a unit; {low:g} to "
            f"{high:g} m are expected. State the unit: `depth_unit_scale_factor` is 0.001 for "
            "millimetres, 1 for metres."
        )
    return depth


def _numpy_depth(path: Path) -> Array:
    try:
        # Mapped, so that a header of 2**60 numbers is compared with the file and not allocated.
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
        depth = np.array(np.squeeze(mapped), dtype=np.float64)
    except (OSError, ValueError, TypeError, EOFError, OverflowError) as error:
        raise InputError(f"{path}: cannot be read as an array of depth ({error}).") from error
    if depth.ndim != 2:
        raise InputError(f"{path}: has the shape {depth.shape}; rows and columns are expected.")
    return depth
