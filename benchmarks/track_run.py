"""A benchmark sequence through the tracker, as the stage calls it; and what comes out, on disk."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray

from benchmarks.track_sequence import Array, Sequence
from stages.track.params import Params
from stages.track.run import scan_pose, scan_views, settings
from twinloop.artifacts.kinds.frames import FRAMES
from twinloop.artifacts.kinds.reconstruction import RECONSTRUCTION
from twinloop.artifacts.store import open_artifact
from twinloop.splat.gaussians import Gaussians
from twinloop.tracking.clip import enlarge
from twinloop.tracking.frame import CameraFrame, Frame
from twinloop.tracking.images import to_grey
from twinloop.tracking.initialise import find_start, first_modes
from twinloop.tracking.model import ObjectModel, build_model
from twinloop.tracking.model_error import ModelError, model_error
from twinloop.tracking.modes import Modes
from twinloop.tracking.pose_track import PoseTrack
from twinloop.tracking.settings import Settings
from twinloop.tracking.solver import Solution
from twinloop.tracking.state import Start
from twinloop.tracking.table_search import expected_size
from twinloop.tracking.tracker import smooth_clip, track_frames, unseen

GIVEN = np.diag([1e-6] * 3 + [1e-5] * 3)
"""Covariance of a start pose that the sequence gives."""
_TRACK = ("time", "pose", "covariance", "status", "velocity", "velocity_covariance")


@dataclass(frozen=True)
class Known:
    """What the tracker knows of the object: model and settings, and the model's measured error."""

    model: ObjectModel
    settings: Settings
    error: ModelError


@dataclass(frozen=True)
class Tracking:
    """One clip's result.

    name: of the sequence; method, sure, modes: of the start; cells: textured cells; used (n,):
    measurements; raw, smooth: poses of the tracker and after smoothing; start_seconds, seconds
    (n,): CPU time of the start and of each frame, without decoding.
    """

    name: str
    method: str
    sure: bool
    modes: str
    cells: float
    used: NDArray[np.int64]
    raw: PoseTrack
    smooth: PoseTrack
    start_seconds: float
    seconds: Array


def known_from(
    vertices: Array,
    faces: NDArray[np.int64],
    folder: Path | None = None,
    gaussians: Gaussians | None = None,
    error: ModelError | None = None,
) -> Known:
    """Model and settings as the stage makes them.

    Args:
        vertices: (v, 3) m.
        faces: (f, 3).
        folder: of the twin and its scan; None for a bare mesh.
        gaussians: in place of the twin's.
        error: the model's, in place of the measured one.
    """
    params = Params()
    if folder is None:
        none = ModelError(0.0, 0.0, 0.0, 0)
        return Known(build_model(vertices, faces), settings(params, none), none)
    twin = open_artifact(folder / "reconstruct.zarr", RECONSTRUCTION)
    pose = scan_pose(twin)
    looks = gaussians or Gaussians.from_dataset(twin["gaussians"].to_dataset())
    model = build_model(vertices, faces, looks, T_world_object=pose, views=params.reference_views)
    if error is None:
        scan: xr.Dataset = open_artifact(folder / "ingest.zarr", FRAMES).to_dataset()
        plain = settings(params, ModelError(0.0, 0.0, 0.0, 0))
        error = model_error(model, scan_views(scan, params.error_views), pose, plain)
    return Known(model, settings(params, error), error)


@lru_cache(maxsize=1)
def _twin(folder: Path) -> Known:
    mesh = open_artifact(folder / "reconstruct.zarr", RECONSTRUCTION)["mesh"]
    vertices = np.asarray(mesh["vertices"].values, np.float64)
    return known_from(vertices, np.asarray(mesh["faces"].values, np.int64), folder)


def known(sequence: Sequence) -> Known:
    """Model and settings for a sequence; that of a twin is kept for its next clip."""
    if sequence.appearance is not None:
        return _twin(sequence.appearance)
    return known_from(sequence.vertices, sequence.faces)


def enlarged(frame: Frame, zoom: int) -> Frame:
    """The frame with all images `zoom` times as large, as the stage enlarges small objects."""
    if zoom == 1:
        return frame
    cameras = []
    for c in frame.cameras:
        size = (c.camera.width * zoom, c.camera.height * zoom)
        rgb = np.asarray(cv2.resize(c.rgb, size, interpolation=cv2.INTER_CUBIC), np.uint8)
        ignore = c.ignore
        if ignore is not None:
            ignore = np.repeat(np.repeat(ignore, zoom, axis=0), zoom, axis=1)
        cameras.append(CameraFrame(enlarge(c.camera, zoom), rgb, to_grey(rgb), None, ignore))
    return Frame(frame.time, tuple(cameras))


