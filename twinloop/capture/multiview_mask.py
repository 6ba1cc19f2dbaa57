"""Object masks without a board: from poses, sparse points, and what the user points at.

1. :func:`find_box`: the object is the cluster of points above the table (z = 0) at which the
   cameras look.
2. Start: GrabCut (Rother et al. 2004) in every view, told that nothing outside the projected box
   and everything at the projected points is object.  Points on the far side count too: wherever a
   point of the object projects, the object is seen.  Voxels that most views agree on are the start
   of the hull.
3. Some rounds of :func:`twinloop.capture.mask.segment`: colours of object and surroundings shared
   by all views, the table's mosaic where the ground is flat, and the hull's silhouette as prior.
"""

from __future__ import annotations

from collections.abc import Mapping

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from twinloop.capture.evidence import compare, dilate, table_noise, ternary
from twinloop.capture.hull import UNKNOWN, Shape, VoxelGrid, largest_component, project_all, votes
from twinloop.capture.mask import Masks, MaskSettings, Seeds, segment, shadow_grid
from twinloop.capture.plane import mode_mosaic, rectify
from twinloop.capture.prompts import ViewPrompt
from twinloop.errors import InputError
from twinloop.geometry import se3
from twinloop.progress import track

Array = NDArray[np.float64]
Images = NDArray[np.uint8]
Flags = NDArray[np.bool_]

ABOVE = 0.012
"""Height over the table from which a point may be the object's, per distance of the cameras."""
LINK = 0.05
"""Largest gap between neighbouring points of an object, per distance of the cameras."""
NEIGHBOUR = 0.6
"""Largest gap between the parts of an object, per size of the part that is known."""
FLAT = 0.1
"""What is lower than this share of the object's height is its shadow."""
MARGIN = 0.12
"""Room around the points: there is object beyond the outermost ones."""
START_SIDE = 240
"""Longer side of the pictures of the start, px."""


def find_box(
    points: Array,
    T_world_camera: Array,
    intrinsics: Array,
    size: tuple[int, int],
    prompts: Mapping[int, ViewPrompt] | None = None,
) -> tuple[Array, Array]:
    """Find the object among sparse points: the cluster above the table that all cameras look at.

    Args:
        points: (m, 3) m, world frame: z up, the table is z = 0.
        T_world_camera: (frame, 4, 4).
        intrinsics: fx, fy, cx, cy (frame, 4), px.
        size: Columns and rows of the pictures, px.
        prompts: What the user pointed at, by number of the frame.

    Returns:
        Lowest and highest corner (3,) m of a box that holds the object and some room.

    Raises:
        InputError: No cluster of points rises above the table, or none is where the user points.
    """
    points = points[np.isfinite(points).all(axis=1)]
    T_camera_world = se3.inverse(T_world_camera)
    target = _look_at(T_world_camera)
    distance = float(np.median(np.linalg.norm(T_world_camera[:, :3, 3] - target, axis=1)))
    weight = _centrality(points, intrinsics, T_camera_world, size)
    lowest = T_world_camera[:, 2, 3].min()
    high = (points[:, 2] > ABOVE * distance) & (weight > 0)
    # Nothing that all cameras look down at reaches above the lowest of them by much.
    high &= points[:, 2] < max(1.2 * lowest, 0.3 * distance)
    high &= np.linalg.norm(points - target, axis=1) < 0.8 * distance
    chosen, weight = points[high], weight[high]
    label = _clusters(chosen, LINK * distance)
    if prompts:
        weight = weight * _pointed_at(chosen, intrinsics, T_camera_world, prompts)
    score = np.asarray(np.bincount(label, weight), np.float64)
    if not len(score) or score.max() <= 0 or np.bincount(label)[score.argmax()] < 4:
        where = " where the user points" if prompts else ""
        raise InputError(
            f"masks: no cluster of at least 4 points rises above the table{where} ({len(points)} "
            f"points, {int((points[:, 2] > ABOVE * distance).sum())} of them more than "
            f"{ABOVE * distance:.3f} m above z = 0). Check that the table is the plane z = 0 and "
            "that z points up; or give the object's box."
        )
    found = _with_neighbours(chosen, label, score)
    low, top = np.quantile(found, [0.01, 0.99], axis=0)
    room = MARGIN * (top - low).max()
    low, top = low - room, top + room
    low[2] = 0.0
    return low, top


