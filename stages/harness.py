"""What all stages share: find parameters and inputs, call ``run``, write outputs whole.

A stage's ``__main__`` hands its functions to :func:`main`; nothing here knows a single stage.
"""

from __future__ import annotations

import os

# Before NumPy and torch load: one thread in each BLAS makes sums the same on every machine, and
# spinning OpenMP threads would slow the stages' own threads down.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import argparse
import ctypes
import gc
import json
import platform
import resource
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TextIO

import xarray as xr

from stages.params import StageParams, read_yaml, resolve
from twinloop.artifacts.schema import ArtifactSchema
from twinloop.artifacts.store import disk_error, fsync, open_artifact, replace_tree, write_artifact
from twinloop.beside import clear_killed, prefix
from twinloop.capture.warning import CaptureWarning
from twinloop.card import ObjectCard, read_card
from twinloop.errors import MachineError, ParamsError, TwinloopError
from twinloop.extras import optional_packages

# Libraries make many objects that last; looking for garbage among them each 700 takes a tenth of
# the imports' time.
gc.set_threshold(20_000, 50, 50)


@dataclass(frozen=True)
class Inputs:
    """What a stage may read."""

    object: str
    """Name of the object."""
    root: Path
    """Project root."""
    card: ObjectCard
    """The object's card."""
    artifacts: dict[str, xr.DataTree]
    """Opened and checked artifacts, by the stage that wrote them; arrays load when touched."""
    device: str
    """"cpu" or "cuda", from versions.yaml: part of the cache key, never guessed."""
    seed: int
    """The stage's seed."""

    @property
    def folder(self) -> Path:
        """``datasets/<object>``."""
        return self.root / "datasets" / self.object

    @property
    def raw(self) -> Path:
        """Raw captures: ``scan``, ``push`` and ``demo``."""
        return self.folder / "raw"

    @property
    def work(self) -> Path:
        """What a stage keeps for its next run should this one be killed, in ``work / <stage>``.

        Neither git nor DVC looks there, and it is removed when the stage has succeeded.
        """
        return self.folder / ".work"

    @property
    def truth(self) -> Path:
        """Reference values; only ``lab`` and ``evaluate`` may look here."""
        return self.folder / "truth"


@dataclass(frozen=True)
class Stage:
    """A stage as its ``__main__`` declares it."""

    name: str
    params: type[StageParams]
    run: Callable[..., Any]
    metrics: Callable[..., dict[str, Any]]
    plots: Callable[..., dict[str, Any]]
    reads: dict[str, ArtifactSchema] = field(default_factory=dict)
    writes: ArtifactSchema | None = None
    files: tuple[str, ...] = ()
    """Folders below ``datasets/<object>`` that a stage without an artifact writes."""


