"""Metrics and pictures of `evaluate`."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from stages.evaluate.figures import to_json
from stages.evaluate.params import Params
from stages.harness import Inputs
from twinloop.metrics.statistics import Rate


def metrics(tree: xr.DataTree, inputs: Inputs, params: Params) -> dict[str, Any]:
    """Return the figures, and identified parameters beside the truth."""
    table = tree["parameters"]
    parameters = []
    for i, name in enumerate(table.attrs["parameters"]):
        truth = float(table["truth"].values[i])
        covered = int(table["covered"].values[i])
        parameters.append(
            {
                "parameter": name,
                "unit": table.attrs["units"][i],
                "value": float(table["value"].values[i]),
                "interval": [float(table["low"].values[i]), float(table["high"].values[i])],
                "truth": truth if np.isfinite(truth) else None,
                "covered": None if covered < 0 else bool(covered),
                "identifiable": bool(table["identifiable"].values[i]),
            }
        )
    return {
        "world": tree.attrs["world"],
        "figures": to_json(tree["figures"]),
        "parameters": parameters,
    }


def plots(tree: xr.DataTree, inputs: Inputs, params: Params) -> dict[str, Figure]:
    """Return success with intervals, lifts, identified values beside truth, mesh error."""
    figures = {"success": _success(tree), "forces": _forces(tree), "parameters": _parameters(tree)}
    if "mesh" in tree.children:
        figures["mesh_error"] = _mesh(tree)
    if "tracking" in tree.children and tree["tracking"].sizes.get("push", 0):
        figures["tracking"] = _tracking(tree, params)
    return figures


def _success(tree: xr.DataTree) -> Figure:
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.subplots()
    names = tree.attrs["controllers"]
    for i in range(len(names)):
        success = tree["trials"]["success"].values[i]
        rate = Rate(int(success.sum()), len(success))
        low, high = rate.interval
        axes.bar(i, rate.value, color=f"C{i}")
        axes.errorbar(
            i,
            rate.value,
            yerr=[[rate.value - low], [high - rate.value]],
            color="black",
            capsize=6,
        )
        axes.text(i, 1.04, f"{rate.successes}/{rate.trials}", ha="center")
    axes.set_xticks(range(len(names)), [name.replace("_", " ") for name in names])
    axes.set_ylim(0, 1.12)
    axes.set_ylabel("grasp success, 95 % Wilson interval")
    where = "hidden true world" if tree.attrs["world"] == "lab" else "twin, posterior samples"
    axes.set_title(f"Lift {where}", fontsize=10)
    return figure


def _forces(tree: xr.DataTree) -> Figure:
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    trials = tree["trials"]
    needed = trials["needed_force"].values
    for i, name in enumerate(tree.attrs["controllers"]):
        side = np.minimum(
            trials["finger_side_force"].values[i], trials["thumb_side_force"].values[i]
        )
        number = np.arange(len(side))
        left.plot(number, side, "o", color=f"C{i}", markersize=4, label=name.replace("_", " "))
        right.plot(number, trials["lifted"].values[i] * 1e3, "o", color=f"C{i}", markersize=4)
    left.plot(needed, "k--", linewidth=1, label="least that holds")
    left.set_ylabel("side force while holding (N)")
    left.legend(fontsize=8)
    right.set_ylabel("height at the end (mm)")
    for axes in (left, right):
        axes.set_xlabel("trial")
    return figure


def _parameters(tree: xr.DataTree) -> Figure:
    """Every parameter in units of its own interval, so that all fit one picture."""
    table = tree["parameters"]
    names = table.attrs["parameters"]
    value, low, high, truth = (table[key].values for key in ("value", "low", "high", "truth"))
    half = np.maximum(0.5 * (high - low), 1e-30)
    figure = Figure(figsize=(7, 0.34 * len(names) + 1.4), layout="constrained")
    axes = figure.subplots()
    rows = np.arange(len(names))[::-1]
    axes.errorbar(
        np.zeros(len(names)),
        rows,
        xerr=np.stack([(value - low) / half, (high - value) / half]),
        fmt="o",
        color="C0",
        capsize=4,
        label="identified, 95 % interval",
    )
    known = np.isfinite(truth)
    offset = np.clip((truth - value) / half, -4, 4)
    axes.plot(offset[known], rows[known], "D", color="C3", markersize=5, label="truth")
    labels = [
        f"{name}{'' if table['identifiable'].values[i] else ' (unidentifiable)'}"
        for i, name in enumerate(names)
    ]
    axes.set_yticks(rows, labels)
    axes.set_xlabel("difference to the identified value, half widths of the interval")
    axes.legend(fontsize=8, loc="lower right")
    return figure


def _mesh(tree: xr.DataTree) -> Figure:
    point, distance = tree["mesh"]["point"].values * 1e3, tree["mesh"]["distance"].values * 1e3
    figure = Figure(figsize=(9.5, 3.8), layout="constrained")
    top = max(float(np.quantile(distance, 0.99)), 1e-3)
    for number, (i, j, k, sign) in enumerate(((0, 2, 1, -1), (1, 2, 0, 1), (0, 1, 2, 1))):
        axes = figure.add_subplot(1, 3, number + 1)
        order = np.argsort(sign * point[:, k], kind="stable")
        shown = axes.scatter(
            point[order, i],
            point[order, j],
            c=distance[order],
            s=5,
            cmap="inferno",
            vmin=0,
            vmax=top,
        )
        axes.set_aspect("equal")
        axes.set_xlabel(f"{'xyz'[i]} (mm)")
        axes.set_ylabel(f"{'xyz'[j]} (mm)")
    figure.colorbar(shown, ax=figure.axes, label="distance to the true surface (mm)")
    return figure


def _tracking(tree: xr.DataTree, params: Params) -> Figure:
    data = tree["tracking"]
    figure = Figure(figsize=(7, 3.2), layout="constrained")
    axes = figure.subplots()
    number = np.arange(data.sizes["push"])
    axes.bar(number, data["add_mean"].values * 1e3, color="C0", label="mean")
    axes.plot(number, data["add_p95"].values * 1e3, "k_", markersize=14, label="95 % quantile")
    axes.axhline(params.target_add, color="C3", linewidth=1, linestyle="--", label="aim")
    axes.set_xticks(number, [str(name) for name in data.attrs["pushes"]], rotation=30)
    axes.set_ylabel("ADD (mm)")
    axes.legend(fontsize=8)
    return figure
