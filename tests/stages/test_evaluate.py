"""Stage evaluate on the hand-made twin of a box: against a lab truth, and inside the twin."""

import json

import numpy as np
import pytest
import trimesh
import xarray as xr

from stages.evaluate import compare, report, run, schema
from stages.evaluate.figures import mean_figure, rate_figure, to_dataset, to_json
from stages.evaluate.params import Params
from stages.retarget import run as retarget
from stages.retarget.params import Params as RetargetParams
from stages.train import run as train
from stages.train.params import Params as TrainParams
from tests.stages import box_twin
from twinloop.artifacts.kinds.truth import TRUTH
from twinloop.artifacts.store import open_artifact, write_artifact
from twinloop.errors import InputError
from twinloop.geometry import se3

QUICK = Params(trials=2, hold=0.3, samples=300)
CLOCK = 0.043
RECIPE = """
shape: rounded_box
size: [0.1, 0.055, 0.085]
mass: 0.365
friction: 0.3
seed: 3
"""


def _pose(x, yaw):
    pose = se3.exp(np.array([0, 0, 0, 0, 0, yaw]))
    pose[:3, 3] = [x, 0.02, 0.0]
    return pose


def _write_truth(folder):
    """Truth of the box of the twin, standing where its reconstruction says."""
    box = trimesh.creation.box(box_twin.SIZE)
    moments = box_twin.MASS / 12 * (np.sum(np.square(box_twin.SIZE)) - np.square(box_twin.SIZE))
    time = np.arange(12) / 60
    position, wxyz = se3.to_position_quaternion(
        np.stack([_pose(0.1 + 0.05 * t, 0.4 * t) for t in time])
    )
    folder.mkdir(parents=True)
    (folder / "world.yaml").write_text(RECIPE)
    write_artifact(
        folder / "truth.zarr",
        TRUTH,
        {
            "/": xr.Dataset(
                {
                    "mass": ((), box_twin.MASS),
                    "friction": ((), box_twin.FRICTION),
                    "com": ("xyz", np.array([0.004, 0.0, box_twin.SIZE[2] / 2])),
                    "inertia": (("row", "column"), np.diag(moments)),
                    "position_world_labobject": ("xyz", np.array([0.05, 0.02, 0.0])),
                    "quaternion_world_labobject": ("wxyz", np.array([1.0, 0.0, 0.0, 0.0])),
                }
            ),
            "/mesh": xr.Dataset(
                {
                    "vertices": (
                        ("vertex", "xyz"),
                        np.asarray(box.vertices) + [0, 0, box_twin.SIZE[2] / 2],
                    ),
                    "faces": (("face", "corner"), np.asarray(box.faces, dtype=np.int32)),
                }
            ),
            "/push_000": xr.Dataset(
                {
                    "time": ("frame", time),
                    "position_world_labobject": (("frame", "xyz"), position),
                    "quaternion_world_labobject": (("frame", "wxyz"), wxyz),
                    "clock_offset": ((), CLOCK),
                }
            ),
        },
    )
    return time, position, wxyz


