"""Kalibr's camchain: the example of its documentation, and each way it breaks."""

from __future__ import annotations

import re
from pathlib import Path

import cv2
import numpy as np
import pytest

from twinloop.capture.formats.kalibr import (
    detects,
    read_kalibr,
    read_kalibr_camera,
    read_kalibr_chain,
)
from twinloop.capture.warning import CaptureWarning
from twinloop.errors import InputError
from twinloop.geometry import se3

# The layout that Kalibr's documentation shows: cam0 pinhole, a second one, an omni camera.
CHAIN = """\
cam0:
  camera_model: pinhole
  intrinsics: [461.629, 460.152, 362.680, 246.049]
  distortion_model: radtan
  distortion_coeffs: [-0.27695497, 0.06712482, 0.00087538, 0.00011556]
  T_cam_imu:
  - [0.01779318, 0.99967549, -0.01822936, 0.07008565]
  - [-0.9998017, 0.01795239, 0.00860714, -0.01771023]
  - [0.00893160, 0.01807260, 0.99979678, 0.00399246]
  - [0.0, 0.0, 0.0, 1.0]
  timeshift_cam_imu: -8.121e-05
  rostopic: /cam0/image_raw
  resolution: [752, 480]
cam1:
  camera_model: pinhole
  intrinsics: [458.1, 457.2, 370.0, 240.0]
  distortion_model: none
  distortion_coeffs: []
  T_cn_cnm1:
  - [0.99998854, 0.00216014, 0.00427195, -0.11003785]
  - [-0.00221074, 0.99992702, 0.01187697, 0.00045792]
  - [-0.00424598, -0.01188627, 0.99992034, -0.00064487]
  - [0.0, 0.0, 0.0, 1.0]
  rostopic: /cam1/image_raw
  resolution: [752, 480]
"""
OMNI = """\
cam2:
  camera_model: omni
  intrinsics: [0.80065662, 833.006, 830.345, 373.850, 253.749]
  distortion_model: radtan
  distortion_coeffs: [-0.33518750, 0.13211436, 0.00055967, 0.00057686]
  T_cn_cnm1:
  - [1.0, 0.0, 0.0, 0.2]
  - [0.0, 1.0, 0.0, 0.0]
  - [0.0, 0.0, 1.0, 0.0]
  - [0.0, 0.0, 0.0, 1.0]
  resolution: [752, 480]
"""


INTRINSICS = "[461.629, 460.152, 362.680, 246.049]"


def written(folder: Path, text: str = CHAIN) -> Path:
    """Write a camchain."""
    path = folder / "camchain.yaml"
    path.write_text(text)
    return path


def test_points_project_as_opencv_projects_them(tmp_path: Path) -> None:
    """pinhole-radtan is OpenCV's model with four coefficients."""
    path = written(tmp_path)
    assert detects(path)
    assert detects(tmp_path)
    cameras = read_kalibr(tmp_path)
    assert list(cameras) == ["cam0", "cam1"]
    points = np.random.default_rng(0).uniform([-1, -0.7, 2], [1, 0.7, 4], (30, 3))
    matrix = np.array([[461.629, 0, 362.680], [0, 460.152, 246.049], [0, 0, 1]])
    coefficients = np.array([-0.27695497, 0.06712482, 0.00087538, 0.00011556])
    expected = cv2.projectPoints(points, np.zeros(3), np.zeros(3), matrix, coefficients)[0]
    np.testing.assert_allclose(cameras["cam0"].project(points), expected.reshape(-1, 2), atol=1e-9)
    assert (cameras["cam0"].width, cameras["cam0"].height) == (752, 480)
    assert not cameras["cam1"].distortion.any()


def test_one_camera_is_chosen_by_name(tmp_path: Path) -> None:
    """Without a name the first is used, and the choice is said."""
    path = written(tmp_path)
    with pytest.warns(CaptureWarning, match="cam0, cam1; cam0 is used"):
        assert read_kalibr_camera(path).intrinsics[0] == 461.629
    assert read_kalibr_camera(path, "cam1").intrinsics[0] == 458.1
    with pytest.raises(InputError, match="no camera 'cam7'"):
        read_kalibr_camera(path, "cam7")


