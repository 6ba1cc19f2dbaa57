"""Write the twin: cards, MJCF, meshes, Gaussians, policy, report; load it, let it settle."""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib.image
import numpy as np
import xarray as xr
from safetensors.numpy import save

from stages.harness import Inputs
from stages.package.params import Params
from twinloop.card import STAGES
from twinloop.errors import ArtifactError
from twinloop.export.glb import write_glb
from twinloop.export.mesh_files import hull_faces, write_obj, write_ply
from twinloop.export.mjcf import object_mjcf, scene_mjcf
from twinloop.export.properties import read_estimates, read_properties
from twinloop.export.report import ReportData, collect, render
from twinloop.export.settle import settle
from twinloop.export.twin_card import readme, twin_card
from twinloop.geometry.textured import TexturedMesh
from twinloop.splat.ply import write_gaussians
from twinloop.splat.ply import write_ply as write_splats
from twinloop.splat.surfels import Surfels


def run(inputs: Inputs, params: Params, out: Path) -> None:
    """Write ``out/twin``.

    Raises:
        ArtifactError: The exported MJCF does not load, settle, or keep mass and inertia.
    """
    twin = out / "twin"
    for name in ("meshes", "mjcf", "splat", "policy"):
        (twin / name).mkdir(parents=True)
    reconstruction, name = inputs.artifacts["reconstruct"], inputs.object
    properties = read_properties(inputs.artifacts["identify"])
    parts = _write_meshes(twin / "meshes", reconstruction)
    rest_height = -float(reconstruction["mesh"]["vertices"].values[:, 2].min())
    (twin / "mjcf" / f"{name}.xml").write_text(object_mjcf(name, parts, properties, rest_height))
    (twin / "mjcf" / "scene.xml").write_text(scene_mjcf(name))
    moved = settle(twin / "mjcf" / "scene.xml", name, properties, params.settle_time)
    if moved > params.settle_tolerance:
        raise ArtifactError(
            f"{name}: the exported twin moves {moved * 1000:.1f} mm while settling on a table, at "
            f"most {params.settle_tolerance * 1000:.1f} mm are allowed: its mesh or centre of mass "
            "does not fit the pose that it rested in."
        )
    write_gaussians(twin / "splat" / f"{name}.ply", reconstruction["gaussians"].to_dataset())
    if "surfels" in reconstruction:
        surfels = Surfels.from_dataset(reconstruction["surfels"])
        write_splats(surfels, twin / "splat" / "surfels.ply")
    if "scene" in reconstruction:
        write_gaussians(twin / "splat" / "scene.ply", reconstruction["scene"].to_dataset())
    (twin / "policy" / "policy.safetensors").write_bytes(_policy(inputs.artifacts["train"]))
    image = inputs.artifacts["ingest"]["image"][0].values
    matplotlib.image.imsave(twin / "preview.png", image, metadata={"Software": None})
    # Not `lab`, which exists for lab objects alone, nor `package` itself: neither is an input.
    shown = tuple(stage for stage in STAGES if stage not in ("lab", "package"))
    metrics, plots = collect(inputs.folder, shown)
    estimates = read_estimates(inputs.artifacts["identify"])
    pose_only = read_estimates(inputs.artifacts["identify"], "pose_only")
    (twin / "report.html").write_text(
        render(ReportData(inputs.card, metrics, plots, estimates, pose_only))
    )
    figures = metrics.get("evaluate", {}).get("figures", [])
    card = twin_card(inputs.card, estimates, pose_only, figures, rest_height, twin)
    (twin / "README.md").write_text(readme(card, inputs.card.description))
    (twin / "twin.json").write_text(
        json.dumps(card.model_dump(mode="json"), indent=1, sort_keys=True) + "\n"
    )


def _write_meshes(folder: Path, reconstruction: xr.DataTree) -> int:
    """Write the visual mesh and the convex pieces; return the number of pieces."""
    mesh, parts = reconstruction["mesh"], reconstruction["parts"]
    vertices, faces = mesh["vertices"].values, mesh["faces"].values
    write_obj(folder / "visual.obj", vertices, faces, "visual mesh, metres, object frame")
    write_ply(folder / "visual.ply", vertices, faces, mesh["colors"].values)
    if "texture" in reconstruction:
        group = reconstruction["texture"]
        source = group["source"].values.astype(np.int64)
        textured = TexturedMesh(
            vertices[source],
            group["faces"].values,
            group["uv"].values.astype(np.float64),
            source,
            group["image"].values,
        )
        write_glb(folder / "visual.glb", textured, mesh["normals"].values)
    labels = parts["part"].values
    indices = np.unique(labels)
    for index in indices:
        piece = hull_faces(parts["vertices"].values[labels == index])
        path = folder / f"collision_{int(index):03d}.obj"
        write_obj(path, *piece, "convex collision piece, metres, object frame")
    return len(indices)


def _policy(policy: xr.DataTree) -> bytes:
    """Return all arrays of the policy artifact as safetensors, "group/name" -> array."""
    arrays = {
        f"{node.path.strip('/')}/{name}".strip("/"): np.ascontiguousarray(array.values)
        for node in policy.subtree
        for name, array in node.to_dataset(inherit=False).data_vars.items()
    }
    return bytes(save(dict(sorted(arrays.items()))))
