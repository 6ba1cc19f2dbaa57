"""Metrics and pictures of `identify`."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stages.harness import Inputs
from stages.identify.params import Params

_COLOURS = {"identified": "tab:green", "prior-dominated": "tab:orange", "unidentifiable": "tab:red"}
_AXES = ("tab:red", "tab:green", "tab:blue")


def metrics(tree: xr.DataTree, inputs: Inputs, params: Params) -> dict[str, Any]:
    """Estimates with verdicts, the pose-only ablation, misfit per push, held-out prediction."""
    residuals = tree["residuals"].to_dataset(inherit=False)
    pushes = {
        name: errors(residuals, i)
        | {
            "held_out": bool(residuals["held_out"][i]),
            "pose_chi2": float(residuals["pose_chi2"][i]),
            "force_chi2": float(residuals["force_chi2"][i]),
        }
        for i, name in enumerate(residuals.attrs["pushes"])
    }
    held = [push for push in pushes.values() if push["held_out"]]
    return {
        "parameters": _table(tree.to_dataset(inherit=False), tree.attrs),
        "pose_only": _table(
            tree["pose_only"].to_dataset(inherit=False),
            {**tree.attrs, "verdicts": tree["pose_only"].attrs["verdicts"]},
        ),
        "pushes": pushes,
        "held_out": {
            key: float(np.sqrt(np.mean([push[key] ** 2 for push in held])))
            for key in ("position_rms_mm", "rotation_rms_deg", "force_rms_n")
        }
        if held
        else {},
        "excluded": tree.attrs["excluded"],
        "cost": float(tree.attrs["cost"]),
    }


def _table(data: xr.Dataset, attrs: dict[str, Any]) -> dict[str, Any]:
    return {
        name: {
            "value": float(data["value"][i]),
            "std": float(data["std"][i]),
            "low": float(data["low"][i]),
            "high": float(data["high"][i]),
            "unit": attrs["units"][i],
            "verdict": attrs["verdicts"][i],
        }
        for i, name in enumerate(attrs["parameters"])
    }


def errors(residuals: xr.Dataset, push: int) -> dict[str, float]:
    """Root mean square of prediction minus measurement of one push: mm, deg, N."""

    def rms(pair: tuple[str, str], rows: Any) -> float:
        gap = residuals[pair[0]].values[rows] - residuals[pair[1]].values[rows]
        return float(np.sqrt((gap**2).sum(axis=1).mean()))

    frames = residuals["frame_push"].values == push
    bins = residuals["bin_push"].values == push
    return {
        "position_rms_mm": 1e3 * rms(("predicted_position", "measured_position"), frames),
        "rotation_rms_deg": float(
            np.rad2deg(rms(("predicted_rotation", "measured_rotation"), frames))
        ),
        "force_rms_n": rms(("predicted_force", "measured_force"), bins),
    }


def plots(tree: xr.DataTree, inputs: Inputs, params: Params) -> dict[str, Figure]:
    """`posterior`: bars against priors; `fit`: curves per push; `table`: what the data tell."""
    return {"posterior": posterior(tree), "fit": fit_curves(tree), "table": table(tree)}


def posterior(tree: xr.DataTree) -> Figure:
    """95 % interval of every parameter over its prior's, each in units of the prior sd."""
    data = tree.to_dataset(inherit=False)
    names, verdicts = tree.attrs["parameters"], tree.attrs["verdicts"]
    figure = Figure(figsize=(8, 0.42 * len(names) + 1.2), layout="constrained")
    axis: Axes = figure.subplots()
    for i, name in enumerate(names):
        centre, unit = float(data["prior_value"][i]), float(data["prior_std"][i])
        low, high, value = (
            (float(data[key][i]) - centre) / unit for key in ("low", "high", "value")
        )
        axis.plot([-1.96, 1.96], [i, i], color="0.85", lw=9, solid_capstyle="butt")
        axis.plot([low, high], [i, i], color=_COLOURS[verdicts[i]], lw=5, solid_capstyle="butt")
        axis.plot(value, i, "k|", ms=12)
        text = f"{float(data['value'][i]):.4g} ± {float(data['std'][i]):.2g}"
        axis.text(4.1, i, text, va="center")
        axis.text(-4.1, i, name, va="center", ha="right")
    axis.set(xlim=(-4, 4), ylim=(len(names) - 0.4, -0.6), yticks=[], xlabel="prior sd")
    handles = [axis.plot([], [], color=c, lw=5, label=v)[0] for v, c in _COLOURS.items()]
    handles += axis.plot([], [], color="0.85", lw=9, label="prior, 95 %")
    figure.legend(handles=handles, loc="outside upper center", ncols=4, fontsize=8)
    return figure


