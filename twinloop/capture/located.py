"""Kept pictures with lens and pose in the frame of the table that the object stands on."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from twinloop.capture.board import Board
from twinloop.capture.projection import Camera
from twinloop.capture.survey import Shot, Verdict

Array = NDArray[np.float64]


@dataclass(frozen=True)
class LocateSettings:
    """How pictures are chosen and posed; the parameters of ``ingest`` explain each."""

    frames: int = 50
    candidates: int = 80
    min_frames: int = 6
    min_sharpness: float = 0.6
    min_change: float = 0.3
    min_tags: int = 2
    max_rms: float = 1.0
    small_side: int = 240
    sfm_side: int = 800
    sfm_features: int = 3000
    min_registered: float = 0.8
    seed: int = 0


@dataclass(frozen=True)
class Located:
    """What every way of finding poses gives: from a board, an export, or structure from motion."""

    way: str
    """How poses were found, for the report: "board", "structure from motion", ..."""
    shots: list[Shot]
    """Kept pictures, in order."""
    cameras: tuple[Camera, ...]
    """Lens of each kept picture at its full size (frame,)."""
    T_camera_table: Array
    """Pose of the table frame (z = 0 on the table, z up, metres) in each camera (frame, 4, 4)."""
    T_world_table: Array
    """Where the table frame lies in the world of the artifact (4, 4)."""
    verdict: NDArray[np.int8]
    """:class:`Verdict` of every picture of the scan (source,)."""
    rest: list[Shot]
    """Candidates that were not kept."""
    scale_source: str
    """Where metres come from: "board", "distance", "robot poses", "depth", "export"."""
    scale_std: float
    """Relative standard deviation of the scale, 1 sigma."""
    camera_std: Array | None = None
    """Standard deviation of the nine numbers of the common lens (9,); None when not estimated."""
    rms: Array | None = None
    """Reprojection error of each kept picture (frame,) px; None when the export does not say."""
    points: Array | None = None
    """Sparse points on what is seen (m, 3), table frame, m."""
    board: Board | None = None
    """The print on the table, where there is one: it has the table's frame."""
    has_table: bool = True
    """Whether something lies at z = 0, rather than nowhere near: poses followed the object."""
    notes: tuple[str, ...] = ()
    """What was decided on the way, one sentence each."""

    def only(self, keep: NDArray[np.bool_], why: Verdict) -> Located:
        """Drop kept pictures where ``keep`` (frame,) is false; they get the verdict ``why``."""
        verdict = self.verdict.copy()
        dropped = [s for s, ok in zip(self.shots, keep, strict=True) if not ok]
        for shot in dropped:
            verdict[shot.index] = why
        chosen = np.flatnonzero(keep)
        return replace(
            self,
            shots=[self.shots[i] for i in chosen],
            cameras=tuple(self.cameras[i] for i in chosen),
            T_camera_table=self.T_camera_table[chosen],
            rms=None if self.rms is None else self.rms[chosen],
            verdict=verdict,
            rest=[*self.rest, *dropped],
        )
