"""Mass properties of unit-density solids against their closed forms."""

from __future__ import annotations

import numpy as np
import pytest
import trimesh
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from twinloop.geometry.mesh import mass_properties

# Fine meshes lie inside their curved surfaces: their moments are this much smaller, at most.
FACETS = 2e-3


def test_sphere() -> None:
    """4/3 pi r^3 and 2/5 m r^2."""
    ball = trimesh.creation.icosphere(5, 0.1)
    found = mass_properties(ball.vertices, ball.faces)
    volume = 4 / 3 * np.pi * 1e-3
    assert found.volume == pytest.approx(volume, rel=FACETS)
    assert found.inertia == pytest.approx(0.4 * volume * 0.01 * np.eye(3), rel=FACETS, abs=1e-9)


def test_cone() -> None:
    """Volume pi r^2 h / 3, centroid h / 4 above the base, 3/10 m r^2 and 3/80 m (4 r^2 + h^2)."""
    r, h = 0.05, 0.12
    cone = trimesh.creation.cone(r, h, sections=200)
    found = mass_properties(cone.vertices, cone.faces)
    volume = np.pi * r**2 * h / 3
    base = cone.vertices[:, 2].min()
    assert found.volume == pytest.approx(volume, rel=FACETS)
    assert found.centroid == pytest.approx([0, 0, base + h / 4], abs=1e-9)
    across, along = 3 / 80 * volume * (4 * r**2 + h**2), 0.3 * volume * r**2
    assert found.inertia == pytest.approx(np.diag([across, across, along]), rel=FACETS, abs=1e-12)


def test_torus() -> None:
    """Volume 2 pi^2 R r^2; m (R^2 + 3/4 r^2) about the axis, m (4 R^2 + 5 r^2) / 8 across."""
    big, small = 0.08, 0.02
    ring = trimesh.creation.torus(big, small, 160, 80)
    found = mass_properties(ring.vertices, ring.faces)
    volume = 2 * np.pi**2 * big * small**2
    along = volume * (big**2 + 0.75 * small**2)
    across = volume * (4 * big**2 + 5 * small**2) / 8
    assert found.volume == pytest.approx(volume, rel=FACETS)
    assert found.inertia == pytest.approx(
        np.diag([across, across, along]), rel=2 * FACETS, abs=1e-10
    )


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6))
def test_box_anywhere_and_anyhow_turned(seed: int) -> None:
    """A box far off the origin and turned: exact volume, centroid, and R I R^T about it."""
    rng = np.random.default_rng(seed)
    size, place = rng.uniform(0.05, 0.3, 3), rng.uniform(-2, 2, 3)
    R = Rotation.random(random_state=seed).as_matrix()
    box = trimesh.creation.box(size)
    found = mass_properties(box.vertices @ R.T + place, box.faces)
    volume = size.prod()
    inertia = volume / 12 * (np.sum(size**2) * np.eye(3) - np.diag(size**2))
    assert found.volume == pytest.approx(volume, rel=1e-9)
    assert found.centroid == pytest.approx(place, abs=1e-9)
    assert found.inertia == pytest.approx(R @ inertia @ R.T, abs=1e-6 * volume)