def fit_curves(tree: xr.DataTree) -> Figure:
    """Force, position and rotation of each push: dots measured, lines simulated."""
    data = tree["residuals"].to_dataset(inherit=False)
    names = data.attrs["pushes"]
    figure = Figure(figsize=(12, 1.9 * len(names)), layout="constrained")
    axes = figure.subplots(len(names), 3, squeeze=False)
    for i, name in enumerate(names):
        frames, bins = data["frame_push"].values == i, data["bin_push"].values == i
        columns = (
            ("force", "N", data["bin_time"].values[bins], bins, 1.0),
            ("position", "mm", data["frame_time"].values[frames], frames, 1e3),
            ("rotation", "deg", data["frame_time"].values[frames], frames, np.rad2deg(1.0)),
        )
        for axis, (what, unit, time, rows, scale) in zip(axes[i], columns, strict=True):
            for k, colour in enumerate(_AXES):
                measured = scale * data[f"measured_{what}"].values[rows, k]
                axis.plot(time, measured, ".", ms=3, color=colour)
                predicted = scale * data[f"predicted_{what}"].values[rows, k]
                axis.plot(time, predicted, color=colour, lw=1, label="xyz"[k])
            axis.set_ylabel(f"{what} [{unit}]", fontsize=8)
            axis.tick_params(labelsize=7)
        note = " (held out: predicted only)" if int(data["held_out"][i]) else ""
        axes[i, 0].set_title(name + note, fontsize=9, loc="left")
    axes[0, 0].legend(fontsize=7)
    for axis in axes[-1]:
        axis.set_xlabel("time [s]", fontsize=8)
    return figure


def table(tree: xr.DataTree) -> Figure:
    """Value, interval and verdict with efforts and from poses alone."""
    data, alone = tree.to_dataset(inherit=False), tree["pose_only"].to_dataset(inherit=False)
    names, units = tree.attrs["parameters"], tree.attrs["units"]
    rows, colours = [], []
    for i, name in enumerate(names):
        verdicts = (tree.attrs["verdicts"][i], tree["pose_only"].attrs["verdicts"][i])
        spans = [
            f"{float(d['value'][i]):.4g} [{float(d['low'][i]):.4g}, {float(d['high'][i]):.4g}]"
            for d in (data, alone)
        ]
        rows.append([f"{name} [{units[i]}]", spans[0], verdicts[0], spans[1], verdicts[1]])
        shade = [(*_rgb(_COLOURS[v]), 0.3) for v in verdicts]
        colours.append(["w", "w", shade[0], "w", shade[1]])
    figure = Figure(figsize=(11, 0.32 * len(names) + 0.6), layout="constrained")
    axis: Axes = figure.subplots()
    axis.axis("off")
    shown = axis.table(
        rows,
        cellColours=colours,
        colLabels=["", "poses and efforts, 95 %", "verdict", "poses alone, 95 %", "verdict"],
        loc="center",
        cellLoc="left",
        colWidths=[0.2, 0.28, 0.14, 0.28, 0.14],
    )
    shown.auto_set_font_size(False)
    shown.set_fontsize(8)
    return figure


def _rgb(name: str) -> tuple[float, float, float]:
    from matplotlib.colors import to_rgb

    return to_rgb(name)
