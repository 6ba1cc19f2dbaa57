"""Metrics and pictures of `retarget`."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from stages.harness import Inputs
from stages.retarget.params import Params
from twinloop.geometry import se3
from twinloop.hand.kinematics import HandKinematics
from twinloop.hand.model import RobotModel


def metrics(tree: xr.DataTree, inputs: Inputs, params: Params) -> dict[str, Any]:
    """Return errors of following the hand, contact depth and gap, and how much is feasible."""
    error, gap = tree["tip_error"].values, tree["gap"].values
    holding = tree["holding"].values.astype(bool)
    feasible = tree["feasible"].values
    time = tree["time"].values
    rate = np.abs(np.diff(tree["joint_position"].values, axis=0)) / np.diff(time)[:, None]
    held = gap[holding]
    return {
        "frames": len(time),
        "hand_scale": float(tree.attrs["hand_scale"]),
        "tip_error_mean_mm": 1e3 * float(error.mean()),
        "tip_error_p95_mm": 1e3 * float(np.quantile(error, 0.95)),
        "holding_frames": int(holding.any(axis=1).sum()),
        "holding_tips": int(tree["contact_known"].values.sum()),
        "holding_gap_max_mm": 1e3 * float(np.maximum(held, 0).max(initial=0.0)),
        "penetration_max_mm": 1e3 * float(np.maximum(-gap, 0).max(initial=0.0)),
        "joint_speed_max_rad_s": float(rate.max(initial=0.0)),
        "feasible_frames": int(feasible.sum()),
        "feasible_share": float(feasible.mean()),
    }


def plots(tree: xr.DataTree, inputs: Inputs, params: Params) -> dict[str, Figure]:
    """Return fingertips on the mesh, errors and joints over time, the robot hand replaying it."""
    return {
        "contacts": _contacts(tree, inputs),
        "motion": _motion(tree),
        "replay": _replay(tree, inputs, params),
    }


def _contacts(tree: xr.DataTree, inputs: Inputs) -> Figure:
    vertices = inputs.artifacts["reconstruct"]["mesh"]["vertices"].values * 1e3
    human, robot = tree["human_tip"].values * 1e3, tree["robot_tip"].values * 1e3
    holding = tree["holding"].values.astype(bool)
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    step = max(1, len(vertices) // 4000)
    for number, (i, j) in enumerate(((0, 2), (1, 2))):
        axes = figure.add_subplot(1, 2, number + 1)
        axes.plot(vertices[::step, i], vertices[::step, j], ".", color="0.8", markersize=1)
        for tip, name in enumerate(tree.attrs["tips"]):
            colour = f"C{tip}"
            axes.plot(human[:, tip, i], human[:, tip, j], "-", color=colour, alpha=0.3)
            on = holding[:, tip]
            axes.plot(
                robot[on, tip, i], robot[on, tip, j], "o", color=colour, markersize=3, label=name
            )
        axes.set_aspect("equal")
        axes.set_xlabel(f"{'xyz'[i]} (mm)")
        axes.set_ylabel(f"{'xyz'[j]} (mm)")
    figure.axes[0].legend(loc="upper right", fontsize=8)
    figure.suptitle("Human fingertips (lines) and robot pads while holding (dots), object frame")
    return figure


def _motion(tree: xr.DataTree) -> Figure:
    time = tree["time"].values
    figure = Figure(figsize=(9, 5), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True)
    for tip, name in enumerate(tree.attrs["tips"]):
        top.plot(time, tree["tip_error"].values[:, tip] * 1e3, label=name)
    top.set_ylabel("distance to human tip (mm)")
    top.legend(fontsize=8)
    bottom.plot(time, tree["joint_position"].values, linewidth=0.8)
    bottom.set_ylabel("hand joints (rad)")
    bottom.set_xlabel("time (s)")
    return figure


def _replay(tree: xr.DataTree, inputs: Inputs, params: Params) -> Figure:
    """Robot hand at five moments, seen along the row of fingers: links as lines, pads as discs."""
    kinematics = HandKinematics(RobotModel.load(params.robot))
    joints = tree["joint_position"].values
    wrist = se3.from_position_quaternion(
        tree["position_object_wrist"].values, tree["quaternion_object_wrist"].values
    )
    chosen = np.unique(np.linspace(0, len(joints) - 1, 5).astype(int))
    poses = kinematics.links(joints[chosen])
    # Picture plane: horizontal from fingers to thumb at the last moment, and up.
    across = wrist[-1, :2, 0] / max(float(np.linalg.norm(wrist[-1, :2, 0])), 1e-9)
    vertices = inputs.artifacts["reconstruct"]["mesh"]["vertices"].values
    shape = vertices[:: max(1, len(vertices) // 2500)]
    figure = Figure(figsize=(11, 3.4), layout="constrained")
    for number, frame in enumerate(chosen):
        axes = figure.add_subplot(1, len(chosen), number + 1)
        axes.plot(1e3 * shape[:, :2] @ across, 1e3 * shape[:, 2], ".", color="0.85", markersize=1)
        for tip, name in enumerate(kinematics.model.tips):
            chain = kinematics.model.chain(kinematics.model.tip(name).link)
            names = [kinematics.model.joints[i].link for i in chain if i in kinematics.hand]
            local = np.array([poses[link][number, :3, 3] for link in names])
            line = np.vstack([se3.apply(wrist[frame], local), tree["robot_tip"].values[frame, tip]])
            place = 1e3 * np.stack([line[:, :2] @ across, line[:, 2]])
            axes.plot(*place, "-", color=f"C{tip}", linewidth=2)
            axes.plot(*place[:, -1], "o", color=f"C{tip}", markersize=7)
        axes.set_aspect("equal")
        axes.set_xlim(-110, 110)
        axes.set_ylim(1e3 * vertices[:, 2].min() - 10, 1e3 * vertices[:, 2].max() + 190)
        axes.set_title(f"{tree['time'].values[frame]:.2f} s", fontsize=9)
        if number:
            axes.set_yticklabels([])
    figure.suptitle("Demonstration replayed by the robot hand, object frame (mm)", fontsize=10)
    return figure