def prepared(sequence: Sequence, model: ObjectModel) -> Iterator[Frame]:
    """The frames of a sequence, enlarged where the object is small and stands on a table."""
    zoom: int | None = None if sequence.table else 1
    for frame in sequence.frames():
        if zoom is None:
            size = expected_size(model, frame.cameras[0].camera)
            zoom = int(np.clip(np.ceil(Params().object_size / size), 1, 4))
        yield enlarged(frame, zoom)


def still(frames: list[Frame]) -> Frame:
    """The mean of the frames in which all rests, as the stage starts from it."""
    end = frames[0].time + Params().rest_time
    rest = [f.cameras[0] for f in frames if f.time <= end]
    total = np.mean([c.rgb.astype(np.float32) for c in rest], axis=0)
    rgb = np.clip(np.rint(total), 0, 255).astype(np.uint8)
    return Frame(0.0, (CameraFrame(rest[0].camera, rgb, to_grey(rgb)),))


def start_of(sequence: Sequence, frames: list[Frame], k: Known) -> tuple[Start | None, Frame]:
    """Where the object is at first, and the frame that says so."""
    if sequence.start is not None:
        solution = Solution(sequence.start, GIVEN, np.zeros((6, 6)), ())
        return Start(solution, True, "given", False), frames[0]
    first = still(frames)
    return find_start(k.model, first, k.settings, table=sequence.table), first


def track_sequence(
    sequence: Sequence,
    k: Known | None = None,
    modes: Mapping[str, bool] | None = None,
    frames: list[Frame] | None = None,
) -> Tracking:
    """Find and track the object of a sequence.

    `k` stands in for what is known of it, `modes` for some of the modes (such as texture=False),
    `frames` for the prepared frames.
    """
    # CPU time is to be that of one core.
    cv2.setNumThreads(1)
    torch.set_num_threads(1)
    k = known(sequence) if k is None else k
    frames = list(prepared(sequence, k.model)) if frames is None else frames
    begin = time.process_time()
    start, first = start_of(sequence, frames, k)
    started = time.process_time()
    used: Modes | None = None
    ends = [started]
    if start is None:
        found = [unseen(f.time, k.model) for f in frames]
    else:
        used = first_modes(k.model, first, start.solution.pose, plane=sequence.table)
        used = replace(used, **(modes or {}))
        found = []
        for result in track_frames(k.model, frames, start, used, k.settings, first):
            found.append(result)
            ends.append(time.process_time())
    n = len(found)
    raw = PoseTrack(
        np.array([f.time for f in found]),
        np.array([f.pose for f in found]),
        np.array([f.covariance for f in found]),
        np.array([f.status for f in found], np.int8),
        np.zeros((n, 6)),
        np.full((n, 6, 6), np.inf),
    )
    return Tracking(
        name=sequence.name,
        method="none" if start is None else start.method,
        sure=start is not None and start.sure,
        modes="none" if used is None else used.names,
        cells=0.0 if used is None else used.texture_cells,
        used=np.array([f.measurements for f in found]),
        raw=raw,
        smooth=smooth_clip(found, frames[0].cameras[0].camera, k.settings),
        start_seconds=started - begin,
        seconds=np.diff(ends) if len(ends) > 1 else np.zeros(n),
    )


def save(path: Path, runs: list[Tracking]) -> None:
    """Write runs whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {}
    for i, run in enumerate(runs):
        for name in ("name", "method", "sure", "modes", "cells", "used", "start_seconds"):
            arrays[f"{i}_{name}"] = np.asarray(getattr(run, name))
        arrays[f"{i}_seconds"] = np.asarray(run.seconds)
        for part, track in (("raw", run.raw), ("smooth", run.smooth)):
            arrays |= {f"{i}_{part}_{name}": getattr(track, name) for name in _TRACK}
    fresh = path.with_suffix(".tmp.npz")
    np.savez_compressed(fresh, allow_pickle=False, **arrays)
    fresh.replace(path)


def load(path: Path) -> list[Tracking]:
    """Runs as `save` wrote them."""
    runs = []
    with np.load(path, allow_pickle=False) as stored:
        while f"{len(runs)}_name" in stored:
            i = len(runs)
            tracks = [
                PoseTrack(*(stored[f"{i}_{part}_{name}"] for name in _TRACK))
                for part in ("raw", "smooth")
            ]
            runs.append(
                Tracking(
                    str(stored[f"{i}_name"]),
                    str(stored[f"{i}_method"]),
                    bool(stored[f"{i}_sure"]),
                    str(stored[f"{i}_modes"]),
                    float(stored[f"{i}_cells"]),
                    stored[f"{i}_used"],
                    tracks[0],
                    tracks[1],
                    float(stored[f"{i}_start_seconds"]),
                    stored[f"{i}_seconds"],
                )
            )
    return runs
