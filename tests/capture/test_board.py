"""The tag board: its file, and finding its tags."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import cv2
import numpy as np
import pytest
import yaml

from tests import realdata
from tests.capture.scene import Scene, grid_board
from twinloop.capture import families
from twinloop.capture.board import Board, Tag, detect_tags, load_board, print_image
from twinloop.capture.projection import Camera
from twinloop.errors import InputError
from twinloop.geometry import se3

SMALL = Camera(
    np.array([310.0, 310.0, 162.0, 117.0]), np.array([0.08, -0.12, 0.0008, -0.0006, 0.03]), 320, 240
)


def test_corners_run_clockwise_from_top_left() -> None:
    """Seen from +z with +y up: top-left, top-right, bottom-right, bottom-left."""
    corners = Board(tags=(Tag(id=3, size=0.04, centre=(0.1, 0.2)),)).corners()[3]
    expected = [[0.08, 0.22, 0], [0.12, 0.22, 0], [0.12, 0.18, 0], [0.08, 0.18, 0]]
    np.testing.assert_allclose(corners, expected)


def test_detected_corners_match_the_print() -> None:
    """On the drawn board each corner is found where it was drawn, within 0.03 px."""
    board = grid_board(3, 2)
    lower, texel = np.array([-0.08, -0.05]), 0.0004
    drawn = print_image(board, texel / 4, lower - texel * 0.375, (1000, 1600))
    image = cv2.resize(drawn, (400, 250), interpolation=cv2.INTER_AREA)
    found = detect_tags(np.ascontiguousarray(image[::-1]), board)
    assert found.ids.tolist() == [0, 1, 2, 3, 4, 5]
    points, pixels = found.pairs(board)
    expected = (points[:, :2] - lower) / texel
    expected[:, 1] = 249 - expected[:, 1]
    np.testing.assert_allclose(pixels, expected, atol=0.03)


def test_corners_are_found_to_a_tenth_of_a_pixel_in_perspective() -> None:
    """Through a distorting lens, corners of unhidden tags are right to 0.1 px rms."""
    scene = Scene(size=(0.001, 0.001, 0.0005), camera=SMALL)
    T = scene.orbit(5)[1]
    image, _ = scene.render(T)
    found = detect_tags(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), scene.board)
    assert len(found.ids) > 15
    points, pixels = found.pairs(scene.board)
    expected = scene.camera.project(se3.apply(se3.inverse(T), points))
    assert np.sqrt(((pixels - expected) ** 2).mean()) < 0.1


def test_empty_image_and_foreign_tags() -> None:
    """No tags gives empty arrays of the right shape; tags of another board are counted."""
    nothing = detect_tags(np.full((100, 120), 128, np.uint8), grid_board())
    assert nothing.ids.shape == (0,)
    assert nothing.corners.shape == (0, 4, 2)
    assert [len(a) for a in nothing.pairs(grid_board())] == [0, 0]
    other = Board(tags=(Tag(id=500, size=0.03, centre=(0, 0)),))
    image = print_image(other, 0.0002, np.array([-0.03, -0.03]), (300, 300))[::-1]
    found = detect_tags(np.ascontiguousarray(image), grid_board())
    assert len(found.ids) == 0
    assert found.foreign == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tags": [{"id": 1, "size": 30.0, "centre": [0, 0]}]}, "size"),
        ({"tags": []}, "tags"),
        ({"family": "99h9"}, "family"),
        ({"tags": [{"id": 1, "size": 0.03, "centre": [120.0, 0]}]}, "120 m.*millimetres"),
        ({"tags": [{"id": 587, "size": 0.03, "centre": [0, 0]}]}, "587 is none of family 36h11"),
        ({"family": "aruco_4x4_50", "tags": [{"id": 50, "size": 0.03, "centre": [0, 0]}]}, "49"),
        ({"charuco": {"columns": 5, "rows": 4, "square": 0.03, "marker": 0.02}}, "leave them out"),
        ({"tags": [{"id": 1, "size": 0.03, "centre": [0, 0]}] * 2}, "stand twice"),
        (
            {
                "tags": [
                    {"id": 1, "size": 0.03, "centre": [0, 0]},
                    {"id": 2, "size": 0.03, "centre": [0.01, 0]},
                ]
            },
            "overlap",
        ),
        ({"colour": "red"}, "colour"),
        ({"T_world_board": {"quaternion_wxyz": [1, 1, 0, 0]}}, "norm"),
    ],
)
def test_wrong_board_files_say_what_is_wrong(tmp_path: Path, change: dict, words: str) -> None:
    """Each fault is named with the file."""
    content = {"tags": [{"id": 0, "size": 0.03, "centre": [0.0, 0.0]}], **change}
    path = tmp_path / "board.yaml"
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(InputError, match=words) as caught:
        load_board(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"square": 30.0}, "square.*30"),
        ({"marker": 0.04}, "marker 0.04 m must be smaller than square 0.03"),
        ({"columns": 1}, "columns"),
        ({"columns": 40, "rows": 40}, "need 800 tags, aruco_5x5_250 has 250"),
        ({"square": float("nan")}, "square"),
        ({"dictionary": "aruco_8x8"}, "dictionary"),
    ],
)
def test_wrong_charuco_files_say_what_is_wrong(tmp_path: Path, change: dict, words: str) -> None:
    """Millimetres, a tag larger than its square, too few tags in the family."""
    content = {"columns": 5, "rows": 4, "square": 0.03, "marker": 0.02, **change}
    path = tmp_path / "board.yaml"
    path.write_text(yaml.safe_dump({"charuco": content}))
    with pytest.raises(InputError, match=words):
        load_board(path)


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize(("columns", "rows"), [(5, 4), (4, 5), (6, 4), (7, 5)])
def test_charuco_tags_stand_where_opencv_has_them(columns: int, rows: int, legacy: bool) -> None:
    """Corners of every marker equal those of OpenCV's own board, y turned up."""
    content = {"columns": columns, "rows": rows, "square": 0.03, "marker": 0.021, "legacy": legacy}
    board = Board.model_validate({"charuco": content})
    theirs = cv2.aruco.CharucoBoard(
        (columns, rows), 0.03, 0.021, families.dictionary("aruco_5x5_250")
    )
    theirs.setLegacyPattern(legacy)
    ids = np.asarray(theirs.getIds()).reshape(-1)
    points = np.asarray(theirs.getObjPoints(), np.float64).reshape(len(ids), 4, 3)
    # OpenCV: origin at the top left corner, y down; here: the middle, y up.
    points = (points - [columns * 0.015, rows * 0.015, 0]) * [1, -1, 1]
    ours = board.corners()
    assert sorted(ours) == sorted(ids.tolist())
    for i, expected in zip(ids, points, strict=True):
        np.testing.assert_allclose(ours[int(i)], expected, atol=1e-7)


