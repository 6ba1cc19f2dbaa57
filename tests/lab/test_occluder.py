"""The arm that hides the object for a moment: where it is, when, and that it touches nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twinloop.geometry import quaternion
from twinloop.lab.film import FilmSettings, set_up
from twinloop.lab.occluder import OccluderSettings, Sweep, add_occluder, half_width, sweep_past

import mujoco  # isort: skip

SIZE = np.array([0.1, 0.055, 0.085])


def _sweep(seed: int, options: OccluderSettings) -> tuple[Sweep, np.ndarray, np.ndarray, float]:
    """Sweep, target, eye pose and half view of a filmed table."""
    rng = np.random.default_rng(seed)
    stage = set_up(SIZE, FilmSettings(), rng)
    target = np.array([*rng.uniform(-0.03, 0.03, 2), 0.5 * SIZE[2]])
    view = 0.5 * stage.camera.width / stage.camera.intrinsics[0]
    sweep = sweep_past(target, SIZE, stage.T_world_camera, view, options, 1.0, rng)
    return sweep, target, stage.T_world_camera, view


@given(seed=st.integers(0, 10_000), aside=st.floats(0, 1.0))
@settings(max_examples=40, deadline=None)
def test_it_hides_the_object_while_it_dwells(seed: int, aside: float) -> None:
    """The line of sight to the object's middle passes the arm's axis at less than its radius."""
    options = OccluderSettings(aside=aside)
    sweep, target, T, _ = _sweep(seed, options)
    for moment in (1.0, 1.0 - 0.49 * options.dwell, 1.0 + 0.49 * options.dwell):
        place = sweep(np.array([moment]))[0]
        axis = quaternion.to_matrix(place[3:])[:, 2]
        sight = (target - T[:3, 3]) / np.linalg.norm(target - T[:3, 3])
        normal = np.cross(axis, sight)
        gap = abs((place[:3] - T[:3, 3]) @ normal) / np.linalg.norm(normal)
        assert gap < options.width * options.reach * half_width(SIZE)
        # In front of the object: nearer to the camera than its ball.
        nearest = (place[:3] - T[:3, 3]) @ sight
        assert nearest < np.linalg.norm(target - T[:3, 3]) - 0.5 * np.linalg.norm(SIZE)


@given(seed=st.integers(0, 10_000))
@settings(max_examples=20, deadline=None)
def test_it_comes_from_out_of_view_and_leaves(seed: int) -> None:
    """Before and after its sweep the arm's axis is beside the picture, by more than its radius."""
    options = OccluderSettings()
    sweep, _, T, view = _sweep(seed, options)
    radius = options.width * options.reach * half_width(SIZE)
    whole = 0.5 * options.dwell + options.travel
    before, after = sweep(np.array([1.0 - whole, 1.0 + whole]))
    for place in (before, after):
        axis = T[:3, :3].T @ quaternion.to_matrix(place[3:])[:, 2]
        x, y, z = T[:3, :3].T @ (place[:3] - T[:3, 3])
        # Where the axis crosses the picture's top and bottom edge (3 : 4 of its width).
        for edge in (-0.75 * view, 0.75 * view):
            along = (edge * z - y) / (axis[1] - edge * axis[2])
            depth = z + along * axis[2]
            assert abs(x + along * axis[0]) > view * depth + radius
    assert np.sign(sweep.side @ (before[:3] - sweep.middle)) == -1.0
    assert np.sign(sweep.side @ (after[:3] - sweep.middle)) == 1.0


def test_its_motion_is_continuous() -> None:
    """No jump between instants a millisecond apart: at most 1.5 x the mean speed, and a drift."""
    options = OccluderSettings()
    sweep, *_ = _sweep(3, options)
    path = sweep(np.arange(0.0, 2.0, 0.001))[:, :3]
    step = np.linalg.norm(np.diff(path, axis=0), axis=1)
    assert step.max() < 1.6 * np.linalg.norm(sweep.side) / options.travel * 0.001


def test_the_body_is_drawn_but_touches_nothing() -> None:
    """Its shapes collide with nothing and weigh nothing; the state of the scene stays the same."""
    spec = mujoco.MjSpec()
    add_occluder(spec, OccluderSettings(), SIZE, 0)
    model = spec.compile()
    assert model.nq == 0
    assert model.nmocap == 1
    assert not model.geom_contype.any()
    assert not model.geom_conaffinity.any()
    radius = OccluderSettings().width * OccluderSettings().reach * half_width(SIZE)
    assert model.geom_size[:, 0].max() == pytest.approx(radius)
