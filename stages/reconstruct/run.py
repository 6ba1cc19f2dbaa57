"""Frames to mesh, surfels, Gaussians, collision and object frame."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from stages.harness import Inputs
from stages.reconstruct.checkpoints import Checkpoints
from stages.reconstruct.params import Params
from stages.reconstruct.start import read_start, stated
from twinloop.errors import InputError
from twinloop.geometry import se3
from twinloop.geometry.convex import convex_parts
from twinloop.geometry.decimate import decimate
from twinloop.geometry.mesh import mass_properties
from twinloop.geometry.sdf import bake
from twinloop.splat.checkpoint import Checkpoint
from twinloop.splat.color import vertex_colors
from twinloop.splat.encoding import flat_gaussians
from twinloop.splat.extract import ExtractSettings
from twinloop.splat.gaussians import Gaussians, on_surface
from twinloop.splat.imported import Mesh
from twinloop.splat.imported_start import gaussians_of, surfels_of
from twinloop.splat.inferred import unseen_vertices
from twinloop.splat.low_pass import LowPass
from twinloop.splat.quality import score
from twinloop.splat.refine import RefineSettings
from twinloop.splat.scan_views import check_poses, usable
from twinloop.splat.scene import merge
from twinloop.splat.shape import FoundShape, ShapeSettings, find_shape
from twinloop.splat.start_check import FittingStart
from twinloop.splat.stereo import StereoSettings
from twinloop.splat.surface import vertex_normals
from twinloop.splat.surfel_losses import SurfelSettings
from twinloop.splat.surfel_mesh import SurfelMeshSettings, surfel_training
from twinloop.splat.surfels import Surfels
from twinloop.splat.surroundings import fit_surroundings
from twinloop.splat.texture import bake_texture
from twinloop.splat.train import TrainSettings, scene_settings, train
from twinloop.splat.transform import transformed
from twinloop.splat.tsdf import FusionSettings
from twinloop.splat.views import Views

Array = NDArray[np.float64]


def run(inputs: Inputs, params: Params) -> dict[str, xr.Dataset]:
    """Reconstruct the object from the frames that are not held out, and judge by those that are."""
    frames = inputs.artifacts["ingest"]
    held_out = frames["held_out"].values.astype(bool)
    used, index = np.flatnonzero(~held_out), np.flatnonzero(held_out)
    views, unseen = load_views(frames, used), load_views(frames, index, least=0)
    check_poses(views, used)
    check_poses(unseen, index)
    states = Checkpoints(inputs, params)
    clear = usable(views, used)
    start = read_start(inputs, params, clear)
    begin = None if start is None else _shape_start(start, clear, params)
    settings = shape_settings(params)
    found = find_shape(clear, settings, inputs.device, states.of("surfels"), begin)
    mesh = decimate(found.mesh.vertices, found.mesh.faces, params.faces, params.decimation_error)
    T_world_object = np.eye(4)
    T_world_object[:3, 3] = mass_properties(mesh.vertices, mesh.faces).centroid
    T_object_world = se3.inverse(T_world_object)
    vertices, faces = se3.apply(T_object_world, mesh.vertices), mesh.faces
    found = replace(found, views=found.views.moved(T_world_object))
    gaussians = fit_gaussians(
        vertices, faces, found, params, inputs.device, T_object_world, states.of("gaussians"), start
    )
    result = {
        "/": _frame(T_world_object),
        "mesh": _mesh(vertices, faces, mesh.error, found.views),
        "uniform": _uniform(vertices, faces),
        "parts": _parts(vertices, faces, params),
        "distance": bake(
            vertices, faces, margin=params.distance_margin, cells=params.distance_cells
        ).to_dataset(),
        "gaussians": gaussians.to_dataset(),
        "heldout": _heldout(gaussians, unseen.moved(T_world_object), index, inputs, params),
    }
    if start is not None:
        result["/"].attrs["start"] = stated(start, params)
    if found.surfels is not None:
        result["surfels"] = transformed(found.surfels, T_object_world).to_dataset()
    if params.scene_iterations > 0:
        around = fit_surroundings(
            views.moved(T_world_object),
            gaussians,
            scene_settings(
                iterations=params.scene_iterations, seed=params.seed, low_pass=low_pass(params)
            ),
            table_height=params.table_height - float(T_world_object[2, 3]),
            device=inputs.device,
            checkpoint=states.of("scene"),
        )
        scene = merge([(around, np.eye(4), "surroundings"), (gaussians, np.eye(4), "object")])
        result["scene"] = scene.to_dataset()
    if params.texture > 0:
        baked = bake_texture(vertices, faces, found.views, params.texture)
        result["texture"] = xr.Dataset(
            {
                "source": ("corner_vertex", baked.source.astype(np.int32)),
                "uv": (("corner_vertex", "uv"), baked.uv.astype(np.float32)),
                "faces": (("face", "corner"), baked.faces.astype(np.int32)),
                "image": (("row", "column", "channel"), baked.image),
            }
        )
    return result


def shape_settings(params: Params) -> ShapeSettings:
    """The library's settings of these parameters."""
    refining = RefineSettings(
        inward=params.refine_depth, views=params.refine_views, stiffness=params.stiffness
    )
    return ShapeSettings(
        surface=params.surface,
        table=params.table_height,
        resolution=params.resolution,
        tolerate=params.tolerate,
        smoothing=params.smoothing,
        refine=refining if params.refine else None,
        surfels=SurfelMeshSettings(
            count=params.surfels,
            degree=params.sh_degree,
            stereo=StereoSettings() if params.hollow else None,
            training=surfel_training(
                iterations=params.surfel_iterations,
                most=params.most_surfels,
                mask_weight=params.mask_weight,
                ssim_weight=params.ssim_weight,
                densify=params.densify,
                exposure=params.exposure,
                refine_poses=params.refine_poses,
                seed=params.seed,
            ),
            losses=SurfelSettings(
                normal_weight=params.normal_weight, distortion_weight=params.distortion_weight
            ),
            extract=ExtractSettings(fusion=FusionSettings(cell=params.cell)),
        ),
        polish=params.polish,
    )


