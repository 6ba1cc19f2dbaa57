"""Commands that look at results: ``show`` and ``validate``."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from twinloop.cli.build import Json, Name, Quiet
from twinloop.cli.project import find_root, object_names, require_object
from twinloop.errors import InputError


def show(
    name: Name,
    value: Annotated[
        str | None, typer.Argument(help="For example mass, or evaluate.psnr; all by default.")
    ] = None,
    *,
    trace_it: Annotated[
        bool, typer.Option("--trace/--no-trace", help="Whether to show what it follows from.")
    ] = True,
    full: Annotated[
        bool, typer.Option("--full", help="Every code file, parameter and hash too.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show a value and its trace: which frames, pushes, parameters and code made it.

    [bold]Examples[/bold]

      twinloop show spam                   all values of an object

      twinloop show spam mass              one value, and everything it follows from

      twinloop show spam mass --json       the same for another program
    """
    from twinloop.cli import trace

    root = find_root()
    require_object(root, name)
    if value is None:
        found = trace.find_values(root, name)
        if not found:
            raise InputError(f"{name} has no results yet; build it: twinloop run {name}")
        if as_json:
            typer.echo(json.dumps({k: asdict(v) for k, v in found.items()}, sort_keys=True))
        else:
            _print_values(list(found.values()))
        return
    one = trace.find_value(root, name, value)
    steps = trace.trace(root, name, one.stage) if trace_it else []
    if as_json:
        typer.echo(json.dumps(trace.as_json(one, steps), sort_keys=True, default=str))
    else:
        _print_trace(one, steps, full)


def _print_values(values: list[Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for title in ("value", "", "std", "95 % interval", "unit", "verdict"):
        table.add_column(title)
    for v in values:
        interval = f"{v.interval[0]:.4g} to {v.interval[1]:.4g}" if v.interval else ""
        std = f"{v.std:.3g}" if v.std is not None else ""
        table.add_row(v.name, _number(v.value), std, interval, v.unit, v.verdict)
    Console().print(table)


def _number(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def _print_trace(one: Any, steps: list[Any], full: bool) -> None:
    from rich.console import Console
    from rich.text import Text

    from twinloop.cli.trace import compact

    console = Console()
    unit = f" {one.unit}" if one.unit and one.unit != "1" else ""
    line = f"{one.name} = {_number(one.value)}{unit}"
    if one.interval:
        line += f", 95 % interval {one.interval[0]:.4g} to {one.interval[1]:.4g}{unit}"
    if one.verdict:
        line += f" ({one.verdict})"
    console.print(Text(line, style="bold"))
    for step in reversed(steps):
        when = ""
        if step.started_unix:
            stamp = time.strftime("%Y-%m-%d %H:%M", time.localtime(step.started_unix))
            when = f"  ({stamp}, {step.seconds:.1f} s)"
        console.print(Text(f"\n{step.stage}{when}", style="bold"))
        for path, digest in step.inputs.items():
            console.print(Text(f"  reads    {path}  {digest if full else digest[:8]}"))
        for sentence in step.detail:
            console.print(Text(f"  used     {sentence}"))
        if step.params:
            most = 10_000 if full else 12
            console.print(Text(f"  params   {compact(step.params, most)}"))
        if step.versions:
            console.print(Text(f"  versions {compact(step.versions, 100)}"))
        console.print(Text(f"  code     {len(step.code)} files; command: {step.command}"))
        for path, digest in step.code.items() if full else ():
            console.print(Text(f"           {digest}  {path}"))


def validate(
    paths: Annotated[
        list[str], typer.Argument(help="Artifacts (.zarr), twin folders, or object names.")
    ],
    *,
    quiet: Quiet = False,
) -> None:
    """Check artifacts and twins: every value against its kind, every file against its hash.

    A twin is also loaded into MuJoCo, and mass and inertia are compared with its card.

    [bold]Examples[/bold]

      twinloop validate spam                         all of an object's artifacts and its twin

      twinloop validate datasets/spam/track.zarr

      twinloop validate ~/Downloads/mug              a twin that somebody sent
    """
    from twinloop.cli.validate import validate_artifact, validate_twin

    for path in [p for text in paths for p in _expand(text)]:
        check = validate_artifact if path.suffix == ".zarr" else validate_twin
        outcome = check(path)
        if not quiet:
            typer.echo(f"ok  {path}: {outcome}")


def _expand(text: str) -> list[Path]:
    """A path as given, or everything that an object of this project has."""
    path = Path(text)
    if path.exists():
        if (path / "object.yaml").is_file() and not (path / "twin.json").is_file():
            raise InputError(
                f"{path} is the folder of an object; its twin is {path / 'twin'}, and "
                f"`twinloop validate {path.resolve().name}` checks all that the object has."
            )
        return [path]
    try:
        root = find_root()
    except InputError:
        raise InputError(f"{path} does not exist.") from None
    if text not in object_names(root):
        if path.suffix or "/" in text:
            raise InputError(f"{path} does not exist.")
        require_object(root, text)
    folder = root / "datasets" / text
    found = sorted(folder.glob("*.zarr"))
    found += [folder / "twin"] if (folder / "twin").is_dir() else []
    if not found:
        raise InputError(f"{text} has no results yet; build it: twinloop run {text}")
    return found
