"""Move a hull's surface to where the pictures agree.

A visual hull bulges over every face that no camera grazes. Where there is texture, the true surface
is where small patches look the same from all views. For each vertex, patches along the normal are
scored by normalised correlation; then one linear system balances the best offsets against bending
of the surface (uniform Laplacian), with the bending weights lowered where the surface really bends
(iteratively reweighted), so that edges stay. A weak pull to the hull decides where there is no
texture.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
import scipy.sparse as sp
import warp as wp
from numpy.typing import NDArray
from scipy.sparse.linalg import cg

from twinloop.geometry.raycast import MeshRenderer
from twinloop.progress import track
from twinloop.splat.refine_kernel import agreement
from twinloop.splat.surface import Faces, Float, adjacency, vertex_normals
from twinloop.splat.views import Float32, Views


@dataclass(frozen=True)
class RefineSettings:
    """Settings of `refine`; lengths in pixels of the pictures at the object's distance."""

    inward: float = 14.0
    """Deepest search below the hull."""
    outward: float = 2.0
    """Farthest search above the hull."""
    step: float = 0.7
    """Step of the first search; the second is a quarter of it."""
    views: int = 8
    """Views that judge a vertex, the ones that face it best."""
    stiffness: float = 15.0
    """Weight of bending against photometric offsets."""
    crease: float = 0.25
    """Bending, in mean edge lengths, beyond which the surface is taken to have an edge."""
    anchor: float = 0.002
    """Weight of staying on the hull where there is texture around."""
    plain_anchor: float = 0.5
    """The same where there is none."""


def refine(
    vertices: Float,
    faces: Faces,
    views: Views,
    settings: RefineSettings,
    table: float | None = None,
) -> Float:
    """Vertices (v, 3) m moved along their normals to photometric agreement; faces stay.

    `vertices` should be spread evenly (a marching-cubes mesh). Vertices on the `table` stay there.
    """
    pixel = pixel_size(vertices, views)
    grey = contrast(views)
    spread = float(np.linalg.norm(vertices[faces[:, 0]] - vertices[faces[:, 1]], axis=1).mean())
    rounds = (
        (settings.step, settings.inward, settings.outward, 1.6),
        (settings.step / 4, 2.5 * settings.step, 2.5 * settings.step, 1.1),
    )
    for step, inward, outward, patch in track(rounds, "refine the surface"):
        normals = _directions(vertices, faces, table, 3 * spread)
        chosen = visible_views(vertices, faces, normals, views, settings.views)
        offsets = np.arange(-inward, outward + 1e-9, step) * pixel
        score = _score(grey, views, chosen, vertices, normals, offsets, patch * pixel)
        fixed = np.zeros(len(vertices), bool)
        if table is not None:
            fixed = vertices[:, 2] < table + 0.3 * spread
        moved = _solve(vertices, faces, normals, offsets, score, fixed, settings, spread, pixel)
        vertices = vertices + moved[:, None] * normals
        if table is not None:
            vertices[:, 2] = np.maximum(vertices[:, 2], table)
    return vertices


def pixel_size(vertices: Float, views: Views) -> float:
    """Median size (m) of a pixel on the object."""
    middle = vertices.mean(axis=0)
    depth = (views.T_camera_world[:, :3, :3] @ middle + views.T_camera_world[:, :3, 3])[:, 2]
    return float(np.median(depth / views.intrinsics[:, 0]))


def contrast(views: Views, blur: float = 0.7) -> Float32:
    """One-channel pictures (view, y, x) along the colour that varies most on the object."""
    pixels = views.image[views.mask >= 128].astype(np.float64) / 255
    step = max(1, len(pixels) // 200_000)
    direction = np.linalg.eigh(np.cov(pixels[::step].T))[1][:, -1]
    direction = direction * np.sign(direction.sum() or 1.0)
    grey = views.image.astype(np.float32) @ (direction / 255).astype(np.float32)
    return np.stack([cv2.GaussianBlur(g, (0, 0), blur) for g in grey]).astype(np.float32)


def visible_views(
    vertices: Float, faces: Faces, normals: Float, views: Views, most: int
) -> NDArray[np.int32]:
    """Indices (v, most) of the views that see each vertex best, -1 where there are fewer."""
    renderer = MeshRenderer(vertices, faces)
    height, width = views.mask.shape[1:]
    tolerance = 3 * pixel_size(vertices, views)
    facing = np.zeros((len(views), len(vertices)))
    for i in range(len(views)):
        T, k = views.T_camera_world[i], views.intrinsics[i]
        p = vertices @ T[:3, :3].T + T[:3, 3]
        column = np.rint(k[0] * p[:, 0] / p[:, 2] + k[2]).astype(int)
        row = np.rint(k[1] * p[:, 1] / p[:, 2] + k[3]).astype(int)
        inside = (column >= 2) & (row >= 2) & (column < width - 2) & (row < height - 2)
        column, row = column.clip(0, width - 1), row.clip(0, height - 1)
        depth = renderer.render(k, width, height, T).depth[row, column]
        look = -np.einsum("vi,vi->v", normals @ T[:3, :3].T, p) / np.linalg.norm(p, axis=1)
        facing[i] = np.where(inside & (p[:, 2] < depth + tolerance) & (look > 0.35), look, 0)
    order = np.argsort(-facing, axis=0, kind="stable")[:most]
    seen = np.take_along_axis(facing, order, axis=0) > 0
    return np.ascontiguousarray(np.where(seen, order, -1).T.astype(np.int32))


def _directions(vertices: Float, faces: Faces, table: float | None, low: float) -> Float:
    """Smooth normals to move along; level near the table, so that the base keeps its height."""
    normals = vertex_normals(vertices, faces)
    matrix = adjacency(faces, len(vertices))
    for _ in range(6):
        normals = normals + matrix @ normals
        normals /= np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-12)
    if table is not None:
        near = vertices[:, 2] < table + low
        normals[near, 2] = 0
        length = np.linalg.norm(normals, axis=1, keepdims=True)
        normals = np.where(length > 1e-6, normals / np.maximum(length, 1e-12), 0.0)
    return np.asarray(normals)


