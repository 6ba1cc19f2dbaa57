"""The ingest stage on what people have instead of a video on a board: metres, up and masks."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
import xarray as xr
import yaml
from PIL import Image

from stages.harness import Inputs
from stages.ingest.params import Params
from stages.ingest.run import run
from tests.capture.scene import Scene, grid_board
from twinloop.capture.similarity import align
from twinloop.capture.survey import Verdict
from twinloop.card import ObjectCard
from twinloop.errors import InputError
from twinloop.geometry import quaternion, se3

FRAMES = 16
PARAMS = Params(
    frames=12, candidates=16, max_side=120, small_side=160, voxels=60_000, mask_rounds=2
)
SFM = PARAMS.model_copy(update={"sfm_side": 320, "sfm_features": 500, "min_registered": 0.5})
SCALE = 2.7
"""Model units per metre of the exports."""
ASIDE = se3.exp(np.array([0.0, 0.0, 0.0, 1.2, 0.4, 0.1]))
"""Turn of an object's own frame."""
T_MODEL_BOARD = se3.exp(np.array([0.4, -1.0, 2.0, 0.5, -0.8, 0.3]))


@pytest.fixture(scope="module")
def scene() -> Scene:
    """A box in the empty middle of a board, at 320 x 240."""
    return Scene(board=grid_board(hole=0.06))


