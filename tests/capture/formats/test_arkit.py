"""Stray Scanner's recordings and ARKitScenes, in their published layouts, and how they break."""

import dataclasses

import cv2
import numpy as np
import pytest
from PIL import Image

from tests.capture.formats import phone
from tests.capture.scene import write_video
from twinloop.capture.formats.arkit import (
    detects,
    detects_arkitscenes,
    detects_stray,
    read_arkitscenes,
    read_stray,
)
from twinloop.capture.warning import CaptureWarning
from twinloop.errors import InputError

FRAMES = 8
STAMPS = 5123.25 + np.array([0, 0.0167, 0.0333, 0.0667, 0.0833, 0.1, 0.1167, 0.15])
FLIP = np.diag([1.0, -1, -1, 1])
Z_UP = np.array([[1.0, 0, 0, 0], [0, 0, -1, 0], [0, 1, 0, 0], [0, 0, 0, 1]])
"""ARKit's world, y up, in a world with z up."""


def rows(**changes):
    """Rows of the odometry: the app writes the camera with OpenCV's axes in ARKit's world."""
    lines = []
    for i, stamp in enumerate(changes.get("stamps", STAMPS)):
        T = phone.pose(i, changes.get("roll", 0.0)) @ FLIP
        values = [*(T[:3, 3] * changes.get("metres", 1.0)), *phone.xyzw(T)]
        lines.append(f"{stamp}, {i:06d}, " + ", ".join(f"{v:.9f}" for v in values))
    return lines


def write_stray(folder, rotation=0, lens=phone.LENS, video_stamps=None, **changes):
    """Write a recording; ``rotation`` is how its video is stored against upright."""
    folder.mkdir(parents=True, exist_ok=True)
    turns = rotation // 90
    images = [phone.picture(phone.pose(i, changes.get("roll", 0.0)), lens) for i in range(FRAMES)]
    stamps = STAMPS - STAMPS[0] if video_stamps is None else video_stamps
    upright = [np.ascontiguousarray(np.rot90(image, turns)) for image in images]
    write_video(folder / "rgb.mp4", upright[: len(stamps)], stamps, rotation=rotation)
    header = "timestamp, frame, x, y, z, qx, qy, qz, qw"
    (folder / "odometry.csv").write_text("\n".join([header, *rows(**changes)]) + "\n")
    fx, fy, cx, cy = lens
    (folder / "camera_matrix.csv").write_text(f"{fx}, 0.0, {cx}\n0.0, {fy}, {cy}\n0.0, 0.0, 1.0")
    for name in ("depth", "confidence"):
        (folder / name).mkdir()
    for i in range(FRAMES):
        depth = phone.depth_mm(phone.pose(i, changes.get("roll", 0.0)))
        Image.fromarray(depth).save(folder / "depth" / f"{i:06d}.png")
        trust = np.full(depth.shape, 2, np.uint8)
        trust[0] = 0
        Image.fromarray(trust).save(folder / "confidence" / f"{i:06d}.png")
    return folder


def test_stray_video_lens_poses_and_depth_fit_together(tmp_path):
    """Every frame shows the point where ARKit's formulas put it; times are the odometry's."""
    capture = read_stray(write_stray(tmp_path))
    assert detects_stray(tmp_path)
    assert detects(tmp_path)
    assert phone.check_geometry(capture) == FRAMES
    np.testing.assert_allclose(capture.pictures.times, STAMPS)
    np.testing.assert_array_equal(capture.up, [0, 1, 0])
    assert np.isnan(capture.depth(0)[0]).all()
    assert np.isfinite(capture.depth(0)[1:]).all()


