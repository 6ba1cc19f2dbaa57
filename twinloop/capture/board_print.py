"""Lay a board out on a page and draw it in true size, as PDF (vectors) or PNG.

A new page is a frame of tags with the object's place left free, or a ChArUco board for calibrating
a lens.  A ruler of known length is printed beside the tags: the printer's scale is the commonest
fault of a metric capture, and the ruler shows it.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path as Outline
from numpy.typing import NDArray

from twinloop.capture import families
from twinloop.capture.board import Board, Tag
from twinloop.capture.charuco import Charuco
from twinloop.capture.families import Family
from twinloop.capture.files import write_whole
from twinloop.errors import InputError

Array = NDArray[np.float64]
A4 = (0.297, 0.210)
"""Width and height of the page, m."""
LETTER = (0.2794, 0.2159)
"""Width and height of the page, m."""
MARGIN = 0.008
"""White edge that a printer leaves, m."""
INCH = 0.0254
MOST_PIXELS = 150_000_000
"""Largest picture that is drawn: A0 at 300 dpi."""
RULERS = (0.1, 0.05, 0.02)
"""Lengths of the check ruler, the first that fits is printed, m."""
RULER_HEIGHT = 0.010
"""Room for the ruler and its words, m."""


def parse_page(text: str) -> tuple[float, float]:
    """Width and height, m, of "a4", "letter" or "WxHmm", for example "420x297mm".

    Raises:
        InputError: Another word, or a size that no printer has.
    """
    word = text.strip().lower()
    if word in ("a4", "letter"):
        return A4 if word == "a4" else LETTER
    parts = word.removesuffix("mm").strip().split("x")
    try:
        width, height = (float(part) / 1e3 for part in parts)
    except ValueError as error:
        raise InputError(
            f"--page {text!r}: expected a4, letter or width x height in millimetres, like 420x297mm"
        ) from error
    if not (0.04 <= width <= 5.0 and 0.04 <= height <= 5.0):
        raise InputError(
            f"--page {text!r} is {1e3 * width:g} x {1e3 * height:g} mm; expected 40 to 5000 mm "
            "each way"
        )
    return width, height


def page_board(
    page: tuple[float, float] = A4, tag_size: float = 0.024, family: Family = "36h11"
) -> Board:
    """A frame of tags along the page's edge, origin in its middle, ids from 0 by rows.

    Args:
        page: Width and height, m.
        tag_size: Edge of the black square, m; the gaps are 0.3 of it.
        family: Family of the tags.

    Raises:
        InputError: The page is too small for two tags each way, or the family has too few tags.
    """
    pitch = 1.3 * tag_size
    columns, rows = _fitting(page, tag_size, pitch)
    if min(columns, rows) < 2:
        raise InputError(_too_small(page, columns, rows, "tags", tag_size))
    places = [
        ((column - (columns - 1) / 2) * pitch, ((rows - 1) / 2 - row) * pitch)
        for row in range(rows)
        for column in range(columns)
        if row in (0, rows - 1) or column in (0, columns - 1)
    ]
    held = families.count(family)
    if len(places) > held:
        raise InputError(
            f"the page holds {len(places)} tags of {1e3 * tag_size:g} mm, family {family} has "
            f"{held}: give larger tags or another family"
        )
    return Board(
        family=family,
        tags=tuple(
            Tag(id=i, size=tag_size, centre=(round(x, 6), round(y, 6)))
            for i, (x, y) in enumerate(places)
        ),
    )


def charuco_board(
    page: tuple[float, float] = A4, tag_size: float = 0.018, family: Family = "aruco_5x5_250"
) -> Board:
    """A ChArUco board that fills the page but for the ruler's strip; squares are 4/3 of the tags.

    Raises:
        InputError: The page is too small for 3 x 3 squares, or the family has too few tags.
    """
    square = round(tag_size * 4 / 3, 6)
    columns, rows = _fitting((page[0], page[1] - RULER_HEIGHT - 0.002), square, square)
    if min(columns, rows) < 3:
        raise InputError(_too_small(page, columns, rows, "squares", square))
    needed, held = columns * rows // 2, families.count(family)
    if needed > held:
        raise InputError(
            f"the page holds {needed} tags of {1e3 * tag_size:g} mm, family {family} has {held}: "
            "give larger tags or another family"
        )
    charuco = Charuco(columns=columns, rows=rows, square=square, marker=tag_size, dictionary=family)
    return Board.model_validate({"charuco": charuco.model_dump()})


def _fitting(page: tuple[float, float], size: float, pitch: float) -> tuple[int, int]:
    if not (np.isfinite(size) and size > 0.001):
        raise InputError(f"a tag size of {size} m cannot be printed; expected metres, like 0.024")
    across, down = (int((side - 2 * MARGIN + pitch - size) / pitch + 1e-9) for side in page)
    return across, down


def _too_small(page: tuple[float, float], columns: int, rows: int, what: str, size: float) -> str:
    least = 2 if what == "tags" else 3
    return (
        f"a page of {1e3 * page[0]:g} x {1e3 * page[1]:g} mm holds {columns} x {rows} {what} of "
        f"{size:g} m; expected at least {least} x {least}: give a smaller tag size (metres)"
    )


@dataclass(frozen=True)
class Sheet:
    """A board on a page; page coordinates in m, origin at the lower left corner, y up."""

    board: Board
    page: tuple[float, float]
    """Width and height, m."""
    origin: Array
    """The board's origin on the page (2,)."""
    ruler: tuple[float, float, float] | None
    """x, y of the check ruler's left end, and its length; None where no room is left."""


