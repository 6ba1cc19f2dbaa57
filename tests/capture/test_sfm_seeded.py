"""Known poses as a start: metric points and better poses on a short baseline."""

from __future__ import annotations

import numpy as np
import pytest

from tests.capture.sfm_scene import CAMERA, box, draw, ground, orbit
from twinloop.capture.sfm import SfmSettings
from twinloop.capture.sfm_seeded import corner_errors, seeded
from twinloop.errors import InputError
from twinloop.geometry import se3

pytest.importorskip("pycolmap", reason="the extra 'sfm' is not installed")

SETTINGS = SfmSettings(max_side=320, features=500)
NONE = (np.zeros((0, 3)), np.zeros((0, 2)))
PRINT = np.array([[x, y, 0.0] for x in (-0.2, -0.14, 0.14, 0.2) for y in (-0.2, -0.14, 0.14, 0.2)])
"""Tag corners on the table, m."""


def capture() -> tuple[list[np.ndarray], np.ndarray, list[tuple[np.ndarray, np.ndarray]]]:
    """Eight pictures over 14 degrees (14 cm at 0.7 m), poses T_camera_world, corners with noise."""
    poses = se3.inverse(orbit(8, 14))
    rng = np.random.default_rng(4)
    images = [draw([*box(1), ground(9)], T, seed=i) for i, T in enumerate(poses)]
    corners = [
        (PRINT, CAMERA.project(se3.apply(T, PRINT)) + rng.normal(0, 0.15, (len(PRINT), 2)))
        for T in poses
    ]
    return images, poses, corners


def test_poses_get_better_and_pictures_without_tags_are_placed() -> None:
    """Starts err by 4 mm and 0.4 degrees, two are unknown; afterwards all are right, in metres."""
    images, truth, corners = capture()
    rng = np.random.default_rng(1)
    start = np.stack(
        [se3.exp(np.r_[rng.normal(0, 0.004, 3), rng.normal(0, 0.007, 3)]) @ T for T in truth]
    )
    start[[2, 5]] = np.nan
    corners[2] = corners[5] = NONE
    found = seeded(images, start, CAMERA, corners, SETTINGS)
    again = seeded(images, start, CAMERA, corners, SETTINGS)
    assert found.registered.all()
    miss = np.linalg.norm(found.T_world_camera[:, :3, 3] - se3.inverse(truth)[:, :3, 3], axis=1)
    assert miss.max() < 0.003
    assert np.sqrt((corner_errors(found, corners) ** 2).mean()) < 0.35
    # Points lie on the table or the box, whose top is at 0.12 m.
    on_table = np.abs(found.points[:, :2]).max(axis=1) > 0.1
    assert on_table.sum() > 30
    assert np.median(np.abs(found.points[on_table, 2])) < 0.001
    lengths = np.linalg.norm(found.T_world_camera[:, :3, 3], axis=1)
    np.testing.assert_allclose(
        lengths, np.linalg.norm(se3.inverse(truth)[:, :3, 3], axis=1), rtol=0.004
    )
    assert "6 of 8 pictures, 2 more were placed" in found.notes[0]
    assert found.T_camera_world.tobytes() == again.T_camera_world.tobytes()
    assert found.points.tobytes() == again.points.tobytes()


def test_one_pose_is_too_few() -> None:
    """Two views are what triangulation needs."""
    images, poses, corners = capture()
    poses[1:] = np.nan
    with pytest.raises(InputError, match="1 of 4 pictures have a pose"):
        seeded(images[:4], poses[:4], CAMERA, corners[:4], SETTINGS)


def test_without_corners_nothing_fixes_the_scale() -> None:
    """Three distinct corners at least."""
    images, poses, _ = capture()
    with pytest.raises(InputError, match="the tags give 0 corners"):
        seeded(images[:3], poses[:3], CAMERA, [NONE] * 3, SETTINGS)


def test_a_lens_of_another_size_is_refused() -> None:
    """Sideways phones: the lens is for 240 x 320."""
    images, poses, corners = capture()
    with pytest.raises(InputError, match="the lens is for 240 x 320 px"):
        seeded(images[:3], poses[:3], CAMERA.scaled(240, 320), corners[:3], SETTINGS)


def test_lists_of_different_length_are_refused() -> None:
    """One pose and one list of corners per picture."""
    images, poses, corners = capture()
    with pytest.raises(InputError, match="3 pictures, but poses of shape"):
        seeded(images[:3], poses, CAMERA, corners, SETTINGS)
