"""The command ``doctor``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from twinloop.cli.build import Json
from twinloop.cli.project import find_root
from twinloop.errors import InputError


def doctor(
    *,
    write_versions: Annotated[
        bool,
        typer.Option("--write-versions", help="Accept the installed versions in versions.yaml."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Say what this machine can do, what is missing, and what each missing thing costs.

    Exit code 3 when something is missing without which the project does not work.
    """
    from twinloop.cli import doctor as examination

    root: Path | None
    try:
        root = find_root()
    except InputError:
        if write_versions:
            raise
        root = None
    if write_versions and root:
        changed = examination.write_versions(root)
        for line in changed or ["versions.yaml fits what is installed: nothing to change."]:
            typer.echo(line)
        return
    lines = examination.examine(root)
    if as_json:
        typer.echo(json.dumps([asdict(line) for line in lines]))
    else:
        _print(lines)
    if any(line.state == "fault" for line in lines):
        raise typer.Exit(3)


def _print(lines: Sequence[Any]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console()
    marks = {"ok": ("✔", "green"), "missing": ("○", "yellow"), "fault": ("✘", "red")}
    for line in map(asdict, lines):
        mark, colour = marks[line["state"]]
        text = Text(f"{mark} ", style=colour)
        text.append(f"{line['name']:<15}", style="bold")
        text.append(line["found"], style="default")
        if line["state"] != "ok" and line["cost"]:
            text.append(f"\n  {'':<15}{line['cost']}", style="dim")
        console.print(text)
