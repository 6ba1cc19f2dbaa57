"""Figures of `lab`: sizes and lengths of the captures, never the hidden properties."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from stages.harness import Inputs
from stages.lab.params import Params
from stages.lab.schema import TRUTH_SCHEMA
from twinloop.artifacts.store import open_artifact


def metrics(out: Path, inputs: Inputs, params: Params) -> dict[str, Any]:
    """Return number and bytes of the raw files and the length of each push."""
    files = [path for path in (out / "raw").rglob("*") if path.is_file()]
    tree = open_artifact(out / "truth" / "lab" / "truth.zarr", TRUTH_SCHEMA)
    pushes = {name: node for name, node in tree.children.items() if name.startswith("push_")}
    return {
        "raw_files": len(files),
        "raw_bytes": sum(path.stat().st_size for path in files),
        "pushes": len(pushes),
        "push_frames": sum(node.sizes["frame"] for node in pushes.values()),
        "push_seconds": round(
            sum(float(np.ptp(node.to_dataset()["time"].values)) for node in pushes.values()), 3
        ),
    }


def plots(out: Path, inputs: Inputs, params: Params) -> dict[str, Figure]:
    """Return the robot's contact force over time, one row per push."""
    tree = open_artifact(out / "truth" / "lab" / "truth.zarr", TRUTH_SCHEMA)
    names = sorted(name for name in tree.children if name.startswith("push_"))
    figure = Figure(figsize=(7.0, 1.3 * max(len(names), 1)), layout="constrained")
    axes = figure.subplots(max(len(names), 1), 1, squeeze=False)[:, 0]
    for name, axis in zip(names, axes, strict=False):
        node = tree[name]
        axis.plot(node["robot_time"].values, node["contact_force"].values, linewidth=0.9)
        axis.set_ylabel("N")
        axis.set_title(f"{name} {node.attrs['action']}", fontsize=8, loc="left")
    axes[-1].set_xlabel("robot time / s (x, y, z of the force on the object)")
    return {"contact_force.png": figure}
