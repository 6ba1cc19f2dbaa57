"""Objects of the lab rest on the face that they are set on; what would fall is reported."""

from __future__ import annotations

import numpy as np
import pytest

from twinloop.errors import InputError
from twinloop.export.rest import rest_pose, uniform_properties
from twinloop.geometry.convex import convex_parts
from twinloop.lab.catalogue import bottle, letter_u, spray


@pytest.mark.parametrize(
    ("make", "size"),
    [(bottle, (0.09, 0.06, 0.2)), (spray, (0.066, 0.066, 0.2)), (letter_u, (0.1, 0.12, 0.03))],
)
def test_lab_objects_rest_on_their_base(make, size) -> None:
    """Less than 0.2 mm in the plane, still to 0.1 mm and 0.1 degree over two seconds."""
    shape = make(size)
    parts = convex_parts(shape.vertices, shape.faces, concavity=0.2, target=None).parts
    found = rest_pose(parts, uniform_properties(shape.vertices, shape.faces, 0.3))
    assert found.stable(), found
    assert 0 < found.penetration < 5e-5
    assert abs(found.sank) < 2e-4


@pytest.mark.parametrize("mass", [0.02, 3.0])
def test_penetration_does_not_depend_on_mass(mass: float) -> None:
    """Light or heavy: contacts are as stiff as the object is heavy."""
    shape = bottle((0.09, 0.06, 0.2))
    found = rest_pose([shape.vertices], uniform_properties(shape.vertices, shape.faces, mass))
    assert found.stable(), found


def test_what_stands_on_an_edge_falls_and_is_no_rest() -> None:
    """A bottle tilted by 30 degrees about its base's edge ends on another face."""
    shape = bottle((0.09, 0.06, 0.2))
    c, s = np.cos(0.6), np.sin(0.6)
    tilted = shape.vertices @ np.array([[1, 0, 0], [0, c, -s], [0, s, c]]).T
    found = rest_pose([tilted], uniform_properties(tilted, shape.faces, 0.3))
    assert found.tilt > 10
    assert not found.stable()


def test_faults_are_named() -> None:
    """No parts, and a mesh that has no inside."""
    shape = bottle((0.09, 0.06, 0.2))
    with pytest.raises(InputError, match="without convex parts"):
        rest_pose([], uniform_properties(shape.vertices, shape.faces, 0.3))
    with pytest.raises(InputError, match="expected both above 0"):
        uniform_properties(shape.vertices, shape.faces[:, ::-1], 0.3)
