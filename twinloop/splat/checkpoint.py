"""Checkpoints of a training: one safetensors file, written whole or not at all, no pickle."""

from __future__ import annotations

import json
import os
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from twinloop.errors import InputError

FORMAT = "twinloop training 1"


def write_checkpoint(path: Path, state: dict[str, Tensor], facts: dict[str, object]) -> None:
    """Write tensors by name, and facts that JSON can hold.

    A crash at any point leaves the file that was there before, or the new one.
    """
    text = json.dumps({"format": FORMAT, **facts}, sort_keys=True)
    tensors = {k: v.detach().cpu().contiguous() for k, v in state.items()}
    fresh = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with fresh.open("wb") as file:
            file.write(save(tensors, metadata={"facts": text}))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, object]]:
    """Read what `write_checkpoint` wrote.

    Raises:
        InputError: No such file, a file that is cut off, or one of something else.
    """
    try:
        with safe_open(str(path), framework="pt") as file:
            facts = json.loads((file.metadata() or {}).get("facts", "null"))
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, ValueError) as error:
        raise InputError(
            f"{path}: no checkpoint of a training ({error}); delete it to start anew."
        ) from error
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        found = facts.get("format") if isinstance(facts, dict) else facts
        raise InputError(
            f"{path}: the format is {found!r}, expected {FORMAT!r}; delete it to start anew."
        )
    return state, facts


def generator_state(generator: torch.Generator) -> Tensor:
    """The state of a random generator, as bytes."""
    return generator.get_state()
