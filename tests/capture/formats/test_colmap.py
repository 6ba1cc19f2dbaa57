"""COLMAP models that COLMAP itself wrote, and each way they are commonly broken."""

from __future__ import annotations

import re
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from twinloop.capture.formats.colmap import detects, read_colmap
from twinloop.capture.formats.colmap_files import read_model
from twinloop.capture.posed import PosedCapture
from twinloop.capture.warning import CaptureWarning
from twinloop.errors import InputError
from twinloop.geometry import se3

pycolmap = pytest.importorskip("pycolmap", reason="pycolmap writes the models that are read here")

WIDTH, HEIGHT = 640, 480


def synthetic(model: str = "OPENCV", rigs: int = 2, frames: int = 3, per_rig: int = 1) -> Any:
    """A model of COLMAP's own making, with exact observations."""
    params = {
        "SIMPLE_PINHOLE": [700, 320, 240],
        "OPENCV": [700, 710, 321, 242, 0.05, -0.02, 1e-3, -2e-3],
        "EUCM": [700, 710, 321, 242, 0.6, 1.1],
    }[model]
    pycolmap.set_random_seed(0)
    options = pycolmap.SyntheticDatasetOptions()
    options.num_rigs, options.num_frames_per_rig = rigs, frames
    options.num_cameras_per_rig = per_rig
    options.num_points3D = 40
    options.camera_width, options.camera_height = WIDTH, HEIGHT
    options.camera_model_id = getattr(pycolmap.CameraModelId, model)
    options.camera_params = params
    return pycolmap.synthesize_dataset(options)


def project(folder: Path, theirs: Any, kind: str, where: str = "sparse/0") -> Path:
    """Write a model and a blank picture for each of its names."""
    target = folder / where
    target.mkdir(parents=True, exist_ok=True)
    (theirs.write_binary if kind == "bin" else theirs.write_text)(target)
    (folder / "images").mkdir(exist_ok=True)
    for image in theirs.images.values():
        Image.new("RGB", (WIDTH, HEIGHT)).save(folder / "images" / image.name)
    return folder


def reprojection(capture: PosedCapture, theirs: Any) -> float:
    """Largest distance of COLMAP's observations from its points in our lenses and poses, px."""
    assert capture.T_world_camera is not None
    by_name = {image.name: image for image in theirs.images.values()}
    worst, count = 0.0, 0
    for name, camera, pose in zip(
        capture.pictures.names, capture.cameras, capture.T_world_camera, strict=True
    ):
        seen = [p for p in by_name[name].points2D if p.has_point3D()]
        points = np.array([theirs.points3D[p.point3D_id].xyz for p in seen])
        pixels = np.array([p.xy for p in seen]) - 0.5
        found = camera.project(se3.apply(se3.inverse(pose), points))
        worst = max(worst, float(np.abs(found - pixels).max()))
        count += len(seen)
    assert count > 50
    return worst


@pytest.mark.parametrize("kind", ["bin", "txt"])
@pytest.mark.parametrize(
    ("model", "per_rig"), [("OPENCV", 1), ("SIMPLE_PINHOLE", 1), ("OPENCV", 2)]
)
def test_a_model_of_colmap_reprojects_exactly(
    tmp_path: Path, kind: str, model: str, per_rig: int
) -> None:
    """COLMAP's points land on COLMAP's observations; rigs change nothing."""
    theirs = synthetic(model, per_rig=per_rig)
    folder = project(tmp_path, theirs, kind)
    assert detects(folder)
    capture = read_colmap(folder)
    assert reprojection(capture, theirs) < 1e-6
    assert capture.format == "COLMAP"
    assert not capture.metric
    assert capture.up is None
    assert len(capture.pictures.names) == 6 * per_rig
    assert list(capture.pictures.names) == sorted(capture.pictures.names)
    assert capture.points is not None
    ids = sorted(theirs.points3D)
    expected = np.array([theirs.points3D[i].xyz for i in ids])
    np.testing.assert_allclose(np.sort(capture.points, axis=0), np.sort(expected, axis=0))
    assert any("0.00 px" in note for note in capture.notes)


