"""Structure from motion on pictures with exact poses, and on real ones."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import cv2
import numpy as np
import pytest

from tests import realdata
from tests.capture.sfm_scene import (
    CAMERA,
    box,
    draw,
    ground,
    orbit,
    trajectory_error,
    turn_errors,
)
from twinloop.capture import sfm
from twinloop.capture.projection import Camera
from twinloop.capture.sfm import SfmSettings, sound_lens, structure_from_motion
from twinloop.errors import InputError, MachineError
from twinloop.geometry import se3

pytest.importorskip("pycolmap", reason="the extra 'sfm' is not installed")

SETTINGS = SfmSettings(max_side=320, features=500)


@pytest.fixture(scope="module")
def pictures() -> tuple[list[np.ndarray], np.ndarray]:
    """Eight pictures over 85 degrees, and their poses."""
    poses = orbit(8, 85)
    quads = [*box(1), ground(9)]
    return [draw(quads, T, seed=i) for i, T in enumerate(se3.inverse(poses))], poses


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_poses_lens_and_points_and_the_same_bytes_twice(
    pictures: tuple[list[np.ndarray], np.ndarray],
    scratch: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """All pictures, trajectory to 0.5 %, turns to 1 degree, focal to 2 %; quiet and tidy."""
    images, poses = pictures
    first, second = (
        structure_from_motion(iter(images), settings=SETTINGS, sequential=True) for _ in range(2)
    )
    assert first.registered.all()
    assert trajectory_error(first.T_world_camera[:, :3, 3], poses[:, :3, 3]) < 0.005
    assert turn_errors(first.T_world_camera, poses).max() < 1.0
    np.testing.assert_allclose(first.camera.intrinsics[:2], 330, rtol=0.02)
    assert (first.camera.width, first.camera.height) == (320, 240)
    assert first.rms.max() < 1.0
    assert len(first.points) > 200
    assert first.track_length.min() >= 2
    assert (first.point_std > 0).all()
    # Every observation is where its point projects.
    T = first.T_camera_world[first.observation_picture]
    there = np.einsum("kij,kj->ki", T[:, :3, :3], first.points[first.observation_point])
    error = first.camera.project(there + T[:, :3, 3]) - first.observation_pixel
    assert np.linalg.norm(error, axis=1).max() < 4.0
    assert first.T_camera_world.tobytes() == second.T_camera_world.tobytes()
    assert first.points.tobytes() == second.points.tobytes()
    assert list(scratch.iterdir()) == []
    shown = capfd.readouterr()
    assert shown.out + shown.err == ""


def test_a_known_lens_is_kept(pictures: tuple[list[np.ndarray], np.ndarray]) -> None:
    """With the true lens the trajectory is right without a guess of the focal length."""
    images, poses = pictures
    found = structure_from_motion(images[:5], known=CAMERA, settings=SETTINGS)
    assert found.camera is CAMERA
    assert np.isnan(found.camera_std).all()
    assert trajectory_error(found.T_world_camera[:, :3, 3], poses[:5, :3, 3]) < 0.005


def test_separate_scenes_are_gated_with_numbers(
    pictures: tuple[list[np.ndarray], np.ndarray], scratch: Path
) -> None:
    """Four of seven registered: said with both numbers, and nothing temporary stays."""
    other = [*box(31), ground(39)]
    second = [draw(other, T, seed=i) for i, T in enumerate(se3.inverse(orbit(3, 24)))]
    with pytest.raises(InputError, match=r"shed: only 4 of 7 pictures .* at least 80%"):
        structure_from_motion([*pictures[0][:4], *second], settings=SETTINGS, where="shed")
    assert list(scratch.iterdir()) == []


def test_a_full_disk_is_said_and_leaves_nothing(
    pictures: tuple[list[np.ndarray], np.ndarray], scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite's words, and the folder that needs room."""

    def full(*_: object) -> None:
        raise RuntimeError("database or disk is full")

    monkeypatch.setattr(sfm, "match_pairs", full)
    with pytest.raises(MachineError, match=r"disk is full.*TMPDIR"):
        structure_from_motion(pictures[0][:3], settings=SETTINGS)
    assert list(scratch.iterdir()) == []


def test_pictures_of_two_sizes_are_refused() -> None:
    """One lens fits one size."""
    image = draw([*box(1), ground(9)], se3.inverse(orbit(3, 20))[0])
    with pytest.raises(InputError, match="picture 2 has 240 x 320 px, the first one 320 x 240"):
        structure_from_motion([image, image, image.T.copy()], settings=SETTINGS)


def test_two_pictures_are_too_few() -> None:
    """The number stands in the message."""
    with pytest.raises(InputError, match="2 pictures, at least 3"):
        structure_from_motion([np.zeros((240, 320), np.uint8)] * 2, settings=SETTINGS)


@pytest.mark.parametrize(
    ("change", "sound"),
    [
        ({}, True),
        ({0: 3.0, 1: 3.0}, False),
        ({1: 400.0}, False),
        ({2: 300.0}, False),
        ({4: -3.0}, False),
        ({5: np.nan}, False),
    ],
)
def test_lenses_gone_astray_are_told(change: dict[int, float], sound: bool) -> None:
    """Focal lengths, principal point, a fold, and NaN."""
    vector = CAMERA.vector
    for number, value in change.items():
        vector[number] = value
    assert sound_lens(Camera(vector[:4], vector[4:], 320, 240)) is sound


def test_real_photos_agree_with_their_published_poses() -> None:
    """Ten hand-held photos, small: all registered, trajectory within 0.5 % of its extent."""
    fox = realdata.folder("fox")
    files = sorted((fox / "images").glob("*.jpg"))[:10]
    listed = json.loads((fox / "transforms.json").read_text())["frames"]
    centre = {Path(f["file_path"]).name: np.array(f["transform_matrix"])[:3, 3] for f in listed}
    images = (cv2.imread(str(f), cv2.IMREAD_GRAYSCALE) for f in files)
    found = structure_from_motion(
        images, settings=SfmSettings(max_side=320, features=600), where="fox"
    )
    assert found.registered.all()
    truth = np.stack([centre[f.name] for f in files])
    assert trajectory_error(found.T_world_camera[:, :3, 3], truth) < 0.005
    assert found.camera.intrinsics[0] == pytest.approx(1375.5, rel=0.05)