@pytest.fixture(scope="module")
def photos(scene: Scene, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos of it, and the true masks."""
    folder = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    for name in ("images", "masks"):
        (folder / name).mkdir()
    for i, pose in enumerate(scene.orbit(FRAMES)):
        image, mask = scene.render(pose)
        noisy = (image + rng.normal(0, 1, image.shape)).clip(0, 255).astype(np.uint8)
        Image.fromarray(noisy).save(folder / "images" / f"p{i:02d}.png")
        Image.fromarray((mask > 0.5).astype(np.uint8) * 255).save(
            folder / "masks" / f"p{i:02d}.png"
        )
    return folder


def capture(photos: Path, tmp_path: Path, *parts: str) -> tuple[Path, Inputs]:
    """A project with a copy of the photos; its scan folder, and what the stage is handed."""
    scan = tmp_path / "datasets" / "box" / "raw" / "scan"
    scan.mkdir(parents=True)
    for part in parts:
        shutil.copytree(photos / part, scan / part)
    return scan, Inputs("box", tmp_path, ObjectCard(name="box", license="MIT"), {}, "cpu", 0)


def write_board(scan: Path, scene: Scene) -> None:
    """Describe the print."""
    (scan / "board.yaml").write_text(yaml.safe_dump(scene.board.model_dump(mode="json")))


def stated_length(scene: Scene) -> dict[str, object]:
    """The longest length between tag corners, clicked in three pictures to 0.3 px."""
    corners = np.array([corner[0] for corner in scene.board.corners().values()])
    gaps = np.linalg.norm(corners[:, None] - corners[None], axis=2)
    rng = np.random.default_rng(1)
    poses = scene.orbit(FRAMES)
    ends = []
    for end in np.unravel_index(gaps.argmax(), gaps.shape):
        clicks = []
        for picture in range(FRAMES):
            seen = se3.apply(se3.inverse(poses[picture]), corners[end][None])
            u, v = scene.camera.project(seen)[0] + rng.normal(0, 0.3, 2)
            if 5 < u < 315 and 5 < v < 235:
                clicks.append([picture, float(u), float(v)])
        ends.append(clicks[::2])
    return {"metres": float(gaps.max()), "first": ends[0], "second": ends[1]}


def model_poses(scene: Scene) -> np.ndarray:
    """Camera poses in a tool's own world: turned, moved, of another scale."""
    poses = scene.orbit(FRAMES)
    poses[:, :3, 3] *= SCALE
    return np.asarray(T_MODEL_BOARD @ poses)


def model_points(scene: Scene) -> np.ndarray:
    """Points on the print and on the box, in the tool's world."""
    rng = np.random.default_rng(2)
    low, high = scene.board.bounds()
    flat = np.column_stack([rng.uniform(low, high, (400, 2)), np.zeros(400)])
    size = np.array(scene.size)
    faces = rng.uniform(-0.5, 0.5, (300, 3))
    axis = rng.integers(0, 3, 300)
    faces[np.arange(300), axis] = np.sign(faces[np.arange(300), axis]) / 2
    box = faces * size
    c, s = np.cos(scene.yaw), np.sin(scene.yaw)
    box = box @ np.array([[c, s, 0], [-s, c, 0], [0, 0, 1]]) + [0, 0, size[2] / 2]
    points = np.concatenate([flat, box]) + rng.normal(0, 2e-4, (700, 3))
    return se3.apply(T_MODEL_BOARD, SCALE * points)


def write_colmap(scan: Path, scene: Scene) -> None:
    """A text model of COLMAP: world to camera, pixels from the corner."""
    sparse = scan / "sparse" / "0"
    sparse.mkdir(parents=True)
    fx, fy, cx, cy = scene.camera.intrinsics
    k1, k2, p1, p2, _ = scene.camera.distortion
    lens = f"{fx} {fy} {cx + 0.5} {cy + 0.5} {k1} {k2} {p1} {p2}"
    (sparse / "cameras.txt").write_text(f"1 OPENCV 320 240 {lens}\n")
    poses, points = se3.inverse(model_poses(scene)), model_points(scene)
    lines: list[str] = []
    tracks: list[list[str]] = [[] for _ in points]
    for i, T in enumerate(poses, start=1):
        q = quaternion.from_matrix(T[:3, :3])
        pixels = scene.camera.project(se3.apply(T, points))
        seen = [n for n, (u, v) in enumerate(pixels) if 0 < u < 319 and 0 < v < 239]
        for place, n in enumerate(seen):
            tracks[n].append(f"{i} {place}")
        pose = " ".join(str(v) for v in (*q, *T[:3, 3]))
        lines.append(f"{i} {pose} 1 p{i - 1:02d}.png")
        lines.append(" ".join(f"{pixels[n, 0] + 0.5} {pixels[n, 1] + 0.5} {n + 1}" for n in seen))
    (sparse / "images.txt").write_text("\n".join(lines) + "\n")
    (sparse / "points3D.txt").write_text(
        "".join(
            f"{n + 1} {x} {y} {z} 0 0 0 0.5 {' '.join(track)}\n"
            for n, ((x, y, z), track) in enumerate(zip(points, tracks, strict=True))
        )
    )


def write_transforms(scan: Path, scene: Scene) -> None:
    """A transforms.json: camera to world, OpenGL axes, pixels from the corner, one missing."""
    fx, fy, cx, cy = scene.camera.intrinsics
    k1, k2, p1, p2, k3 = scene.camera.distortion
    poses = model_poses(scene)
    poses[:, :, 1:3] *= -1
    frames = [
        {"file_path": f"images/p{i:02d}.png", "transform_matrix": pose.tolist()}
        for i, pose in enumerate(poses)
    ]
    frames.append({**frames[0], "file_path": "images/p99.png"})
    lens = {"fl_x": fx, "fl_y": fy, "cx": cx + 0.5, "cy": cy + 0.5, "w": 320, "h": 240}
    bend = {"k1": k1, "k2": k2, "p1": p1, "p2": p2, "k3": k3}
    (scan / "transforms.json").write_text(json.dumps({**lens, **bend, "frames": frames}))


def check(frames: xr.Dataset, scene: Scene, worst: float, scale: float) -> None:
    """Camera places within ``worst`` m of the truth, scale within a share, up and table right."""
    true = scene.orbit(FRAMES)[frames["source"].values]
    fit = align(frames["position_world_camera"].values, true[:, :3, 3])
    assert abs(fit.scale - 1) < scale
    assert fit.rms < worst
    # Which way x points is free, up and the table's height are not.
    assert np.degrees(np.arccos(np.clip(fit.T[2, 2], -1, 1))) < 0.5
    assert abs(fit.T[2, 3]) < 1e-3
    pose = se3.from_position_quaternion(
        frames["position_world_camera"].values, frames["quaternion_world_camera"].values
    )
    turn = se3.inverse(fit.T @ pose) @ true
    angle = np.arccos(np.clip((np.trace(turn[:, :3, :3], axis1=1, axis2=2) - 1) / 2, -1, 1))
    assert np.degrees(angle).max() < 0.5


def overlap(frames: xr.Dataset, scene: Scene) -> float:
    """Mean IoU of the stored masks with the truth, rendered through each window's pinhole."""
    values = []
    height, width = frames["mask"].shape[1:]
    for i, pose in enumerate(scene.orbit(FRAMES)[frames["source"].values]):
        lens = type(scene.camera)(frames["intrinsics"].values[i], np.zeros(5), width, height)
        truth = scene.render(pose, camera=lens)[1] > 0.5
        mask = frames["mask"].values[i] > 0
        values.append((mask & truth).sum() / (mask | truth).sum())
    return float(np.mean(values))


def test_photos_on_a_board(photos: Path, scene: Scene, tmp_path: Path) -> None:
    """Photos are as good as a video; one of another size is left out and says why."""
    scan, inputs = capture(photos, tmp_path, "images")
    write_board(scan, scene)
    with Image.open(scan / "images" / "p03.png") as picture:
        picture.resize((240, 320)).save(scan / "images" / "p03.png")
    groups = run(inputs, PARAMS)
    check(groups["/"], scene, 1e-3, 0.002)
    assert groups["/survey"]["verdict"].values[3] == Verdict.OTHER_SIZE
    assert groups["/"].attrs["scale_source"] == "board"
    assert overlap(groups["/"], scene) > 0.94


@pytest.mark.parametrize("export", ["colmap", "nerfstudio"])
def test_export_with_a_stated_length(
    photos: Path, scene: Scene, tmp_path: Path, export: str
) -> None:
    """Poses of another tool become metric by one length; nerfstudio's have masks, not points."""
    scan, inputs = capture(photos, tmp_path, "images", "masks")
    settings: dict[str, object] = {"scale": {"distances": [stated_length(scene)]}}
    if export == "colmap":
        write_colmap(scan, scene)
    else:
        write_transforms(scan, scene)
        write_board(scan, scene)
        settings["masks"] = "masks"
    (scan / "scan.yaml").write_text(yaml.safe_dump(settings))
    frames = run(inputs, PARAMS)["/"]
    check(frames, scene, 5e-4, 0.005)
    assert export in frames.attrs["poses"]
    assert 0 < frames.attrs["scale_std"] < 0.01
    assert overlap(frames, scene) > 0.93
    if export == "nerfstudio":
        assert any("16 of" in note or "p99" in note for note in frames.attrs["notes"])
        assert frames.attrs["mask_source"] == "mask files"


def test_sources_of_scale_must_agree(photos: Path, scene: Scene, tmp_path: Path) -> None:
    """A length in the wrong unit contradicts the board; the message has both numbers."""
    scan, inputs = capture(photos, tmp_path, "images")
    write_transforms(scan, scene)
    write_board(scan, scene)
    length = stated_length(scene)
    length["metres"] = float(str(length["metres"])) * 10
    (scan / "scan.yaml").write_text(yaml.safe_dump({"scale": {"distances": [length]}}))
    with pytest.raises(InputError, match=r"board says .* distance .* factor"):
        run(inputs, PARAMS)


def test_a_click_in_a_missing_picture_is_named(photos: Path, scene: Scene, tmp_path: Path) -> None:
    """The picture's number and usable ones are in the message."""
    scan, inputs = capture(photos, tmp_path, "images")
    write_colmap(scan, scene)
    length = {"metres": 0.1, "first": [[0, 5, 5], [99, 5, 5]], "second": [[0, 9, 9], [1, 9, 9]]}
    (scan / "scan.yaml").write_text(yaml.safe_dump({"scale": {"distances": [length]}}))
    with pytest.raises(InputError, match=r"picture 99; there are 16"):
        run(inputs, PARAMS)


@pytest.mark.parametrize("masked", [False, True])
def test_export_without_points(photos: Path, scene: Scene, tmp_path: Path, *, masked: bool) -> None:
    """Poses alone and one length: the table is found by matching the pictures."""
    scan, inputs = capture(photos, tmp_path, "images", "masks")
    write_transforms(scan, scene)
    settings: dict[str, object] = {"scale": {"distances": [stated_length(scene)]}}
    if masked:
        settings["masks"] = "masks"
    (scan / "scan.yaml").write_text(yaml.safe_dump(settings))
    frames = run(inputs, PARAMS)["/"]
    check(frames, scene, 5e-4, 0.005)
    assert frames.attrs["scale_source"] == "distance"


def test_depth_is_not_compared_with_itself(photos: Path, scene: Scene, tmp_path: Path) -> None:
    """Depth pictures give metres to poses of another scale."""
    scan, inputs = capture(photos, tmp_path, "images", "masks")
    write_transforms(scan, scene)
    (scan / "depth").mkdir()
    v, u = np.indices((240, 320))
    xy = scene.camera.normalize(np.column_stack([u.ravel(), v.ravel()]).astype(np.float64))
    rays = np.column_stack([xy, np.ones(len(xy))])
    table = json.loads((scan / "transforms.json").read_text())
    for i, pose in enumerate(scene.orbit(FRAMES)):
        depth = (-pose[2, 3] / (rays @ pose[2, :3])).reshape(240, 320)
        with Image.open(scan / "masks" / f"p{i:02d}.png") as mask:
            depth[np.array(mask) > 0] = 0
        Image.fromarray(np.rint(1e3 * depth).astype(np.uint16)).save(
            scan / "depth" / f"p{i:02d}.png"
        )
        table["frames"][i]["depth_file_path"] = f"depth/p{i:02d}.png"
    (scan / "transforms.json").write_text(json.dumps(table))
    (scan / "scan.yaml").write_text("scale: {depth: true}\nmasks: masks\n")
    frames = run(inputs, PARAMS)["/"]
    check(frames, scene, 5e-4, 0.01)
    assert frames.attrs["scale_source"] == "depth"


def test_a_length_is_compared_with_the_board_too(
    photos: Path, scene: Scene, tmp_path: Path
) -> None:
    """Where the board gives the poses, what is stated besides counts: refused, or more certain."""
    scan, inputs = capture(photos, tmp_path, "images")
    write_board(scan, scene)
    length = stated_length(scene)
    written = {"board_size_std": 0.02, "scale": {"distances": [length]}}
    (scan / "scan.yaml").write_text(yaml.safe_dump(written))
    frames = run(inputs, PARAMS)["/"]
    assert frames.attrs["scale_source"] == "distance"
    assert frames.attrs["scale_std"] < 0.01
    # The board stays the world.
    true = scene.orbit(FRAMES)[frames["source"].values]
    assert frames["position_world_camera"].values == pytest.approx(true[:, :3, 3], abs=2e-3)
    length["metres"] = float(str(length["metres"])) * 1.2
    (scan / "scan.yaml").write_text(yaml.safe_dump(written))
    with pytest.raises(InputError, match=r"board says .* distance .* factor"):
        run(inputs, PARAMS)


def test_masks_of_some_pictures(photos: Path, scene: Scene, tmp_path: Path) -> None:
    """Only pictures that have a mask are looked at, so that few masks of many pictures do."""
    scan, inputs = capture(photos, tmp_path, "images", "masks")
    write_board(scan, scene)
    for i in range(0, FRAMES, 2):
        (scan / "masks" / f"p{i:02d}.png").unlink()
    (scan / "scan.yaml").write_text("masks: masks\n")
    groups = run(inputs, PARAMS.model_copy(update={"candidates": 8}))
    assert groups["/"]["source"].values.tolist() == list(range(1, FRAMES, 2))
    assert (groups["/survey"]["verdict"].values[::2] == Verdict.NO_MASK).all()


def write_bop(scan: Path, photos: Path, scene: Scene, moved: np.ndarray) -> None:
    """A BOP scene: the object's poses in mm, its frame in its middle and turned by ``moved``."""
    for name in ("rgb", "mask_visib"):
        (scan / name).mkdir()
    middle = se3.from_rotation_position(np.eye(3), [0.0, 0.0, scene.size[2] / 2])
    cameras, poses = {}, {}
    fx, fy, cx, cy = scene.camera.intrinsics
    K = np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]])
    for i, T in enumerate(scene.orbit(FRAMES)):
        for folder, kind, name in (
            ("rgb", "images", f"{i:06d}.png"),
            ("mask_visib", "masks", f"{i:06d}_000000.png"),
        ):
            pixels = cv2.imread(str(photos / kind / f"p{i:02d}.png"), cv2.IMREAD_UNCHANGED)
            straight = cv2.undistort(pixels, K, scene.camera.distortion)
            cv2.imwrite(str(scan / folder / name), straight)
        at = se3.inverse(T) @ middle @ moved
        cameras[str(i)] = {"cam_K": K.ravel().tolist(), "depth_scale": 1.0}
        pose = {"cam_R_m2c": at[:3, :3].ravel().tolist(), "cam_t_m2c": (1e3 * at[:3, 3]).tolist()}
        poses[str(i)] = [{"obj_id": 5, **pose}]
    (scan / "scene_camera.json").write_text(json.dumps(cameras))
    (scan / "scene_gt.json").write_text(json.dumps(poses))


