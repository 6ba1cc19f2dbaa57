"""Lens and poses from the pictures alone, or started from the few that show the tag board."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from twinloop.capture.board import Board
from twinloop.capture.calibrate import Calibration, View, calibrate
from twinloop.capture.located import Located, LocateSettings
from twinloop.capture.metric_world import Model, place
from twinloop.capture.scale import MetricFrame
from twinloop.capture.sfm import SfmSettings, structure_from_motion
from twinloop.capture.sfm_model import Reconstruction
from twinloop.capture.sfm_seeded import seeded
from twinloop.capture.source import Scan
from twinloop.capture.survey import Shot, Survey

Array = NDArray[np.float64]


def locate_by_motion(
    scan: Scan,
    shots: list[Shot],
    rated: Survey,
    verdict: NDArray[np.int8],
    settings: LocateSettings,
) -> Located:
    """Find lens, poses and points by matching pictures; then metres and the table.

    Where some pictures show the board, their poses are the start and the board stays the world.

    Raises:
        InputError: The pictures cannot give a model, or there are no metres, or no table.
        MachineError: pycolmap is missing.
    """
    how = SfmSettings(
        max_side=settings.sfm_side,
        features=settings.sfm_features,
        min_registered=settings.min_registered,
        seed=settings.seed,
    )
    if scan.board is not None:
        found, lens, scale = _from_board(scan, scan.board, shots, settings, how)
        way, camera_std = "board and matched points", lens.camera_std
    else:
        found, scale = _from_pictures(scan, shots, how), None
        way, camera_std = "structure from motion", np.nan_to_num(found.camera_std)
    model = Model(
        way=way,
        shots=shots,
        cameras=(found.camera,) * len(shots),
        camera_std=camera_std,
        T_model_camera=found.T_world_camera,
        points=found.points,
        seen=(found.observation_picture, found.observation_point),
        rms=found.rms,
        metric=False,
        scale=scale,
        notes=found.notes,
    )
    return place(scan, model, rated, verdict, settings)


def _from_pictures(scan: Scan, shots: list[Shot], how: SfmSettings) -> Reconstruction:
    index = [shot.index for shot in shots]
    priors = scan.pictures.focal_prior[index]
    known = priors[np.isfinite(priors)]
    return structure_from_motion(
        (picture.image for picture in scan.pictures.read(frozenset(index))),
        focal_prior=float(np.median(known)) if len(known) else None,
        known=scan.lens,
        sequential=scan.format != "photos",
        settings=how,
        where=str(scan.pictures.path),
    )


def _from_board(
    scan: Scan, board: Board, shots: list[Shot], settings: LocateSettings, how: SfmSettings
) -> tuple[Reconstruction, Calibration, MetricFrame]:
    """Poses of the pictures that show the board, then all others by what they share with them."""
    seen = [i for i, shot in enumerate(shots) if len(shot.tags.ids) >= settings.min_tags]
    views = [View(shots[i].index, *shots[i].tags.pairs(board)) for i in seen]
    width, height = shots[0].size
    lens = calibrate(views, width, height, known=scan.lens)
    poses = np.full((len(shots), 4, 4), np.nan)
    limit = settings.max_rms * max(width, height) / 1000
    for k, i in enumerate(seen):
        if lens.rms[k] <= limit:
            poses[i] = lens.T_camera_board[k]
    nothing = (np.zeros((0, 3)), np.zeros((0, 2)))
    corners = [
        shot.tags.pairs(board) if np.isfinite(pose).all() else nothing
        for shot, pose in zip(shots, poses, strict=True)
    ]
    index = frozenset(shot.index for shot in shots)
    found = seeded(
        (picture.image for picture in scan.pictures.read(index)),
        poses,
        lens.camera,
        corners,
        how,
        sequential=scan.format != "photos",
        where=str(scan.pictures.path),
    )
    note = f"The board gives the scale, seen in {len(seen)} of {len(shots)} candidates."
    size_std = scan.file.board_size_std
    return found, lens, MetricFrame(1.0, size_std, np.eye(4), "board", (note,))
