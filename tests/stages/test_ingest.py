"""The ingest stage on a small rendered scan with exact truth, and on wrong captures."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import yaml

from stages.harness import Inputs
from stages.ingest import report
from stages.ingest.params import Params
from stages.ingest.run import run
from stages.ingest.schema import WRITES
from tests.capture.scene import Scene, grid_board, write_scan, write_video
from twinloop.artifacts.store import open_artifact, write_artifact
from twinloop.capture.projection import Camera, undistorter
from twinloop.capture.scan import Verdict
from twinloop.card import ObjectCard
from twinloop.errors import InputError
from twinloop.geometry import quaternion, se3

FRAMES = 16
PARAMS = Params(
    frames=12, candidates=16, max_side=120, small_side=160, voxels=60_000, mask_rounds=2
)
T_WORLD_BOARD = {"position": [0.2, -0.1, 0.05], "quaternion_wxyz": [0.8, 0.0, 0.0, 0.6]}


@pytest.fixture(scope="module")
def scene() -> Scene:
    """A box in the empty middle of a board, at 320 x 240."""
    return Scene(board=grid_board(hole=0.06))


@pytest.fixture(scope="module")
def root(scene: Scene, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with one scanned object."""
    root = tmp_path_factory.mktemp("project")
    folder = root / "datasets" / "box" / "raw" / "scan"
    poses = scene.orbit(FRAMES)
    gains = 1 + 0.1 * np.sin(np.arange(FRAMES))
    write_scan(folder, scene, poses, gains=gains)
    content = yaml.safe_load((folder / "board.yaml").read_text())
    content["T_world_board"] = T_WORLD_BOARD
    (folder / "board.yaml").write_text(yaml.safe_dump(content))
    return root


def inputs(root: Path) -> Inputs:
    """What the harness would hand to the stage."""
    return Inputs("box", root, ObjectCard(name="box", license="MIT"), {}, "cpu", 0)


@pytest.fixture(scope="module")
def tree(root: Path) -> xr.DataTree:
    """The artifact, written and read back."""
    path = root / "datasets" / "box" / "ingest.zarr"
    write_artifact(path, WRITES, run(inputs(root), PARAMS))
    return open_artifact(path, WRITES, values=True)


def test_lens_and_poses_match_the_truth(tree: xr.DataTree, scene: Scene) -> None:
    """Focal length within 0.7 %, cameras within 2 mm and 0.4 deg, in the world of board.yaml."""
    frames = tree.to_dataset(inherit=False)
    lens = frames["lens"].values
    assert abs(lens[0] / scene.camera.intrinsics[0] - 1) < 0.007
    T_world_board = se3.from_position_quaternion(*T_WORLD_BOARD.values())
    expected = T_world_board @ scene.orbit(FRAMES)[frames["source"].values]
    position, wxyz = se3.to_position_quaternion(expected)
    off = np.linalg.norm(frames["position_world_camera"].values - position, axis=1)
    assert off.max() < 2e-3
    turn = quaternion.angle(frames["quaternion_world_camera"].values, wxyz)
    assert np.degrees(turn).max() < 0.4
    assert frames["reprojection_rms"].values.max() < 0.2


def test_masks_match_the_truth(tree: xr.DataTree, scene: Scene) -> None:
    """IoU with the true silhouette at least 0.94 at the mean, in the stored windows."""
    frames = tree.to_dataset(inherit=False)
    overlaps = []
    lens = Camera(frames["lens"].values[:4], frames["lens"].values[4:], 320, 240)
    for i in range(frames.sizes["frame"]):
        _, coverage = scene.render(scene.orbit(FRAMES)[int(frames["source"][i])])
        k = frames["intrinsics"].values[i]
        whole = undistorter(lens, 1.0)
        scale = k[0] / whole.intrinsics[0]
        pinhole = undistorter(lens, float(scale))
        x, y = np.rint(pinhole.intrinsics[2:] - k[2:]).astype(int)
        h, w = frames["mask"].shape[1:]
        truth = pinhole.image((coverage * 255).astype(np.uint8), (int(x), int(y), w, h)) > 127
        mask = frames["mask"].values[i] > 0
        overlaps.append((mask & truth).sum() / (mask | truth).sum())
    assert np.mean(overlaps) > 0.94
    assert frames["mask_support"].values.min() > 0.5