def test_bop_object_frame_in_its_middle(photos: Path, scene: Scene, tmp_path: Path) -> None:
    """The object's origin is in its middle and its z points aside: it is cut out whole."""
    scan, inputs = capture(photos, tmp_path)
    write_bop(scan, photos, scene, ASIDE)
    shutil.rmtree(scan / "mask_visib")
    frames = run(inputs, PARAMS)["/"]
    check(frames, scene, 1e-3, 0.002)
    assert overlap(frames, scene) > 0.93


def test_bop_object_that_may_be_moved(photos: Path, scene: Scene, tmp_path: Path) -> None:
    """With masks no table is needed: nothing is cut off, and brightness is left alone."""
    scan, inputs = capture(photos, tmp_path)
    write_bop(scan, photos, scene, ASIDE)
    frames = run(inputs, PARAMS)["/"]
    assert any("no table is known" in note for note in frames.attrs["notes"])
    true = scene.orbit(FRAMES)[frames["source"].values]
    fit = align(frames["position_world_camera"].values, true[:, :3, 3])
    assert abs(fit.scale - 1) < 1e-6
    assert frames["mask_agreement"].values.min() > 0.9
    assert overlap(frames, scene) > 0.95
    assert (frames["gain"].values == 1).all()


def test_bop_without_table_and_masks(photos: Path, scene: Scene, tmp_path: Path) -> None:
    """Nothing but the object: the message says what would do."""
    scan, inputs = capture(photos, tmp_path)
    write_bop(scan, photos, scene, ASIDE)
    shutil.rmtree(scan / "mask_visib")
    grey = np.full((240, 320, 3), 120, np.uint8)
    for i, path in enumerate(sorted(scan.glob("rgb/*.png"))):
        cv2.circle(grey, (100 + i, 120), 20, (i, 90, 200), 3)
        cv2.imwrite(str(path), grey)
    with pytest.raises(InputError, match="with masks none is needed"):
        run(inputs, PARAMS.model_copy(update={"min_change": 0.0}))