def lay_out(board: Board, page: tuple[float, float] | None = None) -> Sheet:
    """Place a board and a ruler on a page.

    Args:
        board: The board.
        page: Width and height, m; as large as the board needs if None.

    Raises:
        InputError: The board is larger than the page.
    """
    low, high = _extent(board)
    size = high - low
    if page is None:
        edge = max(max(tag.size for tag in board.tags) / 4, MARGIN)
        width, height = (float(x) for x in size + 2 * edge)
        page = (max(width, RULERS[-1] + 2 * MARGIN), height + RULER_HEIGHT)
    room = np.asarray(page) - size
    if (room < 0).any():
        raise InputError(
            f"the board is {1e3 * size[0]:.1f} x {1e3 * size[1]:.1f} mm, the page "
            f"{1e3 * page[0]:.1f} x {1e3 * page[1]:.1f} mm: give a larger --page"
        )
    centred = room / 2 - low
    raised = np.array([centred[0], page[1] - min(MARGIN, room[1] / 2) - high[1]])
    for origin in (centred, raised):
        ruler = _ruler_place(board, page, origin)
        if ruler is not None:
            return Sheet(board, page, origin, ruler)
    return Sheet(board, page, centred, None)


def _extent(board: Board) -> tuple[Array, Array]:
    """Lowest and highest x, y of all ink, m, board frame."""
    boxes = np.array([[*np.subtract(c, s / 2), *np.add(c, s / 2)] for _, c, s in board.ink()])
    return boxes[:, :2].min(axis=0), boxes[:, 2:].max(axis=0)


def _ruler_place(
    board: Board, page: tuple[float, float], origin: Array
) -> tuple[float, float, float] | None:
    """The lowest free place for the longest ruler, clear of every tag's white edge."""
    ink = [
        (np.add(c, origin), 0.5 * s + (s / len(dark) if len(dark) > 1 else 0.002))
        for dark, c, s in board.ink()
    ]
    for length in RULERS:
        half = np.array([length / 2 + 0.004, RULER_HEIGHT / 2])
        for y in np.arange(MARGIN / 2 + half[1], page[1] - half[1], 0.001):
            middle = np.array([page[0] / 2, y])
            if half[0] > page[0] / 2 - MARGIN / 2:
                break
            if all((np.abs(c - middle) >= half + r).any() for c, r in ink):
                return (
                    round(float(middle[0] - length / 2), 6),
                    round(float(y - half[1]) + 0.001, 6),
                    length,
                )
    return None


def ink_outline(sheet: Sheet) -> Array:
    """Rectangles (n, 4) of all ink of the board: x0, y0, x1, y1 on the page, m."""
    rectangles = []
    for dark, centre, size in sheet.board.ink():
        cell = size / len(dark)
        left = sheet.origin[0] + centre[0] - size / 2
        top = sheet.origin[1] + centre[1] + size / 2
        for row, line in enumerate(dark):
            change = np.flatnonzero(np.diff(np.concatenate([[0], line.astype(int), [0]])))
            for start, stop in change.reshape(-1, 2):
                rectangles.append(
                    (
                        left + start * cell,
                        top - (row + 1) * cell,
                        left + stop * cell,
                        top - row * cell,
                    )
                )
    return np.array(rectangles)


