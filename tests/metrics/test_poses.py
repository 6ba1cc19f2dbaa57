"""Pose errors with known answers."""

import numpy as np
import pytest

from twinloop.geometry import se3
from twinloop.metrics.poses import average_distance, interpolate_poses, rotation_angle


def test_add_of_a_shift_is_its_length():
    """A pure translation moves every point by the same distance."""
    points = np.random.default_rng(0).normal(size=(50, 3))
    moved = np.eye(4)
    moved[:3, 3] = [0.003, 0.0, 0.004]
    assert average_distance(moved, np.eye(4), points) == pytest.approx(0.005)


def test_add_of_a_small_turn_is_the_mean_radius_times_the_angle():
    """A turn about z by a small angle moves a point by its distance to the axis times the angle."""
    points = np.random.default_rng(1).normal(size=(500, 3))
    turn = se3.exp(np.array([0, 0, 0, 0, 0, 1e-4]))
    radius = np.hypot(points[:, 0], points[:, 1]).mean()
    assert average_distance(turn, np.eye(4), points) == pytest.approx(1e-4 * radius, rel=1e-4)


@pytest.mark.parametrize("angle", [0.0, 1e-9, 0.3, 2.0, np.pi - 1e-6])
def test_rotation_angle(angle):
    """The angle of a rotation about any axis comes back, tiny ones too."""
    axis = np.array([0.6, 0.0, 0.8])
    rotation = se3.exp(np.r_[np.zeros(3), axis * angle])[:3, :3]
    assert rotation_angle(rotation) == pytest.approx(angle, abs=1e-9)


def test_interpolation_follows_a_constant_twist_about_a_fixed_axis():
    """Between two poses the rotation runs along the geodesic, the position along the line."""
    times = np.array([0.0, 1.0])
    poses = np.stack([np.eye(4), se3.exp(np.array([0, 0, 0, 0, 0, 1.2]))])
    poses[1, :3, 3] = [0.1, 0.0, 0.0]
    middle = interpolate_poses(times, poses, np.array([0.25, 2.0]))
    assert rotation_angle(middle[0, :3, :3]) == pytest.approx(0.3)
    assert middle[0, :3, 3] == pytest.approx([0.025, 0, 0])
    assert middle[1] == pytest.approx(poses[1])
