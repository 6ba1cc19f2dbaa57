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
    folder = root / "datasets" / name
    target = output or folder / "report.html"
    estimates, html = _render(folder, name)
    _write(target, html)
    _print_estimates(folder, estimates)
    typer.echo(f"report: {target}")
    if open_it:
        typer.launch(target.resolve().as_uri())


def _render(folder: Path, name: str) -> tuple[Any, str]:
    from twinloop.artifacts.kinds.physics import PHYSICS
    from twinloop.artifacts.store import open_artifact
    from twinloop.card import read_card
    from twinloop.export.properties import read_estimates
    from twinloop.export.report import ReportData, collect, read_json, render

    metrics, plots = collect(folder)
    if not metrics:
        raise InputError(f"{name} has no results yet; build it: twinloop run {name}")
    estimates: tuple[Any, ...] = ()
    pose_only: tuple[Any, ...] = ()
    if (folder / "identify.zarr").is_dir():
        physics = open_artifact(folder / "identify.zarr", PHYSICS)
        estimates = read_estimates(physics)
        pose_only = read_estimates(physics, "pose_only")
    files = sorted((folder / "provenance").glob("*.json"))
    times = {path.stem: read_json(path) for path in files}
    card = read_card(folder / "object.yaml")
    return estimates, render(ReportData(card, metrics, plots, estimates, pose_only, times))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.tmp")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


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
