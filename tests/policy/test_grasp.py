"""Grasp planning, and the executor in MuJoCo with the real robot model."""

import mujoco
import numpy as np
import pytest
import trimesh

from tests.stages.box_twin import SIZE
from twinloop.errors import InputError
from twinloop.geometry import se3
from twinloop.geometry.surface import TriangleSurface
from twinloop.hand.kinematics import HandKinematics
from twinloop.hand.model import RobotModel
from twinloop.policy.force_law import GRAVITY, friction_law
from twinloop.policy.grasp import GraspRequest, narrow_yaws, plan_grasp, solve_grasp, sphere_cast
from twinloop.policy.policy import finger_forces, hidden_force, payload_side_force
from twinloop.policy.rollout import RolloutSettings, Squeeze, execute
from twinloop.policy.scene import ObjectModel, physical_inertia, twin_scene
from twinloop.policy.world import World, level

ROBOT = RobotModel.load("twinhand")
HAND = HandKinematics(ROBOT)
BOX = trimesh.creation.box(SIZE)
SURFACE = TriangleSurface(BOX.vertices, BOX.faces)
MASS, FRICTION = 0.365, 0.3
QUICK = RolloutSettings(approach=0.4, close=0.5, squeeze=0.5, lift_time=0.6, hold=0.4)


@pytest.fixture(scope="module")
def grasp():
    """Planned grasp of the box across its narrow side."""
    return plan_grasp(SURFACE, HAND, centre_of_mass=np.zeros(3), yaws=narrow_yaws(SURFACE)[:2])


@pytest.fixture(scope="module")
def world():
    """The box in the twin world, friction 0.3 against everything."""
    moments = MASS / 12 * (np.sum(np.square(SIZE)) - np.square(SIZE))
    model = ObjectModel([BOX.vertices], MASS, np.zeros(3), np.diag(moments), FRICTION)
    return World(twin_scene(ROBOT, model, tip_friction=FRICTION), HAND, np.eye(4))


def _rest(x=0.0, y=0.0, yaw=0.0):
    pose = se3.exp(np.array([0, 0, 0, 0, 0, yaw]))
    pose[:3, 3] = [x, y, SIZE[2] / 2]
    return pose


def test_sphere_cast_stops_where_the_sphere_touches():
    """Against a box side the centre stops one radius before it; a miss is told."""
    origin = np.array([[0.0, -0.3, 0.0], [0.3, -0.3, 0.3]])
    centre, hit = sphere_cast(SURFACE, origin, np.tile([0.0, 1.0, 0.0], (2, 1)), 0.012, 0.6)
    assert hit.tolist() == [True, False]
    assert centre[0] == pytest.approx([0.0, -SIZE[1] / 2 - 0.012, 0.0], abs=1e-5)


def test_grasp_presses_the_narrow_sides_with_pads_on_the_surface(grasp):
    """Closing direction is y, pads touch within 0.1 mm, joints in limits, palm above."""
    assert abs(grasp.closing[1]) == pytest.approx(1.0, abs=1e-9)
    reached = se3.apply(grasp.T_object_wrist, HAND.tips(grasp.joints)[0])
    gap = SURFACE.signed_distance(reached)[0] - ROBOT.tip_radius
    assert np.abs(gap).max() < 1e-4
    assert (grasp.joints >= HAND.lower).all()
    assert (grasp.joints <= HAND.upper).all()
    assert grasp.T_object_wrist[2, 3] > SIZE[2] / 2


def test_open_hand_passes_the_object_on_the_way_down(grasp):
    """Pads of the open hand are at least 15 mm off the surface."""
    opened = se3.apply(grasp.T_object_wrist, HAND.tips(grasp.open_joints)[0])
    assert SURFACE.signed_distance(opened)[0].min() > ROBOT.tip_radius + 0.015


def test_grasp_too_low_or_object_too_wide_is_refused():
    """Pads in the table are no grasp; an object of 0.4 m raises with its size."""
    low = GraspRequest(np.pi / 2, -SIZE[2] / 2 + 0.005)
    assert solve_grasp(SURFACE, HAND, low, -SIZE[2] / 2) is None
    big = trimesh.creation.box((0.4, 0.4, 0.04))
    surface = TriangleSurface(big.vertices, big.faces)
    with pytest.raises(InputError, match=r"0\.4"):
        plan_grasp(surface, HAND, centre_of_mass=np.zeros(3), yaws=[0.0])


