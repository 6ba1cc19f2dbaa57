"""Figures of ingest: video, structure from motion, metric scale, masks, clocks, storage.

Run `python -m benchmarks.ingest`; `--only ROW` for one row.  Rows on real captures read them from
the folder that TWINLOOP_DATA names (beside the clone by default) and give nothing without.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from benchmarks import (
    ingest_clock,
    ingest_masks,
    ingest_scale,
    ingest_sfm,
    ingest_stage,
    ingest_video,
)
from benchmarks.rows import Row, main
from tests.realdata import ROOT as DATA

CAPTURE = ("twinloop/capture/**/*.py", "twinloop/geometry/*.py")
LAB = ("twinloop/lab/**/*",)
STAGE = (*CAPTURE, *LAB, "stages/ingest/*.py", "twinloop/artifacts/**/*.py")


def _suite(name: str, *depends: str) -> tuple[str, ...]:
    return (f"benchmarks/ingest_{name}.py", *depends)


ROWS = [
    Row("decode", ingest_video.decode, _suite("video", *CAPTURE)),
    Row("memory", ingest_video.memory, _suite("video", *CAPTURE)),
    Row("storage", partial(ingest_stage.storage, DATA), _suite("stage", *STAGE)),
    Row("fox", partial(ingest_sfm.fox, DATA), _suite("sfm", *CAPTURE)),
    Row("rbt", partial(ingest_sfm.rbt, DATA), _suite("sfm", *CAPTURE)),
    Row("boardless", ingest_stage.boardless, _suite("stage", *STAGE)),
    Row("hand_eye", ingest_scale.hand_eye, _suite("scale", *CAPTURE, "tests/capture/*.py")),
    *(
        Row(f"scale_{name}", partial(ingest_scale.scale, name), _suite("scale", *CAPTURE, *LAB))
        for name in ingest_scale.PRESETS
    ),
    *(
        Row(f"masks_{name}", partial(ingest_masks.figures, name), _suite("masks", *CAPTURE, *LAB))
        for name in ingest_masks.PRESETS
    ),
    *(
        Row(
            f"clock_{name}",
            run,
            _suite("clock", "twinloop/tracking/*.py", "twinloop/hand/**/*", *LAB),
        )
        for name, run in (
            ("pushes", ingest_clock.pushes),
            ("swapped", ingest_clock.swapped),
            ("motion", ingest_clock.motion),
        )
    ),
]

if __name__ == "__main__":
    main("ingest", Path(__file__), ROWS)