@pytest.mark.parametrize("rotation", [90, 180, 270])
def test_stray_videos_of_a_turned_phone_are_turned_with_lens_pose_and_depth(tmp_path, rotation):
    """The app's older versions store the sensor's picture and a rotation beside it."""
    capture = read_stray(write_stray(tmp_path, rotation, roll=0.4))
    assert phone.check_geometry(capture) == FRAMES
    portrait = rotation != 180
    assert tuple(capture.pictures.sizes[0]) == (phone.SIZE[::-1] if portrait else phone.SIZE)
    depth = capture.depth(0)
    assert depth.shape == (phone.DEPTH_SIZE if portrait else phone.DEPTH_SIZE[::-1])
    untrusted = np.rot90(np.arange(24)[:, None] == np.zeros(32), rotation // 90)
    np.testing.assert_array_equal(np.isnan(depth), untrusted)
    assert any(f"{rotation} deg" in note for note in capture.notes)


def test_stray_frames_find_their_rows_by_time(tmp_path):
    """The first frame may be missing from the video, others from the odometry."""
    write_stray(tmp_path)
    lines = (tmp_path / "odometry.csv").read_text().splitlines()
    (tmp_path / "odometry.csv").write_text("\n".join(lines[:4] + lines[5:]))
    capture = read_stray(tmp_path)
    assert phone.check_geometry(capture) == FRAMES - 1
    assert any("8 frames" in note and "7 rows; 7 agree" in note for note in capture.notes)
    other = tmp_path / "late"
    write_stray(other)
    images = [phone.picture(phone.pose(i)) for i in range(1, FRAMES)]
    write_video(other / "rgb.mp4", images, STAMPS[1:] - STAMPS[1])
    capture = read_stray(other)
    assert phone.check_geometry(capture) == FRAMES - 1
    assert capture.pictures.times[0] == pytest.approx(STAMPS[1])


def test_stray_even_stamps_leave_open_which_frame_is_missing(tmp_path):
    """The begin is taken to be common, and the report says so."""
    even = 5123.25 + np.arange(FRAMES) / 60
    write_stray(tmp_path, stamps=even, video_stamps=(even - even[0])[:-1])
    capture = read_stray(tmp_path)
    assert phone.check_geometry(capture) == FRAMES - 1
    assert any("Stamps are even" in note for note in capture.notes)


def test_stray_video_and_odometry_of_different_recordings_are_refused(tmp_path):
    """Both counts and both durations are said."""
    write_stray(tmp_path, stamps=5123.25 + 0.9 * np.arange(5))
    with pytest.raises(InputError, match=r"8 frames over 0\.15.* s, odometry.csv 5 rows over 3\.6"):
        read_stray(tmp_path)


def test_stray_recordings_of_the_first_version(tmp_path):
    """No header, no stamps, depth as NumPy files; a lost pose is unknown."""
    write_stray(tmp_path)
    lines = [",".join(line.split(",")[2:]) for line in rows()]
    lines[3] = "nan, nan, nan, nan, nan, nan, nan"
    (tmp_path / "odometry.csv").write_text("\n".join(lines))
    for path in sorted((tmp_path / "depth").glob("*.png")):
        np.save(path.with_suffix(".npy"), np.asarray(Image.open(path)))
        path.unlink()
    capture = read_stray(tmp_path)
    assert phone.check_geometry(capture) == FRAMES - 1
    assert capture.depth is not None
    assert any("1 of 8 pictures have no pose" in note for note in capture.notes)
    path = tmp_path / "depth" / "000000.npy"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(InputError, match=r"000000\.npy"):
        read_stray(tmp_path)
    pickled = np.array([{"run": "me"}], dtype=object)
    np.save(path, pickled, allow_pickle=True)  # written to be refused
    with pytest.raises(InputError, match=r"000000\.npy"):
        read_stray(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("odometry.csv", "timestamp, frame, x\n1, 0, 2\n", "columns"),
        ("odometry.csv", "timestamp, frame, x, y, z, qx, qy, qz, qw\n1, 0, 2\n", "line 2 has 3"),
        ("odometry.csv", "timestamp, frame, x, y, z, qx, qy, qz, qw\n1, 0", "line 2 has 2"),
        ("odometry.csv", "timestamp, frame, x, y, z, qx, qy, qz, qw\n", "holds no numbers"),
        ("odometry.csv", "\x00\x01\x02", "line 1 holds"),
        ("odometry.csv", "1,0,0,0,0,0,0,0,3\n", "length is 3"),
        ("odometry.csv", "2,0,0,0,0,0,0,0,1\n1,1,0,0,0,0,0,0,1\n", "timestamp of row 1"),
        ("odometry.csv", "", "0 bytes"),
        ("camera_matrix.csv", "90, 0, 49\n0, 91, 34", "3 x 3"),
        ("camera_matrix.csv", "90, 0, 49\n0, 91, nan\n0, 0, 1", "far from the middle"),
        ("camera_matrix.csv", "1300, 0, 960\n0, 1300, 720\n0, 0, 1", "resized"),
        ("rgb.mp4", "no video", "cannot be decoded"),
    ],
)
def test_stray_files_that_are_damaged_are_refused(tmp_path, name, content, said):
    """The message names the file, and the line where there is one."""
    write_stray(tmp_path)
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=said) as error:
        read_stray(tmp_path)
    assert name in str(error.value)


