"""Stage `push` on made-up logs with known force and clock."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import yaml

from stages.push import report, run
from stages.push.params import Params
from stages.push.schema import WRITES
from tests.tracking.box_capture import stage_inputs
from tests.tracking.push_log import MadeUpPush, made_up_push, object_poses, write_log
from twinloop.artifacts.store import open_artifact, write_artifact
from twinloop.errors import InputError
from twinloop.geometry import se3
from twinloop.hand.model import RobotModel

OFFSET = 0.043


def session(root: Path, robot: RobotModel, pushes: list[MadeUpPush]) -> dict[str, xr.DataTree]:
    """Write ``raw/push`` with logs, and give the track that belongs to it."""
    folder = root / "datasets/box/raw/push"
    folder.mkdir(parents=True)
    camera = {"width": 64, "height": 48, "intrinsics": [60.0, 60.0, 31.5, 23.5]}
    board = {"tags": [{"id": 0, "size": 0.05, "centre": [0, 0]}]}
    machine = {"robot": "twinhand", "tip": "index_tip", "log_rate": 300}
    names = [f"push_{i:03d}" for i in range(len(pushes))]
    listed = {"pushes": [{"name": n, "action": "slide"} for n in names]}
    files = {"camera": camera, "board": board, "robot": machine, "pushes": listed}
    for name, content in files.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content))
    rng = np.random.default_rng(0)
    groups = {"/": xr.Dataset()}
    for name, push in zip(names, pushes, strict=True):
        (folder / name).mkdir()
        (folder / name / "video.mp4").write_bytes(b"not read by this stage")
        write_log(folder / name / "robot.csv", robot, push, OFFSET)
        time = np.arange(0.0, 1.75, 1 / 60)
        poses = object_poses(push, time)
        poses[:, :3, 3] += rng.normal(0, 0.0002, (len(poses), 3))
        position, quaternion = se3.to_position_quaternion(poses)
        covariance = np.tile(np.eye(6) * 1e-6, (len(time), 1, 1))
        groups[f"/{name}"] = xr.Dataset(
            {
                "time": ("frame", time),
                "position_world_object": (("frame", "xyz"), position),
                "quaternion_world_object": (("frame", "wxyz"), quaternion),
                "covariance": (("frame", "twist", "twist_"), covariance),
                "status": ("frame", np.zeros(len(time), np.int8)),
                "inliers": ("frame", np.full(len(time), 50, np.int32)),
            }
        )
    return {"track": xr.DataTree.from_dict(groups)}


def test_force_clock_and_report(tmp_path: Path) -> None:
    """Two pushes: offset within 3 ms, force within 5 %, a valid artifact and all pictures."""
    robot = RobotModel.load("twinhand")
    pushes = [made_up_push(robot, 0), made_up_push(robot, 1, speed=0.15)]
    inputs = stage_inputs(tmp_path, session(tmp_path, robot, pushes))
    groups = run.run(inputs, Params(keep_joints=True))
    write_artifact(tmp_path / "push.zarr", WRITES, groups)
    tree = open_artifact(tmp_path / "push.zarr", WRITES, values=True)
    for i, push in enumerate(pushes):
        data = tree[f"push_{i:03d}"].to_dataset()
        assert float(data["clock_offset"]) == pytest.approx(OFFSET, abs=0.003)
        pushing = (push.time > 0.8) & (push.time < 1.0)
        assert data["contact_force"].values[pushing, 0].mean() == pytest.approx(1.5, rel=0.05)
        assert data["tip_position"].values == pytest.approx(push.tip, abs=3e-4)
        # What the robot was told is kept apart, as it was logged: time, target, and no gains.
        control = data["control"].values
        assert (np.diff(control[:, 0, 0]) > 0).all()
        assert np.isfinite(control[:, 1]).all()
        assert np.isnan(control[:, 4:]).all()
    metrics = report.metrics(tree, inputs, Params())
    assert metrics["clock_offset_ms"] == pytest.approx(1e3 * OFFSET, abs=3.0)
    for name, figure in report.plots(tree, inputs, Params()).items():
        figure.savefig(tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").stat().st_size > 5000


def test_swapped_and_foreign_logs_are_refused(tmp_path: Path) -> None:
    """A log of another time, and one of a robot without the joints, are named and explained."""
    robot = RobotModel.load("twinhand")
    push = made_up_push(robot)
    inputs = stage_inputs(tmp_path, session(tmp_path, robot, [push]))
    log = tmp_path / "datasets/box/raw/push/push_000/robot.csv"
    machine = log.parent.parent / "robot.yaml"
    text = machine.read_text()
    machine.write_text(text + "clock: common\n")
    write_log(log, robot, push, 600.0)
    with pytest.raises(InputError, match="swapped"):
        run.run(inputs, Params())
    machine.write_text(text)
    write_log(log, robot, push, OFFSET)
    log.write_text(log.read_text().replace("_arm_x", "_crane_x"))
    with pytest.raises(InputError, match="arm_x"):
        run.run(inputs, Params())


def test_lost_track_still_gives_force(tmp_path: Path) -> None:
    """Without a track the force stands, and the clock offset is unknown by its deviation."""
    robot = RobotModel.load("twinhand")
    trees = session(tmp_path, robot, [made_up_push(robot)])
    lost = trees["track"]["push_000"].to_dataset()
    lost["status"] = ("frame", np.full(lost.sizes["frame"], 2, np.int8))
    trees["track"] = xr.DataTree.from_dict({"/": xr.Dataset(), "/push_000": lost})
    groups = run.run(stage_inputs(tmp_path, trees), Params())
    data = groups["/push_000"]
    assert float(data["clock_offset_std"]) >= 0.1
    assert np.linalg.norm(data["contact_force"].values, axis=1).max() > 1.0


def test_clips_swapped_within_a_session_are_refused(tmp_path: Path) -> None:
    """Two clips exchanged: no offset fits the finger to the object, and both pushes are named."""
    robot = RobotModel.load("twinhand")
    pushes = [made_up_push(robot, 0, speed=0.06), made_up_push(robot, 1, speed=0.2)]
    trees = session(tmp_path, robot, pushes)
    first, second = (trees["track"][f"push_00{i}"].to_dataset() for i in (0, 1))
    swapped = {"/": xr.Dataset(), "/push_000": second, "/push_001": first}
    trees["track"] = xr.DataTree.from_dict(swapped)
    with pytest.raises(InputError, match=r"swapped: .*push_000 fits .*push_001 .*mm"):
        run.run(stage_inputs(tmp_path, trees), Params())


def test_clocks_of_different_epochs(tmp_path: Path) -> None:
    """A robot that counts from elsewhere is aligned by the push itself, within 3 ms."""
    robot = RobotModel.load("twinhand")
    pushes = [made_up_push(robot, 0), made_up_push(robot, 1, speed=0.15)]
    trees = session(tmp_path, robot, pushes)
    for i, push in enumerate(pushes):
        folder = tmp_path / f"datasets/box/raw/push/push_00{i}"
        write_log(folder / "robot.csv", robot, push, 600.0 + OFFSET)
    groups = run.run(stage_inputs(tmp_path, trees), Params())
    for i in range(2):
        found = float(groups[f"/push_00{i}"]["clock_offset"])
        assert found == pytest.approx(600.0 + OFFSET, abs=0.003)


def test_logs_swapped_by_their_stamps_are_named(tmp_path: Path) -> None:
    """Clocks are common, but each log runs while the other clip was filmed."""
    robot = RobotModel.load("twinhand")
    pushes = [made_up_push(robot, 0), made_up_push(robot, 1)]
    trees = session(tmp_path, robot, pushes)
    second = trees["track"]["push_001"].to_dataset()
    second["time"] = second["time"] + 50.0
    first = trees["track"]["push_000"].to_dataset()
    both = {"/": xr.Dataset(), "/push_000": first, "/push_001": second}
    trees["track"] = xr.DataTree.from_dict(both)
    folder = tmp_path / "datasets/box/raw/push"
    write_log(folder / "push_000/robot.csv", robot, pushes[0], 50.0)
    write_log(folder / "push_001/robot.csv", robot, pushes[1], 0.0)
    with pytest.raises(InputError, match=r"push_000.*at the time of push_001.*swapped"):
        run.run(stage_inputs(tmp_path, trees), Params())


def test_common_clocks_are_verified(tmp_path: Path) -> None:
    """Declared common: 0 with its deviation where the motion agrees, refused where 43 ms off."""
    robot = RobotModel.load("twinhand")
    push = made_up_push(robot)
    inputs = stage_inputs(tmp_path, session(tmp_path, robot, [push]))
    folder = tmp_path / "datasets/box/raw/push"
    machine = folder / "robot.yaml"
    machine.write_text(machine.read_text() + "clock: common\n")
    with pytest.raises(InputError, match=r"clock: common.*4\d\.\d \+- .* ms"):
        run.run(inputs, Params())
    write_log(folder / "push_000/robot.csv", robot, push, 0.0)
    group = run.run(inputs, Params())["/push_000"]
    assert float(group["clock_offset"]) == 0.0
    assert float(group["clock_offset_std"]) == pytest.approx(Params().common_std)


@pytest.mark.parametrize(
    ("x", "told"),
    [
        (50, r"nearer to the object than .* m.*T_world_base"),
        (500, r"T_world_base\.position.*if that is in millimetres it is 0\.5 m"),
    ],
)
def test_base_in_millimetres_is_told(tmp_path: Path, x: int, told: str) -> None:
    """A base that stands 50 m away: the tip never comes near; 500 m: both readings are said."""
    robot = RobotModel.load("twinhand")
    inputs = stage_inputs(tmp_path, session(tmp_path, robot, [made_up_push(robot)]))
    machine = tmp_path / "datasets/box/raw/push/robot.yaml"
    base = f"T_world_base: {{position: [{x}, 0, 0], quaternion_wxyz: [1, 0, 0, 0]}}\n"
    machine.write_text(machine.read_text() + base)
    with pytest.raises(InputError, match=told):
        run.run(inputs, Params())
