"""Checkpoints of a training: one safetensors file, written whole or not at all, no pickle."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from twinloop import beside
from twinloop.errors import InputError, MachineError

FORMAT = "twinloop training 1"


@dataclass(frozen=True)
class Checkpoint:
    """How the state of a training is kept."""

    path: Path
    """The file."""
    every: int = 500
    """Steps between writing it."""
    stays: bool = False
    """Whether it stays at the end, with the state of the end, so that the same training asked for
    again takes no step; otherwise it is deleted."""


def write_checkpoint(path: Path, state: dict[str, Tensor], facts: dict[str, object]) -> None:
    """Write tensors by name, and facts that JSON can hold.

    A crash at any point leaves the file that was there before, or the new one; what a killed run
    left half written is taken away by the next write or by `remove_checkpoint`.

    Raises:
        MachineError: The disk is full, or the folder cannot be written.
    """
    tensors = {k: v.detach().cpu().contiguous() for k, v in state.items()}
    text = json.dumps({"format": FORMAT, **facts, "sum": _sum(tensors)}, sort_keys=True)
    fresh = beside.fresh(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.clear_killed(path.parent)
        with fresh.open("wb") as file:
            file.write(save(tensors, metadata={"facts": text}))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError as error:
        raise MachineError(
            f"{path}: the checkpoint cannot be written ({error.strerror or error}); the one before "
            "is still there. Free some space, or name another place."
        ) from error
    finally:
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)


def remove_checkpoint(path: Path) -> None:
    """Delete a checkpoint, and what a killed run left of one; what is not there is no error."""
    path.unlink(missing_ok=True)
    beside.clear_killed(path.parent)


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, object]]:
    """Read what `write_checkpoint` wrote.

    Raises:
        InputError: No such file, a file that is cut off or of which a bit has changed, or one of
            something else.
    """
    try:
        with safe_open(str(path), framework="pt") as file:
            facts = json.loads((file.metadata() or {}).get("facts", "null"))
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, ValueError, RecursionError) as error:
        raise InputError(
            f"{path}: no checkpoint of a training ({error}); delete it to start anew."
        ) from error
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        found = facts.get("format") if isinstance(facts, dict) else facts
        raise InputError(
            f"{path}: the format is {found!r}, expected {FORMAT!r}; delete it to start anew."
        )
    if facts.pop("sum", None) != _sum(state):
        raise InputError(
            f"{path}: its numbers are not those that were written: no checkpoint any more, but a "
            "damaged one; delete it to start anew."
        )
    return state, facts


def _sum(state: dict[str, Tensor]) -> str:
    """Hash of names, types, shapes and bytes, since safetensors keeps none."""
    total = hashlib.sha256()
    for name in sorted(state):
        values = state[name]
        total.update(f"{name} {values.dtype} {tuple(values.shape)} ".encode())
        total.update(values.reshape(-1).view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


def generator_state(generator: torch.Generator) -> Tensor:
    """The state of a random generator, as bytes."""
    return generator.get_state()
