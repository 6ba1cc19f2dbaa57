"""``twinloop.track``: what a user has in files becomes poses, a film, or a message that helps."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import pytest

import twinloop
from tests.tracking import twin_capture as capture
from tests.tracking.box_scene import rotation
from twinloop.capture.warning import CaptureWarning
from twinloop.errors import InputError, MachineError
from twinloop.export.mesh_files import write_obj, write_ply
from twinloop.geometry import se3
from twinloop.metrics.poses import average_distance
from twinloop.tracking.api import Twin, VideoTrack, read_twin
from twinloop.tracking.clip_setup import box_mask
from twinloop.tracking.frame import CameraFrame, Frame
from twinloop.tracking.images import to_grey
from twinloop.tracking.mask_search import poses_in_mask
from twinloop.tracking.model import build_model
from twinloop.tracking.model_checks import silhouette
from twinloop.tracking.pose_files import csv_text, write_poses
from twinloop.tracking.pose_track import LOST, OK, PoseTrack
from twinloop.tracking.preview import Wires, image_covariance
from twinloop.tracking.session import shows_texture, without
from twinloop.tracking.solver import Solution, WorldCamera, perturb, project, rotation_log
from twinloop.tracking.state import Start
from twinloop.tracking.twin_files import load_twin

CAMERA = WorldCamera(
    np.array(capture.LENS), se3.inverse(capture.EYE), capture.WIDTH, capture.HEIGHT
)
SCENE = capture.box_scene()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A twin, its camera and board, and a clip in which the box slides 3 mm a frame."""
    out = tmp_path_factory.mktemp("track")
    capture.write_twin(out / "twin", SCENE)
    capture.write_camera(out)
    capture.write_clip(out / "slide.mp4", [capture.picture(SCENE, T) for T in truth(4)])
    return out


@pytest.fixture(scope="module")
def twin(folder: Path) -> Twin:
    """The twin, read once."""
    return read_twin(folder / "twin", views=8)


def truth(count: int) -> np.ndarray:
    """T_world_object (n, 4, 4) of the sliding box."""
    return np.array([capture.standing(SCENE, 0.01 + 0.003 * i, 0.02, 0.4) for i in range(count)])


def track(clip: Path, twin: Path | Twin, **options: Any) -> VideoTrack:
    """The call as a user makes it; its warnings are read as notes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CaptureWarning)
        return twinloop.track(clip, twin, **options)


def lens_and_board(folder: Path) -> dict[str, Path]:
    """What says where the camera stands."""
    return {"camera": folder / "camera.yaml", "board": folder / "board.yaml"}


def test_poses_film_and_file(folder: Path, twin: Twin, tmp_path: Path) -> None:
    """With camera and board: poses within 3 mm in the board's frame, a film of every frame."""
    made = track(
        folder / "slide.mp4",
        twin,
        **lens_and_board(folder),
        out=tmp_path / "poses.npz",
        preview=tmp_path / "out.mp4",
    )
    points = SCENE.mesh()[0]
    assert average_distance(made.pose, truth(4), points).max() < 0.003
    assert (made.status == OK).all()
    assert made.table
    assert made.sure
    assert "plane" in made.modes
    moved = np.linalg.norm(np.diff(made.pose[:, :3, 3], axis=0), axis=1)
    assert np.abs(moved - 0.003).max() < 0.001
    with np.load(tmp_path / "poses.npz", allow_pickle=False) as stored:
        assert np.array_equal(stored["pose"], made.pose)
        assert np.array_equal(stored["status"], made.status)
    with av.open(str(tmp_path / "out.mp4")) as film:
        frames = [f.to_ndarray(format="rgb24") for f in film.decode(video=0)]
    assert len(frames) == 4
    assert frames[0].shape == (2 * capture.HEIGHT, 2 * capture.WIDTH, 3)
    plain = cv2.resize(capture.picture(SCENE, truth(1)[0]), None, fx=2, fy=2).astype(int)
    green = frames[0][..., 1].astype(int) - plain[..., 1] > 50
    drawn = np.argwhere(green[40:])[:, ::-1] + [0, 40]
    hull = project(CAMERA, truth(1)[0], points)[0] * 2
    assert len(drawn) > 300
    assert (drawn > hull.min(0) - 6).all()
    assert (drawn < hull.max(0) + 6).all()