def test_stray_recordings_of_the_present_version(tmp_path):
    """Lenses stand in the odometry too, and cells that the phone does not fill are empty."""
    write_stray(tmp_path)
    fx, fy, cx, cy = phone.LENS
    head = "timestamp, frame, x, y, z, qx, qy, qz, qw, fx, fy, cx, cy, distortion_center_x, "
    lines = [f"{line}, {fx}, {fy}, {cx}, {cy}, , " for line in rows()]
    lines[2] = f"{rows()[2]}, , , , , , "
    text = "\n".join([f"{head}distortion_center_y", *lines])
    (tmp_path / "odometry.csv").write_text(text + "\n")
    assert phone.check_geometry(read_stray(tmp_path)) == FRAMES
    (tmp_path / "camera_matrix.csv").write_text(f"{fx + 9}, 0, {cx}\n0, {fy}, {cy}\n0, 0, 1")
    focal = [camera.intrinsics[0] for camera in read_stray(tmp_path).cameras]
    assert focal == pytest.approx([fx, fx, fx + 9, *[fx] * (FRAMES - 3)])


def test_stray_rows_that_were_cut_at_the_end_are_left_out(tmp_path):
    """A phone whose battery went empty writes half a line."""
    write_stray(tmp_path)
    path = tmp_path / "odometry.csv"
    path.write_text(path.read_text()[:-60])
    with pytest.warns(CaptureWarning, match="line 9 was cut"):
        capture = read_stray(tmp_path)
    assert phone.check_geometry(capture) == FRAMES - 1


def test_stray_files_may_not_be_links_out(tmp_path):
    """A recording is whole by itself."""
    write_stray(tmp_path / "in")
    video = tmp_path / "in" / "rgb.mp4"
    video.rename(tmp_path / "elsewhere.mp4")
    video.symlink_to(tmp_path / "elsewhere.mp4")
    with pytest.raises(InputError, match="leads out"):
        read_stray(tmp_path / "in")


def test_stray_millimetres_are_refused(tmp_path):
    """Camera positions of hundreds of metres are millimetres; depth of micrometres is metres."""
    with pytest.raises(InputError, match=r"odometry.csv.*in millimetres \(0\.\d+ m\)"):
        read_stray(write_stray(tmp_path / "a", metres=1000.0))
    write_stray(tmp_path / "b")
    for path in (tmp_path / "b" / "depth").iterdir():
        Image.fromarray(np.full((24, 32), 2, np.uint16)).save(path)
    with pytest.raises(InputError, match=r"0\.002 m.*2 m"):
        read_stray(tmp_path / "b")


def write_scene(folder, asset="lowres_wide"):
    """Write a scene: 60 Hz pictures, a trajectory at 10 Hz, world with z up."""
    for name in (asset, f"{asset}_intrinsics", "lowres_depth", "confidence"):
        (folder / name).mkdir(parents=True)
    lines = []
    for i in range(7):
        stamp = 3414.4 + 0.1 * i
        name = f"41048190_{stamp:.3f}"
        T = phone.pose(i)
        Image.fromarray(phone.picture(T)).save(folder / asset / f"{name}.png")
        values = " ".join(f"{v}" for v in (*phone.SIZE, *phone.LENS))
        # Names of the assets differ by the last digit at times.
        lens = f"41048190_{stamp + 0.001 * (i == 2):.3f}.pincam"
        (folder / f"{asset}_intrinsics" / lens).write_text(values)
        Image.fromarray(phone.depth_mm(T)).save(folder / "lowres_depth" / f"{name}.png")
        trust = np.full(phone.DEPTH_SIZE[::-1], 2, np.uint8)
        Image.fromarray(trust).save(folder / "confidence" / f"{name}.png")
        w2c = np.linalg.inv(Z_UP @ T @ FLIP)
        axis = cv2.Rodrigues(w2c[:3, :3])[0][:, 0]
        lines.append(" ".join(f"{v:.12f}" for v in (stamp + 0.0004, *axis, *w2c[:3, 3])))
    (folder / "lowres_wide.traj").write_text("\n".join(lines))
    return folder