def _shape_start(
    start: FittingStart, views: Views, params: Params
) -> Surfels | tuple[Array, NDArray[np.int32]]:
    """What the shape begins with, of what was imported."""
    if isinstance(start.found, Mesh):
        return start.found.vertices, start.found.faces
    return surfels_of(start.found, views, degree=params.sh_degree)


def low_pass(params: Params) -> LowPass:
    """The filter that Gaussians are trained, judged and shown with."""
    return LowPass(params.antialiased, params.eps2d)


def fit_gaussians(
    vertices: Array,
    faces: NDArray[np.integer],
    found: FoundShape,
    params: Params,
    device: str,
    T_object_world: Array,
    checkpoint: Checkpoint | None = None,
    imported: FittingStart | None = None,
) -> Gaussians:
    """The set for pictures: Gaussians of their own, or with `sets: joint` the surfels as such.

    They begin on the mesh, or with the splats that were `imported`, which are in the world.
    """
    if params.sets == "joint":
        if found.surfels is None:
            raise InputError(
                f"reconstruct: sets 'joint' shares the surfels, and surface {params.surface!r} has "
                "none; set surface: surfels, or sets: disjoint"
            )
        return flat_gaussians(transformed(found.surfels, T_object_world))
    if imported is not None and not isinstance(imported.found, Mesh):
        start = gaussians_of(imported.found, found.views, degree=params.sh_degree)
        start = transformed(start, T_object_world)
    else:
        colors = vertex_colors(vertices, faces, found.views)
        start = on_surface(vertices, faces, colors, params.gaussians, params.sh_degree, params.seed)
    settings = TrainSettings(
        iterations=params.iterations,
        most=params.most_gaussians,
        mask_weight=params.mask_weight,
        ssim_weight=params.ssim_weight,
        densify=params.densify,
        opacity_weight=params.opacity_weight,
        scale_weight=params.scale_weight,
        low_pass=low_pass(params),
        exposure=params.exposure,
        refine_poses=params.refine_poses,
        seed=params.seed,
    )
    return train(start, found.views, settings, device, checkpoint=checkpoint)


