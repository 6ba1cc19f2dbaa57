"""Lens and poses from board points."""

from __future__ import annotations

import numpy as np
import pytest

from tests.capture.scene import Scene
from twinloop.capture.calibrate import View, calibrate
from twinloop.capture.projection import Camera
from twinloop.errors import InputError
from twinloop.geometry import quaternion, se3

LENS = Camera(
    np.array([780.0, 780.0, 242.0, 420.0]), np.array([-0.06, 0.02, 0.0005, -0.0003, 0.0]), 480, 848
)


def views(n=20, noise=0.1, seed=0, outliers=0):
    """Exact projections of a board from around it, plus noise."""
    rng = np.random.default_rng(seed)
    scene = Scene.__new__(Scene)
    poses = Scene.orbit(scene, n, radius=0.4, elevations=(0.5, 1.1))
    grid = np.stack(np.meshgrid(np.linspace(-0.12, 0.12, 9), np.linspace(-0.12, 0.12, 9)), -1)
    points = np.column_stack([grid.reshape(-1, 2), np.zeros(81)])
    result = []
    for i, T in enumerate(poses):
        pixels = LENS.project(se3.apply(se3.inverse(T), points))
        pixels += rng.normal(0, noise, pixels.shape)
        bad = rng.choice(81, outliers, replace=False)
        pixels[bad] += rng.uniform(-30, 30, (outliers, 2))
        result.append(View(i, points, pixels))
    return result, poses


def errors(found, poses):
    """Position error m and rotation error rad, largest over views."""
    p, q = se3.to_position_quaternion(found.T_board_camera)
    p0, q0 = se3.to_position_quaternion(poses)
    return np.linalg.norm(p - p0, axis=1).max(), quaternion.angle(q, q0).max()


def test_exact_points_give_the_exact_lens() -> None:
    """Without noise, lens and poses come out to numerical precision (of the weak priors)."""
    seen, poses = views(noise=0.0)
    found = calibrate(seen, 480, 848)
    np.testing.assert_allclose(found.camera.intrinsics, LENS.intrinsics, atol=0.05)
    position, angle = errors(found, poses)
    assert position < 2e-5
    assert angle < 1e-4
    assert found.rms.max() < 2e-3


def test_noise_gives_matching_errors_and_deviations() -> None:
    """With 0.1 px noise the focal error is a few of the stated deviations, and rms is the noise."""
    off = []
    for seed in range(4):
        seen, poses = views(seed=seed)
        found = calibrate(seen, 480, 848)
        off.append((found.camera.vector - LENS.vector) / found.camera_std)
        assert errors(found, poses)[0] < 1e-3
        assert found.sigma == pytest.approx(0.1, rel=0.1)
    scatter = np.sqrt((np.array(off)[:, [0, 2, 3, 4]] ** 2).mean())
    assert 0.3 < scatter < 2.0


def test_wild_points_do_not_matter() -> None:
    """Five of 81 corners per view that are off by tens of pixels change nothing that matters."""
    seen, poses = views(outliers=5)
    found = calibrate(seen, 480, 848)
    assert abs(found.camera.intrinsics[0] - 780) < 1.0
    assert errors(found, poses)[0] < 1e-3


def test_known_lens_needs_one_view() -> None:
    """With a known lens a single frame gives its pose, and the lens is left alone."""
    seen, poses = views(n=3)
    found = calibrate(seen[:1], 480, 848, known=LENS)
    np.testing.assert_array_equal(found.camera.vector, LENS.vector)
    assert errors(found, poses[:1])[0] < 5e-4


def test_unusable_input_is_named() -> None:
    """Too few views, too few points and collinear points are errors that say which."""
    seen, _ = views(n=4)
    with pytest.raises(InputError, match="2 frames show the board, at least 3"):
        calibrate(seen[:2], 480, 848)
    few = View(7, seen[0].points[:3], seen[0].pixels[:3])
    with pytest.raises(InputError, match="frame 7 has 3 board points"):
        calibrate([*seen[:3], few], 480, 848)
    line = View(8, seen[0].points[:9], seen[0].pixels[:9])
    with pytest.raises(InputError, match="frame 8"):
        calibrate([*seen[:3], line], 480, 848)
