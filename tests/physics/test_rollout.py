"""Closed forms that the rollout kernel must reproduce, and its numpy reference."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import trimesh
from scipy.spatial.transform import Rotation

from twinloop.errors import InputError
from twinloop.geometry import sdf_kernel, sdf_query
from twinloop.physics import layout, rollout_kernel
from twinloop.physics.reference import simulate_reference
from twinloop.physics.shape import collision_shape
from twinloop.physics.simulate import GRAVITY, Controls, simulate

SIZE = np.array([0.10, 0.06, 0.08])
MASS = 0.3
RATE = 350.0
RADIUS = 0.01


@pytest.fixture(scope="module")
def box():
    """Collision shape of an axis-aligned box centred at its origin."""
    mesh = trimesh.creation.box(SIZE)
    return collision_shape(
        np.asarray(mesh.vertices), np.asarray(mesh.faces, np.int32), np.array([0.0, 0.0, -1.0])
    )


def row(friction=0.3, mass=MASS, com=(0.0, 0.0, 0.0), tip_friction=0.5, tip_rate=150.0):
    """Engine parameters of the box, uniform unless told otherwise."""
    parameters = np.zeros(layout.PARAMETERS)
    parameters[layout.MASS] = mass
    parameters[layout.FRICTION] = friction
    parameters[layout.COM : layout.COM + 3] = com
    inertia = mass / 12 * (SIZE @ SIZE - SIZE**2)
    parameters[layout.INERTIA : layout.INERTIA + 3] = inertia
    parameters[layout.TIP_FRICTION] = tip_friction
    parameters[layout.TIP_STIFFNESS] = mass * tip_rate**2
    parameters[layout.TIP_DAMPING] = mass * tip_rate
    parameters[layout.TABLE_STIFFNESS] = mass * RATE**2
    parameters[layout.TABLE_DAMPING] = mass * RATE
    return parameters


def rest(height=SIZE[2] / 2 - GRAVITY / RATE**2, velocity=(0, 0, 0), spin=(0, 0, 0)):
    """State of the box standing upright at its static penetration."""
    return np.array([0.0, 0.0, height, 1.0, 0.0, 0.0, 0.0, *velocity, *spin, 0.0], dtype=float)


def away(seconds, dt=5e-4, every=10):
    """Controls whose fingertip stays out of reach."""
    steps = round(seconds / dt)
    tip = np.full((1, steps, 3), 5.0)
    return controls_of(tip, dt, every)


def controls_of(tip, dt=5e-4, every=10):
    """Controls of fingertip paths (P, T, 3)."""
    return Controls(
        tip_position=tip,
        tip_velocity=np.gradient(tip, dt, axis=1),
        tip_radius=np.full(len(tip), RADIUS),
        steps=np.full(len(tip), tip.shape[1], np.int32),
        dt=dt,
        every=every,
    )


def roll(shape, controls, parameters, state, **options):
    """One rollout of the first push."""
    return simulate(
        shape, controls, parameters[None], state[None], np.zeros(1, np.int32), **options
    )


def test_free_fall(box):
    """A box in the air falls g t^2 / 2, to first order of the step."""
    rolled = roll(box, away(0.2), row(), rest(height=1.0))
    t = 0.005 * np.arange(rolled.position.shape[1])
    np.testing.assert_allclose(
        rolled.position[0, :, 2], 1.0 - GRAVITY * t * (t + 5e-4) / 2, atol=1e-12
    )


def test_sliding_decelerates_at_mu_g(box):
    """A box that slides stops after v^2 / (2 mu g), whatever its mass."""
    for mass in (0.05, 1.0):
        rolled = roll(box, away(0.6), row(friction=0.3, mass=mass), rest(velocity=(0.4, 0, 0)))
        travelled = rolled.position[0, -1, 0]
        assert travelled == pytest.approx(0.4**2 / (2 * 0.3 * GRAVITY), rel=0.02)


def test_holds_on_a_push_below_the_friction_limit(box):
    """Bristles stick: after a small side velocity dies out, the box does not creep."""
    rolled = roll(box, away(1.0), row(), rest(velocity=(0.01, 0, 0)))
    assert abs(rolled.position[0, -1, 0] - rolled.position[0, 100, 0]) < 1e-6


def test_bounce_keeps_elastic_energy(box):
    """Without damping and friction a dropped box comes back to its height (energy audit)."""
    parameters = row(friction=0.0)
    parameters[layout.TABLE_DAMPING] = 0.0
    rolled = roll(box, away(0.5, dt=1e-4, every=1), parameters, rest(height=SIZE[2] / 2 + 0.02))
    z = rolled.position[0, :, 2] - SIZE[2] / 2
    touch = int(np.argmax(z < 0))
    assert z[touch:].max() == pytest.approx(0.02, rel=0.01)


def test_spinning_keeps_angular_momentum_and_energy(box):
    """A tumbling box in zero gravity keeps momentum and energy to first order of the step."""
    parameters, spin = row(), np.array([8.0, 0.5, 3.0])
    drift = []
    for dt in (4e-4, 2e-4):
        rolled = roll(box, away(0.4, dt=dt, every=1), parameters, rest(1.0, spin=spin), gravity=0.0)
        drift.append(momentum_drift(rolled, parameters, spin, dt))
    assert drift[1] < 0.01
    assert drift[1] == pytest.approx(drift[0] / 2, rel=0.15)


def momentum_drift(rolled, parameters, spin, dt):
    """Relative change of the world angular momentum between the ends of a rollout."""
    from scipy.spatial.transform import Rotation

    R = Rotation.from_quat(rolled.quaternion[0][:, [1, 2, 3, 0]])
    w = (R[-2].inv() * R[-1]).as_rotvec() / dt
    inertia = parameters[layout.INERTIA : layout.INERTIA + 3]
    first = inertia * spin
    return np.linalg.norm(R[-2].apply(inertia * w) - first) / np.linalg.norm(first)


def test_push_changes_momentum_by_its_impulse(box):
    """On a frictionless table the impulse of the fingertip is the momentum of the box."""
    t = np.arange(800) * 5e-4
    tip = np.zeros((1, len(t), 3))
    tip[0, :, 0] = (
        -SIZE[0] / 2 - RADIUS - 0.002 + 0.3 * np.minimum(t, 0.1) - 2 * np.maximum(t - 0.1, 0)
    )
    rolled = roll(box, controls_of(tip), row(friction=0.0, tip_friction=0.0), rest())
    impulse = rolled.force[0].sum(axis=0) * 5e-3
    velocity = (rolled.position[0, -1] - rolled.position[0, -2]) / 5e-3
    assert velocity[0] > 0.1
    np.testing.assert_allclose(MASS * velocity[:2], impulse[:2], atol=1e-6)


def test_slow_push_needs_friction_force(box):
    """A slow push at mid height takes mu m g once the box slides."""
    t = np.arange(1200) * 5e-4
    tip = np.zeros((1, len(t), 3))
    tip[0, :, 0] = -SIZE[0] / 2 - RADIUS + 0.05 * t
    tip[0, :, 2] = 0.02
    rolled = roll(box, controls_of(tip), row(tip_friction=0.0), rest())
    assert rolled.force[0, -20:, 0].mean() == pytest.approx(0.3 * MASS * GRAVITY, rel=0.01)


def test_topples_at_the_threshold_force(box):
    """A high push lifts the near edge at F z = m g b / 2, when friction holds the far one."""
    height = 0.07
    t = np.arange(4000) * 5e-4
    tip = np.zeros((1, len(t), 3))
    tip[0, :, 1] = -SIZE[1] / 2 - RADIUS + 0.004 * t
    tip[0, :, 2] = height
    rolled = roll(box, controls_of(tip), row(friction=2.0, tip_friction=0.0), rest())
    force = rolled.force[0, 20:, 1].max()
    assert force == pytest.approx(MASS * GRAVITY * SIZE[1] / 2 / height, rel=0.03)


def test_scaling_theorem(box):
    """With the fingertip's motion given, mass, inertia and contact scale out of the path."""
    tip = np.zeros((1, 1600, 3))
    t = np.arange(1600) * 5e-4
    tip[0, :, 0] = -SIZE[0] / 2 - RADIUS - 0.005 + 0.12 * t - 0.25 * np.maximum(t - 0.5, 0)
    tip[0, :, 1:] = 0.012, 0.055
    light, heavy = row(com=(0.004, -0.003, -0.006)), row(com=(0.004, -0.003, -0.006))
    scaled = [layout.MASS, *range(layout.INERTIA, layout.INERTIA + 3), *range(9, 13)]
    heavy[scaled] *= 4.0
    one, four = (roll(box, controls_of(tip), p, rest()) for p in (light, heavy))
    assert np.ptp(one.position[0, :, 0]) > 0.02
    np.testing.assert_allclose(four.position, one.position, atol=1e-9)
    np.testing.assert_allclose(four.force, 4 * one.force, atol=1e-8)
    # Mass alone does change the path: a stiffness set by hand would look like knowledge of mass.
    heavy[9:13] = light[9:13]
    alone = roll(box, controls_of(tip), heavy, rest())
    assert np.abs(alone.position - one.position).max() > 1e-4


