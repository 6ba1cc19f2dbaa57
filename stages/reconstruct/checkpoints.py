"""Where the stage's trainings keep their state, so that a killed run loses little.

All below ``datasets/<object>/.work/reconstruct``, which the harness removes when the stage has
succeeded. The folder's name is a hash of all that the results depend on: a state of other
parameters, frames, libraries or code is never gone on from, but deleted. What the code is, dvc.yaml
says, as it does for DVC; without one, as in a script of one's own, no state is kept.
"""

from __future__ import annotations

import hashlib
import shutil
import warnings
from pathlib import Path

import numpy as np
import xarray as xr

from stages.harness import Inputs
from stages.params import read_yaml
from stages.reconstruct.params import Params
from twinloop.capture.warning import CaptureWarning
from twinloop.errors import InputError
from twinloop.splat.checkpoint import Checkpoint, read_checkpoint

EVERY = 200
"""Steps between writing the state: some seconds, of which writing takes a hundredth."""


class Checkpoints:
    """The files of one run's trainings."""

    def __init__(self, inputs: Inputs, params: Params) -> None:
        work = inputs.work / "reconstruct"
        self.folder: Path | None = None
        if (inputs.root / "dvc.yaml").is_file():
            self.folder = work / _key(inputs, params)
        for other in work.glob("*") if work.is_dir() else ():
            if other != self.folder:
                shutil.rmtree(other, ignore_errors=True)

    def of(self, training: str) -> Checkpoint | None:
        """The state of one training; a file that has been damaged is deleted, with a warning."""
        if self.folder is None:
            return None
        path = self.folder / f"{training}.safetensors"
        if path.exists():
            try:
                read_checkpoint(path)
            except InputError as error:
                warnings.warn(f"{error} This was done.", CaptureWarning, stacklevel=2)
                path.unlink()
        return Checkpoint(path, EVERY, stays=True)


def _key(inputs: Inputs, params: Params) -> str:
    total = hashlib.sha256(f"{inputs.device} {params.model_dump_json()}".encode())
    versions = inputs.root / "versions.yaml"
    total.update(versions.read_bytes() if versions.is_file() else b"")
    stage = read_yaml(inputs.root / "dvc.yaml")["stages"]["reconstruct"]["do"]
    for name in sorted(d for d in stage["deps"] if d.endswith(".py")):
        total.update(hashlib.sha256((inputs.root / name).read_bytes()).digest())
    for name, tree in sorted(inputs.artifacts.items()):
        for node in tree.subtree:
            _add(total, f"{name}{node.path}", node.to_dataset(inherit=False))
    return total.hexdigest()[:32]


def _add(total: hashlib._Hash, place: str, group: xr.Dataset) -> None:
    for name, array in sorted(group.data_vars.items(), key=lambda item: str(item[0])):
        values = np.ascontiguousarray(array.values)
        total.update(f"{place}/{name} {values.shape} {values.dtype} ".encode())
        total.update(values.tobytes())