@pytest.mark.parametrize(("margin", "held"), [(2.0, True), (0.7, False)])
def test_hand_lifts_by_the_law_and_fails_below_it(grasp, world, margin, held):
    """The robot lifts the box by friction alone at S = 2 and drops it at S = 0.7."""
    force = friction_law(MASS / FRICTION, margin).side_force
    outcome = execute(
        world,
        grasp,
        Squeeze(finger_forces(HAND, grasp, force), MASS),
        _rest(0.01, 0.0, 0.3),
        settings=QUICK,
    )
    assert outcome.success is held
    if held:
        assert outcome.slip < 0.003
        assert min(outcome.side_force) > MASS * GRAVITY / (2 * FRICTION)
        assert min(outcome.side_force) == pytest.approx(force, rel=0.15)


def test_execution_is_deterministic(grasp, world):
    """The same trial twice gives the same trace bit by bit."""
    runs = [
        execute(world, grasp, Squeeze(np.array([1.0, 1.0, 1.0, 3.0])), _rest(), settings=QUICK)
        for _ in range(2)
    ]
    assert np.array_equal(runs[0].trace["height"], runs[1].trace["height"])
    assert np.array_equal(runs[0].trace["pad_force"], runs[1].trace["pad_force"])


def test_forces_never_exceed_what_the_joints_can(grasp):
    """A side force beyond the payload limit is cut to it, and J^T f stays within the efforts."""
    limit = payload_side_force(HAND, grasp)
    force = finger_forces(HAND, grasp, 100.0)
    assert force[3] == pytest.approx(limit, rel=1e-6)
    _, jacobian = HAND.tips(grasp.joints)
    pressing = grasp.pressing @ grasp.T_object_wrist[:3, :3]
    torque = np.einsum("tin,ti->n", jacobian, pressing * force[:, None])
    assert (np.abs(torque) <= ROBOT.effort_limits[HAND.hand]).all()


def test_dry_friction_of_the_joints_is_added_to_the_grip(grasp):
    """The reserve is about a newton for this hand, is added to the grip, and can be left out."""
    reserve = hidden_force(HAND, grasp)
    assert 0.3 < reserve < 3.0
    plain = finger_forces(HAND, grasp, 2.0, reserve=False)
    more = finger_forces(HAND, grasp, 2.0)
    assert plain[3] == pytest.approx(2.0)
    assert more[3] == pytest.approx(2.0 + reserve)
    assert finger_forces(HAND, grasp, 0.0).max() == 0.0


def test_level_keeps_yaw_and_place_and_removes_tilt():
    """A tilted pose becomes upright with the same heading of its x axis."""
    pose = se3.exp(np.array([0.1, 0.2, 0.3, 0.0, 0.0, 0.7])) @ se3.exp(
        np.array([0, 0, 0, 0.05, -0.04, 0])
    )
    upright = level(pose)
    assert upright[:3, 2] == pytest.approx([0, 0, 1])
    assert upright[:3, 3] == pytest.approx(pose[:3, 3])
    assert np.arctan2(upright[1, 0], upright[0, 0]) == pytest.approx(
        np.arctan2(pose[1, 0], pose[0, 0])
    )


def test_impossible_inertia_is_repaired_and_a_possible_one_kept():
    """The triangle inequality holds afterwards; a box's inertia is left as it is."""
    moments = MASS / 12 * (np.sum(np.square(SIZE)) - np.square(SIZE))
    assert physical_inertia(np.diag(moments), MASS) == pytest.approx(np.diag(moments))
    fixed = np.linalg.eigvalsh(physical_inertia(np.diag([1e-4, 1e-4, 9e-4]), MASS))
    assert fixed[2] <= fixed[0] + fixed[1] + 1e-12


def test_world_without_the_robot_is_refused():
    """A missing actuator is named."""
    model = mujoco.MjModel.from_xml_string("<mujoco/>")
    with pytest.raises(InputError, match="arm_x"):
        World(model, HAND, np.eye(4))
