"""The network's symmetries, its training, and the policy built on it."""

import numpy as np
import pytest
import torch
import trimesh

from tests.stages.box_twin import SIZE
from twinloop.errors import ArtifactError
from twinloop.geometry import se3
from twinloop.geometry.surface import TriangleSurface
from twinloop.hand.kinematics import HandKinematics
from twinloop.hand.model import RobotModel
from twinloop.metrics.chamfer import sample_surface
from twinloop.policy.dataset import displacement, load_factor, make_examples, solve_hand_and_wrist
from twinloop.policy.grasp import plan_grasp
from twinloop.policy.network import GraspNetwork, encode
from twinloop.policy.policy import GraspPolicy, Refinement
from twinloop.policy.runner import GraspRunner, Physics
from twinloop.policy.training import Adam, TrainingSettings, train

HAND = HandKinematics(RobotModel.load("twinhand"))
BOX = trimesh.creation.box(SIZE)
POINTS = sample_surface(BOX.vertices, BOX.faces, 48, 0)


@pytest.fixture(scope="module")
def grasp():
    """Planned grasp of the box."""
    surface = TriangleSurface(BOX.vertices, BOX.faces)
    return plan_grasp(surface, HAND, centre_of_mass=np.zeros(3), yaws=[np.pi / 2])


@pytest.fixture(scope="module")
def examples(grasp):
    """A small set of displaced grasps."""
    return make_examples(
        grasp,
        POINTS,
        HAND,
        count=128,
        spread=(0.01, 0.005, 0.1),
        margin=2.0,
        risk_quantile=1.645,
        touch=0.002,
        rng=np.random.default_rng(0),
    )


def _physics(mass, friction=0.3, width=1.2):
    return Physics(mass, mass / width, mass * width, friction, friction / width, friction * width)


def _network(seed=0):
    network = GraspNetwork(16, HAND.lower, HAND.upper)
    network.initialise(torch.Generator().manual_seed(seed))
    return network


def _runner(network=None):
    return GraspRunner((network or _network()).arrays())


def test_answer_does_not_depend_on_the_order_of_points():
    """Permuting the object's points changes nothing but rounding."""
    network = _runner()
    order = np.random.default_rng(1).permutation(len(POINTS))
    one, two = network.act(POINTS, _physics(0.3)), network.act(POINTS[order], _physics(0.3))
    assert two.joints == pytest.approx(one.joints, abs=1e-6)
    assert two.side_force == pytest.approx(one.side_force, rel=1e-6)


def test_joints_stay_inside_their_limits_whatever_the_weights():
    """The joint head is a bounded function of anything."""
    network = _network()
    with torch.no_grad():
        for weight in network.parameters():
            weight.mul_(50.0)
    joints = _runner(network).act(1000 * POINTS, _physics(0.3)).joints
    assert (joints >= HAND.lower - 1e-6).all()
    assert (joints <= HAND.upper + 1e-6).all()


def test_force_is_proportional_to_mass_over_friction():
    """At equal relative intervals the force doubles with the mass and halves with friction."""
    network = _runner()
    base = network.act(POINTS, _physics(0.3)).side_force
    assert network.act(POINTS, _physics(0.6)).side_force == pytest.approx(2 * base, rel=1e-6)
    assert network.act(POINTS, _physics(0.3, 0.6)).side_force == pytest.approx(base / 2, rel=1e-6)


def test_encoding_tells_millimetres_apart():
    """Two points 2 mm apart differ visibly in the encoding (in metres they would not)."""
    a, b = torch.zeros(1, 3), torch.tensor([[0.002, 0.0, 0.0]])
    assert float((encode(a) - encode(b)).norm()) > 0.1


def test_load_factor_is_the_quantile_of_log_normal_loads():
    """Sampling m/mu from the intervals gives the same quantile."""
    rng = np.random.default_rng(3)
    widths = np.array([[0.5, 0.9]])
    log_mass = rng.normal(0, 0.5 / 3.92, 200_000)
    log_friction = rng.normal(0, 0.9 / 3.92, 200_000)
    sampled = np.log(0.5 * 2.0) + np.quantile(log_mass - log_friction, 0.95)
    assert load_factor(widths, 2.0, 1.6449)[0] == pytest.approx(sampled, abs=5e-3)


