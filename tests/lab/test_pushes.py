"""What the finger actions do to objects, and how the operator chooses them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.lab.blocks import block
from twinloop.errors import InputError
from twinloop.geometry import quaternion, se3
from twinloop.hand.model import RobotModel
from twinloop.lab.actions import find_contact, first_hit, joint_commands, plan, profile
from twinloop.lab.objects import build_object
from twinloop.lab.pushes import (
    TILT_SHARE,
    at_rest,
    auto_pushes,
    instead,
    outcome,
    placement,
    record_session,
    rehearse,
    run_push,
    topple_angle,
)
from twinloop.lab.session import PushSettings
from twinloop.lab.spec import PushSpec, load_preset
from twinloop.lab.world import RobotTruth, Rollout, robot_truth

ROBOT = RobotModel.load("twinhand")
NOMINAL = RobotTruth(*(np.ones(ROBOT.dof) for _ in range(3)))
SPAM = build_object(load_preset("spam"), "spam")


def run(action: str, **changes: float) -> Rollout:
    """A push of the demo object in its scan pose."""
    spec = PushSpec.model_validate({"action": action} | changes)
    return run_push(ROBOT, SPAM, spec, np.eye(4), NOMINAL, 10)


def test_a_flick_topples() -> None:
    """The paper's push: the object ends lying on its side."""
    rollout = run("flick", direction=90, height=0.8, speed=0.7, distance=0.12)
    assert rollout.tilt()[-1] == pytest.approx(np.pi / 2, abs=0.1)
    assert np.all(np.abs(rollout.qpos[:, -7:-5]) < 0.3)


def test_a_tap_moves_and_leaves_upright() -> None:
    """The object slides some centimetres and still stands."""
    rollout = run("tap", direction=0, height=0.35, speed=0.35, distance=0.02, offset=0.5)
    assert rollout.tilt()[-1] < 0.01
    assert 0.01 < np.linalg.norm(rollout.qpos[-1, -7:-5]) < 0.08


def test_a_tilt_turns_about_the_far_edge_and_comes_back() -> None:
    """The object leans by several degrees, its far edge stays, and it stands as before."""
    rollout = run("tilt", direction=90, height=0.88, speed=0.12, distance=0.025)
    assert 0.1 < rollout.tilt().max() < 0.4
    assert rollout.tilt()[-1] < 0.01
    assert np.linalg.norm(rollout.qpos[-1, -7:-4] - rollout.qpos[0, -7:-4]) < 2e-3
    most = int(rollout.tilt().argmax())
    T = rollout.object_poses(rollout.time[[0, most]])
    edge = np.array([[0.0, 0.0209, 0.0]])  # where the flat of the bottom ends
    assert np.linalg.norm(se3.apply(T[1], edge) - se3.apply(T[0], edge)) < 4e-3


def test_a_tilt_is_a_push_about_a_virtual_pivot() -> None:
    """A sharp block turns about its far bottom edge, which stays where it is."""
    size = (0.06, 0.04, 0.08)
    item = block(size, friction=0.5)
    push = PushSpec(action="tilt", direction=90, height=0.88, speed=0.12, distance=0.02)
    rollout = run_push(ROBOT, item, push, np.eye(4), NOMINAL, 10)
    tilt = rollout.tilt()
    assert np.rad2deg(tilt.max()) > 5.0
    leaning = rollout.object_poses(rollout.time[tilt > 0.5 * tilt.max()][::10])
    edge = np.array([[x, 0.5 * size[1], 0.0] for x in (-0.03, 0.03)])
    for T in leaning:
        assert np.linalg.norm(se3.apply(T, edge) - edge, axis=1).max() < 2e-3
        # The opposite edge has left the table.
        assert (se3.apply(T, -edge)[:, 2] > 2e-3).all()