def test_prompts_in_pictures_that_are_not_used(photos: Path, scene: Scene, tmp_path: Path) -> None:
    """A click in a picture of another size is not forgotten in silence."""
    scan, inputs = capture(photos, tmp_path, "images")
    write_board(scan, scene)
    with Image.open(scan / "images" / "p03.png") as picture:
        picture.resize((240, 320)).save(scan / "images" / "p03.png")
    (scan / "scan.yaml").write_text("prompts: {inside: [[3, 100, 100]]}\n")
    with pytest.raises(InputError, match=r"point at pictures \[3\], which cannot be used"):
        run(inputs, PARAMS)


def write_flange(scan: Path, scene: Scene) -> np.ndarray:
    """Poses of a flange that carries the camera; returns T_flange_camera."""
    base = se3.exp(np.array([0.4, 0.1, 0.02, 0.0, 0.0, 0.5]))
    mount = se3.exp(np.array([0.03, 0.0, 0.08, 0.2, 0.1, 1.5]))
    flange = base @ scene.orbit(FRAMES) @ se3.inverse(mount)
    position, wxyz = se3.to_position_quaternion(flange)
    rows = np.column_stack([np.arange(FRAMES), position, wxyz])
    lines = [",".join(map(str, row)) for row in rows.tolist()]
    (scan / "flange.csv").write_text("\n".join(["time,x,y,z,qw,qx,qy,qz", *lines]) + "\n")
    return mount


