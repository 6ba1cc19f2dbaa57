"""What is written whole: a run that is killed by -9 leaves something, the next write removes it."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr

from pipelines import lock, merge
from tests.splat.little import ball
from twinloop import beside
from twinloop.artifacts.schema import ArraySpec, ArtifactSchema, GroupSpec
from twinloop.artifacts.store import write_artifact
from twinloop.cli.share import _export
from twinloop.splat.checkpoint import write_checkpoint
from twinloop.splat.imported import save_splats

SCHEMA = ArtifactSchema(
    name="twinloop.test",
    version="1.0.0",
    groups={
        "/": GroupSpec(
            arrays={"x": ArraySpec(dims=("i",), dtype="float64", units="m", description="length")}
        )
    },
)


def _artifact(path: Path) -> None:
    write_artifact(path, SCHEMA, {"/": xr.Dataset({"x": ("i", np.arange(3.0))})})


def _copied(path: Path) -> None:
    merge.copy(Path(__file__), path)


def _twin(path: Path) -> None:
    _export(Path(__file__).parent / "tiny", "tiny", path)


WRITERS: dict[str, Callable[[Path], object]] = {
    "ball.ply": lambda path: save_splats(ball(9), path),
    "a.zarr": _artifact,
    "state.safetensors": lambda path: write_checkpoint(path, {"a": torch.zeros(2)}, {}),
    "dvc.lock": lambda path: lock.write_text(path, "text"),
    "figure.png": _copied,
    "twin.zip": _twin,
}

KILLED = """
import os, signal, sys
from pathlib import Path
from tests.test_beside import WRITERS
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
for name, write in WRITERS.items():
    folder = Path(sys.argv[1]) / name
    folder.mkdir()
    pid = os.fork()
    if pid == 0:
        Path.replace = Path.rename = die
        write(folder / name)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL, name
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each writer, in which it was killed just before its file was in its place."""
    root = tmp_path_factory.mktemp("killed")
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    words = [sys.executable, "-c", KILLED, str(root)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return root


@pytest.mark.parametrize("name", WRITERS)
def test_the_next_write_removes_what_a_killed_one_left(name: str, killed: Path) -> None:
    """Of the same file or of another one in its folder; files of other makes stay."""
    folder = killed / name
    (left,) = (p.name for p in folder.iterdir())
    assert left.startswith(f".{name}.")
    stranger = folder / f".{name}.1234.{name.rpartition('.')[2]}"
    stranger.write_text("of another program")
    WRITERS[name](folder / name)
    assert {p.name for p in folder.iterdir()} == {name, stranger.name}


def test_what_runs_or_is_elsewhere_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that lives, and the same number on another machine, still need what they have."""
    path = tmp_path / "mug.ply"
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: child.pid)
        own = beside.fresh(path)
        patch.setattr(beside.platform, "node", lambda: "elsewhere")
        others = beside.fresh(path)
    for file in (own, others):
        file.write_text("half")
    save_splats(ball(9), path)
    assert set(tmp_path.iterdir()) == {path, own, others}
    child.send_signal(signal.SIGKILL)
    child.wait()
    save_splats(ball(9), path)
    assert set(tmp_path.iterdir()) == {path, others}


def test_a_link_is_removed_and_what_it_points_at_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing outside the folder is touched."""
    away = tmp_path / "away"
    away.mkdir()
    (away / "file").write_text("kept")
    folder = tmp_path / "here"
    folder.mkdir()
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: child.pid)
        link = beside.fresh(folder / "a.zarr")
    link.symlink_to(away)
    beside.clear_killed(folder)
    assert list(folder.iterdir()) == []
    assert (away / "file").read_text() == "kept"
    beside.clear_killed(tmp_path / "not there")
