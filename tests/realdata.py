"""Real captures for tests: outside the repository, because their licences differ from ours."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(
    os.environ.get("TWINLOOP_DATA", Path(__file__).resolve().parents[2] / "shared" / "data")
)
"""Folder of the real captures: beside the clone, or where the variable says."""


def folder(name: str) -> Path:
    """Folder ``name`` of the real captures; the test is skipped where it is absent."""
    path = ROOT / name
    if not path.is_dir():
        pytest.skip(f"the real capture {name!r} is not here (TWINLOOP_DATA names its folder)")
    return path