def test_a_robot_gives_the_metres(photos: Path, scene: Scene, tmp_path: Path) -> None:
    """Flange poses and a hand-eye calibration scale another tool's model.

    From one distance the calibration and the scale cannot both be found; that is said.
    """
    scan, inputs = capture(photos, tmp_path, "images", "masks")
    write_transforms(scan, scene)
    position, wxyz = se3.to_position_quaternion(write_flange(scan, scene))
    mount = {"position": position.tolist(), "quaternion_wxyz": wxyz.tolist()}
    scale: dict[str, object] = {"robot_poses": "flange.csv", "T_flange_camera": mount}
    (scan / "scan.yaml").write_text(yaml.safe_dump({"scale": scale, "masks": "masks"}))
    frames = run(inputs, PARAMS)["/"]
    check(frames, scene, 5e-4, 0.005)
    assert frames.attrs["scale_source"] == "robot poses"
    del scale["T_flange_camera"]
    (scan / "scan.yaml").write_text(yaml.safe_dump({"scale": scale, "masks": "masks"}))
    with pytest.raises(InputError, match="robot poses: unidentifiable"):
        run(inputs, PARAMS)


def test_alpha_channel_and_foreign_lens(photos: Path, scene: Scene, tmp_path: Path) -> None:
    """Masks from the pictures' own alpha channels, the lens from a file that OpenCV wrote."""
    scan, inputs = capture(photos, tmp_path, "images")
    write_board(scan, scene)
    for path in (scan / "images").iterdir():
        with Image.open(path) as picture, Image.open(photos / "masks" / path.name) as mask:
            picture.putalpha(mask.convert("L"))
            picture.save(path)
    writer = cv2.FileStorage(str(scan / "lens.yml"), cv2.FILE_STORAGE_WRITE)
    fx, fy, cx, cy = scene.camera.intrinsics
    writer.write("image_width", 320)
    writer.write("image_height", 240)
    writer.write("camera_matrix", np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]]))
    writer.write("distortion_coefficients", scene.camera.distortion[None])
    writer.release()
    (scan / "scan.yaml").write_text("alpha: true\ncamera: lens.yml\n")
    frames = run(inputs, PARAMS)["/"]
    check(frames, scene, 5e-4, 0.002)
    assert frames.attrs["mask_source"] == "alpha"
    assert frames["lens"].values[:4] == pytest.approx(scene.camera.intrinsics)
    assert overlap(frames, scene) > 0.95


