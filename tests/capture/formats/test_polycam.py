"""Raw exports of Polycam, in the layout that its makers publish, and the ways they break."""

import json

import numpy as np
import pytest
from PIL import Image

from tests.capture.formats import phone
from twinloop.capture.formats.polycam import detects, read_polycam
from twinloop.errors import InputError

STAMPS = [52000123456 + 400000 * i for i in range(5)]


def write(folder, corrected=True, metres=1.0):
    """Write an export of five keyframes."""
    prefix = "corrected_" if corrected else ""
    root = folder / "keyframes"
    for name in (f"{prefix}images", f"{prefix}cameras", "depth", "confidence"):
        (root / name).mkdir(parents=True)
    for i, stamp in enumerate(STAMPS):
        T = phone.pose(i)
        fx, fy, cx, cy = phone.LENS
        content = {
            f"t_{r}{c}": float(T[r, c] * (metres if c == 3 else 1))
            for r in range(3)
            for c in range(4)
        }
        content |= {"fx": fx, "fy": fy, "cx": cx, "cy": cy, "blur_score": 120.0}
        content |= {"width": phone.SIZE[0], "height": phone.SIZE[1], "timestamp": stamp}
        (root / f"{prefix}cameras" / f"{stamp}.json").write_text(json.dumps(content))
        Image.fromarray(phone.picture(T)).save(
            root / f"{prefix}images" / f"{stamp}.jpg", quality=95
        )
        Image.fromarray(phone.depth_mm(T)).save(root / "depth" / f"{stamp}.png")
        trust = np.full(phone.DEPTH_SIZE[::-1], 255, np.uint8)
        trust[:3], trust[3:5] = 0, 127
        Image.fromarray(trust).save(root / "confidence" / f"{stamp}.png")
    return folder


def test_pictures_lenses_poses_and_depth_fit_together(tmp_path):
    """Every picture shows the point where ARKit's formulas put it; times are the files' names."""
    capture = read_polycam(write(tmp_path))
    assert detects(tmp_path)
    assert phone.check_geometry(capture) == 5
    assert capture.metric
    np.testing.assert_array_equal(capture.up, [0, 1, 0])
    np.testing.assert_allclose(np.diff(capture.pictures.times), 0.4, atol=1e-9)
    assert capture.pictures.times[0] == pytest.approx(52000.123456)
    depth = capture.depth(0)
    assert np.isnan(depth[:3]).all()
    assert np.isfinite(depth[3:]).all()
    assert capture.depth.files[0].name == f"{STAMPS[0]}.png"


def test_without_optimised_poses_arkits_own_are_used_and_it_is_said(tmp_path):
    """Large sessions are not optimised on the phone."""
    capture = read_polycam(write(tmp_path, corrected=False))
    assert phone.check_geometry(capture) == 5
    assert any("ARKit's own" in note for note in capture.notes)


def test_missing_pictures_are_left_out_and_counted(tmp_path):
    """A lens without picture, and a picture without lens, are noted with their names."""
    root = write(tmp_path) / "keyframes"
    (root / "corrected_images" / f"{STAMPS[1]}.jpg").unlink()
    (root / "corrected_cameras" / f"{STAMPS[3]}.json").unlink()
    capture = read_polycam(tmp_path)
    assert phone.check_geometry(capture) == 3
    assert any(note.startswith("1 of 4 listed pictures") for note in capture.notes)
    assert any(str(STAMPS[3]) in note for note in capture.notes)
    for path in (root / "corrected_images").iterdir():
        path.unlink()
    with pytest.raises(InputError, match="none of the 4 pictures"):
        read_polycam(tmp_path)


