"""Depth of the views from each other, for what no outline shows.

The inside of a bowl is in no outline: its hull is closed by a lid, centimetres above the floor, too
far for surfels to sink and for `twinloop.splat.refine` to look. So for each pixel of a view small
patches are moved along its ray, from the hull's front to its back, and correlated with the
neighbouring views, each by itself, since some of them do not see the place (plane sweep, Collins
1996; the best half of the neighbours counts, Kang et al. 2001). A depth that no neighbour confirms
is dropped. Where nothing is left, as on a plain surface, the hull stays.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import cv2
import numpy as np
import warp as wp
from numpy.typing import NDArray

from twinloop.geometry.raycast import MeshRenderer
from twinloop.progress import track
from twinloop.splat.hull import Silhouettes, silhouettes
from twinloop.splat.refine import contrast, pixel_size
from twinloop.splat.refine_kernel import agreement
from twinloop.splat.surface import Faces, smooth
from twinloop.splat.tsdf import FusionSettings, fuse
from twinloop.splat.views import Float, Float32, Views
from twinloop.threads import each


@dataclass(frozen=True)
class StereoSettings:
    """Settings of `hollowed`; lengths in pixels of the pictures at the object's distance."""

    size: int = 160
    """Side of the object (px, median over the views) above which pictures are made coarser."""
    stride: int = 3
    """Every so-manieth pixel of a row, and row, is looked at; more than `most` raise it."""
    most: int = 40_000
    """Most pixels looked at, of all views."""
    step: float = 1.5
    """Step along the ray."""
    most_steps: int = 128
    """Most steps; a deeper hull takes longer ones."""
    patch: float = 1.4
    """Distance of the 5 x 5 points of a patch."""
    neighbours: int = 4
    """Views that each view is compared with."""
    nearest: float = 8.0
    """deg; views closer than that tell too little depth."""
    least: float = 0.55
    """Correlation below which a pixel has no depth."""
    confirmed: float = 2.5
    """How near a neighbour's depth must be to confirm one."""
    agree: float = 3.0
    """Where the depths lie less than that from the hull, the hull stays, which is sharper."""
    cell: float = 1.4
    """Side of a cell of the fusion."""
    smoothing: int = 4
    """Rounds of smoothing of the result."""


def hollowed(
    vertices: Float,
    faces: Faces,
    views: Views,
    settings: StereoSettings | None = None,
    tolerate: int = 0,
    table: float | None = None,
) -> tuple[Float, Faces]:
    """A hull's mesh, deeper where the views agree on it: vertices (v, 3) m, faces (f, 3) outward.

    Right to about a pixel in hollows, for `twinloop.splat.refine` or surfels to go on from.
    `tolerate` and `table` as in `twinloop.splat.hull.hull_mesh`. Where the views agree on nothing,
    the hull that was given is returned.
    """
    s = settings or StereoSettings()
    views = _coarse(views, s.size)
    shapes = silhouettes(views.mask)
    depth = stereo_depth(vertices, faces, views, shapes, s)
    if not (depth > 0).any():
        return vertices, faces
    fusion = fuse(
        views,
        shapes,
        depth,
        FusionSettings(cell=s.cell, reach=4.0, tolerate=tolerate, table=table),
    )
    found, faces = fusion.field(0.0, s.agree).mesh()
    return smooth(found, faces, s.smoothing, table, fusion.step), faces


