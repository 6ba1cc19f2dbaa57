"""The printed page: what is drawn is what its ``board.yaml`` says, in true size."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from twinloop.capture.board import detect_tags, load_board
from twinloop.capture.board_print import A4, INCH, MARGIN, main, page_board, page_image
from twinloop.errors import InputError


def test_the_print_shows_the_tags_where_its_yaml_says(tmp_path: Path) -> None:
    """All tags are found; texel times resolution is the corner's place on the page."""
    main([str(tmp_path / "board.png"), "--dpi", "150"])
    board = load_board(tmp_path / "board.yaml")
    grey = cv2.imread(str(tmp_path / "board.png"), cv2.IMREAD_GRAYSCALE)
    found = detect_tags(grey, board)
    assert list(found.ids) == [tag.id for tag in board.tags]
    known, seen = found.pairs(board)
    x = (seen[:, 0] + 0.5) * INCH / 150 - A4[0] / 2
    y = A4[1] / 2 - (seen[:, 1] + 0.5) * INCH / 150
    np.testing.assert_allclose(np.column_stack([x, y]), known[:, :2], atol=3e-4)


def test_the_page_leaves_margins_and_the_middle_free() -> None:
    """Tags stay off the printer's edge and off the object's place."""
    board = page_board()
    low, high = board.bounds()
    assert (np.abs([low, high]) <= np.asarray(A4) / 2 - MARGIN + 1e-9).all()
    centres = np.array([tag.centre for tag in board.tags])
    assert ((np.abs(centres) > [0.1, 0.06]).any(axis=1)).all()


def test_an_existing_board_is_drawn_and_never_overwritten(tmp_path: Path) -> None:
    """A second run refuses to replace board.yaml; ``--board`` draws it with a white edge."""
    main([str(tmp_path / "a.png"), "--dpi", "100"])
    before = (tmp_path / "board.yaml").read_bytes()
    with pytest.raises(SystemExit) as stopped:
        main([str(tmp_path / "b.png")])
    assert stopped.value.code == 2
    assert (tmp_path / "board.yaml").read_bytes() == before
    board = load_board(tmp_path / "board.yaml")
    main([str(tmp_path / "b.png"), "--board", str(tmp_path / "board.yaml"), "--dpi", "100"])
    image = page_image(board, None, 100)
    assert (image[[0, -1]] == 255).all()
    np.testing.assert_array_equal(cv2.imread(str(tmp_path / "b.png"), 0), image)


def test_a_tag_too_large_for_the_page_is_refused() -> None:
    """Millimetres instead of metres, for instance."""
    with pytest.raises(InputError, match="metres"):
        page_board(A4, 24.0)
