"""Carving and silhouettes against a box whose projection is known exactly."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from twinloop.capture.hull import UNKNOWN, Shape, VoxelGrid, carve, largest_component, votes
from twinloop.geometry import se3
from twinloop.geometry.camera import look_at, project

SIZE = np.array([0.08, 0.05, 0.06])
K = np.array([260.0, 260.0, 99.5, 79.5])


def cameras(n: int = 16) -> np.ndarray:
    """T_camera_board (n, 4, 4) around the box."""
    azimuth = np.linspace(0, 2 * np.pi, n, endpoint=False)
    elevation = 0.3 + 0.4 * (np.arange(n) % 3)
    eyes = 0.35 * np.stack(
        [
            np.cos(azimuth) * np.cos(elevation),
            np.sin(azimuth) * np.cos(elevation),
            np.sin(elevation),
        ],
        axis=1,
    )
    return se3.inverse(np.stack([look_at(e, (0, 0, 0.03)) for e in eyes]))


def box_masks(poses: np.ndarray) -> np.ndarray:
    """Exact silhouettes of the upright box, convex hulls of its projected corners."""
    corners = np.array(np.meshgrid([-0.5, 0.5], [-0.5, 0.5], [0, 1])).reshape(3, -1).T * SIZE
    masks = np.zeros((len(poses), 160, 200), np.uint8)
    for mask, T in zip(masks, poses, strict=True):
        outline = cv2.convexHull(project(corners, K, T).astype(np.float32))
        cv2.fillConvexPoly(mask, np.rint(outline * 256).astype(np.int32), 255, shift=8)
    return masks


@pytest.fixture(scope="module")
def grid() -> VoxelGrid:
    """Voxels of 2 mm around the box."""
    return VoxelGrid.over(np.array([-0.07, -0.06, 0.0]), np.array([0.07, 0.06, 0.09]), 190_000)


def test_hull_holds_the_box_and_little_more(grid: VoxelGrid) -> None:
    """Nearly all of the box is kept; the hull is at most a fifth larger (gaps between views)."""
    poses = cameras()
    hull = carve(box_masks(poses), np.tile(K, (len(poses), 1)), poses, grid)
    centres = np.moveaxis(np.indices(grid.shape), 0, -1) * grid.voxel + grid.lower
    inside = (np.abs(centres[..., :2]) < SIZE[:2] / 2 - grid.voxel).all(axis=-1)
    inside &= centres[..., 2] < SIZE[2] - grid.voxel
    assert hull[inside].mean() > 0.999
    volume = hull.sum() * grid.voxel**3
    assert SIZE.prod() * 0.95 < volume < SIZE.prod() * 1.2


def test_silhouettes_match_the_masks(grid: VoxelGrid) -> None:
    """The hull projected back covers what it was carved from (IoU at least 0.94)."""
    poses = cameras()
    masks = box_masks(poses)
    k = np.tile(K, (len(poses), 1))
    shape = Shape(carve(masks, k, poses, grid), grid)
    back = shape.silhouettes(k, poses, masks.shape[1:])
    both, either = (masks & back) > 0, (masks | back) > 0
    overlap = both.sum(axis=(1, 2)) / either.sum(axis=(1, 2))
    assert overlap.min() > 0.94
    low, high = shape.box(0.0)
    assert (low[:2] < -SIZE[:2] / 2 + 0.004).all()
    assert (high > SIZE * [0.5, 0.5, 1] - 0.004).all()


def test_one_empty_mask_cuts_nothing(grid: VoxelGrid) -> None:
    """A frame in which the object was missed is outvoted."""
    poses = cameras()
    masks = box_masks(poses)
    k = np.tile(K, (len(poses), 1))
    whole = carve(masks, k, poses, grid)
    masks[5] = 0
    assert carve(masks, k, poses, grid).sum() > 0.99 * whole.sum()


def test_unknown_and_unseen_do_not_vote(grid: VoxelGrid) -> None:
    """Pixels marked unknown, and places out of view, count neither for nor against."""
    poses = cameras(3)
    masks = np.full((3, 160, 200), UNKNOWN, np.uint8)
    seen, inside = votes(masks, np.tile(K, (3, 1)), poses, grid)
    assert seen.max() == 0
    assert inside.max() == 0
    masks[:] = 255
    away = poses.copy()
    away[:, 2, 3] -= 1.0
    seen, _ = votes(masks, np.tile(K, (3, 1)), away, grid)
    assert seen.max() == 0


def test_largest_piece_is_kept() -> None:
    """Specks are dropped; nothing stays nothing."""
    occupied = np.zeros((10, 10, 10), bool)
    occupied[1:5, 1:5, 1:5] = True
    occupied[8, 8, 8] = True
    kept = largest_component(occupied)
    assert kept.sum() == 64
    assert largest_component(np.zeros((3, 3, 3), bool)).sum() == 0
