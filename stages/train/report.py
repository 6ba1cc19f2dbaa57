"""Metrics and pictures of `train`."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from stages.harness import Inputs
from stages.train.params import Params
from twinloop.metrics.statistics import Rate


def metrics(tree: xr.DataTree, inputs: Inputs, params: Params) -> dict[str, Any]:
    """Return losses, forces, and the success rate in the twin with its interval."""
    success = tree["twin_trials"]["success"].values
    rate = Rate(int(success.sum()), len(success))
    score = tree["search"]["score"].values
    return {
        "joint_loss_rad": float(np.sqrt(tree["training"]["joints"].values[-1])),
        "force_loss_log": float(np.sqrt(tree["training"]["force"].values[-1])),
        "side_force_n": float(tree["side_force"].values),
        "law_side_force_n": float(tree["law_side_force"].values),
        "payload_side_force_n": float(tree["payload_side_force"].values),
        "search_score_cloned": float(score[0]),
        "search_score_refined": float(score.max()),
        "rollouts_in_search": len(score) * params.cases,
        "twin_successes": rate.successes,
        "twin_trials": rate.trials,
        "twin_success_low": rate.interval[0],
        "twin_success_high": rate.interval[1],
        "notes": list(tree.attrs["notes"]),
    }


def plots(tree: xr.DataTree, inputs: Inputs, params: Params) -> dict[str, Figure]:
    """Return the training curve, the search, and the planned contacts on the object."""
    return {"training": _training(tree), "grasp": _grasp(tree, inputs)}


def _training(tree: xr.DataTree) -> Figure:
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for name in ("joints", "wrist", "contacts", "force"):
        left.semilogy(np.maximum(tree["training"][name].values, 1e-12), label=name)
    left.set_xlabel("epoch")
    left.set_ylabel("loss")
    left.legend(fontsize=8)
    score = tree["search"]["score"].values
    right.plot(score, "o", markersize=4)
    right.plot(np.maximum.accumulate(score), "-", label="best so far")
    right.set_xlabel("candidate in the twin (0: as cloned)")
    right.set_ylabel("score")
    right.legend(fontsize=8)
    return figure


def _grasp(tree: xr.DataTree, inputs: Inputs) -> Figure:
    vertices = inputs.artifacts["reconstruct"]["mesh"]["vertices"].values * 1e3
    point, normal = tree["contact_point"].values * 1e3, tree["contact_normal"].values
    force = tree["finger_force"].values
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    step = max(1, len(vertices) // 4000)
    for number, (i, j) in enumerate(((0, 1), (1, 2))):
        axes = figure.add_subplot(1, 2, number + 1)
        axes.plot(vertices[::step, i], vertices[::step, j], ".", color="0.8", markersize=1)
        for tip, name in enumerate(tree.attrs["tips"]):
            start = point[tip] - normal[tip] * 4.0 * force[tip]
            axes.annotate(
                "",
                xy=(point[tip, i], point[tip, j]),
                xytext=(start[i], start[j]),
                arrowprops={"arrowstyle": "->", "color": f"C{tip}"},
            )
            axes.plot(
                point[tip, i],
                point[tip, j],
                "o",
                color=f"C{tip}",
                label=f"{name} {force[tip]:.1f} N",
            )
        axes.set_aspect("equal")
        axes.set_xlabel(f"{'xyz'[i]} (mm)")
        axes.set_ylabel(f"{'xyz'[j]} (mm)")
    figure.axes[0].legend(fontsize=8)
    figure.suptitle("Planned contacts and forces, object frame")
    return figure
