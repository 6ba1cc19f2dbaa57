"""Build objects side by side, without Prefect and without a server.

One run: hold the project, save what a killed run left, snapshot the working tree, one workspace per
object with ``dvc repro`` inside, then bring every finished stage home. A failing object neither
stops the others nor costs its own finished stages.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipelines.advice import advise
from pipelines.events import FINISHED, Emit, Event, silent
from pipelines.follow import Follower, ObjectRun
from pipelines.graph import PARAMS_FILE, Graph, check_closure, read_graph, read_yaml
from pipelines.lock import LOCK_FILE, complete, project_lock, read_entries
from pipelines.merge import Finished, merge
from pipelines.process import CommandError, Supervisor, dvc
from pipelines.suggest import unknown
from pipelines.workspace import (
    Workspace,
    Workspaces,
    carry_work,
    leftovers,
    remove,
    require_git,
    salvageable,
    snapshot,
)
from twinloop.errors import ArtifactError, InputError, TwinloopError

LOGS = Path("logs")
LOGS_KEPT = 20
"""Runs whose logs are kept."""

STOP_TIME = 30.0
"""Seconds within which threads must notice that their processes were stopped."""


@dataclass
class Result:
    """What became of a run."""

    runs: list[ObjectRun] = field(default_factory=list)
    salvaged: list[str] = field(default_factory=list)
    """Stages that a killed run had finished."""
    recorded: list[str] = field(default_factory=list)
    """Raw captures that had changed and were added to DVC again."""
    edited: list[str] = field(default_factory=list)
    """Stages whose inputs were edited during the run: built, but from the older state."""
    stopped: bool = False

    @property
    def failed(self) -> list[str]:
        """Names of objects that were not built."""
        return [run.name for run in self.runs if run.error]


@dataclass(frozen=True)
class Extent:
    """How far a run goes and what it may fetch."""

    until: str = ""
    """Last stage; "" means all."""
    pull: bool = False
    """Fetch results of others from the remote instead of running, where they fit."""


Build = Callable[[str], ObjectRun]
Spread = Callable[[Build, list[str]], Iterable[ObjectRun]]
"""Calls a function for each name, at once or one after another, and gives the results in order."""


def threads(jobs: int) -> Spread:
    """Spread over ``jobs`` threads; each only waits for processes."""

    def spread(build: Build, names: list[str]) -> Iterable[ObjectRun]:
        pool = ThreadPoolExecutor(max(1, jobs))
        try:
            futures = [pool.submit(build, name) for name in names]
            return [future.result() for future in futures]
        finally:
            # After Ctrl-C the threads still wait for their processes, which the caller stops now:
            # waiting for the threads here would wait for the stages.
            pool.shutdown(wait=False, cancel_futures=True)

    return spread


def default_jobs() -> int:
    """Processors that this process may use: a stage computes in one or two threads."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_all(
    root: Path,
    names: list[str] | None = None,
    *,
    spread: Spread | None = None,
    emit: Emit = silent,
    extent: Extent = Extent(),
    wait: bool = False,
) -> Result:
    """Build every object, or those named, as far as something changed.

    Args:
        root: Project root.
        names: Objects to build; None means all.
        spread: How objects are spread; threads, one per processor, by default.
        emit: Receives events, from several threads.
        extent: How far to build, and whether to fetch results from the remote.
        wait: Wait for another run of this project instead of failing.

    Raises:
        InputError: Unknown object or stage, or no git repository.
        ArtifactError: The graph's code deps are not the import closures: caching would be wrong.
        MachineError: Another run holds the project.
    """
    require_git(root)
    with project_lock(root, "twinloop run", wait=wait):
        graph = read_graph(root)
        wanted = choose(graph, names)
        if extent.until and extent.until not in graph.stages:
            raise InputError(unknown("stage", extent.until, graph.stages))
        require_sound(graph)
        result = Result(salvaged=salvage(graph, emit))
        if extent.pull:
            dvc(root, "pull", "--run-cache", "--allow-missing")
        status = read_status(root)
        result.recorded = record_raw(root, status, emit)
        if result.recorded:
            status = read_status(root)
        todo = [name for name in wanted if changed_stages(graph, status, name)]
        if not todo:
            return result
        _build(graph, todo, spread or threads(default_jobs()), emit, extent, result)
    return result


def _build(
    graph: Graph, todo: list[str], spread: Spread, emit: Emit, extent: Extent, result: Result
) -> None:
    workspaces = Workspaces(graph, snapshot(graph.root))
    supervisor = Supervisor()
    logs = new_log_folder(graph.root)
    runs: dict[str, ObjectRun] = {name: ObjectRun(name, error="not started") for name in todo}

    building: set[str] = set()

    def build(name: str) -> ObjectRun:
        building.add(name)
        try:
            runs[name] = build_object(workspaces, name, supervisor, emit, logs, extent)
        finally:
            building.discard(name)
        return runs[name]

    try:
        runs |= {run.name: run for run in spread(build, todo)}
    except KeyboardInterrupt:
        result.stopped = True
        supervisor.stop()
    finally:
        supervisor.stop()
        deadline = time.monotonic() + STOP_TIME
        while building and time.monotonic() < deadline:
            time.sleep(0.05)
        result.runs = list(runs.values())
        emit(Event("", "", "merging"))
        merge(graph, [Finished(r.workspace, r.entries) for r in result.runs if r.workspace])
        for run in result.runs:
            if run.workspace:
                workspaces.close(run.workspace)
    status = read_status(graph.root)
    result.edited = [
        f"{stage}@{run.name}"
        for run in result.runs
        for stage, state in run.states.items()
        if state in FINISHED and f"{stage}@{run.name}" in status
    ]


