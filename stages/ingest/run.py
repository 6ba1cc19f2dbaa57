"""`ingest`: the scan video becomes frames for reconstruction."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from stages.harness import Inputs
from stages.ingest.params import Params
from twinloop.capture.board import Board, load_board
from twinloop.capture.crop import crop_windows
from twinloop.capture.hull import Shape
from twinloop.capture.mask import MaskSettings, find_object, segment
from twinloop.capture.plane import PlaneGrid, exposure_gains, rectify
from twinloop.capture.projection import Undistorter, undistorter
from twinloop.capture.scan import (
    Selection,
    Survey,
    Verdict,
    candidates,
    select,
    shots,
    survey,
    without,
)
from twinloop.capture.video import read_video
from twinloop.errors import InputError
from twinloop.geometry import se3
from twinloop.progress import track

Array = NDArray[np.float64]
THUMBNAIL = 96
"""Longer side of the pictures on the contact sheet, px."""


def run(inputs: Inputs, params: Params) -> dict[str, xr.Dataset]:
    """Return the artifact's groups: frames at "/", all of the video's frames at "/survey".

    Raises:
        InputError: A file is missing or damaged, the board is not seen or does not fit, nothing
            stands on it, or a mask is empty; says which, where and what to do.
    """
    scan = inputs.raw / "scan"
    video = scan / "video.mp4"
    board = load_board(scan / "board.yaml")
    rated = survey(video)
    chosen, verdict = candidates(rated, params.candidates, params.min_sharpness, params.min_change)
    selection = select(
        list(shots(video, rated.times, chosen, board, params.small_side)),
        rated,
        verdict,
        board,
        count=params.frames,
        min_tags=params.min_tags,
        min_frames=params.min_frames,
        max_rms=params.max_rms,
        where=str(video),
    )
    settings = MaskSettings(
        rounds=params.mask_rounds, voxels=params.voxels, smoothness=params.smoothness
    )
    selection, gains, shape = _find_object(selection, board, params, settings)
    calibration = selection.calibration
    T = calibration.T_camera_board

    # Full pictures, or windows of them, at the size that is stored.
    margin = params.crop_margin if params.crop else None
    pinhole, windows = crop_windows(calibration.camera, shape.box(0.0), T, params.max_side, margin)
    intrinsics = np.tile(pinhole.intrinsics, (len(windows), 1))
    intrinsics[:, 2:] -= windows[:, :2]
    images = _undistorted(inputs, selection, rated, pinhole, windows, gains)
    masks = segment(images, intrinsics, T, shape, settings)

    T_world_camera = board.T_world_board.matrix @ calibration.T_board_camera
    position, wxyz = se3.to_position_quaternion(T_world_camera)
    index = np.array([shot.index for shot in selection.shots])
    held_out = np.arange(len(index)) % params.held_out_every == params.held_out_every // 2
    camera = calibration.camera
    frames = xr.Dataset(
        {
            "image": (("frame", "y", "x", "channel"), images),
            "mask": (("frame", "y", "x"), masks.mask),
            "time": (("frame",), rated.times[index]),
            "position_world_camera": (("frame", "xyz"), position),
            "quaternion_world_camera": (("frame", "wxyz"), wxyz),
            "intrinsics": (("frame", "fx_fy_cx_cy"), intrinsics),
            "held_out": (("frame",), held_out),
            "sharpness": (("frame",), rated.sharpness[index]),
            "reprojection_rms": (("frame",), calibration.rms),
            "gain": (("frame",), gains),
            "mask_agreement": (("frame",), masks.agreement),
            "mask_support": (("frame",), masks.support),
            "source": (("frame",), index.astype(np.int32)),
            "lens": (("lens_parameter",), camera.vector),
            "lens_std": (("lens_parameter",), calibration.camera_std),
            "lens_size": (("width_height",), np.array([camera.width, camera.height], np.int32)),
        }
    )
    return {"/": frames, "/survey": _survey_group(rated, selection)}


def _find_object(
    selection: Selection, board: Board, params: Params, settings: MaskSettings
) -> tuple[Selection, Array, Shape]:
    """Even out exposure and find the object in small pictures; drop frames that do not show it."""
    T = selection.calibration.T_camera_board
    height, width = selection.shots[0].small.shape[:2]
    lens = undistorter(selection.calibration.camera.scaled(width, height), 1.0)
    images = np.stack([lens.image(shot.small) for shot in selection.shots])
    k = np.tile(lens.intrinsics, (len(images), 1))
    gains = _gains(images, k, T, board)
    images = np.stack([_brighten(i, g) for i, g in zip(images, gains, strict=True)])
    rough = find_object(images, k, T, board.bounds(), params.max_height)
    coarse = replace(settings, rounds=2, voxels=min(60_000, settings.voxels))
    masks = segment(images, k, T, rough, coarse)
    keep = masks.support >= params.min_support
    if keep.sum() < params.min_frames:
        raise InputError(
            f"masks: the object can be told from the board in {int(keep.sum())} of {len(keep)} "
            f"frames only (median support {np.median(masks.support):.2f}, accepted "
            f"{params.min_support}), at least {params.min_frames} are needed. It must stand still "
            "on the board, in view, and not have the board's colours."
        )
    if not keep.all():
        masks = segment(images[keep], k[keep], T[keep], rough, coarse)
    return without(selection, keep, Verdict.BAD_MASK), gains[keep], masks.shape


def _gains(
    images: NDArray[np.uint8], intrinsics: Array, T_camera_board: Array, board: Board
) -> Array:
    """Brightness factor of each frame from the board's print."""
    low, high = board.bounds()
    grid = PlaneGrid.over(low, high, float((high - low).max()) / 150)
    return exposure_gains(*rectify(images, None, intrinsics, T_camera_board, grid))


