"""Bring finished stages home: small files copied, lock entries united, one checkout."""

from __future__ import annotations

import filecmp
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pipelines.graph import Graph
from pipelines.lock import LOCK_FILE, read_entries, write_entries
from pipelines.process import CommandError, dvc
from pipelines.workspace import Workspace
from twinloop.beside import clear_killed, prefix


@dataclass(frozen=True)
class Finished:
    """What one workspace has to give: its lock entries by ``stage@object``."""

    workspace: Workspace
    entries: Mapping[str, str]


def merge(graph: Graph, finished: list[Finished]) -> None:
    """Unite the workspaces' finished stages with the project.

    In this order, so that being killed at any point loses nothing (the next run finds the
    workspaces and does it again): metrics, plots and provenance; ``dvc.lock``; outputs.
    An entry that something else has changed in the project since the workspace was made stays.
    """
    fresh: dict[str, str] = {}
    before = read_entries(graph.root / LOCK_FILE)
    for done in finished:
        base = done.workspace.base()
        for key, text in done.entries.items():
            if not known(graph, key) or before.get(key) not in (base.get(key), text):
                continue
            for path in graph.stages[key.split("@")[0]].kept:
                bring(done.workspace, graph.root, path.replace("${item}", done.workspace.object))
            fresh[key] = text
        bring(done.workspace, graph.root, f"datasets/{done.workspace.object}/provenance")
    if not fresh:
        return
    # Read again just before: another tool may have written meanwhile.
    entries = read_entries(graph.root / LOCK_FILE)
    united = {k: v for k, v in (entries | fresh).items() if known(graph, k)}
    if united != entries:
        write_entries(graph.root / LOCK_FILE, united)
    checkout(graph.root, list(fresh))


def known(graph: Graph, key: str) -> bool:
    """Tell whether the graph still has this entry's stage and object."""
    stage, _, name = key.partition("@")
    return stage in graph.stages and (not name or stage in graph.stages_of(name))


def checkout(root: Path, stages: list[str]) -> None:
    """Link outputs from the cache. Only the outputs of ``stages`` may replace changed files."""
    try:
        dvc(root, "checkout", "--allow-missing")
    except CommandError:
        # Some output is half written or was edited by hand. Never force everything: that would
        # also throw away a raw capture that its owner has changed but not yet added.
        dvc(root, "checkout", "--allow-missing", "--force", *stages)


def bring(workspace: Workspace, root: Path, path: str) -> None:
    """Copy a small file or folder that git keeps; what the workspace lacks changes nothing.

    A folder of plots is mirrored: a figure that is no longer made goes.
    """
    here, there = workspace.path / path, root / path
    if here.is_file():
        copy(here, there)
    elif here.is_dir():
        wanted = {p.relative_to(here) for p in here.rglob("*") if p.is_file()}
        for relative in sorted(wanted):
            copy(here / relative, there / relative)
        if here.name != "provenance":
            for old in sorted(p for p in there.rglob("*") if p.is_file()):
                if old.relative_to(there) not in wanted:
                    old.unlink()


def copy(source: Path, target: Path) -> None:
    """Copy a file atomically, and only when its bytes differ."""
    if target.is_file() and filecmp.cmp(source, target, shallow=False):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    clear_killed(target.parent)
    handle, beside = tempfile.mkstemp(prefix=prefix(target.name), dir=target.parent)
    os.close(handle)
    shutil.copyfile(source, beside)
    Path(beside).chmod(0o644)
    Path(beside).replace(target)
