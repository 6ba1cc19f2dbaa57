"""The printed board: AprilTags 36h11 around an empty centre where the object stands.

The same layout is drawn as a texture and written as ``board.yaml``, so what is printed is what the
reader is told.  Board frame: x right, y up the page, z out of the print, origin at the centre.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import yaml
from numpy.typing import NDArray

from twinloop.geometry import se3
from twinloop.lab.texture import clouds

Array = NDArray[np.float64]
CELLS = 8  # a 36h11 tag is 6 bits wide inside a black frame of one cell
FAMILY_SIZE = 587


@dataclass(frozen=True)
class Tag:
    """One tag: id, edge length of the black square (m), centre (x, y) on the board (m)."""

    id: int
    size: float
    centre: tuple[float, float]


@dataclass(frozen=True)
class BoardLayout:
    """Tags of a board and its half extent (x, y), m."""

    tags: tuple[Tag, ...]
    half: tuple[float, float]


def ring_layout(clear: float, tag_size: float, rings: int = 2, first_id: int = 0) -> BoardLayout:
    """Tags on a square grid around an empty square of half width ``clear`` (m).

    The pitch is 1.3 tag edges, so each tag has more than one white cell around it (the detector
    needs one). ``rings`` squares of tags surround the centre.
    """
    pitch = 1.3 * tag_size
    inner = int(np.ceil(2.0 * clear / pitch))  # tags that would fit across the empty square
    across = inner + 2 * rings
    place = (np.arange(across) - 0.5 * (across - 1)) * pitch
    tags: list[Tag] = []
    for row in range(across):
        for column in range(across):
            depth = min(row, column, across - 1 - row, across - 1 - column)
            if depth < rings:
                centre = (round(float(place[column]), 6), round(float(-place[row]), 6))
                tags.append(Tag((first_id + len(tags)) % FAMILY_SIZE, tag_size, centre))
    half = 0.5 * across * pitch + 0.1 * tag_size
    return BoardLayout(tuple(tags), (half, half))


def board_image(layout: BoardLayout, seed: int = 0, texels: int = 1536) -> NDArray[np.uint8]:
    """The print (rows, columns, 3), row 0 at +y, covering exactly ``2 half``.

    A texel that a cell's edge crosses gets the ink of its covered share, so an edge may fall
    anywhere. The empty parts carry a faint mottle, as paper does under a phone.
    """
    rng = np.random.default_rng([seed, 0xB0A4D])
    texel = 2.0 * max(layout.half) / texels
    width, height = (max(16, round(2.0 * h / texel)) for h in layout.half)
    grey = 230.0 + 4.0 * clouds(rng, height, width, max(2.0, 0.01 / texel))
    grey += 2.0 * clouds(rng, height, width, max(2.0, 0.002 / texel))
    np.clip(grey, 215.0, 244.0, out=grey)
    dictionary = cv2.aruco.getPredefinedDictionary(cv2.aruco.DICT_APRILTAG_36h11)
    sx, sy = width / (2.0 * layout.half[0]), height / (2.0 * layout.half[1])
    for tag in layout.tags:
        bits = dictionary.generateImageMarker(tag.id, CELLS, borderBits=1)
        left = (tag.centre[0] - 0.5 * tag.size + layout.half[0]) * sx
        top = (layout.half[1] - tag.centre[1] - 0.5 * tag.size) * sy
        _draw_cells(grey, bits == 0, left, top, tag.size * sx, tag.size * sy)
    tint = np.array([1.0, 0.995, 0.975], dtype=np.float32)
    return np.asarray(np.rint(grey[..., None] * tint), dtype=np.uint8)


def _draw_cells(
    grey: NDArray[np.float32],
    dark: NDArray[np.bool_],
    left: float,
    top: float,
    width: float,
    height: float,
) -> None:
    """Ink a tag's dark cells (8,8) into ``grey``, each texel by the share that is covered."""
    x0, y0 = int(np.floor(left)), int(np.floor(top))
    x1, y1 = int(np.ceil(left + width)), int(np.ceil(top + height))
    share = (
        _coverage(y0, y1, top, height) @ dark.astype(np.float64) @ _coverage(x0, x1, left, width).T
    )
    patch = grey[y0:y1, x0:x1]
    patch += (share * (24.0 - patch)).astype(np.float32)


def _coverage(first: int, last: int, start: float, length: float) -> Array:
    """Share (texel, cell) of each texel first..last-1 that each of the eight cells covers."""
    edges = start + length * np.arange(CELLS + 1) / CELLS
    texel = np.arange(first, last)[:, None]
    overlap = np.minimum(texel + 1.0, edges[1:]) - np.maximum(texel, edges[:-1])
    return np.asarray(np.clip(overlap, 0.0, 1.0))


def write_board_yaml(path: Path, layout: BoardLayout, T_world_board: Array) -> None:
    """Write ``board.yaml`` as a real user has it: family, pose of the board, tags."""
    position, quaternion = se3.to_position_quaternion(T_world_board)
    data = {
        "family": "36h11",
        "T_world_board": {
            "position": [float(x) for x in position],
            "quaternion_wxyz": [float(x) for x in quaternion],
        },
        "tags": [
            {"id": t.id, "size": float(t.size), "centre": list(t.centre)} for t in layout.tags
        ],
    }
    path.write_text(yaml.safe_dump(data, sort_keys=False, default_flow_style=None), "utf-8")
