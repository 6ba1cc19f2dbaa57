"""Symmetries of shapes whose answer is known, and poses that look the same."""

import numpy as np
import pytest
import trimesh
from hypothesis import given, settings
from hypothesis import strategies as st

from twinloop.errors import InputError
from twinloop.geometry import quaternion, se3
from twinloop.geometry.symmetry import (
    Axis,
    Symmetry,
    nearest_equivalent,
    unobservable_axes,
    unobservable_motions,
)
from twinloop.geometry.symmetry_search import find_symmetry
from twinloop.lab.catalogue import BUILDERS
from twinloop.lab.shapes import convex_hull
from twinloop.metrics.poses import rotation_angle

UP = np.array([0.0, 0.0, 1.0])
WORLD = se3.exp(np.array([0.1, -0.2, 0.3, 0.5, -1.1, 0.7]))
ROUND = Symmetry(axes=(Axis(UP, np.array([0.01, 0.0, 0.0])),))

SHAPES = {  # shape, size (those of the lab's presets), number of discrete symmetries, axes
    "bulb": ("bulb", (0.060, 0.060, 0.108), 1, 1),
    "cube": ("rounded_box", (0.060, 0.060, 0.060), 24, 0),
    "spam": ("rounded_box", (0.100, 0.055, 0.085), 4, 0),
    "ketchup": ("bottle", (0.097, 0.062, 0.252), 2, 0),
    "lego": ("lego", (0.044, 0.025, 0.091), 2, 0),
    "letter_a": ("letter_a", (0.084, 0.039, 0.139), 2, 0),
    "letter_u": ("letter_u", (0.087, 0.043, 0.156), 2, 0),
    "nutella": ("jar", (0.100, 0.093, 0.126), 2, 0),
    "screwdriver": ("screwdriver", (0.250, 0.052, 0.045), 6, 0),
    "spray": ("spray", (0.066, 0.066, 0.205), 1, 1),
    "wafer_tin": ("cylinder", (0.080, 0.079, 0.236), 2, 1),
}


def rough(vertices, faces, noise=0.0003, edge=0.006):
    """The surface as a reconstruction has it: fine triangles, noise along the normals, moved."""
    v, f = trimesh.remesh.subdivide_to_size(vertices, faces, edge)
    mesh = trimesh.Trimesh(v, f)
    mesh.merge_vertices()
    out = np.random.default_rng(0).normal(size=(len(mesh.vertices), 1)) * noise
    moved = mesh.vertices + out * mesh.vertex_normals
    return se3.apply(WORLD, np.asarray(moved)), np.asarray(mesh.faces)


@pytest.mark.parametrize("name", SHAPES)
def test_lab_shapes(name):
    """Every shape of the lab, exact; axes are where they were built, groups are groups."""
    shape, size, discrete, axes = SHAPES[name]
    built = BUILDERS[shape](size)
    found = find_symmetry(built.vertices, built.faces)
    assert (len(found.discrete), len(found.axes)) == (discrete, axes)
    assert np.array_equal(found.discrete[0], np.eye(4))
    assert found.deviation < 0.0005
    for axis in found.axes:
        assert abs(axis.direction[2]) > 1 - 1e-5
        assert np.hypot(*axis.point[:2]) < 1e-4
    product = np.einsum("aij,bjk->abik", found.discrete, found.discrete)
    gap = np.abs(product[:, :, None] - found.discrete).max(axis=(3, 4)).min(axis=2)
    assert gap.max() < 1e-3


@pytest.mark.parametrize("name", ["spam", "lego", "bulb"])
def test_reconstructions(name):
    """With 0.3 mm of noise, turned and moved, the answer is the same, in the moved frame."""
    shape, size, discrete, axes = SHAPES[name]
    built = BUILDERS[shape](size)
    found = find_symmetry(*rough(built.vertices, built.faces))
    assert (len(found.discrete), len(found.axes)) == (discrete, axes)
    for S in found.discrete[1:]:  # brought back, a half turn about an axis of the box
        at_home = se3.inverse(WORLD) @ S @ WORLD
        assert rotation_angle(S[:3, :3]) == pytest.approx(np.pi, abs=1e-6)
        assert np.sort(np.abs(np.diag(at_home))[:3])[0] > 1 - 1e-4
    for axis in found.axes:
        assert abs(axis.direction @ WORLD[:3, :3] @ UP) > 1 - 1e-5
        home = se3.apply(se3.inverse(WORLD), axis.point[None])[0]
        assert np.hypot(*home[:2]) < 2e-4


def test_a_handle_and_a_dent():
    """A knob on a can is an asymmetry, a reflection no symmetry, a ball has all rotations."""
    can = trimesh.creation.cylinder(0.03, 0.1, sections=48)
    assert len(find_symmetry(can.vertices, can.faces).discrete) == 2
    knob = trimesh.creation.icosphere(2, 0.008)
    knob.apply_translation([0.03, 0.0, 0.02])
    both = trimesh.util.concatenate([can, knob])
    assert find_symmetry(both.vertices, both.faces).none
    ball = trimesh.creation.icosphere(2, 0.02)
    ball.apply_translation([0.1, 0.2, 0.3])
    found = find_symmetry(ball.vertices, ball.faces)
    assert found.ball
    assert found.axes[0].point == pytest.approx([0.1, 0.2, 0.3], abs=1e-6)
    # A wedge of three unequal sides: mirrored onto itself, never turned.
    flat = np.array([(0.0, 0.0, 0.0), (0.09, 0.0, 0.0), (0.02, 0.05, 0.0)])
    assert find_symmetry(*convex_hull(np.concatenate([flat, flat + 0.04 * UP]))).none