def test_photos_without_board_and_poses(photos: Path, scene: Scene, tmp_path: Path) -> None:
    """Structure from motion with a known lens and one length: metres, up and the table."""
    pytest.importorskip("pycolmap", reason="the extra 'sfm' is not installed")
    scan, inputs = capture(photos, tmp_path, "images", "masks")
    lens = {
        "width": 320,
        "height": 240,
        "intrinsics": scene.camera.intrinsics.tolist(),
        "distortion": scene.camera.distortion.tolist(),
    }
    (scan / "lens.yaml").write_text(yaml.safe_dump(lens))
    scale = {"distances": [stated_length(scene)]}
    (scan / "scan.yaml").write_text(
        yaml.safe_dump({"camera": "lens.yaml", "scale": scale, "masks": "masks"})
    )
    frames = run(inputs, SFM)["/"]
    check(frames, scene, 1e-3, 4 * frames.attrs["scale_std"])
    assert frames.attrs["scale_std"] < 0.005
    assert frames.attrs["poses"] == "structure from motion"


def smear(scan: Path, scene: Scene, pictures: list[int]) -> None:
    """Draw a stroke over each tag."""
    for i in pictures:
        T = se3.inverse(scene.orbit(FRAMES)[i])
        path = str(scan / "images" / f"p{i:02d}.png")
        image = cv2.imread(path)
        for tag in scene.board.tags:
            half = tag.size / 2
            ends = np.array([[*tag.centre, 0.0]]) + [[-half, -half, 0], [half, half, 0]]
            a, b = np.rint(scene.camera.project(se3.apply(T, ends))).astype(int)
            cv2.line(image, a.tolist(), b.tolist(), (60, 60, 200), 3)
        cv2.imwrite(path, image)


