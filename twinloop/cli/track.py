"""``twinloop track``: poses of an object in a video, outside any project."""

from __future__ import annotations

import json
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from twinloop.errors import InputError


def track(
    video: Annotated[Path, typer.Argument(help="Video from a camera that stands still.")],
    twin: Annotated[
        Path,
        typer.Argument(
            help="Twin: a folder with twin.json, an object of this project, or a mesh (.obj, "
            ".ply, .stl) in metres."
        ),
    ],
    *,
    camera: Annotated[
        Path | None, typer.Option(help="camera.yaml of the lens; see docs/captures.md.")
    ] = None,
    intrinsics: Annotated[
        str | None,
        typer.Option(metavar="FX,FY,CX,CY", help="The lens in px, in place of camera.yaml."),
    ] = None,
    board: Annotated[
        Path | None,
        typer.Option(help="board.yaml of the tag board on the table; the world is the board's."),
    ] = None,
    box: Annotated[
        str | None, typer.Option(metavar="X,Y,W,H", help="Box about it in the first picture, px.")
    ] = None,
    mask: Annotated[
        Path | None, typer.Option(help="PNG, bright where it is in the first picture.")
    ] = None,
    up: Annotated[
        str, typer.Option(help="z: the mesh stands on its z axis; any: that is not known.")
    ] = "z",
    out: Annotated[
        Path | None,
        typer.Option(help=".csv or .npz to write; VIDEO.poses.csv beside the video by default."),
    ] = None,
    preview: Annotated[
        Path | None, typer.Option(help=".mp4 to write, with the track drawn in.")
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Show the track in a window (OpenCV with windows).")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For another program.")] = False,
) -> None:
    """Follow an object through a video: its pose, covariance and status in every frame.

    Two things have to be known: the lens (camera.yaml or --intrinsics; with a board it can be
    estimated) and the object (its twin, or a mesh in metres). With a board on the table the world
    is the board's and the table steadies the poses; without one, poses are in the camera's frame.

    Every frame is ok, uncertain (another pose explains it as well, or the error is above 5 mm) or
    lost (a guess). In the preview the outline is green, orange or red, the axes are x red, y green,
    z blue, and the ellipse is the origin's 95 % region, ten times its size.

    [bold]Examples[/bold]

      twinloop track push.mp4 mug --camera camera.yaml --board board.yaml --preview out.mp4

      twinloop track clip.mp4 ~/twins/mug --intrinsics 1450,1450,960,540 --out poses.npz

      twinloop track clip.mp4 bracket.stl --board board.yaml --up any --box 310,220,140,90

    [bold]Exit codes[/bold]  0 found, 1 not found in any frame, 2 wrong input, 3 no window.
    """
    from twinloop.capture.warning import CaptureWarning
    from twinloop.tracking.api import track as track_video
    from twinloop.tracking.pose_files import STATUS

    if camera is not None and intrinsics is not None:
        raise InputError("--camera and --intrinsics are both given; expected one of them.")
    if up not in ("z", "any"):
        raise InputError(f"--up is {up!r}; expected z or any.")
    target = out or video.with_name(f"{video.stem}.poses.csv")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=CaptureWarning)
        found = track_video(
            video,
            _twin(twin),
            camera=_numbers("--intrinsics", "FX,FY,CX,CY", intrinsics) or camera,
            board=board,
            box=_numbers("--box", "X,Y,W,H", box),
            mask=mask,
            up="any" if up == "any" else "z",
            out=target,
            preview=preview,
            live=live,
        )
    shares = {word: found.share(i) for i, word in enumerate(STATUS)}
    for note in found.notes:
        typer.echo(f"note: {note}", err=True)
    if as_json:
        facts = {
            "frames": len(found.time),
            **shares,
            "modes": found.modes,
            "start": found.start,
            "symmetry": found.symmetry,
            "sure": found.sure,
            "world": "board" if found.table else "camera",
            "poses": str(target),
            "preview": None if preview is None else str(preview),
            "lost_intervals": [list(span) for span in found.lost],
            "motion_px": None if found.motion is None else asdict(found.motion),
            "notes": list(found.notes),
        }
        typer.echo(json.dumps(facts, sort_keys=True))
    else:
        words = ", ".join(f"{100 * share:.0f} % {word}" for word, share in shares.items())
        typer.echo(f"{len(found.time)} frames: {words}; modes {found.modes}, by {found.start}")
        typer.echo(f"poses   {target} ({'board' if found.table else 'camera'} frame)")
        if preview is not None:
            typer.echo(f"preview {preview}")
    if shares["lost"] == 1.0:
        raise typer.Exit(1)


def _twin(given: Path) -> Path:
    """The path, or the twin of the project's object of that name."""
    if given.exists() or len(given.parts) != 1 or given.suffix:
        return given
    from twinloop.cli.project import find_root, require_object

    try:
        root = find_root()
    except InputError:
        return given
    require_object(root, given.name)
    twin = root / "datasets" / given.name / "twin"
    if not twin.is_dir():
        raise InputError(
            f"{given.name} has no twin yet; build it: twinloop run {given.name}, or give a mesh."
        )
    return twin


def _numbers(option: str, form: str, text: str | None) -> tuple[float, ...] | None:
    """Four numbers between commas."""
    if text is None:
        return None
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if len(numbers) != 4:
        raise InputError(f"{option} is {text!r}; expected {form}, four numbers in px.")
    return numbers