def test_from_a_knock_of_the_camera_on_no_frame_is_ok(
    folder: Path, twin: Twin, tmp_path: Path
) -> None:
    """The picture jumps by 8 px in the fifth of ten frames: noticed within three, and said."""
    still = [capture.picture(SCENE, truth(1)[0]) for _ in range(10)]
    shift = np.array([[1.0, 0.0, 8.0], [0.0, 1.0, 3.0]])
    size = (capture.WIDTH, capture.HEIGHT)
    moved = [
        cv2.warpAffine(image, shift, size, borderMode=cv2.BORDER_REPLICATE) for image in still[4:]
    ]
    capture.write_clip(tmp_path / "knock.mp4", [*still[:4], *moved])
    made = track(tmp_path / "knock.mp4", twin, **lens_and_board(folder))
    assert (made.status[:4] == OK).all()
    assert (made.status[6:] != OK).all()
    assert any("the camera moved" in note for note in made.notes)


def test_one_frame_without_a_board_is_in_the_cameras_frame(twin: Twin, tmp_path: Path) -> None:
    """Four numbers for a lens and one picture are enough; the velocity is then unknown."""
    capture.write_clip(tmp_path / "one.mp4", [capture.picture(SCENE, truth(1)[0])])
    with warnings.catch_warnings():
        warnings.simplefilter("error", CaptureWarning)
        made = twinloop.track(tmp_path / "one.mp4", twin, camera=capture.LENS)
    assert len(made.time) == 1
    assert not made.table
    assert "plane" not in made.modes
    seen = CAMERA.T_camera_world @ truth(1)
    assert average_distance(made.pose, seen, SCENE.mesh()[0]).max() < 0.004
    assert np.linalg.eigvalsh(made.velocity_covariance[0]).min() > 0.01


def test_two_of_them_are_never_ok(folder: Path, twin: Twin, tmp_path: Path) -> None:
    """Two identical objects: no frame is ok and a note says why; a box about one decides."""
    left, right = truth(1)[0], capture.standing(SCENE, -0.11, 0.0, 1.2)
    capture.write_clip(tmp_path / "two.mp4", [capture.picture(SCENE, left, right)])
    made = track(tmp_path / "two.mp4", twin, **lens_and_board(folder))
    assert not (made.status == OK).any()
    assert not made.sure
    assert any("two objects" in note for note in made.notes)
    pixels = project(CAMERA, right, SCENE.mesh()[0])[0]
    box = (*(pixels.min(0) - 3), *(np.ptp(pixels, axis=0) + 6))
    made = track(tmp_path / "two.mp4", twin, **lens_and_board(folder), box=box)
    assert made.sure
    assert np.linalg.norm(made.pose[0, :3, 3] - right[:3, 3]) < 0.004


def test_what_comes_late_is_lost_before(folder: Path, twin: Twin, tmp_path: Path) -> None:
    """An object that is put down later is found there; the frames before are lost."""
    empty, there = capture.picture(SCENE), capture.picture(SCENE, truth(1)[0])
    capture.write_clip(tmp_path / "late.mp4", [empty, there, there, there])
    made = track(tmp_path / "late.mp4", twin, camera=capture.LENS)
    assert made.status.tolist() == [LOST, OK, OK, OK]
    assert any("not found before" in note for note in made.notes)


def test_bare_table_is_not_a_textured_twin(twin: Twin) -> None:
    """A start on a patch of table is told from one on the object by the texture there."""

    def start(T: np.ndarray) -> Start:
        return Start(Solution(T, np.eye(6), np.eye(6), ()), True, "search", True)

    T, image = truth(1)[0], capture.picture(SCENE, truth(1)[0])
    frame = Frame(0.0, (CameraFrame(CAMERA, image, to_grey(image)),))
    assert shows_texture(twin.model, frame, start(T))
    empty = without(frame, twin.model, T)
    assert not shows_texture(twin.model, empty, start(T))


def test_no_lens_and_no_board_is_said(folder: Path) -> None:
    """Without intrinsics and without a board the message says how to get them."""
    with pytest.raises(InputError, match=r"intrinsics are not given.*board"):
        track(folder / "slide.mp4", folder / "twin")


