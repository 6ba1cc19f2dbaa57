"""Frames to mesh, convex parts, Gaussians and object frame."""

from __future__ import annotations

import numpy as np
import xarray as xr

from stages.harness import Inputs
from stages.reconstruct.params import Params
from twinloop.errors import InputError
from twinloop.geometry import se3
from twinloop.geometry.convex import convex_parts
from twinloop.geometry.decimate import decimate
from twinloop.geometry.mesh import mass_properties
from twinloop.splat.color import vertex_colors
from twinloop.splat.gaussians import on_surface
from twinloop.splat.hull import hull_mesh
from twinloop.splat.mend import mend_masks
from twinloop.splat.quality import compare
from twinloop.splat.refine import RefineSettings, refine
from twinloop.splat.surface import smooth
from twinloop.splat.train import TrainSettings, train
from twinloop.splat.views import Views


def run(inputs: Inputs, params: Params) -> dict[str, xr.Dataset]:
    """Reconstruct the object from the frames that are not held out, and judge by those that are."""
    frames = inputs.artifacts["ingest"]
    held_out = frames["held_out"].values.astype(bool)
    views = load_views(frames, np.flatnonzero(~held_out))
    vertices, faces = hull_mesh(views, params.resolution, params.tolerate, params.table_height)
    cell = float(np.ptp(vertices, axis=0).max()) / params.resolution
    vertices = smooth(vertices, faces, params.smoothing, params.table_height, cell)
    if params.refine:
        refining = RefineSettings(
            inward=params.refine_depth, views=params.refine_views, stiffness=params.stiffness
        )
        vertices = refine(vertices, faces, views, refining, params.table_height)
        vertices = smooth(vertices, faces, params.smoothing // 2, params.table_height, cell)
    vertices, faces, _ = decimate(vertices, faces, params.faces)
    views = mend_masks(vertices, faces, views)
    T_world_object = np.eye(4)
    T_world_object[:3, 3] = mass_properties(vertices, faces).centroid
    vertices = vertices - T_world_object[:3, 3]
    views = views.moved(T_world_object)
    colors = vertex_colors(vertices, faces, views)
    parts = convex_parts(
        *decimate(vertices, faces, params.part_faces)[:2],
        concavity=params.concavity,
        nearly_convex=params.nearly_convex,
        most_parts=params.most_parts,
        most_vertices=params.part_vertices,
        seed=params.seed,
    ).parts
    start = on_surface(vertices, faces, colors, params.gaussians, params.sh_degree, params.seed)
    settings = TrainSettings(
        iterations=params.iterations,
        mask_weight=params.mask_weight,
        most=params.most_gaussians,
        seed=params.seed,
    )
    gaussians = train(start, views, settings, inputs.device)
    index = np.flatnonzero(held_out)
    unseen = load_views(frames, index, least=0).moved(T_world_object)
    shown = np.array([unseen.box(i, 0) is not None for i in range(len(unseen))], bool)
    scores = [
        compare(gaussians, unseen, int(i), device=inputs.device).psnr for i in np.flatnonzero(shown)
    ]
    position, quaternion = se3.to_position_quaternion(T_world_object)
    return {
        "/": xr.Dataset(
            {
                "position_world_object": ("xyz", position),
                "quaternion_world_object": ("wxyz", quaternion),
            }
        ),
        "mesh": xr.Dataset(
            {
                "vertices": (("vertex", "xyz"), vertices),
                "faces": (("face", "corner"), faces),
                "colors": (("vertex", "channel"), colors),
            }
        ),
        "parts": xr.Dataset(
            {
                "vertices": (("part_vertex", "xyz"), np.concatenate(parts)),
                "part": (
                    "part_vertex",
                    np.repeat(np.arange(len(parts)), [len(p) for p in parts]).astype(np.int32),
                ),
            }
        ),
        "gaussians": gaussians.to_dataset(),
        "heldout": xr.Dataset(
            {
                "frame": ("view", index[shown].astype(np.int32)),
                "psnr": ("view", np.array(scores, np.float64)),
            }
        ),
    }


def load_views(frames: xr.DataTree, index: np.ndarray, least: int = 3) -> Views:
    """Read the frames at `index` as views.

    Raises:
        InputError: Fewer than `least` frames.
    """
    if len(index) < least:
        raise InputError(
            f"ingest.zarr: {len(index)} frames to reconstruct from, expected at least {least}; "
            "film longer, or lower the sharpness and error limits of ingest."
        )
    chosen = frames.to_dataset().isel(frame=index)
    T_world_camera = se3.from_position_quaternion(
        chosen["position_world_camera"].values, chosen["quaternion_world_camera"].values
    )
    return Views(
        chosen["image"].values,
        chosen["mask"].values,
        chosen["intrinsics"].values,
        se3.inverse(T_world_camera),
    )
