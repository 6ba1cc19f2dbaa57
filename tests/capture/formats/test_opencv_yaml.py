"""Calibrations that OpenCV itself wrote, and ROS's; each way they break."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from tests.realdata import folder as real
from twinloop.capture.formats import calibration_file
from twinloop.capture.formats.opencv_yaml import detects, read_opencv_camera
from twinloop.capture.warning import CaptureWarning
from twinloop.errors import InputError

MATRIX = np.array([[600.25, 0, 320.5], [0, 601, 239.75], [0, 0, 1]])
DISTORTION = np.array([[0.1, -0.2, 1e-3, -2e-10, 0.05]])

ROS = """\
image_width: 640
image_height: 480
camera_name: left
camera_matrix:
  rows: 3
  cols: 3
  data: [600.25, 0, 320.5, 0, 601, 239.75, 0, 0, 1]
distortion_model: plumb_bob
distortion_coefficients:
  rows: 1
  cols: 5
  data: [0.1, -0.2, 0.001, -2e-10, 0.05]
rectification_matrix:
  rows: 3
  cols: 3
  data: [1, 0, 0, 0, 1, 0, 0, 0, 1]
"""


def stored(path: Path, size: bool = True, **values: Any) -> Path:
    """Let OpenCV write a calibration."""
    said = {"camera_matrix": MATRIX, "distortion_coefficients": DISTORTION}
    said = {**said, **values}
    storage = cv2.FileStorage(str(path), cv2.FILE_STORAGE_WRITE)
    if size:
        storage.write("image_width", 640)
        storage.write("image_height", 480)
    for key, value in said.items():
        if value is not None:
            storage.write(key, value)
    storage.release()
    return path


def check(camera: Any, distortion: Any = DISTORTION) -> None:
    """Our projection is cv2.projectPoints with the same numbers."""
    points = np.random.default_rng(0).uniform([-1, -0.7, 2], [1, 0.7, 4], (30, 3))
    expected = cv2.projectPoints(points, np.zeros(3), np.zeros(3), MATRIX, distortion)[0]
    np.testing.assert_allclose(camera.project(points), expected.reshape(-1, 2), atol=1e-9)
    assert (camera.width, camera.height) == (640, 480)


@pytest.mark.parametrize("suffix", ["yaml", "yml", "xml", "json"])
def test_what_opencv_wrote_projects_as_opencv_does(tmp_path: Path, suffix: str) -> None:
    """Each of OpenCV's own syntaxes gives OpenCV's own pixels."""
    path = stored(tmp_path / f"c.{suffix}", avg_error=0.25, note="a: b", points=np.zeros((54, 2)))
    check(read_opencv_camera(path))
    check(read_opencv_camera(tmp_path))
    assert detects(path)
    assert detects(tmp_path)


def test_the_header_of_older_opencv(tmp_path: Path) -> None:
    """`%YAML:1.0`, which YAML readers refuse, is read."""
    path = stored(tmp_path / "c.yml")
    path.write_text(path.read_text().replace("%YAML 1.2", "%YAML:1.0"))
    assert path.read_text().startswith("%YAML:1.0\n---")
    check(read_opencv_camera(path))


def test_ros_camera_yaml(tmp_path: Path) -> None:
    """The file of ROS's camera_calibration, as its documentation shows it."""
    (tmp_path / "left.yaml").write_text(ROS)
    check(read_opencv_camera(tmp_path / "left.yaml"))
    (tmp_path / "left.yaml").write_text(ROS.replace("plumb_bob", "equidistant"))
    with pytest.raises(InputError, match="equidistant"):
        read_opencv_camera(tmp_path / "left.yaml")


@pytest.mark.parametrize(
    ("matrix", "distortion"),
    [("CameraMatrix", "DistCoeffs"), ("K", "D"), ("Camera_Matrix", "Distortion_Coefficients")],
)
def test_names_that_scripts_use(tmp_path: Path, matrix: str, distortion: str) -> None:
    """Names differ from script to script."""
    said = {matrix: MATRIX, distortion: DISTORTION[:, :4]}
    path = stored(tmp_path / "c.xml", camera_matrix=None, distortion_coefficients=None, **said)
    check(read_opencv_camera(path), DISTORTION[:, :4])


def test_the_size_must_be_known_and_agree(tmp_path: Path) -> None:
    """A file without size takes the caller's; two sizes are refused with both numbers."""
    path = stored(tmp_path / "c.yaml", size=False)
    with pytest.raises(InputError, match="does not say the size"):
        read_opencv_camera(path)
    check(read_opencv_camera(path, (640, 480)))
    path = stored(tmp_path / "c.yaml")
    check(read_opencv_camera(path, (640, 480)))
    with pytest.raises(InputError, match="at 640 x 480 px, the pictures have 1920 x 1080 px"):
        read_opencv_camera(path, (1920, 1080))
    for suffix in ("yaml", "xml"):
        path = stored(tmp_path / f"c.{suffix}", size=False, imageSize=np.array([640, 480]))
        check(read_opencv_camera(path))
    path.write_text(path.read_text().replace("640 480", "640.5 480"))
    with pytest.raises(InputError, match="whole number"):
        read_opencv_camera(path)


