"""The command ``twinloop``."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from twinloop.cli import board, build, hand_eye, look, machine, share, track
from twinloop.cli.project import own_version
from twinloop.cli.splat import splat
from twinloop.errors import TwinloopError

EPILOG = """
[bold]Begin here[/bold]

  twinloop doctor                      what this machine can do, and what is missing

  twinloop run spam                    build the demo object

  twinloop show spam mass              a value, its interval and where it comes from

  twinloop report spam                 the report, in one HTML file

[bold]Your own object[/bold]

  twinloop add mug --scan scan/ --push push/ --demo demo/ --license CC-BY-4.0

  twinloop run mug

  twinloop export mug --to ~/twins/mug

[bold]Exit codes[/bold]  0 done, 1 a stage failed, 2 wrong input or usage, 3 the machine lacks
something, 4 the cache or an artifact is unsound, 130 interrupted.
"""

app = typer.Typer(
    name="twinloop",
    help="Captures in, digital twin out: mesh, Gaussians, physics with intervals, grasp policy.",
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"twinloop {own_version()}")
        raise typer.Exit


@app.callback()
def _group(
    *,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Captures in, digital twin out: mesh, Gaussians, physics with intervals, grasp policy."""


OBJECTS, RESULTS, MACHINE = "Objects", "Results", "Project and machine"
app.command(rich_help_panel=OBJECTS)(board.board)
app.command(rich_help_panel=OBJECTS)(hand_eye.hand_eye)
app.command(rich_help_panel=OBJECTS)(build.add)
app.command(rich_help_panel=OBJECTS)(build.remove)
app.command(rich_help_panel=OBJECTS)(build.rename)
app.command(rich_help_panel=OBJECTS)(build.run)
app.command(rich_help_panel=RESULTS)(look.show)
app.command(rich_help_panel=RESULTS)(share.report)
app.command(rich_help_panel=RESULTS)(share.export)
app.command(rich_help_panel=RESULTS)(look.validate)
app.command(rich_help_panel=RESULTS)(build.push)
app.command(rich_help_panel=RESULTS)(track.track)
app.add_typer(splat, rich_help_panel=RESULTS)
app.command(rich_help_panel=MACHINE)(build.status)
app.command(rich_help_panel=MACHINE)(build.check)
app.command(rich_help_panel=MACHINE)(machine.doctor)


def main() -> None:
    """Run a command; an error a user can act on becomes a message and an exit code."""
    try:
        app()
    except TwinloopError as error:
        if "--json" in sys.argv:
            print(json.dumps({"error": str(error), "exit_code": error.exit_code}), file=sys.stderr)
        else:
            typer.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        typer.echo("interrupted; run the command again to go on.", err=True)
        sys.exit(130)
    except BrokenPipeError:  # `twinloop show ... | head`
        sys.stderr.close()
        sys.exit(0)
