"""Figures of the frame: the demo object end to end, other objects, times, storage.

Run `python -m benchmarks.foundation`; `--only ROW` for one row.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from benchmarks.project import copy, run
from benchmarks.rows import Figure, Row, main
from tests.chain import create
from twinloop.artifacts.schema import ArraySpec, ArtifactSchema, GroupSpec
from twinloop.artifacts.store import open_artifact, write_artifact
from twinloop.card import STAGES

CODE = (
    "twinloop/**/*",
    "stages/**/*.py",
    "dvc.yaml",
    "params.yaml",
    "versions.yaml",
    "datasets/spam/*.yaml",
    "tests/tiny/*.yaml",
)
OTHERS = ("domino", "letter_a", "ketchup")
"""Presets beside the demo object: light, concave, heavy. n = 3 of 16: a row takes minutes."""


def demo() -> list[Figure]:
    """The demo object from nothing to report, then again; all its figures."""
    with tempfile.TemporaryDirectory() as scratch:
        root = copy(Path(scratch), ["spam"])
        first = run(["dvc", "repro"], root)
        again = run(["dvc", "repro"], root)
        figures = json.loads((root / "datasets/spam/metrics/evaluate.json").read_text())["figures"]
        files = max(
            sum(1 for p in store.rglob("*") if p.is_file())
            for store in (root / "datasets/spam").glob("*.zarr")
        )
        provenance = {
            stage: json.loads((root / f"datasets/spam/provenance/{stage}.json").read_text())
            for stage in STAGES
        }
    result = [
        Figure("demo object, first `dvc repro`", first, "s", 600.0, "lower", 1),
        Figure("demo object, `dvc repro` again", again, "s", 10.0, "lower", 1),
        Figure("most files in one artifact", files, "", 200, "lower", 1),
    ]
    result += [
        Figure(
            f"stage {stage}, wall time", provenance[stage]["wall_seconds"], "s", None, "lower", 1
        )
        for stage in STAGES
    ]
    return result + [_figure(f, "spam") for f in figures]


def preset(name: str) -> list[Figure]:
    """A preset beside the demo object through the same chain and params."""
    with tempfile.TemporaryDirectory() as scratch:
        root = copy(Path(scratch), [])
        run(["twinloop", "add", name, "--lab", name, "--license", "CC0-1.0"], root)
        run(["dvc", "repro"], root)
        metrics = json.loads((root / f"datasets/{name}/metrics/evaluate.json").read_text())
    return [_figure(f, name) for f in metrics["figures"]]


def _figure(figure: dict[str, Any], name: str) -> Figure:
    counted = f" ({figure['successes']}/{figure['n']})" if "successes" in figure else ""
    return Figure(
        f"{name}: {figure['figure'].replace('_', ' ')}{counted}",
        figure["value"],
        "" if figure["unit"] == "1" else figure["unit"],
        figure["target"],
        figure["better"],
        figure["n"],
        figure.get("interval"),
    )


def tiny() -> list[Figure]:
    """The tiny object that tests run: its whole chain."""
    with tempfile.TemporaryDirectory() as scratch:
        project = create(Path(scratch) / "tiny", {"tiny": {}})
        wall = run(["dvc", "repro"], project.root)
    return [Figure("tiny object, whole chain", wall, "s", 30.0, "lower", 1)]


def storage() -> list[Figure]:
    """Sharded artifacts against one file per frame in DVC, and reading one frame of many."""
    side, frames = 160, 4000
    spec = ArraySpec(
        dims=("frame", "y", "x"),
        dtype="uint8",
        units="1",
        description="noise",
        chunk={"frame": 1},
        shard=64,
    )
    rng = np.random.default_rng(0)
    data = xr.Dataset(
        {"image": (spec.dims, rng.integers(0, 255, (frames, side, side), dtype=np.uint8))}
    )
    times = {}
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        run(["git", "init", "-q"], root)
        run(["dvc", "init", "-q"], root)
        run(["dvc", "config", "cache.type", "copy"], root)
        for name, shard in (("sharded", 64), ("unsharded", 1)):
            kind = ArtifactSchema(
                name="bench",
                version="1.0.0",
                groups={"/": GroupSpec(arrays={"image": spec.model_copy(update={"shard": shard})})},
            )
            if shard > 1:
                write_artifact(root / name, kind, {"/": data})
            else:
                data.to_zarr(
                    root / name,
                    zarr_format=3,
                    consolidated=False,
                    encoding={"image": {"chunks": (1, side, side)}},
                )
            run(["dvc", "add", "-q", name], root)
            shutil.rmtree(root / name)
            times[name] = run(["dvc", "checkout", "-q", f"{name}.dvc"], root)
            if shard > 1:
                started = time.perf_counter()
                open_artifact(root / name, kind)["image"][frames // 2].to_numpy()
                times["read"] = time.perf_counter() - started
    return [
        Figure(
            "checkout time, unsharded over sharded (100 MB, 4000 frames)",
            times["unsharded"] / times["sharded"],
            "x",
            None,
            "higher",
            1,
            peer="unsharded Zarr",
        ),
        Figure("open an artifact of 4000 frames and read one", times["read"], "s", 1.0, "lower", 1),
    ]


ROWS = [
    Row("storage", storage, ("twinloop/artifacts/*.py",)),
    Row("tiny", tiny, CODE),
    Row("demo", demo, CODE),
    *(Row(name, partial(preset, name), CODE) for name in OTHERS),
]

if __name__ == "__main__":
    main("foundation", Path(__file__), ROWS)
