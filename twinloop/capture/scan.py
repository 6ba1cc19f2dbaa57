"""Lens and poses of scan pictures from the tag board that they show.

After calibration the pictures with the most different viewpoints are kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from twinloop.capture.board import Board
from twinloop.capture.calibrate import Calibration, View, calibrate
from twinloop.capture.projection import Camera
from twinloop.capture.select import spread_viewpoints
from twinloop.capture.survey import Shot, Survey, Verdict
from twinloop.errors import InputError
from twinloop.geometry import se3

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Selection:
    """Frames kept, with lens and poses, and the verdict on all others."""

    shots: list[Shot]
    """Kept frames, in order of time."""
    calibration: Calibration
    """Lens and poses of the kept frames."""
    verdict: NDArray[np.int8]
    """:class:`Verdict` of every frame of the video, (source,)."""
    rest: list[Shot]
    """Candidates that were not kept."""


def select(
    candidates: list[Shot],
    rated: Survey,
    verdict: NDArray[np.int8],
    board: Board,
    *,
    count: int,
    min_tags: int,
    min_frames: int,
    max_rms: float,
    where: str,
    known: Camera | None = None,
    wanted: frozenset[int] = frozenset(),
) -> Selection:
    """Calibrate from the candidates and keep those that see the object from the most places.

    Args:
        candidates: Frames with detected tags.
        rated: The survey.
        verdict: (source,), from :func:`candidates`; a changed copy is returned.
        board: The board.
        count: Frames to keep at most.
        min_tags: Tags a frame must show.
        min_frames: Frames that must remain.
        max_rms: Largest reprojection error of a frame, px per 1000 px of image size.
        where: File name for messages.
        known: The lens, when it has been calibrated before.
        wanted: Frames to keep whatever they add, if the board fits there.

    Raises:
        InputError: Too few frames show the board, or the board does not fit what is seen.
    """
    verdict = verdict.copy()
    good = [s for s in candidates if len(s.tags.ids) >= min_tags]
    for shot in candidates:
        if len(shot.tags.ids) < min_tags:
            verdict[shot.index] = Verdict.NO_BOARD
    if len(good) < min_frames:
        raise InputError(_too_few(candidates, good, min_tags, min_frames, board, where))
    width, height = good[0].size
    views = [View(s.index, *s.tags.pairs(board)) for s in good]
    first = calibrate(views, width, height, known=known)
    limit = max_rms * max(width, height) / 1000
    trusted = [
        _fitting_tags(view, T, first.camera, max(6 * first.sigma, 0.25 * limit))
        for view, T in zip(views, first.T_camera_board, strict=True)
    ]
    # A tag that is half hidden or smeared may be off; a frame in which most are is not to be used.
    fits = np.array([t.sum() >= max(min_tags, 0.5 * len(t)) for t in trusted])
    fits &= first.sigma <= limit
    if fits.sum() < min_frames:
        raise InputError(
            f"{where}: the board fits only {int(fits.sum())} of {len(good)} frames (median "
            f"reprojection error {np.median(first.rms):.1f} px, accepted {limit:.1f} px), at least "
            f"{min_frames} are needed. Check the sizes and centres of the tags in board.yaml"
            f"{_worst_tags(first, good, views)}, and that the board is flat."
        )
    for shot, ok in zip(good, fits, strict=True):
        if not ok:
            verdict[shot.index] = Verdict.MISFIT
    views = [_only(v, t) for v, t, ok in zip(views, trusted, fits, strict=True) if ok]
    good = [s for s, ok in zip(good, fits, strict=True) if ok]
    found = calibrate(views, width, height, known=known)
    quality = rated.sharpness[[s.index for s in good]]
    target = np.r_[board.bounds().mean(axis=0), 0.0]
    keep = spread_viewpoints(found.T_board_camera[:, :3, 3], target, quality, count)
    named = np.array([i for i, s in enumerate(good) if s.index in wanted], dtype=np.int64)
    keep = np.union1d(keep, named)
    for i, shot in enumerate(good):
        verdict[shot.index] = Verdict.KEPT if i in keep else Verdict.REDUNDANT
    kept = replace(
        found,
        T_camera_board=found.T_camera_board[keep],
        rms=found.rms[keep],
        inliers=found.inliers[keep],
    )
    chosen = {good[i].index for i in keep}
    return Selection(
        [good[i] for i in keep], kept, verdict, [s for s in candidates if s.index not in chosen]
    )


def _fitting_tags(
    view: View, T_camera_board: Array, camera: Camera, limit: float
) -> NDArray[np.bool_]:
    """Tags (n,) of a view whose corners all lie within ``limit`` px of where they should be."""
    pixels = camera.project(se3.apply(T_camera_board, view.points))
    error = np.linalg.norm(pixels - view.pixels, axis=1)
    return np.asarray(error.reshape(-1, 4).max(axis=1) <= limit)


def _only(view: View, tags: NDArray[np.bool_]) -> View:
    corners = np.repeat(tags, 4)
    return View(view.frame, view.points[corners], view.pixels[corners])


def _too_few(
    candidates: list[Shot],
    good: list[Shot],
    min_tags: int,
    min_frames: int,
    board: Board,
    where: str,
) -> str:
    foreign = sum(s.tags.foreign for s in candidates)
    most = max((len(s.tags.ids) for s in candidates), default=0)
    ids = sorted(tag.id for tag in board.tags)
    text = (
        f"{where}: {len(good)} of {len(candidates)} frames show at least {min_tags} tags of the "
        f"board (most in one frame: {most}), {min_frames} frames are needed."
    )
    if foreign and most < min_tags:
        return (
            f"{text} {foreign} tags with other numbers were seen: does board.yaml (ids {ids[0]} to "
            f"{ids[-1]}) describe the printed board?"
        )
    return (
        f"{text} Film closer (a tag needs some 20 px), in focus, with more light; the family must "
        f"be {board.family}."
    )


def _worst_tags(found: Calibration, good: list[Shot], views: list[View]) -> str:
    """Name the tags that fit worst, when some stand out."""
    errors: dict[int, list[float]] = {}
    for shot, view, T in zip(good, views, found.T_camera_board, strict=True):
        pixels = found.camera.project(se3.apply(T, view.points))
        distance = np.linalg.norm(pixels - view.pixels, axis=1).reshape(-1, 4).mean(axis=1)
        for tag, value in zip(shot.tags.ids, distance, strict=True):
            errors.setdefault(int(tag), []).append(float(value))
    ranked = sorted(((float(np.median(v)), k) for k, v in errors.items()), reverse=True)
    listed = ", ".join(f"id {tag}: {value:.1f} px" for value, tag in ranked[:4])
    return f" (worst: {listed})" if listed else ""