def check_scene(capture):
    """As for the phone, after turning the world to y up."""
    T = np.linalg.inv(Z_UP) @ capture.T_world_camera
    return phone.check_geometry(dataclasses.replace(capture, T_world_camera=T))


def test_scene_pictures_lenses_poses_and_depth_fit_together(tmp_path):
    """World to camera as axis-angle, z up; stamps of assets differ by a millisecond."""
    write_scene(tmp_path / "41048190_frames")
    capture = read_arkitscenes(tmp_path)
    assert detects_arkitscenes(tmp_path)
    np.testing.assert_array_equal(capture.up, [0, 0, 1])
    np.testing.assert_allclose(capture.pictures.times, 3414.4 + 0.1 * np.arange(7), atol=1e-9)
    assert check_scene(capture) == 7
    assert capture.depth is not None


def test_scene_poses_are_interpolated_but_not_across_gaps(tmp_path):
    """Without one sample its picture lies on the chord of two; without three nothing is known."""
    write_scene(tmp_path)
    lines = (tmp_path / "lowres_wide.traj").read_text().splitlines()
    (tmp_path / "lowres_wide.traj").write_text("\n".join(lines[:1] + lines[2:]))
    capture = read_arkitscenes(tmp_path)
    expected = Z_UP @ phone.pose(1) @ FLIP
    np.testing.assert_allclose(capture.T_world_camera[1, :3, 3], expected[:3, 3], atol=0.012)
    np.testing.assert_allclose(capture.T_world_camera[1, :3, :3], expected[:3, :3], atol=0.01)
    (tmp_path / "lowres_wide.traj").write_text("\n".join(lines[:2] + lines[5:]))
    capture = read_arkitscenes(tmp_path)
    assert np.isnan(capture.T_world_camera[:, 0, 0]).tolist() == [0, 0, 1, 1, 1, 0, 0]
    assert any("3 of 7 pictures have no pose" in note for note in capture.notes)


def test_scene_prefers_larger_pictures_and_counts_missing_lenses(tmp_path):
    """The largest asset with lenses is used."""
    write_scene(tmp_path, "vga_wide")
    next((tmp_path / "vga_wide_intrinsics").iterdir()).unlink()
    (tmp_path / "wide").mkdir()
    capture = read_arkitscenes(tmp_path)
    assert check_scene(capture) == 6
    assert "The pictures of vga_wide are used." in capture.notes
    assert any("1 of 7 listed lenses" in note for note in capture.notes)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("1 2 3", "line 1 has 3 values"),
        ("1 2 3 4 5 6 seven", "line 1 holds"),
        ("3414 0 0 0 0 0 0", "1 poses"),
        ("3414 0 0 0 0 0 0\n3413 0 0 0 0 0 0", "sorted by time"),
        ("3414 0 0 0 0 0 0\n3414.1 0 0 0 0 0 nan", "1 poses"),
        (
            "\n".join(f"{3414.4 + 0.1 * i:.3f} 0 0 0 {200 * i} 0 0" for i in range(7)),
            "in millimetres",
        ),
    ],
)
def test_scene_trajectories_that_are_damaged_are_refused(tmp_path, content, said):
    """The message names the file, and the line where there is one."""
    write_scene(tmp_path)
    (tmp_path / "lowres_wide.traj").write_text(content)
    with pytest.raises(InputError, match=said) as error:
        read_arkitscenes(tmp_path)
    assert "lowres_wide.traj" in str(error.value)


def test_scene_lenses_that_are_damaged_and_other_folders_are_refused(tmp_path):
    """Five numbers are no lens; a folder of pictures is no scene."""
    write_scene(tmp_path)
    lens = sorted((tmp_path / "lowres_wide_intrinsics").iterdir())[0]
    lens.write_text("96 72 90 91 49")
    with pytest.raises(InputError, match=lens.name):
        read_arkitscenes(tmp_path)
    assert not detects_arkitscenes(tmp_path / "lowres_wide")
    with pytest.raises(InputError, match="no scene of ARKitScenes"):
        read_arkitscenes(tmp_path / "lowres_wide")
