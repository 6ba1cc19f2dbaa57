"""Lens and poses from the tag board: the most accurate way, and the quickest."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from twinloop.capture.board import Board
from twinloop.capture.located import Located, LocateSettings
from twinloop.capture.metric_world import Model, metres
from twinloop.capture.scale import MetricFrame
from twinloop.capture.scan import select
from twinloop.capture.source import Scan
from twinloop.capture.survey import Shot, Survey


def locate_by_board(
    scan: Scan,
    board: Board,
    shots: list[Shot],
    rated: Survey,
    verdict: NDArray[np.int8],
    settings: LocateSettings,
) -> Located:
    """Find lens and poses from the board; see :func:`twinloop.capture.scan.select`.

    The scale is as uncertain as the size of the print is: the corners average to far less.  What
    ``scan.yaml`` states besides has to agree, and is taken where it is more certain.

    Raises:
        InputError: Too few frames show the board, it does not fit what is seen, or another source
            of scale contradicts it.
    """
    found = select(
        shots,
        rated,
        verdict,
        board,
        count=settings.frames,
        min_tags=settings.min_tags,
        min_frames=settings.min_frames,
        max_rms=settings.max_rms,
        where=str(scan.pictures.path),
        known=scan.lens,
        wanted=scan.file.pointed_at,
    )
    calibration = found.calibration
    seen = sum(4 * len(shot.tags.ids) for shot in found.shots)
    extent = float(np.ptp(board.bounds(), axis=0).max()) * calibration.camera.intrinsics[0]
    distance = float(np.median(np.linalg.norm(calibration.T_board_camera[:, :3, 3], axis=1)))
    corners = calibration.sigma / (extent / distance) / np.sqrt(max(seen, 1))
    print_std = float(np.hypot(scan.file.board_size_std, corners))
    model = Model(
        way="board",
        shots=found.shots,
        cameras=(calibration.camera,) * len(found.shots),
        T_model_camera=calibration.T_board_camera,
        points=None,
        metric=False,
        scale=MetricFrame(1.0, print_std, np.eye(4), "board", ()),
    )
    frame, _ = metres(scan, model)
    T_camera_table = calibration.T_camera_board.copy()
    T_camera_table[:, :3, 3] *= frame.scale
    return Located(
        way="board",
        shots=found.shots,
        cameras=model.cameras,
        camera_std=calibration.camera_std,
        T_camera_table=T_camera_table,
        T_world_table=board.T_world_board.matrix,
        rms=calibration.rms,
        verdict=found.verdict,
        rest=found.rest,
        scale_source=frame.source,
        scale_std=frame.scale_std,
        board=board,
        notes=frame.notes,
    )
