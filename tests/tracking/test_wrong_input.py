"""What a user gets wrong: another mesh, a box beside the object, a place that no file can have."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import twinloop
from tests.tracking import twin_capture as capture
from twinloop.capture.warning import CaptureWarning
from twinloop.errors import InputError
from twinloop.export.mesh_files import write_obj
from twinloop.geometry import se3
from twinloop.tracking.api import Twin, VideoTrack, read_twin
from twinloop.tracking.clip_setup import box_mask
from twinloop.tracking.pose_files import check_place
from twinloop.tracking.pose_track import LOST, OK
from twinloop.tracking.solver import WorldCamera, project

CAMERA = WorldCamera(
    np.array(capture.LENS), se3.inverse(capture.EYE), capture.WIDTH, capture.HEIGHT
)
SCENE = capture.box_scene()
POSE = np.eye(4)
POSE[2, 3] = -SCENE.mesh()[0][:, 2].min()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A camera, its board and a clip of two pictures of the box at rest; its twin."""
    out = tmp_path_factory.mktemp("wrong")
    capture.write_twin(out / "twin", SCENE)
    capture.write_camera(out)
    capture.write_clip(out / "still.mp4", [capture.picture(SCENE, POSE)] * 2)
    return out


def about_it() -> tuple[float, float, float, float]:
    """The box x, y, w, h (px) around the object in the clip."""
    vertices = SCENE.mesh()[0]
    pixels = project(CAMERA, POSE, vertices)[0]
    (x, y), (right, bottom) = pixels.min(0), pixels.max(0)
    return float(x), float(y), float(right - x), float(bottom - y)


def followed(folder: Path, twin: Path | Twin, box: tuple[float, ...]) -> VideoTrack:
    """The clip tracked with its camera and board."""
    with pytest.warns(CaptureWarning):
        return twinloop.track(
            folder / "still.mp4",
            twin,
            camera=folder / "camera.yaml",
            board=folder / "board.yaml",
            box=box,
        )


def test_a_bare_mesh_of_another_size_is_never_ok(folder: Path) -> None:
    """Twice as large, it fits a patch of the table's colours with a silhouette of its own."""
    vertices, faces, _ = SCENE.mesh()
    for factor in (2.0, 1.2):
        big = (vertices - vertices.mean(0)) * factor
        write_obj(folder / "big.obj", big, faces, "scaled")
        made = followed(folder, folder / "big.obj", about_it())
        assert (made.status != OK).all(), factor


def test_a_box_beside_the_object_finds_nothing(folder: Path) -> None:
    """The box says which object is meant: another one is not taken."""
    made = followed(folder, read_twin(folder / "twin", views=8), (4.0, 4.0, 40.0, 40.0))
    assert (made.status == LOST).all()
    assert any("not found" in note for note in made.notes)


def test_places_are_refused_before_the_work(folder: Path) -> None:
    """An input is not overwritten; a folder that is not there is said at once."""
    clip = folder / "still.mp4"
    before = clip.read_bytes()
    with pytest.raises(InputError, match=r"still\.mp4: is an input"):
        twinloop.track(clip, folder / "twin", preview=clip)
    with pytest.raises(InputError, match="is no folder"):
        twinloop.track(clip, folder / "twin", out=folder / "none" / "x.csv")
    assert clip.read_bytes() == before
    link = folder / "link.mp4"
    link.symlink_to(clip)
    with pytest.raises(InputError, match="is an input"):
        check_place(link, [clip])
    with pytest.raises(InputError, match="is a folder"):
        check_place(folder, [])
    check_place(folder / "new.csv", [clip])


def test_values_that_cannot_be_are_said(folder: Path) -> None:
    """Words for a box, no views at all, a video that is not there."""
    with pytest.raises(InputError, match="box 'abcd'"):
        box_mask("abcd", 100, 100)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="views is 0"):
        read_twin(folder / "twin", views=0)
    with pytest.raises(InputError, match=r"none\.mp4: is no file"):
        twinloop.track(folder / "none.mp4", folder / "twin")