def main(stage: Stage, argv: list[str] | None = None) -> None:
    """Run ``stage`` for the object named on the command line and exit with a documented code."""
    parser = argparse.ArgumentParser(
        prog=f"python -m stages.{stage.name}",
        description=f"Run stage '{stage.name}' for one object. DVC calls this; run it by hand to "
        "debug. Parameters come from params.yaml and datasets/OBJECT/object.yaml.",
    )
    parser.add_argument("object", help="name of the object: a folder of datasets/")
    arguments = parser.parse_args(argv)
    # A request to end is an interrupt: temporary folders, here and of captures, are removed.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _say
            run_stage(stage, arguments.object, Path.cwd())
    except TwinloopError as error:
        print(f"error: {stage.name}@{arguments.object}: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    except KeyboardInterrupt:
        print(
            f"interrupted: {stage.name}@{arguments.object} wrote nothing; run again to go on.",
            file=sys.stderr,
        )
        raise SystemExit(130) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def _say(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """What was worked around in a capture is for people; where in the code it was said is not."""
    text = f"warning: {message}\n"
    if not issubclass(category, CaptureWarning):
        text = warnings.formatwarning(message, category, filename, lineno, line)
    (file or sys.stderr).write(text)


def run_stage(stage: Stage, name: str, root: Path) -> None:
    """Run ``stage`` for object ``name`` in the project at ``root``.

    Raises:
        TwinloopError: Anything a user can act on; the outputs are then as they were.
    """
    started, clock, cpu = time.time(), time.perf_counter(), time.process_time()
    folder = root / "datasets" / name
    card = read_card(folder / "object.yaml")
    if card.name != name:
        raise ParamsError(f"{folder / 'object.yaml'}: name {card.name!r}, expected {name!r}.")
    params = resolve(stage.name, stage.params, root, card)
    versions = check_versions(stage.name, root)
    artifacts = {
        source: open_artifact(folder / f"{source}.zarr", schema, values=True)
        for source, schema in stage.reads.items()
    }
    inputs = Inputs(name, root, card, artifacts, versions["device"], params.seed)
    clear_killed(folder)
    beside = Path(tempfile.mkdtemp(prefix=prefix(stage.name), dir=folder))
    try:
        if stage.writes is None:
            stage.run(inputs, params, beside)
            result: Any = beside
            _report(stage, result, inputs, params)
            for relative in stage.files:
                (folder / relative).parent.mkdir(parents=True, exist_ok=True)
                replace_tree(beside / relative, folder / relative)
        else:
            groups = stage.run(inputs, params)
            attrs = {"stage": stage.name, "object": name, "params": params.model_dump(mode="json")}
            fresh = beside / f"{stage.name}.zarr"
            write_artifact(fresh, stage.writes, groups, attrs)
            result = open_artifact(fresh, stage.writes)
            _report(stage, result, inputs, params)
            replace_tree(fresh, folder / fresh.name)
    except OSError as error:
        raise disk_error(error, folder) from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    shutil.rmtree(inputs.work / stage.name, ignore_errors=True)
    with suppress(OSError):  # not there, or another stage's is
        inputs.work.rmdir()
    _provenance(
        folder / "provenance" / f"{stage.name}.json",
        {
            "stage": stage.name,
            "object": name,
            "started_unix": round(started, 3),
            "wall_seconds": round(time.perf_counter() - clock, 3),
            "cpu_seconds": round(time.process_time() - cpu, 3),
            "peak_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
            "python": platform.python_version(),
            "machine": platform.machine(),
            "system": platform.platform(),
            "versions": versions,
            "params": params.model_dump(mode="json"),
        },
    )


def check_versions(stage: str, root: Path) -> dict[str, str]:
    """Return the versions that versions.yaml declares for ``stage``, after comparing them.

    The declared versions are part of DVC's cache key, so a result of another version can never be
    restored from a shared run-cache; this check makes the declaration true.

    Raises:
        MachineError: Another version is installed, or the declared device is missing.
    """
    declared = {key: str(value) for key, value in read_yaml(root / "versions.yaml").items()}
    used = set(_declared_keys(stage, root)) | {"device"}
    wrong = []
    for library in sorted(used - {"device"}):
        try:
            installed = version(library).split("+")[0]
        except PackageNotFoundError:
            if library in optional_packages():
                # Whatever needs it fails with the command that installs it; the rest runs without.
                continue
            installed = "nothing"
        if installed != declared.get(library):
            wrong.append(f"  {library}: declared {declared.get(library)}, installed {installed}")
    if wrong:
        raise MachineError(
            "versions.yaml does not match the installed libraries:\n"
            + "\n".join(wrong)
            + "\nInstall the locked versions (`pip install -r requirements.lock`), or accept the "
            "installed ones with `twinloop doctor --write-versions`; stages that use them rerun."
        )
    device = declared.get("device", "cpu")
    if device not in ("cpu", "cuda"):
        raise ParamsError(f"versions.yaml: device {device!r}, expected cpu or cuda.")
    if device == "cuda" and not _cuda_driver():
        raise MachineError(
            "versions.yaml says device: cuda, but this machine has no CUDA driver; set it to cpu, "
            "or run `twinloop doctor` to see why."
        )
    return {key: declared[key] for key in sorted(used & set(declared))} | {"device": device}


def _cuda_driver() -> bool:
    """Whether a CUDA driver loads; importing torch to ask would cost each stage a second."""
    library = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _declared_keys(stage: str, root: Path) -> list[str]:
    graph = read_yaml(root / "dvc.yaml")
    params = graph.get("stages", {}).get(stage, {}).get("do", {}).get("params", [])
    for entry in params:
        if isinstance(entry, dict) and "versions.yaml" in entry:
            return [str(key) for key in entry["versions.yaml"]]
    return []


def _report(stage: Stage, result: Any, inputs: Inputs, params: StageParams) -> None:
    """Write the stage's metrics and pictures, each whole.

    Figures go to ``plots/<stage>``, which git keeps; films (the bytes of an mp4) to
    ``films/<stage>``, which DVC keeps.
    """
    folder = inputs.folder
    made = stage.plots(result, inputs, params)
    films = {name: film for name, film in made.items() if isinstance(film, bytes)}
    if figures := {name: figure for name, figure in made.items() if name not in films}:
        with _replacing(folder / "plots" / stage.name) as pictures:
            for name, figure in sorted(figures.items()):
                # No software tag: the same figure gives the same bytes.
                _lay_out(figure)
                figure.savefig(
                    pictures / f"{Path(name).stem}.png",
                    dpi=100,
                    metadata={"Software": None},
                    pil_kwargs={"compress_level": 3},  # level 6 takes twice the time for 1 % less
                )
    if films:
        with _replacing(folder / "films" / stage.name) as reel:
            for name, film in films.items():
                (reel / f"{Path(name).stem}.mp4").write_bytes(film)
    metrics = stage.metrics(result, inputs, params)
    write_json(folder / "metrics" / f"{stage.name}.json", metrics)


@contextmanager
def _replacing(target: Path) -> Iterator[Path]:
    """Give a fresh folder that takes the place of ``target`` when all went well."""
    fresh = Path(tempfile.mkdtemp(prefix=prefix(target.parent.name), dir=target.parents[1]))
    try:
        yield fresh
        fresh.chmod(0o755)
        target.parent.mkdir(exist_ok=True)
        replace_tree(fresh, target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _lay_out(figure: Any) -> None:
    """Let the figure's layout engine place the axes, once; ``savefig`` would draw twice for it."""
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
        figure.set_layout_engine("none")


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write sorted JSON to ``path``, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.tmp")
    fresh.write_text(json.dumps(content, indent=1, sort_keys=True, default=_number) + "\n")
    fsync(fresh)
    fresh.replace(path)


def _number(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"metric of type {type(value).__name__} is no JSON number")


def _provenance(path: Path, content: dict[str, Any]) -> None:
    """Times, machine and versions: beside the artifacts, never inside hashed data."""
    write_json(path, content)
