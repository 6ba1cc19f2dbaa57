"""The static camera: what it sees, when it exposes, when it blurs."""

from __future__ import annotations

import numpy as np
import pytest

from tests.lab.tags import tag_corners
from twinloop.geometry import se3
from twinloop.lab.film import FilmSettings, blur_renders, frame_times, set_up


@pytest.mark.parametrize(
    "size", [(0.1, 0.055, 0.085), (0.03, 0.05, 0.14), (0.062, 0.097, 0.252), (0.25, 0.05, 0.045)]
)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_camera_sees_board_and_object(size: tuple[float, float, float], seed: int) -> None:
    """Nearly all tags and the whole object, also moved by 6 cm, lie in the picture."""
    settings = FilmSettings()
    stage = set_up(np.array(size), settings, np.random.default_rng(seed))
    corners = np.concatenate([tag_corners(tag) for tag in stage.layout.tags])
    world = se3.apply(stage.T_world_board, corners)
    pixels = stage.camera.project(world, stage.T_world_camera)
    limit = [settings.width - 1, settings.height - 1]
    inside = ((pixels > 0) & (pixels < limit)).all(axis=1)
    assert inside.reshape(-1, 4).all(axis=1).mean() > 0.75
    half = 0.5 * float(np.linalg.norm(size[:2]))
    box = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (0, 1)], dtype=float)
    box = box * [half, half, size[2]]
    for shift in (-0.06, 0.0, 0.06):
        pixels = stage.camera.project(box + [shift, 0.0, 0.0], stage.T_world_camera)
        assert ((pixels > 0) & (pixels < limit)).all()


def test_frames_come_on_the_grid_and_some_are_dropped() -> None:
    """Stamps rise, are whole ticks of 1/90000 s, and the share of gaps is the declared one."""
    times = frame_times(20.0, 60.0, 0.1, np.random.default_rng(0))
    ticks = times * 90000
    np.testing.assert_allclose(ticks, np.round(ticks), atol=1e-6)
    steps = np.diff(times)
    assert steps.min() > 0.9 / 60
    assert len(times) / (20.0 * 60) == pytest.approx(0.9, abs=0.03)
    assert len(frame_times(1.0, 60.0, 0.0, np.random.default_rng(0))) in (57, 58, 59)


def test_only_motion_is_blurred() -> None:
    """A still exposure needs one render, a moving one all of them."""
    still = np.zeros(27)
    moving = still + 1e-3
    assert blur_renders(still, still, 4) == 1
    assert blur_renders(still, moving, 4) == 4