def test_a_lens_of_another_size_is_refused(folder: Path, tmp_path: Path) -> None:
    """camera.yaml of another resolution: both sizes are named."""
    text = (folder / "camera.yaml").read_text().replace("width: 400", "width: 640")
    (tmp_path / "camera.yaml").write_text(text)
    with pytest.raises(InputError, match=r"400 x 300 px.*640 x 300"):
        track(folder / "slide.mp4", folder / "twin", camera=tmp_path / "camera.yaml")
    with pytest.raises(InputError, match="expected fx, fy, cx, cy"):
        track(folder / "slide.mp4", folder / "twin", camera=(400.0, 400.0, 199.5))


def test_a_mesh_in_millimetres_is_refused_with_both_numbers(folder: Path, tmp_path: Path) -> None:
    """Its size and the camera's distance are named, and the factor that would help."""
    vertices, faces, _ = SCENE.mesh(1)
    write_obj(tmp_path / "mm.obj", 1000 * vertices, faces, "millimetres")
    with pytest.raises(InputError, match=r"142.* m across .* 0\.566 m away.*0\.001"):
        track(folder / "slide.mp4", tmp_path / "mm.obj", **lens_and_board(folder))


def test_a_mesh_with_y_up_is_refused_unless_any_pose_is_said(tmp_path: Path) -> None:
    """A cone that lies on its side with z up falls over; turned it stands."""
    angle = np.linspace(0, 2 * np.pi, 24, endpoint=False)
    ring = 0.02 * np.stack([np.cos(angle), np.zeros(24), np.sin(angle)], axis=1)
    vertices = np.concatenate([ring, [[0, 0.1, 0], [0, 0, 0]]])
    faces = [f for i in range(24) for f in ((i, 24, (i + 1) % 24), (i, (i + 1) % 24, 25))]
    write_obj(tmp_path / "cone.obj", vertices, faces, "y up")
    with pytest.raises(InputError, match=r"\d+ deg.*turned to \(x, -z, y\).*0\.0 deg"):
        load_twin(tmp_path / "cone.obj")
    found = load_twin(tmp_path / "cone.obj", "any")
    assert found.T_world_object is None
    corner = found.vertices[found.faces]
    volume = np.einsum("fi,fi->", corner[:, 0], np.cross(corner[:, 1], corner[:, 2])) / 6
    assert volume == pytest.approx(np.pi * 0.02**2 * 0.1 / 3, rel=0.02)  # wound outwards


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.obj", b"v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 3\n", "solid"),
        ("a.ply", b"ply\nformat binary_little_endian 1.0\nelement vertex 999999999\n", "a.ply"),
        ("a.stl", b"\0" * 80 + b"\xff\xff\xff\xff", "cannot be read|no triangles"),
        ("a.step", b"ISO-10303-21;", "expected a mesh"),
    ],
)
def test_bad_mesh_files_are_refused(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    """No header is believed, and every message names the file."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=said) as error:
        load_twin(tmp_path / name)
    assert name in str(error.value)


def test_a_twin_is_read_from_its_folder_alone(tmp_path: Path) -> None:
    """The card's name leads to no file outside, and Gaussians of another size are refused."""
    twin = capture.write_twin(tmp_path / "twin", SCENE)
    card = (twin / "twin.json").read_text()
    (twin / "twin.json").write_text(card.replace('"box"', '"../../box"'))
    with pytest.raises(InputError, match="inside the capture's folder"):
        load_twin(twin)
    (twin / "twin.json").write_text(card)
    vertices, faces, colours = SCENE.mesh(1)
    write_ply(twin / "meshes" / "visual.ply", 2 * vertices, faces, colours)
    with pytest.raises(InputError, match=r"Gaussians are 0\.1 m.*0\.2 m long"):
        load_twin(twin)


def test_boxes_and_masks_are_checked(folder: Path, tmp_path: Path) -> None:
    """A box beside the picture and a mask of another size are refused."""
    assert box_mask((10, 20, 30, 40), 100, 100).sum() == 1200
    with pytest.raises(InputError, match="400 x 300"):
        track(folder / "slide.mp4", folder / "twin", camera=capture.LENS, box=(500, 20, 30, 40))
    cv2.imwrite(str(tmp_path / "mask.png"), np.zeros((30, 40), np.uint8))
    with pytest.raises(InputError, match="40 x 30 px"):
        track(
            folder / "slide.mp4", folder / "twin", camera=capture.LENS, mask=tmp_path / "mask.png"
        )


def test_a_mask_gives_poses_without_looks_or_table() -> None:
    """Of the poses whose outline fills the mask one is within 15 deg and 20 mm of the truth.

    The bare box looks the same after half a turn about each of its axes.
    """
    vertices, faces, _ = SCENE.mesh(1)
    T = CAMERA.T_camera_world @ capture.standing(SCENE, 0.05, -0.03, 2.2)
    free = WorldCamera(CAMERA.intrinsics, np.eye(4), CAMERA.width, CAMERA.height)
    mask = silhouette(vertices, faces, free, T)
    model = build_model(vertices, faces)
    halves = np.array([np.eye(3), *(rotation(axis, np.pi) for axis in "xyz")])
    near = [
        np.linalg.norm(pose[:3, 3] - T[:3, 3]) < 0.02
        and np.linalg.norm(rotation_log(T[:3, :3] @ halves @ pose[:3, :3].T), axis=1).min() < 0.26
        for pose in poses_in_mask(model, free, mask, box=False)
    ]
    assert any(near)


def test_wires_are_the_edges_that_are_seen() -> None:
    """A box has 12 edges, of which 9 are seen from above a corner, diagonals of faces never."""
    vertices, faces, _ = SCENE.mesh(1)
    wires = Wires(vertices, faces)
    assert len(wires.ends) == 12
    assert len(wires.visible(CAMERA, truth(1)[0])) == 9


def test_image_covariance_is_the_projections() -> None:
    """The ellipse's covariance equals that by finite differences of the projection."""
    random = np.random.default_rng(0)
    root = random.normal(0, 0.003, (6, 6))
    T, h = truth(1)[0], 1e-6
    origin = np.zeros((1, 3))
    columns = [
        (
            project(CAMERA, perturb(T, h * e), origin)[0][0]
            - project(CAMERA, perturb(T, -h * e), origin)[0][0]
        )
        / (2 * h)
        for e in np.eye(6)
    ]
    J = np.array(columns).T
    expected = J @ root @ root.T @ J.T
    assert np.allclose(image_covariance(CAMERA, T, root @ root.T), expected, rtol=1e-6)


def test_poses_are_written_whole_and_alike(tmp_path: Path) -> None:
    """CSV holds pose and covariance to nine digits; equal tracks give equal bytes."""
    n = 3
    root = np.random.default_rng(1).normal(0, 0.01, (n, 6, 6))
    spread = root @ np.swapaxes(root, 1, 2)
    poses = PoseTrack(
        np.arange(n) / 30,
        truth(n),
        spread,
        np.array([0, 1, 2], np.int8),
        np.zeros((n, 6)),
        spread,
    )
    lines = [line.split(",") for line in csv_text(poses).splitlines()]
    table = dict(zip(lines[0], zip(*lines[1:], strict=True), strict=True))
    assert table["status"] == ("ok", "uncertain", "lost")
    assert np.allclose(np.array(table["x"], float), poses.pose[:, 0, 3], rtol=1e-8)
    assert np.allclose(np.array(table["cov_y_rz"], float), spread[:, 1, 5], rtol=1e-8)
    for name in ("a.npz", "b.npz"):
        write_poses(tmp_path / name, poses)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    with pytest.raises(InputError, match=r"\.csv or \.npz"):
        write_poses(tmp_path / "a.txt", poses)


def test_no_window_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without OpenCV's windows `live` says so before anything is tracked."""

    def none(*_: object) -> None:
        raise cv2.error("The function is not implemented")

    monkeypatch.setattr(cv2, "namedWindow", none)
    with pytest.raises(MachineError, match=r"--preview out\.mp4"):
        track(folder / "slide.mp4", folder / "twin", camera=capture.LENS, live=True)


def test_import_loads_nothing() -> None:
    """`import twinloop` is for every command and stage: no library comes with it."""
    code = "import twinloop, sys; assert 'numpy' not in sys.modules; print(dir(twinloop))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "'track'" in done.stdout
    with pytest.raises(AttributeError, match="tarck"):
        twinloop.tarck  # noqa: B018
