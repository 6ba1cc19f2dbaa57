"""The harness: outputs whole or not at all, documented exit codes, messages that help."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr

from stages.harness import Stage, main, run_stage
from stages.params import StageParams
from twinloop.artifacts.schema import ArraySpec, ArtifactSchema, GroupSpec
from twinloop.artifacts.store import open_artifact
from twinloop.capture.warning import CaptureWarning
from twinloop.errors import InputError

KIND = ArtifactSchema(
    name="test.numbers",
    version="1.0.0",
    groups={
        "/": GroupSpec(
            arrays={
                "x": ArraySpec(
                    dims=("i",), dtype="float64", units="m", description="x", invariants=("finite",)
                )
            }
        )
    },
)


def picture(*_args):
    """Return one figure."""
    figure, axes = plt.subplots()
    axes.plot([0, 1])
    return {"line": figure}


def stage(run):
    """Return a stage `ingest` around ``run``."""
    return Stage(
        name="ingest",
        params=StageParams,
        run=run,
        metrics=lambda tree, inputs, params: {"sum": float(tree["x"].sum())},
        plots=picture,
        writes=KIND,
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a project with one object."""
    (tmp_path / "datasets" / "mug").mkdir(parents=True)
    (tmp_path / "datasets/mug/object.yaml").write_text("name: mug\nlicense: CC0-1.0\n")
    (tmp_path / "params.yaml").write_text(
        "profile: smoke\ningest: {}\nprofiles: {smoke: {ingest: {}}}\n"
    )
    (tmp_path / "versions.yaml").write_text("device: cpu\n")
    (tmp_path / "dvc.yaml").write_text("stages: {}\n")
    return tmp_path


def good(inputs, params):
    """Write three numbers."""
    return {"/": xr.Dataset({"x": ("i", np.arange(3.0))})}


def test_a_stage_writes_artifact_metrics_plots_and_provenance(root):
    """All four kinds of output stand where the graph expects them; a rerun gives the same bytes."""
    run_stage(stage(good), "mug", root)
    folder = root / "datasets/mug"
    assert open_artifact(folder / "ingest.zarr", KIND)["x"].values.tolist() == [0, 1, 2]
    assert json.loads((folder / "metrics/ingest.json").read_text()) == {"sum": 3.0}
    image = (folder / "plots/ingest/line.png").read_bytes()
    assert json.loads((folder / "provenance/ingest.json").read_text())["wall_seconds"] >= 0
    run_stage(stage(good), "mug", root)
    assert (folder / "plots/ingest/line.png").read_bytes() == image
    assert sorted(p.name for p in folder.iterdir()) == [
        "ingest.zarr",
        "metrics",
        "object.yaml",
        "plots",
        "provenance",
    ]


def test_a_failing_stage_leaves_the_old_outputs(root):
    """Bad data and an interrupt leave every file as it was, and nothing beside it."""
    run_stage(stage(good), "mug", root)
    before = {p: p.read_bytes() for p in root.rglob("*") if p.is_file()}

    def bad(inputs, params):
        return {"/": xr.Dataset({"x": ("i", np.array([np.nan]))})}

    def stopped(inputs, params):
        raise KeyboardInterrupt

    for run in (bad, stopped):
        with pytest.raises(BaseException):  # noqa: B017, PT011 - any way to fail
            run_stage(stage(run), "mug", root)
        assert {p: p.read_bytes() for p in root.rglob("*") if p.is_file()} == before


def test_a_request_to_end_is_an_interrupt(root, monkeypatch, capsys):
    """Temporary folders of the stage and of captures that it has unpacked are removed."""
    monkeypatch.chdir(root)
    seen = []

    def asked(inputs, params):
        with tempfile.TemporaryDirectory(dir=root) as scratch:
            seen.append(Path(scratch))
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)
        return good(inputs, params)

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as caught:
        main(stage(asked), ["mug"])
    assert caught.value.code == 130
    assert "wrote nothing" in capsys.readouterr().err
    assert not seen[0].exists()
    assert [p.name for p in (root / "datasets/mug").iterdir()] == ["object.yaml"]
    assert signal.getsignal(signal.SIGTERM) == before