def test_a_board_that_few_photos_show(photos: Path, scene: Scene, tmp_path: Path) -> None:
    """The tags are smeared in two of three photos: these are placed by what they share."""
    pytest.importorskip("pycolmap", reason="the extra 'sfm' is not installed")
    scan, inputs = capture(photos, tmp_path, "images", "masks")
    write_board(scan, scene)
    (scan / "scan.yaml").write_text("masks: masks\n")
    smear(scan, scene, [i for i in range(FRAMES) if i % 3])
    frames = run(inputs, SFM)["/"]
    assert frames.attrs["poses"] == "board and matched points"
    assert frames.attrs["scale_source"] == "board"
    true = scene.orbit(FRAMES)[frames["source"].values][:, :3, 3]
    off = np.linalg.norm(frames["position_world_camera"].values - true, axis=1)
    assert np.sqrt((off**2).mean()) < 3e-3
    assert (frames["source"].values % 3 != 0).sum() >= 4


def test_a_board_that_some_photos_show_without_pycolmap(
    photos: Path, scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seven of sixteen show the board: they do where the others cannot be placed."""
    scan, inputs = capture(photos, tmp_path, "images", "masks")
    write_board(scan, scene)
    (scan / "scan.yaml").write_text("masks: masks\n")
    shown = [0, 2, 5, 7, 10, 12, 15]
    smear(scan, scene, [i for i in range(FRAMES) if i not in shown])
    monkeypatch.setitem(sys.modules, "pycolmap", None)
    frames = run(inputs, SFM)["/"]
    assert frames.attrs["poses"] == "board"
    assert frames["source"].values.tolist() == shown
    assert any("7 of 16 candidates" in note for note in frames.attrs["notes"])
    check(frames, scene, 2e-3, 0.005)


def test_bad_ones_among_given_masks_are_dropped(photos: Path, scene: Scene, tmp_path: Path) -> None:
    """A mask that lost half of the object goes; the good ones are not blamed for it."""
    scan, inputs = capture(photos, tmp_path, "images", "masks")
    write_board(scan, scene)
    (scan / "scan.yaml").write_text(yaml.safe_dump({"masks": "masks"}))
    bad = [5, 12]
    for i in bad:
        path = scan / "masks" / f"p{i:02d}.png"
        with Image.open(path) as picture:
            mask = np.array(picture)
        rows = np.flatnonzero(mask.any(axis=1))
        mask[rows[len(rows) // 2] :] = 0
        Image.fromarray(mask).save(path)
    params = PARAMS.model_copy(update={"frames": FRAMES})
    groups = run(inputs, params)
    verdict = groups["/survey"]["verdict"].values
    assert np.flatnonzero(verdict == Verdict.BAD_MASK).tolist() == bad
    assert groups["/"].sizes["frame"] == FRAMES - 2
    assert groups["/"]["mask_quality"].values.min() > 0.9