def draw(sheet: Sheet) -> Figure:
    """The page as a figure of exactly its size, in vectors."""
    width, height = sheet.page
    figure = Figure(figsize=(width / INCH, height / INCH))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, width)
    axes.set_ylim(0, height)
    axes.axis("off")
    # One path with the non-zero rule: neighbouring cells leave no hairline between them.
    x0, y0, x1, y1 = ink_outline(sheet).T
    corners = np.stack([x0, y0, x1, y0, x1, y1, x0, y1, x0, y0], axis=1).reshape(-1, 2)
    codes = np.tile(
        np.array([Outline.MOVETO, *[Outline.LINETO] * 3, Outline.CLOSEPOLY], np.uint8), len(x0)
    )
    ink = PathPatch(Outline(corners, codes), facecolor="black", linewidth=0, antialiased=True)
    ink.set_snap(False)
    axes.add_patch(ink)
    if sheet.ruler is not None:
        _draw_ruler(axes, *sheet.ruler)
    return figure


def _draw_ruler(axes: Any, x: float, y: float, length: float) -> None:
    steps = np.arange(round(length / 0.01) + 1) * 0.01
    heights = np.where(np.arange(len(steps)) % 5 == 0, 0.003, 0.0018)
    style = {"color": "black", "linewidth": 0.5, "solid_capstyle": "butt"}
    axes.plot([x, x + length], [y, y], snap=False, **style)
    for step, top in zip(steps, heights, strict=True):
        axes.plot([x + step, x + step], [y, y + top], snap=False, **style)
    words = f"{1e3 * length:g} mm. Print at 100 %, measure this line, correct board.yaml."
    axes.text(
        x + length / 2,
        y + 0.0042,
        words if length > 0.06 else f"{1e3 * length:g} mm: measure",
        ha="center",
        va="bottom",
        fontsize=7,
        family="DejaVu Sans",
    )


def page_image(sheet: Sheet, dpi: int = 300) -> NDArray[np.uint8]:
    """The page as a picture (rows, columns), grey, first row on top."""
    figure = draw(sheet)
    figure.set_dpi(dpi)
    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    return np.ascontiguousarray(np.asarray(canvas.buffer_rgba())[..., 0])


def save(path: Path, sheet: Sheet, dpi: int = 300) -> None:
    """Write the page as ``.pdf`` or ``.png`` (the picture knows its resolution).

    Raises:
        InputError: Another suffix, or a picture of more than :data:`MOST_PIXELS`.
        MachineError: The file cannot be written.
    """
    kind = path.suffix.lower()
    if kind not in (".pdf", ".png"):
        raise InputError(f"{path}: expected a name that ends in .pdf or .png")
    columns, rows = (round(side / INCH * dpi) for side in sheet.page)
    if kind == ".png" and columns * rows > MOST_PIXELS:
        raise InputError(
            f"{path}: {columns} x {rows} px at {dpi} dpi, at most {MOST_PIXELS} px are drawn; give "
            "a lower --dpi, or write a PDF, which has no pixels"
        )
    figure = draw(sheet)
    # To memory first: the PDF writer answers a full disk with errors of its own.
    made = io.BytesIO()
    if kind == ".pdf":
        canvas: Any = FigureCanvasPdf(figure)
        canvas.print_pdf(made, metadata={"CreationDate": None})
    else:
        figure.set_dpi(dpi)
        canvas = FigureCanvasAgg(figure)
        canvas.print_png(made, metadata={"Software": None})
    write_whole(path, lambda fresh: fresh.write_bytes(made.getvalue()))


def write_board(path: Path, board: Board) -> None:
    """Write a board as ``board.yaml``.

    Raises:
        InputError: The file is there already.
        MachineError: It cannot be written.
    """
    derived = {"family", "tags"} if board.charuco else {"charuco"}
    content = board.model_dump(mode="json", exclude=derived)
    text = yaml.safe_dump(content, sort_keys=False, default_flow_style=None)
    if path.exists() or path.is_symlink():
        raise InputError(
            f"{path} is there already; draw that board with `--board {path}`, or move it away"
        )
    write_whole(path, lambda fresh: fresh.write_text(text, encoding="utf-8"))
