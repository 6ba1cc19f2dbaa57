"""Hand-eye calibration: exact on exact data, within bounds under noise, honest about both."""

from __future__ import annotations

import numpy as np
import pytest

from tests.capture.robot_views import CAMERA, robot_views
from twinloop.capture.hand_eye import calibrate_hand_eye
from twinloop.errors import InputError
from twinloop.geometry import se3


def error(found: np.ndarray, true: np.ndarray) -> tuple[float, float]:
    """Distance, m, and angle, rad, between two poses."""
    off = se3.log(se3.inverse(true) @ found)
    return float(np.linalg.norm((found - true)[:3, 3])), float(np.linalg.norm(off[3:]))


@pytest.mark.parametrize("eye_in_hand", [True, False])
def test_exact_views_give_the_exact_answer(eye_in_hand: bool) -> None:
    """Without noise both poses come out to a micrometre."""
    case = robot_views(0, 6, eye_in_hand=eye_in_hand, pixel_std=0, robot_std=(0, 0))
    found = calibrate_hand_eye(case.T_base_flange, case.views, CAMERA, eye_in_hand=eye_in_hand)
    np.testing.assert_allclose(found.T_mount_camera, case.T_mount_camera, atol=1e-6)
    np.testing.assert_allclose(found.T_target_board, case.T_target_board, atol=1e-6)
    assert found.rms < 1e-3
    assert found.translation_95 < 1e-6


@pytest.mark.parametrize("eye_in_hand", [True, False])
def test_noise_stays_within_the_target_and_is_covered(eye_in_hand: bool) -> None:
    """15 poses, 0.3 px, 0.3 mm, 0.03 deg: 1.5 mm and 0.15 deg; intervals hold most errors."""
    inside, places, turns = 0, [], []
    for seed in range(8):
        case = robot_views(seed, 15, eye_in_hand=eye_in_hand)
        found = calibrate_hand_eye(case.T_base_flange, case.views, CAMERA, eye_in_hand=eye_in_hand)
        place, turn = error(found.T_mount_camera, case.T_mount_camera)
        inside += place <= found.translation_95
        inside += turn <= found.rotation_95
        places.append(place)
        turns.append(turn)
        assert 0.2 < found.rms < 3.0
        assert found.pose_rms[0] < 3e-3
    assert np.sort(places)[-2] < 1.5e-3
    assert np.degrees(np.sort(turns)[-2]) < 0.15
    assert inside >= 13  # of 16; 95 % nominal


def test_turns_about_one_axis_are_refused_with_their_size() -> None:
    """The wrist turns about one axis only: the position along it stays open."""
    case = robot_views(0, 8, axes=1)
    with pytest.raises(InputError, match=r"unidentifiable.*about one axis and by 0\.\d deg"):
        calibrate_hand_eye(case.T_base_flange, case.views, CAMERA)


def test_wrong_poses_are_refused() -> None:
    """Too few, in millimetres, in another order, mixed up with the inverse, not rigid."""
    case = robot_views(1, 12)
    poses, views = case.T_base_flange, case.views
    with pytest.raises(InputError, match="unidentifiable from 4 poses"):
        calibrate_hand_eye(poses[:4], views[:4], CAMERA)
    with pytest.raises(InputError, match=r"one for each picture"):
        calibrate_hand_eye(poses[:11], views, CAMERA)
    millimetres = poses.copy()
    millimetres[:, :3, 3] *= 1e3
    with pytest.raises(InputError, match=r"In millimetres it would be 0\.\d+ m"):
        calibrate_hand_eye(millimetres, views, CAMERA)
    with pytest.raises(InputError, match="in this order"):
        calibrate_hand_eye(poses[::-1], views, CAMERA)
    with pytest.raises(InputError, match="disagree by"):
        calibrate_hand_eye(poses, views, CAMERA, eye_in_hand=False)
    for value in (np.nan, 2.0):
        broken = poses.copy()
        broken[3, 0, 0] = value
        with pytest.raises(InputError, match="pose 3 is no rigid motion"):
            calibrate_hand_eye(broken, views, CAMERA)


def test_the_answer_does_not_depend_on_the_run() -> None:
    """Same input, same numbers, the bootstrap too."""
    case = robot_views(2, 8)
    one, two = (calibrate_hand_eye(case.T_base_flange, case.views, CAMERA) for _ in range(2))
    np.testing.assert_array_equal(one.T_mount_camera, two.T_mount_camera)
    assert one.translation_95 == two.translation_95