def test_points_keep_their_errors_and_tracks(tmp_path: Path) -> None:
    """Track length and error of every point are COLMAP's, from text and binary alike."""
    theirs = synthetic()
    for kind in ("bin", "txt"):
        points = read_model(project(tmp_path / kind, theirs, kind) / "sparse/0").points
        for identity, track, error in zip(points.ids, points.tracks, points.errors, strict=True):
            point = theirs.points3D[int(identity)]
            assert track == point.track.length()
            assert error == pytest.approx(point.error)


@pytest.mark.parametrize("where", ["sparse", "sparse/3", "colmap/sparse/0", "."])
def test_layouts_that_are_found(tmp_path: Path, where: str) -> None:
    """Model in sparse, in a numbered folder, in nerfstudio's layout, or beside the images."""
    folder = project(tmp_path, synthetic(), "bin", where)
    assert len(read_colmap(folder).pictures.names) == 6
    assert len(read_colmap(folder / where).pictures.names) == 6


def test_pictures_elsewhere_can_be_said(tmp_path: Path) -> None:
    """The folder of the pictures may be given."""
    project(tmp_path / "a", synthetic(), "bin")
    (tmp_path / "a" / "images").rename(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="none of its 6 pictures"):
        read_colmap(tmp_path / "a")
    assert len(read_colmap(tmp_path / "a", tmp_path / "elsewhere").pictures.names) == 6
    with pytest.raises(InputError, match="none of its 6 pictures"):
        read_colmap(tmp_path / "a", tmp_path / "a")


def test_of_several_models_the_largest_is_used(tmp_path: Path) -> None:
    """COLMAP's model 0 is not always the largest; which one is used is said."""
    project(tmp_path, synthetic(frames=1), "bin", "sparse/0")
    project(tmp_path, synthetic(frames=4), "bin", "sparse/10")
    capture = read_colmap(tmp_path)
    assert len(capture.pictures.names) == 8
    assert "0 with 2, 10 with 8" in capture.notes[0]
    assert "10, is used" in capture.notes[0]


def test_missing_and_unregistered_pictures_are_counted(tmp_path: Path) -> None:
    """Pictures that are gone are left out with a warning; others beside them are counted."""
    theirs = synthetic()
    folder = project(tmp_path, theirs, "bin")
    names = sorted(image.name for image in theirs.images.values())
    (folder / "images" / names[1]).unlink()
    Image.new("RGB", (WIDTH, HEIGHT)).save(folder / "images" / "extra.jpg")
    with pytest.warns(CaptureWarning, match="1 of 6 pictures of the model are not"):
        capture = read_colmap(folder)
    assert list(capture.pictures.names) == [names[0], *names[2:]]
    assert reprojection(capture, theirs) < 1e-6
    assert any(names[1] in note for note in capture.notes)
    assert any(
        note.startswith("1 pictures in images are not in the model") for note in capture.notes
    )


def test_a_model_with_unregistered_frames(tmp_path: Path) -> None:
    """COLMAP's own text header counts frames that are not registered; the entries decide."""
    theirs = synthetic()
    theirs.deregister_frame(1)
    for kind in ("bin", "txt"):
        folder = project(tmp_path / kind, theirs, kind)
        capture = read_colmap(folder)
        assert len(capture.pictures.names) == 5
        assert any(note.startswith("1 pictures in images") for note in capture.notes)


