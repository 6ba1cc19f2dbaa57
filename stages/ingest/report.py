"""Metrics and pictures of `ingest`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from numpy.typing import NDArray

from stages.harness import Inputs
from stages.ingest.params import Params
from twinloop.capture.mask_video import write_overlay
from twinloop.capture.select import coverage
from twinloop.capture.survey import Verdict

COLOURS = {
    Verdict.KEPT: "tab:green",
    Verdict.SPARE: "lightgrey",
    Verdict.BLURRED: "tab:red",
    Verdict.DUPLICATE: "tab:purple",
    Verdict.NO_BOARD: "tab:brown",
    Verdict.MISFIT: "tab:orange",
    Verdict.REDUNDANT: "tab:blue",
    Verdict.BAD_MASK: "black",
    Verdict.OTHER_SIZE: "tab:pink",
    Verdict.NOT_REGISTERED: "tab:olive",
    Verdict.NO_MASK: "dimgrey",
}
WHY = {
    Verdict.KEPT: "kept",
    Verdict.SPARE: "a sharper one is near",
    Verdict.BLURRED: "blurred",
    Verdict.DUPLICATE: "duplicate",
    Verdict.NO_BOARD: "too few tags",
    Verdict.MISFIT: "board does not fit",
    Verdict.REDUNDANT: "same viewpoint",
    Verdict.BAD_MASK: "mask contradicts the others",
    Verdict.OTHER_SIZE: "other picture size",
    Verdict.NOT_REGISTERED: "no pose found",
    Verdict.NO_MASK: "no mask file",
}


def metrics(tree: xr.DataTree, inputs: Inputs, params: Params) -> dict[str, Any]:
    """Return how many frames were kept and why others were not, and how well the lens fits."""
    frames = tree.to_dataset(inherit=False)
    verdict = tree["survey"]["verdict"].values
    lens = frames["lens"].values
    mask = frames["mask"].values
    pixels = (mask > 0).sum(axis=(1, 2))
    gain = frames["gain"].values
    out: dict[str, Any] = {
        "frames_in_video": len(verdict),
        "frames_kept": int((verdict == Verdict.KEPT).sum()),
        "frames_held_out": int(frames["held_out"].values.sum()),
        "frames_by_verdict": {v.name.lower(): int((verdict == v).sum()) for v in Verdict},
        "picture_size_px": [int(mask.shape[2]), int(mask.shape[1])],
        "focal_px": float(lens[0]),
        "distortion_k1": float(lens[4]),
        "gain_min": float(gain.min()),
        "gain_max": float(gain.max()),
        "mask_pixels_median": int(np.median(pixels)),
        "mask_pixels_min": int(pixels.min()),
        "mask_agreement_mean": float(frames["mask_agreement"].values.mean()),
        "mask_agreement_min": float(frames["mask_agreement"].values.min()),
        "mask_quality_min": float(frames["mask_quality"].values.min()),
        "azimuth_sectors_covered_of_12": int((_sectors(frames) > 0).sum()),
        "capture_format": frames.attrs["format"],
        "poses_from": frames.attrs["poses"],
        "scale_from": frames.attrs["scale_source"],
        "scale_std_percent": 100 * float(frames.attrs["scale_std"]),
        "masks_from": frames.attrs["mask_source"],
        "notes": frames.attrs["notes"],
    }
    if "mask_support" in frames:
        out["mask_support_min"] = float(frames["mask_support"].values.min())
    if "lens_std" in frames:
        out["focal_std_px"] = float(frames["lens_std"].values[0])
    if "reprojection_rms" in frames:
        rms = frames["reprojection_rms"].values
        out["reprojection_rms_px"] = float(np.sqrt((rms**2).mean()))
        out["reprojection_rms_max_px"] = float(rms.max())
    return out


def plots(tree: xr.DataTree, inputs: Inputs, params: Params) -> dict[str, Figure | bytes]:
    """Return contact sheet, mask overlay (sheet and film), and calibration figures."""
    frames = tree.to_dataset(inherit=False)
    return {
        "masks_film": _film(frames),
        "contact_sheet": _contact_sheet(tree),
        "masks": _masks(frames),
        "calibration": _calibration(frames, tree["survey"].to_dataset(inherit=False)),
    }


def _film(frames: xr.Dataset) -> bytes:
    """All frames with the object shaded, as the bytes of an mp4."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "masks.mp4"
        write_overlay(
            path, frames["image"].values, frames["mask"].values, frames["mask_quality"].values
        )
        return path.read_bytes()


def _sectors(frames: xr.Dataset) -> NDArray[np.float64]:
    position = frames["position_world_camera"].values
    forward = np.stack([_forward(q) for q in frames["quaternion_world_camera"].values])
    # The point nearest to all optical axes is what the camera went around.
    across = np.eye(3) - forward[:, :, None] * forward[:, None, :]
    target = np.linalg.solve(
        across.sum(axis=0) + 1e-9 * np.eye(3), np.einsum("nij,nj->i", across, position)
    )
    return coverage(position, target)


def _forward(wxyz: NDArray[np.float64]) -> NDArray[np.float64]:
    w, x, y, z = wxyz
    return np.array([2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)])


