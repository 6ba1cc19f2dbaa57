"""The hand in its wrist's frame, and inverse kinematics."""

import numpy as np
import pytest

from twinloop.errors import InputError
from twinloop.hand.kinematics import HandKinematics, solve_tips
from twinloop.hand.model import RobotModel

MODEL = RobotModel.load("twinhand")
HAND = HandKinematics(MODEL)


def _postures(count, share=0.6):
    rng = np.random.default_rng(4)
    return share * rng.uniform(HAND.lower, HAND.upper, (count, 16))


def test_wrist_splits_arm_and_hand():
    """Four arm joints above the palm, sixteen hand joints below it."""
    assert HAND.wrist == "palm"
    assert len(HAND.arm) == 4
    assert len(HAND.hand) == 16


def test_tips_agree_with_the_robot_and_jacobians_with_differences():
    """Positions equal the whole robot's at arm zero; Jacobians equal central differences."""
    q = _postures(20)
    points, jacobian = HAND.tips(q)
    assert points == pytest.approx(MODEL.tip_positions(HAND.full(q)), abs=1e-12)
    for joint in range(16):
        move = 1e-6 * np.eye(16)[joint]
        slope = (HAND.tips(q + move)[0] - HAND.tips(q - move)[0]) / 2e-6
        assert slope == pytest.approx(jacobian[..., joint], abs=1e-8)


def test_reachable_targets_are_reached_within_the_limits():
    """Fingertips of random postures are found again, far below 1 mm, with joints inside limits."""
    wanted, _ = HAND.tips(_postures(100))
    start = MODEL.posture("closed")[HAND.hand]
    q, error = solve_tips(HAND, wanted, start)
    assert error.max() < 1e-4
    assert (q >= HAND.lower).all()
    assert (q <= HAND.upper).all()


def test_unreachable_targets_end_at_the_limits_not_beyond():
    """A target a metre away leaves an error and joints inside their limits."""
    q, error = solve_tips(HAND, np.full((1, 4, 3), 1.0), np.zeros(16))
    assert error.min() > 0.5
    assert (q >= HAND.lower).all()
    assert (q <= HAND.upper).all()


def test_arm_brings_the_wrist_to_a_level_pose_and_refuses_others():
    """Forward kinematics of the answer is the wanted pose; a tilted palm is impossible."""
    pose = np.eye(4)
    pose[:2, :2] = [[0.0, -1.0], [1.0, 0.0]]
    pose[:3, 3] = [0.1, -0.2, 0.3]
    arm = HAND.arm_for_wrist(pose)
    assert MODEL.forward(HAND.full(np.zeros(16), arm))["palm"] == pytest.approx(pose, abs=1e-12)
    tilted = pose.copy()
    tilted[:3, :3] = [[1, 0, 0], [0, 0, -1], [0, 1, 0]]
    with pytest.raises(InputError, match="parallel to the table"):
        HAND.arm_for_wrist(tilted)
    far = pose.copy()
    far[0, 3] = 2.0
    with pytest.raises(InputError, match="arm_x"):
        HAND.arm_for_wrist(far)
