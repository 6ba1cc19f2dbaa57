"""Stage `track` on a rendered box with exact truth."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from stages.track import report, run
from stages.track.params import Params
from stages.track.schema import WRITES
from tests.tracking.box_capture import scan_trees, stage_inputs, write_session
from tests.tracking.box_scene import BoxScene
from twinloop.artifacts.store import open_artifact, write_artifact
from twinloop.errors import InputError
from twinloop.geometry import se3
from twinloop.metrics.poses import average_distance


def poses_of(dataset: xr.Dataset) -> np.ndarray:
    """(frame, 4, 4) poses of a push group."""
    return se3.from_position_quaternion(
        dataset["position_world_object"].values, dataset["quaternion_world_object"].values
    )


def test_box_is_tracked_within_2_mm_and_reported(tmp_path: Path) -> None:
    """Slide and tilt of a textured box: ADD mean below 2 mm, artifact valid, report complete."""
    scene = BoxScene()
    truth = write_session(
        tmp_path / "datasets/box/raw/push",
        scene,
        [("push_000", "slide"), ("push_001", "tilt")],
        frames=18,
        width=320,
        height=240,
    )
    inputs = stage_inputs(tmp_path, scan_trees(scene, 16))
    params = Params(reference_views=16)
    groups = run.run(inputs, params)
    write_artifact(tmp_path / "track.zarr", WRITES, groups)
    tree = open_artifact(tmp_path / "track.zarr", WRITES, values=True)
    vertices = scene.mesh()[0]
    for name, poses in truth.items():
        data = tree[name].to_dataset()
        add = average_distance(poses_of(data), poses, vertices)
        assert add.mean() < 0.002
        assert (data["status"].values == 0).mean() > 0.9
    metrics = report.metrics(tree, inputs, params)
    assert metrics["ok"] > 0.9
    assert metrics["board_rms_px"] < 0.5
    slide = metrics["pushes"]["push_000"]
    assert slide["lost_intervals_s"] == []
    # 52 mm in 0.7 s, smoothly, at 18 frames in 1.4 s: 8.6 mm or 5 px in the fastest frame.
    assert 2 < slide["motion_px"]["p95"] <= slide["motion_px"]["most"] < 10
    assert slide["notes"] == []
    for name, figure in report.plots(tree, inputs, params).items():
        figure.savefig(tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").stat().st_size > 5000


def test_absent_object_is_lost_and_absent_board_is_an_error(tmp_path: Path) -> None:
    """A clip without the object gives status lost in all frames; other tags' board is refused."""
    scene = BoxScene()
    folder = tmp_path / "datasets/box/raw/push"
    write_session(
        folder, scene, [("push_000", "slide")], frames=6, width=320, height=240, with_object=False
    )
    inputs = stage_inputs(tmp_path, scan_trees(scene, 8))
    groups = run.run(inputs, Params(reference_views=8))
    assert (groups["/push_000"]["status"].values == 2).all()
    write_artifact(tmp_path / "track.zarr", WRITES, groups)
    board = folder / "board.yaml"
    board.write_text(board.read_text().replace("id: ", "id: 10"))
    with pytest.raises(InputError, match=r"no tag of board.yaml is seen"):
        run.run(inputs, Params(reference_views=8))
