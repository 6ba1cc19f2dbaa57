"""A run of `reconstruct` that is killed goes on where it was, to the same bytes, or starts anew."""

import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stages.harness import Inputs
from stages.reconstruct import checkpoints, run, schema
from stages.reconstruct.params import Params
from tests.splat.synthetic import rounded_box, scan
from tests.stages.test_reconstruct import inputs_of
from twinloop.artifacts.store import write_artifact
from twinloop.capture.warning import CaptureWarning
from twinloop.splat.trainer import Trainer

TINY = Params(
    resolution=24,
    faces=800,
    gaussians=150,
    most_gaussians=200,
    iterations=20,
    surfels=400,
    most_surfels=500,
    surfel_iterations=15,
    refine=False,
    scene_iterations=0,
    texture=0,
    distance_cells=16,
    nearly_convex=0.1,
    parts_error=0.1,  # one hull will do
)
EVERY = 5

KILLED = """
import os, signal, sys
from pathlib import Path
from tests.stages.test_reconstruct_resume import EVERY, TINY, box
from stages.reconstruct import checkpoints, run
from twinloop.splat import train
checkpoints.EVERY = EVERY
written = 0
real = train.write_checkpoint
def write(*args):
    global written
    real(*args)
    written += 1
    if written == 6:  # surfels after 5, 10, 15 steps and at their end; Gaussians after 5 and 10
        os.kill(os.getpid(), signal.SIGKILL)
train.write_checkpoint = write
run.run(box(Path(sys.argv[1])), TINY)
"""


def box(root: Path) -> Inputs:
    """Twelve tiny pictures of a rounded box."""
    made = scan(rounded_box(), views=12, width=90, height=68, supersample=1)
    (root / "datasets/box").mkdir(parents=True, exist_ok=True)
    (root / "code.py").write_text("")
    (root / "dvc.yaml").write_text("stages: {reconstruct: {do: {deps: [code.py]}}}")
    return inputs_of(made.frames, root)


def digest(root: Path, params: Params = TINY) -> str:
    """Run the stage and hash its artifact."""
    inputs = box(root)
    path = root / "reconstruct.zarr"
    write_artifact(path, schema.WRITES, run.run(inputs, params))
    total = hashlib.sha256()
    for file in sorted(p for p in path.rglob("*") if p.is_file()):
        total.update(file.relative_to(path).as_posix().encode() + file.read_bytes())
    return total.hexdigest()


def counted(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """One entry for each step of a training: whether it was of surfels."""
    steps: list[bool] = []
    real = Trainer.step

    def step(self: Trainer, progress: float) -> None:
        steps.append(self.model.flat)
        real(self, progress)

    monkeypatch.setattr(Trainer, "step", step)
    return steps


def test_a_killed_run_goes_on_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed by -9 within the Gaussians' training: neither surfels nor half of them again."""
    root = tmp_path / "killed"
    root.mkdir()
    # A file that is run as a module of tests finds the project by its place.
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    words = [sys.executable, "-c", KILLED, str(root)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    steps = counted(monkeypatch)
    resumed = digest(root)
    assert steps == [False] * 10
    steps.clear()
    assert resumed == digest(tmp_path / "whole")
    assert steps == [True] * 15 + [False] * 20


def test_a_state_of_other_parameters_frames_or_code_is_left_alone(tmp_path: Path) -> None:
    """Each is a folder of its own; those that are not this run's go away."""
    inputs = box(tmp_path)
    first = checkpoints.Checkpoints(inputs, TINY)
    assert first.folder is not None
    assert first.folder == checkpoints.Checkpoints(inputs, TINY).folder
    first.folder.mkdir(parents=True)
    (first.folder / "surfels.safetensors").write_bytes(b"state")
    other = checkpoints.Checkpoints(inputs, TINY.model_copy(update={"mask_weight": 0.7}))
    assert other.folder != first.folder
    assert not first.folder.exists()
    inputs.artifacts["ingest"]["image"].values[0, 0, 0, 0] ^= 1
    frames = checkpoints.Checkpoints(inputs, TINY)
    (tmp_path / "versions.yaml").write_text("torch: 0\n")
    versions = checkpoints.Checkpoints(inputs, TINY)
    (tmp_path / "code.py").write_text("other")
    code = checkpoints.Checkpoints(inputs, TINY)
    assert len({c.folder for c in (first, other, frames, versions, code)}) == 5
    (tmp_path / "dvc.yaml").unlink()
    assert checkpoints.Checkpoints(inputs, TINY).of("surfels") is None


def test_a_damaged_state_is_deleted_with_a_warning(tmp_path: Path) -> None:
    """Nobody has to find a hidden file before the stage runs again."""
    states = checkpoints.Checkpoints(box(tmp_path), TINY)
    assert states.folder is not None
    states.folder.mkdir(parents=True)
    path = states.folder / "surfels.safetensors"
    path.write_bytes(b"no state")
    with pytest.warns(CaptureWarning, match=r"surfels\.safetensors: no checkpoint"):
        state = states.of("surfels")
    assert state is not None
    assert state.path == path
    assert not path.exists()
