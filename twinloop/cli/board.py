"""``twinloop board``: a printable tag board in true size, and the file that describes it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, get_args

import typer

from twinloop.errors import InputError


def board(
    out: Annotated[Path, typer.Argument(help="PDF (or PNG) to write.")],
    *,
    page: Annotated[
        str | None, typer.Option(help="a4, letter or WxHmm, for example 420x297mm.")
    ] = None,
    tag_size: Annotated[
        float | None, typer.Option(help="Edge of a tag's black square, m; 0.024 by default.")
    ] = None,
    described: Annotated[
        Path | None, typer.Option("--board", help="Draw the board that this board.yaml describes.")
    ] = None,
    charuco: Annotated[
        bool, typer.Option("--charuco", help="A ChArUco board, to calibrate a lens.")
    ] = False,
    family: Annotated[
        str | None, typer.Option(help="36h11 (AprilTag), aruco_4x4_50, ...: as board.yaml says.")
    ] = None,
    dpi: Annotated[int, typer.Option(min=50, max=1200, help="Resolution of a PNG.")] = 300,
) -> None:
    """Print a tag board: it gives a scan its metres and its table.

    Writes the page in true size and board.yaml beside it, which goes with the capture. Print at
    100 % (no "fit to page"), stick it flat, measure the printed ruler. If it is not as long as it
    says, multiply every size and centre of board.yaml by measured / said. The object goes into
    the free middle.

    [bold]Examples[/bold]

      twinloop board board.pdf                       a frame of tags on A4

      twinloop board board.pdf --page letter         on US letter

      twinloop board big.pdf --page 594x420mm --tag-size 0.05

      twinloop board lens.pdf --charuco              to calibrate a camera

      twinloop board again.pdf --board board.yaml    a board that exists already
    """
    from twinloop.capture import board_print, families
    from twinloop.capture.board import load_board

    paper = board_print.parse_page(page) if page is not None else None
    if out.suffix.lower() not in (".pdf", ".png"):
        raise InputError(f"{out}: expected a name that ends in .pdf or .png")
    if family is not None and family not in get_args(families.Family):
        raise InputError(
            f"--family {family!r} is not known; expected one of "
            f"{', '.join(get_args(families.Family))}"
        )
    yaml = out.parent / "board.yaml"
    if described is not None:
        if charuco or family is not None or tag_size is not None:
            raise InputError(
                "--board draws a board as it is described; leave out --charuco, --family and "
                "--tag-size"
            )
        yaml = described
        sheet = board_print.lay_out(load_board(described), paper)
    else:
        make = board_print.charuco_board if charuco else board_print.page_board
        paper = paper or board_print.A4
        given = {"tag_size": tag_size, "family": family}
        new = make(paper, **{k: v for k, v in given.items() if v is not None})  # type: ignore[arg-type]
        sheet = board_print.lay_out(new, paper)
        if not out.parent.is_dir():
            raise InputError(f"{out.parent}: no such folder")
        board_print.write_board(yaml, new)
    try:
        board_print.save(out, sheet, dpi)
    except BaseException:
        if described is None:
            yaml.unlink()  # no description without its page
        raise
    width, height = (1e3 * x for x in sheet.page)
    check = f"measure the {1e3 * sheet.ruler[2]:g} mm ruler" if sheet.ruler else "measure a tag"
    typer.echo(
        f"{out}: {len(sheet.board.tags)} tags of {1e3 * sheet.board.tags[0].size:g} mm on "
        f"{width:g} x {height:g} mm, described by {yaml}. Print at 100 %, {check}, and correct the "
        "sizes and centres in board.yaml if it is not right."
    )