def _contact_sheet(tree: xr.DataTree) -> Figure:
    """Candidates with a frame in the colour of their verdict."""
    survey = tree["survey"].to_dataset(inherit=False)
    pictures = survey["thumbnail"].values
    source = survey["thumbnail_source"].values
    verdict, times = survey["verdict"].values, survey["time"].values
    shown = np.unique(np.linspace(0, len(pictures) - 1, min(len(pictures), 96)).round().astype(int))
    columns = 16 if len(shown) > 24 else 8
    rows = -(-len(shown) // columns)
    border, (height, width) = 3, pictures.shape[1:3]
    cell = (height + 2 * border, width + 2 * border)
    sheet = np.full((rows * cell[0], columns * cell[1], 3), 255, np.uint8)
    for place, i in enumerate(shown):
        r, c = divmod(place, columns)
        colour = np.array(_rgb(COLOURS[Verdict(int(verdict[source[i]]))]))
        tile = np.broadcast_to(colour, (*cell, 3)).copy()
        tile[border:-border, border:-border] = pictures[i]
        sheet[r * cell[0] : (r + 1) * cell[0], c * cell[1] : (c + 1) * cell[1]] = tile
    figure = Figure(figsize=(12, 12 * sheet.shape[0] / sheet.shape[1] + 2.6), layout="constrained")
    top, bottom = figure.subplots(2, 1, height_ratios=[12 * sheet.shape[0] / sheet.shape[1], 2.2])
    top.imshow(sheet)
    top.set_axis_off()
    top.set_title(f"{len(shown)} of {len(pictures)} candidates; the colours are told below")
    for kind in Verdict:
        chosen = verdict == kind
        if chosen.any():
            bottom.plot(
                times[chosen],
                survey["sharpness"].values[chosen],
                ".",
                color=COLOURS[kind],
                label=f"{WHY[kind]} ({int(chosen.sum())})",
            )
    bottom.set_xlabel("time [s]")
    bottom.set_ylabel("sharpness / running median")
    bottom.legend(ncols=7, fontsize="small", loc="upper center", bbox_to_anchor=(0.5, 1.25))
    return figure


def _rgb(colour: str) -> NDArray[np.uint8]:
    from matplotlib.colors import to_rgb

    return (np.array(to_rgb(colour)) * 255).astype(np.uint8)


def _masks(frames: xr.Dataset) -> Figure:
    """Outlines of the masks on up to 12 frames, the four least agreeing ones first."""
    agreement = frames["mask_agreement"].values
    worst = np.argsort(agreement, kind="stable")[:4]
    others = np.setdiff1d(np.linspace(0, len(agreement) - 1, 12).round().astype(int), worst)
    shown = [*worst.tolist(), *others.tolist()][: min(12, len(agreement))]
    image, mask = frames["image"].values[shown], frames["mask"].values[shown] > 0
    inner = mask.copy()
    inner[:, 1:-1, 1:-1] &= mask[:, :-2, 1:-1] & mask[:, 2:, 1:-1]
    inner[:, 1:-1, 1:-1] &= mask[:, 1:-1, :-2] & mask[:, 1:-1, 2:]
    picture = np.where(mask[..., None], image, image // 3 + 20)
    picture[mask & ~inner] = (0, 255, 0)
    columns = min(6, len(shown))
    rows = -(-len(shown) // columns)
    height, width = mask.shape[1:]
    blank = np.full((rows * columns - len(shown), height, width, 3), 255, np.uint8)
    tiles = np.concatenate([picture, blank]).reshape(rows, columns, height, width, 3)
    sheet = tiles.transpose(0, 2, 1, 3, 4).reshape(rows * height, columns * width, 3)
    tall = 13 * sheet.shape[0] / sheet.shape[1]
    # One axis without ticks: laying out a dozen costs seconds.
    figure = Figure(figsize=(13, tall + 0.5))
    axis = figure.add_axes((0.0, 0.0, 1.0, tall / (tall + 0.5)))
    axis.imshow(sheet, interpolation="nearest")
    axis.set_axis_off()
    names = ", ".join(f"{i} ({agreement[i]:.3f})" for i in shown)
    axis.set_title(f"masks of frames (agreement with the common hull): {names}", fontsize="small")
    return figure


def _calibration(frames: xr.Dataset, survey: xr.Dataset) -> Figure:
    """Camera places from above, reprojection error and exposure."""
    figure = Figure(figsize=(13, 4), layout="constrained")
    above, error, exposure = figure.subplots(1, 3)
    position = frames["position_world_camera"].values
    forward = np.stack([_forward(q) for q in frames["quaternion_world_camera"].values])
    held = frames["held_out"].values
    for chosen, colour, label in ((~held, "tab:blue", "used"), (held, "tab:red", "held out")):
        p, f = position[chosen], forward[chosen]
        above.quiver(p[:, 0], p[:, 1], f[:, 0], f[:, 1], color=colour, width=0.004, label=label)
    above.plot(0, 0, "k+")
    above.set_aspect("equal", adjustable="datalim")
    above.set_xlabel("x [m]")
    above.set_ylabel("y [m]")
    above.set_title("cameras from above")
    above.legend(fontsize="small")
    time = frames["time"].values
    if "reprojection_rms" in frames:
        error.plot(time, frames["reprojection_rms"].values, ".-")
    error.set_xlabel("time [s]")
    error.set_ylabel("reprojection error rms [px of the video]")
    error.set_ylim(bottom=0)
    lens = frames["lens"].values
    doubt = [""] * 9
    if "lens_std" in frames:
        doubt = [f" ± {value:.2g}" for value in frames["lens_std"].values]
    error.set_title(f"fx {lens[0]:.2f}{doubt[0]} px, k1 {lens[4]:.4f}{doubt[4]}")
    exposure.plot(time, frames["gain"].values, ".-")
    exposure.set_xlabel("time [s]")
    exposure.set_ylabel("brightness factor applied [1]")
    exposure.set_title("exposure evened out")
    return figure