def test_no_mesh_is_refused():
    """No area, a tolerance that is not positive."""
    flat = np.zeros((3, 3))
    with pytest.raises(InputError, match="no area"):
        find_symmetry(flat, np.array([[0, 1, 2]]))
    box = trimesh.creation.box((0.1, 0.1, 0.2))
    with pytest.raises(InputError, match="tolerance is -1"):
        find_symmetry(box.vertices, np.asarray(box.faces), -1.0)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_the_nearest_equivalent_is_the_nearest(seed):
    """None of many listed equivalents is turned less; the one found shows the same object."""
    rng = np.random.default_rng(seed)
    pose, reference = se3.exp(rng.normal(size=(2, 6)))
    flip = Axis(np.array([1.0, 0, 0]), np.array([0.01, 0, 0])).turned(np.pi)
    symmetry = Symmetry(np.stack([np.eye(4), flip]), ROUND.axes)
    found = nearest_equivalent(pose, reference, symmetry)
    angle = rotation_angle(found[:3, :3] @ reference[:3, :3].T)
    listed = pose @ symmetry.transforms(0.02)
    others = rotation_angle(listed[:, :3, :3] @ reference[:3, :3].T)
    assert angle <= others.min() + 1e-9
    assert others.min() - angle < 0.03
    change = se3.inverse(pose) @ found
    on_axis = se3.apply(change, np.array([[0.01, 0, 0.0]]))[0]
    assert on_axis == pytest.approx([0.01, 0, 0], abs=1e-12)
    assert abs(abs(change[2, 2]) - 1) < 1e-12
    again = nearest_equivalent(found, reference, symmetry)
    assert again == pytest.approx(found, abs=1e-9)


def test_a_ball_keeps_its_centre_and_takes_the_reference():
    """A ball's equivalent has the reference's rotation; its centre stays where it is seen."""
    centre = np.array([0.0, 0.02, 0.05])
    ball = Symmetry(axes=tuple(Axis(d, centre) for d in np.eye(3)))
    rng = np.random.default_rng(0)
    pose, reference = se3.exp(rng.normal(size=(2, 6)))
    found = nearest_equivalent(pose, reference, ball)
    assert np.array_equal(found[:3, :3], reference[:3, :3])
    at = se3.apply(np.stack([pose, found]), centre[None])[:, 0]
    assert at[0] == pytest.approx(at[1], abs=1e-12)
    assert len(unobservable_axes(ball)) == 3
    assert nearest_equivalent(pose, reference, Symmetry()) is pose


def test_unobservable_motions_are_turns_about_the_axis():
    """Finite difference: the pose turned about its axis, as a left perturbation in world axes."""
    step = 1e-6
    turned = WORLD @ ROUND.axes[0].turned(step)
    moved = (turned[:3, 3] - WORLD[:3, 3]) / step
    w = quaternion.to_rotvec(quaternion.from_matrix(turned[:3, :3] @ WORLD[:3, :3].T)) / step
    assert unobservable_motions(ROUND, WORLD)[0] == pytest.approx(np.r_[moved, w], abs=1e-6)
    assert unobservable_motions(Symmetry(), WORLD).shape == (0, 6)
    assert "unobservable" in ROUND.describe()


def test_bop_entries():
    """models_info.json in mm: transforms in m; broken entries are refused by name."""
    turn = [-1, 0, 0, 4.0, 0, -1, 0, -6.0, 0, 0, 1, 0, 0, 0, 0, 1]
    found = Symmetry.from_bop(
        {
            "symmetries_discrete": [turn],
            "symmetries_continuous": [{"axis": [0, 0, 2], "offset": [1, 0, 0]}],
        },
        "models_info.json: 5",
    )
    assert found.discrete[1, :3, 3] == pytest.approx([0.004, -0.006, 0])
    assert found.axes[0].direction == pytest.approx(UP)
    assert found.axes[0].point == pytest.approx([0.001, 0, 0])
    assert Symmetry.from_bop({}, "x").none
    mirror = np.diag([-1.0, 1, 1, 1]).ravel().tolist()
    bad = [
        ({"symmetries_discrete": [mirror]}, "rotation matrix"),
        ({"symmetries_discrete": [[1, 2]]}, "16 finite numbers"),
        ({"symmetries_discrete": 3}, "expected a list"),
        ({"symmetries_continuous": [{"axis": [0, 0, 1]}]}, "axis and offset"),
        ({"symmetries_continuous": [{"axis": [0, 0, 0], "offset": [0, 0, 0]}]}, "a direction"),
        ({"symmetries_continuous": [{"axis": ["a", 0, 1], "offset": [0, 0, 0]}]}, "3 finite"),
    ]
    for info, message in bad:
        with pytest.raises(InputError, match=message):
            Symmetry.from_bop(info, "models_info.json: 5")