def test_smaller_copies_of_the_pictures(tmp_path: Path) -> None:
    """Pictures of half the size get lenses of half the size; turned ones are refused."""
    theirs = synthetic()
    folder = project(tmp_path, theirs, "bin")
    whole = read_colmap(folder)
    for path in (folder / "images").iterdir():
        Image.new("RGB", (WIDTH // 2, HEIGHT // 2)).save(path)
    half = read_colmap(folder)
    point = np.array([[0.1, 0.2, 1.0]])
    np.testing.assert_allclose(
        (half.cameras[0].project(point) + 0.5) * 2, whole.cameras[0].project(point) + 0.5
    )
    assert "6 pictures have another size than their lens, which was scaled." in half.notes
    Image.new("RGB", (HEIGHT, WIDTH)).save(path)
    with pytest.raises(InputError, match="turned after the calibration"):
        read_colmap(folder)


def test_a_model_without_points_is_unproven(tmp_path: Path) -> None:
    """Known poses without points are read, and said to be unproven."""
    folder = project(tmp_path, synthetic(), "txt")
    (folder / "sparse/0/points3D.txt").unlink()
    capture = read_colmap(folder)
    assert capture.points is None
    assert any("unproven" in note for note in capture.notes)


def test_no_model_and_empty_files(tmp_path: Path) -> None:
    """An empty folder, a missing half, and files of 0 bytes."""
    assert not detects(tmp_path)
    assert not detects(tmp_path / "gone")
    with pytest.raises(InputError, match="no COLMAP model"):
        read_colmap(tmp_path)
    for kind in ("bin", "txt"):
        folder = project(tmp_path / kind, synthetic(), kind)
        (folder / "sparse/0" / f"images.{kind}").write_bytes(b"")
        with pytest.raises(InputError, match=rf"images\.{kind}: (has 0 bytes|ends at byte 0)"):
            read_colmap(folder)


@pytest.mark.parametrize("name", ["cameras.bin", "images.bin", "points3D.bin"])
def test_cut_and_forged_binaries(tmp_path: Path, name: str) -> None:
    """Cut at any place, one entry too many, one too few, 2**60 entries: an error that says so."""
    folder = project(tmp_path, synthetic(frames=1), "bin")
    path = folder / "sparse/0" / name
    whole = path.read_bytes()
    for length in {4, 8, 9, 40, len(whole) // 2, len(whole) - 1}:
        path.write_bytes(whole[:length])
        with pytest.raises(InputError, match=re.escape(name)):
            read_colmap(folder)
    (count,) = struct.unpack_from("<Q", whole)
    for forged in (count + 1, count - 1, 2**60):
        path.write_bytes(struct.pack("<Q", forged) + whole[8:])
        with pytest.raises(InputError, match=re.escape(name)):
            read_colmap(folder)


def test_a_forged_number_of_observations_allocates_nothing(tmp_path: Path) -> None:
    """An inner count of 2**60 is refused like an outer one."""
    folder = project(tmp_path, synthetic(frames=1), "bin")
    path = folder / "sparse/0/images.bin"
    raw = bytearray(path.read_bytes())
    at = raw.index(b"\0", 8 + 4 + 56 + 4) + 1
    raw[at : at + 8] = struct.pack("<Q", 2**60)
    path.write_bytes(bytes(raw))
    with pytest.raises(InputError, match="ends at byte"):
        read_colmap(folder)


def edited(folder: Path, name: str, line: int, edit: Any) -> Path:
    """Replace fields of one data line of a text file."""
    path = folder / "sparse/0" / name
    lines = path.read_text().split("\n")
    data = [i for i, text in enumerate(lines) if text and not text.startswith("#")]
    lines[data[line]] = edit(lines[data[line]].split(" "))
    path.write_text("\n".join(lines))
    return folder


@pytest.mark.parametrize(
    ("name", "edit", "message"),
    [
        ("images.txt", lambda f: " ".join([f[0], "nan", *f[2:]]), "unit quaternion"),
        ("images.txt", lambda f: " ".join([f[0], *["0"] * 4, *f[5:]]), "unit quaternion"),
        ("images.txt", lambda f: " ".join([*f[:5], "inf", *f[6:]]), "unit quaternion"),
        ("images.txt", lambda f: " ".join([f[0], "abc", *f[2:]]), "float numbers expected"),
        ("images.txt", lambda f: " ".join(f[:6]), "IMAGE_ID QW QX"),
        ("images.txt", lambda f: " ".join([*f[:8], "77", f[9]]), "camera 77"),
        ("images.txt", lambda f: " ".join([*f[:9], "../secret.png"]), "inside the capture's"),
        ("images.txt", lambda f: " ".join([*f[:9], "/etc/passwd"]), "inside the capture's"),
        ("cameras.txt", lambda f: " ".join([f[0], "EYE", *f[2:]]), "unknown camera model 'EYE'"),
        ("cameras.txt", lambda f: " ".join(f[:3]), "CAMERA_ID MODEL"),
        ("cameras.txt", lambda f: " ".join([*f[:4], "0.9", *f[5:]]), "fractions of the width"),
        ("points3D.txt", lambda f: " ".join([f[0], "nan", *f[2:]]), "finite numbers"),
        ("points3D.txt", lambda f: " ".join(f[:5]), "POINT3D_ID"),
        ("points3D.txt", lambda f: " ".join(["-3", *f[1:]]), "not negative"),
    ],
)
def test_broken_text(tmp_path: Path, name: str, edit: Any, message: str) -> None:
    """Numbers that are none, fields that lack, names that leave: file, line and what to do."""
    folder = edited(project(tmp_path, synthetic(frames=1), "txt"), name, 0, edit)
    with pytest.raises(InputError, match=message) as error:
        read_colmap(folder)
    assert name.split(".")[0] in str(error.value) or "sparse" in str(error.value)


def test_a_scaled_quaternion_is_scaled_back(tmp_path: Path) -> None:
    """A quaternion of norm 1.01 is taken with a warning."""
    theirs = synthetic(frames=1)

    def scale(f: list[str]) -> str:
        return " ".join([f[0], *[repr(1.01 * float(q)) for q in f[1:5]], *f[5:]])

    folder = edited(project(tmp_path, theirs, "txt"), "images.txt", 0, scale)
    with pytest.warns(CaptureWarning, match=r"norm 1\.01"):
        capture = read_colmap(folder)
    assert reprojection(capture, theirs) < 1e-6


def test_camera_to_world_poses_are_noticed(tmp_path: Path) -> None:
    """A model of other axes or of swapped quaternions does not project to its observations."""
    folder = project(tmp_path, synthetic(frames=1), "txt")

    def swap(f: list[str]) -> str:
        return " ".join([f[0], *f[2:5], f[1], *f[5:]])

    for line in (0, 2):
        edited(folder, "images.txt", line, swap)
    with pytest.raises(InputError, match="px are accepted"):
        read_colmap(folder)


def test_lenses_that_are_not_read_say_what_to_do(tmp_path: Path) -> None:
    """EUCM, which others read as an empty or partial model, is refused."""
    folder = project(tmp_path, synthetic("EUCM", frames=1), "bin")
    with pytest.raises(InputError, match=r"EUCM is not read.*image_undistorter"):
        read_colmap(folder)


def test_names_that_are_no_utf8(tmp_path: Path) -> None:
    """A Latin-1 name in a binary model is shown, not decoded wrongly."""
    folder = project(tmp_path, synthetic(frames=1), "bin")
    path = folder / "sparse/0/images.bin"
    path.write_bytes(path.read_bytes().replace(b"camera", b"cam\xe9ra", 1))
    with pytest.raises(InputError, match="no UTF-8"):
        read_colmap(folder)


def test_a_picture_listed_twice(tmp_path: Path) -> None:
    """Two poses for one picture are no model."""
    folder = project(tmp_path, synthetic(frames=1), "txt")
    path = folder / "sparse/0/images.txt"
    path.write_text(path.read_text().replace("camera000002", "camera000001"))
    with pytest.raises(InputError, match="twice"):
        read_colmap(folder)


def test_links_and_loops(tmp_path: Path) -> None:
    """A model that is a link out of the capture is refused; a loop of links is no model."""
    other = project(tmp_path / "other", synthetic(frames=1), "bin")
    mine = tmp_path / "mine"
    (mine / "sparse").mkdir(parents=True)
    shutil.copytree(other / "images", mine / "images")
    (mine / "sparse" / "1").symlink_to(mine / "sparse" / "2")
    (mine / "sparse" / "2").symlink_to(mine / "sparse" / "1")
    assert not detects(mine)
    (mine / "sparse" / "0").symlink_to(other / "sparse" / "0")
    with pytest.raises(InputError, match="leads out"):
        read_colmap(mine)
