"""Scenes and results of BOP in the toolkit's layout, and how they break."""

import json

import numpy as np
import pytest
from PIL import Image

from tests.capture.formats import phone
from twinloop.capture.formats.bop import RESULTS, detects, read_bop, read_bop_results
from twinloop.errors import InputError

IDS = (3, 8, 17, 120)
FLIP = np.diag([1.0, -1, -1, 1])
LENS = (90.0, 91.0, 48.5, 34.0)
"""fx, fy, cx, cy, px from the centre of the first pixel, as OpenCV and BOP count."""


def entry(T, name):
    """A pose as BOP writes it: row by row, mm."""
    T = np.asarray(T)
    return {
        f"cam_R_{name}": T[:3, :3].reshape(-1).tolist(),
        f"cam_t_{name}": (1000 * T[:3, 3]).tolist(),
    }


def world_to_camera(i):
    """World to camera with OpenCV's axes."""
    return np.linalg.inv(phone.pose(i) @ FLIP)


def object_pose():
    """The object's pose in the world: at the point, turned."""
    T = np.eye(4)
    c, s = np.cos(0.7), np.sin(0.7)
    T[:2, :2] = [[c, -s], [s, c]]
    T[:3, 3] = phone.POINT
    return T


def write(folder, world=True):
    """Write a scene with object 5 (twice in the second picture) and object 9 in the first."""
    for name in ("rgb", "depth", "mask_visib"):
        (folder / name).mkdir(parents=True)
    cameras, truth, info = {}, {}, {}
    fx, fy, cx, cy = LENS
    for i, image in enumerate(IDS):
        w2c = world_to_camera(i)
        K = [fx, 0, cx, 0, fy, cy, 0, 0, 1]
        cameras[image] = {"cam_K": K, "depth_scale": 0.1, **(entry(w2c, "w2c") if world else {})}
        found = [{"obj_id": 5, **entry(w2c @ object_pose(), "m2c")}]
        seen = [{"visib_fract": 0.9}]
        if i == 1:
            found.insert(0, {"obj_id": 5, **entry(w2c, "m2c")})
            seen.insert(0, {"visib_fract": 0.1})
        if i == 0:
            found.insert(0, {"obj_id": 9, **entry(w2c, "m2c")})
            seen.insert(0, {"visib_fract": 1.0})
        if i == 3:
            found, seen = [], []
        truth[image], info[image] = found, seen
        Image.fromarray(phone.picture(phone.pose(i))).save(folder / "rgb" / f"{image:06d}.png")
        depth = 10 * phone.depth_mm(phone.pose(i))
        Image.fromarray(depth).save(folder / "depth" / f"{image:06d}.png")
        for k in range(len(found)):
            mask = np.zeros(phone.SIZE[::-1], np.uint8)
            mask[k + 1, : 10 + i] = 255
            Image.fromarray(mask).save(folder / "mask_visib" / f"{image:06d}_{k:06d}.png")
    (folder / "scene_camera.json").write_text(json.dumps(cameras))
    (folder / "scene_gt.json").write_text(json.dumps(truth))
    (folder / "scene_gt_info.json").write_text(json.dumps(info))
    return folder


def change(path, image, **fields):
    """Change fields of a picture's entry, or of its first object."""
    content = json.loads(path.read_text())
    target = content[str(image)]
    (target[0] if isinstance(target, list) else target).update(fields)
    path.write_text(json.dumps(content))


def test_pictures_lenses_poses_depth_and_object_fit_together(tmp_path):
    """Metres, camera to world; the object stands still in the world though the camera moves."""
    capture = read_bop(write(tmp_path), 5)
    assert detects(tmp_path)
    assert phone.check_geometry(capture) == 4
    assert capture.metric
    for i in range(3):
        np.testing.assert_allclose(capture.T_world_object[i], object_pose(), atol=1e-9)
    assert np.isnan(capture.T_world_object[3]).all()
    assert capture.pictures.names[2] == "rgb/000017.png"
    assert any("absent from 1 of 4" in note for note in capture.notes)
    assert any("1 of 4 pictures show object 5 more than once" in note for note in capture.notes)


def test_masks_are_those_of_the_chosen_instance(tmp_path):
    """The file's second number counts the annotations of a picture."""
    capture = read_bop(write(tmp_path), 5)
    for i, instance in enumerate((1, 1, 0)):
        rows, columns = np.nonzero(capture.mask(i))
        assert set(rows) == {instance + 1}
        assert len(columns) == 10 + i
    assert capture.mask(3) is None


def test_without_camera_poses_the_object_is_in_the_cameras_frame(tmp_path):
    """Many scenes tell no camera poses."""
    capture = read_bop(write(tmp_path, world=False), 9)
    assert capture.T_world_camera is None
    np.testing.assert_allclose(capture.T_world_object[0], world_to_camera(0), atol=1e-9)


def test_one_object_must_be_named_where_there_are_several(tmp_path):
    """The message lists them; a scene with one object needs no name."""
    write(tmp_path)
    with pytest.raises(InputError, match=r"objects \[5, 9\].*which one"):
        read_bop(tmp_path)
    with pytest.raises(InputError, match=r"object 4 is not there; there are \[5, 9\]"):
        read_bop(tmp_path, 4)
    truth = json.loads((tmp_path / "scene_gt.json").read_text())
    (tmp_path / "scene_gt.json").write_text(json.dumps({**truth, "3": []}))
    assert np.isnan(read_bop(tmp_path).T_world_object[0]).all()
    (tmp_path / "scene_gt.json").unlink()
    capture = read_bop(tmp_path)
    assert capture.T_world_object is None
    assert any("no scene_gt.json" in note for note in capture.notes)


