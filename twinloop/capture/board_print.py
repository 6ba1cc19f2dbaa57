"""Print the tag board: ``python -m twinloop.capture.board_print board.png``.

Writes an A4 page with a frame of tags, the object's place left free, and the ``board.yaml`` that
describes it; with ``--board`` it draws a board that is described already.  The picture knows its
resolution: printed at 100 % it has the true size.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import yaml
from matplotlib.image import imsave
from numpy.typing import NDArray

from twinloop.capture.board import Board, Tag, load_board, print_image
from twinloop.errors import InputError, TwinloopError

A4 = (0.297, 0.210)
"""Width and height of the page, m."""
MARGIN = 0.008
"""White edge that a printer leaves, m."""
INCH = 0.0254


def page_board(page: tuple[float, float] = A4, tag_size: float = 0.024) -> Board:
    """A frame of tags along the page's edge, origin in its middle, ids from 0 by rows.

    Args:
        page: Width and height, m.
        tag_size: Edge of the black square, m; the gaps are 0.3 of it.

    Raises:
        InputError: The page is too small for two tags each way.
    """
    pitch = 1.3 * tag_size
    columns, rows = (int((side - 2 * MARGIN + 0.3 * tag_size) / pitch) for side in page)
    if min(columns, rows) < 2:
        raise InputError(
            f"a page of {page[0]} x {page[1]} m holds {columns} x {rows} tags of {tag_size} m; "
            "expected at least 2 x 2: give a smaller tag size (metres)"
        )
    tags: list[Tag] = []
    for row in range(rows):
        for column in range(columns):
            if row in (0, rows - 1) or column in (0, columns - 1):
                x, y = (column - (columns - 1) / 2) * pitch, ((rows - 1) / 2 - row) * pitch
                tags.append(Tag(id=len(tags), size=tag_size, centre=(round(x, 6), round(y, 6))))
    return Board(tags=tuple(tags))


def page_image(
    board: Board, page: tuple[float, float] | None = None, dpi: int = 300
) -> NDArray[np.uint8]:
    """The print as a picture (rows, columns), first row on top, grey.

    Args:
        board: The board.
        page: Width and height, m, the board's origin in the middle; just the tags with a white edge
            if None.
        dpi: Texels per inch.
    """
    if page is None:
        edge = max(tag.size for tag in board.tags) / 4
        low, high = board.bounds() + np.array([[-edge], [edge]])
    else:
        high = np.asarray(page) / 2
        low = -high
    texel = INCH / dpi
    columns, rows = (int(n) for n in np.ceil((high - low) / texel - 1e-6))
    return print_image(board, texel, low + texel / 2, (rows, columns))[::-1]


def write_board(path: Path, board: Board) -> None:
    """Write a board as ``board.yaml``.

    Raises:
        InputError: The file is there already.
    """
    if path.exists():
        raise InputError(
            f"{path} is there already; draw that board with `--board {path}`, or move it away"
        )
    content = board.model_dump(mode="json")
    path.write_text(yaml.safe_dump(content, sort_keys=False, default_flow_style=None), "utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m twinloop.capture.board_print")
    parser.add_argument("picture", type=Path, help="PNG to write")
    parser.add_argument("--board", type=Path, help="board.yaml to draw instead of a new A4 page")
    parser.add_argument(
        "--tag-size", type=float, default=0.024, help="edge of a new page's tags, m"
    )
    parser.add_argument("--dpi", type=int, default=300, help="resolution of the print")
    options = parser.parse_args(arguments)
    try:
        if options.board is None:
            board, page = page_board(A4, options.tag_size), A4
            write_board(options.picture.parent / "board.yaml", board)
        else:
            board, page = load_board(options.board), None
        image = page_image(board, page, options.dpi)
    except TwinloopError as error:
        parser.exit(2, f"error: {error}\n")
    imsave(options.picture, image, cmap="gray", vmin=0, vmax=255, dpi=options.dpi, format="png")
    print(
        f"{options.picture}: {len(board.tags)} tags. Print at 100 %, measure a black square and "
        f"correct `size` and `centre` in board.yaml if it is not {1e3 * board.tags[0].size:g} mm."
    )


if __name__ == "__main__":
    main()