def _frame(T_world_object: Array) -> xr.Dataset:
    position, quaternion = se3.to_position_quaternion(T_world_object)
    return xr.Dataset(
        {
            "position_world_object": ("xyz", position),
            "quaternion_world_object": ("wxyz", quaternion),
        }
    )


def _mesh(vertices: Array, faces: NDArray[np.integer], error: float, views: Views) -> xr.Dataset:
    normals = vertex_normals(vertices, faces)
    return xr.Dataset(
        {
            "vertices": (("vertex", "xyz"), vertices),
            "faces": (("face", "corner"), faces.astype(np.int32)),
            "colors": (("vertex", "channel"), vertex_colors(vertices, faces, views)),
            "normals": (("vertex", "xyz"), normals.astype(np.float32)),
            "inferred": (
                "vertex",
                unseen_vertices(vertices, faces, normals, views).astype(np.uint8),
            ),
            "decimation_error": ((), np.float64(error)),
        }
    )


def _uniform(vertices: Array, faces: NDArray[np.integer]) -> xr.Dataset:
    uniform = mass_properties(vertices, faces)
    return xr.Dataset(
        {
            "volume": ((), np.float64(uniform.volume)),
            "inertia": (("row", "column"), uniform.inertia),
        }
    )


def _parts(vertices: Array, faces: NDArray[np.integer], params: Params) -> xr.Dataset:
    thin = decimate(vertices, faces, params.part_faces)
    made = convex_parts(
        thin.vertices,
        thin.faces,
        target=params.parts_error,
        nearly_convex=params.nearly_convex,
        most_parts=params.most_parts,
        most_vertices=params.part_vertices,
        seed=params.seed,
    )
    print(f"collision: {made.summary()}")
    counts = [len(part) for part in made.parts]
    return xr.Dataset(
        {
            "vertices": (("part_vertex", "xyz"), np.concatenate(made.parts)),
            "part": ("part_vertex", np.repeat(np.arange(len(counts)), counts).astype(np.int32)),
            "error_mean": ((), np.float64(made.error_mean)),
            "error_max": ((), np.float64(made.error_max)),
            "volume_ratio": ((), np.float64(made.volume_ratio)),
        }
    )


def _heldout(
    gaussians: Gaussians,
    unseen: Views,
    index: NDArray[np.integer],
    inputs: Inputs,
    params: Params,
) -> xr.Dataset:
    """Scores of the frames that nothing was fitted to."""
    rows = score(gaussians, unseen, inputs.device, low_pass=low_pass(params))
    return xr.Dataset(
        {
            "frame": ("view", np.array([index[r.index] for r in rows], np.int32)),
            "psnr": ("view", np.array([r.psnr for r in rows], np.float64)),
            "psnr_white": ("view", np.array([r.psnr_white for r in rows], np.float64)),
            "ssim": ("view", np.array([r.ssim for r in rows], np.float64)),
        }
    )


def load_views(frames: xr.DataTree, index: NDArray[np.integer], least: int = 3) -> Views:
    """Read the frames at `index` as views.

    Raises:
        InputError: Fewer than `least` frames, or an orientation that is none.
    """
    if len(index) < least:
        raise InputError(
            f"ingest.zarr: {len(index)} frames to reconstruct from, expected at least {least}; "
            "film longer, or lower the sharpness and error limits of ingest."
        )
    chosen = frames.to_dataset().isel(frame=index)
    quaternions = chosen["quaternion_world_camera"].values
    length = np.linalg.norm(quaternions, axis=1)
    if not (np.abs(length - 1) < 1e-3).all():
        bad = int(np.flatnonzero(~(np.abs(length - 1) < 1e-3))[0])
        raise InputError(
            f"ingest.zarr: the orientation of frame {index[bad]} is {quaternions[bad].tolist()}, "
            "expected a unit quaternion wxyz; run ingest again, or leave the frame out"
        )
    T_world_camera = se3.from_position_quaternion(
        chosen["position_world_camera"].values, quaternions
    )
    return Views(
        chosen["image"].values,
        chosen["mask"].values,
        chosen["intrinsics"].values,
        se3.inverse(T_world_camera),
    )
