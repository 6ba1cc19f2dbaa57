"""Mechanics of the lab's world against closed forms."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from tests.lab.blocks import block
from twinloop.errors import InputError
from twinloop.hand.model import RobotModel
from twinloop.lab.objects import build_object
from twinloop.lab.pushes import run_push
from twinloop.lab.spec import PushSpec, load_preset
from twinloop.lab.world import (
    LOG_RATE,
    MAX_SUPPORTS,
    RobotTruth,
    Rollout,
    build_world,
    robot_truth,
    simulate,
    support_points,
)

ROBOT = RobotModel.load("twinhand")
G = 9.81
NOMINAL = RobotTruth(*(np.ones(ROBOT.dof) for _ in range(3)))


def away() -> np.ndarray:
    """The robot far above the table."""
    q = np.zeros(ROBOT.dof)
    q[ROBOT.index("arm_z")] = 0.6
    return q


def push(action: str, **changes: float) -> Rollout:
    """A push of the block where it stands, with the datasheet's robot."""
    defaults = {"speed": 0.35, "distance": 0.02, "height": 0.3}
    spec = PushSpec.model_validate({"action": action} | defaults | changes)
    return run_push(ROBOT, block(), spec, np.eye(4), NOMINAL, 10)


@pytest.fixture(scope="module")
def tap() -> Rollout:
    """A fast tap through the middle."""
    return push("tap")


def test_an_object_at_rest_stays_at_rest() -> None:
    """It sinks less than 0.2 mm into the table and does not drift or turn."""
    rollout = simulate(
        build_world(block(), ROBOT, np.eye(4)).compile(), away(), np.tile(away(), (300, 1))
    )
    last = rollout.qpos[-1, -7:]
    assert np.abs(last[:3]).max() < 2e-4
    assert rollout.tilt().max() < 2e-3
    assert np.abs(rollout.contact_force).max() == 0.0


def test_a_sliding_object_slows_down_at_mu_g() -> None:
    """Coulomb: the free coast decelerates at mu g, whatever the mass."""
    for mass in (0.1, 0.7):
        model = build_world(block(mass=mass, friction=0.3), ROBOT, np.eye(4)).compile()
        data = mujoco.MjData(model)
        data.qpos[: ROBOT.dof] = away()
        data.ctrl[:] = away()
        for _ in range(100):
            mujoco.mj_step(model, data)
        data.qvel[-6] = 0.5
        speeds = []
        for _ in range(300):
            mujoco.mj_step(model, data)
            speeds.append(data.qvel[-6])
        slope = np.polyfit(np.arange(300) * model.opt.timestep, speeds, 1)[0]
        assert slope == pytest.approx(-0.3 * G, rel=0.02)


def test_force_on_a_tapped_object_is_its_change_of_momentum(tap: Rollout) -> None:
    """Mass times change of speed is the impulse of the tip less the table's friction."""
    force = tap.contact_force
    on = np.flatnonzero(np.abs(force).sum(axis=1) > 1e-9)
    first, last = on[0] - 1, on[-1] + 2
    velocity = np.gradient(tap.qpos[:, -7], tap.time)[::10]
    table = 0.3 * (0.3 * G - force[first:last, 2])
    moving = velocity[first:last] > 0.005
    impulse = (force[first:last, 0] - np.where(moving, table, 0.0)).sum() / LOG_RATE
    assert velocity.max() > 0.1
    assert impulse == pytest.approx(0.3 * (velocity[last] - velocity[first]), rel=0.1)


def test_mechanical_energy_never_grows_in_a_coast(tap: Rollout) -> None:
    """After the tip has left, kinetic energy only falls, down to zero."""
    last = np.flatnonzero(np.abs(tap.contact_force).sum(axis=1) > 1e-9)[-1] * 10 + 20
    speed = np.linalg.norm(np.gradient(tap.qpos[last:, -7:-5], tap.time[last:], axis=0), axis=1)
    assert np.all(np.diff(speed[::20]) < 1e-3)
    assert speed[-1] < 1e-3


