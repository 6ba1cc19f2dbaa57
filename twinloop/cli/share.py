"""Commands that give results away: ``report`` and ``export``."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import Annotated, Any

import typer

from twinloop.beside import clear_killed, prefix
from twinloop.cli.build import Name
from twinloop.cli.project import find_root, require_object
from twinloop.errors import InputError, MachineError, TwinloopError


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
    if target.is_dir():
        raise InputError(
            f"{target} is a folder; give a file, for example {target / 'report.html'}."
        )
    try:
        data = write_report(folder, target)
    except OSError as error:
        raise MachineError(f"cannot write the report {target}: {error}") from error
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
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier export.")] = False,
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
    require_free(root, to, force=force)
    what = validate_twin(twin)
    try:
        _export(twin, name, to)
    except (OSError, shutil.Error) as error:
        reason = str(error)[:400]
        raise MachineError(
            f"cannot export to {to}: {reason}. What was there is as it was; free space, or choose "
            "a folder that you may write to."
        ) from error
    typer.echo(f"{to}: {what}")


def require_free(root: Path, to: Path, *, force: bool) -> None:
    """Raise InputError unless ``to`` is free, or holds an earlier export and ``force`` is given.

    Nothing but an earlier export is ever replaced: whatever else stands there is somebody's work.
    """
    place = to.absolute()
    real = place.resolve()
    for kept, what in _kept(root):
        if real == kept or real in kept.parents:
            raise InputError(f"{to} is or holds {what} ({kept}); choose a new folder.")
    for inner in (".git", ".dvc", "datasets", "stages", "pipelines", "twinloop"):
        if (root / inner) == real or (root / inner) in real.parents:
            raise InputError(f"{to} is part of the project ({inner}/); choose a new folder.")
    for parent in place.parents:
        if parent.exists() and not parent.is_dir():
            raise InputError(f"{to}: {parent} is a file, so nothing can be put below it.")
    if not (place.exists() or place.is_symlink()):
        return
    zipped = to.suffix == ".zip"
    if zipped and place.is_dir():
        raise InputError(f"{to} is a folder; give a file, for example {to / 'twin.zip'}.")
    if not zipped and place.is_file():
        raise InputError(f"{to} is a file; give a new folder, or a name that ends in .zip.")
    if not force:
        raise InputError(f"{to} exists already; choose another place or pass --force.")
    fault = "it is a link" if place.is_symlink() else _no_export(place, zipped=zipped)
    if fault:
        raise InputError(
            f"{to} is no earlier export ({fault}), so --force does not replace it; "
            "choose another place, or move it away yourself."
        )


def _kept(root: Path) -> list[tuple[Path, str]]:
    """Folders that an export never replaces, nor anything that holds them."""
    kept = [(root.resolve(), "the project"), (Path.cwd().resolve(), "the current folder")]
    with contextlib.suppress(RuntimeError):
        kept.append((Path.home().resolve(), "your home folder"))
    return kept


def _no_export(place: Path, *, zipped: bool) -> str:
    """Why a file or folder is not an export that nobody added to; "" when it is one."""
    from twinloop.cli.validate import read_twin

    if zipped:
        try:
            with zipfile.ZipFile(place) as packed:
                names = packed.namelist()
        except (OSError, zipfile.BadZipFile):
            return "it is no zip file"
        return (
            ""
            if any(n.count("/") == 1 and n.endswith("/twin.json") for n in names)
            else ("it has no twin.json")
        )
    if not (place / "twin.json").is_file():
        return "it has no twin.json"
    try:
        listed = set(read_twin(place).hashes) | {"twin.json", "README.md"}
    except TwinloopError:
        return "its twin.json is not a twin's"
    present = {p.relative_to(place).as_posix() for p in place.rglob("*") if not p.is_dir()}
    strangers = sorted(present - listed)
    return f"it also holds {', '.join(strangers[:3])}" if strangers else ""


def _export(twin: Path, name: str, to: Path) -> None:
    """Copy the twin beside ``to``, then put it in place by renaming."""
    to.parent.mkdir(parents=True, exist_ok=True)
    clear_killed(to.parent)
    with tempfile.TemporaryDirectory(prefix=prefix(to.name), dir=to.parent) as beside:
        fresh = Path(beside) / name
        # Outputs may be links into DVC's cache, which nobody should be given: copy their content.
        shutil.copytree(twin, fresh, symlinks=False)
        for path in fresh.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
        if to.suffix == ".zip":
            packed = Path(shutil.make_archive(f"{beside}/packed", "zip", beside, name))
            packed.replace(to)
            return
        old = Path(beside) / ".old"
        if to.exists():
            to.rename(old)
        try:
            fresh.rename(to)
        except BaseException:
            if old.exists():
                old.rename(to)
            raise
