"""Fixtures that several parts share."""

from __future__ import annotations

import os

# Before NumPy and torch load, as in the stages: several processes of tests, each with a pool of
# spinning threads, would take the cores from each other.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

from pathlib import Path
from typing import Any

import pytest

from pipelines.executor import run_all, threads
from tests import chain, miniature, schedule


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the largest units of work first; the order is the same in each process."""
    items.sort(key=lambda item: schedule.rank(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand whole units of work to the processes, in the order of the collection."""
    from xdist.scheduler import LoadScopeScheduling

    class Units(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return schedule.unit(nodeid)

    config.option.loadscopereorder = False
    return Units(config, log)


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
    """A tiny object of the lab and a real one with the same captures, built side by side."""
    root = tmp_path_factory.mktemp("chain") / "project"
    project = chain.create(root, {"tiny": {}})
    chain.compile_kernels(project)
    captures = chain.captures(project, root.parent / "lab")
    chain.add_real(project, captures)
    return chain.Built(project, captures, run_all(root, spread=threads(2)))
