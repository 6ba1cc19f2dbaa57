"""Body frame, support points and signed distances of a mesh."""

from __future__ import annotations

import numpy as np
import pytest
import trimesh
from scipy.spatial.transform import Rotation

from twinloop.errors import InputError
from twinloop.geometry.sdf import bake
from twinloop.physics.shape import collision_shape

DOWN = np.array([0.0, 0.0, -1.0])


def arrays(mesh):
    """Vertices and faces of a trimesh."""
    return np.asarray(mesh.vertices, float), np.asarray(mesh.faces, np.int32)


def test_distance_of_a_sphere():
    """The grid of a sphere gives |p| - r and radial gradients, to the grid's resolution."""
    grid = bake(*arrays(trimesh.creation.icosphere(4, 0.04)), margin=0.02, cells=48)
    rng = np.random.default_rng(0)
    points = rng.normal(size=(200, 3))
    points *= (rng.uniform(0.035, 0.055, 200) / np.linalg.norm(points, axis=1))[:, None]
    distance, gradient = grid.sample(points)
    radius = np.linalg.norm(points, axis=1)
    np.testing.assert_allclose(distance, radius - 0.04, atol=3e-4)
    direction = gradient / np.linalg.norm(gradient, axis=1, keepdims=True)
    assert (np.einsum("ij,ij->i", direction, points / radius[:, None]) > 0.99).all()
    assert np.isinf(grid.sample(np.array([[1.0, 0.0, 0.0]]))[0]).all()


def test_gradient_is_the_derivative():
    """Inside a cell the sampled gradient equals finite differences of the sampled value."""
    grid = bake(*arrays(trimesh.creation.box([0.1, 0.06, 0.08])), margin=0.02, cells=24)
    points = np.random.default_rng(1).uniform(-0.045, 0.045, (50, 3))
    _, gradient = grid.sample(points)
    for axis in range(3):
        step = np.zeros(3)
        step[axis] = 1e-9
        change = (grid.sample(points + step)[0] - grid.sample(points - step)[0]) / 2e-9
        np.testing.assert_allclose(gradient[:, axis], change, atol=1e-5)


def test_uniform_box_extents_and_axes():
    """Extents of a turned box are half sizes over sqrt 3, about its own axes."""
    size = np.array([0.10, 0.06, 0.08])
    mesh = trimesh.creation.box(size)
    R = Rotation.from_euler("z", 25, degrees=True).as_matrix()
    vertices, faces = arrays(mesh)
    shape = collision_shape(vertices @ R.T, faces, DOWN)
    np.testing.assert_allclose(shape.extent, size / np.sqrt(12), rtol=1e-9)
    np.testing.assert_allclose(np.abs(shape.R_object_body.T @ R), np.eye(3), atol=1e-9)
    assert np.linalg.det(shape.R_object_body) == pytest.approx(1.0)
    assert shape.volume == pytest.approx(size.prod())


def test_distances_turn_with_the_body_frame():
    """Of a turned mesh: the grid stays in the object frame, points and gradients are the body's."""
    size = np.array([0.10, 0.06, 0.08])
    vertices, faces = arrays(trimesh.creation.box(size))
    R = Rotation.from_euler("zyx", [25, 15, -10], degrees=True).as_matrix()
    grid = bake(vertices @ R.T, faces, margin=0.02, cells=48)
    shape = collision_shape(vertices @ R.T, faces, R @ DOWN, grid=grid)
    assert shape.grid is grid
    points = np.random.default_rng(2).uniform(-1, 1, (60, 3)) * [0.06, 0.02, 0.03]
    points[:, 0] = 0.05 + np.abs(points[:, 0]) / 10  # before the +x face of the body
    distance, gradient = shape.sample(points)
    np.testing.assert_allclose(distance, points[:, 0] - 0.05, atol=1e-7)
    np.testing.assert_allclose(gradient, np.tile([1.0, 0.0, 0.0], (60, 1)), atol=1e-5)
    anywhere = np.random.default_rng(3).uniform(-0.055, 0.055, (60, 3))
    _, gradient = shape.sample(anywhere)
    step = 1e-8 * np.eye(3)
    slopes = [(shape.sample(anywhere + h)[0] - shape.sample(anywhere - h)[0]) / 2e-8 for h in step]
    inside_a_cell = np.abs(np.stack(slopes, 1) - gradient).max(axis=1) < 1e-5
    assert inside_a_cell.mean() > 0.95


def test_footprint_carries_the_load_once():
    """Load shares on the table sum to one at any spread; the edge radius moves corners inward."""
    shape = collision_shape(*arrays(trimesh.creation.box([0.10, 0.06, 0.08])), DOWN)
    lowest = np.isclose(shape.points[:, 2], -0.04)
    resting = lowest & (np.isclose(shape.rounding[:, 2], 0.0))
    for spread in (0.0, 0.4, 1.0):
        share = shape.weight + spread * shape.weight_spread
        assert share[resting].sum() == pytest.approx(1.0)
    corner = np.argmax(shape.points @ [1.0, 1.0, -1.0])
    moved = shape.points[corner] + 0.004 * shape.rounding[corner]
    np.testing.assert_allclose(moved, [0.046, 0.026, -0.04], atol=1e-12)
    arc = shape.points + 0.004 * shape.rounding
    centre = np.array([0.046, 0.026, -0.036])
    edge = np.isclose(shape.points, [0.05, 0.03, -0.04]).all(axis=1)
    across = (arc[edge] - centre) / [1.0, 1.0, 1.0]
    np.testing.assert_allclose(np.hypot(across[:, 0], across[:, 2]), 0.004, atol=1e-12)


def test_cost_does_not_depend_on_vertices():
    """A finer mesh of the same body gives about as many support points."""
    mesh = trimesh.creation.cylinder(0.03, 0.08, sections=24)
    fine = mesh.subdivide().subdivide()
    few, many = (collision_shape(*arrays(m), DOWN) for m in (mesh, fine))
    assert len(many.points) <= len(few.points) + 30
    np.testing.assert_allclose(many.extent, few.extent, rtol=1e-9)


def test_refuses_open_and_inverted_meshes():
    """A mesh turned inside out and one without faces are refused."""
    vertices, faces = arrays(trimesh.creation.box([0.1, 0.1, 0.1]))
    with pytest.raises(InputError, match="outward"):
        collision_shape(vertices, faces[:, ::-1], DOWN)
    with pytest.raises(InputError, match="expected triangles"):
        bake(vertices, faces[:0], margin=0.01, cells=16)