def test_no_distortion_is_zero_with_a_warning(tmp_path: Path) -> None:
    """A file of a matrix alone is a pinhole, and says so."""
    path = stored(tmp_path / "c.yaml", distortion_coefficients=None)
    with pytest.warns(CaptureWarning, match="no distortion coefficients"):
        check(read_opencv_camera(path), np.zeros(5))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"camera_matrix": np.diag([1 / 640, 1 / 640, 1]) @ MATRIX}, "fractions of the width"),
        ({"camera_matrix": MATRIX.T.copy()}, "MATLAB"),
        ({"camera_matrix": MATRIX + np.eye(3, k=1) * 5}, "without skew"),
        ({"camera_matrix": np.zeros((3, 3))}, "no camera matrix without skew"),
        ({"camera_matrix": MATRIX[:2]}, "6 numbers"),
        ({"camera_matrix": MATRIX * [[np.nan, 1, 1]] * 1}, "c.yaml"),
        ({"camera_matrix": None}, "no camera matrix"),
        ({"distortion_coefficients": np.full((1, 8), 0.1)}, "CALIB_RATIONAL_MODEL"),
        ({"distortion_coefficients": np.full((1, 7), 0.1)}, "7 numbers"),
        ({"fisheye_model": 1}, "fisheye"),
        ({"camera_matrix": np.array([[600.0, 0, 240], [0, 600, 600], [0, 0, 1]])}, "turned"),
    ],
)
def test_what_is_refused(tmp_path: Path, values: dict[str, Any], message: str) -> None:
    """Other units, other layouts, other lenses: the file, the numbers, what to do."""
    path = stored(tmp_path / "c.yaml", **values)
    with pytest.raises(InputError, match=message) as error:
        read_opencv_camera(path)
    assert "c.yaml" in str(error.value)


def test_several_calibrations_in_a_folder(tmp_path: Path) -> None:
    """Of two files none is guessed."""
    stored(tmp_path / "a.yaml")
    stored(tmp_path / "b.yaml")
    with pytest.raises(InputError, match=r"one OpenCV calibration is expected, found a\.yaml, b"):
        read_opencv_camera(tmp_path)


@pytest.mark.parametrize(
    ("name", "raw", "message"),
    [
        ("c.yaml", b"", "0 bytes"),
        ("c.yaml", b"\xff\xfe\x00", "UTF-8"),
        ("c.yaml", b"a: [1, 2", "YAML"),
        ("c.yaml", b"[1, 2]", "a mapping is expected"),
        ("c.yaml", b"K: !!python/object/apply:os.system ['true']", "YAML"),
        ("c.yaml", b"a: &a [1]\nb: *a\n", "aliases"),
        ("c.yaml", b"K: " + b"[" * 500_000, "nested deeper"),
        ("c.yaml", b"K: [1, 0, x, 0, 1, 0, 0, 0, 1]", "numbers are expected"),
        ("c.yaml", b"K: {rows: 3, cols: 3, data: [1, 2]}", "3 rows of 3 are announced, 2 numbers"),
        ("c.yaml", b"K: {rows: 99999999999, cols: 9, data: [1]}", "announced"),
        ("c.yaml", b"K: {rows: x, cols: 9, data: [1]}", "numbers are expected"),
        ("c.yaml", b"hello: 1", "no camera matrix; .*found hello"),
        ("c.json", b"{", "no JSON"),
        ("c.xml", b"<opencv_storage><K>", "XML"),
        ("c.xml", b'<!DOCTYPE a [<!ENTITY b "c">]><opencv_storage/>', "document type"),
        ("c.xml", b"<opencv_storage/>", "no camera matrix"),
    ],
)
def test_files_that_are_broken(tmp_path: Path, name: str, raw: bytes, message: str) -> None:
    """Empty, cut, not text, code, aliases, forged counts: never a traceback."""
    path = tmp_path / name
    path.write_bytes(raw)
    with pytest.raises(InputError, match=message):
        read_opencv_camera(path, (640, 480))


def test_missing_and_large_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is not there, and one that is no calibration by its size."""
    with pytest.raises(InputError, match="no such file"):
        read_opencv_camera(tmp_path / "c.yaml")
    assert not detects(tmp_path)
    assert not detects(tmp_path / "gone")
    monkeypatch.setattr(calibration_file, "LARGEST_FILE", 100)
    with pytest.raises(InputError, match="at most 100"):
        read_opencv_camera(stored(tmp_path / "c.yaml"))


def test_calibrations_of_other_libraries_are_named() -> None:
    """ViSP's camera.xml and its JSON, which are no OpenCV storage, are refused as such."""
    folder = real("rbt") / "sequence"
    with pytest.raises(InputError, match=r"camera\.xml: the root element is <root>"):
        read_opencv_camera(folder / "camera.xml")
    with pytest.raises(InputError, match=r"cam\.json: no camera matrix.*found .*px, py"):
        read_opencv_camera(folder / "cam.json")