def test_kernel_equals_reference(box):
    """The kernel and its numpy reference agree through touch, stick, slip and tilt."""
    tip = np.zeros((1, 500, 3))
    t = np.arange(500) * 1e-3
    tip[0, :, 0] = -SIZE[0] / 2 - RADIUS - 0.004 + 0.25 * t
    tip[0, :, 1] = 0.015
    tip[0, :, 2] = 0.03
    parameters = row(com=(0.004, -0.002, 0.003))
    parameters[layout.SPREAD], parameters[layout.EDGE_RADIUS] = 0.2, 0.003
    parameters[layout.TIP_CREEP] = 6.0
    controls = controls_of(tip, dt=1e-3, every=7)
    state = rest(spin=(0.1, -0.2, 0.3))
    state[layout.PRELOAD] = 1e-4
    fast = roll(box, controls, parameters, state)
    slow = simulate_reference(box, controls, parameters, state, 0)
    np.testing.assert_allclose(fast.position, slow.position, atol=1e-10)
    np.testing.assert_allclose(fast.quaternion, slow.quaternion, atol=1e-9)
    np.testing.assert_allclose(fast.force, slow.force, atol=1e-7)
    assert slow.force.max() > 0.3


def push_in_the_middle():
    """Controls of a fingertip that pushes the +y side of the box off its middle, then leaves."""
    t = np.arange(800) * 5e-4
    tip = np.zeros((1, 800, 3))
    tip[0, :, 0], tip[0, :, 2] = 0.015, 0.04
    tip[0, :, 1] = SIZE[1] / 2 + RADIUS + 0.002 - 0.15 * t + 0.4 * np.maximum(t - 0.2, 0)
    return controls_of(tip)


