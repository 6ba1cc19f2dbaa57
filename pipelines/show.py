"""Tables of a run and of the project's state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipelines.executor import Result, changed_stages, read_status
from pipelines.graph import Graph
from pipelines.lock import LOCK_FILE, read_entries

STOPPED = ("stopped", "stopped before it began", "not started")
"""What an interrupted object says; the last line of the summary explains it once."""

KINDS = ("ran", "restored", "unchanged", "failed", "stopped")


def print_result(result: Result, root: Path, *, quiet: bool = False) -> None:
    """Print what became of each object, then each error, then what to know about the run."""
    out, err = Console(), Console(stderr=True)
    if not quiet:
        if result.runs:
            out.print(result_table(result))
        else:
            out.print("Everything is up to date.")
        for name in result.salvaged:
            out.print(f"kept from a killed run: {name}")
    for run in result.runs:
        if run.error and not (result.stopped and run.error in STOPPED):
            err.print(Text(f"\n{run.error}"))
            if run.log and run.log.is_file():
                err.print(Text(f"Whole log: {run.log.relative_to(root)}"))
    if result.edited:
        err.print(
            Text(
                "\nEdited during the run, so built from an older state: "
                f"{', '.join(result.edited)}. Run `twinloop run` again."
            )
        )
    if result.stopped:
        err.print(
            Text("\ninterrupted: finished stages are kept; `twinloop run` goes on from there.")
        )


def result_table(result: Result) -> Table:
    """One row per object: how many stages ran, were restored, unchanged, and the time."""
    table = Table(box=None, pad_edge=False)
    for title in ("object", *KINDS, "seconds"):
        table.add_column(title, justify="left" if title == "object" else "right")
    for run in result.runs:
        states = list(run.states.values())
        cells = [str(states.count(kind) or "") for kind in KINDS]
        table.add_row(run.name, *cells, f"{sum(run.seconds.values()):.1f}")
    return table


def result_json(result: Result, root: Path) -> dict[str, Any]:
    """The result of a run as plain values."""
    return {
        "objects": {
            run.name: {
                "states": run.states,
                "seconds": {stage: round(s, 2) for stage, s in run.seconds.items()},
                "error": run.error,
                "log": str(run.log.relative_to(root)) if run.log else "",
            }
            for run in result.runs
        },
        "edited": result.edited,
        "recorded": result.recorded,
        "salvaged": result.salvaged,
        "stopped": result.stopped,
    }


def status_rows(graph: Graph) -> dict[str, dict[str, str]]:
    """State of each stage of each object: built, changed, follows (a change before it), new.

    What "follows" may still be restored or turn out unchanged; only a run can tell.
    """
    status = read_status(graph.root)
    entries = read_entries(graph.root / LOCK_FILE)
    rows: dict[str, dict[str, str]] = {}
    for name in graph.objects:
        changed = changed_stages(graph, status, name)
        touched: set[str] = set()
        row: dict[str, str] = {}
        for stage in graph.stages_of(name):
            outs = graph.stages[stage].outs + graph.stages[stage].kept
            follows = any(dep in touched for dep in graph.stages[stage].deps)
            if f"{stage}@{name}" not in entries:
                row[stage] = "new"
            elif stage in changed:
                row[stage] = "changed"
            else:
                row[stage] = "follows" if follows else "built"
            if row[stage] != "built":
                touched.update(outs)
        rows[name] = row
    return rows


def print_status(graph: Graph, rows: dict[str, dict[str, str]]) -> None:
    """Print the table of states."""
    marks = {"built": "[green]✔[/]", "changed": "[yellow]changed[/]", "new": "[yellow]new[/]"}
    table = Table(box=None, pad_edge=False)
    for title in ("object", *graph.stages):
        table.add_column(title)
    for name, row in rows.items():
        cells = [marks.get(row.get(s, ""), f"[dim]{row.get(s, '-')}[/]") for s in graph.stages]
        table.add_row(name, *cells)
    console = Console()
    console.print(table)
    todo = [n for n, row in rows.items() if any(state != "built" for state in row.values())]
    if todo:
        console.print(f"{len(todo)} of {len(rows)} objects are out of date: twinloop run")
    else:
        console.print("Everything is up to date.")
