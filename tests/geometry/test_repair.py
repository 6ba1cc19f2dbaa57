"""Meshes made solid: random implicit surfaces that are damaged in every way, and known cases."""

from __future__ import annotations

import numpy as np
import pytest
import trimesh
from hypothesis import given, settings
from hypothesis import strategies as st
from skimage.measure import marching_cubes

from twinloop.errors import InputError
from twinloop.geometry.distance import MeshDistance, surface_error, surface_points
from twinloop.geometry.mesh import mass_properties
from twinloop.geometry.repair import is_manifold, repair


def implicit_surface(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Zero level of a random sum of bumps and waves, closed at the border, wound outward."""
    rng = np.random.default_rng(seed)
    axes = np.stack(np.meshgrid(*[np.linspace(-1, 1, 16)] * 3, indexing="ij"), -1)
    field = np.full(axes.shape[:3], -0.5)
    for _ in range(int(rng.integers(1, 6))):
        centre, width = rng.uniform(-0.6, 0.6, 3), rng.uniform(0.15, 0.5)
        field += np.exp(-((axes - centre) ** 2).sum(-1) / width**2)
    field += rng.uniform(0, 0.3) * np.sin(axes @ rng.normal(size=3) * 9)
    field[8, 8, 8] = max(field[8, 8, 8], 0.3)
    field = np.pad(field, 1, constant_values=-1.0)
    vertices, faces, _, _ = marching_cubes(field, 0.0, gradient_direction="ascent")
    return vertices.astype(float) * 0.01, faces.astype(np.int64)


def check_solid(vertices: np.ndarray, faces: np.ndarray) -> None:
    """Closed, manifold, outward, one piece; another library agrees."""
    assert is_manifold(faces)
    assert mass_properties(vertices, faces).volume > 0
    solid = trimesh.Trimesh(vertices, faces, process=False)
    assert solid.is_watertight
    assert solid.is_winding_consistent
    assert solid.body_count == 1
    assert len(np.unique(vertices, axis=0)) == len(vertices)
    assert len(np.unique(faces)) == len(vertices)
    assert solid.euler_number % 2 == 0


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 10**6))
def test_damaged_implicit_surfaces_become_solid(seed: int) -> None:
    """Turned, missing, repeated, detached and unwelded faces are mended; the shape stays."""
    vertices, faces = implicit_surface(seed)
    whole = repair(vertices, faces)
    check_solid(whole.vertices, whole.faces)
    rng = np.random.default_rng(seed)
    broken = whole.faces.astype(np.int64)
    turned = rng.random(len(broken)) < 0.1
    broken[turned] = broken[turned][:, ::-1]
    lost = rng.random(len(broken)) < 0.02
    broken = broken[~lost]
    broken = np.concatenate([broken, broken[rng.integers(0, len(broken), 3)]])
    speck = len(whole.vertices) + np.array([[0, 1, 2], [0, 2, 3], [0, 3, 1], [1, 3, 2]])
    corners = np.concatenate([whole.vertices, 0.3 + 0.001 * rng.normal(size=(4, 3))])
    broken = rng.permutation(np.concatenate([broken, speck, [[5, 5, 6]]]))
    soup = corners[broken].reshape(-1, 3), np.arange(3 * len(broken)).reshape(-1, 3)
    found = repair(*soup)
    check_solid(found.vertices, found.faces)
    assert found.dropped >= 1
    volume = mass_properties(whole.vertices, whole.faces).volume
    assert mass_properties(found.vertices, found.faces).volume == pytest.approx(volume, rel=0.15)
    assert MeshDistance(whole.vertices, whole.faces).distance(found.vertices).max() < 0.01


def test_a_solid_comes_back_unchanged() -> None:
    """Same vertices and faces in the same order, nothing reported."""
    box = trimesh.creation.icosphere(2, 0.1)
    found = repair(box.vertices, box.faces)
    np.testing.assert_array_equal(found.vertices, box.vertices)
    np.testing.assert_array_equal(found.faces, box.faces)
    assert (found.holes, found.turned, found.split, found.dropped) == (0, 0, 0, 0)


def test_an_inside_out_mesh_is_turned() -> None:
    """Volume becomes positive."""
    box = trimesh.creation.box((0.1, 0.2, 0.3))
    found = repair(box.vertices, box.faces[:, ::-1])
    assert mass_properties(found.vertices, found.faces).volume == pytest.approx(0.006)


@pytest.mark.parametrize("touch", ["edge", "vertex"])
def test_solids_that_touch_are_cut_apart(touch: str) -> None:
    """Two cubes that share an edge or a corner are two solids; both are kept when asked."""
    one, two = trimesh.creation.box((1, 1, 1)), trimesh.creation.box((1, 1, 1))
    two.apply_translation((1, 1, 0 if touch == "edge" else 1))
    pair = trimesh.util.concatenate([one, two])
    pair.merge_vertices()
    assert not is_manifold(pair.faces)
    both = repair(pair.vertices, pair.faces, keep=0.5)
    assert both.split == (2 if touch == "edge" else 1)
    assert is_manifold(both.faces)
    assert len(np.unique(both.vertices, axis=0)) == 16
    assert mass_properties(both.vertices, both.faces).volume == pytest.approx(2, rel=0.02)
    single = repair(pair.vertices, pair.faces)
    assert len(single.faces) == 12
    assert single.dropped == 1


def test_holes_are_closed_flat_and_too_wide_ones_refused() -> None:
    """A box without its lid gets it back; the report says its area; a limit is kept."""
    box = trimesh.creation.box((0.1, 0.2, 0.3))
    open_faces = box.faces[box.face_normals[:, 2] < 0.5]
    found = repair(box.vertices, open_faces)
    assert found.holes == 1
    assert found.filled == pytest.approx(0.02)
    assert mass_properties(found.vertices, found.faces).volume == pytest.approx(0.006)
    with pytest.raises(InputError, match=r"4 edges, 0\.2 m wide"):
        repair(box.vertices, open_faces, widest_hole=0.15)


def test_pieces_inside_are_left_out() -> None:
    """A hollow is filled: the shell inside of a larger piece goes, one beside it stays."""
    outer, inner = trimesh.creation.icosphere(2, 1.0), trimesh.creation.icosphere(2, 0.7)
    beside = trimesh.creation.icosphere(2, 0.7)
    beside.apply_translation((2, 0, 0))
    mesh = trimesh.util.concatenate([outer, inner, beside])
    found = repair(mesh.vertices, mesh.faces, keep=0.1)
    assert found.dropped == 1
    assert mass_properties(found.vertices, found.faces).volume == pytest.approx(
        outer.volume + beside.volume
    )


def test_what_is_no_solid_is_refused() -> None:
    """NaN, indices out of range, and a flat sheet are named."""
    box = trimesh.creation.box((1, 1, 1))
    with pytest.raises(InputError, match="vertex 0"):
        repair(box.vertices * np.nan, box.faces)
    with pytest.raises(InputError, match="index 8"):
        repair(box.vertices, box.faces + 1)
    with pytest.raises(InputError, match="encloses no volume"):
        repair(np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0.0]]), np.array([[0, 1, 2], [0, 2, 1]]))


def test_distance_between_meshes_is_that_of_their_spheres() -> None:
    """Concentric spheres are one radius difference apart both ways; samples weigh by area."""
    small, large = trimesh.creation.icosphere(4, 0.09), trimesh.creation.icosphere(4, 0.1)
    error = surface_error(small.vertices, small.faces, large.vertices, large.faces, 0.002)
    assert error.mean == pytest.approx(0.01, rel=0.01)
    assert error.most == pytest.approx(0.01, rel=0.01)
    points, area = surface_points(large.vertices, large.faces, 0.003)
    assert area.sum() == pytest.approx(large.area)
    assert (area @ points) / area.sum() == pytest.approx(np.zeros(3), abs=1e-9)
