"""Find lens, poses, metres and the table of a scan: which way, and what is missing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from twinloop.capture.by_board import locate_by_board
from twinloop.capture.by_export import locate_by_export, poses_of
from twinloop.capture.by_motion import locate_by_motion
from twinloop.capture.given_masks import masked_of
from twinloop.capture.located import Located, LocateSettings
from twinloop.capture.scan_check import check_scan
from twinloop.capture.source import Scan
from twinloop.capture.survey import Survey, Verdict, candidates, shots
from twinloop.errors import InputError, MachineError
from twinloop.extras import installed

FEW_TAGGED = 0.5
"""Share of candidates that show the board, below which the other ones are posed by matching."""


def locate(scan: Scan, rated: Survey, settings: LocateSettings) -> Located:
    """Choose pictures and find their lens and poses, metres, and the table.

    Poses come from the export where it has them, from the tag board where most pictures show it,
    else from structure from motion (which starts at the board's poses where there are some).  Where
    that cannot be had, enough pictures that show the board do.

    Raises:
        InputError: Too few usable pictures, no poses, no metres, or no table; says why and what to
            do.
    """
    check_scan(scan)
    poses = poses_of(scan)
    posed = None if poses is None else np.asarray(np.isfinite(poses).all(axis=(1, 2)))
    chosen, verdict = candidates(
        rated,
        scan.pictures.sizes,
        settings.candidates,
        settings.min_sharpness,
        settings.min_change,
        posed,
        scan.file.pointed_at,
        masked_of(scan),
    )
    if len(chosen) < settings.min_frames:
        raise InputError(_too_few(scan, verdict, len(chosen), settings.min_frames))
    looked = list(shots(scan.pictures, chosen, scan.board, settings.small_side))
    if poses is not None:
        return locate_by_export(scan, looked, poses, rated, verdict, settings)
    if scan.board is None:
        return locate_by_motion(scan, looked, rated, verdict, settings)
    tagged = sum(len(shot.tags.ids) >= settings.min_tags for shot in looked)
    most = tagged >= max(settings.min_frames, FEW_TAGGED * len(looked))
    if most or tagged < 3:
        # With fewer than three the board is not in view at all: this way says so.
        return locate_by_board(scan, scan.board, looked, rated, verdict, settings)
    try:
        return locate_by_motion(scan, looked, rated, verdict, settings)
    except (InputError, MachineError) as error:
        # A full disk is told; a package that is not installed may not be needed.
        broken = isinstance(error, MachineError) and installed("pycolmap")
        if broken or tagged < settings.min_frames:
            raise
        found = locate_by_board(scan, scan.board, looked, rated, verdict, settings)
        note = (
            f"Only pictures that show the board are used, {tagged} of {len(looked)} candidates; "
            f"the others could not be placed: {error}"
        )
        return replace(found, notes=(*found.notes, note))


def _too_few(scan: Scan, verdict: np.ndarray, count: int, needed: int) -> str:
    counts = ", ".join(
        f"{int((verdict == kind).sum())} {kind.name.lower().replace('_', ' ')}"
        for kind in Verdict
        if (verdict == kind).any()
    )
    return (
        f"{scan.pictures.path}: {count} of {len(verdict)} pictures can be used ({counts}), at "
        f"least {needed} are needed. Film slower and with more light; ingest.min_sharpness and "
        "ingest.min_change set what counts as blurred and as a duplicate."
    )
