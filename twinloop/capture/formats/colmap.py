"""COLMAP models as captures: pictures with lens and pose, and the sparse points."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from twinloop.capture.files import inside, natural_key
from twinloop.capture.formats.colmap_files import Model, Points, Registered, holds_model, read_model
from twinloop.capture.formats.image_list import ImageList
from twinloop.capture.formats.lens import fitted
from twinloop.capture.posed import PosedCapture
from twinloop.capture.projection import Camera
from twinloop.capture.warning import CaptureWarning
from twinloop.errors import InputError
from twinloop.geometry import se3

Array = NDArray[np.float64]

LARGEST_RESIDUAL = 8.0
"""Median distance of a model's observations from its own points that is accepted, px."""
_PICTURE_SUFFIXES = (".jpg", ".jpeg", ".png", ".tif", ".tiff", ".bmp", ".webp")


def detects(folder: Path) -> bool:
    """Whether a folder holds a COLMAP model: itself, in ``sparse``, or in ``colmap/sparse``."""
    return bool(_model_folders(folder))


def read_colmap(folder: Path, images: Path | None = None) -> PosedCapture:
    """Read a COLMAP model and its pictures.

    Poses are of the model's own world, whose scale is arbitrary.  The distortion coefficients and
    poses are proven on the model's own observations: its points must project to them.

    Args:
        folder: The folder of the project (``images`` and ``sparse`` in it), or of the model.
        images: Folder that the names of the pictures are relative to; None to look for ``images``.

    Raises:
        InputError: No model, a damaged one, none of its pictures is there, or its points do not
            project to its observations.
    """
    models = [read_model(candidate) for candidate in _model_folders(folder)]
    if not models:
        raise InputError(
            f"{folder}: no COLMAP model; cameras.bin and images.bin (or .txt) are expected in it, "
            "in sparse/0, or in sparse."
        )
    # COLMAP numbers models as it finds them, not by size.
    model = max(models, key=lambda m: len(m.images))
    notes = []
    if len(models) > 1:
        sizes = ", ".join(f"{m.folder.name} with {len(m.images)}" for m in models)
        notes.append(
            f"The reconstruction fell into {len(models)} models (pictures: {sizes}); the largest, "
            f"{model.folder.name}, is used."
        )
    if not model.images:
        raise InputError(f"{model.folder}: the model has no pictures; reconstruct again.")
    root = images if images is not None else _images_folder(folder, model)
    registered, missing = _present(root, model)
    notes += missing
    unregistered = _unregistered(root, model)
    if unregistered:
        notes.append(f"{unregistered} pictures in {root.name} are not in the model; left out.")
    notes += _proven(model)
    pictures = ImageList(
        root,
        [image.name for image in registered],
        declared=[_size(model.cameras[image.camera_id]) for image in registered],
        where=model.folder,
    )
    cameras, scaled = _cameras(root, model, registered, pictures)
    notes += scaled
    T_camera_world = se3.from_position_quaternion(
        np.array([image.translation for image in registered]),
        np.array([image.quaternion for image in registered]),
    )
    return PosedCapture(
        format="COLMAP",
        pictures=pictures,
        cameras=cameras,
        T_world_camera=se3.inverse(T_camera_world),
        metric=False,
        points=model.points.positions if len(model.points.ids) else None,
        notes=tuple(notes),
    )


def _model_folders(folder: Path) -> list[Path]:
    if holds_model(folder):
        return [folder]
    for parent in (folder / "sparse", folder / "colmap" / "sparse"):
        if not parent.is_dir():
            continue
        inside(folder, str(parent.relative_to(folder)))
        if holds_model(parent):
            return [parent]
        found = sorted(
            (p for p in parent.iterdir() if holds_model(p)), key=lambda p: natural_key(p.name)
        )
        if found:
            return [inside(folder, str(p.relative_to(folder))) for p in found]
    return []


