"""Quaternions, SE(3), cameras and mass properties against closed forms and OpenCV."""

import cv2
import numpy as np
import trimesh
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from twinloop.geometry import camera, mesh, quaternion, se3

SEEDS = st.integers(0, 2**32 - 1)


@given(SEEDS)
@settings(max_examples=30, deadline=None)
def test_quaternions_agree_with_scipy(seed):
    """Product, matrix and both conversions agree with SciPy's rotations."""
    rng = np.random.default_rng(seed)
    a, b = quaternion.normalize(rng.normal(size=(2, 7, 4)))
    scipy_a = Rotation.from_quat(a, scalar_first=True)
    scipy_b = Rotation.from_quat(b, scalar_first=True)
    product = quaternion.to_matrix(quaternion.multiply(a, b))
    np.testing.assert_allclose(product, (scipy_a * scipy_b).as_matrix(), atol=1e-12)
    np.testing.assert_allclose(quaternion.from_matrix(scipy_a.as_matrix()), a, atol=1e-12)
    np.testing.assert_allclose(quaternion.to_rotvec(a), scipy_a.as_rotvec(), atol=1e-9)
    np.testing.assert_allclose(quaternion.from_rotvec(quaternion.to_rotvec(a)), a, atol=1e-12)


def test_from_matrix_at_half_turns():
    """Half turns, where the naive formula divides by zero, come back right."""
    for axis in np.vstack([np.eye(3), np.ones(3) / np.sqrt(3)]):
        matrix = 2 * np.outer(axis, axis) - np.eye(3)
        np.testing.assert_allclose(
            quaternion.to_matrix(quaternion.from_matrix(matrix)), matrix, atol=1e-12
        )


@given(SEEDS, st.floats(1e-9, 3.0))
@settings(max_examples=30, deadline=None)
def test_se3_group_axioms_and_exp_log(seed, size):
    """Inverse, associativity, and exp/log as inverses from tiny to large twists."""
    rng = np.random.default_rng(seed)
    twist = rng.normal(size=(3, 6))
    twist[:, 3:] *= size / np.linalg.norm(twist[:, 3:], axis=1, keepdims=True)
    a, b, c = se3.exp(twist)
    np.testing.assert_allclose(a @ se3.inverse(a), np.eye(4), atol=1e-12)
    np.testing.assert_allclose((a @ b) @ c, a @ (b @ c), atol=1e-10)
    np.testing.assert_allclose(se3.log(se3.exp(twist)), twist, atol=1e-7)
    points = rng.normal(size=(5, 3))
    np.testing.assert_allclose(
        se3.apply(a, se3.apply(b, points)), se3.apply(a @ b, points), atol=1e-9
    )
    p, q = se3.to_position_quaternion(a)
    np.testing.assert_allclose(se3.from_position_quaternion(p, q), a, atol=1e-12)


def test_slerp_turns_at_constant_rate():
    """Half way between 0 and 90 degrees is 45, and outside the knots the ends hold."""
    ends = quaternion.from_rotvec([[0, 0, 0], [0, 0, np.pi / 2]])
    middle = quaternion.slerp([-1.0, 0.25, 0.5, 9.0], [0.0, 1.0], ends)
    yaw = quaternion.to_rotvec(middle)[:, 2]
    np.testing.assert_allclose(yaw, [0, np.pi / 8, np.pi / 4, np.pi / 2], atol=1e-12)


@given(SEEDS)
@settings(max_examples=20, deadline=None)
def test_projection_agrees_with_opencv(seed):
    """Projection with lens distortion equals cv2.projectPoints."""
    rng = np.random.default_rng(seed)
    points = rng.uniform(-0.3, 0.3, (20, 3)) + [0, 0, 1.0]
    intrinsics = np.array([500.0, 510, 320, 240])
    distortion = np.array([-0.1, 0.02, 0.001, -0.002, 0.003])
    T = se3.exp(rng.normal(size=6) * 0.1)
    expected, _ = cv2.projectPoints(
        points, cv2.Rodrigues(T[:3, :3])[0], T[:3, 3], camera.matrix(intrinsics), distortion
    )
    found = camera.project(points, intrinsics, T, distortion)
    np.testing.assert_allclose(found, np.asarray(expected).reshape(-1, 2), atol=1e-8)


def test_look_at_puts_the_target_on_the_axis_with_up_up():
    """The target lies ahead, and world up points up in the picture (y down)."""
    T = camera.look_at([1.0, 2.0, 3.0], [0.0, 0.5, 0.1])
    inside = se3.apply(se3.inverse(T), np.array([[0.0, 0.5, 0.1], [0.0, 0.5, 0.2]]))
    np.testing.assert_allclose(inside[0, :2], 0, atol=1e-12)
    assert inside[0, 2] > 0
    assert inside[1, 1] < 0
    np.testing.assert_allclose(np.linalg.det(T), 1, atol=1e-12)


def test_mass_properties_of_box_and_offset_sphere():
    """A box exactly; a finely tessellated sphere within its facets' error, off the origin."""
    box = trimesh.creation.box((0.1, 0.2, 0.3))
    box.apply_translation((1.0, -2.0, 0.5))
    found = mesh.mass_properties(box.vertices, box.faces)
    np.testing.assert_allclose(found.volume, 0.006, rtol=1e-10)
    np.testing.assert_allclose(found.centroid, [1, -2, 0.5], atol=1e-12)
    expected = 0.006 / 12 * np.diag([0.2**2 + 0.3**2, 0.1**2 + 0.3**2, 0.1**2 + 0.2**2])
    np.testing.assert_allclose(found.inertia, expected, atol=1e-12)
    ball = trimesh.creation.icosphere(5, 0.1)
    found = mesh.mass_properties(ball.vertices + [3, 0, 0], ball.faces)
    np.testing.assert_allclose(found.volume, 4 / 3 * np.pi * 1e-3, rtol=2e-3)
    np.testing.assert_allclose(np.diag(found.inertia) / found.volume, 0.4 * 0.01, rtol=3e-3)
