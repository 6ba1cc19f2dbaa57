"""Commands of ``python -m pipelines``; ``twinloop`` starts them in the project root."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from pipelines import graph as graphs
from twinloop.errors import TwinloopError

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__)


@app.callback()
def _group() -> None:
    """Run, check and change a Twinloop project (DVC and Prefect side)."""


@app.command()
def graph(
    *,
    write: Annotated[
        bool, typer.Option("--write", help="Rewrite the code deps in dvc.yaml.")
    ] = False,
) -> None:
    """Compare the code deps in dvc.yaml with what each stage imports."""
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


def main() -> None:
    """Run a command; an error a user can act on becomes one line and an exit code."""
    try:
        app()
    except TwinloopError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
