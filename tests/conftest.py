"""Fixtures that several parts share."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.executor import run_all, threads
from tests import chain, miniature


@pytest.fixture(scope="session")
def miniature_template(tmp_path_factory: pytest.TempPathFactory) -> miniature.Miniature:
    """The miniature project, made once; copy it, never change it."""
    return miniature.create(tmp_path_factory.mktemp("miniature") / "project")


@pytest.fixture
def mini(
    miniature_template: miniature.Miniature, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> miniature.Miniature:
    """A fresh miniature project; stages started from this process find its journal."""
    project = miniature.copy(miniature_template, tmp_path / "project")
    monkeypatch.setenv("MINIATURE_JOURNAL", str(project.journal))
    return project


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> chain.Built:
    """Two tiny objects that differ in one value, built in two processes at once."""
    root = tmp_path_factory.mktemp("chain") / "project"
    project = chain.create(root, {"tiny": {}, "other": {"friction": 0.42}})
    return chain.Built(project, run_all(root, spread=threads(2)))
