"""The quality of masks against their true overlap, on rendered pictures with spoilt masks."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from scipy.stats import spearmanr

from tests.capture.scene import Scene, grid_board
from twinloop.capture.hull import Shape, VoxelGrid, carve
from twinloop.capture.mask_quality import DROP, describe, quality, weights
from twinloop.capture.projection import Camera
from twinloop.geometry import se3

CAMERA = Camera(np.array([190.0, 190.0, 99.5, 74.5]), np.zeros(5), 200, 150)
VIEWS = 16
SPOILT = (1, 4, 6, 9, 11, 14)


@pytest.fixture(scope="module")
def shots() -> tuple:
    """Pictures, true masks, and how to get the silhouettes of masks."""
    scene = Scene(camera=CAMERA, board=grid_board(hole=0.06))
    poses = scene.orbit(VIEWS, radius=0.3)
    rng = np.random.default_rng(0)
    rendered = [scene.render(T, samples=1) for T in poses]
    images = np.stack(
        [np.clip(i + rng.normal(0, 2, i.shape), 0, 255).astype(np.uint8) for i, _ in rendered]
    )
    truth = np.stack([m > 0.5 for _, m in rendered])
    grid = VoxelGrid.over(np.array([-0.05, -0.05, 0]), np.array([0.05, 0.05, 0.07]), 60_000)
    k, T = np.tile(CAMERA.intrinsics, (VIEWS, 1)), se3.inverse(poses)

    def silhouettes(masks: np.ndarray) -> np.ndarray:
        return Shape(carve(masks, k, T, grid), grid).silhouettes(k, T, masks.shape[1:])

    return images, truth, silhouettes


def spoil(truth: np.ndarray) -> np.ndarray:
    """Shift, cut, grow or shrink the masks of some frames, by different amounts."""
    masks = truth.astype(np.uint8) * 255
    for rank, i in enumerate(SPOILT):
        rows, columns = np.nonzero(masks[i])
        height, width = np.ptp(rows), np.ptp(columns)
        amount = 0.15 + 0.06 * rank
        if rank % 3 == 0:
            masks[i] = np.roll(masks[i], round(width * amount), axis=1)
        elif rank % 3 == 1:
            masks[i][: rows.min() + round(height * amount)] = 0
        else:
            side = 2 * round(0.4 * height * amount) + 1
            masks[i] = cv2.dilate(masks[i], np.ones((side, side), np.uint8))
    return masks


def test_quality_ranks_masks_as_truth_does(shots: tuple) -> None:
    """Rank correlation with the true IoU over 0.7; spoilt masks are below all good ones."""
    images, truth, silhouettes = shots
    masks = spoil(truth)
    found = quality(images, masks, silhouettes(masks))
    on = masks > 0
    overlap = (on & truth).sum(axis=(1, 2)) / (on | truth).sum(axis=(1, 2))
    assert spearmanr(found, overlap).statistic > 0.7
    good = np.delete(found, SPOILT)
    assert found[list(SPOILT)].max() < good.min()
    assert good.min() > DROP
    low = overlap < 0.6
    assert low.any()
    assert (found[low] < DROP).all()


def test_support_and_empty_masks(shots: tuple) -> None:
    """A frame whose colours speak against the object is rated down; an empty mask has 0."""
    images, truth, silhouettes = shots
    masks = truth.astype(np.uint8) * 255
    support = np.full(VIEWS, 0.9)
    support[3] = 0.1
    masks[5] = 0
    found = quality(images, masks, silhouettes(masks), support)
    assert found[3] < DROP
    assert found[5] == 0
    assert np.delete(found, [3, 5]).min() > DROP


def test_weights_and_words() -> None:
    """Below the threshold 0, above it rising to 1; the sentence names the worst pictures."""
    found = np.array([0.2, 0.66, 0.9, 1.0, 0.6])
    w = weights(found)
    assert (w[[0, 4]] == 0).all()
    assert 0 < w[1] < w[2] <= w[3] == 1
    said = describe(found, [f"frame {i}" for i in range(5)])
    assert said is not None
    assert said.startswith("2 of 5 masks")
    assert "frame 0: 0.20, frame 4: 0.60" in said
    assert describe(found[1:4], ["a", "b", "c"]) is None
