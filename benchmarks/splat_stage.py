"""The whole reconstruct stage on a lab phone video: time, pictures, shape, hulls."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import xarray as xr

from benchmarks.rows import Figure
from benchmarks.splat_scenes import PRESETS
from stages.harness import Inputs
from stages.ingest.params import Params as IngestParams
from stages.ingest.run import run as ingest
from stages.reconstruct import report
from stages.reconstruct.params import Params
from stages.reconstruct.run import run as reconstruct
from twinloop.card import ObjectCard
from twinloop.export.rest import Rest, rest_pose, uniform_properties
from twinloop.geometry import se3
from twinloop.geometry.surface import TriangleSurface
from twinloop.lab.objects import LabObject, build_object
from twinloop.lab.scan import ScanSettings, ScanTruth, shoot_scan
from twinloop.lab.spec import load_preset
from twinloop.metrics.chamfer import chamfer_distance, sample_surface

FRAMES = 50
SECONDS = 180.0
"""The stage's time on two idle cores."""
OBJECTS = ("spam", *PRESETS)


def phone(name: str) -> list[Figure]:
    """Fifty frames of the video of `name`, as a phone takes it, to mesh, hulls and Gaussians."""
    spec = load_preset(name)
    item = build_object(spec, name)
    with tempfile.TemporaryDirectory() as scratch:
        truth = shoot_scan(item, Path(scratch) / "scan", ScanSettings(), spec.noise, 0)
        source: Any = SimpleNamespace(raw=Path(scratch))
        frames = ingest(source, IngestParams(frames=FRAMES))["/"]
        tree = xr.DataTree.from_dict({"/": frames})
        card = ObjectCard(name=name, license="Apache-2.0")
        inputs = Inputs(name, Path(scratch), card, {"ingest": tree}, "cpu", 0)
        params = Params()
        started = time.perf_counter()
        made = reconstruct(inputs, params)
        seconds = time.perf_counter() - started
    done = xr.DataTree.from_dict(made)
    metrics = report.metrics(done, inputs, params)
    error, f1, seen = _shape(done, item, truth)
    rest = _rest(done)
    count = int(metrics["views_heldout"])
    return [
        Figure(f"{name}: {FRAMES} phone frames to twin shape", seconds, "s", SECONDS, "lower", 1),
        Figure(f"{name}: video, Chamfer, as placed", 1e3 * error, "mm", 1.0, "lower", seen),
        Figure(f"{name}: video, F1 at 2 mm", f1, "", 0.99, "higher", seen),
        Figure(f"{name}: video, hulls", metrics["convex_parts"], "", 10, "lower", 1),
        Figure(
            f"{name}: video, hulls' mean distance to the mesh",
            metrics["convex_error_mean_mm"],
            "mm",
            1.5,
            "lower",
            1,
        ),
        Figure(
            f"{name}: at rest in MuJoCo, penetration",
            1e3 * rest.penetration,
            "mm",
            0.2,
            "lower",
            1,
        ),
        Figure(
            f"{name}: at rest in MuJoCo, on the face it stood on, still",
            1 if rest.stable() else 0,
            "",
            1,
            "higher",
            1,
        ),
        Figure(
            f"{name}: video, PSNR of unseen frames, object's pixels",
            metrics["psnr_heldout_mean_db"],
            "dB",
            28.0,
            "higher",
            count,
        ),
    ]


def _rest(tree: xr.DataTree) -> Rest:
    """How the convex parts rest, of a solid of even density."""
    label, points = tree["parts"]["part"].values, tree["parts"]["vertices"].values
    parts = [points[label == i] for i in range(int(label.max()) + 1)]
    mesh = tree["mesh"]
    return rest_pose(parts, uniform_properties(mesh["vertices"].values, mesh["faces"].values, 0.3))


def _shape(tree: xr.DataTree, item: LabObject, truth: ScanTruth) -> tuple[float, float, int]:
    """Chamfer distance (m), F1 at 2 mm, and the number of points, against the true mesh."""
    T = se3.from_position_quaternion(
        tree["position_world_object"].values, tree["quaternion_world_object"].values
    )
    vertices = se3.apply(T, tree["mesh"]["vertices"].values)
    faces = tree["mesh"]["faces"].values
    true_vertices = se3.apply(truth.T_world_labobject, item.vertices)
    ours, theirs = TriangleSurface(vertices, faces), TriangleSurface(true_vertices, item.faces)
    points = sample_surface(vertices, faces, 4000, 0)
    others = sample_surface(true_vertices, item.faces, 4000, 1)
    both = chamfer_distance(points, ours, others, theirs)
    near, far = both.a_to_b < 2e-3, both.b_to_a < 2e-3
    precision, recall = float(np.mean(near)), float(np.mean(far))
    return both.mean, 2 * precision * recall / max(precision + recall, 1e-9), len(points)