def test_the_frame_of_the_mesh_does_not_matter(box):
    """A box scanned askew, its grid in that frame, moves as the straight one does."""
    R = Rotation.from_euler("zyx", [25, 15, -10], degrees=True).as_matrix()
    mesh = trimesh.creation.box(SIZE)
    faces = np.asarray(mesh.faces, np.int32)
    askew = collision_shape(np.asarray(mesh.vertices) @ R.T, faces, R @ [0.0, 0.0, -1.0])
    np.testing.assert_allclose(askew.R_object_body, R, atol=1e-9)
    straight, turned = (roll(s, push_in_the_middle(), row(), rest()) for s in (box, askew))
    assert np.ptp(straight.position[0, :, 1]) > 0.01
    np.testing.assert_allclose(turned.position, straight.position, atol=2e-6)
    np.testing.assert_allclose(turned.quaternion, straight.quaternion, atol=5e-5)
    slow = simulate_reference(askew, push_in_the_middle(), row(), rest(), 0)
    np.testing.assert_allclose(turned.position, slow.position, atol=1e-9)


def test_contact_interpolates_as_everybody_does(box):
    """On a grid of bumps the first force is stiffness times what `DistanceGrid` says, to rounding.

    One function interpolates for the engine and for NumPy: both kernels hold the same object.
    """
    assert rollout_kernel.grid_sample is sdf_kernel.grid_sample is sdf_query.grid_sample
    assert sdf_query.grid_sample_cubic is sdf_kernel.grid_sample_cubic
    rng = np.random.default_rng(4)
    bumpy = replace(box.grid, value=box.grid.value + 1e-3 * rng.random(box.grid.value.shape))
    R = Rotation.from_euler("zyx", [40, 20, -30], degrees=True).as_matrix()
    shape = replace(box, grid=bumpy, R_object_body=R)
    parameters = row(tip_friction=0.0)
    parameters[layout.TIP_DAMPING] = 0.0
    tips = (rng.uniform(-0.45, 0.45, (40, 3)) * SIZE)[:, None] @ R
    one = np.full(40, 1, np.int32)
    controls = Controls(tips, np.zeros_like(tips), np.full(40, RADIUS), one, 5e-4, 1)
    many = (np.tile(a, (40, 1)) for a in (parameters, rest(height=0.0)))
    force = simulate(shape, controls, *many, np.arange(40, dtype=np.int32)).force[:, 0]
    # The body stands at the origin unturned: its frame is the world's.
    distance, gradient = bumpy.signed_distance(tips[:, 0] @ R.T, cubic=False)
    normal = (gradient / np.linalg.norm(gradient, axis=1, keepdims=True)) @ R
    depth = np.maximum(RADIUS - distance, 0.0)[:, None]
    assert (depth > 0).all()
    np.testing.assert_allclose(
        force, -parameters[layout.TIP_STIFFNESS] * depth * normal, rtol=1e-10, atol=1e-10
    )


def test_threads_and_batches_do_not_change_results(box):
    """A row gives the same bytes alone, in a batch, on one thread and on three."""
    tip = np.zeros((1, 400, 3))
    tip[0, :, 0] = -SIZE[0] / 2 - RADIUS - 0.001 + 0.2 * np.arange(400) * 5e-4
    rows = np.stack([row(friction=f) for f in (0.1, 0.2, 0.3, 0.4, 0.5)])
    states, push = np.tile(rest(), (5, 1)), np.zeros(5, np.int32)
    controls = controls_of(tip)
    one = simulate(box, controls, rows, states, push, threads=1)
    three = simulate(box, controls, rows, states, push, threads=3)
    alone = simulate(box, controls, rows[3:4], states[:1], push[:1])
    assert one.position.tobytes() == three.position.tobytes()
    assert one.force.tobytes() == three.force.tobytes()
    assert alone.position.tobytes() == one.position[3:4].tobytes()


def test_refuses_bad_rows(box):
    """A zero mass, a NaN and a wrong width are refused with the row and the rule."""
    controls = away(0.01)
    bad = row()
    bad[layout.MASS] = 0.0
    with pytest.raises(InputError, match="expected > 0"):
        roll(box, controls, bad, rest())
    with pytest.raises(InputError, match=r"parameters\[0, 1\] is nan"):
        roll(box, controls, row(friction=np.nan), rest())
    with pytest.raises(InputError, match="shape"):
        roll(box, controls, row()[:5], rest())
