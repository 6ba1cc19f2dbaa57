"""transforms.json: a real capture whose geometry fits its pictures, and each way it breaks."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import trimesh
from PIL import Image

from tests.realdata import folder as real
from twinloop.capture.formats.nerfstudio import detects, read_nerfstudio
from twinloop.capture.posed import PosedCapture
from twinloop.capture.warning import CaptureWarning
from twinloop.errors import InputError
from twinloop.geometry import se3

WIDTH, HEIGHT = 64, 48
LENS = {"fl_x": 70.0, "fl_y": 71.0, "cx": 31.0, "cy": 25.0, "w": WIDTH, "h": HEIGHT}
OPENGL = np.diag([1.0, -1.0, -1.0, 1.0])


def poses(count: int = 4) -> np.ndarray:
    """Poses T_world_camera (n, 4, 4), OpenCV axes, on an arc that looks at the origin."""
    made = []
    for angle in np.linspace(0, 1, count):
        eye = np.array([3 * np.cos(angle), 3 * np.sin(angle), 1.0])
        forward = -eye / np.linalg.norm(eye)
        right = np.cross(forward, [0, 0, 1.0])
        right /= np.linalg.norm(right)
        rotation = np.stack([right, np.cross(forward, right), forward], axis=1)
        made.append(se3.from_rotation_position(rotation, eye))
    return np.array(made)


def content(count: int = 4, **extra: Any) -> dict[str, Any]:
    """A file as nerfstudio writes it: common lens, OpenGL poses."""
    frames = [
        {"file_path": f"images/{i}.png", "transform_matrix": (pose @ OPENGL).tolist()}
        for i, pose in enumerate(poses(count))
    ]
    return {"camera_model": "OPENCV", **LENS, "k1": 0.05, "k2": -0.02, "frames": frames, **extra}


def write(folder: Path, said: dict[str, Any], size: tuple[int, int] = (WIDTH, HEIGHT)) -> Path:
    """Write the file and pictures for its frames."""
    (folder / "images").mkdir(parents=True, exist_ok=True)
    (folder / "transforms.json").write_text(json.dumps(said))
    for index in range(len(said["frames"])):
        Image.new("RGB", size).save(folder / "images" / f"{index}.png")
    return folder


def sampson(capture: PosedCapture, first: int, second: int) -> tuple[int, float]:
    """Matches between two pictures and their median Sampson distance by the poses, px."""
    assert capture.T_world_camera is not None
    width, height = (capture.pictures.sizes[0] // 2).tolist()
    sift = cv2.SIFT_create(1500)
    small = [
        cv2.resize(p.image, (width, height), interpolation=cv2.INTER_AREA)
        for p in capture.pictures.read([first, second], "grey")
    ]
    seen = [sift.detectAndCompute(image, None) for image in small]
    pairs = cv2.BFMatcher().knnMatch(seen[0][1], seen[1][1], k=2)
    good = [a for a, b in pairs if a.distance < 0.7 * b.distance]
    pixels = (
        np.array([seen[0][0][m.queryIdx].pt for m in good]),
        np.array([seen[1][0][m.trainIdx].pt for m in good]),
    )
    rays = [
        np.c_[capture.cameras[k].scaled(width, height).normalize(px), np.ones(len(px))]
        for k, px in zip((first, second), pixels, strict=True)
    ]
    T = se3.inverse(capture.T_world_camera[second]) @ capture.T_world_camera[first]
    essential = se3.skew(T[:3, 3]) @ T[:3, :3]
    to_second, to_first = rays[0] @ essential.T, rays[1] @ essential
    slope = np.concatenate([to_second[:, :2], to_first[:, :2]], axis=1)
    distance = np.abs((rays[1] * to_second).sum(1)) / np.linalg.norm(slope, axis=1)
    return len(good), float(np.median(distance) * capture.cameras[first].intrinsics[0])


def test_fox_frames_that_do_not_exist_are_counted() -> None:
    """67 frames are listed, 50 pictures exist: 50 are read, 17 are reported (symptom 12)."""
    folder = real("fox")
    assert detects(folder)
    with pytest.warns(CaptureWarning, match="17 of 67 listed pictures do not exist"):
        capture = read_nerfstudio(folder)
    assert len(capture.pictures.names) == 50
    assert len(capture.cameras) == 50
    assert capture.T_world_camera is not None
    assert np.isfinite(capture.T_world_camera).all()
    assert capture.pictures.sizes.tolist() == [[1080, 1920]] * 50
    assert not capture.metric
    assert capture.up is None
    assert capture.notes[0].startswith("17 of 67")
    assert capture.cameras[0].intrinsics.tolist() == [1375.52, 1374.49, 554.058, 964.768]
    axes = capture.T_world_camera[:, :3, 2]
    to_centre = -capture.T_world_camera[:, :3, 3]
    assert (np.einsum("ni,ni->n", axes, to_centre) > 0).all()


def test_fox_poses_and_lens_fit_the_pictures() -> None:
    """What matches between two real pictures lies on the epipolar lines of poses and lens."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CaptureWarning)
        capture = read_nerfstudio(real("fox"))
    matches, distance = sampson(capture, 0, 4)
    assert matches > 300
    assert distance < 0.8  # 0.38 px at 1080 x 1920; OpenGL axes taken for OpenCV's give 61 px


