"""Lenses of other tools: the same pixels as their own projection, or a refusal that helps."""

from __future__ import annotations

import numpy as np
import pytest

from twinloop.capture.formats import lens
from twinloop.capture.projection import Camera
from twinloop.errors import InputError

PARAMS = {
    "SIMPLE_PINHOLE": [700.0, 321.0, 242.0],
    "PINHOLE": [700.0, 710.0, 321.0, 242.0],
    "SIMPLE_RADIAL": [700.0, 321.0, 242.0, 0.05],
    "RADIAL": [700.0, 321.0, 242.0, 0.05, -0.02],
    "OPENCV": [700.0, 710.0, 321.0, 242.0, 0.05, -0.02, 1e-3, -2e-3],
    "FULL_OPENCV": [700.0, 710.0, 321.0, 242.0, 0.05, -0.02, 1e-3, -2e-3, 0.03, 0, 0, 0],
}


@pytest.mark.parametrize("model", PARAMS)
def test_points_project_as_colmap_projects_them(model: str) -> None:
    """For every model that is read, our pixels are COLMAP's minus (0.5, 0.5)."""
    pycolmap = pytest.importorskip("pycolmap", reason="needs pycolmap")
    theirs = pycolmap.Camera(model=model, width=640, height=480, params=PARAMS[model])
    points = np.random.default_rng(0).uniform([-1, -0.7, 2], [1, 0.7, 4], (50, 3))
    expected = np.array([theirs.img_from_cam(point) for point in points]) - 0.5
    ours = lens.from_colmap("cameras.txt", model, PARAMS[model], (640, 480))
    np.testing.assert_allclose(ours.project(points), expected, atol=1e-9)


def test_the_list_of_models_is_colmaps() -> None:
    """Numbers, names and parameter counts are those of the installed COLMAP."""
    pycolmap = pytest.importorskip("pycolmap", reason="needs pycolmap")
    theirs = {int(m): m.name for m in pycolmap.CameraModelId.__members__.values() if int(m) >= 0}
    assert [theirs[i] for i in range(len(theirs))] == list(lens.COLMAP_MODELS)
    for name, count in lens.COLMAP_MODELS.items():
        camera = pycolmap.Camera.create_from_model_name(1, name, 500.0, 640, 480)
        assert len(camera.params) == count


@pytest.mark.parametrize(
    ("model", "params", "message"),
    [
        ("OPENCV_FISHEYE", [1.0] * 8, "image_undistorter"),
        ("EUCM", [1.0] * 6, "image_undistorter"),
        ("FOV", [1.0] * 5, "image_undistorter"),
        ("THIN_PRISM_FISHEYE", [1.0] * 12, "image_undistorter"),
        ("FULL_OPENCV", [*PARAMS["FULL_OPENCV"][:9], 0.1, 0, 0], "model OPENCV"),
        ("PINHOLE", [700.0, 320, 240], "4 are expected"),
        ("HOMEMADE", [700.0], "unknown camera model 'HOMEMADE'"),
        ("SIMPLE_PINHOLE", [float("nan"), 320, 240], "finite numbers"),
        ("SIMPLE_PINHOLE", [4.2, 320, 240], "millimetres"),
        ("SIMPLE_PINHOLE", [0.9, 0.5, 0.5], "fractions of the width"),
        ("SIMPLE_PINHOLE", [-700, 320, 240], "pixels are expected"),
        ("SIMPLE_PINHOLE", [7e7, 320, 240], "pixels are expected"),
        ("SIMPLE_PINHOLE", [700, 240, 600], "turned picture"),
    ],
)
def test_lenses_that_are_refused(model: str, params: list[float], message: str) -> None:
    """Models without OpenCV's formula, wrong units, and numbers that are none."""
    with pytest.raises(InputError, match=message) as error:
        lens.from_colmap("cameras.txt: camera 3", model, params, (640, 480))
    assert "cameras.txt: camera 3" in str(error.value)


def test_absurd_sizes_are_refused() -> None:
    """A picture of 0 or 2**40 columns is no picture."""
    for width in (0, 2**40):
        with pytest.raises(InputError, match="picture size"):
            lens.from_colmap("c", "SIMPLE_PINHOLE", [700, 1, 1], (width, 480))


def test_rational_terms_of_opencv_are_refused() -> None:
    """Eight coefficients are read when the last three are zero."""
    eight = [0.1, 0.2, 0.01, 0.02, 0.3, 0.0, 0.0, 0.0]
    camera = lens.from_opencv("c", (700, 700), (320, 240), eight, (640, 480))
    assert camera.distortion.tolist() == eight[:5]
    four = lens.from_opencv("c", (700, 700), (320, 240), eight[:4], (640, 480))
    assert four.distortion.tolist() == [0.1, 0.2, 0.01, 0.02, 0.0]
    with pytest.raises(InputError, match="CALIB_RATIONAL_MODEL"):
        lens.from_opencv("c", (700, 700), (320, 240), [*eight[:7], 0.1], (640, 480))
    with pytest.raises(InputError, match="6 distortion coefficients"):
        lens.from_opencv("c", (700, 700), (320, 240), eight[:6], (640, 480))


def test_smaller_copies_scale_the_lens_and_turned_ones_are_refused() -> None:
    """A point's pixel scales with the picture's area; another aspect ratio is no copy."""
    camera = Camera(np.array([700.0, 700, 319.5, 239.5]), np.zeros(5), 640, 480)
    half = lens.fitted("a.jpg", camera, (320, 240))
    point = np.array([[0.1, -0.2, 1.0]])
    np.testing.assert_allclose((half.project(point) + 0.5) * 2, camera.project(point) + 0.5)
    assert lens.fitted("a.jpg", camera, (640, 480)) is camera
    with pytest.raises(InputError, match="turned after the calibration"):
        lens.fitted("a.jpg", camera, (480, 640))
    with pytest.raises(InputError, match="cropped"):
        lens.fitted("a.jpg", camera, (640, 400))
