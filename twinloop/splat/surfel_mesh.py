"""From masked, posed pictures to a mesh: a start, surfels on it, their training, their depth fused.

Surfels find the surface only from nearby. The hull is near where outlines show the object; what is
hollow is found by stereo, and refined to where the pictures agree.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace

import numpy as np

from twinloop.splat.checkpoint import Checkpoint
from twinloop.splat.color import vertex_colors
from twinloop.splat.extract import ExtractSettings, SurfaceMesh, extract_mesh
from twinloop.splat.hull import hull_mesh
from twinloop.splat.refine import RefineSettings, refine
from twinloop.splat.stereo import StereoSettings, hollowed
from twinloop.splat.surface import Faces, smooth
from twinloop.splat.surfel_losses import SurfelObjective, SurfelSettings
from twinloop.splat.surfels import Surfels, WideFilterWarning, device_keywords, on_surface
from twinloop.splat.train import train
from twinloop.splat.train_settings import TrainSettings
from twinloop.splat.views import Float, Views


def surfel_training(**changes: object) -> TrainSettings:
    """Settings for surfels that start on a hull.

    The hull is right to a fraction of a pixel wherever a camera grazes the object, so the means
    take small steps, and the low-pass filter is narrow from the first step on: a wide one would
    push the surfels in, and most of a short training would be spent on coming back.
    """
    plain = TrainSettings(iterations=500, step_means=5e-4, filter_until=0.0, filter_last=32.0)
    return replace(plain, **changes)  # type: ignore[arg-type]


@dataclass(frozen=True)
class SurfelMeshSettings:
    """Settings of `surfel_mesh`."""

    count: int = 8000
    """Surfels at the start."""
    degree: int = 1
    """Degree of their spherical harmonics."""
    resolution: int = 96
    """Cells along the longest side of the hull."""
    smoothing: int = 4
    """Rounds of smoothing of that hull, and of what is made of it."""
    stereo: StereoSettings | None = field(default_factory=StereoSettings)
    """How hollows are looked for before the training; None for convex objects only."""
    refine: RefineSettings | None = field(
        default_factory=lambda: RefineSettings(inward=4.0, outward=4.0)
    )
    """How the start is moved to where the pictures agree; None: it is not."""
    table: float | None = None
    """Height (m, world z) of the table that the object stood on, where it hides the underside."""
    tolerate: int = 0
    """How many masks a point of the object may miss."""
    training: TrainSettings = field(default_factory=surfel_training)
    losses: SurfelSettings = field(default_factory=SurfelSettings)
    extract: ExtractSettings = field(default_factory=ExtractSettings)


def surfel_mesh(
    views: Views,
    settings: SurfelMeshSettings | None = None,
    device: str = "cpu",
    start: tuple[Float, Faces] | Surfels | None = None,
    checkpoint: Checkpoint | None = None,
) -> tuple[Surfels, SurfaceMesh]:
    """Surfels trained on the views, and their mesh; both in the views' world, m.

    `start` (vertices (v, 3) m, faces (f, 3)) is a mesh to begin with instead of `first_mesh`'s,
    or the surfels themselves;
    `checkpoint` keeps the training's state (see `train`). The
    extraction runs on the CPU and takes the low-pass factor that training ended with. On "cuda"
    gsplat trains, whose factor is 2: surfels sink twice as far, of which more remains, and a
    `WideFilterWarning` says so.

    Raises:
        InputError: Views, masks or poses that nothing can be reconstructed from.
    """
    s = settings or SurfelMeshSettings()
    if isinstance(start, Surfels):
        made = start
    else:
        start = start or first_mesh(views, s)
        colors = vertex_colors(*start, views)
        made = on_surface(*start, colors, s.count, s.degree, s.training.seed)
    objective = SurfelObjective(s.losses)
    surfels = train(made, views, s.training, device, objective=objective, checkpoint=checkpoint)
    factor = float(device_keywords(device, s.training.filter_last)["filter_inv_square"])
    if factor < s.training.filter_last:
        warnings.warn(
            f"surfels on {device} are trained by gsplat, with its low-pass factor {factor:.0f} "
            f"instead of {s.training.filter_last:.0f}: at few pixels they sink deeper, and more of "
            "that remains in the mesh; train them on the cpu, or from larger pictures",
            WideFilterWarning,
            stacklevel=2,
        )
    fusion = replace(s.extract.fusion, table=s.table, tolerate=s.tolerate)
    extract = replace(s.extract, fusion=fusion, filter_inv_square=factor)
    return surfels, extract_mesh(surfels, views, extract)


def first_mesh(views: Views, settings: SurfelMeshSettings) -> tuple[Float, Faces]:
    """The mesh that surfels start on: vertices (v, 3) m, world, and faces (f, 3) outward.

    The hull, hollowed by stereo, and moved to where the pictures agree.

    Raises:
        InputError: Masks or poses without a hull.
    """
    s = settings
    vertices, faces = hull_mesh(views, s.resolution, s.tolerate, s.table)
    cell = float(np.ptp(vertices, axis=0).max()) / s.resolution
    vertices = smooth(vertices, faces, s.smoothing, s.table, cell)
    if s.stereo is not None:
        vertices, faces = hollowed(vertices, faces, views, s.stereo, s.tolerate, s.table)
    if s.refine is not None:
        vertices = refine(vertices, faces, views, s.refine, s.table)
        vertices = smooth(vertices, faces, s.smoothing, s.table, cell)
    return vertices, faces
