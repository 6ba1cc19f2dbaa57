"""Masks without a board, against rendered truth: a textured box on a table with bits of paper."""

from __future__ import annotations

import numpy as np
import pytest

from tests.capture.scene import Scene, grid_board
from twinloop.capture.hull import project_all
from twinloop.capture.mask import MaskSettings
from twinloop.capture.multiview_mask import find_box, grab, segment_views
from twinloop.capture.projection import Camera
from twinloop.capture.prompts import ViewPrompt
from twinloop.errors import InputError
from twinloop.geometry import se3

CAMERA = Camera(np.array([230.0, 230.0, 119.5, 89.5]), np.zeros(5), 240, 180)
SIZE = (240, 180)
VIEWS = 12


def sparse_points(scene: Scene, rng: np.random.Generator) -> np.ndarray:
    """Points as structure from motion gives: on the box, on the table, and some wrong ones."""
    half = np.asarray(scene.size) / 2
    p = rng.uniform(-1, 1, (160, 3)) * half
    axis = rng.integers(0, 3, len(p))
    p[np.arange(len(p)), axis] = np.sign(p[np.arange(len(p)), axis]) * half[axis]
    p[:, 2] += half[2]
    c, s = np.cos(scene.yaw), np.sin(scene.yaw)
    p = p @ np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]]).T
    table = np.column_stack([rng.uniform(-0.15, 0.15, (300, 2)), np.zeros(300)])
    wrong = rng.uniform([-0.4, -0.4, -0.1], [0.4, 0.4, 0.5], (25, 3))
    return np.concatenate([p, table, wrong]) + rng.normal(0, 0.0005, (485, 3))


@pytest.fixture(scope="module")
def shots() -> tuple:
    """Pictures with 2 grey levels of noise, intrinsics, T_world_camera, truth, points."""
    scene = Scene(camera=CAMERA, board=grid_board(hole=0.06))
    poses = scene.orbit(VIEWS, radius=0.3)
    rng = np.random.default_rng(0)
    rendered = [scene.render(T, samples=1) for T in poses]
    images = np.stack(
        [np.clip(i + rng.normal(0, 2, i.shape), 0, 255).astype(np.uint8) for i, _ in rendered]
    )
    truth = np.stack([m for _, m in rendered]) > 0.5
    k = np.tile(CAMERA.intrinsics, (VIEWS, 1))
    return images, k, poses, truth, sparse_points(scene, rng)


def overlap(mask: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Intersection over union (frame,)."""
    found = mask > 0
    return (found & truth).sum(axis=(1, 2)) / (found | truth).sum(axis=(1, 2))


def window_of(box: tuple, k: np.ndarray, T: np.ndarray) -> np.ndarray:
    """Upright rectangle around the projected box, (y, x)."""
    corners = np.array(np.meshgrid(*np.stack(box, axis=1), indexing="ij")).reshape(3, -1).T
    pixels, _ = project_all(corners, k, T)
    window = np.zeros(SIZE[::-1], bool)
    (left, top), (right, bottom) = pixels.min(0).astype(int), pixels.max(0).astype(int)
    window[max(top, 0) : bottom + 1, max(left, 0) : right + 1] = True
    return window


def test_masks_beat_those_of_single_views(shots: tuple) -> None:
    """Mean IoU at least 0.95, and more than GrabCut alone, given the same box."""
    images, k, poses, truth, points = shots
    box = find_box(points, poses, k, SIZE)
    low, high = box
    # The box (half diagonal 36 mm, 50 mm tall) with some room, not the table.
    assert (low[:2] < -0.03).all()
    assert (low[:2] > -0.06).all()
    assert (high > [0.03, 0.03, 0.05]).all()
    assert (high < [0.06, 0.06, 0.08]).all()
    assert low[2] == 0
    found = segment_views(
        images, k, poses, box=box, points=points, settings=MaskSettings(rounds=2, voxels=100_000)
    )
    ours = overlap(found.mask, truth)
    alone = [
        grab(i, window_of(box, kk, T), None)
        for i, kk, T in zip(images, k, se3.inverse(poses), strict=True)
    ]
    assert ours.mean() > 0.95
    assert ours.min() > 0.9
    assert ours.mean() > overlap(np.stack(alone), truth).mean()
    assert found.mosaic is not None
    assert found.agreement.min() > 0.85


def test_ground_that_is_not_flat_is_not_believed(shots: tuple) -> None:
    """With the table drawn anew in every view no mosaic is used, and masks stay good."""
    images, k, poses, truth, points = shots
    rng = np.random.default_rng(1)
    rough = images.copy()
    for image, mask in zip(rough, truth, strict=True):
        cells = rng.integers(60, 150, (45, 60, 1)).repeat(4, axis=0).repeat(4, axis=1)
        image[~mask] = np.broadcast_to(cells, image.shape)[~mask]
    found = segment_views(
        rough,
        k,
        poses,
        box=find_box(points, poses, k, SIZE),
        points=points,
        settings=MaskSettings(rounds=2, voxels=60_000),
    )
    assert found.mosaic is None
    assert overlap(found.mask, truth).mean() > 0.9


def test_clicks_are_obeyed(shots: tuple) -> None:
    """A pixel that the user calls background is, also where everything speaks against it."""
    images, k, poses, truth, points = (s[::2] if len(s) == VIEWS else s for s in shots)
    box = find_box(points, poses, k, SIZE)
    v, u = (int(c.mean()) for c in np.nonzero(truth[3]))
    prompts = {3: ViewPrompt(None, np.zeros((0, 2)), np.array([[u, v]]))}
    settings = MaskSettings(rounds=1, voxels=20_000)
    found = segment_views(images, k, poses, box=box, prompts=prompts, settings=settings)
    assert found.mask[3, v, u] == 0
    edge = {2: ViewPrompt(np.array([0, 0, u, 179.0]))}
    found = segment_views(images, k, poses, box=box, points=points, prompts=edge, settings=settings)
    assert not found.mask[2][:, u + 1 :].any()


def test_the_user_chooses_among_two_things(shots: tuple) -> None:
    """Of two clusters the central one is taken, unless the user points at the other."""
    _, k, poses, _, points = shots
    rng = np.random.default_rng(2)
    other = rng.uniform([0.11, 0.06, 0.005], [0.14, 0.09, 0.03], (60, 3))
    both = np.concatenate([points, other])
    assert find_box(both, poses, k, SIZE)[1][0] < 0.07
    T = se3.inverse(poses)
    pixels = [project_all(other, k[i], T[i])[0] for i in (0, 5)]
    prompts = {
        0: ViewPrompt(np.r_[pixels[0].min(0) - 2, pixels[0].max(0) + 2]),
        5: ViewPrompt(None, pixels[1].mean(0, keepdims=True)),
    }
    low, high = find_box(both, poses, k, SIZE, prompts)
    assert low[0] > 0.09
    assert high[0] < 0.16


def test_nothing_above_the_table(shots: tuple) -> None:
    """Table points alone, no points, and a box beside the object are errors that say so."""
    images, k, poses, _, points = shots
    table = points[160:460]
    with pytest.raises(InputError, match=r"no cluster .* rises above the table \(300 points, 0"):
        find_box(table, poses, k, SIZE)
    with pytest.raises(InputError, match="0 points"):
        find_box(np.full((3, 3), np.nan), poses, k, SIZE)
    beside = (np.array([5.0, 5.0, 0.0]), np.array([5.1, 5.1, 0.1]))
    with pytest.raises(InputError, match="no volume in common"):
        segment_views(images, k, poses, box=beside)
