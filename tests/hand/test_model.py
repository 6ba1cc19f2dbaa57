"""Kinematics of the robot model against MuJoCo and finite differences."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
import yaml

from twinloop.errors import InputError
from twinloop.hand.mjcf import add_robot
from twinloop.hand.model import MODELS, RobotModel

ROBOT = RobotModel.load("twinhand")


def random_joints(seed: int, count: int | None = None) -> np.ndarray:
    """Joint vectors drawn inside the limits."""
    shape = (ROBOT.dof,) if count is None else (count, ROBOT.dof)
    low, high = ROBOT.joint_limits.T
    return np.random.default_rng(seed).uniform(low, high, shape)


def base_pose() -> np.ndarray:
    """A base that is neither at the origin nor parallel to the world."""
    base = np.eye(4)
    c, s = np.cos(0.4), np.sin(0.4)
    base[:3, :3] = [[c, -s, 0], [s, c, 0], [0, 0, 1]]
    base[:3, 3] = [0.1, -0.2, 0.05]
    return base


def robot_alone(base: np.ndarray | None = None) -> mujoco.MjModel:
    """A world that holds nothing but the robot."""
    spec = mujoco.MjSpec()
    add_robot(spec, ROBOT, base)
    return spec.compile()


@pytest.mark.parametrize("seed", range(4))
def test_forward_and_jacobian_equal_mujoco(seed: int) -> None:
    """Every link pose, tip and tip Jacobian is the one MuJoCo computes from the built model."""
    base, q = base_pose(), random_joints(seed)
    model = robot_alone(base)
    data = mujoco.MjData(model)
    assert [model.joint(i).name for i in range(model.njnt)] == list(ROBOT.joint_names)
    data.qpos[:] = q
    mujoco.mj_forward(model, data)
    for link, pose in ROBOT.forward(q, base).items():
        np.testing.assert_allclose(pose[:3, 3], data.body(link).xpos, atol=1e-12)
        np.testing.assert_allclose(pose[:3, :3].ravel(), data.body(link).xmat, atol=1e-12)
    for number, tip in enumerate(ROBOT.tips):
        site = data.site(tip)
        np.testing.assert_allclose(ROBOT.tip_positions(q, base)[number], site.xpos, atol=1e-12)
        jacobian = np.zeros((3, model.nv))
        mujoco.mj_jacSite(model, data, jacobian, None, site.id)
        np.testing.assert_allclose(ROBOT.jacobian(q, tip, base), jacobian, atol=1e-12)


def test_jacobian_equals_finite_differences() -> None:
    """The tip Jacobian is the derivative of the tip position."""
    q, step = random_joints(7), 1e-6
    for number, tip in enumerate(ROBOT.tips):
        shifted = q + step * np.concatenate([np.eye(ROBOT.dof), -np.eye(ROBOT.dof)])
        positions = ROBOT.tip_positions(shifted)[:, number]
        numeric = (positions[: ROBOT.dof] - positions[ROBOT.dof :]).T / (2 * step)
        np.testing.assert_allclose(ROBOT.jacobian(q, tip), numeric, atol=1e-8)


def test_batches_equal_single_calls() -> None:
    """Leading dimensions are batches."""
    batch = random_joints(1, 6).reshape(2, 3, ROBOT.dof)
    tips, jacobians = ROBOT.tip_positions(batch), ROBOT.jacobian(batch, "thumb_tip")
    assert tips.shape == (2, 3, 4, 3)
    assert jacobians.shape == (2, 3, 3, ROBOT.dof)
    np.testing.assert_array_equal(tips[1, 2], ROBOT.tip_positions(batch[1, 2]))
    np.testing.assert_array_equal(jacobians[1, 2], ROBOT.jacobian(batch[1, 2], "thumb_tip"))


def test_shape_of_the_hand() -> None:
    """The palm looks down, the thumb opposes the fingers, poke leaves one tip lowest."""
    tips = ROBOT.tip_positions(np.zeros(ROBOT.dof))
    assert np.all(tips[:, 2] < -0.1)
    assert np.all(tips[:3, 0] < 0)
    assert tips[3, 0] > 0
    flexed = ROBOT.tip_positions(ROBOT.posture("closed"))
    assert np.all(np.abs(flexed[:, 0]) < np.abs(tips[:, 0]))
    poke = ROBOT.tip_positions(ROBOT.posture("poke"))
    assert np.all(poke[1:, 2] > poke[0, 2] + 0.05)
    assert ROBOT.dof == 20
    assert ROBOT.joint_limits.shape == (20, 2)
    assert np.all(ROBOT.gains > 0)
    assert np.all(ROBOT.effort_limits > 0)


def test_impedance_yields_as_the_yaml_says() -> None:
    """A constant force F on an arm joint moves it by F/K beyond the band of its dry friction."""
    model = robot_alone()
    data = mujoco.MjData(model)
    data.qpos[2] = data.ctrl[2] = 0.3
    force = 3.0
    data.qfrc_applied[0] = force
    for _ in range(2000):
        mujoco.mj_step(model, data)
    stiffness, slack = ROBOT.gains[0, 0], ROBOT.joint_friction[0, 0] / ROBOT.gains[0, 0]
    assert abs(data.qpos[0] - force / stiffness) <= slack + 1e-5
    assert abs(data.qpos[2] - 0.3) < 1e-4  # gravity of the robot is compensated
    assert abs(data.actuator_force[0] + force) <= ROBOT.joint_friction[0, 0] + 1e-3


def test_errors_name_the_fault(tmp_path: object) -> None:
    """A wrong size, name, file or field says what is wrong and what would be right."""
    with pytest.raises(InputError, match="expected"):
        ROBOT.forward(np.zeros(3))
    with pytest.raises(InputError, match="finite"):
        ROBOT.forward(np.full(ROBOT.dof, np.nan))
    with pytest.raises(InputError, match="index_tip"):
        ROBOT.jacobian(np.zeros(ROBOT.dof), "nose")
    with pytest.raises(InputError, match="twinhand"):
        RobotModel.load("octopus")


def test_a_broken_yaml_is_refused(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """A parent that is not defined, swapped limits and an unknown field are all named."""
    raw = yaml.safe_load((MODELS / "twinhand.yaml").read_text())
    raw["joints"][5]["parent"] = "tail"
    path = tmp_path / "bad.yaml"
    path.write_text(yaml.safe_dump(raw))
    with pytest.raises(InputError, match="tail"):
        RobotModel.load(path)
    raw = yaml.safe_load((MODELS / "twinhand.yaml").read_text())
    raw["joints"][0]["lower"] = 9.0
    raw["joints"][1]["colour"] = "red"
    path.write_text(yaml.safe_dump(raw))
    with pytest.raises(InputError, match=r"(?s)arm_x.*colour"):
        RobotModel.load(path)
