"""From trained surfels to a closed mesh.

Surfels sink a little below the surface that they paint. The likely cause: each is a Gaussian with a
tail, and along the outline a ray passes many of them edge-on, so that their tails add up and the
rendered outline lies outside of the surfels' sheet; fitting outlines then pulls the sheet inward,
everywhere, since every part of a surface is on the outline in some picture. gsplat's low-pass
filter sinks it further, and a narrow one is trained with; what remains is measured here and taken
away. No truth is needed for that: the hull of the masks touches the object wherever a camera grazes
it, so that the commonest gap between the sheet and the hull is how far it sank.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.ndimage import map_coordinates
from torch import Tensor

from twinloop.errors import InputError
from twinloop.progress import track
from twinloop.splat.color import vertex_colors
from twinloop.splat.hull import Silhouettes, silhouettes
from twinloop.splat.inferred import inferred_faces, unseen_vertices
from twinloop.splat.rasterize import camera_matrix
from twinloop.splat.rasterize_2dgs import rasterization_2dgs
from twinloop.splat.surface import Faces
from twinloop.splat.surfels import Surfels
from twinloop.splat.tsdf import Field, Fusion, FusionSettings, fuse
from twinloop.splat.views import Float, Float32, Views
from twinloop.threads import torch_on_one_thread


@dataclass(frozen=True)
class ExtractSettings:
    """How depth is rendered and made into a mesh."""

    depth: Literal["intersection", "center"] = "intersection"
    """Depth of a surfel in a pixel: where the ray crosses it, or of its centre (gsplat's)."""
    depth_mode: Literal["median", "expected"] = "median"
    """Depth of a pixel: where half the light is stopped, or the mean."""
    filter_inv_square: float = 32.0
    """The rasteriser's low-pass factor; that of the end of training."""
    least_alpha: float = 0.5
    """Coverage below which a pixel has no depth."""
    unsink: bool = True
    """Whether to move the surface outward by what it sank, measured against the hull."""
    most_sunk: float = 2.0
    """The farthest it may be moved, in pixels."""
    agree: float = 0.6
    """Pixels within which depth and hull are taken to mean the same surface, the hull's; 0 where
    masks are worse than that. A hollow of half of it or less is lost."""
    fusion: FusionSettings = field(default_factory=FusionSettings)


@dataclass(frozen=True)
class SurfaceMesh:
    """A closed mesh, world frame.

    vertices (v, 3) m; faces (f, 3), outward; normals (v, 3) unit, from the field's gradient; colors
    (v, 3) sRGB; inferred (v,) and inferred_faces (f,): no camera saw them, they are a guess that
    closes the mesh. sunk: how far (m) the surfels' sheet lay below the hull, and was moved.
    """

    vertices: Float
    faces: Faces
    normals: Float
    colors: NDArray[np.uint8]
    inferred: NDArray[np.bool_]
    inferred_faces: NDArray[np.bool_]
    sunk: float


def extract_mesh(
    surfels: Surfels, views: Views, settings: ExtractSettings | None = None
) -> SurfaceMesh:
    """Closed, manifold mesh of trained surfels, from the views they were trained on.

    Raises:
        InputError: Masks that show nothing, or surfels that no view shows.
    """
    settings = settings or ExtractSettings()
    shapes = silhouettes(views.mask)
    depth = render_depth(surfels, views, shapes, settings)
    fusion = fuse(views, shapes, depth, settings.fusion)
    sunk = sinkage(fusion, settings.most_sunk) if settings.unsink else 0.0
    return mesh_of(fusion.field(sunk, settings.agree), views, sunk)


def mesh_of(field_: Field, views: Views, sunk: float = 0.0) -> SurfaceMesh:
    """The mesh of a field with its normals, colours, and what of it no camera saw."""
    vertices, faces = field_.mesh()
    normals = field_.normals(vertices)
    inferred = unseen_vertices(vertices, faces, normals, views)
    return SurfaceMesh(
        vertices,
        faces,
        normals,
        vertex_colors(vertices, faces, views),
        inferred,
        inferred_faces(inferred, faces),
        sunk,
    )


def render_depth(
    surfels: Surfels, views: Views, shapes: Silhouettes, settings: ExtractSettings
) -> Float32:
    """Depth (view, y, x) m along z of surfels, on the crops of `shapes`; 0 where there is none.

    Raises:
        InputError: No surfels, or none that a view shows.
    """
    if len(surfels) == 0:
        raise InputError("mesh of surfels: there are none; was the training cut short?")
    height, width = shapes.distance.shape[1:]
    out = np.zeros((len(views), height, width), np.float32)
    means, quaternions, scales, opacities = (
        torch.from_numpy(np.ascontiguousarray(a))
        for a in (surfels.means, surfels.quaternions, surfels.scales, surfels.opacities)
    )
    grey = torch.zeros(len(surfels), 1)
    with torch.no_grad(), torch_on_one_thread():
        for i in track(range(len(views)), "render depth"):
            k = views.intrinsics[i] - np.r_[0, 0, shapes.corner[i].astype(np.float64)]
            image, alpha, _, _, _, median, _ = rasterization_2dgs(
                means,
                quaternions,
                scales,
                opacities,
                grey,
                torch.from_numpy(views.T_camera_world[i].astype(np.float32))[None],
                camera_matrix(torch.from_numpy(k.astype(np.float32)))[None],
                width,
                height,
                render_mode="RGB+ED",
                depth=settings.depth,
                filter_inv_square=settings.filter_inv_square,
                surface_normals=False,
            )
            chosen: Tensor = image[0, ..., -1] if settings.depth_mode == "expected" else median
            chosen = chosen.reshape(height, width)
            solid = (alpha[0, ..., 0] >= settings.least_alpha) & torch.isfinite(chosen)
            out[i] = torch.where(solid & (chosen > 0), chosen, 0.0).numpy()
    if not (out > 0).any():
        raise InputError(
            "mesh of surfels: no view shows any; are the poses those that the surfels were "
            "trained with?"
        )
    return out


def sinkage(fusion: Fusion, most: float = 2.0) -> float:
    """How far (m) the depths' surface lies below the hull wherever an outline touches the object.

    The gap between the two is the sinkage wherever a camera grazed the surface, and larger where
    the surface is hollow or no camera grazed it. So it is the gaps' mode (the half-sample mode,
    Robertson and Cryer 1974), of the surface's points that lie within `most` pixels of the hull;
    0 where hardly any do.
    """
    vertices, _ = Field(
        np.minimum(fusion.surface, fusion.hull + np.float32(2 * fusion.pixel)),
        fusion.origin,
        fusion.step,
    ).mesh()
    table = fusion.settings.table
    if table is not None:
        vertices = vertices[vertices[:, 2] > table + 2 * fusion.pixel]
    grid = (vertices - fusion.origin) / fusion.step
    gap = map_coordinates(fusion.hull, grid.T, order=1, mode="nearest")
    near = np.sort(gap[np.abs(gap) < most * fusion.pixel].astype(np.float64))
    if len(near) < max(20, 0.02 * len(gap)):
        return 0.0
    return half_sample_mode(near)


def half_sample_mode(values: Float, least: int = 12) -> float:
    """Mode of sorted values (n,): the densest half, of which the densest half, and so on."""
    while len(values) > least:
        half = (len(values) + 1) // 2
        width = values[half - 1 :] - values[: len(values) - half + 1]
        start = int(np.argmin(width))
        values = values[start : start + half]
    return float(values.mean())