def test_axes_and_pixels_are_opencvs(tmp_path: Path) -> None:
    """The origin, which all cameras look at, is in front, at the principal point less 0.5 px."""
    capture = read_nerfstudio(write(tmp_path, content()))
    assert capture.T_world_camera is not None
    np.testing.assert_allclose(capture.T_world_camera, poses(), atol=1e-12)
    for pose, camera in zip(capture.T_world_camera, capture.cameras, strict=True):
        seen = se3.apply(se3.inverse(pose), np.zeros((1, 3)))
        assert seen[0, 2] > 0
        np.testing.assert_allclose(camera.project(seen), [[30.5, 24.5]], atol=1e-9)
    assert capture.cameras[0].distortion.tolist() == [0.05, -0.02, 0, 0, 0]
    assert not capture.notes


def test_per_frame_lenses(tmp_path: Path) -> None:
    """Numbers of a frame go before those of the file; zooming changes one picture only."""
    said = content()
    for key in LENS:
        del said[key]
    for i, frame in enumerate(said["frames"]):
        frame.update(LENS, fl_x=70.0 + i)
    said["frames"][2]["k1"] = 0.5
    capture = read_nerfstudio(write(tmp_path, said))
    assert [c.intrinsics[0] for c in capture.cameras] == [70, 71, 72, 73]
    assert [c.distortion[0] for c in capture.cameras] == [0.05, 0.05, 0.5, 0.05]


def test_focal_length_from_the_opening_angle(tmp_path: Path) -> None:
    """Blender's files give only camera_angle_x: the border of the picture lies at half of it."""
    said = content()
    for key in (*LENS, "camera_model", "k1", "k2"):
        del said[key]
    said["camera_angle_x"] = 0.8
    for frame in said["frames"]:
        frame["file_path"] = "./" + frame["file_path"].removesuffix(".png")
    capture = read_nerfstudio(write(tmp_path, said))
    assert capture.pictures.names[0] == "images/0.png"
    camera = capture.cameras[0]
    right = camera.project(np.array([[np.tan(0.4), 0.0, 1.0]]))
    np.testing.assert_allclose(right, [[WIDTH - 0.5, HEIGHT / 2 - 0.5]])
    assert camera.intrinsics[1] == camera.intrinsics[0]
    said["camera_angle_x"] = 45.0
    with pytest.raises(InputError, match="Degrees"):
        read_nerfstudio(write(tmp_path, said))


def test_applied_transform_and_scale_are_undone(tmp_path: Path) -> None:
    """Poses and points return to the first program's world: no hidden scale (symptom 12)."""
    shuffle = np.array([[1.0, 0, 0, 0.1], [0, 0, 1, 0.2], [0, -1, 0, 0.3], [0, 0, 0, 1]])
    cloud = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32).astype(np.float64)
    moved = shuffle @ poses() @ OPENGL
    moved[:, :3, 3] *= 2.5
    said = content(applied_transform=shuffle[:3].tolist(), applied_scale=2.5)
    for frame, pose in zip(said["frames"], moved, strict=True):
        frame["transform_matrix"] = pose.tolist()
    said["ply_file_path"] = "cloud.ply"
    folder = write(tmp_path, said)
    trimesh.PointCloud(2.5 * se3.apply(shuffle, cloud)).export(folder / "cloud.ply")
    capture = read_nerfstudio(folder)
    np.testing.assert_allclose(capture.T_world_camera, poses(), atol=1e-9)
    assert capture.points is not None
    np.testing.assert_allclose(capture.points, cloud, atol=1e-5)
    assert "undone" in capture.notes[0]