def test_exposure_is_evened_out(tree: xr.DataTree) -> None:
    """Brightness factors undo the drift within 2 %."""
    frames = tree.to_dataset(inherit=False)
    drift = 1 + 0.1 * np.sin(frames["source"].values)
    product = frames["gain"].values * drift
    assert np.abs(product / product.mean() - 1).max() < 0.02


def test_every_eighth_frame_is_held_out(tree: xr.DataTree) -> None:
    """One of eight is held out, and times increase."""
    held = tree["held_out"].values
    assert held.tolist() == [i % 8 == 4 for i in range(len(held))]
    assert 6 <= len(held) <= PARAMS.frames


def test_report_has_its_figures(tree: xr.DataTree, root: Path) -> None:
    """Metrics add up and each picture is drawn."""
    figures = report.plots(tree, inputs(root), PARAMS)
    assert sorted(figures) == ["calibration", "contact_sheet", "masks", "masks_film"]
    metrics = report.metrics(tree, inputs(root), PARAMS)
    assert metrics["frames_in_video"] == FRAMES == sum(metrics["frames_by_verdict"].values())
    assert metrics["frames_kept"] == tree.sizes["frame"]
    assert metrics["azimuth_sectors_covered_of_12"] >= 9


def copy_of(root: Path, tmp_path: Path) -> Path:
    """A second project with the same capture."""
    shutil.copytree(root / "datasets" / "box" / "raw", tmp_path / "datasets" / "box" / "raw")
    return tmp_path / "datasets" / "box" / "raw" / "scan"


def test_wrong_tag_sizes_are_found(root: Path, tmp_path: Path) -> None:
    """Centres that do not belong to the sizes: the fit fails, the message points to board.yaml."""
    scan = copy_of(root, tmp_path)
    content = yaml.safe_load((scan / "board.yaml").read_text())
    for tag in content["tags"]:
        tag["size"] *= 0.8
    (scan / "board.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(InputError, match=r"sizes and centres of the tags in board\.yaml"):
        run(inputs(tmp_path), PARAMS)


def test_other_board_is_found(root: Path, tmp_path: Path) -> None:
    """A board.yaml of other tag numbers: the message says that foreign tags were seen."""
    scan = copy_of(root, tmp_path)
    content = yaml.safe_load((scan / "board.yaml").read_text())
    for tag in content["tags"]:
        tag["id"] += 300
    (scan / "board.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(InputError, match="tags with other numbers were seen"):
        run(inputs(tmp_path), PARAMS)


def test_video_without_board(root: Path, tmp_path: Path) -> None:
    """A video that shows no tag says how many frames show how many."""
    scan = copy_of(root, tmp_path)
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 255, (120, 160, 3)).astype(np.uint8) for _ in range(8)]
    write_video(scan / "video.mp4", images)
    with pytest.raises(InputError, match=r"0 of 8 frames show at least 2 tags"):
        run(inputs(tmp_path), PARAMS)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("video.mp4", r"neither a video, nor photos .* It holds: board\.yaml"),
        ("board.yaml", r"no .*board\.yaml of a tag board in view, and scan\.yaml states no scale"),
    ],
)
def test_missing_file_is_named(root: Path, tmp_path: Path, name: str, said: str) -> None:
    """Without video the message says what there is; without board, what else gives metres."""
    (copy_of(root, tmp_path) / name).unlink()
    with pytest.raises(InputError, match=said):
        run(inputs(tmp_path), PARAMS)


def test_video_of_few_frames(root: Path, tmp_path: Path, scene: Scene) -> None:
    """Four frames are too few, and the message says so."""
    scan = copy_of(root, tmp_path)
    images = [scene.render(T, samples=1)[0] for T in scene.orbit(4)]
    write_video(scan / "video.mp4", images)
    with pytest.raises(InputError, match="at least 6 are needed"):
        run(inputs(tmp_path), PARAMS)


def test_verdicts_cover_all_frames(tree: xr.DataTree) -> None:
    """Each kept frame is marked kept in the survey, and each has a thumbnail."""
    verdict = tree["survey"]["verdict"].values
    assert np.flatnonzero(verdict == Verdict.KEPT).tolist() == tree["source"].values.tolist()
    shown = set(tree["survey"]["thumbnail_source"].values.tolist())
    assert set(tree["source"].values.tolist()) <= shown