def _coarse(views: Views, size: int) -> Views:
    """The views with pictures made smaller by a whole factor, so that the object takes `size`."""
    boxes = [cv2.boundingRect((m >= 128).astype(np.uint8))[2:] for m in views.mask]
    factor = round(float(np.median(np.max(boxes, axis=1))) / size)
    if factor < 2:
        return views
    height, width = (n // factor for n in views.mask.shape[1:])

    def small(pictures: NDArray[np.uint8]) -> NDArray[np.uint8]:
        cut = pictures[:, : height * factor, : width * factor]
        return np.stack(
            [cv2.resize(p, (width, height), interpolation=cv2.INTER_AREA) for p in cut]
        ).astype(np.uint8)

    intrinsics = views.intrinsics / factor
    intrinsics[:, 2:] = (views.intrinsics[:, 2:] + 0.5) / factor - 0.5
    return replace(
        views,
        image=small(views.image),
        mask=small(views.mask),
        intrinsics=intrinsics,
        coverage=True,
    )


def stereo_depth(
    vertices: Float,
    faces: Faces,
    views: Views,
    shapes: Silhouettes,
    settings: StereoSettings | None = None,
) -> Float32:
    """Depth (view, y, x) m along z on the crops of `shapes`, 0 where views do not agree on one.

    vertices (v, 3) m and faces (f, 3): the hull, or another mesh that the object lies within. The
    result is the same for any number of threads.
    """
    s = settings or StereoSettings()
    inside = int((shapes.distance > 1).sum())
    s = replace(s, stride=max(s.stride, int(np.ceil(np.sqrt(inside / s.most)))))
    pixel = pixel_size(vertices, views)
    grey = contrast(views)
    renderer = MeshRenderer(vertices, faces)
    neighbours = _neighbours(views, vertices.mean(axis=0), s)
    wp.load_module(agreement.module, device="cpu")  # once, and not from several threads
    height, width = shapes.distance.shape[1:]
    rows, columns = np.arange(0, height, s.stride), np.arange(0, width, s.stride)
    grids = np.zeros((len(views), len(rows), len(columns)), np.float32)
    for batch in track(np.array_split(np.arange(len(views)), -(-len(views) // 8)), "stereo"):

        def one(at: int, batch: NDArray[np.integer] = batch) -> None:
            i = int(batch[at])
            x = (shapes.corner[i][0] + columns)[None].repeat(len(rows), 0)
            y = (shapes.corner[i][1] + rows)[:, None].repeat(len(columns), 1)
            looked = shapes.distance[i][:: s.stride, :: s.stride] > 1
            pose, k = views.T_camera_world[i], views.intrinsics[i]
            front = renderer.render(k, views.mask.shape[2], views.mask.shape[1], pose).depth
            near = front[
                y.astype(int).clip(0, front.shape[0] - 1), x.astype(int).clip(0, front.shape[1] - 1)
            ]
            looked &= near > 0
            ray = np.stack([(x - k[2]) / k[0], (y - k[3]) / k[1], np.ones_like(x)], -1)[looked]
            z = (vertices @ pose[:3, :3].T + pose[:3, 3])[:, 2]
            depth = float(z.max() - near[looked].min()) if looked.any() else 0.0
            step = max(s.step * pixel, depth / s.most_steps)
            offsets = np.arange(-2 * step, depth, step)
            found = _sweep(
                grey, views, pose, ray, near[looked], offsets, i, neighbours[i], s, pixel
            )
            grids[i][looked] = found

        each(one, len(batch))
    kept = _confirmed(grids, views, shapes, neighbours, s, pixel)
    return np.stack([_dense(grid, (height, width), s.stride) for grid in kept])


def _neighbours(views: Views, middle: Float, s: StereoSettings) -> NDArray[np.int32]:
    """Of each view the others (view, n) whose directions are nearest, but not too near; or -1."""
    R = views.T_camera_world[:, :3, :3]
    eye = -np.einsum("vji,vj->vi", R, views.T_camera_world[:, :3, 3]) - middle
    eye /= np.linalg.norm(eye, axis=1, keepdims=True)
    angle = np.degrees(np.arccos(np.clip(eye @ eye.T, -1, 1)))
    angle[(angle < s.nearest) | (angle > 60)] = np.inf
    order = np.argsort(angle, axis=1, kind="stable")[:, : s.neighbours]
    known = np.isfinite(np.take_along_axis(angle, order, axis=1))
    return np.where(known, order, -1).astype(np.int32)


def _sweep(
    grey: Float32,
    views: Views,
    pose: Float,
    ray: Float,
    near: Float32,
    offsets: Float,
    index: int,
    neighbours: NDArray[np.int32],
    s: StereoSettings,
    pixel: float,
) -> Float32:
    """Depth (n,) m of rays (n, 3) of one view, which start at depths `near` (n,) m; 0: none."""
    length = np.linalg.norm(ray, axis=1)
    points = (ray * near[:, None] - pose[:3, 3]) @ pose[:3, :3]
    along = (ray / length[:, None]) @ pose[:3, :3]
    scores = np.zeros((len(neighbours), len(ray), len(offsets)), np.float32)

    def array(values: NDArray[np.floating], dtype: object) -> object:
        return wp.array(np.ascontiguousarray(values, np.float32), dtype=dtype, device="cpu")

    for j, other in enumerate(neighbours):
        if other < 0 or len(ray) == 0:
            continue
        pair = np.tile(np.array([index, other], np.int32), (len(ray), 1))
        wp.launch(
            agreement,
            dim=scores.shape[1:],
            inputs=[
                wp.array(grey, dtype=wp.float32, device="cpu", copy=False),
                wp.array(
                    np.ascontiguousarray(views.mask), dtype=wp.uint8, device="cpu", copy=False
                ),
                array(views.intrinsics, wp.vec4),
                array(views.T_camera_world[:, :3, :3], wp.mat33),
                array(views.T_camera_world[:, :3, 3], wp.vec3),
                wp.array(pair, dtype=wp.int32, device="cpu"),
                array(points, wp.vec3),
                array(along, wp.vec3),
                array(offsets, wp.float32),
                s.patch * pixel,
                0.02,
                wp.array(scores[j], dtype=wp.float32, device="cpu", copy=False),
            ],
            device="cpu",
        )
    best_half = np.sort(scores, axis=0)[-max(1, len(neighbours) // 2) :].mean(axis=0)
    k = best_half.argmax(axis=1)
    every = np.arange(len(k))
    inner = k.clip(1, len(offsets) - 2)
    a, b, c = (best_half[every, inner + d] for d in (-1, 0, 1))
    bend = a - 2 * b + c
    shift = np.where((bend < -1e-6) & (k == inner), 0.5 * (a - c) / np.minimum(bend, -1e-6), 0.0)
    distance = offsets[k] + shift.clip(-0.5, 0.5) * (offsets[1] - offsets[0])
    sure = best_half[every, k] > s.least
    return np.where(sure, near + distance / length, 0.0).astype(np.float32)


def _confirmed(
    grids: Float32,
    views: Views,
    shapes: Silhouettes,
    neighbours: NDArray[np.int32],
    s: StereoSettings,
    pixel: float,
) -> Float32:
    """The depths, on every `stride`th pixel, that some neighbour has too."""
    out = np.zeros_like(grids)
    rows, columns = np.indices(grids.shape[1:]) * s.stride
    for i in range(len(views)):
        pose, k = views.T_camera_world[i], views.intrinsics[i]
        z = grids[i].astype(np.float64)
        x = (shapes.corner[i][0] + columns - k[2]) / k[0] * z
        y = (shapes.corner[i][1] + rows - k[3]) / k[1] * z
        points = (np.stack([x, y, z], -1) - pose[:3, 3]) @ pose[:3, :3]
        votes = np.zeros(z.shape, int)
        for j in neighbours[i]:
            if j < 0:
                continue
            T, f = views.T_camera_world[j], views.intrinsics[j]
            p = points @ T[:3, :3].T + T[:3, 3]
            u = (f[0] * p[..., 0] / p[..., 2] + f[2] - shapes.corner[j][0]) / s.stride
            v = (f[1] * p[..., 1] / p[..., 2] + f[3] - shapes.corner[j][1]) / s.stride
            u, v = np.rint(u).astype(int), np.rint(v).astype(int)
            ok = (u >= 0) & (v >= 0) & (u < z.shape[1]) & (v < z.shape[0])
            there = grids[j][v.clip(0, z.shape[0] - 1), u.clip(0, z.shape[1] - 1)]
            votes += ok & (there > 0) & (np.abs(there - p[..., 2]) < s.confirmed * pixel)
        out[i] = np.where((z > 0) & (votes > 0), z, 0)
    return out


def _dense(grid: Float32, shape: tuple[int, int], stride: int) -> Float32:
    """A depth picture of every pixel; inverse depth is interpolated, across no gap."""
    known = (grid > 0).astype(np.float32)
    inverse = np.where(grid > 0, 1 / np.maximum(grid, 1e-9), 0).astype(np.float32)
    size = (grid.shape[1] * stride, grid.shape[0] * stride)
    shift = np.array([[stride, 0, 0], [0, stride, 0]], np.float32)
    fine, weight = (
        cv2.warpAffine(a, shift, size, flags=cv2.INTER_LINEAR) for a in (inverse, known)
    )
    depth = np.where(weight > 0.999, weight / np.maximum(fine, 1e-9), 0)
    return np.asarray(depth[: shape[0], : shape[1]], np.float32)