def test_hand_and_wrist_share_the_error(grasp):
    """Displaced contacts are met within 0.1 mm by fingers and wrist together."""
    offset = np.array([[0.01, -0.008, 0.004, 0.1]])
    inverse = se3.inverse(grasp.T_object_wrist @ displacement(offset))
    targets = se3.apply(inverse, grasp.pads)
    joints, wrist, error = solve_hand_and_wrist(HAND, targets, grasp.joints)
    assert error.max() < 1e-4
    assert 1e-3 < np.linalg.norm(wrist[0, :3]) < 0.02
    assert np.abs(joints - grasp.joints).max() > 0.005


def test_training_lowers_every_loss_and_repeats_bit_by_bit(examples):
    """Two runs give the same weights; joints and force are learnt."""
    settings = TrainingSettings(hidden=16, epochs=12, batch=32, seed=1)
    first, curve = train(examples, HAND.lower, HAND.upper, settings)
    second, _ = train(examples, HAND.lower, HAND.upper, settings)
    for name, value in first.arrays().items():
        assert np.array_equal(value, second.arrays()[name]), name
    assert curve.joints[-1] < 0.5 * curve.joints[0]
    assert curve.force[-1] < 0.3 * curve.force[0]


def test_runner_agrees_with_torch_below_1e_5():
    """The NumPy forward pass equals torch's on all heads."""
    network, physics = _network(3), _physics(0.3)
    action = _runner(network).act(POINTS, physics)
    with torch.no_grad():
        joints, wrist, contacts, factor = network(
            torch.as_tensor(POINTS, dtype=torch.float32)[None],
            torch.as_tensor(physics.context(), dtype=torch.float32)[None],
        )
    assert action.joints == pytest.approx(joints[0].numpy(), abs=1e-5)
    assert action.wrist_offset == pytest.approx(wrist[0].numpy(), abs=1e-5)
    assert action.contacts == pytest.approx(torch.sigmoid(contacts[0]).numpy(), abs=1e-5)
    assert action.side_force == pytest.approx(float(torch.exp(factor[0])) * physics.load, rel=1e-5)


def test_missing_and_misshapen_weights_are_named():
    """A weight that is absent, or of another shape, raises with its name."""
    arrays = _network().arrays()
    broken = {name: value for name, value in arrays.items() if name != "wrist_bias"}
    with pytest.raises(ArtifactError, match="wrist_bias"):
        GraspRunner(broken)
    with pytest.raises(ArtifactError, match="trunk_0_weight"):
        GraspRunner({**arrays, "trunk_0_weight": np.zeros((3, 3), dtype=np.float32)})


def test_policy_turns_its_answer_into_a_grasp(grasp, examples):
    """The plan's pads are the hand's own, its wrist is level, and refinement moves it as told."""
    network, _ = train(
        examples, HAND.lower, HAND.upper, TrainingSettings(hidden=16, epochs=3, seed=0)
    )
    policy = GraspPolicy(
        _runner(network), POINTS, grasp.T_object_wrist, _physics(0.365), Refinement(), HAND
    )
    plain, force, action = policy.plan()
    moved, more, _ = policy.plan(refinement=Refinement(0.004, -0.003, np.log(1.5)))
    assert plain.pads == pytest.approx(se3.apply(plain.T_object_wrist, HAND.tips(action.joints)[0]))
    assert plain.T_object_wrist[:3, 2] == pytest.approx([0, 0, 1], abs=1e-9)
    shift = moved.T_object_wrist[:3, 3] - plain.T_object_wrist[:3, 3]
    assert shift @ plain.T_object_wrist[:3, 2] == pytest.approx(0.004)
    assert shift @ plain.T_object_wrist[:3, 1] == pytest.approx(-0.003)
    assert more == pytest.approx(1.5 * force)


def test_adam_equals_torch_bit_by_bit():
    """Twenty steps with a falling step size leave the same weights as `torch.optim.Adam`."""
    generator = torch.Generator().manual_seed(3)
    weights = torch.randn(5, 3, generator=generator)
    ours, theirs = weights.clone().requires_grad_(), weights.clone().requires_grad_()
    own, reference = Adam([ours]), torch.optim.Adam([theirs])
    for step in range(20):
        rate = 3e-3 / (1 + step)
        for tensor in (ours, theirs):
            tensor.grad = None
            (tensor.sin() * weights).sum().backward()
        own.step(rate)
        reference.param_groups[0]["lr"] = rate
        reference.step()
    assert own.count == 20
    assert torch.equal(ours, theirs)
