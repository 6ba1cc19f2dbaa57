"""Windows, rest poses and force bins of a push."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import trimesh
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.physics import world
from twinloop.errors import InputError
from twinloop.physics.record import WindowSettings, _bin_mean, cut_window, upright_rotation
from twinloop.physics.shape import collision_shape

DOWN = np.array([0.0, 0.0, -1.0])


@pytest.fixture(scope="module")
def push():
    """One tap of a box, and its shape."""
    hidden = world.hidden_object([0.04, 0.03, 0.04], 0.2, seed=2)
    mesh = trimesh.creation.box(2 * hidden.half)
    shape = collision_shape(
        np.asarray(mesh.vertices, float), np.asarray(mesh.faces, np.int32), DOWN, cells=24
    )
    return world.run_push(hidden, "tap", 1, 0.3, seed=4), shape


@settings(max_examples=30, deadline=None)
@given(st.integers(3, 40), st.integers(0, 10_000))
def test_bins_keep_the_impulse(count, seed):
    """Bin means times widths add up to the integral of the signal."""
    rng = np.random.default_rng(seed)
    time = np.cumsum(rng.uniform(0.001, 0.01, count))
    value = rng.normal(size=(count, 3))
    edges = np.sort(rng.uniform(time[0], time[-1], 5))
    edges[[0, -1]] = time[0], time[-1]
    edges = np.unique(edges)
    total = (_bin_mean(time, value, edges) * np.diff(edges)[:, None]).sum(axis=0)
    np.testing.assert_allclose(total, np.trapezoid(value, time, axis=0), atol=1e-9)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-1, 1), min_size=3, max_size=3), st.floats(-3, 3))
def test_upright_rotation_puts_down_along_gravity(direction, yaw):
    """Whatever the rest direction, the result maps it to -z, and yaw adds a turn about z."""
    down = np.array(direction) + [0.0, 0.0, 1e-3]
    down /= np.linalg.norm(down)
    R = upright_rotation(down, yaw)
    np.testing.assert_allclose(R @ down, [0, 0, -1], atol=1e-9)
    np.testing.assert_allclose(R.T @ R, np.eye(3), atol=1e-9)
    turned = R @ upright_rotation(down, 0.0).T
    np.testing.assert_allclose(turned[:2, 0], [np.cos(yaw), np.sin(yaw)], atol=1e-9)


def test_window_finds_contact_and_rest_pose(push):
    """The window starts before contact, rests where the object stood, and keeps the force."""
    record, shape = push
    window = cut_window(record, shape, WindowSettings())
    touch = record.robot_time[np.argmax(np.abs(record.contact_force[:, 0]) > 0.5)]
    assert window.start == pytest.approx(touch - 0.3, abs=0.02)
    assert abs(window.rest_yaw - np.pi / 2) < 0.01
    np.testing.assert_allclose(window.rest_position[:2], 0.0, atol=1e-3)
    assert np.abs(window.force[:, 0]).max() > 0.5
    assert window.frame_time.max() < window.steps * WindowSettings().dt
    assert np.linalg.norm(window.translation[-1]) > 0.005


def test_tip_over_ends_the_window(push):
    """Frames after the object has tipped past the limit are left out."""
    record, shape = push
    tipped = record.quaternion.copy()
    late = record.frame_time > record.frame_time[-1] - 0.5
    tipped[late] = [np.cos(0.6), np.sin(0.6), 0.0, 0.0]
    settings_ = WindowSettings(longest=10.0)
    window = cut_window(replace(record, quaternion=tipped), shape, settings_)
    end = record.frame_time[np.argmax(late)] + record.clock_offset
    assert window.start + window.steps * settings_.dt <= end + 1e-9


def test_refuses_bad_logs(push):
    """Repeated time stamps, NaN forces and an invisible object are refused by name."""
    record, shape = push
    time = record.robot_time.copy()
    time[50] = time[49]
    with pytest.raises(InputError, match="increasing"):
        cut_window(replace(record, robot_time=time), shape, WindowSettings())
    force = record.contact_force.copy()
    force[7, 1] = np.nan
    with pytest.raises(InputError, match=r"contact_force\[7\]"):
        cut_window(replace(record, contact_force=force), shape, WindowSettings())
    unseen = np.zeros_like(record.usable)
    with pytest.raises(InputError, match="no usable frame"):
        cut_window(replace(record, usable=unseen), shape, WindowSettings())
