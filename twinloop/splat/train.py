"""Fit a set of Gaussians or surfels to posed pictures: the loop around `twinloop.splat.trainer`."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from twinloop.errors import InputError
from twinloop.progress import track
from twinloop.splat.checkpoint import (
    Checkpoint,
    read_checkpoint,
    remove_checkpoint,
    write_checkpoint,
)
from twinloop.splat.model import NAMES, Splats
from twinloop.splat.raster_checks import check_device
from twinloop.splat.train_settings import TrainSettings, scene_settings
from twinloop.splat.trainer import Objective, Step, Trainer
from twinloop.splat.views import Views
from twinloop.threads import torch_on_one_thread

__all__ = ["Objective", "Step", "TrainSettings", "scene_settings", "train"]

WATCH_EVERY = 100
"""Steps between calls of `watch`."""


def train(
    start: Splats,
    views: Views,
    settings: TrainSettings,
    device: str = "cpu",
    watch: Callable[[int, Splats], None] | None = None,
    *,
    objective: Objective | None = None,
    checkpoint: Path | Checkpoint | None = None,
    checkpoint_every: int = 500,
    seconds: float | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Splats:
    """Fit `start` to `views` (poses in the set's own frame, m) and return the result.

    Deterministic for given inputs and settings on one machine class: the same bytes from run to run
    and for any number of threads.

    Args:
        start: The set to begin with; its kind is the result's.
        views: Posed pictures, with masks unless ``settings.mask_weight`` is 0.
        settings: What to do.
        device: Of torch; on "cuda" gsplat rasterises.
        watch: Called every `WATCH_EVERY` steps with the count so far and the set.
        objective: What else the set shall obey (see `twinloop.splat.trainer.Objective`).
        checkpoint: File that the state is kept in. If it is there, training goes on from it, to the
            same result bit for bit; it is deleted at the end, unless a `Checkpoint` says otherwise.
        checkpoint_every: Steps between writing it, where `checkpoint` is a path.
        seconds: Ends training after so long by `clock`, with step sizes laid out for it. The result
            then depends on the machine's speed; for measurements only.
        clock: Seconds from some start on.

    Raises:
        InputError: Views or a start that no training can come from, a checkpoint of another
            training, or a training in which nothing is left.
        MachineError: A CUDA device that is not there, or a checkpoint that cannot be written.
    """
    check_device("training", device)
    kept = Checkpoint(checkpoint, checkpoint_every) if isinstance(checkpoint, Path) else checkpoint
    if kept and kept.every < 1:
        raise InputError(f"training: checkpoint_every is {kept.every}, expected 1 or more")
    with torch_on_one_thread():
        began = clock()
        trainer = Trainer(start, views, settings, device, objective)
        print_ = _fingerprint(start, views, settings, objective) if kept else ""
        ended = False
        if kept and kept.path.exists():
            state, facts = read_checkpoint(kept.path)
            if facts.get("training") != print_:
                raise InputError(
                    f"{kept.path}: it belongs to a training of other pictures, settings, start or "
                    "objective; delete it to start anew."
                )
            trainer.load(state)
            ended = facts.get("ended") is True
        spent = 0.0  # on watching, which is not training
        checks = max(1, settings.iterations // 20)

        def progress() -> float:
            done = trainer.iteration / max(1, settings.iterations)
            return done if seconds is None else max(done, (clock() - began - spent) / seconds)

        def steps() -> Iterator[int]:
            while not ended and trainer.iteration < settings.iterations:
                if progress() >= 1.0:
                    return
                yield trainer.iteration

        kind = "surfels" if trainer.model.flat else "Gaussians"
        for _ in track(
            steps(),
            f"train {kind}",
            settings.iterations,
            done=trainer.iteration,
            note=lambda: f"{trainer.psnr:.1f} dB, {len(trainer.model)} {kind}",
        ):
            trainer.step(progress())
            done = trainer.iteration
            if watch is not None and done % WATCH_EVERY == 0:
                paused = clock()
                watch(done, trainer.model.result())
                spent += clock() - paused
            if settings.validate and done % checks == 0 and not trainer.check():
                break
            if kept and done % kept.every == 0:
                write_checkpoint(kept.path, trainer.state(), {"training": print_})
        if kept and kept.stays and not ended:
            write_checkpoint(kept.path, trainer.state(), {"training": print_, "ended": True})
        result = trainer.finish()
        if kept and not kept.stays:
            remove_checkpoint(kept.path)
        return result


def _fingerprint(
    start: Splats, views: Views, settings: TrainSettings, objective: Objective | None
) -> str:
    """Hash of all that a training depends on."""
    total = hashlib.sha256(json.dumps(asdict(settings), sort_keys=True).encode())
    arrays = [getattr(start, name) for name in NAMES]
    arrays += [views.image, views.mask, views.intrinsics, views.T_camera_world]
    for values in arrays:
        total.update(f"{values.shape} {values.dtype} {views.coverage}".encode())
        total.update(np.ascontiguousarray(values).tobytes())
    _add(total, objective)
    return total.hexdigest()


def _add(total: Any, value: object) -> None:
    """Hash `value`: dataclasses, mappings and arrays by content, other objects by their class."""
    if is_dataclass(value) and not isinstance(value, type):
        total.update(type(value).__qualname__.encode())
        for part in fields(value):
            _add(total, getattr(value, part.name))
    elif isinstance(value, Mapping):
        for key in value:
            _add(total, key)
            _add(total, value[key])
    elif isinstance(value, np.ndarray):
        total.update(f"{value.shape} {value.dtype}".encode())
        total.update(np.ascontiguousarray(value).tobytes())
    elif isinstance(value, (str, int, float, bool, type(None))):
        total.update(f"{value!r};".encode())
    else:
        total.update(type(value).__qualname__.encode())
