"""``twinloop hand-eye``: where the camera sits on the robot."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer


def hand_eye(
    folder: Annotated[Path, typer.Argument(help="Folder of pictures and poses.")],
    *,
    beside: Annotated[
        bool,
        typer.Option("--beside", help="The camera stands beside the robot, the board is held."),
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="YAML to write; hand_eye.yaml in the folder by default.")
    ] = None,
) -> None:
    """Find the camera's place on the robot's flange, or beside the robot.

    The folder holds camera.yaml (the lens), board.yaml (see twinloop board), images/ (15 pictures
    of the board, wrist tilted 15 to 30 degrees both ways) and poses.csv with the columns
    image,x,y,z,qw,qx,qy,qz: the flange in the robot's base, metres.

    [bold]Examples[/bold]

      twinloop hand-eye wrist/                       the camera rides on the flange

      twinloop hand-eye stand/ --beside              the camera stands, the flange holds the board
    """
    from twinloop.capture.files import write_whole
    from twinloop.capture.hand_eye import calibrate_hand_eye
    from twinloop.capture.hand_eye_session import read_session, result_text

    session = read_session(folder)
    found = calibrate_hand_eye(
        session.T_base_flange, session.views, session.camera, eye_in_hand=not beside
    )
    out = out or folder / "hand_eye.yaml"
    write_whole(out, lambda fresh: fresh.write_text(result_text(found), "utf-8"))
    x, y, z = (1e3 * found.T_mount_camera[:3, 3]).tolist()
    left = f", {len(session.left_out)} without the board left out" if session.left_out else ""
    typer.echo(
        f"{out}: camera at {x:.1f}, {y:.1f}, {z:.1f} mm "
        f"{'in the base' if beside else 'on the flange'}, to "
        f"{1e3 * found.translation_95:.1f} mm and {math.degrees(found.rotation_95):.2f} deg "
        f"(95 %), from {len(session.views)} pictures{left}."
    )
