"""Cutting an object out of its background, against rendered truth."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from tests.capture.scene import Scene, grid_board
from twinloop.capture.graphcut import cut
from twinloop.capture.mask import MaskSettings, find_object, segment
from twinloop.capture.plane import (
    PlaneGrid,
    exposure_gains,
    median_mosaic,
    mode_mosaic,
    rectify,
)
from twinloop.capture.projection import Camera
from twinloop.errors import InputError
from twinloop.geometry import se3

CAMERA = Camera(np.array([230.0, 230.0, 119.5, 89.5]), np.zeros(5), 240, 180)


@pytest.fixture(scope="module")
def shots() -> tuple:
    """Twelve frames of a textured box with 2 grey levels of noise, their poses and coverage."""
    scene = Scene(camera=CAMERA, board=grid_board(hole=0.06))
    poses = scene.orbit(12, radius=0.3)
    rng = np.random.default_rng(0)
    rendered = [scene.render(T) for T in poses]
    images = np.stack(
        [np.clip(i + rng.normal(0, 2, i.shape), 0, 255).astype(np.uint8) for i, _ in rendered]
    )
    k = np.tile(CAMERA.intrinsics, (12, 1))
    return scene, images, k, se3.inverse(poses), np.stack([m for _, m in rendered])


def test_masks_match_the_truth(shots: tuple) -> None:
    """Mean IoU at least 0.95, worst at least 0.9, no holes; the object is only 50 px wide."""
    scene, images, k, T, coverage = shots
    rough = find_object(images, k, T, scene.board.bounds())
    low, high = rough.box(0.0)
    assert (low <= [-0.03, -0.02, 0.01]).all()
    assert (high >= [0.03, 0.02, 0.04]).all()
    found = segment(images, k, T, rough, MaskSettings(voxels=100_000))
    truth = coverage > 0.5
    mask = found.mask > 0
    overlap = (mask & truth).sum(axis=(1, 2)) / (mask | truth).sum(axis=(1, 2))
    assert overlap.mean() > 0.95
    assert overlap.min() > 0.9
    assert found.agreement.min() > 0.85
    for one in mask:
        count, _ = cv2.connectedComponents((~one).astype(np.uint8))
        assert count == 2


def test_empty_board_is_an_error(shots: tuple) -> None:
    """With nothing on the board the message says so."""
    scene, _, k, T, _ = shots
    bare = Scene(camera=CAMERA, size=(1e-6, 1e-6, 1e-6), board=scene.board)
    images = np.stack([bare.render(p, samples=1)[0] for p in se3.inverse(T)])
    with pytest.raises(InputError, match="nothing stands on the board"):
        find_object(images, k, T, scene.board.bounds())


def test_frame_without_the_object_has_no_support(shots: tuple) -> None:
    """Where the object was taken away, other frames' hull is believed, but support is near 0."""
    scene, images, k, T, _ = shots
    rough = find_object(images, k, T, scene.board.bounds())
    gone = images.copy()
    bare = Scene(camera=CAMERA, size=(1e-6, 1e-6, 1e-6), board=scene.board)
    gone[4] = bare.render(se3.inverse(T)[4], samples=1)[0]
    found = segment(gone, k, T, rough, MaskSettings(rounds=1, voxels=20_000))
    assert found.support[4] < 0.2
    assert np.delete(found.support, 4).min() > 0.5


def test_frame_that_misses_the_object_is_named(shots: tuple) -> None:
    """A camera that looks past the object gives an error with frame number and pixel counts."""
    scene, images, k, T, _ = shots
    rough = find_object(images, k, T, scene.board.bounds())
    past = T.copy()
    past[4, 0, 3] += 0.5
    with pytest.raises(InputError, match=r"1 of 12 masks are empty \(kept frames \[4\]"):
        segment(images, k, past, rough, MaskSettings(rounds=1, voxels=20_000))


def test_exposure_is_recovered(shots: tuple) -> None:
    """Brightness factors of up to 20 % are found within 1 %, their geometric mean being 1."""
    scene, images, k, T, _ = shots
    drift = np.exp(0.2 * np.sin(np.arange(12)))
    darker = np.clip(images * 0.8 * drift[:, None, None, None], 0, 255).astype(np.uint8)
    low, high = scene.board.bounds()
    grid = PlaneGrid.over(low, high, 0.002)
    gains = exposure_gains(*rectify(darker, None, k, T, grid))
    expected = 1 / drift
    expected /= np.exp(np.log(expected).mean())
    np.testing.assert_allclose(gains, expected, rtol=0.01)


def test_mosaic_shows_the_table_through_what_hides_it() -> None:
    """The mode ignores 55 % of changing colours, the median works once they are masked."""
    rng = np.random.default_rng(0)
    table = rng.integers(0, 255, (20, 30, 3)).astype(np.uint8)
    colours = np.repeat(table[None], 20, axis=0)
    hidden = np.zeros((20, 20, 30), bool)
    for frame in range(11):
        hidden[frame] = True
        colours[frame] = rng.integers(0, 255, table.shape)
    seen = np.ones_like(hidden)
    grid = PlaneGrid(np.zeros(2), 0.001, 20, 30)
    mode = mode_mosaic(colours, seen, grid)
    assert np.abs(mode.colour.astype(int) - table).mean() < 2
    median = median_mosaic(colours, seen & ~hidden, grid, np.ones((20, 30), bool))
    np.testing.assert_array_equal(median.colour, table)
    assert not median_mosaic(colours, seen & False, grid, np.ones((20, 30), bool)).known.any()


def test_cut_follows_evidence_and_stays_smooth() -> None:
    """A noisy disc is recovered; lone contradicting pixels are overruled; forbidden stays out."""
    rng = np.random.default_rng(0)
    y, x = np.indices((60, 80))
    disc = (x - 40) ** 2 + (y - 30) ** 2 < 18**2
    odds = np.where(disc, 2.0, -2.0) + rng.normal(0, 1.5, disc.shape)
    grey = np.where(disc, 200, 60).astype(np.uint8)
    forbidden = np.zeros_like(disc)
    forbidden[:, 50:] = True
    found = cut(odds, grey, np.zeros_like(disc), 3.0)
    assert (found & disc).sum() / (found | disc).sum() > 0.98
    assert not cut(odds, grey, forbidden, 3.0)[:, 50:].any()
    assert not cut(np.full(disc.shape, -5.0), grey, forbidden, 3.0).any()