def test_efforts_of_the_free_robot_balance_friction_and_inertia_and_the_rest_is_contact() -> None:
    """arm_x: effort - M a - viscous v - coulomb sign(v) is the force that the object feels."""
    rollout = push("slide", speed=0.1, distance=0.05)
    joint = ROBOT.joints[0]
    velocity = rollout.velocity[:, 0]
    # All moved masses share the arm's acceleration but for the finger, which bends a little.
    mass = sum(geom.mass for geom in ROBOT.geoms) + joint.armature
    acceleration = np.gradient(velocity) * LOG_RATE
    external = rollout.effort[:, 0] - mass * acceleration - joint.viscous * velocity
    external -= joint.coulomb * np.sign(velocity)
    window = np.ones(15) / 15
    steady = (rollout.contact_force[:, 0] > 0.2) & (velocity > 0.05)
    steady = np.convolve(steady, window, mode="same") > 0.99
    smooth = np.convolve(external, window, mode="same")
    real = np.convolve(rollout.contact_force[:, 0], window, mode="same")
    assert steady.sum() > 60
    assert np.abs(smooth - real)[steady].mean() < 0.12 * real[steady].mean()
    free = (np.abs(velocity) > 0.05) & (rollout.sample_time < 0.57) & (rollout.sample_time > 0.40)
    assert np.abs(smooth[free]).max() < 0.03


def test_slow_slide_needs_mu_m_g() -> None:
    """Averaged over a straight slow slide, force against table is mu times the normal load."""
    rollout = push("slide", speed=0.1, distance=0.05)
    force = rollout.contact_force
    slow = np.flatnonzero(force[:, 0] > 0.2)
    middle = force[slow[len(slow) // 4] : slow[-len(slow) // 4]].mean(axis=0)
    assert middle[0] == pytest.approx(0.3 * (0.3 * G - middle[2]), rel=0.08)


def test_two_runs_are_the_same_to_the_bit() -> None:
    """Same model, same commands, same numbers."""
    first, second = (push("tap", offset=0.4) for _ in range(2))
    for name in ("qpos", "effort", "contact_force"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))


def test_pushes_start_at_rest_then_move_freely_before_contact(tap: Rollout) -> None:
    """At least 0.3 s of rest and 0.2 s of motion without contact: friction can be fitted there."""
    touch = tap.sample_time[np.flatnonzero(np.abs(tap.contact_force).sum(axis=1) > 0)[0]]
    tip = ROBOT.tip_positions(tap.position)[:, 0]
    speed = np.linalg.norm(np.gradient(tip, axis=0), axis=1) * LOG_RATE
    start = tap.sample_time[np.flatnonzero(speed > 0.01)[0]]
    assert start >= 0.3
    assert touch - start >= 0.2


def test_interpolated_poses_hit_the_recorded_ones(tap: Rollout) -> None:
    """Poses at recorded times are the recorded states, rotations stay proper."""
    poses = tap.object_poses(tap.time[::500])
    np.testing.assert_allclose(poses[:, :3, 3], tap.qpos[::500, -7:-4], atol=1e-12)
    np.testing.assert_allclose(
        poses[:, :3, :3] @ np.swapaxes(poses[:, :3, :3], 1, 2),
        np.tile(np.eye(3), (len(poses), 1, 1)),
        atol=1e-9,
    )
    np.testing.assert_allclose(tap.states(tap.time[:3]), tap.qpos[:3], atol=1e-12)


def test_support_points_hold_the_resting_face() -> None:
    """All lowest hull vertices are supports, and their number stays bounded."""
    item = build_object(load_preset("spam"), "spam")
    points = support_points(item)
    everything = np.concatenate([part[0] for part in item.parts])
    lowest = everything[everything[:, 2] < everything[:, 2].min() + 1e-6]
    assert len(points) <= MAX_SUPPORTS
    for corner in lowest:
        assert np.linalg.norm(points - corner, axis=1).min() < 1e-8


def test_the_real_robot_differs_from_its_datasheet_reproducibly() -> None:
    """Factors are near one, not one, and come from the generator alone."""
    one, two = (robot_truth(ROBOT, np.random.default_rng(4)) for _ in range(2))
    np.testing.assert_array_equal(one.coulomb, two.coulomb)
    assert np.all((one.coulomb > 0.7) & (one.coulomb < 1.4))
    assert np.std(one.viscous) > 0.01


def test_too_few_substeps_are_refused() -> None:
    """A step count below one says so."""
    with pytest.raises(InputError, match="substeps"):
        build_world(block(), ROBOT, np.eye(4), substeps=0)