def segment_views(
    images: Images,
    intrinsics: Array,
    T_world_camera: Array,
    *,
    box: tuple[Array, Array],
    points: Array | None = None,
    prompts: Mapping[int, ViewPrompt] | None = None,
    start: Shape | None = None,
    settings: MaskSettings | None = None,
) -> Masks:
    """Cut the object out of every view.

    Args:
        images: Undistorted RGB (frame, y, x, 3), exposure evened out.
        intrinsics: fx, fy, cx, cy (frame, 4), px.
        T_world_camera: (frame, 4, 4); z up, the table is z = 0.
        box: Lowest and highest corner (3,) m that the object lies in, see :func:`find_box`.
        points: Sparse points (m, 3) m, of the object and others; None when there are none.
        prompts: What the user pointed at, by number of the frame.
        start: Rough shape, from smaller pictures; found here when None.
        settings: How.

    Raises:
        InputError: A mask came out empty, or the masks have no volume in common.
    """
    settings = settings or MaskSettings()
    T_camera_world = se3.inverse(T_world_camera)
    on_object = _inside(points, box) if points is not None else np.zeros((0, 3))
    hints = prompts or {}
    if start is None:
        start = _start(images, intrinsics, T_camera_world, box, on_object, hints, settings)
    seeds = [
        _seeds(images.shape[1:3], on_object, k, T, hints.get(i))
        for i, (k, T) in enumerate(zip(intrinsics, T_camera_world, strict=True))
    ]
    return segment(images, intrinsics, T_camera_world, start, settings, seeds)


def _start(
    images: Images,
    intrinsics: Array,
    T_camera_world: Array,
    box: tuple[Array, Array],
    points: Array,
    prompts: Mapping[int, ViewPrompt],
    settings: MaskSettings,
) -> Shape:
    """Rough shape of the object: what most GrabCuts agree on, and the points."""
    height, width = images.shape[1:3]
    scale = min(1.0, START_SIDE / max(height, width))
    small = (max(8, round(height * scale)), max(8, round(width * scale)))
    ratio = np.array([small[1] / width, small[0] / height])
    k = intrinsics.copy()
    k[:, :2] *= ratio
    k[:, 2:] = (k[:, 2:] + 0.5) * ratio - 0.5
    pictures = [
        np.asarray(cv2.resize(i, small[::-1], interpolation=cv2.INTER_AREA), np.uint8)
        for i in images
    ]
    windows = [_box_window(small, box, *pose) for pose in zip(k, T_camera_world, strict=True)]
    seeds = [
        _seeds(small, points, k[i], T, prompts[i].scaled(ratio) if i in prompts else None)
        for i, T in enumerate(T_camera_world)
    ]
    grid = VoxelGrid.over(*box, min(settings.voxels, 120_000))
    table = _agrees_with_table(np.stack(pictures), k, T_camera_world, box, settings)
    likely = np.stack(windows)
    for step in range(2):
        masks = np.stack(
            [
                grab(*view)
                for view in track(
                    list(zip(pictures, windows, seeds, likely, strict=True)), "first masks"
                )
            ]
        )
        views = (k, T_camera_world, grid, points, 0.7 if step else 0.55)
        occupied = _agreed(masks, *views)
        # What looks like the table in its place is shadow, unless most of the object does.
        bare = _agreed(np.where(table & (masks > 0), UNKNOWN, masks), *views, needed=False)
        if bare.sum() >= 0.4 * occupied.sum():
            occupied = bare
        likely = Shape(occupied, grid).silhouettes(k, T_camera_world, small) > 0
    return Shape(occupied, grid)


def _agrees_with_table(
    images: Images,
    intrinsics: Array,
    T_camera_world: Array,
    box: tuple[Array, Array],
    settings: MaskSettings,
) -> Flags:
    """Pixels (frame, y, x) that surely look as the empty table does there; none on rough ground."""
    eyes = se3.inverse(T_camera_world)[:, :3, 3]
    depth = np.linalg.norm(eyes - (box[0] + box[1]) / 2, axis=1)
    texel = float(np.median(depth / intrinsics[:, 0]))
    plane = shadow_grid(eyes, *box, texel, limit=0.8)
    mosaic = mode_mosaic(*rectify(images, None, intrinsics, T_camera_world, plane), plane)
    evidence = [
        compare(image, mosaic, k, T)
        for image, k, T in zip(images, intrinsics, T_camera_world, strict=True)
    ]
    sigma = table_noise(evidence, None, 0.5)
    if sigma > settings.largest_noise:
        return np.zeros(images.shape[:3], bool)
    return np.stack([ternary(one, sigma) == 0 for one in evidence])


