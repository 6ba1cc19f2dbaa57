"""Figures of tracking: lab pushes, two third-party sequences, speed, wrong knowledge.

Run `python -m benchmarks.track`; `--only ROW` for one row. Scenes are built first, some five CPU
minutes an object, and kept (see track_scenes; TWINLOOP_SCENES names a folder of scenes to be taken
as they are). Times are CPU times of one core, but for the row `parallel`, which needs an idle
machine. The third-party sequences are read from the folder that TWINLOOP_DATA names (beside the
clone by default).
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from benchmarks import track_costs, track_errors, track_lab, track_others
from benchmarks.rows import CACHE, Row, digest, main
from benchmarks.track_scenes import objects, scene

TRACKER = (
    "twinloop/tracking/*.py",
    "twinloop/splat/*.py",
    "twinloop/geometry/*.py",
    "twinloop/metrics/*.py",
    "stages/track/*.py",
    "benchmarks/track_run.py",
    "benchmarks/track_scores.py",
    "benchmarks/track_plots.py",
    "benchmarks/track_sequence.py",
)
SCENES = ("benchmarks/track_scenes.py", "benchmarks/track_align.py")


def lab_row(name: str) -> Row:
    """The row of one object."""
    return Row(
        f"lab_{name}",
        lambda: track_lab.object_figures(name, kept_at(name)),
        ("benchmarks/track_lab.py", track_lab.scene_glob(name), *SCENES, *TRACKER),
    )


def kept_at(name: str) -> Path:
    """File of an object's tracked clips, for this code and this scene."""
    return CACHE / "track_runs" / f"{name}-{digest(lab_row(name), Path(__file__))[:24]}.npz"


def rows() -> list[Row]:
    """All rows, for the objects whose scenes are to be had."""
    names = objects()
    scenes = tuple(track_lab.scene_glob(name) for name in names)
    lab = ("benchmarks/track_lab.py", *scenes, *SCENES, *TRACKER)
    others = ("benchmarks/track_others.py", "benchmarks/track_real.py", *TRACKER)
    used = (*(track_lab.scene_glob(n) for n in track_errors.OBJECTS), *SCENES, *TRACKER)
    printed = (*(track_lab.scene_glob(n) for n in track_errors.PRINTED), *SCENES, *TRACKER)
    return [
        *(lab_row(name) for name in names),
        Row("lab_all", partial(track_lab.all_figures, kept_at), lab),
        Row("teabox", track_others.box, others),
        Row("rbt_rgb", partial(track_others.recording, False), others),
        Row("rbt_depth", partial(track_others.recording, True), others),
        Row("speed", track_costs.speed, ("benchmarks/track_costs.py", *used)),
        Row("parallel", track_costs.parallel, ("benchmarks/track_costs.py", *used)),
        Row("last_step", track_errors.last_step, ("benchmarks/track_errors.py", *printed)),
        Row("sensitivity", track_errors.sensitivity, ("benchmarks/track_errors.py", *used)),
    ]


def needed(wanted: str | None) -> list[str]:
    """Objects whose scenes a row (None: all rows) is about to use."""
    if wanted in (None, "lab_all"):
        return objects()
    if wanted in ("speed", "parallel", "sensitivity"):
        return list(track_errors.OBJECTS)
    if wanted == "last_step":
        return list(track_errors.PRINTED)
    return [name for name in objects() if wanted == f"lab_{name}"]


if __name__ == "__main__":
    if not {"-h", "--help"} & set(sys.argv):
        # Before the rows are looked up in the cache, which depends on the scenes.
        only = sys.argv[sys.argv.index("--only") + 1 :] if "--only" in sys.argv else [None]
        for name in needed(*only[:1]):
            scene(name)
    main("track", Path(__file__), rows())
