"""Prefect flows: when, how many at once, retries, and a table in the UI.

DVC owns caching, so every task is ``NO_CACHE`` (Prefect hashes arguments, not files, and returned
stale results). All work is done by the executor; a flow only spreads it over tasks.
"""

from __future__ import annotations

import os

# Before Prefect loads: no telemetry, neither from here nor from a server started by a test.
os.environ.setdefault("DO_NOT_TRACK", "1")
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from prefect import flow, get_run_logger, task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.concurrency.sync import concurrency
from prefect.task_runners import ThreadPoolTaskRunner

from pipelines.advice import is_transient
from pipelines.events import Emit, Event
from pipelines.executor import Build, ObjectRun, Result, Spread, default_jobs, run_all
from pipelines.nightly import BRANCH, Night, spend_night
from twinloop.errors import TwinloopError

LIMIT = "twinloop"
"""Global concurrency limit of object builds; without one of this name nothing is limited.
``prefect global-concurrency-limit create twinloop --limit 2`` makes it."""


class BuildError(TwinloopError):
    """At least one object was not built."""


@flow(name="build-object", flow_run_name="{name}", task_runner=ThreadPoolTaskRunner(max_workers=1))
def build_object(name: str, root: str = ".", retries: int = 1) -> dict[str, Any]:
    """Build one object of the project at ``root``."""
    return _report(run_all(Path(root).resolve(), [name], spread=tasks(retries), emit=logged()))


@flow(name="build-all", task_runner=ThreadPoolTaskRunner(max_workers=default_jobs()))
def build_all(root: str = ".", names: list[str] | None = None, retries: int = 1) -> dict[str, Any]:
    """Build all objects, or those named, as far as something changed."""
    return _report(run_all(Path(root).resolve(), names, spread=tasks(retries), emit=logged()))


@flow(name="nightly", task_runner=ThreadPoolTaskRunner(max_workers=default_jobs()))
def nightly(
    root: str = ".",
    inbox: str = "inbox",
    branch: str = BRANCH,
    push: bool = True,
    retries: int = 1,
) -> dict[str, Any]:
    """Take new captures, build, commit to a branch of its own, push cache and run-cache."""
    place = Path(root).resolve()
    emit = logged()

    def run(tree: Path) -> Result:
        return run_all(tree, spread=tasks(retries), emit=emit)

    night = spend_night(place, place / inbox, run, branch=branch, push=push, emit=emit)
    return _report(night.result, night)


def tasks(retries: int = 1, delay: float = 10) -> Spread:
    """Spread objects over Prefect tasks of the flow's task runner.

    A failure that may pass by itself (a killed process, a lost connection) is retried in the same
    workspace, where finished stages stand; any other would only fail again.
    """

    def spread(build: Build, names: list[str]) -> Iterable[ObjectRun]:
        @task(
            name="object",
            task_run_name="{name}",
            cache_policy=NO_CACHE,
            persist_result=False,
            retries=retries,
            retry_delay_seconds=delay,
            retry_condition_fn=_may_pass,
        )
        def attempt(name: str) -> ObjectRun:
            with concurrency(LIMIT, occupy=1, strict=False):
                run = build(name)
            if run.error:
                raise BuildError(run.error)
            return run

        futures = [attempt.submit(name) for name in names]
        results = [future.result(raise_on_failure=False) for future in futures]
        # The executor keeps the runs of failed objects itself.
        return [run for run in results if isinstance(run, ObjectRun)]

    return spread


def _may_pass(_task: Any, _run: Any, state: Any) -> bool:
    error = state.result(raise_on_failure=False)
    return is_transient(str(error))


def logged() -> Emit:
    """Events as lines of the flow run's log."""
    logger = get_run_logger()

    def emit(event: Event) -> None:
        name = f"{event.stage}@{event.object}" if event.stage else event.object
        took = f" in {event.seconds:.1f} s" if event.seconds else ""
        level = logger.error if event.state == "failed" else logger.info
        level(f"{name} {event.state}{took} {event.message}".strip())

    return emit


def _report(result: Result, night: Night | None = None) -> dict[str, Any]:
    """Make the run's table, then fail when an object failed."""
    rows = [
        {
            "object": run.name,
            **{kind: list(run.states.values()).count(kind) for kind in ("ran", "restored")},
            "seconds": round(sum(run.seconds.values()), 1),
            "error": run.error,
        }
        for run in result.runs
    ]
    rows += [{"object": k, "error": v} for k, v in (night.refused if night else {}).items()]
    create_table_artifact(table=rows, key="twinloop", description="Objects of this run")
    if result.failed:
        errors = [run.error for run in result.runs if run.error]
        raise BuildError(f"{len(errors)} objects failed:\n" + "\n".join(errors))
    summary: dict[str, Any] = {"built": [run.name for run in result.runs]}
    if night:
        summary |= {"taken": night.taken, "refused": night.refused, "commit": night.commit}
    return summary