def _agreed(
    masks: Images,
    intrinsics: Array,
    T_camera_world: Array,
    grid: VoxelGrid,
    points: Array,
    share: float,
    needed: bool = True,
) -> Flags:
    """Voxels on at least ``share`` of the masks that see them, those of points, and no shadow."""
    seen, inside = votes(masks, intrinsics, T_camera_world, grid)
    agreed = inside / np.maximum(seen, 1)
    occupied = (seen >= max(2, len(masks) // 4)) & (agreed >= share)
    if len(points):
        index = np.rint((points - grid.lower) / grid.voxel).astype(int)
        occupied[tuple(np.clip(index, 0, np.array(grid.shape) - 1).T)] = True
    occupied = largest_component(occupied)
    if not occupied.any():
        if not needed:
            return occupied
        raise InputError(
            f"masks: the first masks of {len(masks)} views have no volume in common in the box "
            f"of {np.round(np.array(grid.shape) * grid.voxel, 3).tolist()} m (largest share of "
            f"views that agree on a place: {agreed.max():.2f}, expected at least {share}). Is the "
            "object inside, and did it stand still?"
        )
    # A shadow lies as still as the object, but it has no height.
    layers = np.arange(grid.shape[2])
    top = np.where(occupied, layers + 1, 0).max(axis=2)
    upright = occupied & (top > FLAT * top.max())[..., None]
    return largest_component(upright)


def grab(image: Images, window: Flags, seeds: Seeds | None, likely: Flags | None = None) -> Images:
    """GrabCut of one view.

    Args:
        image: RGB (y, x, 3).
        window: Where the object may be, (y, x).
        seeds: What is certain; None for nothing.
        likely: Where it probably is, (y, x); None for all of the window.

    Returns:
        (y, x), 255 on the object.
    """
    labels = np.where(window, cv2.GC_PR_FGD, cv2.GC_BGD).astype(np.uint8)
    if likely is not None:
        labels[window & ~likely] = cv2.GC_PR_BGD
    if seeds is not None:
        labels[seeds.outside] = cv2.GC_BGD
        labels[seeds.inside] = cv2.GC_FGD
    free = (labels == cv2.GC_PR_FGD) | (labels == cv2.GC_FGD)
    if free.sum() < 5 or (~free).sum() < 5:
        return np.where(free, 255, 0).astype(np.uint8)
    cv2.setRNGSeed(0)
    cv2.grabCut(image, labels, None, np.zeros((1, 65)), np.zeros((1, 65)), 4, cv2.GC_INIT_WITH_MASK)
    found = (labels == cv2.GC_PR_FGD) | (labels == cv2.GC_FGD)
    return np.where(found, 255, 0).astype(np.uint8)


def _look_at(T_world_camera: Array) -> Array:
    """Point (3,) nearest to all optical axes, in the least-squares sense."""
    axes = T_world_camera[:, :3, 2]
    across = np.eye(3) - axes[:, :, None] * axes[:, None, :]
    right = np.einsum("nij,nj->i", across, T_world_camera[:, :3, 3])
    return np.asarray(np.linalg.lstsq(across.sum(axis=0), right, rcond=1e-6)[0])


def _centrality(
    points: Array, intrinsics: Array, T_camera_world: Array, size: tuple[int, int]
) -> Array:
    """Mean closeness (m,) of points to the pictures' middles, 0 where half of the views miss it."""
    total, count = np.zeros(len(points)), np.zeros(len(points))
    half = np.array(size) / 2
    for k, T in zip(intrinsics, T_camera_world, strict=True):
        pixels, depth = project_all(points, k, T)
        off = (pixels + 0.5 - half) / half
        within = (depth > 0) & (np.abs(off) < 1).all(axis=1)
        count += within
        total += np.where(within, np.exp(-4 * np.minimum((off**2).sum(axis=1), 50.0)), 0.0)
    return np.where(count >= 0.5 * len(intrinsics), total / np.maximum(count, 1), 0.0)


def _clusters(points: Array, link: float) -> NDArray[np.int64]:
    """Number of the cluster of each point (m,); neighbours within ``link`` m belong together."""
    pairs = cKDTree(points).query_pairs(link, output_type="ndarray") if len(points) else None
    if pairs is None:
        return np.zeros(0, np.int64)
    graph = csr_matrix(
        (np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(len(points), len(points))
    )
    return np.asarray(connected_components(graph, directed=False)[1], np.int64)


def _with_neighbours(points: Array, label: NDArray[np.int64], score: Array) -> Array:
    """Points of the best cluster and of considerable ones near it: plain parts have no points."""
    kept = label == score.argmax()
    while True:
        low, high = points[kept].min(axis=0), points[kept].max(axis=0)
        reach = NEIGHBOUR * float(np.linalg.norm(high - low))
        gap = cKDTree(points[kept]).query(points)[0]
        near = np.unique(label[~kept & (gap < reach)])
        grown = kept | np.isin(label, near[score[near] > 0.05 * score.max()])
        if (grown == kept).all():
            return np.asarray(points[kept])
        kept = grown


def _pointed_at(
    points: Array, intrinsics: Array, T_camera_world: Array, prompts: Mapping[int, ViewPrompt]
) -> Flags:
    """Points (m,) that lie in the user's box in every picture that has one, or near a click."""
    wanted = np.ones(len(points), bool)
    for i, prompt in prompts.items():
        pixels, _ = project_all(points, intrinsics[i], T_camera_world[i])
        if prompt.box is not None:
            wanted &= (pixels >= prompt.box[:2]).all(axis=1) & (pixels <= prompt.box[2:]).all(
                axis=1
            )
        if len(prompt.inside):
            reach = 0.08 * 2 * float(intrinsics[i, 2:].max())
            gap = np.linalg.norm(pixels[:, None] - prompt.inside[None], axis=2).min(axis=1)
            wanted &= gap < reach
    return wanted


def _inside(points: Array, box: tuple[Array, Array]) -> Array:
    """Points in the box that are not on the table and have neighbours."""
    low, high = box
    bottom = np.r_[low[:2], low[2] + 0.06 * (high[2] - low[2])]
    chosen = points[((points >= bottom) & (points <= high)).all(axis=1)]
    if len(chosen) < 4:
        return np.zeros((0, 3))
    gap = np.asarray(cKDTree(chosen).query(chosen, k=4)[0])[:, -1]
    return np.asarray(chosen[gap < 0.1 * float(np.linalg.norm(high - low))])


def _box_window(
    shape: tuple[int, int], box: tuple[Array, Array], intrinsics: Array, T_camera_world: Array
) -> Flags:
    """Outline (y, x) of the box in a picture; all of it where the camera is inside the box."""
    corners = np.array(np.meshgrid(*np.stack(box, axis=1), indexing="ij")).reshape(3, -1).T
    pixels, depth = project_all(corners, intrinsics, T_camera_world)
    window = np.zeros(shape, np.uint8)
    if (depth <= 0).any():
        return np.ones(shape, bool)
    outline = cv2.convexHull(np.clip(pixels, -1e5, 1e5).astype(np.float32))
    cv2.fillConvexPoly(window, np.rint(outline).astype(np.int32), 255)
    return np.asarray(window > 0)


def _seeds(
    shape: tuple[int, int],
    points: Array,
    intrinsics: Array,
    T_camera_world: Array,
    prompt: ViewPrompt | None,
) -> Seeds:
    """What points and the user say for certain of one picture's pixels."""
    inside, outside = np.zeros(shape, np.uint8), np.zeros(shape, np.uint8)
    if len(points):
        pixels, depth = project_all(points, intrinsics, T_camera_world)
        _mark(inside, pixels[depth > 0], 0)
    if prompt is not None:
        radius = max(1, round(0.008 * max(shape)))
        _mark(inside, prompt.inside, radius)
        _mark(outside, prompt.outside, radius)
        if prompt.box is not None:
            kept = np.zeros(shape, np.uint8)
            low, high = np.rint(prompt.box[:2]).astype(int), np.rint(prompt.box[2:]).astype(int)
            kept[max(low[1], 0) : high[1] + 1, max(low[0], 0) : high[0] + 1] = 255
            outside[kept == 0] = 255
            inside[kept == 0] = 0
    return Seeds(inside > 0, outside > 0)


def _mark(picture: Images, pixels: Array, radius: int) -> None:
    """Draw discs of ``radius`` px."""
    u, v = np.rint(pixels).astype(int).T if len(pixels) else (np.zeros(0, int),) * 2
    ok = (u >= 0) & (u < picture.shape[1]) & (v >= 0) & (v < picture.shape[0])
    dots = np.zeros_like(picture)
    dots[v[ok], u[ok]] = 255
    picture |= dilate(dots, radius) if radius else dots