def test_what_a_killed_run_left_is_removed_by_the_next(root):
    """But not what a run has that is alive, or one of another machine, or what is no run's."""
    folder = root / "datasets/mug"
    seen = []

    def look(inputs, params):
        seen.extend(p.name for p in folder.iterdir() if p.name.startswith(".ingest."))
        return good(inputs, params)

    run_stage(stage(look), "mug", root)
    (own,) = seen
    head, _, tail = own.rpartition(f"-{os.getpid()}.")
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    killed = [f"{head}-{child.pid}.{tail}", f".plots{head.removeprefix('.ingest')}-{child.pid}.x"]
    kept = [f"{head}-{os.getppid()}.x", f".ingest.elsewhere-{child.pid}.x", ".git", ".a.b-c.d"]
    for name in (*killed, *kept):
        (folder / name).mkdir()
    run_stage(stage(good), "mug", root)
    left = {p.name for p in folder.iterdir() if p.name.startswith(".")}
    assert left == set(kept)


def test_what_a_stage_keeps_for_its_next_run_goes_when_it_succeeds(root):
    """A run that fails leaves it; that of another stage stays in any case."""
    kept = root / "datasets/mug/.work/ingest/state"
    other = root / "datasets/mug/.work/track/state"

    def run(inputs, params):
        assert inputs.work == root / "datasets/mug/.work"
        if kept.is_file():
            return good(inputs, params)
        for path in (kept, other):
            path.parent.mkdir(parents=True)
            path.write_text("half way")
        raise InputError("not today.")

    with pytest.raises(InputError):
        run_stage(stage(run), "mug", root)
    assert kept.is_file()
    run_stage(stage(run), "mug", root)
    assert not kept.parent.exists()
    assert other.is_file()
    shutil.rmtree(other.parent)
    run_stage(stage(good), "mug", root)
    assert not other.parents[1].exists()


def test_exit_codes_and_messages(root, monkeypatch, capsys):
    """Each way to fail has its documented code, and its message goes to stderr in one piece."""
    monkeypatch.chdir(root)

    def refuse(inputs, params):
        raise InputError("scan/video.mp4 is empty; record it again.")

    def stopped(inputs, params):
        raise KeyboardInterrupt

    def invalid(inputs, params):
        return {"/": xr.Dataset({"x": ("i", np.array([np.inf]))})}

    for run, code, text in (
        (refuse, 2, "record it again"),
        (stopped, 130, "wrote nothing"),
        (invalid, 4, "x[0]"),
    ):
        with pytest.raises(SystemExit) as caught:
            main(stage(run), ["mug"])
        assert caught.value.code == code
        assert text in capsys.readouterr().err
    with pytest.raises(SystemExit) as caught:
        main(stage(good), ["cup"])
    assert caught.value.code == 2
    assert "cup" in capsys.readouterr().err


def test_a_card_of_another_name_is_refused(root):
    """A folder that was copied by hand without changing the card is noticed."""
    (root / "datasets/mug").rename(root / "datasets/cup")
    with pytest.raises(Exception, match="name 'mug', expected 'cup'"):
        run_stage(stage(good), "cup", root)


def test_films_and_warnings(root, monkeypatch, capsys):
    """A film stands beside the plots, replaced whole; a capture's fault is one line for people."""
    monkeypatch.chdir(root)

    def warned(inputs, params):
        warnings.warn("clip.mp4: 3 stamps repeat.", CaptureWarning, stacklevel=2)
        return good(inputs, params)

    filmed = replace(stage(warned), plots=lambda *_: {**picture(), "masks": b"film"})
    main(filmed, ["mug"])
    assert "warning: clip.mp4: 3 stamps repeat.\n" in capsys.readouterr().err
    folder = root / "datasets/mug"
    assert (folder / "films/ingest/masks.mp4").read_bytes() == b"film"
    assert [p.name for p in (folder / "plots/ingest").iterdir()] == ["line.png"]
    main(replace(filmed, plots=lambda *_: {**picture(), "other": b"newer"}), ["mug"])
    assert [p.name for p in (folder / "films/ingest").iterdir()] == ["other.mp4"]