def test_grey_pictures_and_a_lens_for_all(tmp_path):
    """``gray`` folders, and scenes whose lens is in ``camera.json``."""
    write(tmp_path, world=False)
    (tmp_path / "rgb").rename(tmp_path / "gray")
    (tmp_path / "scene_camera.json").unlink()
    fx, fy, cx, cy = LENS
    lens = {"fx": fx, "fy": fy, "cx": cx, "cy": cy, "depth_scale": 0.1, "width": 96, "height": 72}
    (tmp_path / "camera.json").write_text(json.dumps(lens))
    capture = read_bop(tmp_path, 5)
    np.testing.assert_allclose(capture.cameras[0].intrinsics, LENS)
    assert any("camera.json is taken" in note for note in capture.notes)
    assert np.nanmedian(capture.depth(0)) == pytest.approx(phone.seen(phone.pose(0))[2], abs=6e-4)


def test_missing_pictures_are_left_out(tmp_path):
    """Listed pictures that are not there are counted and named."""
    write(tmp_path)
    (tmp_path / "rgb" / "000008.png").unlink()
    capture = read_bop(tmp_path, 5)
    assert phone.check_geometry(capture) == 3
    np.testing.assert_allclose(capture.T_world_object[1], object_pose(), atol=1e-9)
    assert any("1 of 4 listed pictures" in n and "000008" in n for n in capture.notes)
    for path in (tmp_path / "rgb").iterdir():
        path.unlink()
    with pytest.raises(InputError, match="none of the 4 pictures"):
        read_bop(tmp_path, 5)


@pytest.mark.parametrize(
    ("name", "fields", "said"),
    [
        ("scene_camera.json", {"cam_K": [90, 0, 48]}, "9 numbers"),
        ("scene_camera.json", {"cam_K": [90, 0, 0, 0, 91, 0, 48, 34, 1]}, "no last row"),
        ("scene_camera.json", {"cam_K": [0.9, 0, 0.5, 0, 0.9, 0.5, 0, 0, 1]}, "fractions"),
        ("scene_camera.json", {"cam_R_w2c": [1, 0, 0, 0, 1, 0, 0, 0, -1]}, "no rotation"),
        ("scene_camera.json", {"cam_t_w2c": [0, 0, 1e7]}, r"spread over 1e\+04 m.*\(10 m\)"),
        ("scene_camera.json", {"depth_scale": 1000}, r"median depth is .* m.*it is "),
        ("scene_gt.json", {"cam_t_m2c": [0, 0, 0.8], "obj_id": 5}, "0.8 mm.*it is 0.8 m"),
        ("scene_gt.json", {"obj_id": "5"}, "whole number"),
        ("scene_gt.json", {"cam_R_m2c": [2] * 9, "obj_id": 5}, "no rotation"),
    ],
)
def test_implausible_numbers_are_refused(tmp_path, name, fields, said):
    """The message names the file and the picture; units are said in both readings."""
    write(tmp_path)
    change(tmp_path / name, IDS[0], **fields)
    with pytest.raises(InputError, match=said):
        read_bop(tmp_path, 5)


@pytest.mark.parametrize("name", ["scene_camera.json", "scene_gt.json", "scene_gt_info.json"])
@pytest.mark.parametrize("content", ['{"3": {"cam_K": [1,', "[1, 2]", '{"a": 1}', ""])
def test_cut_and_foreign_descriptions_are_refused(tmp_path, name, content):
    """Half a file, or another one."""
    write(tmp_path)
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=name):
        read_bop(tmp_path, 5)


def test_a_folder_of_scenes_names_them(tmp_path):
    """The data set's own folder is a common mistake."""
    write(tmp_path / "000002")
    assert not detects(tmp_path)
    with pytest.raises(InputError, match="one of its scenes: 000002"):
        read_bop(tmp_path)


def test_results_are_read_in_metres(tmp_path):
    """One line an estimate; the header may be missing."""
    path = tmp_path / "results.csv"
    T = world_to_camera(2) @ object_pose()
    cells = " ".join(map(str, T[:3, :3].ravel())), " ".join(map(str, 1000 * T[:3, 3]))
    line = f"2,17,5,0.75,{cells[0]},{cells[1]},-1"
    for text in (f"{RESULTS}\n{line}\n", line):
        path.write_text(text)
        (pose,) = read_bop_results(path)
        assert (pose.scene, pose.image, pose.object, pose.score) == (2, 17, 5, 0.75)
        np.testing.assert_allclose(pose.T_camera_object, T, atol=1e-12)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("1,2,3,0.5,1 0 0 0 1 0 0 0 1,0 0 800", "6 values"),
        ("1,2,3,0.5,1 0 0 0 1 0 0 0,0 0 800,-1", "R has 8"),
        ("1,2,3,0.5,1 0 0 0 1 0 0 0 1,0 0 far,-1", "no numbers"),
        ("1,2,3,0.5,1 0 0 0 1 0 0 0 nan,0 0 800,-1", "not finite"),
        ("1,2,3,0.5,1 0 0 0 1 0 0 0 -1,0 0 800,-1", "no rotation"),
        ("1,2,3,0.5,1 0 0 0 1 0 0 0 1,0 0 0.8,-1", "0.8 mm.*it is 0.8 m"),
        ("", "no estimates"),
    ],
)
def test_broken_results_name_their_line(tmp_path, line, said):
    """Cut lines, mirrors and metres."""
    path = tmp_path / "results.csv"
    path.write_text(f"{RESULTS}\n{line}\n")
    with pytest.raises(InputError, match=said) as error:
        read_bop_results(path)
    assert not line or "line 2" in str(error.value)
