"""Captures of Record3D, packed and exported, and the ways they break."""

import json
import sys
import zipfile

import numpy as np
import pytest
from PIL import Image

from tests.capture.formats import phone
from tests.realdata import folder as real
from twinloop.capture.formats.depth_files import load_exr
from twinloop.capture.formats.record3d import detects, read_record3d
from twinloop.errors import InputError

FRAMES = 6
TIMES = [0.0, 0.017, 0.05, 0.066, 0.4, 0.42]


def metadata(**changes):
    """Metadata as the app writes them: K column by column."""
    fx, fy, cx, cy = phone.LENS
    poses = [[*phone.xyzw(T), *T[:3, 3]] for T in (phone.pose(i) for i in range(FRAMES))]
    content = {
        "K": [fx, 0, 0, 0, fy, 0, cx, cy, 1],
        "w": phone.SIZE[0],
        "h": phone.SIZE[1],
        "dw": phone.DEPTH_SIZE[0],
        "dh": phone.DEPTH_SIZE[1],
        "fps": 60,
        "poses": poses,
        "initPose": poses[0],
        "frameTimestamps": TIMES,
        "perFrameIntrinsicCoeffs": [[fx, fy, cx, cy]] * FRAMES,
        "cameraType": 1,
    }
    return {**content, **changes}


def write(folder, depth=True, **changes):
    """Write an unpacked archive."""
    (folder / "rgbd").mkdir(parents=True)
    (folder / "metadata").write_text(json.dumps(metadata(**changes)))
    for i in range(FRAMES):
        T = phone.pose(i)
        Image.fromarray(phone.picture(T)).save(folder / "rgbd" / f"{i}.jpg", quality=95)
        if depth:
            lzfse = pytest.importorskip("lzfse", reason="Record3D packs depth by LZFSE")
            metres = (phone.depth_mm(T) / 1000).astype("<f4")
            trust = np.full(metres.shape, 2, np.uint8)
            trust[0] = 0
            (folder / "rgbd" / f"{i}.depth").write_bytes(lzfse.compress(metres.tobytes()))
            (folder / "rgbd" / f"{i}.conf").write_bytes(lzfse.compress(trust.tobytes()))
    return folder


def change(folder, **fields):
    """Change fields of the metadata."""
    path = folder / "metadata"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def test_pictures_lenses_and_poses_fit_together(tmp_path):
    """Every picture shows the point where ARKit's formulas put it, at the recorded times."""
    capture = read_record3d(write(tmp_path, depth=False))
    assert detects(tmp_path)
    assert phone.check_geometry(capture) == FRAMES
    assert capture.pictures.times.tolist() == TIMES
    assert capture.pictures.names[1] == "rgbd/1.jpg"
    np.testing.assert_array_equal(capture.up, [0, 1, 0])
    assert capture.metric
    assert capture.depth is None


def test_packed_depth_is_metres_where_confidence_allows(tmp_path):
    """Depth that the app's own codec packed, with the first row of low confidence."""
    capture = read_record3d(write(tmp_path))
    assert phone.check_geometry(capture) == FRAMES
    depth = capture.depth(2)
    assert depth.shape == phone.DEPTH_SIZE[::-1]
    assert np.isnan(depth[0]).all()
    assert np.isfinite(depth[1:]).all()


def test_an_archive_is_unpacked_where_it_is_told(tmp_path):
    """``.r3d`` is a zip archive; its members may not leave."""
    write(tmp_path / "in", depth=False)
    archive, into = tmp_path / "a.r3d", tmp_path / "out"
    with zipfile.ZipFile(archive, "w") as packed:
        for path in sorted((tmp_path / "in").rglob("*.*")) + [tmp_path / "in" / "metadata"]:
            packed.write(path, path.relative_to(tmp_path / "in"))
    into.mkdir()
    assert phone.check_geometry(read_record3d(archive, into)) == FRAMES
    with pytest.raises(InputError, match="unpacked to"):
        read_record3d(archive)
    with zipfile.ZipFile(archive, "a") as packed:
        packed.writestr("../escaped.txt", "x")
    with pytest.raises(InputError, match="escaped"):
        read_record3d(archive, into)
    archive.write_bytes(archive.read_bytes()[:1000])
    with pytest.raises(InputError, match="cannot be unpacked"):
        read_record3d(archive, into)


