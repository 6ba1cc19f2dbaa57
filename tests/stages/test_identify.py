"""Stage `identify` on pushes of an independent MuJoCo world."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import trimesh
import xarray as xr
from scipy.spatial.transform import Rotation

from stages.harness import Inputs
from stages.identify import report, run
from stages.identify.params import Params
from stages.identify.schema import WRITES
from tests.physics import world
from twinloop.artifacts.store import open_artifact, write_artifact
from twinloop.capture.warning import CaptureWarning
from twinloop.card import ObjectCard
from twinloop.errors import InputError
from twinloop.export.properties import read_properties
from twinloop.geometry.sdf import bake

TINY = {
    "step": 1e-3,
    "starts": 1,
    "first_iterations": 2,
    "explore_iterations": 0,
    "iterations": 3,
    "draws": 0,
    "samples": 32,
}


def push_group(record, action):
    """A push of the `pushes` artifact, as far as the stage reads it."""
    sample, frame = ("sample", "xyz"), ("frame", "xyz")
    return xr.Dataset(
        {
            "robot_time": ("sample", record.robot_time),
            "tip_position": (sample, record.tip_position),
            "tip_velocity": (sample, record.tip_velocity),
            "contact_force": (sample, record.contact_force),
            "contact_force_std": (sample, record.contact_force_std),
            "frame_time": ("frame", record.frame_time),
            "position_world_object": (frame, record.position),
            "quaternion_world_object": (("frame", "wxyz"), record.quaternion),
            "covariance": (("frame", "twist", "twist_"), record.covariance),
            "status": ("frame", np.where(record.usable, 0, 2).astype(np.int8)),
            "clock_offset": record.clock_offset,
            "clock_offset_std": record.clock_offset_std,
        },
        attrs={"action": action, "held_out": record.held_out, "tip_radius": record.tip_radius},
    )


def grid_of(mesh, shift=(0.0, 0.0, 0.0)):
    """The distance grid that `reconstruct` stores of a mesh, or of one that stands elsewhere."""
    return bake(mesh["vertices"].values + shift, mesh["faces"].values, margin=0.02, cells=64)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Two fitted pushes, one held out and one lift, of a hidden box."""
    hidden = world.hidden_object([0.04, 0.03, 0.045], 0.25, seed=9, friction=0.3)
    kinds = (("slide", 1, 0.3), ("tap", 0, 0.4), ("tap", 2, -0.3))
    records = world.push_set(hidden, 2, kinds)
    mesh = trimesh.creation.box(2 * hidden.half)
    groups = {
        f"/push_{i:03d}": push_group(r, kind[0])
        for i, (r, kind) in enumerate(zip(records, kinds, strict=True))
    }
    groups["/push_002"].attrs["held_out"] = True
    groups["/push_003"] = push_group(records[0], "lift")
    scanned = xr.Dataset(
        {
            "vertices": (("vertex", "xyz"), np.asarray(mesh.vertices)),
            "faces": (("face", "corner"), np.asarray(mesh.faces, np.int32)),
        }
    )
    artifacts = {
        "push": xr.DataTree.from_dict(groups),
        "reconstruct": xr.DataTree.from_dict(
            {"/mesh": scanned, "/distance": grid_of(scanned).to_dataset()}
        ),
    }
    root = tmp_path_factory.mktemp("project")
    return Inputs("box", root, ObjectCard(name="box", license="CC0-1.0"), artifacts, "cpu", 0)


@pytest.fixture(scope="module")
def tree(inputs, tmp_path_factory):
    """The artifact, written and read back."""
    path = tmp_path_factory.mktemp("out") / "identify.zarr"
    write_artifact(path, WRITES, run.run(inputs, Params(**TINY)))
    return open_artifact(path, WRITES, values=True)


