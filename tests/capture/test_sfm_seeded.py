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
    """Six pictures over 14 degrees (15 cm at 0.7 m), poses T_camera_world, corners with noise."""
    poses = se3.inverse(orbit(6, 14))
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
    first = np.stack(
        [se3.exp(np.r_[rng.normal(0, 0.004, 3), rng.normal(0, 0.007, 3)]) @ T for T in truth]
    )
    first[[2, 4]] = np.nan
    corners[2] = corners[4] = NONE
    found = seeded(images, first, CAMERA, corners, SETTINGS)
    again = seeded(images, first, CAMERA, corners, SETTINGS)
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
    assert "4 of 6 pictures, 2 more were placed" in found.notes[0]
    assert found.T_camera_world.tobytes() == again.T_camera_world.tobytes()
    assert found.points.tobytes() == again.points.tobytes()


def start(count: int) -> tuple[np.ndarray, list[tuple[np.ndarray, np.ndarray]]]:
    """Poses and exact corners."""
    poses = se3.inverse(orbit(count, 14))
    return poses, [(PRINT, CAMERA.project(se3.apply(T, PRINT))) for T in poses]


def test_one_pose_is_too_few() -> None:
    """Two views are what triangulation needs; said before a picture is read."""
    poses, corners = start(4)
    poses[1:] = np.nan
    with pytest.raises(InputError, match="1 of 4 pictures have a pose"):
        seeded(iter(()), poses, CAMERA, corners, SETTINGS)


def test_without_corners_nothing_fixes_the_scale() -> None:
    """Three distinct corners at least."""
    with pytest.raises(InputError, match="the tags give 0 corners"):
        seeded(iter(()), start(3)[0], CAMERA, [NONE] * 3, SETTINGS)


def test_a_lens_of_another_size_is_refused() -> None:
    """Sideways phones: the lens is for 240 x 320."""
    blank = [np.full((240, 320), 90, np.uint8)] * 3
    with pytest.raises(InputError, match="the lens is for 240 x 320 px"):
        seeded(blank, start(3)[0], CAMERA.scaled(240, 320), start(3)[1], SETTINGS)


def test_lists_of_different_length_are_refused() -> None:
    """One pose and one list of corners per picture."""
    blank = [np.full((240, 320), 90, np.uint8)] * 3
    with pytest.raises(InputError, match="those of 3 pictures"):
        seeded(blank, start(4)[0], CAMERA, start(3)[1], SETTINGS)
    with pytest.raises(InputError, match="3 pictures, but 4 poses"):
        seeded(blank, start(4)[0], CAMERA, start(4)[1], SETTINGS)
