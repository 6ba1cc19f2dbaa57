"""The printed page: what is drawn is what its ``board.yaml`` says, in true size."""

from __future__ import annotations

import re
import zlib
from pathlib import Path

import numpy as np
import pytest

from twinloop.capture.board import Board, detect_tags, load_board
from twinloop.capture.board_print import (
    A4,
    INCH,
    LETTER,
    MARGIN,
    Sheet,
    charuco_board,
    ink_outline,
    lay_out,
    page_board,
    page_image,
    parse_page,
    save,
    write_board,
)
from twinloop.errors import InputError

POINT = INCH / 72
MAKERS = [page_board, charuco_board]


def pdf_rectangles(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Page size (2,) m and the filled rectangles (n, 4) m of a PDF, by its own operators."""
    data = path.read_bytes()
    box = re.search(rb"/MediaBox \[ ?([\d. ]+)\]", data)
    assert box is not None
    size = np.array(box[1].split(), float)
    assert (size[:2] == 0).all()
    number = rb"(-?[\d.]+) (-?[\d.]+)"
    rectangle = re.compile(
        number + rb" m\n" + number + rb" l\n" + number + rb" l\n" + number + rb" l\nh"
    )
    found = []
    for stream in re.findall(rb"stream\r?\n(.*?)endstream", data, re.S):
        try:
            text = zlib.decompress(stream)
        except zlib.error:
            continue
        for match in rectangle.findall(text):
            x, y = np.array(match, float).reshape(4, 2).T
            found.append([x.min(), y.min(), x.max(), y.max()])
    return size[2:] * POINT, np.array(found) * POINT


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("page", [A4, (0.42, 0.297)])
def test_the_pdf_has_the_true_size(tmp_path: Path, make, page: tuple[float, float]) -> None:
    """Page and every black rectangle are right to a micrometre; the same bytes each time."""
    sheet = lay_out(make(page), page)
    save(tmp_path / "a.pdf", sheet)
    save(tmp_path / "b.pdf", sheet)
    assert (tmp_path / "a.pdf").read_bytes() == (tmp_path / "b.pdf").read_bytes()
    size, drawn = pdf_rectangles(tmp_path / "a.pdf")
    np.testing.assert_allclose(size, page, atol=1e-6)
    np.testing.assert_allclose(drawn[0], [0, 0, *page], atol=1e-6)  # white paper
    drawn, expected = drawn[1:], ink_outline(sheet)
    assert len(drawn) == len(expected)
    np.testing.assert_allclose(drawn, expected, atol=1e-6)
    corners = np.concatenate(list(sheet.board.corners().values()))[:, :2] + sheet.origin
    for corner in corners:  # each tag's corner is a corner of black ink
        ends = np.concatenate([drawn[:, :2], drawn[:, 2:], drawn[:, [0, 3]], drawn[:, [2, 1]]])
        assert np.linalg.norm(ends - corner, axis=1).min() < 2e-6


def tags_of_the_picture(sheet: Sheet, dpi: int) -> tuple[np.ndarray, np.ndarray]:
    """Corners by the board and as seen in the page's picture, both (n, 2) m, board frame."""
    image = page_image(sheet, dpi)
    found = detect_tags(image, sheet.board)
    assert list(found.ids) == [tag.id for tag in sheet.board.tags]
    known, seen = found.pairs(sheet.board)
    x = (seen[:, 0] + 0.5) * INCH / dpi
    y = (len(image) - 0.5 - seen[:, 1]) * INCH / dpi
    return known[:, :2], np.column_stack([x, y]) - sheet.origin


@pytest.mark.parametrize("make", MAKERS)
def test_the_print_shows_the_tags_where_its_yaml_says(tmp_path: Path, make) -> None:
    """All tags are found; texel times resolution is the corner's place on the page."""
    write_board(tmp_path / "board.yaml", make())
    board = load_board(tmp_path / "board.yaml")
    assert board == make()
    known, seen = tags_of_the_picture(lay_out(board, A4), 150)
    np.testing.assert_allclose(seen, known, atol=1e-4)


def test_the_ruler_is_as_long_as_it_says() -> None:
    """Black from end to end of the printed line, clear of all tags."""
    sheet = lay_out(page_board(), A4)
    assert sheet.ruler is not None
    x, y, length = sheet.ruler
    assert length == 0.1
    dpi = 600
    image = page_image(sheet, dpi)
    row = round((sheet.page[1] - y) / INCH * dpi - 0.5)
    inked = np.flatnonzero(image[row - 2 : row + 3].min(axis=0) < 200)
    inked = inked[np.abs((inked + 0.5) * INCH / dpi - sheet.page[0] / 2) < length / 2 + 0.005]
    np.testing.assert_allclose(np.ptp(inked) * INCH / dpi, length, atol=2e-4)
    np.testing.assert_allclose(inked[0] * INCH / dpi, x, atol=2e-4)


def test_the_page_leaves_margins_and_the_middle_free() -> None:
    """Tags stay off the printer's edge and off the object's place."""
    board = page_board()
    low, high = board.bounds()
    assert (np.abs([low, high]) <= np.asarray(A4) / 2 - MARGIN + 1e-9).all()
    centres = np.array([tag.centre for tag in board.tags])
    assert ((np.abs(centres) > [0.1, 0.06]).any(axis=1)).all()


def test_a_board_without_a_page_gets_one_that_fits() -> None:
    """White around all tags, and a ruler."""
    sheet = lay_out(page_board((0.2, 0.15), 0.02))
    assert sheet.ruler is not None
    image = page_image(sheet, 100)
    assert (image[[0, -1]] == 255).all()
    assert (image[:, [0, -1]] == 255).all()
    known, seen = tags_of_the_picture(sheet, 150)
    np.testing.assert_allclose(seen, known, atol=1e-4)


def test_what_does_not_fit_is_refused() -> None:
    """Millimetres instead of metres, a small page, a small family."""
    with pytest.raises(InputError, match="metres"):
        page_board(A4, 24.0)
    for size in (0.0, -0.02, float("nan")):
        with pytest.raises(InputError, match="metres"):
            page_board(A4, size)
    with pytest.raises(InputError, match="3 x 3"):
        charuco_board(A4, 0.08)
    with pytest.raises(InputError, match="holds 36 tags of 18 mm, family 16h5 has 30"):
        page_board((0.297, 0.21), 0.018, "16h5")
    with pytest.raises(InputError, match="larger --page"):
        lay_out(page_board(), (0.15, 0.1))


@pytest.mark.parametrize("text", ["a5", "", "210", "1x2x3", "nanx100", "9000x100mm", "-5x100"])
def test_page_sizes_that_are_refused(text: str) -> None:
    """Not a word or two numbers of millimetres within reason."""
    with pytest.raises(InputError, match="--page"):
        parse_page(text)


def test_page_sizes_that_are_read() -> None:
    """Words and millimetres."""
    assert parse_page("A4") == A4
    assert parse_page("letter") == LETTER
    assert parse_page("420x297mm") == pytest.approx((0.42, 0.297))
    assert parse_page("420 x 297") == pytest.approx((0.42, 0.297))


def test_board_yaml_is_never_overwritten(tmp_path: Path) -> None:
    """A second board is refused, the first stays; other names are not written."""
    path = tmp_path / "board.yaml"
    write_board(path, page_board())
    before = path.read_bytes()
    with pytest.raises(InputError, match="is there already"):
        write_board(path, charuco_board())
    assert path.read_bytes() == before
    assert load_board(path) == page_board()
    with pytest.raises(InputError, match=r"\.pdf or \.png"):
        save(tmp_path / "a.svg", lay_out(Board.model_validate(page_board().model_dump())))
    with pytest.raises(InputError, match="cannot be written"):
        save(tmp_path / "gone" / "a.pdf", lay_out(page_board()))