def test_the_chain_multiplies(tmp_path: Path) -> None:
    """Each transform is from the camera before; a third camera's is the product."""
    chain = read_kalibr_chain(written(tmp_path, CHAIN + OMNI))
    assert np.array_equal(chain["cam0"], np.eye(4))
    origin_in_second = se3.apply(chain["cam1"], np.zeros((1, 3)))[0]
    np.testing.assert_allclose(origin_in_second, [-0.11003785, 0.00045792, -0.00064487])
    origin_in_third = se3.apply(chain["cam2"], np.zeros((1, 3)))[0]
    np.testing.assert_allclose(origin_in_third, origin_in_second + [0.2, 0, 0])


def test_ten_cameras_are_in_order(tmp_path: Path) -> None:
    """cam10 comes after cam2."""
    block = CHAIN[CHAIN.index("cam1:") :]
    text = "".join(block.replace("cam1:", f"cam{i}:", 1) for i in (10, 2, 0))
    assert list(read_kalibr(written(tmp_path, text))) == ["cam0", "cam2", "cam10"]


def test_cameras_of_other_models_are_left_out(tmp_path: Path) -> None:
    """Omni and equidistant are refused alone, and left out with a warning beside a pinhole."""
    with pytest.warns(CaptureWarning, match="cam2 is omni-radtan"):
        assert list(read_kalibr(written(tmp_path, CHAIN + OMNI))) == ["cam0", "cam1"]
    with pytest.raises(InputError, match=r"cam2 is omni-radtan.*--models pinhole-radtan"):
        read_kalibr(written(tmp_path, OMNI))
    equidistant = CHAIN[: CHAIN.index("cam1:")].replace("radtan", "equidistant")
    with pytest.raises(InputError, match="pinhole-equidistant"):
        read_kalibr(written(tmp_path, equidistant))


def test_the_size_must_be_known_and_agree(tmp_path: Path) -> None:
    """Without resolution the caller says it; two sizes are refused."""
    path = written(tmp_path, re.sub(r"  resolution: .*\n", "", CHAIN))
    with pytest.raises(InputError, match="does not say the size"):
        read_kalibr(path)
    assert read_kalibr(path, (752, 480))["cam0"].width == 752
    with pytest.raises(InputError, match="calibrated at 752 x 480"):
        read_kalibr(written(tmp_path), (640, 480))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "[461.629, 460.152, 362.680, 246.049]",
            "[0.61, 0.6, 0.48, 0.5]",
            "fractions of the width",
        ),
        (INTRINSICS, "[461.629, 460.152]", "2 numbers; 4"),
        (INTRINSICS, "[.nan, 1, 1, 1]", "finite numbers"),
        (INTRINSICS, "wide", "numbers are expected"),
        ("[-0.27695497, 0.06712482, 0.00087538, 0.00011556]", "[0.1]", "1 numbers; 4"),
        ("[752, 480]", "[480, 240]", "turned picture"),
        ("[752, 480]", "[752.5, 480]", "whole number"),
        ("cam0:\n  camera_model: pinhole", "cam0: 3\nx:\n  y: pinhole", "a mapping"),
    ],
)
def test_what_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    """Other units and broken numbers: file, camera, what to do."""
    assert old in CHAIN
    path = written(tmp_path, CHAIN.replace(old, new))
    with pytest.raises(InputError, match=message) as error:
        read_kalibr(path)
    assert "camchain.yaml: cam0" in str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("-0.11003785", "-110.03785", "millimetres"),
        ("0.99998854", "0.5", "no rigid transform"),
        ("0.99998854", ".nan", "no rigid transform"),
        ("T_cn_cnm1", "T_other", "numbers are expected"),
    ],
)
def test_chains_that_are_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    """Millimetres, a matrix that is no rotation, a missing link."""
    with pytest.raises(InputError, match=message):
        read_kalibr_chain(written(tmp_path, CHAIN.replace(old, new)))


def test_files_that_are_no_camchain(tmp_path: Path) -> None:
    """Empty, cut, and of another kind."""
    assert not detects(tmp_path)
    with pytest.raises(InputError, match="0 bytes"):
        read_kalibr(written(tmp_path, ""))
    with pytest.raises(InputError, match="YAML"):
        read_kalibr(written(tmp_path, CHAIN[:90]))
    with pytest.raises(InputError, match=r"no cameras; cam0.*found lens"):
        read_kalibr(written(tmp_path, "lens: 3\n"))
    with pytest.raises(InputError, match="one Kalibr camchain is expected, found none"):
        read_kalibr(tmp_path)
