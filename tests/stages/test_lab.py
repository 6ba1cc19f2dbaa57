"""Stage `lab` on the tiny object: what it writes is what a real capture has, and nothing more."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import trimesh
import yaml

from stages.harness import Inputs
from stages.lab import report, run
from stages.lab.params import Params
from stages.lab.schema import FILES, TRUTH_SCHEMA
from twinloop.artifacts.store import open_artifact
from twinloop.capture.board import detect_tags, load_board
from twinloop.capture.demonstration import read_demonstration
from twinloop.capture.push_session import load_session
from twinloop.capture.robot_log import read_robot_log
from twinloop.capture.video import frame_times, read_video
from twinloop.card import read_card
from twinloop.hand.model import RobotModel
from twinloop.lab.objects import build_object
from twinloop.lab.reenact import load_truth
from twinloop.lab.spec import load_lab_spec, parse_lab_spec

TINY = Path(__file__).parents[1] / "tiny"


def make(root: Path) -> tuple[Path, Inputs, Params]:
    """Run the stage for the tiny object in a fresh project; returns its output folder."""
    folder = root / "datasets" / "tiny"
    folder.mkdir(parents=True)
    for name in ("object.yaml", "lab.yaml"):
        (folder / name).write_text((TINY / name).read_text())
    card = read_card(folder / "object.yaml")
    params = Params.model_validate(card.overrides["lab"])
    inputs = Inputs("tiny", root, card, {}, "cpu", params.seed)
    out = root / "out"
    out.mkdir()
    run.run(inputs, params, out)
    return out, inputs, params


def contents(out: Path) -> dict[str, bytes]:
    """All files below ``out`` with their bytes."""
    return {
        str(path.relative_to(out)): path.read_bytes()
        for path in sorted(out.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Inputs, Params]:
    """One run of the stage."""
    return make(tmp_path_factory.mktemp("lab"))


def test_all_declared_folders_are_written(lab: tuple[Path, Inputs, Params]) -> None:
    """The harness moves exactly these."""
    out = lab[0]
    for relative in FILES:
        assert any((out / relative).iterdir())


def test_hidden_numbers_stay_out_of_the_raw_captures(lab: tuple[Path, Inputs, Params]) -> None:
    """No YAML, CSV or array of the raw files names or holds mass, friction or the clock offset."""
    out = lab[0]
    spec = load_lab_spec(TINY / "lab.yaml")
    for path in (out / "raw").rglob("*.yaml"):
        text = path.read_text()
        assert not any(word in text for word in ("mass", "friction", "clock", "com:"))
        assert str(spec.mass) not in text
    assert not list((out / "raw").rglob("*.zarr"))
    assert {p.name for p in (out / "raw/push/push_000").iterdir()} == {
        "video.mp4",
        "robot.mcap",
        "robot.csv",
    }


def test_pushes_read_back_on_their_own_clocks(lab: tuple[Path, Inputs, Params]) -> None:
    """Session, log and video open; stamps increase; the truth joins both clocks."""
    out = lab[0]
    session = load_session(out / "raw" / "push")
    tree = open_artifact(out / "truth" / "lab" / "truth.zarr", TRUTH_SCHEMA, values=True)
    robot = RobotModel.load(session.robot.robot)
    assert [push.held_out for push in session.pushes] == [False, True]
    for push in session.pushes:
        log = read_robot_log(session.log(push.name))
        assert tuple(log.joints) == robot.joint_names
        assert np.median(np.diff(log.time)) == pytest.approx(1 / 300, rel=1e-3)
        truth = tree[push.name].to_dataset()
        stamps = frame_times(session.video(push.name))
        np.testing.assert_allclose(stamps, truth["time"].values, atol=2e-5)
        np.testing.assert_allclose(log.time, truth["robot_time"].values, atol=1e-8)
        moved = np.ptp(truth["position_world_labobject"].values, axis=0)
        assert np.linalg.norm(moved) > 0.004


def test_tags_are_seen_in_all_three_videos(lab: tuple[Path, Inputs, Params]) -> None:
    """Even the tiny images show enough tags for a pose."""
    raw = lab[0] / "raw"
    for board, video in (
        ("scan", "scan/video.mp4"),
        ("push", "push/push_000/video.mp4"),
        ("demo", "demo/video.mp4"),
    ):
        layout = load_board(raw / board / "board.yaml")
        frame = next(iter(read_video(raw / video)))
        grey = frame.image.mean(axis=2).astype(np.uint8)
        assert len(detect_tags(grey, layout).ids) >= 4


def test_demonstration_reads_back(lab: tuple[Path, Inputs, Params]) -> None:
    """Hand and object motion open; in every frame the object is as high as the lift has it."""
    out, _inputs, params = lab
    demo = read_demonstration(out / "raw" / "demo")
    assert demo.keypoints.shape[1:] == (21, 3)
    # The motion's own translation holds the lever of its rotation noise: look at the object.
    truth = open_artifact(out / "truth" / "lab" / "truth.zarr", TRUTH_SCHEMA)
    place = np.append(truth["position_world_labobject"].values, 1.0)
    height = (demo.motion @ place)[:, 2]
    # The lift takes 0.7 s from 1.5 s on, at pace 1, smoothly; a slow camera's last frame may come
    # before its end. Every frame must lie on that curve, within the tracker's noise (0.5 mm).
    share = np.clip((demo.motion_time * params.demo.pace - 1.5) / 0.7, 0.0, 1.0)
    expected = params.demo.height * share**2 * (3.0 - 2.0 * share)
    np.testing.assert_allclose(height, expected, atol=2.5e-3)
    assert expected[-1] > 0.9 * params.demo.height


def test_report_has_numbers_and_a_picture(lab: tuple[Path, Inputs, Params], tmp_path: Path) -> None:
    """Counts of what was captured, and the forces over time."""
    out, inputs, params = lab
    metrics = report.metrics(out, inputs, params)
    assert metrics["pushes"] == 2
    assert metrics["raw_files"] == 4 + 4 + 2 + 2 * 3 + 1
    assert "mass" not in metrics
    for name, figure in report.plots(out, inputs, params).items():
        figure.savefig(tmp_path / name)
        assert (tmp_path / name).stat().st_size > 5000


def test_a_fresh_process_writes_the_same_bytes(
    lab: tuple[Path, Inputs, Params], tmp_path: Path
) -> None:
    """Videos, logs and truth, byte by byte."""
    code = (
        "from pathlib import Path; from tests.stages.test_lab import make; "
        f"make(Path({str(tmp_path)!r}))"
    )
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root, timeout=300)
    first, second = contents(lab[0]), contents(tmp_path / "out")
    assert first.keys() == second.keys()
    assert [name for name in first if first[name] != second[name]] == []


def test_another_seed_gives_another_capture(lab: tuple[Path, Inputs, Params]) -> None:
    """The recipe's copy names the seed; the board pose depends on it."""
    world = yaml.safe_load((lab[0] / "truth/lab/world.yaml").read_text())
    assert world["seed"] == load_lab_spec(TINY / "lab.yaml").seed


def test_the_truth_folder_alone_rebuilds_an_object_from_a_mesh(tmp_path: Path) -> None:
    """The mesh file travels with the truth: the recipe's own folder may be gone."""
    folder, truth = tmp_path / "datasets", tmp_path / "truth"
    folder.mkdir()
    trimesh.creation.box((0.05, 0.04, 0.06)).export(folder / "box.obj")
    digest = hashlib.sha256((folder / "box.obj").read_bytes()).hexdigest()
    spec = parse_lab_spec({"shape": "mesh", "mesh": "box.obj", "sha256": digest, "mass": 0.1})
    item = build_object(spec, "box", folder)
    run.write_truth(truth, spec, folder, run.object_truth(item, np.eye(4)), "box")
    (folder / "box.obj").unlink()
    again = load_truth(truth, "box").object
    np.testing.assert_array_equal(again.vertices, item.vertices)
    np.testing.assert_array_equal(again.inertia, item.inertia)
