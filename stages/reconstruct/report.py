"""Metrics and pictures of `reconstruct`."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from stages.harness import Inputs
from stages.reconstruct.params import Params
from stages.reconstruct.run import load_views
from twinloop.geometry import camera, se3
from twinloop.geometry.mesh import mass_properties
from twinloop.geometry.raycast import MeshRenderer
from twinloop.splat.gaussians import Gaussians
from twinloop.splat.quality import MIXED, RING, Comparison, compare
from twinloop.splat.surface import is_watertight
from twinloop.splat.views import Views


def metrics(tree: xr.DataTree, inputs: Inputs, params: Params) -> dict[str, Any]:
    """Return held-out quality, sizes and counts.

    PSNR is of frames that were never used, cut out over black, over the object's pixels and a ring
    around them; "edge" adds the pixels of the outline, which mix object and background
    (`twinloop.splat.quality.compare`). Nothing here knows the true shape.
    """
    vertices, faces = tree["mesh"]["vertices"].values, tree["mesh"]["faces"].values
    scores = tree["heldout"]["psnr"].values
    part = tree["parts"]["part"].values
    held_out = inputs.artifacts["ingest"]["held_out"].values
    judged = _comparisons(tree, inputs)
    return {
        "psnr_heldout_mean_db": _mean(list(scores)),
        "psnr_heldout_min_db": float(scores.min()) if len(scores) else None,
        "psnr_heldout_edge_mean_db": _mean([c.psnr_edge for c in judged]),
        "silhouette_overlap_mean": _mean([c.overlap for c in judged]),
        "views_used": int((~held_out).sum()),
        "views_heldout": len(scores),
        "gaussians": tree["gaussians"].sizes["gaussian"],
        "vertices": len(vertices),
        "faces": len(faces),
        "watertight": is_watertight(faces),
        "volume_cm3": 1e6 * mass_properties(vertices, faces).volume,
        "size_mm": [float(1e3 * v) for v in np.ptp(vertices, axis=0)],
        "convex_parts": int(part.max()) + 1,
    }


def _mean(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None


def plots(tree: xr.DataTree, inputs: Inputs, params: Params) -> dict[str, Figure]:
    """Return held-out pictures beside their renders, the mesh, and PSNR by frame."""
    return {
        "heldout": _heldout(_comparisons(tree, inputs)),
        "mesh": _mesh(tree),
        "psnr": _psnr(tree),
    }


def _comparisons(tree: xr.DataTree, inputs: Inputs) -> list[Comparison]:
    gaussians = Gaussians.from_dataset(tree["gaussians"])
    views = _unseen(tree, inputs)
    return [compare(gaussians, views, i, device=inputs.device) for i in range(len(views))]


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
    renderer = MeshRenderer(vertices, faces)
    radius = float(np.linalg.norm(vertices, axis=1).max())
    size = 260
    intrinsics = np.array([2.0 * size, 2.0 * size, size / 2, size / 2])
    figure = Figure(figsize=(9, 6.2), layout="constrained")
    for column, (azimuth, elevation) in enumerate(((30.0, 25.0), (150.0, 25.0), (270.0, 60.0))):
        a, e = np.radians((azimuth, elevation))
        eye = 4.6 * radius * np.array([np.cos(a) * np.cos(e), np.sin(a) * np.cos(e), np.sin(e)])
        light = eye / np.linalg.norm(eye) + np.array([0.0, 0.0, 0.6])
        light = light / np.linalg.norm(light)
        image = renderer.render(
            intrinsics, size, size, se3.inverse(camera.look_at(eye, np.zeros(3)))
        )
        shade = 0.35 + 0.65 * np.clip(image.normal @ light, 0, 1)
        grey = np.where(image.mask, shade, 1.0)
        painted = np.where(image.mask[..., None], image.interpolate(colors, faces), 1.0)
        for row, picture in enumerate((grey, painted)):
            axes = figure.add_subplot(2, 3, 3 * row + column + 1)
            axes.imshow(picture, cmap="gray", vmin=0, vmax=1)
            axes.set_title(f"from {azimuth:.0f}°, {elevation:.0f}° up", fontsize=8)
            axes.set_axis_off()
    figure.suptitle(f"Mesh, {len(faces)} faces: shape and vertex colours", fontsize=9)
    return figure


def _psnr(tree: xr.DataTree) -> Figure:
    scores, index = tree["heldout"]["psnr"].values, tree["heldout"]["frame"].values
    figure = Figure(figsize=(6, 2.8), layout="constrained")
    axes = figure.add_subplot()
    axes.bar([str(i) for i in index], scores, color="C0")
    if len(scores):
        axes.axhline(float(scores.mean()), color="C1", label=f"mean {scores.mean():.1f} dB")
        axes.legend(loc="lower right")
    axes.set_xlabel("held-out frame")
    axes.set_ylabel("PSNR (dB)")
    return figure
