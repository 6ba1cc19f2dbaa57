"""Commands that give results away: ``report`` and ``export``."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from twinloop.cli.build import Name
from twinloop.cli.project import find_root, require_object
from twinloop.errors import InputError


def report(
    name: Name,
    *,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="HTML file; datasets/NAME/report.html by default."),
    ] = None,
    open_it: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Write the report: one HTML file with figures, intervals beside truth, pictures and times."""
    root = find_root()
    require_object(root, name)
    from twinloop.export.report import write_report

    folder = root / "datasets" / name
    target = output or folder / "report.html"
    data = write_report(folder, target)
    _print_estimates(folder, data.estimates)
    _print_figures(data.metrics.get("evaluate", {}).get("figures", []))
    typer.echo(f"report: {target}")
    if open_it:
        typer.launch(target.resolve().as_uri())


def _print_estimates(folder: Path, estimates: Any) -> None:
    """Identified values beside the truth, where there is one."""
    from rich.console import Console
    from rich.table import Table

    evaluation = folder / "metrics" / "evaluate.json"
    rows = json.loads(evaluation.read_text()).get("parameters", []) if evaluation.is_file() else []
    truth = {row["parameter"]: row.get("truth") for row in rows}
    table = Table(box=None, pad_edge=False)
    for title in ("identified", "value", "95 % interval", "truth", "unit", "verdict"):
        table.add_column(title)
    for e in estimates:
        known = truth.get(e.name)
        table.add_row(
            e.name,
            f"{e.value:.4g}",
            f"{e.low:.4g} to {e.high:.4g}",
            "" if known is None else f"{known:.4g}",
            e.unit,
            "identified" if e.identifiable else "unidentifiable",
        )
    if estimates:
        Console().print(table)


def _print_figures(figures: list[dict[str, Any]]) -> None:
    """The evaluation's figures with intervals and targets, missed ones too."""
    from rich.console import Console
    from rich.table import Table

    from twinloop.export.report import format_value

    table = Table(box=None, pad_edge=False)
    for title in ("figure", "value", "95 % interval", "n", "target", ""):
        table.add_column(title)
    for f in figures:
        sign = {"lower": "≤", "higher": "≥"}.get(f["better"], "")
        target = "" if f["target"] is None else f"{sign} {format_value(f['target'])}"
        verdict = "" if "reached" not in f else ("reached" if f["reached"] else "missed")
        unit = "" if f["unit"] == "1" else f["unit"]
        counted = f"{f['successes']}/{f['n']}" if "successes" in f else str(f["n"])
        interval = format_value(f["interval"]) if f["interval"] else ""
        value = f"{format_value(f['value'])} {unit}"
        table.add_row(f["figure"].replace("_", " "), value, interval, counted, target, verdict)
    if figures:
        Console().print(table)


def export(
    name: Name,
    *,
    to: Annotated[Path, typer.Option("--to", help="New folder, or a file that ends in .zip.")],
    force: Annotated[bool, typer.Option("--force", help="Replace what is there.")] = False,
) -> None:
    """Copy an object's twin out of the project: a folder or a zip file that needs nothing else.

    It holds MJCF, meshes, the Gaussians as PLY, the policy, both cards and the report.

    [bold]Examples[/bold]

      twinloop export mug --to ~/twins/mug

      twinloop export mug --to mug.zip
    """
    from twinloop.cli.validate import validate_twin

    root = find_root()
    require_object(root, name)
    twin = root / "datasets" / name / "twin"
    if not twin.is_dir():
        raise InputError(f"{name} has no twin yet; build it: twinloop run {name}")
    if to.exists() and not force:
        raise InputError(f"{to} exists already; choose another place or pass --force.")
    what = validate_twin(twin)
    to.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{to.name}.", dir=to.parent) as beside:
        fresh = Path(beside) / name
        # Outputs may be links into DVC's cache, which nobody should be given: copy their content.
        shutil.copytree(twin, fresh, symlinks=False)
        for path in fresh.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
        if to.suffix == ".zip":
            packed = Path(shutil.make_archive(f"{beside}/packed", "zip", beside, name))
            packed.replace(to)
        else:
            if to.exists():
                shutil.rmtree(to)
            fresh.rename(to)
    typer.echo(f"{to}: {what}")