def _score(
    grey: Float32,
    views: Views,
    chosen: NDArray[np.int32],
    vertices: Float,
    normals: Float,
    offsets: Float,
    spacing: float,
) -> Float32:
    score = np.zeros((len(vertices), len(offsets)), np.float32)

    def array(values: NDArray[np.floating], dtype: object) -> object:
        return wp.array(np.ascontiguousarray(values, np.float32), dtype=dtype, device="cpu")

    wp.launch(
        agreement,
        dim=score.shape,
        inputs=[
            wp.array(grey, dtype=wp.float32, device="cpu", copy=False),
            wp.array(np.ascontiguousarray(views.mask), dtype=wp.uint8, device="cpu", copy=False),
            array(views.intrinsics, wp.vec4),
            array(views.T_camera_world[:, :3, :3], wp.mat33),
            array(views.T_camera_world[:, :3, 3], wp.vec3),
            wp.array(chosen, dtype=wp.int32, device="cpu"),
            array(vertices, wp.vec3),
            array(normals, wp.vec3),
            array(offsets, wp.float32),
            spacing,
            0.02,
            wp.array(score, dtype=wp.float32, device="cpu", copy=False),
        ],
        device="cpu",
    )
    return score


def _solve(
    vertices: Float,
    faces: Faces,
    normals: Float,
    offsets: Float,
    score: Float32,
    fixed: NDArray[np.bool_],
    settings: RefineSettings,
    spread: float,
    pixel: float,
) -> Float:
    """Offsets (v,) m along the normals; see the module's text."""
    n = len(vertices)
    matrix = adjacency(faces, n)
    average = sp.diags(1.0 / np.asarray(matrix.sum(1)).ravel()) @ matrix
    laplace = sp.identity(n) - average
    step = float(offsets[1] - offsets[0])
    span = float(offsets[-1] - offsets[0])
    current = np.zeros(n)
    for turn in range(4):
        # After the first turn the best offset is looked for near the surface found so far.
        pull = 0.0 if turn == 0 else 0.3 * turn
        cost = 1 - score + pull * ((offsets[None] - current[:, None]) / (0.1 * span)) ** 2
        best, sure = _minimum(cost.astype(np.float64), offsets, pixel)
        sure = np.where(fixed, 0.0, sure)
        around = sure
        for _ in range(30):
            around = average @ around
        plain = np.clip(1 - around / 0.1, 0, 1)
        anchor = settings.anchor + settings.plain_anchor * plain
        bend = np.linalg.norm(laplace @ (vertices + current[:, None] * normals), axis=1)
        soft = 1 / (1 + (bend / (settings.crease * spread)) ** 2) if turn else np.ones(n)
        weight = sp.diags(soft)
        system = sp.diags(sure + anchor + 1e4 * fixed)
        target = sure * best
        for axis in range(3):
            part = laplace @ sp.diags(normals[:, axis])
            system = system + settings.stiffness * (part.T @ weight @ part)
            bent = weight @ (laplace @ vertices[:, axis])
            target = target - settings.stiffness * (part.T @ bent)
        current, _ = cg(system.tocsr(), target, x0=current, rtol=1e-5, maxiter=200)
        current = np.clip(current, offsets[0] - step, offsets[-1] + step)
    return np.asarray(current)


def _minimum(cost: Float, offsets: Float, pixel: float) -> tuple[Float, Float]:
    """Best offset of each row, to a fraction of a step, and a weight 0..1 of its correlation."""
    k = cost.argmin(axis=1)
    rows = np.arange(len(cost))
    inner = np.clip(k, 1, len(offsets) - 2)
    a, b, c = (cost[rows, inner + d] for d in (-1, 0, 1))
    bend = a - 2 * b + c
    shift = np.where((bend > 1e-9) & (k == inner), 0.5 * (a - c) / np.maximum(bend, 1e-9), 0.0)
    best = offsets[k] + np.clip(shift, -0.5, 0.5) * (offsets[1] - offsets[0])
    # A flat valley, as of a patch without texture, says nothing about where its bottom is.
    depth = np.median(cost, axis=1) - cost[rows, k]
    agree = np.clip((0.8 - cost[rows, k]) / 0.6, 0, 1)
    # Nor does a long one: an edge seen along itself agrees at any depth.
    length = (cost < cost[rows, k][:, None] + 0.15).sum(axis=1) * (offsets[1] - offsets[0]) / pixel
    sure = agree * np.clip(depth / 0.3, 0, 1) * np.clip(2 - length / 4, 0, 1)
    return best, np.where((k == 0) | (k == len(offsets) - 1), 0.0, sure)
