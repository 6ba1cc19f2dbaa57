"""`ingest`: what people filmed becomes frames for reconstruction."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from stages.harness import Inputs
from stages.ingest.params import Params
from twinloop.capture.crop import crop_windows, undistorters
from twinloop.capture.locate import locate
from twinloop.capture.located import Located, LocateSettings
from twinloop.capture.mask import MaskSettings
from twinloop.capture.object_masks import Found, MaskLimits, brighten, cut, find, trusted
from twinloop.capture.projection import Undistorter
from twinloop.capture.source import Scan, open_scan
from twinloop.capture.survey import Survey, survey
from twinloop.errors import InputError
from twinloop.geometry import se3
from twinloop.progress import track

Array = NDArray[np.float64]
THUMBNAIL = 96
"""Longer side of the pictures on the contact sheet, px."""


def run(inputs: Inputs, params: Params) -> dict[str, xr.Dataset]:
    """Return the artifact's groups: frames at "/", all of the scan's pictures at "/survey".

    Raises:
        InputError: A file is missing or damaged, poses or metres cannot be found, nothing stands
            on the table, or a mask is empty; says which, where and what to do.
    """
    with open_scan(inputs.raw / "scan") as scan:
        rated = survey(scan.pictures)
        located = locate(scan, rated, _locate_settings(params))
        found = find(scan, located, _mask_settings(params), _limits(params))
        return _frames(scan, rated, found, params)


def _limits(params: Params) -> MaskLimits:
    names = [field.name for field in dataclasses.fields(MaskLimits)]
    return MaskLimits(**{name: getattr(params, name) for name in names})


def _locate_settings(params: Params) -> LocateSettings:
    names = [field.name for field in dataclasses.fields(LocateSettings)]
    return LocateSettings(**{name: getattr(params, name) for name in names})


def _mask_settings(params: Params) -> MaskSettings:
    return MaskSettings(
        rounds=params.mask_rounds, voxels=params.voxels, smoothness=params.smoothness
    )


def _frames(scan: Scan, rated: Survey, found: Found, params: Params) -> dict[str, xr.Dataset]:
    """Undistort, cut and store the kept pictures."""
    # Full pictures, or windows of them, at the size that is stored.
    margin = params.crop_margin if params.crop else None
    located = found.located
    lenses, windows = crop_windows(
        located.cameras, found.shape.box(0.0), located.T_camera_table, params.max_side, margin
    )
    intrinsics = np.stack([lens.intrinsics for lens in lenses])
    intrinsics[:, 2:] -= windows[:, :2]
    images, given = _undistorted(scan, found, lenses, windows)
    masks = cut(images, intrinsics, found, given, lenses, windows, _mask_settings(params))
    found, keep = trusted(masks, found, _limits(params))
    images, intrinsics, masks = images[keep], intrinsics[keep], masks.only(keep)
    located = found.located

    T_world_camera = located.T_world_table @ se3.inverse(located.T_camera_table)
    position, wxyz = se3.to_position_quaternion(T_world_camera)
    index = np.array([shot.index for shot in located.shots])
    held_out = np.arange(len(index)) % params.held_out_every == params.held_out_every // 2
    data: dict[str, Any] = {
        "image": (("frame", "y", "x", "channel"), images),
        "mask": (("frame", "y", "x"), masks.mask),
        "time": (("frame",), rated.times[index]),
        "position_world_camera": (("frame", "xyz"), position),
        "quaternion_world_camera": (("frame", "wxyz"), wxyz),
        "intrinsics": (("frame", "fx_fy_cx_cy"), intrinsics),
        "held_out": (("frame",), held_out),
        "sharpness": (("frame",), rated.sharpness[index]),
        "gain": (("frame",), found.gains),
        "mask_agreement": (("frame",), masks.agreement),
        "mask_quality": (("frame",), masks.quality),
        "source": (("frame",), index.astype(np.int32)),
        "lens": (("lens_parameter",), np.median(_lenses(located), axis=0)),
        "lens_size": (("width_height",), np.array(_size(located), np.int32)),
    }
    if len({camera.vector.tobytes() for camera in located.cameras}) > 1:
        data["frame_lens"] = (("frame", "lens_parameter"), _lenses(located))
    if masks.support is not None:
        data["mask_support"] = (("frame",), masks.support)
    if located.camera_std is not None:
        data["lens_std"] = (("lens_parameter",), located.camera_std)
    if located.rms is not None:
        data["reprojection_rms"] = (("frame",), located.rms)
    attrs = {
        "format": scan.format,
        "poses": located.way,
        "scale_source": located.scale_source,
        "scale_std": located.scale_std,
        "mask_source": found.way,
        "notes": list(dict.fromkeys((*scan.notes, *located.notes))),
    }
    return {"/": xr.Dataset(data, attrs=attrs), "/survey": _survey_group(rated, located)}


def _lenses(located: Located) -> Array:
    """Lens of each kept frame (frame, 9)."""
    return np.stack([camera.vector for camera in located.cameras])


def _size(located: Located) -> list[int]:
    """Columns and rows of the kept pictures, px."""
    return [located.cameras[0].width, located.cameras[0].height]


def _undistorted(
    scan: Scan, found: Found, lenses: list[Undistorter], windows: NDArray[np.int64]
) -> tuple[NDArray[np.uint8], NDArray[np.uint8] | None]:
    """Decode the kept pictures again and undistort each one's window, and its given mask."""
    indices = [shot.index for shot in found.located.shots]
    columns, rows = (int(v) for v in windows[0, 2:])
    images = np.empty((len(indices), rows, columns, 3), np.uint8)
    masks = np.empty((len(indices), rows, columns), np.uint8) if found.given else None
    frames = scan.pictures.read(frozenset(indices))
    for i, frame in enumerate(track(frames, "undistort", total=len(indices))):
        x, y, w, h = (int(v) for v in windows[i])
        window = (x, y, w, h)
        images[i] = brighten(lenses[i].image(frame.image, window), float(found.gains[i]))
        if masks is not None and found.given is not None:
            mask = found.given(frame.index, frame.image)
            if mask is None:
                raise InputError(
                    f"masks: {scan.pictures.names[frame.index]} had a mask and has none any more."
                )
            masks[i] = lenses[i].image(mask, window)
    return images, masks


def _survey_group(rated: Survey, located: Located) -> xr.Dataset:
    """All pictures of the scan with verdicts, and small pictures of the candidates."""
    shown = sorted([*located.shots, *located.rest], key=lambda shot: shot.index)
    camera = located.cameras[0]
    lens = undistorters([camera], THUMBNAIL / max(camera.height, camera.width))[0]
    thumbnails = np.zeros((len(shown), lens.height, lens.width, 3), np.uint8)
    for picture, shot in zip(thumbnails, shown, strict=True):
        picture[:] = lens.image(shot.small)
    return xr.Dataset(
        {
            "time": (("source",), rated.times),
            "sharpness": (("source",), rated.sharpness),
            "verdict": (("source",), located.verdict),
            "thumbnail": (("shot", "v", "u", "channel"), thumbnails),
            "thumbnail_source": (
                ("shot",),
                np.array([shot.index for shot in shown], dtype=np.int32),
            ),
        }
    )