def test_a_lift_is_a_switch_and_carries_the_weight() -> None:
    """Off by default; held still in the air, the robot feels m g upwards; the motors show it."""
    assert not PushSettings().lift
    assert record_session(ROBOT, SPAM, (), NOMINAL, np.random.default_rng(0)) == []
    (clip,) = record_session(ROBOT, SPAM, (), NOMINAL, np.random.default_rng(0), lift=True)
    assert clip.spec.action == "lift"
    rollout = clip.rollout
    height = rollout.qpos[:, -5][::10]
    held = height > 0.9 * height.max()
    still = held & (np.abs(rollout.velocity[:, 2]) < 2e-3)
    assert height.max() > 0.02
    weight = SPAM.mass * 9.81
    assert rollout.contact_force[still, 2].mean() == pytest.approx(weight, rel=0.03)
    friction = ROBOT.joints[2].coulomb
    assert rollout.effort[still, 2].mean() == pytest.approx(weight, abs=friction + 0.1)


def test_touch_point_lies_on_the_surface() -> None:
    """The tip's sphere just touches the face, at the wanted height and offset."""
    item = block()
    push = PushSpec(action="tap", direction=0, height=0.5, offset=0.4)
    contact = find_contact(item, push, np.eye(4), ROBOT.tip_radius)
    np.testing.assert_allclose(
        contact.centre, [-0.03 - ROBOT.tip_radius, 0.4 * 0.025, 0.04], atol=1e-9
    )
    np.testing.assert_allclose(contact.direction, [1, 0, 0], atol=1e-12)
    np.testing.assert_allclose(contact.pivot[[0, 2]], [0.03, 0.0], atol=1e-9)


def test_touch_point_turns_with_the_object() -> None:
    """Planning commutes with a rigid motion of the object in the plane."""
    push = PushSpec(action="tap", direction=30, height=0.4, offset=-0.2)
    T = se3.exp(np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.7]))
    T[:2, 3] = [0.02, -0.01]
    here = find_contact(block(), push, np.eye(4), 0.012)
    there = find_contact(block(), push, T, 0.012)
    np.testing.assert_allclose(there.centre, se3.apply(T, here.centre[None])[0], atol=1e-12)
    np.testing.assert_allclose(there.direction, T[:3, :3] @ here.direction, atol=1e-12)


def test_a_ray_hits_a_box_where_it_should() -> None:
    """Distance to the near face; None beside the box."""
    item = block()
    origin, forward = np.array([-0.5, 0.0, 0.04]), np.array([1.0, 0.0, 0.0])
    assert first_hit(item, origin, forward) == pytest.approx(0.47)
    assert first_hit(item, origin + [0.0, 0.2, 0.0], forward) is None


def test_travel_profile_covers_the_distance_smoothly() -> None:
    """Smoothing keeps the distance and bounds the acceleration."""
    travel = profile([(0.2, 0.0), (0.5, 0.3), (0.3, 0.0)], 0.08)
    assert travel[-1] == pytest.approx(0.15, abs=1e-9)
    acceleration = np.diff(travel, 2) * 300**2
    assert np.abs(acceleration).max() < 2.5 * 0.3 / 0.08


def test_commands_lead_by_damping_over_stiffness() -> None:
    """At constant speed the command is ahead by ((D + b) v + coulomb) / K."""
    q = np.zeros((200, ROBOT.dof))
    q[:, 0] = 0.1 * np.arange(200) / 300
    joint = ROBOT.joints[0]
    lead = ((joint.damping + joint.viscous) * 0.1 + joint.coulomb) / joint.stiffness
    assert joint_commands(ROBOT, q)[100, 0] - q[100, 0] == pytest.approx(lead, rel=1e-6)


def test_rehearsed_session_shows_something_and_topples_nothing() -> None:
    """Every automatic push of the demo object meets its goal; the held-out ones differ."""
    rng = np.random.default_rng(2)
    recorded = record_session(ROBOT, SPAM, "auto", robot_truth(ROBOT, rng), rng)
    assert [push.name for push in recorded] == [f"push_{i:03d}" for i in range(8)]
    assert sum(push.spec.held_out for push in recorded) == 2
    for push in recorded:
        assert outcome(push.spec, push.rollout, SPAM.size) == 0
        assert push.rollout.tilt()[-1] < 0.02
    tilts = [p for p in recorded if p.spec.action == "tilt"]
    assert len(tilts) >= 3
    for push in tilts:
        share = push.rollout.tilt().max() / topple_angle(SPAM.size, push.spec.direction)
        assert TILT_SHARE[0] <= share <= TILT_SHARE[1]
    forces = [np.abs(push.rollout.contact_force).max() for push in recorded]
    noise = load_preset("spam").noise.effort * ROBOT.effort_limits[0]
    assert min(forces) > 4 * noise


