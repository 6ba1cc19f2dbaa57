"""Convex pieces of meshes."""

import numpy as np
import pytest
import trimesh
from scipy.spatial import ConvexHull

from twinloop.errors import InputError, MachineError
from twinloop.geometry.convex import _coacd, convex_parts


def test_a_convex_mesh_is_one_part_of_its_own_volume() -> None:
    """A capsule is kept whole, thinned to 64 vertices that fill most of it."""
    mesh = trimesh.creation.capsule(0.1, 0.03)
    parts = convex_parts(mesh.vertices, mesh.faces)
    assert len(parts) == 1
    assert len(parts[0]) <= 64
    assert ConvexHull(parts[0]).volume == pytest.approx(mesh.volume, rel=0.1)


def test_box_corners_survive() -> None:
    """A finely meshed box keeps its size."""
    mesh = trimesh.creation.box((0.1, 0.05, 0.08)).subdivide().subdivide().subdivide()
    (part,) = convex_parts(mesh.vertices, mesh.faces)
    assert ConvexHull(part).volume == pytest.approx(mesh.volume, rel=1e-9)


def test_an_l_shape_splits_the_same_way_twice() -> None:
    """CoACD splits an L into pieces that cover it, and the same ones each time."""
    profile = [(0, 0), (0.08, 0), (0.08, 0.03), (0.03, 0.03), (0.03, 0.1), (0, 0.1)]
    fan = [(0, 1, 2), (0, 2, 3), (0, 3, 4), (0, 4, 5)]
    mesh = trimesh.creation.extrude_triangulation(np.array(profile), np.array(fan), 0.04)
    parts = convex_parts(mesh.vertices, mesh.faces)
    again = convex_parts(mesh.vertices, mesh.faces)
    assert 2 <= len(parts) <= 6
    total = sum(ConvexHull(p).volume for p in parts)
    assert total == pytest.approx(mesh.volume, rel=0.1)
    for a, b in zip(parts, again, strict=True):
        np.testing.assert_array_equal(a, b)


def test_failure_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CoACD that dies ends in an error that says so, and a torn mesh is refused before."""
    vertices = np.random.default_rng(0).normal(size=(6, 3))
    with pytest.raises(InputError, match="index 9"):
        convex_parts(vertices, np.array([[0, 1, 2], [2, 3, 9]]))
    monkeypatch.setattr("twinloop.geometry.convex.sys.executable", "/bin/false")
    with pytest.raises(MachineError, match="CoACD ended with code"):
        _coacd(vertices, np.array([[0, 1, 2], [2, 3, 4]]), 0.05, 4, 0)
