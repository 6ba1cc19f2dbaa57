"""Decimation: the error that it states is kept, and the mesh stays solid."""

from __future__ import annotations

import numpy as np
import pytest
import trimesh
from skimage.measure import marching_cubes

from twinloop.errors import InputError
from twinloop.geometry.decimate import decimate
from twinloop.geometry.mesh import mass_properties
from twinloop.geometry.repair import is_manifold, repair
from twinloop.geometry.surface import TriangleSurface


@pytest.fixture(scope="module")
def knot() -> tuple[np.ndarray, np.ndarray]:
    """Two fat rings through each other and a plate, 12 cm, of marching cubes."""
    x, y, z = np.meshgrid(*[np.linspace(-1, 1, 32)] * 3, indexing="ij")
    one = 0.16 - np.sqrt((np.hypot(x + 0.2, y) - 0.5) ** 2 + z**2)
    two = 0.16 - np.sqrt((np.hypot(x - 0.2, z) - 0.5) ** 2 + y**2)
    plate = np.minimum(0.08 - np.abs(z + 0.5), 0.8 - np.hypot(x, y))
    vertices, faces, _, _ = marching_cubes(np.maximum(np.maximum(one, two), plate), 0.0)
    solid = repair(0.06 * (vertices / 31 * 2 - 1), faces)
    return solid.vertices, solid.faces


def test_thinned_to_a_count_says_its_error(knot) -> None:
    """Solid, few enough faces, same volume, and the exact distance of all vertices as stated."""
    thin = decimate(*knot, 900)
    assert len(thin.faces) <= 900
    assert is_manifold(thin.faces)
    assert mass_properties(thin.vertices, thin.faces).volume == pytest.approx(
        mass_properties(*knot).volume, rel=0.02
    )
    there = TriangleSurface(*knot).closest(thin.vertices).distance.max()
    back = TriangleSurface(thin.vertices, thin.faces).closest(knot[0]).distance.max()
    assert max(there, back) <= thin.error * (1 + 1e-4)
    assert thin.error < 1.2e-3


def test_an_error_bound_decides_the_count(knot) -> None:
    """The bound holds, a tighter one needs more faces, and an impossible one leaves the mesh."""
    loose, tight = (decimate(*knot, 100, bound) for bound in (1.5e-3, 4e-4))
    assert loose.error <= 1.5e-3
    assert tight.error <= 4e-4
    assert 100 < len(loose.faces) < len(tight.faces) < len(knot[1])
    whole = decimate(*knot, 100, 1e-12)
    assert len(whole.faces) == len(knot[1])
    assert whole.error == 0


def test_flat_sides_cost_nothing() -> None:
    """A finely cut box thins out to its twelve triangles without error."""
    box = trimesh.creation.box((0.1, 0.2, 0.3))
    fine = box.subdivide().subdivide().subdivide()
    thin = decimate(np.asarray(fine.vertices), np.asarray(fine.faces), 12)
    assert thin.error < 1e-7
    assert mass_properties(thin.vertices, thin.faces).volume == pytest.approx(0.006, rel=1e-6)


def test_same_bytes_twice_and_faults_are_named(knot) -> None:
    """Decimation is deterministic; a count or bound that means nothing is refused."""
    one, two = decimate(*knot, 500), decimate(*knot, 500)
    assert one.vertices.tobytes() == two.vertices.tobytes()
    assert one.faces.tobytes() == two.faces.tobytes()
    with pytest.raises(InputError, match="at least 4 faces"):
        decimate(*knot, 3)
    with pytest.raises(InputError, match="above 0 m"):
        decimate(*knot, 100, -1.0)
    with pytest.raises(InputError, match="finite"):
        decimate(np.full((4, 3), np.inf), np.array([[0, 1, 2]], np.int32), 100)
