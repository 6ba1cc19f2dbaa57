"""Distance to a mesh against the closed form of a box."""

import numpy as np
import pytest
import trimesh
from hypothesis import given, settings
from hypothesis import strategies as st

from twinloop.errors import InputError
from twinloop.geometry.distance import check_mesh
from twinloop.geometry.surface import TriangleSurface, closest_on_triangles

HALF = np.array([0.05, 0.0275, 0.0425])
BOX = trimesh.creation.box(2 * HALF)
SURFACE = TriangleSurface(BOX.vertices, BOX.faces)


def box_distance(points):
    """Signed distance of a box centred at the origin."""
    q = np.abs(points) - HALF
    return np.linalg.norm(np.maximum(q, 0), axis=1) + np.minimum(q.max(axis=1), 0)


def test_signed_distance_equals_the_closed_form_of_a_box():
    """Inside, outside, beyond edges and corners."""
    points = np.random.default_rng(0).uniform(-0.12, 0.12, (600, 3))
    distance, _ = SURFACE.signed_distance(points)
    assert distance == pytest.approx(box_distance(points), abs=1e-12)


def test_gradient_is_the_derivative_of_the_distance():
    """Central differences agree away from the medial axis."""
    points = np.random.default_rng(1).uniform(-0.12, 0.12, (60, 3))
    points = points[np.abs(box_distance(points)) > 2e-3]
    points = points[box_distance(points) > 0]
    _, gradient = SURFACE.signed_distance(points)
    step = 1e-6
    for axis in range(3):
        move = step * np.eye(3)[axis]
        slope = (
            (SURFACE.signed_distance(points + move)[0]) - SURFACE.signed_distance(points - move)[0]
        )
        assert slope / (2 * step) == pytest.approx(gradient[:, axis], abs=1e-5)


def test_winding_number_tells_inside_from_outside():
    """1 inside, 0 outside a closed mesh."""
    inside = SURFACE.winding_number(np.array([[0.0, 0.0, 0.0], [0.049, 0.027, 0.042]]))
    outside = SURFACE.winding_number(np.array([[0.0, 0.0, 0.0426], [0.2, 0.0, 0.0]]))
    assert inside == pytest.approx(1.0)
    assert outside == pytest.approx(0.0, abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_closest_point_on_a_triangle_beats_all_its_samples(seed):
    """No sampled point of the triangle is nearer than the answer, which lies on the triangle."""
    rng = np.random.default_rng(seed)
    triangle, point = rng.normal(size=(3, 3)), rng.normal(size=3) * 2
    near = closest_on_triangles(point[None], triangle[None])[0]
    weights = rng.dirichlet(np.ones(3), 300)
    weights[:3] = np.eye(3)
    samples = weights @ triangle
    assert np.linalg.norm(near - point) <= np.linalg.norm(samples - point, axis=1).min() + 1e-12
    solved = np.linalg.lstsq(np.vstack([triangle.T, np.ones(3)]), np.r_[near, 1.0], rcond=None)[0]
    assert solved.min() > -1e-6
    assert solved @ triangle == pytest.approx(near, abs=1e-6)


def test_bad_meshes_are_refused():
    """No faces, indices out of range and infinite vertices are named."""
    with pytest.raises(InputError, match="at least one face"):
        TriangleSurface(np.zeros((3, 3)), np.zeros((0, 3), dtype=int))
    with pytest.raises(InputError, match="finite"):
        TriangleSurface(np.full((3, 3), np.inf), np.array([[0, 1, 2]]))


@pytest.mark.parametrize("wrong", [-5, 4, 10**8])
def test_indices_of_no_vertex_are_named(wrong: int) -> None:
    """Also one below zero, which is not the largest."""
    faces = np.array([[0, 1, 2], [0, 3, wrong]], np.int32)
    with pytest.raises(InputError, match=rf"2 faces with index {wrong} over 4 vertices"):
        check_mesh(np.eye(4)[:, :3].copy(), faces)
