"""Which of two things on a board is the object: the one that is pointed at."""

from __future__ import annotations

from dataclasses import replace

import cv2
import numpy as np
import pytest

from tests.capture.scene import grid_board
from tests.capture.sfm_scene import CAMERA, Quad, box, draw, orbit
from twinloop.capture.board import print_image
from twinloop.capture.prompts import ViewPrompt
from twinloop.capture.seek import seek
from twinloop.capture.sparse_points import sparse_points
from twinloop.geometry import se3

HALF = 0.35
"""Half the edge of the printed page, m."""
ASIDE = 0.13
"""How far each thing stands from the middle, m."""


@pytest.fixture(scope="module")
def views() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Pictures of two boxes on a board, lenses, poses, and points."""
    board = grid_board(9, 9, 0.05, 0.07)
    ink = print_image(board, HALF / 1024, np.array([-HALF, -HALF]), (2048, 2048))
    page = cv2.resize(30 + 0.8 * ink.astype(np.float32), (512, 512), interpolation=cv2.INTER_AREA)
    quads = [Quad((-HALF, -HALF, 0.0), (2 * HALF, 0, 0), (0, 2 * HALF, 0), page)]
    for seed, x in ((1, ASIDE), (21, -ASIDE)):
        for quad in box(seed, 0.1, 0.1):
            corner = (quad.corner[0] + x, *quad.corner[1:])
            quads.append(replace(quad, corner=corner))
    poses = orbit(14, 335, radius=0.75, height=0.5)
    T = se3.inverse(poses)
    grey = np.stack([draw(quads, one, seed=i) for i, one in enumerate(T)])
    images = np.repeat(grey[..., None], 3, axis=3)
    k = np.tile(CAMERA.intrinsics, (len(T), 1))
    return images, k, T, sparse_points(images, k, poses)


@pytest.mark.parametrize("side", [-1, 1])
def test_the_thing_that_is_pointed_at(
    views: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray], side: int
) -> None:
    """Clicks on either thing give a box around it that leaves the other one out."""
    images, k, T, points = views
    top = np.array([[side * ASIDE, 0.0, 0.1]])
    prompts = {
        i: ViewPrompt(inside=CAMERA.project(se3.apply(T[i], top))) for i in range(0, len(T), 4)
    }
    bounds = np.array([[-HALF, -HALF], [HALF, HALF]])
    low, high = seek(images, k, T, points, bounds, prompts, 0.3).box
    assert low[0] < side * ASIDE - 0.03
    assert high[0] > side * ASIDE + 0.03
    assert not low[0] < -side * ASIDE < high[0]
    assert high[2] > 0.07
