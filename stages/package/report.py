"""Metrics of `package`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stages.harness import Inputs
from stages.package.params import Params


def metrics(out: Path, inputs: Inputs, params: Params) -> dict[str, Any]:
    """Return the number and size of the twin's files."""
    files = [path for path in (out / "twin").rglob("*") if path.is_file()]
    return {"files": len(files), "bytes": sum(path.stat().st_size for path in files)}


def plots(out: Path, inputs: Inputs, params: Params) -> dict[str, Any]:
    """Return no picture: the report holds those of all other stages."""
    return {}
