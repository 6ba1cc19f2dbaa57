"""Commands of ``python -m pipelines``; ``twinloop`` starts them in the project's root."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from pipelines import check as checks
from pipelines import events, objects, share
from pipelines import graph as graphs
from pipelines.executor import Extent, Result, run_all, threads
from pipelines.executor import default_jobs as processors
from pipelines.show import print_result, print_status, result_json, status_rows
from pipelines.workspace import require_git
from twinloop.errors import TwinloopError

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)

Json = Annotated[bool, typer.Option("--json", help="JSON instead of text.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Only errors.")]


@app.callback()
def _group() -> None:
    """Run, check and change a Twinloop project: the part that needs DVC."""


@app.command()
def graph(
    *,
    write: Annotated[bool, typer.Option("--write", help="Rewrite deps in dvc.yaml.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Only compare (default).")] = True,
) -> None:
    """Compare the code deps in dvc.yaml with what each stage imports."""
    del check
    project = graphs.read_graph(Path.cwd())
    if write:
        text = graphs.with_closures(project)
        path = project.root / graphs.DVC_FILE
        if text != path.read_text(encoding="utf-8"):
            path.write_text(text, encoding="utf-8")
            typer.echo(f"{graphs.DVC_FILE} rewritten.")
        project = graphs.read_graph(project.root)
    faults = graphs.check_closure(project) + graphs.check_names(project)
    for fault in faults:
        typer.echo(fault, err=True)
    if faults:
        raise typer.Exit(4)
    typer.echo(f"{len(project.stages)} stages: code deps equal their import closures.")


@app.command()
def run(
    names: Annotated[list[str] | None, typer.Argument(help="Objects; all by default.")] = None,
    *,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=0, help="At once; 0: all cores.")] = 0,
    until: Annotated[str, typer.Option(help="Last stage to build.")] = "",
    pull: Annotated[bool, typer.Option("--pull", help="Fetch from the remote first.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for another run.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Build objects side by side, as far as something changed."""
    root = Path.cwd()
    signal.signal(signal.SIGTERM, _interrupt)
    extent = Extent(until, pull)
    with reporter(root, quiet=quiet, as_json=as_json) as emit:
        result = run_all(
            root, names, spread=threads(jobs or processors()), emit=emit, extent=extent, wait=wait
        )
    if as_json:
        typer.echo(json.dumps(result_json(result, root), sort_keys=True))
    else:
        print_result(result, root, quiet=quiet)
    raise typer.Exit(exit_code(result))


def _interrupt(*_: object) -> None:
    """Treat a request to end (SIGTERM) like Ctrl-C: stop the stages, keep what is finished."""
    raise KeyboardInterrupt


def exit_code(result: Result) -> int:
    """Exit code of a run: 130 interrupted, 1 when a stage failed, else 0."""
    if result.stopped:
        return 130
    return 1 if result.failed else 0


@contextlib.contextmanager
def reporter(root: Path, *, quiet: bool, as_json: bool) -> Iterator[events.Emit]:
    """The way to show progress that fits the caller: JSON lines, live table, lines or nothing."""
    if as_json:
        yield events.JsonLines()
    elif quiet or os.environ.get("TWINLOOP_QUIET") == "1":
        yield events.silent
    elif sys.stderr.isatty():
        with events.LiveTable(list(graphs.read_graph(root).stages)) as table:
            yield table
    else:
        yield events.Lines()


@app.command()
def push() -> None:
    """Push results and run-cache to the DVC remote."""
    share.push(Path.cwd())
    typer.echo("results and run-cache pushed; others get them with `twinloop run --pull`.")


@app.command()
def status(*, as_json: Json = False) -> None:
    """Show what is built, what has changed and what follows from that."""
    require_git(Path.cwd())
    rows = status_rows(graphs.read_graph(Path.cwd()))
    if as_json:
        typer.echo(json.dumps(rows, sort_keys=True))
    else:
        print_status(graphs.read_graph(Path.cwd()), rows)


@app.command()
def check(
    *,
    deep: Annotated[bool, typer.Option("--deep", help="Hash every output anew.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Check that the cache can be trusted; exit code 4 when it cannot."""
    require_git(Path.cwd())
    findings = checks.check_project(Path.cwd(), deep=deep)
    if as_json:
        typer.echo(json.dumps([{"check": f.title, "faults": f.faults} for f in findings]))
    else:
        for finding in findings:
            if not quiet or finding.faults:
                typer.echo(f"{'FAULT' if finding.faults else '   ok'}  {finding.title}")
            for fault in finding.faults:
                typer.echo(f"       - {fault}")
    if any(f.faults for f in findings):
        raise typer.Exit(4)


@app.command()
def add(
    name: str,
    *,
    scan: Annotated[Path | None, typer.Option()] = None,
    push: Annotated[Path | None, typer.Option()] = None,
    demo: Annotated[Path | None, typer.Option()] = None,
    lab: Annotated[str, typer.Option()] = "",
    seed: Annotated[int, typer.Option(min=0)] = 0,
    licence: Annotated[str, typer.Option("--license")],
    title: Annotated[str, typer.Option()] = "",
    reference: Annotated[Path | None, typer.Option(exists=True, dir_okay=False)] = None,
) -> None:
    """Add an object from captures or from a lab preset."""
    given = {"scan": scan, "push": push, "demo": demo}
    captures = {part: path for part, path in given.items() if path is not None}
    if lab and captures:
        raise typer.BadParameter("give captures or --lab, not both")
    new = objects.NewObject(name, licence, captures, lab, seed, title, reference)
    for line in objects.add(Path.cwd(), new):
        typer.echo(line)


@app.command()
def remove(name: str, *, keep_files: Annotated[bool, typer.Option("--keep-files")] = False) -> None:
    """Remove an object."""
    for line in objects.remove(Path.cwd(), name, keep_files=keep_files):
        typer.echo(line)


@app.command()
def rename(old: str, new: str) -> None:
    """Rename an object."""
    for line in objects.rename(Path.cwd(), old, new):
        typer.echo(line)


def main() -> None:
    """Run a command; an error a user can act on becomes a message and an exit code."""
    try:
        # Usage is shown as people type it: only `graph` has no counterpart in `twinloop`.
        direct = sys.argv[1:2] in ([], ["graph"], ["--help"])
        app(prog_name="python -m pipelines" if direct else "twinloop")
    except TwinloopError as error:
        told = {"error": str(error), "exit_code": error.exit_code}
        typer.echo(json.dumps(told) if "--json" in sys.argv else f"error: {error}", err=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        typer.echo("interrupted; run again to go on.", err=True)
        sys.exit(130)
