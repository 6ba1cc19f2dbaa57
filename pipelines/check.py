"""Is the cache sound? Could DVC give an old result for a new input, or lose one?"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from pipelines.graph import (
    PARAMS_FILE,
    Graph,
    check_closure,
    check_names,
    read_graph,
    read_yaml,
)
from pipelines.lock import LOCK_FILE, complete, held, read_entries
from pipelines.process import git
from pipelines.workspace import FOLDER
from twinloop.errors import TwinloopError

MOST_FILES = 200
"""Files in one artifact; DVC's time grows with their number (100 s for 20,000)."""

VERSIONS_FILE = "versions.yaml"
NO_LIBRARY = {"device"}


@dataclass(frozen=True)
class Finding:
    """Outcome of one check; ``faults`` are sentences, empty when it passed."""

    title: str
    faults: tuple[str, ...]


def check_project(root: Path, *, deep: bool = False) -> list[Finding]:
    """Run all checks.

    Args:
        root: Project root.
        deep: Hash every output anew instead of trusting sizes and times of change.
    """
    graph = read_graph(root)
    checks: list[tuple[str, Callable[[Graph], list[str]]]] = [
        ("code deps equal the import closures", check_closure),
        ("one word per stage, one folder per object", check_names),
        ("numbers mean the same to Python and to DVC", check_numbers),
        ("outputs are known to DVC, not to git", check_ignored),
        ("raw captures are seen by DVC", check_raw),
        ("dvc.lock is whole", check_lock),
        ("installed libraries are those of versions.yaml", check_versions),
        (f"no artifact has more than {MOST_FILES} files", check_file_counts),
        ("no killed run waits to be salvaged", check_leftovers),
        ("outputs are what was built", lambda g: check_outputs(g, deep=deep)),
    ]
    findings = []
    for title, check in checks:
        try:
            faults = check(graph)
        except TwinloopError as error:
            faults = [str(error)]
        findings.append(Finding(title, tuple(faults)))
    return findings


def check_numbers(graph: Graph) -> list[str]:
    """Scalars that YAML 1.1 (the stages' reader) and YAML 1.2 (DVC's) take for different things."""
    faults = []
    cards = [f"datasets/{name}/object.yaml" for name in graph.objects]
    for file in (PARAMS_FILE, *cards):
        if (graph.root / file).is_file():
            old = read_yaml(graph.root / file)
            text = (graph.root / file).read_text(encoding="utf-8")
            new = YAML(typ="safe", pure=True).load(text)
            faults += [
                f"{file}: {place} is {a!r} to Python but {b!r} to DVC; "
                "write numbers like 1.0e-5, and words in quotes"
                for place, a, b in differences(old, new)
            ]
    return faults


