"""Stage retarget on a hand-made demonstration of a box."""

import numpy as np
import pytest
import xarray as xr

from stages.retarget import report, run, schema
from stages.retarget.params import Params
from tests.stages import box_twin
from twinloop.artifacts.store import open_artifact, write_artifact
from twinloop.capture.warning import CaptureWarning
from twinloop.errors import InputError
from twinloop.geometry.sdf import bake

QUICK = Params(frames=24, iterations=6, refinement=5)


def _run(root, params=QUICK, **options):
    box_twin.write_demo(root / "datasets/box/raw/demo", **options)
    inputs = box_twin.inputs(root, {"reconstruct": box_twin.reconstruction()})
    return run.run(inputs, params), inputs


def test_contacts_lie_on_the_two_narrow_sides(tmp_path):
    """Fingers on +y, thumb on -y, pads touching; the artifact keeps its schema and has metrics."""
    groups, inputs = _run(tmp_path)
    write_artifact(tmp_path / "retarget.zarr", schema.WRITES, groups)
    tree = open_artifact(tmp_path / "retarget.zarr", schema.WRITES, values=True)
    point = tree["contact_point"].values
    half = box_twin.SIZE[1] / 2
    assert point[:, 1] == pytest.approx([half, half, half, -half], abs=1e-4)
    assert tree["contact_normal"].values[:, 1] == pytest.approx([-1, -1, -1, 1], abs=1e-6)
    figures = report.metrics(tree, inputs, QUICK)
    assert figures["holding_gap_max_mm"] < 0.1
    assert figures["penetration_max_mm"] < 0.1
    assert figures["feasible_share"] > 0.9
    assert set(report.plots(tree, inputs, QUICK)) == {"contacts", "motion", "replay"}


def test_contacts_lie_on_the_surface_of_the_stored_grid(tmp_path):
    """Distances are the stored grid's: one of a box 3 mm thicker on +y moves the fingers there."""
    groups, inputs = _run(tmp_path)
    twin = inputs.artifacts["reconstruct"]
    vertices = twin["mesh"]["vertices"].values.copy()
    vertices[vertices[:, 1] > 0, 1] += 0.003
    thicker = bake(vertices, twin["mesh"]["faces"].values, margin=0.02, cells=64)
    stored = xr.DataTree.from_dict({**twin.to_dict(), "/distance": thicker.to_dataset()})
    moved = run.run(box_twin.inputs(tmp_path, {"reconstruct": stored}), QUICK)["/"]
    before = groups["/"]["contact_point"].values[:, 1]
    assert moved["contact_point"].values[:, 1] - before == pytest.approx(
        [0.003, 0.003, 0.003, 0.0], abs=2e-4
    )


def test_an_older_reconstruction_gives_the_same(tmp_path):
    """Without a stored grid one is baked with the same parameters: same bytes, and a warning."""
    groups, inputs = _run(tmp_path)
    older = inputs.artifacts["reconstruct"].filter(lambda node: node.name != "distance")
    with pytest.warns(CaptureWarning, match="stores no distance grid"):
        again = run.run(box_twin.inputs(tmp_path, {"reconstruct": older}), QUICK)
    assert again["/"].identical(groups["/"])


def test_scale_of_the_hand_comes_from_the_object(tmp_path):
    """A hand that a tracker made 15 % too large gives the same contacts."""
    groups, _ = _run(tmp_path, scale=1.15)
    assert groups["/"].attrs["hand_scale"] == pytest.approx(1 / 1.15, rel=0.05)
    assert abs(groups["/"]["contact_point"].values[:, 2]).max() < 0.02


def test_same_input_gives_the_same_arrays(tmp_path):
    """Two runs agree bit by bit."""
    first, second = _run(tmp_path)[0]["/"], _run(tmp_path)[0]["/"]
    assert first.identical(second)


def test_hand_that_never_comes_near_is_refused(tmp_path):
    """A hand half a metre beside the object raises, and says how far it is."""
    _run(tmp_path)
    folder = tmp_path / "datasets/box/raw/demo"
    time, keypoints, _ = box_twin.hand_keypoints()
    np.savez(folder / "hand.npz", time=time, keypoints=keypoints + 0.5, handedness="right")
    inputs = box_twin.inputs(tmp_path, {"reconstruct": box_twin.reconstruction()})
    with pytest.raises(InputError, match="never come within"):
        run.run(inputs, QUICK)