@pytest.mark.parametrize("name", ["nutella", "lego"])
@pytest.mark.parametrize("seed", range(3))
def test_any_object_and_seed_give_a_session(name: str, seed: int) -> None:
    """Every automatic push moves the object by a few times the trackers' noise, none topples it."""
    item = build_object(load_preset(name).model_copy(update={"seed": seed}), name)
    rng = np.random.default_rng(seed)
    truth = robot_truth(ROBOT, rng)
    limit = None if seed == 1 else 4
    recorded = record_session(ROBOT, item, "auto", truth, rng, substeps=4, limit=limit)
    assert [push.spec.held_out for push in recorded][-1]
    for push in recorded:
        rollout = push.rollout
        travel = np.linalg.norm(rollout.qpos[:, -7:-5] - rollout.qpos[0, -7:-5], axis=1)
        assert rollout.tilt().max() > np.deg2rad(2.0) or travel.max() > 5e-3
        assert rollout.tilt()[-1] < 0.02
        assert at_rest(rollout)
        assert np.abs(rollout.qpos[:, -7:-4]).max() < 0.3


def test_an_operator_who_never_succeeds_keeps_the_strongest_mild_try() -> None:
    """Where each try does too little or topples, the last that did not topple is recorded."""
    still, fallen = (
        Rollout(
            time=np.arange(2) / 300,
            qpos=np.tile([0.0, 0, 0, *quaternion.from_rotvec([tilt, 0.0, 0.0])], (2, 1)),
            sample_time=np.zeros(2),
            **{name: np.zeros((2, 20)) for name in ("position", "velocity", "effort", "command")},
            contact_force=np.zeros((2, 3)),
        )
        for tilt in (0.0, 1.5)
    )
    push = PushSpec(action="tap", speed=0.2)
    size = np.array([0.1, 0.05, 0.08])
    done, rollout, good = rehearse(push, lambda p: fallen if p.speed > 0.25 else still, size)
    assert not good
    assert rollout is still
    assert 0.2 <= done.speed <= 0.25
    done, rollout, good = rehearse(push, lambda _: fallen, size)
    assert not good
    assert rollout is fallen
    assert instead(push, size).action == "tilt"
    assert instead(instead(push, size), size).action == "tap"


def test_automatic_pushes_follow_the_size() -> None:
    """The tilts go over the thinner side; heights stay inside the object."""
    for size in ([0.1, 0.05, 0.08], [0.05, 0.1, 0.08], [0.03, 0.05, 0.14]):
        specs = auto_pushes(np.array(size))
        thin = 0.0 if size[0] <= size[1] else 90.0
        assert {s.direction % 180 for s in specs if s.action == "tilt"} >= {thin}
        assert all(0 < s.height < 1 for s in specs)


def test_the_object_is_placed_so_that_the_finger_comes_from_the_side() -> None:
    """Pushes run along the world's x axis within the operator's few degrees."""
    rng = np.random.default_rng(0)
    for direction in (0.0, 90.0, 180.0, 270.0, 45.0):
        push = PushSpec(action="tap", direction=direction)
        contact = find_contact(SPAM, push, placement(push, rng), 0.012)
        assert abs(contact.direction[0]) > np.cos(np.deg2rad(5.1))


def test_a_limit_keeps_a_held_out_push() -> None:
    """Two of eight pushes: one to fit, one to predict."""
    rng = np.random.default_rng(0)
    specs = (
        PushSpec(action="tap", speed=0.35, distance=0.02, height=0.35),
        PushSpec(action="tap", speed=0.35, distance=0.02, height=0.35, direction=90),
        PushSpec(action="tap", speed=0.3, distance=0.02, height=0.35, held_out=True),
    )
    recorded = record_session(ROBOT, SPAM, specs, NOMINAL, rng, substeps=4, limit=2)
    assert [push.spec.held_out for push in recorded] == [False, True]


def test_a_push_out_of_reach_names_the_joints() -> None:
    """An object at the far end of the table cannot be pushed."""
    T = np.eye(4)
    T[0, 3] = 2.0
    with pytest.raises(InputError, match="arm_x"):
        plan(ROBOT, SPAM, PushSpec(action="tap"), T)