def test_masks_and_depth(tmp_path: Path) -> None:
    """White is the object; depth is millimetres unless stated; what is absent is None."""
    said = content()
    said["frames"][0].update(mask_path="m.png", depth_file_path="d.png")
    said["frames"][1].update(mask_path="gone.png", depth_file_path="d.npy")
    said["frames"][2].update(mask_path="half.png")
    folder = write(tmp_path, said)
    mask = np.zeros((HEIGHT, WIDTH), np.uint8)
    mask[10:20, 5:9] = 255
    Image.fromarray(mask).save(folder / "m.png")
    Image.fromarray(mask[::2, ::2]).save(folder / "half.png")
    depth = np.full((24, 32), 1500, np.uint16)
    depth[0, 0] = 0
    Image.fromarray(depth).save(folder / "d.png")
    np.save(folder / "d.npy", depth[..., None].astype(np.float32))
    with pytest.warns(CaptureWarning, match="1 of 4 masks do not exist"):
        capture = read_nerfstudio(folder)
    assert any("1 of 4 masks" in note for note in capture.notes)
    assert capture.mask is not None
    assert capture.depth is not None
    assert np.array_equal(capture.mask(0), mask)
    assert capture.mask(1) is None
    assert capture.mask(2).shape == mask.shape
    for index in (0, 1):
        found = capture.depth(index)
        assert np.isnan(found[0, 0])
        assert np.nanmax(found) == np.nanmin(found) == 1.5
    assert capture.depth(2) is None
    # Metres in a file that does not say so would be millimetres: refused, with both numbers.
    np.save(folder / "d.npy", np.full((24, 32), 1.5, np.float32))
    with pytest.raises(InputError, match=r"0\.0015 m with 0\.001 m a unit"):
        capture.depth(1)
    said["depth_unit_scale_factor"] = 1.0
    said["frames"][1]["mask_path"] = "m.png"
    assert read_nerfstudio(write(folder, said)).depth(1)[3, 3] == 1.5
    Image.fromarray(mask.T.copy()).save(folder / "m.png")
    with pytest.raises(InputError, match="the same shape is expected"):
        capture.mask(0)


def test_arrays_that_lie_or_hold_objects(tmp_path: Path) -> None:
    """A depth file with pickled objects, a forged shape, or no array is refused, not loaded."""
    said = content()
    said["frames"][0]["depth_file_path"] = "d.npy"
    folder = write(tmp_path, said)
    path = folder / "d.npy"
    np.save(path, np.zeros((4, 4)))
    good = path.read_bytes()
    np.save(path, np.array([{}]), allow_pickle=True)  # written to be refused
    depth = read_nerfstudio(folder).depth
    assert depth is not None
    with pytest.raises(InputError, match="array of depth"):
        depth(0)
    forged = re.sub(rb"\(4, 4\), }( *) {8}", rb"(444444444, 4), }\1", good)
    for raw in (forged, good[:-9], good[:30], b"", b"text"):
        path.write_bytes(raw)
        with pytest.raises(InputError, match="array of depth"):
            depth(0)


def change(said: dict[str, Any], **frame: Any) -> dict[str, Any]:
    """Change the second frame."""
    said["frames"][1].update(frame)
    return said


MIRRORED = (poses()[1] @ np.diag([1.0, 1, -1, 1])).tolist()
TRANSPOSED = (poses()[1] @ OPENGL).T.tolist()


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (content(camera_model="OPENCV_FISHEYE"), "image_undistorter"),
        (content(camera_model="EQUIRECTANGULAR"), "image_undistorter"),
        (content(is_fisheye=True), "image_undistorter"),
        (content(k4=0.1), "image_undistorter"),
        (content(fl_x="wide"), "fl_x is 'wide'; a number"),
        (content(fl_x=0.9, fl_y=0.9), "fractions of the width"),
        (content(fl_x=float("nan")), "finite numbers"),
        (content(h=None), "two whole numbers"),
        (content(w=64.5), "two whole numbers"),
        (content(w=HEIGHT, h=WIDTH, cx=20.0), "turned after the calibration"),
        (content(applied_scale=0), "applied_scale is 0"),
        (content(applied_transform=np.diag([1, 1, -1, 1]).tolist()), "mirrors"),
        (content(applied_transform="x"), "rows of 4 numbers"),
        (content(frames=[]), "lists 0 frames"),
        (content(frames={}), "a list `frames`"),
        (content(frames=[1]), "frame 0.*file_path"),
        (content(ply_file_path=3), "ply_file_path"),
        (content(ply_file_path="../x.ply"), "inside the capture's folder"),
        (content(depth_unit_scale_factor=-1), "depth_unit_scale_factor"),
        (change(content(), transform_matrix=None), r"frame 1 .*rows of 4 numbers"),
        (change(content(), transform_matrix=[[1, 2], [3]]), "rows of 4 numbers"),
        (change(content(), transform_matrix=MIRRORED), "mirrors or shears"),
        (change(content(), transform_matrix=TRANSPOSED), "transposed"),
        (change(content(), file_path="../../etc/passwd"), "inside the capture's folder"),
        (change(content(), file_path="/etc/passwd"), "inside the capture's folder"),
        (change(content(), file_path=7), "file_path"),
        (change(content(), file_path="images/0.png"), "listed twice"),
        (change(content(), mask_path=[1]), "mask_path"),
    ],
)
def test_what_is_refused(tmp_path: Path, said: dict[str, Any], message: str) -> None:
    """Lenses that are not read, matrices that are no poses, names that leave: a clear error."""
    with pytest.raises(InputError, match=message) as error:
        read_nerfstudio(write(tmp_path, said))
    assert "transforms.json" in str(error.value)


