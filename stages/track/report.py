"""Metrics and pictures of `track`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from stages.harness import Inputs
from stages.track.params import Params
from twinloop.capture.push_session import load_session
from twinloop.geometry import se3
from twinloop.tracking.appearance import Shape
from twinloop.tracking.clip import Undistortion, read_clip
from twinloop.tracking.images import to_grey
from twinloop.tracking.overlay import crop_around, draw_outline, tile
from twinloop.tracking.pose_track import lost_intervals
from twinloop.tracking.solver import WorldCamera, rotation_log


def pushes(tree: xr.DataTree) -> list[str]:
    """Names of the pushes in a track, in order."""
    return sorted(name for name in tree.children if name.startswith("push_"))


def metrics(tree: xr.DataTree, inputs: Inputs, params: Params) -> dict[str, Any]:
    """Shares of ok, uncertain and lost frames, points per frame and stated accuracy."""
    out: dict[str, Any] = {
        "board_rms_px": float(tree.attrs["board_rms_px"]),
        "model_error_across_mm": 1e3 * float(tree.attrs["model_error_across_m"]),
        "model_error_rotation_deg": float(np.degrees(tree.attrs["model_error_rotation_rad"])),
        "pushes": {},
    }
    status = []
    for name in pushes(tree):
        data = tree[name].to_dataset()
        s = data["status"].values
        status.append(s)
        found = s < 2
        sigma = np.sqrt(np.diagonal(data["covariance"].values, axis1=1, axis2=2))
        out["pushes"][name] = {
            "frames": len(s),
            "ok": float((s == 0).mean()),
            "uncertain": float((s == 1).mean()),
            "lost": float((s == 2).mean()),
            "lost_intervals_s": [list(i) for i in lost_intervals(data["time"].values, s)],
            "motion_px": _motion(data.attrs),
            "notes": [n for n in (data.attrs["motion_note"], data.attrs["lost_note"]) if n],
            "start": data.attrs["start_method"],
            "modes": data.attrs["modes"],
            "inliers_median": float(np.median(data["inliers"].values)),
            "sigma_position_mm": _median(1e3 * sigma[found, :3].max(1)),
            "sigma_rotation_deg": _median(np.degrees(sigma[found, 3:].max(1))),
        }
    every = np.concatenate(status)
    out["frames"] = len(every)
    out["ok"] = float((every == 0).mean())
    out["lost"] = float((every == 2).mean())
    return out


def _motion(attributes: Mapping[Any, Any]) -> dict[str, float] | None:
    """Median, 95 % and longest way from frame to frame, px, or None when it is not known."""
    found = {k: float(attributes[f"motion_px_{k}"]) for k in ("median", "p95", "most")}
    return None if found["most"] < 0 else found


def _median(values: np.ndarray) -> float | None:
    """Median, or None when nothing was found."""
    return float(np.median(values)) if len(values) else None


def plots(tree: xr.DataTree, inputs: Inputs, params: Params) -> dict[str, Figure]:
    """`overlay`: the mesh's outline on frames of each push; `poses`: pose curves with bands."""
    return {"overlay": overlay(tree, inputs), "poses": pose_curves(tree)}


def overlay(tree: xr.DataTree, inputs: Inputs, columns: int = 6) -> Figure:
    """A strip per push: outline over the image, green ok, orange uncertain, red lost."""
    session = load_session(inputs.raw / "push")
    undistort = Undistortion(session.camera)
    root = tree.to_dataset()
    T_world_camera = se3.from_position_quaternion(
        root["position_world_camera"].values, root["quaternion_world_camera"].values
    )
    camera = WorldCamera(
        root["intrinsics"].values,
        se3.inverse(T_world_camera),
        session.camera.width,
        session.camera.height,
    )
    mesh = inputs.artifacts["reconstruct"]["mesh"]
    shape = Shape(mesh["vertices"].values.astype(np.float64), mesh["faces"].values)
    names = pushes(tree)
    strips = []
    for name in names:
        data = tree[name].to_dataset()
        poses = se3.from_position_quaternion(
            data["position_world_object"].values, data["quaternion_world_object"].values
        )
        chosen = np.linspace(0, len(poses) - 1, columns).round().astype(int)
        frames = {
            i: undistort(to_grey(image))  # the colours of outline and axes stand out on grey
            for i, (_, image) in enumerate(read_clip(session.video(name), session.camera))
            if i in chosen
        }
        pictures = []
        for i in chosen:
            status = int(data["status"].values[i])
            x0, y0, x1, y1 = crop_around(frames[i], camera, poses[chosen], shape)
            drawn = draw_outline(frames[i], camera, shape, poses[i], status)
            part = drawn[2 * y0 : 2 * y1, 2 * x0 : 2 * x1]
            label = f"{data['time'].values[i]:.2f} s"
            if i == chosen[0]:
                label = f"{name} {data.attrs.get('action', '')} {label}"
            pictures.append(tile(part, label))
        strips.append(np.concatenate(pictures, axis=1))
    sheet = np.concatenate(strips, axis=0)
    height, width = sheet.shape[:2]
    figure = Figure(figsize=(width / 100, height / 100))
    axis = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axis.imshow(sheet)
    axis.set_axis_off()
    return figure


def pose_curves(tree: xr.DataTree) -> Figure:
    """Position (mm) and rotation (deg) since the first frame, with two standard deviations."""
    names = pushes(tree)
    inches = 1.9 * len(names) + 0.6
    figure = Figure(figsize=(11, inches))
    axes = figure.subplots(len(names), 2, squeeze=False, sharex="row")
    figure.subplots_adjust(
        left=0.06, right=0.99, bottom=0.45 / inches, top=1 - 0.3 / inches, hspace=0.45, wspace=0.13
    )
    for row, name in zip(axes, names, strict=True):
        data = tree[name].to_dataset()
        poses = se3.from_position_quaternion(
            data["position_world_object"].values, data["quaternion_world_object"].values
        )
        t, lost = data["time"].values, data["status"].values == 2
        sigma = np.sqrt(np.diagonal(data["covariance"].values, axis1=1, axis2=2))
        moved = 1e3 * (poses[:, :3, 3] - poses[0, :3, 3])
        turned = np.degrees(rotation_log(poses[:, :3, :3] @ poses[0, :3, :3].T))
        for axis, curves, band, unit in (
            (row[0], moved, 2e3 * sigma[:, :3], "mm"),
            (row[1], turned, 2 * np.degrees(sigma[:, 3:]), "deg"),
        ):
            for k, colour in enumerate(("tab:red", "tab:green", "tab:blue")):
                y = np.where(lost, np.nan, curves[:, k])
                axis.plot(t, y, color=colour, lw=1, label="xyz"[k])
                axis.fill_between(t, y - band[:, k], y + band[:, k], color=colour, alpha=0.2, lw=0)
            axis.set_ylabel(unit, fontsize=8)
            axis.tick_params(labelsize=7)
        row[0].set_title(f"{name} {data.attrs.get('action', '')}", fontsize=8, loc="left")
    axes[0, 0].legend(fontsize=7, ncol=3)
    axes[-1, 0].set_xlabel("camera time, s", fontsize=8)
    axes[-1, 1].set_xlabel("camera time, s", fontsize=8)
    return figure