def _tracks(time, position, wxyz, shift):
    """Tracks that are off by `shift` (3,) m in every frame, the last one lost and wild."""
    lift = np.array([0.0, 0.0, box_twin.SIZE[2] / 2])
    estimate = position + lift + shift
    estimate[-1] += 1.0
    status = np.zeros(len(time), dtype=np.int8)
    status[-1] = 2
    track = xr.Dataset(
        {
            "time": ("frame", time),
            "position_world_object": (("frame", "xyz"), estimate),
            "quaternion_world_object": (("frame", "wxyz"), wxyz),
            "status": ("frame", status),
        }
    )
    push = xr.Dataset({"clock_offset": ((), CLOCK + 0.002)})
    return xr.DataTree.from_dict({"/push_000": track}), xr.DataTree.from_dict({"/push_000": push})


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A quickly trained policy of the box."""
    from twinloop.artifacts.kinds.demonstration import DEMONSTRATION
    from twinloop.artifacts.kinds.policy import POLICY

    root = tmp_path_factory.mktemp("train")
    box_twin.write_demo(root / "datasets/box/raw/demo")
    artifacts = {"reconstruct": box_twin.reconstruction(), "identify": box_twin.physics()}
    groups = retarget.run(
        box_twin.inputs(root, artifacts), RetargetParams(frames=24, iterations=6, refinement=5)
    )
    write_artifact(root / "retarget.zarr", DEMONSTRATION, groups)
    artifacts["retarget"] = open_artifact(root / "retarget.zarr", DEMONSTRATION)
    groups = train.run(
        box_twin.inputs(root, artifacts),
        TrainParams(
            examples=256, epochs=20, hidden=32, points=48, iterations=0, cases=1, trials=1, hold=0.3
        ),
    )
    write_artifact(root / "train.zarr", POLICY, groups)
    return open_artifact(root / "train.zarr", POLICY)


def _inputs(root, trained, **more):
    artifacts = {
        "reconstruct": box_twin.reconstruction(),
        "identify": box_twin.physics(),
        "train": trained,
        **more,
    }
    return box_twin.inputs(root, artifacts)


def test_against_a_lab_truth(tmp_path, trained):
    """ADD and clock error are what was put in, intervals cover, ours lifts, no force does not."""
    time, position, wxyz = _write_truth(tmp_path / "datasets/box/truth/lab")
    tracks, pushes = _tracks(time, position, wxyz, np.array([0.0, 0.003, 0.0]))
    inputs = _inputs(tmp_path, trained, track=tracks, push=pushes)
    groups = run.run(inputs, QUICK)
    write_artifact(tmp_path / "evaluate.zarr", schema.WRITES, groups)
    tree = open_artifact(tmp_path / "evaluate.zarr", schema.WRITES, values=True)
    result = report.metrics(tree, inputs, QUICK)
    json.dumps(result, allow_nan=False)
    figures = {row["figure"]: row for row in result["figures"]}
    assert result["world"] == "lab"
    assert figures["tracking_add"]["value"] == pytest.approx(3.0, abs=1e-6)
    assert figures["tracking_lost_frames"]["value"] == pytest.approx(1 / 12)
    assert figures["clock_offset_error"]["value"] == pytest.approx(2.0)
    assert figures["chamfer"]["value"] < 1e-6
    assert figures["mass_error"]["value"] == pytest.approx(0.0, abs=1e-9)
    assert figures["grasp_success"]["successes"] == 2
    assert figures["grasp_success_position_only"]["successes"] == 0
    assert figures["grasp_success_paper_force"]["successes"] == 0
    assert figures["grip_force_over_needed"]["value"] > 1.3
    rows = {row["parameter"]: row for row in result["parameters"]}
    assert rows["com_x"]["truth"] == pytest.approx(0.004)
    assert rows["inertia_zz"]["covered"]
    assert rows["friction_tip"]["truth"] == pytest.approx(0.8)
    pictures = report.plots(tree, inputs, QUICK)
    assert {"success", "parameters", "mesh_error", "tracking"} <= set(pictures)


def test_inside_the_twin_where_there_is_no_truth(tmp_path, trained):
    """A real object is judged under posterior samples; measured references are compared."""
    folder = tmp_path / "datasets/box/truth"
    folder.mkdir(parents=True)
    (folder / "reference.yaml").write_text("mass: 0.35\n")
    inputs = _inputs(tmp_path, trained)
    params = QUICK.model_copy(update={"baselines": False})
    groups = run.run(inputs, params)
    write_artifact(tmp_path / "evaluate.zarr", schema.WRITES, groups)
    tree = open_artifact(tmp_path / "evaluate.zarr", schema.WRITES, values=True)
    result = report.metrics(tree, inputs, params)
    figures = {row["figure"]: row for row in result["figures"]}
    assert result["world"] == "twin"
    assert "grasp_success" not in figures
    assert figures["grasp_success_in_twin"]["n"] == 2
    assert figures["mass_error"]["value"] == pytest.approx(100 * 0.015 / 0.35)
    (folder / "reference.yaml").write_text("- 0.35\n")
    with pytest.raises(InputError, match=r"reference\.yaml"):
        run.run(inputs, params)


def test_same_input_gives_the_same_arrays(tmp_path, trained):
    """Two evaluations agree bit by bit."""
    inputs = _inputs(tmp_path, trained)
    params = Params(trials=1, hold=0.3, samples=100, baselines=False)
    first, second = run.run(inputs, params), run.run(inputs, params)
    for name, dataset in first.items():
        assert dataset.identical(second[name]), name


def test_mesh_error_sees_a_wrong_placement_and_the_rigid_fit_removes_it():
    """A mesh 2 mm off its place has that error as placed, and none after the fit."""
    box = trimesh.creation.box(box_twin.SIZE)
    truth = xr.DataTree.from_dict(
        {
            "/mesh": xr.Dataset(
                {
                    "vertices": (("vertex", "xyz"), np.asarray(box.vertices)),
                    "faces": (("face", "corner"), np.asarray(box.faces, dtype=np.int32)),
                }
            )
        }
    )
    shifted = np.eye(4)
    shifted[:3, 3] = [0.002, 0.0, 0.0]
    errors = compare.mesh_errors(box_twin.reconstruction(), truth, shifted, 400, 0)
    # Only the two sides across x and their rims see the shift.
    assert 2e-4 < errors["chamfer"] < 2e-3
    assert errors["chamfer_aligned"] < 0.2 * errors["chamfer"]
    assert errors["shift"] == pytest.approx(0.002, rel=0.1)


def test_figures_keep_their_meaning_as_json():
    """Missing values become null, rates carry k and n, aims are judged by their direction."""
    rows = to_json(
        xr.DataTree(
            to_dataset(
                [
                    rate_figure("rate", np.array([1, 1, 0, 1]), 0.9),
                    mean_figure("error", np.array([]), "mm", "lower", 1.0),
                    mean_figure("small", np.array([0.5, 0.7]), "mm", "lower", 1.0),
                ]
            )
        )
    )
    assert rows[0]["successes"] == 3
    assert rows[0]["n"] == 4
    assert not rows[0]["reached"]
    assert rows[1]["value"] is None
    assert rows[1]["interval"] is None
    assert "reached" not in rows[1]
    assert rows[2]["reached"]