def _images_folder(folder: Path, model: Model) -> Path:
    """The first folder, from the model outwards, where the first listed picture is found."""
    within = [model.folder, *model.folder.parents]
    above = within[: within.index(folder) + 1] if folder in within else [folder]
    if folder == model.folder:  # the model itself was given: its project may lie around it
        above = within[:4]
    candidates = [root for base in above for root in (base / "images", base)]
    names = [image.name for image in model.images]
    for root in candidates:
        if root.is_dir() and any(inside(root, name, model.folder).is_file() for name in names):
            return root
    raise InputError(
        f"{model.folder}: none of its {len(names)} pictures (the first is {names[0]!r}) is in "
        f"{folder / 'images'}. Put the pictures there, or say where they are."
    )


def _present(root: Path, model: Model) -> tuple[list[Registered], list[str]]:
    there: list[Registered] = []
    missing: list[Registered] = []
    for image in sorted(model.images, key=lambda i: natural_key(i.name)):
        path = inside(root, image.name, model.folder)
        (there if path.is_file() else missing).append(image)
    if not there:
        raise InputError(
            f"{model.folder}: none of its {len(model.images)} pictures (the first is "
            f"{missing[0].name!r}) is in {root}. Put the pictures there, or say where they are."
        )
    if not missing:
        return there, []
    note = (
        f"{len(missing)} of {len(model.images)} pictures of the model are not in {root.name} and "
        f"are left out (the first is {missing[0].name})."
    )
    warnings.warn(f"{model.folder}: {note}", CaptureWarning, stacklevel=3)
    return there, [note]


def _unregistered(root: Path, model: Model) -> int:
    names = {image.name for image in model.images}
    folders = sorted({(root / name).parent for name in names})
    return sum(
        path.suffix.lower() in _PICTURE_SUFFIXES and str(path.relative_to(root)) not in names
        for folder in folders
        if folder.is_dir()
        for path in folder.iterdir()
    )


def _size(camera: Camera) -> tuple[int, int]:
    return camera.width, camera.height


def _cameras(
    root: Path, model: Model, registered: list[Registered], pictures: ImageList
) -> tuple[tuple[Camera, ...], list[str]]:
    cameras = []
    scaled = 0
    for image, (width, height) in zip(registered, pictures.sizes.tolist(), strict=True):
        lens = model.cameras[image.camera_id]
        cameras.append(fitted(str(root / image.name), lens, (width, height)))
        scaled += (width, height) != _size(lens)
    notes = [f"{scaled} pictures have another size than their lens, which was scaled."]
    return tuple(cameras), notes if scaled else []


def residuals(model: Model) -> Array:
    """Distance of every observation from its projected point (k,), px."""
    order = np.argsort(model.points.ids)
    points = Points(
        model.points.ids[order],
        model.points.positions[order],
        model.points.errors[order],
        model.points.tracks[order],
    )
    found = [_image_residuals(model.cameras[i.camera_id], i, points) for i in model.images]
    return np.concatenate(found) if found else np.empty(0)


def _image_residuals(camera: Camera, image: Registered, points: Points) -> Array:
    if not len(points.ids):
        return np.empty(0)
    place = np.searchsorted(points.ids, image.point_ids).clip(max=len(points.ids) - 1)
    known = points.ids[place] == image.point_ids
    T_camera_world = se3.from_position_quaternion(image.translation, image.quaternion)
    seen = se3.apply(T_camera_world, points.positions[place[known]])
    front = seen[:, 2] > 0
    distance = np.full(len(seen), np.inf)
    distance[front] = np.linalg.norm(
        camera.project(seen[front]) - image.pixels[known][front], axis=1
    )
    return distance


def _proven(model: Model) -> list[str]:
    """Check that points project to observations: exports with swapped axes or lenses do not."""
    distance = residuals(model)
    if not len(distance):
        return ["The model has no observations of points; its lenses and poses are unproven."]
    median = float(np.median(distance))
    if not median <= LARGEST_RESIDUAL:  # NaN is no proof either
        raise InputError(
            f"{model.folder}: the model's points project {median:.3g} px (median of "
            f"{len(distance)}) beside their observations; at most {LARGEST_RESIDUAL:g} px are "
            "accepted. The poses are not world-to-camera with quaternions w, x, y, z, or the "
            "cameras are of other pictures. Export the model with COLMAP itself."
        )
    return [
        f"The model's points project {median:.2f} px (median of {len(distance)}) beside their "
        "observations."
    ]