def test_poses_relative_to_the_first_are_turned_upright(tmp_path):
    """Poses may begin at the identity; initPose then says how the phone was held."""
    start = phone.pose(0)
    poses = [np.linalg.inv(start) @ phone.pose(i) for i in range(FRAMES)]
    listed = [[*phone.xyzw(T), *T[:3, 3]] for T in poses]
    write(tmp_path, depth=False, poses=listed)
    capture = read_record3d(tmp_path)
    assert phone.check_geometry(capture) == FRAMES
    np.testing.assert_array_equal(capture.up, [0, 1, 0])
    change(tmp_path, initPose=[0, 0, 0, 1, 0, 0, 0])
    capture = read_record3d(tmp_path)
    assert capture.up is None
    assert any("which way is up" in note for note in capture.notes)


def test_the_front_camera_has_no_poses(tmp_path):
    """Its recordings say the identity everywhere, which is no camera path."""
    write(tmp_path, depth=False, poses=[[0, 0, 0, 1, 0, 0, 0]] * FRAMES)
    capture = read_record3d(tmp_path)
    assert capture.T_world_camera is None
    assert not capture.metric
    assert any("front camera" in note for note in capture.notes)


def test_missing_surplus_and_unknown_are_counted(tmp_path):
    """A picture less, a picture more, a lost pose and missing stamps are notes, no errors."""
    content = metadata()
    content["poses"][4] = [float("nan")] * 7
    write(tmp_path, depth=False, poses=content["poses"], frameTimestamps=TIMES[:3])
    (tmp_path / "rgbd" / "1.jpg").unlink()
    (tmp_path / "rgbd" / "9.jpg").write_bytes((tmp_path / "rgbd" / "2.jpg").read_bytes())
    capture = read_record3d(tmp_path)
    assert phone.check_geometry(capture) == FRAMES - 2
    np.testing.assert_allclose(capture.pictures.times, np.array([0, 2, 3, 4, 5]) / 60)
    text = " ".join(capture.notes)
    assert "1 of 6 listed pictures are missing and left out: 1.jpg" in text
    assert "1 pictures beyond" in text
    assert "1 of 5 pictures have no pose" in text
    assert "60 pictures a second are assumed" in text


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"K": [90, 0, 49, 0, 91, 34, 0, 0, 1]}, "row by row"),
        ({"K": [90, 0, 0]}, "9 numbers are expected"),
        ({"poses": [[0, 0, 0, 1, 0, 0]] * FRAMES}, "n x 7 numbers are expected"),
        ({"poses": "all"}, "n x 7 numbers are expected"),
        ({"poses": [[0, 0, 0.1 * i, 2, i, 0, 0] for i in range(FRAMES)]}, "length is 2"),
        ({"w": 0}, "size in pixels"),
        ({"w": None}, "size in pixels"),
        ({"w": 96, "h": 60}, "cropped"),
        ({"perFrameIntrinsicCoeffs": [[90, 91, 34.5, 70]] * FRAMES}, "far from the middle"),
        ({"perFrameIntrinsicCoeffs": [3] * FRAMES}, "perFrameIntrinsicCoeffs"),
    ],
)
def test_implausible_metadata_are_refused(tmp_path, changes, said):
    """The message names the file and the field."""
    write(tmp_path, depth=False, **changes)
    with pytest.raises(InputError, match=said) as error:
        read_record3d(tmp_path)
    assert "metadata" in str(error.value)


def test_a_size_that_was_stated_for_the_turned_phone_is_understood(tmp_path):
    """Some captures state the sensor's size, while pictures and K are upright."""
    write(tmp_path, depth=False, w=phone.SIZE[1], h=phone.SIZE[0])
    assert phone.check_geometry(read_record3d(tmp_path)) == FRAMES