def differences(old: Any, new: Any, place: str = "") -> list[tuple[str, Any, Any]]:
    """Places where two parsed documents differ in value or type."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = list(dict.fromkeys([*old, *new]))
        pairs = [(f"{place}.{k}".strip("."), old.get(k), new.get(k)) for k in keys]
        return [d for where, a, b in pairs for d in differences(a, b, where)]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        items = enumerate(zip(old, new, strict=True))
        return [d for i, (a, b) in items for d in differences(a, b, f"{place}[{i}]")]
    return [] if old == new and type(old) is type(new) else [(place, old, new)]


def check_ignored(graph: Graph) -> list[str]:
    """Outputs that git would take in, and metrics or plots that git would not."""
    faults: list[str] = []
    for name in graph.objects[:1]:
        for stage in graph.stages.values():
            for path in (p.replace("${item}", name) for p in stage.outs):
                if git(graph.root, "ls-files", "--", path):
                    faults.append(f"{path} is tracked by git: `git rm -r --cached {path}`")
                elif not is_ignored(graph.root, path + "/"):
                    faults.append(f"{path} is not in the committed .gitignore")
            for path in (p.replace("${item}", name) for p in stage.kept):
                if is_ignored(graph.root, path):
                    faults.append(f"{path} is ignored by git, but metrics and plots belong in it")
    return faults


def is_ignored(root: Path, path: str) -> bool:
    """Tell whether git ignores ``path``, which need not exist."""
    try:
        git(root, "check-ignore", "-q", "--no-index", path)
    except TwinloopError:
        return False
    return True


def check_raw(graph: Graph) -> list[str]:
    """Folders ``raw/`` that DVC overlooks, because a pattern hides them from it.

    DVC reads .gitignore with a matcher of its own: ``/datasets/*/raw/*/`` hides ``raw/`` itself.
    """
    from dvc.repo import Repo

    names = graph.objects or ("any",)
    with Repo(str(graph.root)) as repo:
        hidden = [n for n in names if repo.scm.is_ignored(f"{repo.root_dir}/datasets/{n}/raw/")]
    hint = "DVC sees no .dvc file in it; look for a too wide pattern in .gitignore"
    return [f"datasets/{name}/raw/: {hint}" for name in hidden]


def check_lock(graph: Graph) -> list[str]:
    """Entries that are cut short, or of stages and objects that are gone."""
    faults = []
    for key, text in read_entries(graph.root / LOCK_FILE).items():
        stage, _, name = key.partition("@")
        if not complete(text):
            faults.append(f"{LOCK_FILE}: entry {key} is cut short; `git checkout {LOCK_FILE}`")
        elif stage not in graph.stages or (name and name not in graph.objects):
            faults.append(f"{LOCK_FILE}: entry {key} belongs to nothing; the next run drops it")
    return faults


def check_versions(graph: Graph) -> list[str]:
    """Libraries whose installed version is not the declared one: results would be filed wrongly."""
    path = graph.root / VERSIONS_FILE
    if not path.is_file():
        return []
    faults = []
    listed = read_yaml(path) or {}
    if listed.get("device") == "cuda" and not cuda_driver():
        faults.append(
            f"{VERSIONS_FILE} says device: cuda, but this machine has no CUDA driver; set it to "
            "cpu, or `twinloop doctor` says why"
        )
    for library, declared in listed.items():
        if library in NO_LIBRARY:
            continue
        try:
            installed = version(library).split("+")[0]
        except PackageNotFoundError:
            installed = "nothing"
        if installed != str(declared):
            faults.append(
                f"{library}: {VERSIONS_FILE} says {declared}, installed is {installed}; "
                "`pip install -r requirements.lock`, or `twinloop doctor --write-versions`"
            )
    return faults


def cuda_driver() -> bool:
    """Tell whether a CUDA driver loads; importing torch to ask would take seconds."""
    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return False
    return True


def check_file_counts(graph: Graph) -> list[str]:
    """Artifacts with so many files that DVC becomes slow."""
    faults = []
    for path in sorted((graph.root / "datasets").glob("*/*.zarr")):
        count = sum(1 for p in path.rglob("*") if p.is_file())
        if count > MOST_FILES:
            place = path.relative_to(graph.root)
            faults.append(f"{place} has {count} files; raise `shard` in its schema")
    return faults


def check_leftovers(graph: Graph) -> list[str]:
    """Workspaces of a killed run; those of a run that is alive are none."""
    if held(graph.root):
        return []
    folder = graph.root / FOLDER
    names = sorted(p.name for p in folder.iterdir()) if folder.is_dir() else []
    return [f"{n}: a run was killed; `twinloop run` keeps what it had finished" for n in names]


def check_outputs(graph: Graph, *, deep: bool = False) -> list[str]:
    """Outputs that were changed or lost after they were built, while nothing they depend on was."""
    from pipelines.executor import read_status

    with contextlib.ExitStack() as stack:
        extra = {}
        if deep:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            extra = {"DVC_SITE_CACHE_DIR": folder}
        status = read_status(graph.root, extra)
    faults = []
    for key, causes in status.items():
        kinds: dict[str, Any] = {}
        for cause in causes:
            kinds |= cause if isinstance(cause, dict) else {}
        if "changed outs" in kinds and "changed deps" not in kinds and not key.endswith(".dvc"):
            for path, state in kinds["changed outs"].items():
                faults.append(f"{path} ({key}) is {state}; `twinloop run` puts it right")
    return faults
