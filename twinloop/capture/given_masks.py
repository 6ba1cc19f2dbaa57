"""Masks that were made elsewhere, by whatever way ``scan.yaml`` names, as one function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import cv2
import numpy as np
from numpy.typing import NDArray

from twinloop.capture.files import inside
from twinloop.capture.hull import Shape, VoxelGrid, carve, largest_component
from twinloop.capture.mask import MaskSettings
from twinloop.capture.mask_files import masked_pictures, read_masks
from twinloop.capture.photos import Photos
from twinloop.capture.segmenter import Segmenter
from twinloop.capture.source import Scan
from twinloop.errors import InputError
from twinloop.geometry import se3

Array = NDArray[np.float64]
Images = NDArray[np.uint8]
MOST_RIM = 0.9
"""Largest part of the pictures' rim that an object covers."""
GivenMask = Callable[[int, Images], "Images | None"]
"""Mask (height, width) of a picture by its index and its pixels (height, width, 3), at their size;
None when there is none."""

WRONG = 0.1
"""Share of given masks that may be wrong at a place when the wrong ones are sought: with fewer
allowed, two half masks of 24 carve the hull away, and then the good ones look bad."""
MISFIT = 0.8
"""Overlap with that rough hull, relative to the median one, below which a mask does not carve."""


def given_mask(scan: Scan) -> tuple[str, GivenMask | None]:
    """Return where masks come from, and the function that gives them; None when there are none.

    Raises:
        InputError: What ``scan.yaml`` names is missing, empty or does not fit the pictures.
    """
    file = scan.file
    if file.segmenter:
        path = inside(scan.folder, file.segmenter, scan.folder / "scan.yaml")
        segmenter = Segmenter(path)
        return "segmenter", lambda _, image: segmenter.mask(image)
    if file.masks:
        reader = read_masks(
            inside(scan.folder, file.masks, scan.folder / "scan.yaml"),
            scan.pictures.names,
            scan.pictures.sizes,
            file.mask_object,
        )
        return "mask files", lambda index, image: _resized(reader(index), image)
    if file.alpha:
        if not isinstance(scan.pictures, Photos):
            raise InputError(
                f"{scan.folder / 'scan.yaml'}: alpha: true needs a folder of pictures with an "
                f"alpha channel; this scan is of the format {scan.format!r}."
            )
        photos = scan.pictures
        return "alpha", lambda index, image: _resized(photos.alpha(index), image)
    if scan.posed is not None and scan.posed.mask is not None:
        posed = scan.posed.mask
        return "export", lambda index, image: _resized(posed(index), image)
    return "", None


def has_masks(scan: Scan) -> bool:
    """Whether masks are given, by ``scan.yaml`` or the export."""
    file = scan.file
    given = bool(file.masks or file.alpha or file.segmenter)
    return given or (scan.posed is not None and scan.posed.mask is not None)


def masked_of(scan: Scan) -> NDArray[np.bool_] | None:
    """Which pictures (source,) have a mask file; None where ``scan.yaml`` names no such files.

    Raises:
        InputError: The folder is missing, or it is not clear which mask belongs to which picture.
    """
    if not scan.file.masks:
        return None
    folder = inside(scan.folder, scan.file.masks, scan.folder / "scan.yaml")
    return masked_pictures(folder, scan.pictures.names)


def _resized(mask: Images | None, image: Images) -> Images | None:
    """The mask at the picture's size, by area, so that thin parts do not vanish."""
    if mask is None:
        return None
    height, width = image.shape[:2]
    if mask.shape == (height, width):
        return mask
    shrinks = width < mask.shape[1]
    how = cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(mask, (width, height), interpolation=how), np.uint8)