def test_tags_of_opencvs_own_charuco_picture_are_found() -> None:
    """A picture that OpenCV drew: every tag is found where the board has it."""
    board = Board.model_validate(
        {"charuco": {"columns": 6, "rows": 5, "square": 0.03, "marker": 0.022}}
    )
    theirs = cv2.aruco.CharucoBoard((6, 5), 0.03, 0.022, families.dictionary("aruco_5x5_250"))
    image = np.asarray(theirs.generateImage((900, 750), marginSize=0), np.uint8)
    found = detect_tags(np.pad(image, 40, constant_values=255), board)
    assert found.ids.tolist() == [tag.id for tag in board.tags]
    points, pixels = found.pairs(board)
    expected = points[:, :2] * [5000, -5000] + [450 - 0.5 + 40, 375 - 0.5 + 40]
    np.testing.assert_allclose(pixels, expected, atol=0.6)


@pytest.mark.parametrize("family", get_args(families.Family))
def test_every_family_is_printed_and_found(family: families.Family) -> None:
    """The first and last tag of each family; a tag that the board lacks counts as foreign."""
    last = families.count(family) - 1
    both = Board(
        family=family,
        tags=(Tag(id=0, size=0.03, centre=(0, 0)), Tag(id=last, size=0.03, centre=(0.05, 0))),
    )
    image = print_image(both, 0.0003, np.array([-0.03, -0.03]), (200, 400))[::-1]
    grey = np.ascontiguousarray(image)
    found = detect_tags(grey, both)
    assert found.ids.tolist() == [0, last]
    one = both.model_copy(update={"tags": both.tags[:1]})
    assert detect_tags(grey, one).foreign == 1


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"- 1\n- 2\n", b"a: [1, 2", b""])
def test_board_file_that_is_no_mapping(tmp_path: Path, content: bytes) -> None:
    """Bytes that are no YAML mapping are refused."""
    (tmp_path / "board.yaml").write_bytes(content)
    with pytest.raises(InputError, match=r"board\.yaml"):
        load_board(tmp_path / "board.yaml")
    with pytest.raises(InputError, match="no such file"):
        load_board(tmp_path / "gone.yaml")


def test_real_tag_frames() -> None:
    """On real RealSense frames the tags and corners are those that ViSP's detector found."""
    folder = realdata.folder("rbt") / "sequence"
    theirs = json.loads((folder / "apriltag_data.json").read_text())["detections"]
    board = Board(
        tags=tuple(
            Tag(id=i, size=0.03, centre=(0.1 * (i % 25), 0.1 * (i // 25))) for i in range(587)
        )
    )
    distances, listed = [], 0
    for index in (0, 30, 60):
        path = folder / f"color_image_{index:04d}.jpg"
        found = detect_tags(np.asarray(cv2.imread(str(path), cv2.IMREAD_GRAYSCALE)), board)
        listed += len(theirs[index])
        # ViSP writes row before column, and counts from the first pixel's corner.
        other = np.concatenate([tag["tag_corners"] for tag in theirs[index].values()])
        other = other[:, ::-1] - 0.5
        gap = np.linalg.norm(found.corners.reshape(-1, 1, 2) - other[None], axis=2).min(axis=1)
        distances += gap.tolist()
    assert len(distances) >= 0.7 * 4 * listed
    assert np.median(distances) < 0.5
