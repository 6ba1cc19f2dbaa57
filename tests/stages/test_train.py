"""Stage train on the hand-made twin of a box."""

import pytest

from stages.retarget import run as retarget
from stages.retarget.params import Params as RetargetParams
from stages.train import report, run, schema
from stages.train.params import Params
from tests.stages import box_twin
from twinloop.artifacts.store import open_artifact, write_artifact
from twinloop.hand.kinematics import HandKinematics
from twinloop.hand.model import RobotModel
from twinloop.policy.force_law import GRAVITY
from twinloop.policy.posterior import read_posterior
from twinloop.policy.saved import load_policy

QUICK = Params(
    examples=96,
    epochs=8,
    hidden=16,
    points=32,
    iterations=1,
    population=1,
    cases=1,
    trials=2,
    hold=0.3,
)


@pytest.fixture(scope="module")
def demonstration(tmp_path_factory):
    """Retargeted demonstration as an opened artifact."""
    from twinloop.artifacts.kinds.demonstration import DEMONSTRATION

    root = tmp_path_factory.mktemp("demo")
    box_twin.write_demo(root / "datasets/box/raw/demo")
    inputs = box_twin.inputs(root, {"reconstruct": box_twin.reconstruction()})
    groups = retarget.run(inputs, RetargetParams(frames=24, iterations=6, refinement=5))
    write_artifact(root / "retarget.zarr", DEMONSTRATION, groups)
    return open_artifact(root / "retarget.zarr", DEMONSTRATION)


def _inputs(root, demonstration, **physics):
    return box_twin.inputs(
        root,
        {
            "reconstruct": box_twin.reconstruction(),
            "identify": box_twin.physics(**physics),
            "retarget": demonstration,
        },
    )


def test_policy_grasps_as_demonstrated_and_lifts_in_the_twin(tmp_path, demonstration):
    """Contacts on the demonstrated sides, force near the law, at least one twin trial succeeds."""
    inputs = _inputs(tmp_path, demonstration)
    groups = run.run(inputs, QUICK)
    write_artifact(tmp_path / "train.zarr", schema.WRITES, groups)
    tree = open_artifact(tmp_path / "train.zarr", schema.WRITES, values=True)
    normal = tree["contact_normal"].values
    assert normal[:3, 1] == pytest.approx([-1, -1, -1], abs=0.05)
    assert normal[3, 1] == pytest.approx(1, abs=0.05)
    least = box_twin.MASS * GRAVITY / (2 * 0.8)
    assert 2 * least <= float(tree["law_side_force"]) < 3 * least
    figures = report.metrics(tree, inputs, QUICK)
    assert figures["twin_successes"] >= 1
    assert set(report.plots(tree, inputs, QUICK)) == {"training", "grasp"}

    policy = load_policy(tree, HandKinematics(RobotModel.load("twinhand")))
    grasp, force, _ = policy.plan()
    assert grasp.joints == pytest.approx(tree["joint_target"].values)
    assert force == pytest.approx(float(tree["side_force"]))


def test_same_input_gives_the_same_arrays(tmp_path, demonstration):
    """Two runs agree bit by bit, network weights included."""
    inputs = _inputs(tmp_path, demonstration)
    params = QUICK.model_copy(update={"trials": 1})
    first, second = run.run(inputs, params), run.run(inputs, params)
    for name, dataset in first.items():
        assert dataset.identical(second[name]), name


def test_wider_intervals_squeeze_harder(tmp_path, demonstration):
    """Twice the uncertainty of mass and friction raises the law's force."""
    params = QUICK.model_copy(update={"trials": 1, "iterations": 0})
    narrow = run.run(_inputs(tmp_path, demonstration, spread=0.02), params)["/"]
    wide = run.run(_inputs(tmp_path, demonstration, spread=0.15), params)["/"]
    assert float(wide["law_side_force"]) > 1.15 * float(narrow["law_side_force"])


def test_unidentifiable_fingertip_friction_falls_back_and_says_so(tmp_path, demonstration):
    """Without identified pad friction the table's stands in, and the notes tell."""
    inputs = _inputs(tmp_path, demonstration, pad_known=False)
    posterior = read_posterior(inputs.artifacts["identify"], 0.8)
    assert posterior.grip == "friction"
    assert any("stands in" in note for note in posterior.notes)
    assert posterior.physics().friction == pytest.approx(box_twin.FRICTION)
    root = run.run(inputs, QUICK)["/"]
    least = box_twin.MASS * GRAVITY / (2 * box_twin.FRICTION)
    assert float(root["law_side_force"]) > 2 * least


def test_grip_friction_beyond_the_datasheet_is_not_believed():
    """Pads of 0.8 on the datasheet cap an estimate of 1.3, in the value and in every sample."""
    tree = box_twin.physics(pad=1.3)
    posterior = read_posterior(tree, 0.8)
    assert posterior.physics().friction == pytest.approx(0.8)
    assert posterior.grip_samples().max() <= 0.8
    assert any("datasheet" in note for note in posterior.notes)
