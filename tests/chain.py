"""Projects of the real stages around the tiny object: whole chain in seconds."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pipelines.executor import Result
from pipelines.graph import read_graph, with_closures
from pipelines.objects import PARTS, NewObject, add
from tests.miniature import Miniature

ROOT = Path(__file__).resolve().parents[1]
TINY = ROOT / "tests" / "tiny"

LEFT_OUT = ("datasets", "tests", "docs", "benchmarks", ".ci")
"""Top folders that the stages do not need; fewer files make git and DVC faster."""


class Tiny(Miniature):
    """A project of the real stages."""


COMPILE = """
import importlib, pathlib
for path in sorted(pathlib.Path("twinloop").rglob("*.py")):
    if "import warp as wp" in path.read_text():
        importlib.import_module(".".join(path.with_suffix("").parts))
import warp
warp.load_module("twinloop", device="cpu", recursive=True)
"""
"""Compiles every Warp kernel into the machine's cache."""


@dataclass(frozen=True)
class Built:
    """The built project and the run that built it."""

    project: Tiny
    captures: dict[str, Path]
    """Folders that the real object was added from, by part."""
    result: Result

    def copy(self, root: Path) -> Tiny:
        """A project of its own: outputs and cache are linked, the rest is copied."""
        shutil.copytree(self.project.root, root, symlinks=True, copy_function=link_data)
        return Tiny(root, root.parent / f"{root.name}.journal")


def link_data(source: str, target: str) -> str:
    """Link what DVC keeps (it is never written in place), copy the rest."""
    if "/.dvc/cache/" in source or ".zarr/" in source or "/raw/" in source:
        os.link(source, target)
        return target
    return str(shutil.copy2(source, target))


def captures(project: Tiny, root: Path) -> dict[str, Path]:
    """Let the lab make the tiny object's captures in a copy of the project at ``root``."""
    shutil.copytree(project.root, root, ignore=shutil.ignore_patterns(".git", ".dvc"))
    Tiny(root, root.parent / "lab.journal").run("python", "-m", "stages.lab", "tiny")
    return {part: root / "datasets/tiny/raw" / part for part in PARTS}


def add_real(project: Tiny, folders: dict[str, Path]) -> None:
    """Add an object ``real`` as a user does, from captures; overrides as of the tiny object."""
    add(project.root, NewObject("real", "CC-BY-4.0", folders))
    tiny = yaml.safe_load(project.text("datasets/tiny/object.yaml"))
    card = yaml.safe_load(project.text("datasets/real/object.yaml"))
    card["overrides"] = tiny["overrides"]
    (project.root / "datasets/real/object.yaml").write_text(yaml.safe_dump(card))


def compile_kernels(project: Miniature) -> None:
    """Compile the kernels once, on a new machine: else two objects would, both at the same time."""
    project.run("python", "-c", COMPILE)


def create(root: Path, objects: dict[str, dict[str, Any]]) -> Tiny:
    """Copy this repository's working tree, with tiny objects in place of its own, and commit it.

    ``objects`` maps names to what differs from the tiny object's recipe.

    Tracked and untracked files as they stand, minus ignored ones. A dvc.yaml whose code deps are
    not up to date is brought up to date in the copy: a test of its own watches the real one.
    """
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if name.split("/")[0] not in LEFT_OUT and (ROOT / name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, root / name)
    (root / "dvc.lock").unlink(missing_ok=True)
    for name, changes in objects.items():
        add_tiny(root, name, changes)
    lists = {"objects": list(objects), "lab_objects": list(objects)}
    (root / "datasets/objects.yaml").write_text(yaml.safe_dump(lists))
    project = Tiny(root, root.parent / f"{root.name}.journal")
    project.run("git", "init", "-q", "-b", "main")
    project.run("git", "config", "user.email", "test@localhost")
    project.run("git", "config", "user.name", "test")
    (root / "dvc.yaml").write_text(with_closures(read_graph(root)))
    project.run("git", "add", "-A")
    project.run("git", "commit", "-q", "-m", "tiny")
    return project


def add_tiny(root: Path, name: str, changes: dict[str, Any]) -> None:
    """Write a tiny lab object; ``changes`` go into its recipe, for example ``{"seed": 4}``."""
    folder = root / "datasets" / name
    (folder / "truth").mkdir(parents=True)
    recipe = yaml.safe_load((TINY / "lab.yaml").read_text()) | changes
    card = yaml.safe_load((TINY / "object.yaml").read_text()) | {"name": name}
    overrides = card.get("overrides") or {}
    card["overrides"] = {stage: overrides.get(stage, {}) for stage in read_stages(root)}
    (folder / "lab.yaml").write_text(yaml.safe_dump(recipe))
    (folder / "object.yaml").write_text(yaml.safe_dump(card))
    (folder / "truth" / "reference.yaml").write_text("{}\n")


def read_stages(root: Path) -> list[str]:
    """Names of the stages in dvc.yaml."""
    return list(yaml.safe_load((root / "dvc.yaml").read_text())["stages"])
