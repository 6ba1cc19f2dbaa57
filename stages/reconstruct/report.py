"""Metrics and pictures of `reconstruct`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from stages.harness import Inputs
from stages.reconstruct.params import Params
from stages.reconstruct.run import load_views, low_pass
from twinloop.geometry import camera, se3
from twinloop.geometry.mesh import mass_properties
from twinloop.geometry.raycast import MeshRenderer
from twinloop.splat.cameras import turntable
from twinloop.splat.gaussians import Gaussians
from twinloop.splat.lpips import lpips_of_environment
from twinloop.splat.quality import MIXED, RING, Comparison, compare, score
from twinloop.splat.render import render
from twinloop.splat.replay import write_film
from twinloop.splat.surface import is_watertight
from twinloop.splat.views import Views

TURN_FRAMES, TURN_SIZE, TURN_RATE = 72, 320, 24.0
"""The turntable film: frames, px, frames a second."""


def metrics(tree: xr.DataTree, inputs: Inputs, params: Params) -> dict[str, Any]:
    """Return held-out quality, sizes and counts.

    PSNR is of frames that were never used, cut out over black, over the object's pixels and a ring
    around them; "edge" adds the pixels of the outline, which mix object and background
    (`twinloop.splat.quality.compare`). LPIPS is there where ``TWINLOOP_LPIPS`` names its weights.
    Nothing here knows the true shape.
    """
    vertices, faces = tree["mesh"]["vertices"].values, tree["mesh"]["faces"].values
    scores = tree["heldout"]["psnr"].values
    part = tree["parts"]["part"].values
    held_out = inputs.artifacts["ingest"]["held_out"].values
    judged = _comparisons(tree, inputs, params)
    started = {f"start_{key}": value for key, value in tree.attrs.get("start", {}).items()}
    return started | {
        "psnr_heldout_mean_db": _mean(list(scores)),
        "psnr_heldout_min_db": float(scores.min()) if len(scores) else None,
        "psnr_heldout_edge_mean_db": _mean([c.psnr_edge for c in judged]),
        "silhouette_overlap_mean": _mean([c.overlap for c in judged]),
        "views_used": int((~held_out).sum()),
        "views_heldout": len(scores),
        "gaussians": tree["gaussians"].sizes["gaussian"],
        "psnr_heldout_white_mean_db": _mean(list(tree["heldout"]["psnr_white"].values)),
        "ssim_heldout_mean": _mean(list(tree["heldout"]["ssim"].values)),
        "lpips_heldout_mean": _lpips(tree, inputs, params),
        "surfels": tree["surfels"].sizes["surfel"] if "surfels" in tree else 0,
        "scene_gaussians": tree["scene"].sizes["gaussian"] if "scene" in tree else 0,
        "vertices": len(vertices),
        "faces": len(faces),
        "watertight": is_watertight(faces),
        "volume_cm3": 1e6 * mass_properties(vertices, faces).volume,
        "size_mm": [float(1e3 * v) for v in np.ptp(vertices, axis=0)],
        "inferred_share": float(tree["mesh"]["inferred"].values.mean()),
        "decimation_error_mm": 1e3 * float(tree["mesh"]["decimation_error"].values),
        "convex_parts": int(part.max()) + 1,
        "convex_error_mean_mm": 1e3 * float(tree["parts"]["error_mean"].values),
        "convex_error_max_mm": 1e3 * float(tree["parts"]["error_max"].values),
        "convex_volume_ratio": float(tree["parts"]["volume_ratio"].values),
    }


def _mean(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _lpips(tree: xr.DataTree, inputs: Inputs, params: Params) -> float | None:
    """Mean LPIPS of the held-out frames over white; None without weights on disk."""
    weights = lpips_of_environment()
    if weights is None:
        return None
    gaussians = Gaussians.from_dataset(tree["gaussians"])
    rows = score(
        gaussians, _unseen(tree, inputs), inputs.device, weights, low_pass=low_pass(params)
    )
    return _mean([row.lpips for row in rows if row.lpips is not None])


def plots(tree: xr.DataTree, inputs: Inputs, params: Params) -> dict[str, Figure | bytes]:
    """Return held-out pictures beside their renders, the mesh, scores by frame, and a turntable."""
    return {
        "heldout": _heldout(_comparisons(tree, inputs, params)),
        "mesh": _mesh(tree),
        "psnr": _scores(tree),
        "turntable": _turntable(tree, inputs, params),
    }


def _turntable(tree: xr.DataTree, inputs: Inputs, params: Params) -> bytes:
    """Once around the object: what the Gaussians show, as the bytes of an mp4."""
    gaussians = Gaussians.from_dataset(tree["gaussians"])
    cameras = turntable(gaussians, TURN_FRAMES, width=TURN_SIZE, height=TURN_SIZE)
    views = render(
        gaussians,
        cameras,
        layers=(),
        background=(1, 1, 1),
        device=inputs.device,
        low_pass=low_pass(params),
    )
    with tempfile.TemporaryDirectory(prefix="twinloop-film-") as folder:
        path = Path(folder) / "turntable.mp4"
        write_film(path, views, TURN_RATE)
        return path.read_bytes()


def _comparisons(tree: xr.DataTree, inputs: Inputs, params: Params) -> list[Comparison]:
    gaussians = Gaussians.from_dataset(tree["gaussians"])
    views = _unseen(tree, inputs)
    shown = low_pass(params)
    return [
        compare(gaussians, views, i, device=inputs.device, low_pass=shown)
        for i in range(len(views))
    ]


def _unseen(tree: xr.DataTree, inputs: Inputs) -> Views:
    T_world_object = se3.from_position_quaternion(
        tree["position_world_object"].values, tree["quaternion_world_object"].values
    )
    frames = inputs.artifacts["ingest"]
    return load_views(frames, tree["heldout"]["frame"].values, least=0).moved(T_world_object)


def _heldout(comparisons: list[Comparison]) -> Figure:
    chosen = comparisons[:: max(1, -(-len(comparisons) // 4))]
    figure = Figure(figsize=(7.5, 2.4 * max(1, len(chosen))), layout="constrained")
    for row, c in enumerate(chosen):
        error = np.abs(c.shown - c.truth).mean(axis=2) * c.judged
        for column, (picture, title) in enumerate(
            (
                (c.truth, "held-out frame"),
                (c.shown, f"Gaussians, {c.psnr:.1f} dB"),
                (error, "error"),
            )
        ):
            axes = figure.add_subplot(len(chosen), 3, 3 * row + column + 1)
            if column == 2:
                axes.imshow(picture, cmap="magma", vmin=0, vmax=0.25)
            else:
                axes.imshow(picture.clip(0, 1))
            axes.set_title(title, fontsize=8)
            axes.set_axis_off()
    if chosen:
        figure.suptitle(
            f"Frames never used. PSNR over the object and {RING:.0f} px around it, over black, "
            f"but for {MIXED:.0f} px along the outline; error: dark 0 to bright 0.25",
            fontsize=8,
        )
    return figure


def _mesh(tree: xr.DataTree) -> Figure:
    vertices, faces = tree["mesh"]["vertices"].values, tree["mesh"]["faces"].values
    colors = tree["mesh"]["colors"].values.astype(np.float64) / 255
    inferred = tree["mesh"]["inferred"].values.astype(np.float32)
    renderer = MeshRenderer(vertices, faces)
    radius = float(np.linalg.norm(vertices, axis=1).max())
    size = 260
    intrinsics = np.array([2.0 * size, 2.0 * size, size / 2, size / 2])
    figure = Figure(figsize=(9, 6.2), layout="constrained")
    for column, (azimuth, elevation) in enumerate(((30.0, 25.0), (150.0, 25.0), (270.0, -40.0))):
        a, e = np.radians((azimuth, elevation))
        eye = 4.6 * radius * np.array([np.cos(a) * np.cos(e), np.sin(a) * np.cos(e), np.sin(e)])
        light = eye / np.linalg.norm(eye) + np.array([0.0, 0.0, 0.6])
        light = light / np.linalg.norm(light)
        image = renderer.render(
            intrinsics, size, size, se3.inverse(camera.look_at(eye, np.zeros(3)))
        )
        shade = 0.35 + 0.65 * np.clip(image.normal @ light, 0, 1)
        guess = image.interpolate(inferred[:, None], faces)[..., 0] > 0.5
        grey = np.where(image.mask, shade, 1.0)[..., None] * np.where(
            (guess & image.mask)[..., None], (1.0, 0.72, 0.5), 1.0
        )
        painted = np.where(image.mask[..., None], image.interpolate(colors, faces), 1.0)
        for row, picture in enumerate((grey, painted)):
            axes = figure.add_subplot(2, 3, 3 * row + column + 1)
            axes.imshow(picture)
            axes.set_title(f"from {azimuth:.0f}°, {elevation:.0f}° up", fontsize=8)
            axes.set_axis_off()
    figure.suptitle(
        f"Mesh, {len(faces)} faces: shape (orange: inferred, no camera saw it) and vertex colours"
        + (f"; started from {tree.attrs['start']['file']}" if "start" in tree.attrs else ""),
        fontsize=9,
    )
    return figure


def _scores(tree: xr.DataTree) -> Figure:
    """PSNR by held-out frame, and the table of all scores below it."""
    heldout = tree["heldout"]
    scores, index = heldout["psnr"].values, heldout["frame"].values
    figure = Figure(figsize=(6, 3.2 + 0.22 * len(scores)), layout="constrained")
    axes, below = figure.subplots(2, 1, height_ratios=(2.6, 0.6 + 0.22 * len(scores)))
    axes.bar([str(i) for i in index], scores, color="C0")
    if len(scores):
        axes.axhline(float(scores.mean()), color="C1", label=f"mean {scores.mean():.1f} dB")
        axes.legend(loc="lower right")
    axes.set_xlabel("held-out frame")
    axes.set_ylabel("PSNR (dB)")
    below.set_axis_off()
    if len(scores):
        rows = [
            [str(i), f"{a:.2f}", f"{b:.2f}", f"{c:.4f}"]
            for i, a, b, c in zip(
                index, scores, heldout["psnr_white"].values, heldout["ssim"].values, strict=True
            )
        ]
        below.table(
            rows,
            colLabels=["frame", "PSNR, object (dB)", "PSNR, frame over white (dB)", "SSIM"],
            loc="center",
        )
    return figure
