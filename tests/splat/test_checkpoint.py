"""Checkpoints: the same bits after an interruption at any point, and files that lie."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.splat.little import little, same, start
from twinloop import beside
from twinloop.errors import InputError, MachineError
from twinloop.splat import checkpoint as module
from twinloop.splat.checkpoint import read_checkpoint, write_checkpoint
from twinloop.splat.gaussians import Gaussians
from twinloop.splat.surfel_losses import SurfelObjective, SurfelSettings
from twinloop.splat.surfels import Surfels
from twinloop.splat.train import TrainSettings, train
from twinloop.splat.trainer import Trainer

PLAIN = TrainSettings(iterations=24, densify_times=2, most=90, largest=1.0)


class _CutError(Exception):
    """The plug is pulled."""


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"densify": "mcmc", "exposure": True},
        {"densify": "default", "grow_gradient": 1e-7, "validate": 2, "refine_poses": True},
    ],
)
def test_resumed_training_gives_the_same_bits(
    changes: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut off after 17 steps with a checkpoint from 14 (and one from 7), the end is the same."""
    settings = replace(PLAIN, **changes)
    views = little()[1]
    whole = train(start(60), views, settings)
    path = tmp_path / "state.safetensors"
    step = Trainer.step

    def cut(self: Trainer[Gaussians], progress: float) -> None:
        if self.iteration == 17:
            raise _CutError
        step(self, progress)

    monkeypatch.setattr(Trainer, "step", cut)
    with pytest.raises(_CutError):
        train(start(60), views, settings, checkpoint=path, checkpoint_every=7)
    monkeypatch.undo()
    assert int(read_checkpoint(path)[0]["counts"][0]) == 14
    assert same(whole, train(start(60), views, settings, checkpoint=path, checkpoint_every=7))
    assert not path.exists()


def test_a_checkpoint_of_another_training_is_refused(tmp_path: Path) -> None:
    """Other settings, pictures or start: never a mixture."""
    views = little()[1]
    path = tmp_path / "state.safetensors"
    trainer = Trainer(start(60), views, PLAIN)
    write_checkpoint(path, trainer.state(), {"training": "another"})
    with pytest.raises(InputError, match="belongs to a training of other pictures"):
        train(start(60), views, PLAIN, checkpoint=path)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    """Cut off, empty, of something else, or not there: InputError that names the file."""
    path = tmp_path / "state.safetensors"
    with pytest.raises(InputError, match=r"state\.safetensors"):
        read_checkpoint(path)
    write_checkpoint(path, {"a": torch.arange(5)}, {"x": 1})
    state, facts = read_checkpoint(path)
    assert state["a"].tolist() == [0, 1, 2, 3, 4]
    assert facts["x"] == 1
    content = path.read_bytes()
    for bad in (b"", content[:-3], content[:20], b"\xff" * 64):
        path.write_bytes(bad)
        with pytest.raises(InputError, match="no checkpoint"):
            read_checkpoint(path)


def test_changed_bits_are_refused(tmp_path: Path) -> None:
    """A bit that flips among the numbers is damage too: no training goes on from it."""
    path = tmp_path / "state.safetensors"
    write_checkpoint(path, {"a": torch.arange(50.0), "n": torch.tensor(3)}, {"x": 1})
    content = bytearray(path.read_bytes())
    for at in (-1, -30, -200):
        bad = content.copy()
        bad[at] ^= 0x40
        path.write_bytes(bad)
        with pytest.raises(InputError, match="damaged"):
            read_checkpoint(path)


def test_what_killed_runs_left_goes_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that was killed while it wrote leaves half a file; the next training removes it."""
    path = tmp_path / "state.safetensors"
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    with monkeypatch.context() as patch:
        patch.setattr(module.os, "getpid", lambda: child.pid)
        beside.fresh(path).write_bytes(b"half")
    assert len(list(tmp_path.iterdir())) == 1
    other = tmp_path / "state.safetensors.txt"
    other.write_text("of somebody else")
    train(start(60), little()[1], replace(PLAIN, iterations=2), checkpoint=path)
    assert list(tmp_path.iterdir()) == [other]


def test_a_crash_while_writing_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is replaced whole or not at all, and no scrap stays behind."""
    path = tmp_path / "state.safetensors"
    write_checkpoint(path, {"a": torch.zeros(2)}, {})
    before = path.read_bytes()

    def crash(_: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(module.os, "fsync", crash)
    with pytest.raises(MachineError, match=r"state\.safetensors.*disk full"):
        write_checkpoint(path, {"a": torch.ones(2)}, {})
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_resumed_surfels_give_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two scales, gsplat's strategy on them, and terms of the loss beside the pictures."""
    settings = replace(PLAIN, densify="default", grow_gradient=1e-7)
    views, flat = little()[1], start(60)
    begin = Surfels(
        flat.means, flat.quaternions, flat.scales[:, :2].copy(), flat.opacities, flat.sh
    )
    objective = SurfelObjective()
    whole = train(begin, views, settings, objective=objective)
    assert len(whole) > 60
    path = tmp_path / "state.safetensors"
    step = Trainer.step

    def cut(self: Trainer[Surfels], progress: float) -> None:
        if self.iteration == 17:
            raise _CutError
        step(self, progress)

    monkeypatch.setattr(Trainer, "step", cut)
    kept = {"objective": objective, "checkpoint": path, "checkpoint_every": 7}
    with pytest.raises(_CutError):
        train(begin, views, settings, **kept)
    monkeypatch.undo()
    for other in (None, SurfelObjective(SurfelSettings(normal_weight=0.1))):
        with pytest.raises(InputError, match="other pictures, settings, start or objective"):
            train(begin, views, settings, **{**kept, "objective": other})
    again = SurfelObjective()  # another object that says the same
    assert same(whole, train(begin, views, settings, **{**kept, "objective": again}))


def test_arguments_that_cannot_be(tmp_path: Path) -> None:
    """Devices that are none or not here, and checkpoints every zero steps."""
    views = little()[1]
    with pytest.raises(InputError, match="device 'tpu'"):
        train(start(60), views, PLAIN, "tpu")
    with pytest.raises(MachineError, match="CUDA devices here"):
        train(start(60), views, PLAIN, "cuda:99")
    with pytest.raises(InputError, match="checkpoint_every is 0"):
        train(start(60), views, PLAIN, checkpoint=tmp_path / "a", checkpoint_every=0)