def test_millimetres_are_refused_with_both_numbers(tmp_path):
    """Camera positions of hundreds of metres are millimetres."""
    content = metadata()
    poses = [[*row[:4], *(1000 * np.array(row[4:]))] for row in content["poses"]]
    write(tmp_path, depth=False, poses=poses)
    with pytest.raises(InputError, match=r"spread over \d+(\.\d)? m.*in millimetres \(0\.\d+ m\)"):
        read_record3d(tmp_path)


def test_damaged_depth_is_refused(tmp_path):
    """Cut depth, or a size in the metadata that does not fit, names the file."""
    write(tmp_path)
    change(tmp_path, dw=64)
    with pytest.raises(InputError, match=r"0\.depth: unpacks to 3072 bytes.*6144"):
        read_record3d(tmp_path)
    change(tmp_path, dw=2**16, dh=2**16)
    with pytest.raises(InputError, match="dw 65536"):
        read_record3d(tmp_path)
    change(tmp_path, dw=phone.DEPTH_SIZE[0], dh=phone.DEPTH_SIZE[1])
    path = tmp_path / "rgbd" / "0.depth"
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(InputError, match=r"0\.depth"):
        read_record3d(tmp_path)
    path.write_bytes(b"bvx2\xff\xff\xff\xff" + bytes(30))
    with pytest.raises(InputError, match=r"0\.depth: unpacks to 4294967295 bytes"):
        read_record3d(tmp_path)


def test_without_the_codec_depth_is_left_and_the_package_named(tmp_path, monkeypatch):
    """Pictures and poses are worth having without depth."""
    monkeypatch.setitem(sys.modules, "lzfse", None)
    write(tmp_path, depth=False)
    for i in range(FRAMES):
        (tmp_path / "rgbd" / f"{i}.depth").write_bytes(b"bvx$")
    capture = read_record3d(tmp_path)
    assert capture.depth is None
    assert any("Depth is not read" in note and "lzfse" in note for note in capture.notes)


def test_cut_metadata_and_other_folders_are_refused(tmp_path):
    """Half a file is no JSON; a folder without metadata is no capture."""
    write(tmp_path / "cut", depth=False)
    path = tmp_path / "cut" / "metadata"
    path.write_text(path.read_text()[:100])
    with pytest.raises(InputError, match="interrupted"):
        read_record3d(tmp_path / "cut")
    assert not detects(tmp_path)
    with pytest.raises(InputError, match="no capture of Record3D"):
        read_record3d(tmp_path)


def test_the_export_of_exr_and_jpg(tmp_path):
    """The app's other export has the same metadata beside ``rgb`` and ``depth``."""
    exr = pytest.importorskip("OpenEXR", reason="the export's depth is OpenEXR")
    root = tmp_path / "EXR_RGBD"
    (root / "rgb").mkdir(parents=True)
    (root / "depth").mkdir()
    (root / "metadata.json").write_text(json.dumps(metadata()))
    for i in range(FRAMES):
        T = phone.pose(i)
        Image.fromarray(phone.picture(T)).save(root / "rgb" / f"{i}.jpg", quality=95)
        channels = {"R": (phone.depth_mm(T) / 1000).astype(np.float32)}
        with exr.File({"compression": exr.ZIP_COMPRESSION}, channels) as file:
            file.write(str(root / "depth" / f"{i}.exr"))
    assert detects(tmp_path)
    capture = read_record3d(tmp_path)
    assert phone.check_geometry(capture) == FRAMES
    assert capture.depth is not None
    path = root / "depth" / "0.exr"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(InputError, match=r"0\.exr"):
        read_record3d(tmp_path)


def test_a_foreign_exr_file_is_decoded():
    """Depth that Blender wrote: three equal channels, metres, 65504 where there is nothing."""
    pytest.importorskip("OpenEXR", reason="needs OpenEXR")
    depth = load_exr(sorted((real("teabox") / "depth").glob("*.exr"))[0])
    assert depth.shape == (480, 640)
    assert 0.2 < np.median(depth[depth < 100]) < 2