def build_object(
    workspaces: Workspaces,
    name: str,
    supervisor: Supervisor,
    emit: Emit,
    logs: Path,
    extent: Extent,
) -> ObjectRun:
    """Build one object in a workspace of its own; errors are recorded, never raised."""
    run = ObjectRun(name, log=logs / f"{name}.log")
    try:
        run.workspace = workspaces.open(name)
        _reproduce(run, run.workspace, supervisor, emit, extent)
        entries = run.workspace.entries()
        done = {f"{s}@{name}" for s, state in run.states.items() if state in FINISHED}
        run.entries = {key: text for key, text in entries.items() if key in done}
    except KeyboardInterrupt:
        run.error = "stopped before it began"
    except (TwinloopError, OSError) as error:
        if run.workspace is None:
            workspaces.discard(name)
        interrupted = isinstance(error, CommandError) and error.interrupted
        if interrupted or supervisor.stops_soon():
            run.error = "stopped"
            emit(Event(name, "", "stopped"))
            return run
        run.error = advise(f"{name}: {error}")
        emit(Event(name, "", "failed", message=run.error))
    return run


def _reproduce(
    run: ObjectRun, workspace: Workspace, supervisor: Supervisor, emit: Emit, extent: Extent
) -> None:
    """Run ``dvc repro`` in the workspace, follow its output, fill in ``run``."""
    words = [f"{extent.until}@{run.name}"] if extent.until else []
    words += ["--pull"] if extent.pull else []
    process = supervisor.start(
        [sys.executable, "-m", "dvc", "repro", *words], workspace.path, workspace.environment
    )
    assert process.stdout is not None
    assert run.log is not None
    follower = Follower(run, emit)
    with run.log.open("w", encoding="utf-8") as log:
        for line in process.stdout:
            log.write(line)
            log.flush()
            follower.line(line.rstrip("\n"))
    code = supervisor.finish(process)
    follower.end(code, stopped=supervisor.stopping)


def salvage(graph: Graph, emit: Emit = silent) -> list[str]:
    """Bring home what a killed run had finished, and remove its workspaces."""
    found = [Finished(w, salvageable(graph, w)) for w in leftovers(graph)]
    merge(graph, found)
    for item in found:
        carry_work(item.workspace.path, graph.root, item.workspace.object)
        remove(graph.root, item.workspace.path)
    names = sorted(key for item in found for key in item.entries)
    if found:
        kept = ", ".join(names) or "no finished stage"
        emit(Event("", "", "salvaged", message=f"an earlier run was killed; kept: {kept}"))
    return names


def read_status(root: Path, extra: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What ``dvc status`` finds changed, by ``stage@object`` or ``.dvc`` file.

    Raises:
        ArtifactError: ``dvc.lock`` is damaged.
        InputError: params.yaml or a card is not valid YAML.
    """
    read_yaml(root / PARAMS_FILE)
    entries = read_entries(root / LOCK_FILE)
    try:
        text = dvc(root, "status", "--json", extra=extra).strip()
    except CommandError:
        cut = [key for key, entry in entries.items() if not complete(entry)]
        if cut:
            raise ArtifactError(
                f"{root / LOCK_FILE}: entry {cut[0]} is cut short or damaged; "
                f"`git checkout {LOCK_FILE}` restores the last committed one."
            ) from None
        for card in sorted((root / "datasets").glob("*/object.yaml")):
            read_yaml(card)
        raise
    return dict(json.loads(text)) if text else {}


def changed_stages(graph: Graph, status: dict[str, Any], name: str) -> list[str]:
    """Stages of an object that DVC finds changed; what follows them is for DVC to decide."""
    return [stage for stage in graph.stages_of(name) if f"{stage}@{name}" in status]


def record_raw(root: Path, status: dict[str, Any], emit: Emit = silent) -> list[str]:
    """Add changed raw captures to DVC, as ``dvc repro`` would; returns their paths."""
    changed = [
        path
        for key, causes in status.items()
        if key.endswith(".dvc")
        for cause in causes
        if isinstance(cause, dict)
        for path, state in cause.get("changed outs", {}).items()
        if state in ("modified", "not in cache") and (root / path).exists()
    ]
    for path in changed:
        dvc(root, "add", path)
        emit(Event("", "", "recorded", message=f"{path} has changed: added to DVC"))
    return changed


def require_sound(graph: Graph) -> None:
    """Raise ArtifactError when a stage imports a file that DVC does not watch."""
    faults = check_closure(graph)
    if faults:
        shown = "\n  ".join(faults[:8] + (["..."] if len(faults) > 8 else []))
        raise ArtifactError(
            f"dvc.yaml does not list what the stages import, so the cache could lie:\n  {shown}\n"
            "Run `python -m pipelines graph --write`, look at the change, and run again."
        )


def choose(graph: Graph, names: list[str] | None) -> list[str]:
    """Check names of objects; None means all.

    Raises:
        InputError: An object is not in the list; close names are suggested.
    """
    for name in names or []:
        if name not in graph.objects:
            raise InputError(unknown("object", name, graph.objects))
    for name in names or graph.objects:
        card = graph.root / "datasets" / name / "object.yaml"
        if not card.is_file():
            raise InputError(f"{card} is missing; restore it, or `twinloop remove {name}`.")
    return list(dict.fromkeys(names)) if names else list(graph.objects)


def new_log_folder(root: Path) -> Path:
    """Folder for the logs of this run; the oldest ones are removed."""
    base = root / LOGS
    folder = base / time.strftime("%Y%m%d-%H%M%S")
    folder.mkdir(parents=True, exist_ok=True)
    for old in sorted(p for p in base.iterdir() if p.is_dir())[:-LOGS_KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    return folder
