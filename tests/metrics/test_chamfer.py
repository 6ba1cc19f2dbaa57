"""Distances between surfaces with known answers."""

import numpy as np
import pytest
import trimesh

from twinloop.errors import InputError
from twinloop.geometry import se3
from twinloop.geometry.surface import TriangleSurface
from twinloop.metrics.chamfer import chamfer_distance, fit_rigid, refine_rigid, sample_surface


def _surface(mesh):
    return TriangleSurface(mesh.vertices, mesh.faces), sample_surface(
        mesh.vertices, mesh.faces, 800, 3
    )


def test_same_surface_has_no_distance():
    """Samples of one surface are at distance 0 from it: no floor from the sampling."""
    surface, points = _surface(trimesh.creation.box((0.1, 0.06, 0.08)))
    assert chamfer_distance(points, surface, points[::-1], surface).mean < 1e-12


def test_concentric_spheres_are_their_radii_apart():
    """Chamfer distance of two spheres is the difference of their radii, but for the facets."""
    small, a = _surface(trimesh.creation.icosphere(4, 0.030))
    large, b = _surface(trimesh.creation.icosphere(4, 0.033))
    result = chamfer_distance(a, small, b, large)
    assert result.mean == pytest.approx(0.003, abs=5e-5)


def test_samples_are_uniform_by_area():
    """Each side of a box gets its share of the points."""
    mesh = trimesh.creation.box((0.1, 0.06, 0.08))
    points = sample_surface(mesh.vertices, mesh.faces, 20000, 0)
    top = np.mean(np.abs(points[:, 2]) > 0.04 - 1e-9)
    assert top == pytest.approx(0.006 / (0.006 + 0.0048 + 0.008), abs=0.01)


def test_rigid_fit_finds_a_small_motion():
    """ICP undoes a rotation of 3 degrees and a shift of 2 mm of a box."""
    surface, points = _surface(trimesh.creation.box((0.1, 0.06, 0.08)))
    motion = se3.exp(np.array([0.002, -0.001, 0.001, 0.02, -0.03, 0.04]))
    found = refine_rigid(se3.apply(motion, points), surface, iterations=60)
    assert np.abs(found @ motion - np.eye(4)).max() < 2e-3


def test_fit_of_pairs_is_exact_and_never_mirrors():
    """Paired points give the motion back; a mirror image is answered by a rotation."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(20, 3))
    motion = se3.exp(np.array([0.3, -0.2, 0.1, 0.5, 0.4, -1.2]))
    assert fit_rigid(points, se3.apply(motion, points)) == pytest.approx(motion, abs=1e-9)
    assert np.linalg.det(fit_rigid(points, points * [-1, 1, 1])[:3, :3]) == pytest.approx(1.0)


def test_mesh_without_area_is_refused():
    """A degenerate mesh cannot be sampled; the message says so."""
    with pytest.raises(InputError, match="surface area"):
        sample_surface(np.zeros((3, 3)), np.array([[0, 1, 2]]), 10, 0)
