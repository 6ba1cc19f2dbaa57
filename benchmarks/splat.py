"""Figures of splatting: rasterisers, loss, training, mesh, hulls, replay, the whole stage.

Run `python -m benchmarks.splat`; `--only ROW` for one row. Times are of two idle cores: let nothing
else run. With a CUDA card, `python -m benchmarks.splat --gpu` compares gsplat with the CPU in under
four minutes. Rows on real photos read them from the folder that TWINLOOP_DATA names (beside the
clone by default).
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import torch

from benchmarks import (
    splat_gpu,
    splat_loss,
    splat_mesh,
    splat_raster,
    splat_replay,
    splat_stage,
    splat_train,
)
from benchmarks.rows import Figure, Row, main
from benchmarks.splat_scenes import HOLLOW, PRESETS
from tests.realdata import ROOT as DATA

SPLAT = ("twinloop/splat/**/*.py", "twinloop/geometry/*.py", "twinloop/threads.py")
LAB = ("twinloop/lab/**/*",)
SCENES = ("benchmarks/splat_scenes.py", *SPLAT, *LAB)


def _suite(name: str, *depends: str) -> tuple[str, ...]:
    return (f"benchmarks/splat_{name}.py", *depends)


def gpu() -> list[Figure]:
    """Both rasterisers against each other and, where there is a card, gsplat's training curve."""
    figures = splat_gpu.compare()
    if torch.cuda.is_available():
        figures += splat_train.scene_figures(PRESETS[1], "cuda")
    return figures


GPU = Row("gpu", gpu, _suite("gpu", "benchmarks/splat_raster.py", *SPLAT))

ROWS = [
    Row("speed", splat_raster.speed, _suite("raster", *SPLAT)),
    Row("threads", splat_raster.thread_scaling, _suite("raster", *SPLAT)),
    Row("eager", splat_raster.against_eager, _suite("raster", *SPLAT)),
    Row("loss", splat_loss.figures, _suite("loss", *SPLAT)),
    Row("rate", splat_train.rate, _suite("train", *SCENES)),
    *(
        Row(f"train_{name}", partial(splat_train.scene_figures, name), _suite("train", *SCENES))
        for name in PRESETS
    ),
    Row("large", splat_train.large, _suite("train", *SCENES)),
    *(
        Row(
            f"fox_{which}",
            partial(splat_train.fox, DATA / "fox", which),
            _suite("train", *SPLAT, "twinloop/capture/sfm*.py"),
        )
        for which in ("small", "large")
    ),
    *(
        Row(f"mesh_{name}", partial(splat_mesh.scene_figures, name), _suite("mesh", *SCENES))
        for name in (*PRESETS, *HOLLOW)
    ),
    Row("filters", splat_mesh.filters, _suite("mesh", *SCENES)),
    Row("starts", splat_mesh.starts, _suite("mesh", *SCENES)),
    Row("sets", splat_mesh.sets, _suite("mesh", *SCENES)),
    Row("sets_bowl", partial(splat_mesh.sets, "bowl"), _suite("mesh", *SCENES)),
    *(
        Row(
            f"phone_{name}",
            partial(splat_stage.phone, name),
            _suite("stage", "stages/reconstruct/*.py", "stages/ingest/*.py", *SCENES),
        )
        for name in splat_stage.OBJECTS
    ),
    Row("replay", partial(splat_replay.figures, "spam"), _suite("replay", *SCENES)),
    GPU,
]

if __name__ == "__main__":
    if "--gpu" in sys.argv:
        sys.argv = [sys.argv[0], "--only", GPU.name]
    main("splat", Path(__file__), ROWS, "; --gpu is short for --only gpu")
