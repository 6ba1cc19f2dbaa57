"""A texture for a mesh, projected from posed pictures: UV atlas, colours, seams."""

from __future__ import annotations

import cv2
import numpy as np
import xatlas
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt
from scipy.spatial import cKDTree

from twinloop.errors import InputError
from twinloop.geometry.distance import check_mesh
from twinloop.geometry.raycast import MeshRenderer
from twinloop.geometry.textured import TexturedMesh
from twinloop.splat.surface import vertex_normals
from twinloop.splat.views import Views

Float = NDArray[np.float64]
Faces = NDArray[np.int32]
_PADDING = 2
_FACING = 0.15
_FILLERS = 4000


def bake_texture(vertices: Float, faces: Faces, views: Views, size: int = 1024) -> TexturedMesh:
    """Colour a mesh from posed pictures.

    A texel takes the mean of the pictures that see it, the square of how straight they look at it
    as weight. A picture sees a texel where the surface faces it, the mesh does not hide it and the
    mask covers it. Texels that none sees take their nearest seen neighbours' colour in space, and
    colours run on beyond the charts, so that no seam shows when the texture is filtered.

    Args:
        vertices: (v, 3) m, in the frame of the views' poses.
        faces: (f, 3), outward.
        views: Pictures with straight sRGB colour, masks and poses.
        size: Width and height of the texture, px.

    Raises:
        InputError: No triangle mesh, one without area or of a size that float32 does not bear, a
            texture outside of 16 to 8192 px, or no picture that sees the mesh.
    """
    check_mesh(vertices, faces)
    if not 16 <= size <= 8192:
        raise InputError(f"texture of {size} px: expected 16 to 8192")
    _check_extent(vertices, faces)
    source, corners, uv = _unwrap(vertices, faces, size)
    row, column, face, weight = _texels(uv[corners], size)
    points = np.einsum("nk,nki->ni", weight, vertices[faces[face]])
    normals = np.einsum("nk,nki->ni", weight, vertex_normals(vertices, faces)[faces[face]])
    total, seen = _project(points, normals, MeshRenderer(vertices, faces), views)
    if not (seen > 0).any():
        raise InputError(
            f"texture: none of {len(views)} pictures sees the mesh; are poses and mesh in the same "
            "frame, and are the masks on the object?"
        )
    color = np.zeros((len(points), 3))
    color[seen > 0] = total[seen > 0] / seen[seen > 0, None]
    if (seen == 0).any():
        # What nobody saw gets a plausible colour, not detail: some thousand neighbours will do.
        some = np.flatnonzero(seen > 0)[:: max(1, int((seen > 0).sum()) // _FILLERS)]
        _, near = cKDTree(points[some]).query(points[seen == 0])
        color[seen == 0] = color[some][near]
    image = np.zeros((size, size, 3), np.uint8)
    filled = np.zeros((size, size), bool)
    image[row, column] = np.rint(color).clip(0, 255).astype(np.uint8)
    filled[row, column] = True
    nearest = distance_transform_edt(~filled, return_distances=False, return_indices=True)
    image = image[nearest[0], nearest[1]]
    return TexturedMesh(
        np.asarray(vertices, np.float64)[source],
        corners,
        uv,
        source,
        np.ascontiguousarray(image),
        float((seen > 0).mean()),
    )


def _check_extent(vertices: Float, faces: Faces) -> None:
    # In float32, which is all that xatlas knows, it loops for ever over lengths beyond its squares.
    extent, reach = float(np.ptp(vertices, axis=0).max()), float(np.abs(vertices).max())
    if not 1e-6 <= extent <= 1e6 or reach > 1e4 * extent:
        raise InputError(
            f"texture: the mesh is {extent:.3g} m long and lies up to {reach:.3g} m from the "
            "origin; expected 1e-6 to 1e6 m, and no farther off than 10,000 times its size"
        )
    a, b, c = (vertices[faces[:, i]] for i in range(3))
    if np.linalg.norm(np.cross(b - a, c - a), axis=1).sum() < 1e-9 * extent**2:
        raise InputError("texture: no face of the mesh has an area; reconstruct it again")


def _unwrap(vertices: Float, faces: Faces, size: int) -> tuple[NDArray[np.int64], Faces, Float]:
    """Charts of xatlas, packed into a square: source (w,), faces (f, 3) and uv (w, 2)."""
    atlas = xatlas.Atlas()
    atlas.add_mesh(np.asarray(vertices, np.float32), np.asarray(faces, np.uint32))
    packing = xatlas.PackOptions()
    packing.padding = _PADDING
    packing.resolution = size
    packing.bilinear = True
    packing.create_image = False
    charts = xatlas.ChartOptions()
    charts.max_iterations = 1
    atlas.generate(charts, packing)
    if atlas.atlas_count > 1:
        # It did not fit at the resolution that xatlas guessed: let it choose the size itself.
        packing.resolution = 0
        atlas.generate(charts, packing)
    source, corners, uv = atlas.get_mesh(0)
    return source.astype(np.int64), corners.astype(np.int32), uv.astype(np.float64)


def _texels(
    triangles: Float, size: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], Float]:
    """Texels whose centre lies in a triangle (f, 3, 2) of the atlas, or just beside it.

    Returns:
        Row, column, face and barycentric weights (n, 3); each texel once.
    """
    corner = triangles * size
    corner[..., 1] = size - corner[..., 1]  # rows run down from the top
    low = np.floor(corner.min(axis=1) - 0.5).clip(0, size - 1).astype(np.int64)
    high = np.ceil(corner.max(axis=1) + 0.5).clip(1, size).astype(np.int64)
    extent = np.maximum(high - low, 1)
    count = extent.prod(axis=1)
    face = np.repeat(np.arange(len(corner)), count)
    inner = np.arange(len(face)) - np.repeat(np.cumsum(count) - count, count)
    column = low[face, 0] + inner % extent[face, 0]
    row = low[face, 1] + inner // extent[face, 0]
    a, b, c = corner[face, 0], corner[face, 1], corner[face, 2]
    p = np.stack([column + 0.5, row + 0.5], axis=1)

    def cross(u: Float, v: Float) -> Float:
        return np.asarray(u[:, 0] * v[:, 1] - u[:, 1] * v[:, 0])

    area = cross(b - a, c - a)
    safe = np.where(np.abs(area) > 1e-12, area, 1.0)
    weight = np.stack([cross(b - p, c - p), cross(c - p, a - p), cross(a - p, b - p)], axis=1)
    weight /= safe[:, None]
    # How far outside of the triangle a texel's centre is, px: heights over its three sides.
    sides = np.stack([c - b, a - c, b - a], axis=1)
    height = np.abs(area)[:, None] / np.maximum(np.linalg.norm(sides, axis=2), 1e-12)
    outside = (-weight * height).max(axis=1)
    ok = (outside < 0.75) & (np.abs(area) > 1e-12)
    row, column, face, weight, outside = (x[ok] for x in (row, column, face, weight, outside))
    order = np.lexsort((face, np.maximum(outside, 0), row * size + column))
    _, first = np.unique((row * size + column)[order], return_index=True)
    chosen = order[first]
    bounded = np.maximum(weight[chosen], 0)
    return row[chosen], column[chosen], face[chosen], bounded / bounded.sum(axis=1, keepdims=True)


def _project(
    points: Float, normals: Float, renderer: MeshRenderer, views: Views
) -> tuple[Float, Float]:
    """Weighted sum (n, 3) of the colours that the pictures have of points (n, 3), and weights."""
    height, width = views.mask.shape[1:]
    total, weight = np.zeros((len(points), 3)), np.zeros(len(points))
    normals = normals / np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-12)
    tolerance = 0.01 * float(np.ptp(points, axis=0).max())
    for i in range(len(views)):
        T = views.T_camera_world[i]
        p = points @ T[:3, :3].T + T[:3, 3]
        fx, fy, cx, cy = views.intrinsics[i]
        ahead = np.maximum(p[:, 2], 1e-9)
        x, y = fx * p[:, 0] / ahead + cx, fy * p[:, 1] / ahead + cy
        ok = (x >= 0) & (y >= 0) & (x <= width - 1) & (y <= height - 1) & (p[:, 2] > 1e-9)
        facing = -np.einsum("ni,ni->n", normals @ T[:3, :3].T, p)
        facing /= np.maximum(np.linalg.norm(p, axis=1), 1e-12)
        ok &= facing > _FACING
        if not ok.any():
            continue
        depth = renderer.render(views.intrinsics[i], width, height, T).depth
        column, row = (np.rint(v[ok]).astype(int) for v in (x, y))
        visible = (views.mask[i][row, column] >= 250) & (
            p[ok, 2] < depth[row, column] + tolerance / np.maximum(facing[ok], _FACING)
        )
        here = np.flatnonzero(ok)[visible]
        if len(here) == 0:
            continue
        at = np.stack([x[here], y[here]], axis=1).astype(np.float32)
        sample = _sampled(views.image[i], at)
        w = facing[here] ** 2
        total[here] += w[:, None] * sample
        weight[here] += w
    return total, weight


def _sampled(image: NDArray[np.uint8], at: NDArray[np.float32]) -> Float:
    """Bilinear colours (n, 3) of an image at (n, 2) px; remap's maps are at most 32767 long."""
    rows = -(-len(at) // 4096)
    padded = np.zeros((rows * 4096, 2), np.float32)
    padded[: len(at)] = at
    found = cv2.remap(image, padded.reshape(rows, 4096, 2), None, cv2.INTER_LINEAR)
    return np.asarray(found.reshape(-1, 3)[: len(at)], np.float64)