def test_smaller_copies_of_the_pictures_get_a_smaller_lens(tmp_path):
    """Pictures that were scaled keep their geometry; cropped ones are refused."""
    root = write(tmp_path) / "keyframes" / "corrected_images"
    for path in root.iterdir():
        Image.open(path).resize((48, 36), Image.Resampling.BOX).save(path, quality=95)
    assert phone.check_geometry(read_polycam(tmp_path)) == 5
    first = sorted(root.iterdir())[0]
    Image.open(first).crop((0, 0, 48, 20)).save(first)
    with pytest.raises(InputError, match="cropped"):
        read_polycam(tmp_path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"fx": float("nan")}, "finite numbers"),
        ({"fx": 0.9, "fy": 0.9}, "fractions of the width"),
        ({"t_00": 5.0}, "no rotation"),
        ({"width": "wide"}, "'wide' is there"),
        ({"cx": 5000}, "outside the picture"),
    ],
)
def test_implausible_cameras_are_refused_with_their_file(tmp_path, change, said):
    """Each number that is used is checked; the message names the file or folder."""
    path = write(tmp_path) / "keyframes" / "corrected_cameras" / f"{STAMPS[2]}.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(InputError, match=said) as error:
        read_polycam(tmp_path)
    assert "corrected_cameras" in str(error.value)


def test_a_pose_without_numbers_is_unknown(tmp_path):
    """The picture is kept, without pose, and counted."""
    path = write(tmp_path) / "keyframes" / "corrected_cameras" / f"{STAMPS[2]}.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "t_11": None}))
    capture = read_polycam(tmp_path)
    assert np.isnan(capture.T_world_camera[2]).all()
    assert phone.check_geometry(capture) == 4
    assert any("1 of 5 pictures have no pose" in note for note in capture.notes)


def test_a_cut_camera_file_is_refused(tmp_path):
    """An interrupted export leaves half a JSON file."""
    path = write(tmp_path) / "keyframes" / "corrected_cameras" / f"{STAMPS[2]}.json"
    path.write_text(path.read_text()[:40])
    with pytest.raises(InputError, match=rf"{STAMPS[2]}\.json.*no JSON"):
        read_polycam(tmp_path)
    path.write_text('{"fx": 3}')
    with pytest.raises(InputError, match="lacks fy"):
        read_polycam(tmp_path)


def test_millimetres_are_refused_with_both_numbers(tmp_path):
    """Positions and depths in the wrong unit are named in both units."""
    with pytest.raises(InputError, match=r"spread over \d+(\.\d+)? m.*in millimetres \(0\.\d+ m\)"):
        read_polycam(write(tmp_path / "a", metres=1000.0))
    write(tmp_path / "b")
    for path in (tmp_path / "b" / "keyframes" / "depth").iterdir():
        Image.fromarray(np.full((24, 32), 1, np.uint16)).save(path)
    with pytest.raises(InputError, match=r"median depth is 0\.001 m.*millimetres.*it is 1 m"):
        read_polycam(tmp_path / "b")


def test_empty_depth_is_not_used_and_damaged_depth_refused(tmp_path):
    """All zero is a lens cap, not a scene; half a PNG is no PNG."""
    root = write(tmp_path) / "keyframes" / "depth"
    for path in root.iterdir():
        Image.fromarray(np.zeros((24, 32), np.uint16)).save(path)
    capture = read_polycam(tmp_path)
    assert capture.depth is None
    assert any("all 5 pictures looked at are empty" in note for note in capture.notes)
    path = root / f"{STAMPS[0]}.png"
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(InputError, match=path.name):
        read_polycam(tmp_path)


def test_masks_are_read(tmp_path):
    """Masks beside the keyframes are those of the object."""
    (write(tmp_path) / "keyframes" / "masks").mkdir()
    mask = np.zeros(phone.SIZE[::-1], np.uint8)
    mask[10:20, 30:40] = 255
    Image.fromarray(mask).save(tmp_path / "keyframes" / "masks" / f"{STAMPS[1]}.png")
    capture = read_polycam(tmp_path)
    assert capture.mask(0) is None
    np.testing.assert_array_equal(capture.mask(1), mask)


def test_links_out_of_the_export_are_refused(tmp_path):
    """A picture may not be a link to a file elsewhere."""
    root = write(tmp_path / "in") / "keyframes" / "corrected_images"
    path = root / f"{STAMPS[0]}.jpg"
    path.rename(tmp_path / "elsewhere.jpg")
    path.symlink_to(tmp_path / "elsewhere.jpg")
    with pytest.raises(InputError, match="leads out"):
        read_polycam(tmp_path / "in")


def test_other_folders_are_not_polycams(tmp_path):
    """A folder of pictures is no export, and says what would be."""
    (tmp_path / "images").mkdir()
    assert not detects(tmp_path)
    with pytest.raises(InputError, match="developer mode"):
        read_polycam(tmp_path)