def _brighten(image: NDArray[np.uint8], gain: float) -> NDArray[np.uint8]:
    return np.rint(image * np.float32(gain)).clip(0, 255).astype(np.uint8)


def _undistorted(
    inputs: Inputs,
    selection: Selection,
    rated: Survey,
    pinhole: Undistorter,
    windows: NDArray[np.int64],
    gains: Array,
) -> NDArray[np.uint8]:
    """Decode the kept frames again and undistort each one's window."""
    indices = [shot.index for shot in selection.shots]
    columns, rows = windows[0, 2:]
    images = np.empty((len(indices), int(rows), int(columns), 3), np.uint8)
    frames = read_video(
        inputs.raw / "scan" / "video.mp4", indices=frozenset(indices), times=rated.times
    )
    for i, frame in enumerate(track(frames, "undistort", total=len(indices))):
        x, y, w, h = (int(v) for v in windows[i])
        images[i] = _brighten(pinhole.image(frame.image, (x, y, w, h)), float(gains[i]))
    return images


def _survey_group(rated: Survey, selection: Selection) -> xr.Dataset:
    """All frames of the video with verdicts, and small pictures of the candidates."""
    shown = sorted([*selection.shots, *selection.rest], key=lambda shot: shot.index)
    lens = undistorter(
        selection.calibration.camera,
        THUMBNAIL / max(selection.calibration.camera.height, selection.calibration.camera.width),
    )
    size = (lens.height, lens.width)
    thumbnails = np.zeros((len(shown), *size, 3), np.uint8)
    for picture, shot in zip(thumbnails, shown, strict=True):
        picture[:] = lens.image(shot.small)
    return xr.Dataset(
        {
            "time": (("source",), rated.times),
            "sharpness": (("source",), rated.sharpness),
            "verdict": (("source",), selection.verdict),
            "thumbnail": (("shot", "v", "u", "channel"), thumbnails),
            "thumbnail_source": (
                ("shot",),
                np.array([shot.index for shot in shown], dtype=np.int32),
            ),
        }
    )
