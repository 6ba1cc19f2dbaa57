"""The plane under an object: closed form, noise, gravity, and points that hold no plane."""

from __future__ import annotations

import numpy as np
import pytest

from twinloop.capture.table_plane import find_table_plane, looked_at, world_from_plane
from twinloop.errors import InputError
from twinloop.geometry import se3
from twinloop.geometry.camera import look_at

PLACED = se3.exp(np.array([0.3, -0.2, 0.5, 0.4, -0.7, 0.9]))
"""An arbitrary world, as structure from motion leaves it."""


def scene(noise=0.0, table=400, seed=3):
    """Points of a table z = 0 and a box on it, and cameras around, moved to ``PLACED``."""
    rng = np.random.default_rng(seed)
    flat = np.column_stack([rng.uniform(-0.3, 0.3, (table, 2)), rng.normal(0, 1, table) * noise])
    box = rng.uniform([-0.04, -0.04, 0.0], [0.04, 0.04, 0.12], (150, 3))
    around = np.linspace(0, 2 * np.pi, 20, endpoint=False)
    eyes = np.column_stack([0.5 * np.cos(around), 0.5 * np.sin(around), np.full(20, 0.3)])
    poses = np.stack([look_at(eye, (0.0, 0.0, 0.05)) for eye in eyes])
    return se3.apply(PLACED, np.concatenate([flat, box])), PLACED @ poses


def test_exact_points_give_the_plane_and_a_table_frame() -> None:
    """Normal, height, and a frame with z up and its origin under the object, to rounding."""
    points, poses = scene()
    plane = find_table_plane(points, poses)
    np.testing.assert_allclose(plane.normal, PLACED[:3, 2], atol=1e-9)
    np.testing.assert_allclose(plane.height(PLACED[None, :3, 3]), 0, atol=1e-9)
    assert plane.inliers[:400].all()
    assert plane.rival < 0.5
    T = world_from_plane(plane, looked_at(poses))
    np.testing.assert_allclose(T[:3, :3] @ T[:3, :3].T, np.eye(3), atol=1e-12)
    assert np.linalg.det(T[:3, :3]) == pytest.approx(1)
    there = se3.apply(T, points)
    np.testing.assert_allclose(there[:400, 2], 0, atol=1e-9)
    assert there[400:, 2].min() > -1e-9
    foot = se3.apply(T, PLACED[None, :3, 3])[0]
    np.testing.assert_allclose(foot, 0, atol=1e-9)
    assert (se3.apply(T, poses[:, :3, 3])[:, 2] > 0.2).all()


def test_noise_is_told_by_the_standard_deviations() -> None:
    """Over twelve seeds the errors are of the size that the plane states."""
    tilts, heights, told = [], [], []
    for seed in range(12):
        points, poses = scene(noise=0.0005, seed=seed)
        plane = find_table_plane(points, poses)
        tilts.append(np.degrees(np.arccos(np.clip(plane.normal @ PLACED[:3, 2], -1, 1))))
        foot = PLACED[:3, 3] + PLACED[:3, 2] * 0.05
        heights.append(plane.height(foot[None])[0] - 0.05)
        told.append((plane.tilt_std, plane.offset_std))
    tilt, height = np.mean(told, axis=0)
    # Points of the box near its foot count as table too, so errors exceed pure noise somewhat.
    assert max(tilts) < 0.1
    assert np.sqrt(np.mean(np.square(tilts))) < 4 * tilt
    assert np.sqrt(np.mean(np.square(heights))) < 6 * height
    assert height < 1e-4


def test_stray_points_below_do_not_matter_and_seeds_repeat() -> None:
    """One point in nine lies anywhere; equal seeds give equal bytes."""
    points, poses = scene(noise=0.0005)
    rng = np.random.default_rng(0)
    stray = se3.apply(PLACED, rng.uniform(-0.3, 0.3, (60, 3)))
    cloud = np.concatenate([points, stray])
    first, second = (find_table_plane(cloud, poses, seed=1) for _ in range(2))
    assert first.normal @ PLACED[:3, 2] > np.cos(np.radians(0.3))
    assert first.normal.tobytes() == second.normal.tobytes()


def test_gravity_chooses_between_a_wall_and_the_table() -> None:
    """A wall holds more points; the up direction rules it out, and the rival is told."""
    rng = np.random.default_rng(5)
    table = np.column_stack([rng.uniform(-0.3, 0.3, (200, 2)), np.zeros(200)])
    wall = np.column_stack(
        [rng.uniform(-0.3, 0.3, 500), np.full(500, 0.25), rng.uniform(0, 0.5, 500)]
    )
    points = np.concatenate([table, wall])
    eyes = np.column_stack([np.linspace(-0.3, 0.3, 10), np.full(10, -0.5), np.full(10, 0.3)])
    poses = np.stack([look_at(eye, (0.0, 0.0, 0.05)) for eye in eyes])
    wide = find_table_plane(points, poses)
    assert wide.normal @ [0, -1, 0] > 0.999
    assert wide.rival > 0.3
    plane = find_table_plane(points, poses, up=np.array([0.0, 0.05, 1.0]))
    np.testing.assert_allclose(plane.normal, [0, 0, 1], atol=1e-3)


def test_a_cloud_without_a_plane_is_refused() -> None:
    """A sphere has no plane."""
    rng = np.random.default_rng(2)
    _, poses = scene()
    ball = rng.normal(size=(500, 3))
    ball = 0.1 * ball / np.linalg.norm(ball, axis=1, keepdims=True)
    with pytest.raises(InputError, match="unidentifiable"):
        find_table_plane(se3.apply(PLACED, ball + [0, 0, 0.1]), poses)


def test_points_on_a_line_are_refused() -> None:
    """A line leaves the tilt open."""
    rng = np.random.default_rng(2)
    _, poses = scene()
    line = np.zeros((300, 3))
    line[:, 0] = rng.uniform(-0.3, 0.3, 300)
    line[:, 1:] = rng.normal(0, 1e-4, (300, 2))
    with pytest.raises(InputError, match="unidentifiable"):
        find_table_plane(se3.apply(PLACED, line), poses)


def test_too_few_points_are_refused() -> None:
    """The numbers stand in the message; cameras without a pose do not count."""
    points, poses = scene()
    poses = poses.copy()
    poses[3] = np.nan
    with pytest.raises(InputError, match="from 10 points and 19 cameras"):
        find_table_plane(points[:10], poses)