def test_writes_what_the_exporter_needs(tree):
    """Estimates, intervals and verdicts make a body that can exist; the lift is excluded."""
    properties = read_properties(tree)
    assert properties.mass > 0
    known = {e.name: e for e in properties.estimates}
    assert known["mass"].low < known["mass"].value < known["mass"].high
    assert list(tree.attrs["excluded"]) == ["push_003"]
    assert tree["residuals"].attrs["pushes"] == ["push_000", "push_001", "push_002"]
    assert tree["residuals"]["held_out"].values.tolist() == [0, 0, 1]
    alone = tree["pose_only"].attrs["verdicts"]
    assert alone[tree.attrs["parameters"].index("mass")] == "unidentifiable"


def test_metrics_and_plots(tree, inputs):
    """Metrics are JSON with errors of the held-out push; three pictures are drawn."""
    found = json.loads(json.dumps(report.metrics(tree, inputs, Params(**TINY))))
    assert found["held_out"]["position_rms_mm"] >= 0
    assert found["pushes"]["push_002"]["held_out"] is True
    assert found["pose_only"]["mass"]["verdict"] == "unidentifiable"
    assert set(report.plots(tree, inputs, Params(**TINY))) == {"posterior", "fit", "table"}


def test_contact_is_with_the_stored_grid(inputs, tree):
    """A grid of a surface 4 mm nearer to the finger: touched earlier; without one: as baked."""
    mesh = inputs.artifacts["reconstruct"]["mesh"].to_dataset()

    def identified(**groups):
        reconstruct = xr.DataTree.from_dict({"/mesh": mesh, **groups})
        other = replace(inputs, artifacts={**inputs.artifacts, "reconstruct": reconstruct})
        return run.run(other, Params(**TINY))

    with pytest.warns(CaptureWarning, match="stores no distance grid"):
        baked = identified()
    stored = tree["residuals"].to_dataset()
    for name, values in baked["residuals"].data_vars.items():
        np.testing.assert_array_equal(values, stored[name])
    # A push begins where the finger comes near the surface: nearer by the speed of the tap.
    tap = inputs.artifacts["push"]["push_001"]
    speed = tap["tip_velocity"].values[np.argmax(np.linalg.norm(tap["contact_force"], axis=1))]
    R = Rotation.from_quat(tap["quaternion_world_object"].values[0], scalar_first=True)
    shift = -0.004 * R.inv().apply(speed / np.linalg.norm(speed))
    moved = identified(**{"/distance": grid_of(mesh, shift).to_dataset()})["residuals"]
    assert jolt(moved, 1) - jolt(stored, 1) == pytest.approx(0.004 / np.linalg.norm(speed), rel=0.3)


def jolt(residuals, push):
    """Time from the beginning of a push to the frame between which and the last it moved most."""
    here = residuals["frame_push"].values == push
    step = np.linalg.norm(np.diff(residuals["measured_position"].values[here], axis=0), axis=1)
    return residuals["frame_time"].values[here][1 + int(np.argmax(step))]


def test_threads_do_not_change_the_result(inputs, monkeypatch):
    """One thread and three give the same bytes."""
    monkeypatch.setenv("TWINLOOP_THREADS", "1")
    one = run.run(inputs, Params(**TINY))
    monkeypatch.setenv("TWINLOOP_THREADS", "3")
    three = run.run(inputs, Params(**TINY))
    for group in one:
        for name in one[group].data_vars:
            assert one[group][name].values.tobytes() == three[group][name].values.tobytes(), name


def test_refuses_a_session_of_lifts(inputs):
    """Nothing but lifts: the message says what to record."""
    lifts = xr.DataTree.from_dict({"/push_003": inputs.artifacts["push"]["push_003"].to_dataset()})
    only = Inputs(
        inputs.object,
        inputs.root,
        inputs.card,
        {**inputs.artifacts, "push": lifts},
        "cpu",
        0,
    )
    with pytest.raises(InputError, match="at least one tap"):
        run.run(only, Params(**TINY))