def hull_of(
    masks: Images, intrinsics: Array, T_camera_table: Array, settings: MaskSettings
) -> Shape:
    """Carve the hull that masks (frame, y, x) share; the few that contradict it do not carve.

    Raises:
        InputError: The masks are inverted, or have no volume in common.
    """
    _refuse_inverted(masks)
    low, high = _bounds(masks, intrinsics, T_camera_table)
    loose = max(settings.tolerance, WRONG)
    rough = _carved(
        masks, intrinsics, T_camera_table, low, high, replace(settings, tolerance=loose)
    )
    silhouette = rough.silhouettes(intrinsics, T_camera_table, masks.shape[1:3]) > 0
    on = masks > 127
    both, either = (on & silhouette).sum(axis=(1, 2)), (on | silhouette).sum(axis=(1, 2))
    fits = both / np.maximum(either, 1)
    good = np.flatnonzero(fits >= MISFIT * np.median(fits))
    return _carved(masks[good], intrinsics[good], T_camera_table[good], *rough.box(0.1), settings)


def _carved(
    masks: Images,
    intrinsics: Array,
    T_camera_table: Array,
    low: Array,
    high: Array,
    settings: MaskSettings,
) -> Shape:
    """Carve in a box, then once more in the box of what is left."""
    for _ in range(2):
        grid = VoxelGrid.over(low, high, settings.voxels)
        occupied = carve(masks, intrinsics, T_camera_table, grid, settings.tolerance)
        if not occupied.any():
            raise InputError(
                f"masks: the {len(masks)} given masks have no volume in common between "
                f"{np.round(low, 3).tolist()} and {np.round(high, 3).tolist()} m (table frame). Do "
                "they show the same object, and do masks and pictures belong together?"
            )
        shape = Shape(largest_component(occupied), grid)
        low, high = shape.box(0.1)
    return shape


def _refuse_inverted(masks: Images) -> None:
    """Refuse masks (frame, y, x) that hold the pictures' rim and leave out something within."""
    shown = np.array([mask for mask in masks if (mask > 127).any()])
    if not len(shown):
        return
    inside = shown > 127
    rim = np.concatenate(
        [inside[:, 0], inside[:, -1], inside[:, 1:-1, 0], inside[:, 1:-1, -1]], axis=1
    )
    held = float(np.median(rim.mean(axis=1)))
    if held > MOST_RIM:
        raise InputError(
            f"masks: the given masks hold {held:.0%} of the pictures' rim (median of {len(shown)}),"
            f" at most {MOST_RIM:.0%} is accepted: they are inverted. White, or the object's "
            "number, has to be on the object."
        )


def _bounds(masks: Images, intrinsics: Array, T_camera_table: Array) -> tuple[Array, Array]:
    """A box (3,), (3,) m around where the rays through the masks' middles meet."""
    T_table_camera = se3.inverse(T_camera_table)
    eyes, directions, spans = [], [], []
    for mask, k, T in zip(masks, intrinsics, T_table_camera, strict=True):
        rows, columns = np.nonzero(mask > 127)
        if not len(rows):
            continue
        middle = np.array([columns.min() + columns.max(), rows.min() + rows.max()]) / 2
        ray = T[:3, :3] @ np.r_[(middle - k[2:]) / k[:2], 1.0]
        eyes.append(T[:3, 3])
        directions.append(ray / np.linalg.norm(ray))
        spans.append(max(np.ptp(columns) / k[0], np.ptp(rows) / k[1]))
    if len(eyes) < 2:
        raise InputError(
            f"masks: {len(masks) - len(eyes)} of {len(masks)} given masks are empty; at least two "
            "must show the object."
        )
    eye, direction = np.array(eyes), np.array(directions)
    across = np.eye(3) - direction[:, :, None] * direction[:, None, :]
    centre = np.linalg.lstsq(across.sum(axis=0), np.einsum("nij,nj->i", across, eye), rcond=1e-6)[0]
    distance = np.linalg.norm(eye - centre, axis=1)
    half = 0.75 * float(np.median(np.array(spans) * distance))
    return centre - half, centre + half
