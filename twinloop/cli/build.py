"""Commands that change or build objects: each starts ``python -m pipelines`` in the project."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from twinloop.cli.project import complete_objects, find_root, require_object, start_pipelines
from twinloop.errors import InputError

Name = Annotated[str, typer.Argument(help="Object.", autocompletion=complete_objects)]
Json = Annotated[bool, typer.Option("--json", help="JSON instead of text, for other programs.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Only errors.")]


def add(
    name: Annotated[str, typer.Argument(help="Lower-case letters, digits and _.")],
    *,
    licence: Annotated[
        str, typer.Option("--license", help="SPDX identifier of the capture's licence.")
    ],
    scan: Annotated[Path | None, typer.Option(help="Folder of the phone scan.")] = None,
    push: Annotated[Path | None, typer.Option(help="Folder of the pushes.")] = None,
    demo: Annotated[Path | None, typer.Option(help="Folder of the hand demonstration.")] = None,
    lab: Annotated[str, typer.Option(help="Make it in the simulated lab from this preset.")] = "",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the lab.")] = 0,
    title: Annotated[str, typer.Option(help="One line for people.")] = "",
    reference: Annotated[
        Path | None, typer.Option(help="YAML with values known from a scale or data sheet.")
    ] = None,
) -> None:
    """Add an object: folder, card, raw captures in DVC, entry in the list.

    [bold]Examples[/bold]

      twinloop add mug --scan scan/ --push push/ --demo demo/ --license CC-BY-4.0

      twinloop add tin --lab spam --seed 7 --license CC0-1.0

    Two objects may share a capture: give both the same folder, it is stored once.
    """
    root = find_root()
    arguments = ["add", name, "--license", licence, "--seed", str(seed)]
    for option, path in (("scan", scan), ("push", push), ("demo", demo), ("reference", reference)):
        if path is not None:
            arguments += [f"--{option}", str(path.resolve())]
    if not lab and not (scan and push and demo):
        raise InputError(
            "a real object needs --scan, --push and --demo (folders, see docs/captures.md); "
            "an object of the simulated lab needs --lab PRESET instead."
        )
    arguments += ["--lab", lab] if lab else []
    arguments += ["--title", title] if title else []
    raise typer.Exit(start_pipelines(root, arguments))


def remove(
    name: Name,
    *,
    keep_files: Annotated[
        bool, typer.Option("--keep-files", help="Leave datasets/NAME where it is.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove an object from the project.

    Its results stay in DVC's cache until `dvc gc`, its captures too.
    """
    root = find_root()
    require_object(root, name)
    if not (yes or keep_files):
        typer.confirm(f"Delete datasets/{name}, with its captures?", abort=True)
    arguments = ["remove", name, *(["--keep-files"] if keep_files else [])]
    raise typer.Exit(start_pipelines(root, arguments))


def rename(
    old: Name, new: Annotated[str, typer.Argument(help="Lower-case letters, digits and _.")]
) -> None:
    """Rename an object; its captures move along, its results are built anew."""
    raise typer.Exit(start_pipelines(find_root(), ["rename", old, new]))


def run(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Objects; all by default.", autocompletion=complete_objects),
    ] = None,
    *,
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", min=0, help="Objects at once; 0: one per core.")
    ] = 0,
    until: Annotated[str, typer.Option(help="Last stage to build, for example identify.")] = "",
    pull: Annotated[
        bool, typer.Option("--pull", help="First fetch what others have built.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for another run to end.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Build objects side by side, as far as something changed.

    A failing object does not stop the others and keeps its finished stages. Interrupt it at any
    time: the next run goes on from there. Edits made meanwhile are not used, but named at the end.

    [bold]Examples[/bold]

      twinloop run                         everything that is out of date

      twinloop run mug tin --jobs 2        two objects, at once

      twinloop run mug --until identify    not further than the physics
    """
    arguments = ["run", *(names or []), "--jobs", str(jobs)]
    arguments += ["--until", until] if until else []
    flags = (("--pull", pull), ("--wait", wait), ("--quiet", quiet), ("--json", as_json))
    arguments += [flag for flag, given in flags if given]
    raise typer.Exit(start_pipelines(find_root(), arguments))


def push() -> None:
    """Push results to the DVC remote, so that others restore instead of build them.

    They say `twinloop run --pull`. Unlike `dvc push --run-cache` it takes along what metrics and
    plots need, without which DVC would run their stages again.
    """
    raise typer.Exit(start_pipelines(find_root(), ["push"]))


def status(*, as_json: Json = False) -> None:
    """Show what is built, what has changed, and what follows from that."""
    raise typer.Exit(start_pipelines(find_root(), ["status", *(["--json"] if as_json else [])]))


def check(
    *,
    deep: Annotated[bool, typer.Option("--deep", help="Hash every output anew.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Check that the cache can be trusted: exit code 4 and a reason when it cannot.

    Code deps against imports, names, versions of libraries, .gitignore, dvc.lock, files per
    artifact, and outputs that changed after they were built.
    """
    flags = (("--deep", deep), ("--quiet", quiet), ("--json", as_json))
    arguments = ["check", *(flag for flag, given in flags if given)]
    raise typer.Exit(start_pipelines(find_root(), arguments))