def test_no_focal_length(tmp_path: Path) -> None:
    """A file without any focal length says which keys are expected."""
    said = content()
    del said["fl_x"], said["fl_y"]
    with pytest.raises(InputError, match="fl_x and fl_y"):
        read_nerfstudio(write(tmp_path, said))


def test_no_pictures_at_all(tmp_path: Path) -> None:
    """When none of the pictures exists there is nothing to go on with."""
    folder = write(tmp_path, content())
    for path in (folder / "images").iterdir():
        path.unlink()
    with pytest.raises(InputError, match="none of its 4 pictures exists"):
        read_nerfstudio(folder)


def test_frames_without_a_finite_pose_stay_unregistered(tmp_path: Path) -> None:
    """One NaN costs one pose; all NaN is an error."""
    broken = poses()[1]
    broken[0, 3] = np.nan
    capture = read_nerfstudio(write(tmp_path, change(content(), transform_matrix=broken.tolist())))
    assert capture.T_world_camera is not None
    assert np.isnan(capture.T_world_camera[:, 0, 3]).tolist() == [False, True, False, False]
    assert "1 of 4 frames have a pose that is not finite" in capture.notes[0]
    said = content(frames=[{**f, "transform_matrix": broken.tolist()} for f in content()["frames"]])
    with pytest.raises(InputError, match="no frame has a pose"):
        read_nerfstudio(write(tmp_path, said))


def test_smaller_copies_scale_their_lens(tmp_path: Path) -> None:
    """Pictures of half the declared size get half the focal length."""
    capture = read_nerfstudio(write(tmp_path, content(), size=(WIDTH // 2, HEIGHT // 2)))
    assert capture.cameras[0].intrinsics.tolist() == [35.0, 35.5, 15.0, 12.0]


def test_files_that_are_no_transforms(tmp_path: Path) -> None:
    """Missing, 0 bytes, cut, not UTF-8, a list, nested without end: what it is and what to do."""
    assert not detects(tmp_path)
    path = tmp_path / "transforms.json"
    whole = json.dumps(content()).encode()
    with pytest.raises(InputError, match="no such file"):
        read_nerfstudio(tmp_path)
    for raw, message in (
        (b"", "0 bytes"),
        (whole[: len(whole) // 2], "no JSON"),
        (b"\xff\xfe{}", "UTF-8"),
        (b"[1]", "a list `frames`"),
        (b"[" * 100_000, "no JSON"),
    ):
        path.write_bytes(raw)
        with pytest.raises(InputError, match=message):
            read_nerfstudio(tmp_path)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"ply\n",
        b"text",
        b"ply\nformat ascii 1.0\nelement vertex 3\nproperty float x\nproperty float y\n"
        b"property float z\nend_header\n1 2 3\n",
        b"ply\nformat binary_little_endian 1.0\nelement vertex 4000000000\nproperty float x\n"
        b"property float y\nproperty float z\nend_header\n123456789012",
        b"ply\nformat ascii 1.0\nelement vertex 1\nproperty float x\nproperty float y\n"
        b"property float z\nend_header\n1 nan 3\n",
        b"ply\nformat ascii 1.0\nelement vertex 1\nproperty float a\nend_header\n1\n",
        b"ply\nformat binary_little_endian 1.0\nelement none 1\nelement vertex 1\n"
        b"property float x\nproperty float y\nproperty float z\nend_header\n123456789012",
    ],
)
def test_points_that_cannot_be_read(tmp_path: Path, raw: bytes) -> None:
    """0 bytes, cut, forged counts, NaN, no coordinates."""
    folder = write(tmp_path, content())
    (folder / "sparse_pc.ply").write_bytes(raw)
    with pytest.raises(InputError, match=r"sparse_pc\.ply"):
        read_nerfstudio(folder)


def test_listed_points_that_are_gone(tmp_path: Path) -> None:
    """Points that do not exist are reported, and the rest is read."""
    capture = read_nerfstudio(write(tmp_path, content(ply_file_path="gone.ply")))
    assert capture.points is None
    assert capture.notes == ("The points gone.ply do not exist.",)
