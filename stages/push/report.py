"""Metrics and pictures of `push`."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from stages.harness import Inputs
from stages.push.params import Params


def pushes(tree: xr.DataTree) -> list[str]:
    """Names of the pushes, in order."""
    return sorted(name for name in tree.children if name.startswith("push_"))


def metrics(tree: xr.DataTree, inputs: Inputs, params: Params) -> dict[str, Any]:
    """Clock offset, contact time, largest force and impulse of each push."""
    out: dict[str, Any] = {"pushes": {}}
    for name in pushes(tree):
        data = tree[name].to_dataset()
        force, time = data["contact_force"].values, data["robot_time"].values
        out["pushes"][name] = {
            "clock_offset_ms": 1e3 * float(data["clock_offset"]),
            "clock_offset_std_ms": 1e3 * float(data["clock_offset_std"]),
            "contact_time_s": float(data.attrs["contact_time"]),
            "force_largest_n": float(np.linalg.norm(force, axis=1).max()),
            "force_std_median_n": float(np.median(data["contact_force_std"].values)),
            "impulse_ns": float(np.linalg.norm(np.trapezoid(force, time, axis=0))),
        }
    offsets = [p["clock_offset_ms"] for p in out["pushes"].values()]
    out["clock_offset_ms"] = float(np.median(offsets))
    out["free_motion"] = {
        joint: {term: values[term] for term in ("rotor", "viscous", "coulomb")}
        for joint, values in tree.attrs["free_motion"].items()
    }
    return out


def plots(tree: xr.DataTree, inputs: Inputs, params: Params) -> dict[str, Figure]:
    """`force`: contact force with two standard deviations; `tip`: tip and object on one clock."""
    return {"force": force_curves(tree), "tip": tip_curves(tree)}


def since_start(data: xr.Dataset) -> np.ndarray:
    """Robot time (n,) s from the log's first sample: a log in Unix time fits no axis."""
    time = data["robot_time"].values
    return np.asarray(time - time[0])


def force_curves(tree: xr.DataTree) -> Figure:
    """Contact force of each push over the robot's clock."""
    names = pushes(tree)
    columns = 2
    rows = (len(names) + columns - 1) // columns
    inches = 2.1 * rows + 0.4
    figure = Figure(figsize=(11, inches))
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    figure.subplots_adjust(
        left=0.06, right=0.99, bottom=0.45 / inches, top=1 - 0.3 / inches, hspace=0.45, wspace=0.13
    )
    for axis, name in zip(axes, names, strict=False):
        data = tree[name].to_dataset()
        t = since_start(data)
        force = data["contact_force"].values
        std = data["contact_force_std"].values
        for k, colour in enumerate(("tab:red", "tab:green", "tab:blue")):
            axis.plot(t, force[:, k], color=colour, lw=1, label=f"f{'xyz'[k]}")
            low, high = force[:, k] - 2 * std[:, k], force[:, k] + 2 * std[:, k]
            axis.fill_between(t, low, high, color=colour, alpha=0.2, lw=0)
        axis.set_title(f"{name} {data.attrs.get('action', '')}", fontsize=8, loc="left")
        axis.set_ylabel("N", fontsize=8)
        axis.tick_params(labelsize=7)
    for axis in axes[len(names) :]:
        axis.set_axis_off()
    axes[0].legend(fontsize=7, ncol=3)
    axes[len(names) - 1].set_xlabel("robot time since the log began, s", fontsize=8)
    return figure


def tip_curves(tree: xr.DataTree) -> Figure:
    """Travel of tip (from first contact on) and object along the push, on the robot's clock."""
    names = pushes(tree)
    columns = 2
    rows = (len(names) + columns - 1) // columns
    inches = 2.1 * rows + 0.4
    figure = Figure(figsize=(11, inches))
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    figure.subplots_adjust(
        left=0.06, right=0.99, bottom=0.45 / inches, top=1 - 0.3 / inches, hspace=0.45, wspace=0.13
    )
    for axis, name in zip(axes, names, strict=False):
        data = tree[name].to_dataset()
        force = data["contact_force"].values
        direction = force[np.argmax(np.linalg.norm(force, axis=1))] * np.array([1.0, 1.0, 0.0])
        direction = direction / max(float(np.linalg.norm(direction)), 1e-12)
        tip, place = data["tip_position"].values, data["position_world_object"].values
        start = float(data["robot_time"][0])
        frame_time = data["frame_time"].values + float(data["clock_offset"]) - start
        lost = data["status"].values == 2
        moved = np.where(lost, np.nan, 1e3 * (place - place[0]) @ direction)
        size, std = (
            np.linalg.norm(data[n].values, axis=1) for n in ("contact_force", "contact_force_std")
        )
        first = int(np.argmax(size > 3 * std))
        axis.plot(since_start(data), 1e3 * (tip - tip[first]) @ direction, "k", lw=1, label="tip")
        axis.plot(frame_time, moved, "o", ms=2, color="tab:orange", label="object")
        offset, std = 1e3 * float(data["clock_offset"]), 1e3 * float(data["clock_offset_std"])
        axis.set_title(f"{name}: clock offset {offset:.1f} ± {std:.1f} ms", fontsize=8, loc="left")
        axis.set_ylabel("mm", fontsize=8)
        axis.tick_params(labelsize=7)
    for axis in axes[len(names) :]:
        axis.set_axis_off()
    axes[0].legend(fontsize=7)
    axes[len(names) - 1].set_xlabel("robot time since the log began, s", fontsize=8)
    return figure
