"""Object masks for a camera that moves around an object on a tag board.

1. Coarse (:func:`find_object`): the most agreed colour of every table texel predicts the empty
   table in each frame; where a frame differs, something rises above the table.  Voxels above the
   board that differ in most frames are roughly the object.
2. Fine (:func:`segment`), some rounds: the table is estimated again with the object masked out;
   each pixel gets log odds from the table's colour against the object's colours (one histogram
   over all frames) and from the silhouette of the hull of the round before; a minimum cut labels
   it.  The hull that the masks agree on is the next round's prior, so that a frame in which the
   object looks like the table is mended by the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from twinloop.capture.evidence import (
    BUSY,
    Evidence,
    blank,
    compare,
    dilate,
    erode,
    even_edge,
    table_noise,
    ternary,
)
from twinloop.capture.graphcut import LIMIT, cut
from twinloop.capture.hull import Shape, VoxelGrid, carve, largest_component, votes
from twinloop.capture.plane import (
    Mosaic,
    PlaneGrid,
    median_mosaic,
    mode_mosaic,
    rectify,
)
from twinloop.errors import InputError
from twinloop.geometry import se3
from twinloop.progress import track

Array = NDArray[np.float64]
Images = NDArray[np.uint8]
Flags = NDArray[np.bool_]

BINS = 16
"""Histogram bins per colour channel."""
OUTLIER = 1e-2
"""Share of table pixels that the mosaic does not explain (glints, moving shadows)."""


@dataclass(frozen=True)
class MaskSettings:
    """How masks are cut."""

    rounds: int = 3
    """Fine rounds."""
    voxels: int = 500_000
    """Voxels of the hull."""
    smoothness: float = 3.0
    """Cost of a boundary between two equal pixels, nats."""
    tolerance: float = 0.02
    """Share of frames that may contradict a hull voxel: only the few frames that graze a face can
    tell where it is, so more would blow the hull up."""
    largest_noise: float = 16.0
    """Noise of the table against its mosaic, grey levels, above which the mosaic is not believed:
    the ground is not flat, or not where it is said to be."""


@dataclass(frozen=True)
class Masks:
    """Masks and what they rest on."""

    mask: Images
    """(frame, y, x), 255 on the object."""
    agreement: Array
    """Overlap (intersection over union) of each mask with the silhouette of the common hull."""
    support: Array
    """Share of each mask's pixels whose colours alone speak for the object, (frame,).

    Low where the object is hidden, gone or moved, and the other frames' hull was believed."""
    shape: Shape
    """The last hull."""
    mosaic: Mosaic | None
    """The empty table; None where a flat table explains too little of what is around the object."""


@dataclass(frozen=True)
class Seeds:
    """What is known for certain of one frame's pixels."""

    inside: Flags
    """On the object, (y, x)."""
    outside: Flags
    """Beside it, (y, x)."""


def segment(
    images: Images,
    intrinsics: Array,
    T_camera_board: Array,
    start: Shape,
    settings: MaskSettings | None = None,
    seeds: Sequence[Seeds] | None = None,
) -> Masks:
    """Cut the object that stands on the board out of every frame.

    Args:
        images: Undistorted RGB (frame, y, x, 3), exposure evened out.
        intrinsics: fx, fy, cx, cy (frame, 4), px.
        T_camera_board: (frame, 4, 4).
        start: Rough shape of the object, see :func:`find_object`.
        settings: How.
        seeds: Pixels of each frame that are known for certain; None for none.

    Raises:
        InputError: A mask came out empty, or the masks have no volume in common.
    """
    settings = settings or MaskSettings()
    height, width = images.shape[1:3]
    low, high = start.box(0.1)
    T_board_camera = se3.inverse(T_camera_board)
    depth = np.linalg.norm(T_board_camera[:, :3, 3] - (low + high) / 2, axis=1)
    texel = float(np.median(depth / intrinsics[:, 0]))
    plane = shadow_grid(T_board_camera[:, :3, 3], low, high, texel, limit=1.2)
    colours, seen = rectify(images, None, intrinsics, T_camera_board, plane)
    shape, trust = start, 1.5
    last: list[Evidence] = []
    mosaic: Mosaic | None = None
    support = np.ones(len(images))
    masks = prior = shape.silhouettes(intrinsics, T_camera_board, (height, width))
    margin = max(3, round(0.02 * max(height, width)))
    wide = np.stack([dilate(p, 3 * margin) for p in prior])
    needed = np.asarray(_hidden(wide, intrinsics, T_camera_board, plane, 1).any(axis=0))
    for step in track(range(settings.rounds), "cut masks"):
        hidden = _hidden(masks, intrinsics, T_camera_board, plane, margin if step == 0 else 2)
        mosaic = median_mosaic(colours, seen & ~hidden, plane, needed)
        evidence = [
            compare(image, mosaic, k, T)
            for image, k, T in zip(images, intrinsics, T_camera_board, strict=True)
        ]
        region = [dilate(p, 2 * margin if step == 0 else margin) for p in prior]
        if seeds is not None:
            region = [r | dilate(_white(s.inside), 2) for r, s in zip(region, seeds, strict=True)]
        sigma = table_noise(evidence, region)
        if sigma > settings.largest_noise:
            mosaic, evidence = None, [blank(one) for one in evidence]
        histogram = _object_colours(images, masks, evidence, sigma)
        cuts = [
            _cut_frame(
                images[i],
                evidence[i],
                sigma,
                histogram,
                prior[i],
                trust,
                region[i],
                None if seeds is None else seeds[i],
                settings,
            )
            for i in range(len(images))
        ]
        masks = np.stack([mask for mask, _ in cuts])
        support = np.array([share for _, share in cuts])
        _refuse_empty(masks, step)
        grid = VoxelGrid.over(low, high, settings.voxels)
        shape = Shape(carve(masks, intrinsics, T_camera_board, grid, settings.tolerance), grid)
        if not shape.occupied.any():
            raise InputError(
                f"masks: round {step}: the masks of {len(images)} frames have no volume in common. "
                "Did the object move during the scan, or the board?"
            )
        prior = shape.silhouettes(intrinsics, T_camera_board, (height, width))
        last = evidence
        low, high = shape.box(0.1)
        trust = 3.0
    masks = np.stack([even_edge(i, m, e) for i, m, e in zip(images, masks, last, strict=True)])
    if seeds is not None:
        # Filled holes and moved edges do not overrule the user.
        masks[np.stack([s.outside & ~s.inside for s in seeds])] = 0
    both = ((masks > 0) & (prior > 0)).sum(axis=(1, 2))
    either = ((masks > 0) | (prior > 0)).sum(axis=(1, 2))
    return Masks(masks, both / np.maximum(either, 1), support, shape, mosaic)


def find_object(
    images: Images,
    intrinsics: Array,
    T_camera_board: Array,
    bounds: Array,
    max_height: float = 0.3,
) -> Shape:
    """Find roughly what stands on the board, in small pictures.

    Args:
        images: Undistorted RGB (frame, y, x, 3), some 100 to 300 px.
        intrinsics: fx, fy, cx, cy (frame, 4), px.
        T_camera_board: (frame, 4, 4).
        bounds: Lowest and highest x, y of the board, (2, 2) m.
        max_height: Tallest object looked for, m.

    Returns:
        A generous hull of coarse voxels.

    Raises:
        InputError: Nothing stands on the board.
    """
    low = np.r_[bounds[0], 0.0]
    high = np.r_[bounds[1], max_height]
    eyes = se3.inverse(T_camera_board)[:, :3, 3]
    centre = np.r_[bounds.mean(axis=0), 0.0]
    texel = float(np.median(np.linalg.norm(eyes - centre, axis=1) / intrinsics[:, 0]))
    plane = shadow_grid(eyes, low, high, texel, limit=0.5)
    colours, seen = rectify(images, None, intrinsics, T_camera_board, plane)
    grid = VoxelGrid.over(low, high, 120_000)
    mosaic = mode_mosaic(colours, seen, plane)
    for step in range(2):
        evidence = [
            compare(image, mosaic, k, T)
            for image, k, T in zip(images, intrinsics, T_camera_board, strict=True)
        ]
        sigma = table_noise(evidence, None, 0.5)
        differs = np.stack([ternary(e, sigma) for e in evidence])
        count, inside = votes(differs, intrinsics, T_camera_board, grid)
        share = inside / np.maximum(count, 1)
        occupied = largest_component((count >= max(2, len(images) // 4)) & (share > 0.7))
        if occupied.sum() < 4:
            raise InputError(
                f"masks: nothing stands on the board in {len(images)} frames (largest share of "
                f"frames that see a difference at a place: {share.max():.2f}, expected over 0.7). "
                "The object must stand on the board, not beside it, and must not move."
            )
        if step == 0:
            # Where the object hides the table in all frames the mosaic shows the object itself.
            shadow = Shape(occupied, grid).silhouettes(
                intrinsics, T_camera_board, images.shape[1:3]
            )
            hidden = _hidden(shadow, intrinsics, T_camera_board, plane, 2)
            mosaic = mode_mosaic(colours, seen & ~hidden, plane)
    return Shape(occupied, grid)


def shadow_grid(eyes: Array, low: Array, high: Array, texel: float, limit: float) -> PlaneGrid:
    """Texels that a box can hide from any of the cameras, at most ``limit`` box sizes around it."""
    corners = np.array(np.meshgrid(*np.stack([low, high], axis=1), indexing="ij")).reshape(3, -1).T
    drop = eyes[:, None, 2] / np.maximum(
        eyes[:, None, 2] - corners[None, :, 2], 0.1 * eyes[:, None, 2]
    )
    ground = eyes[:, None, :2] + (corners[None, :, :2] - eyes[:, None, :2]) * drop[..., None]
    ground = ground.reshape(-1, 2)
    extent = (high - low)[:2].max() * limit
    lower = np.maximum(ground.min(axis=0), low[:2] - extent) - 4 * texel
    upper = np.minimum(ground.max(axis=0), high[:2] + extent) + 4 * texel
    # Bound the memory whatever the numbers say: at most a million texels.
    texel = max(texel, float(np.sqrt(np.prod(upper - lower) / 1e6)))
    return PlaneGrid.over(lower, upper, texel)


def _object_colours(images: Images, masks: Images, evidence: list[Evidence], sigma: float) -> Array:
    """Log density of the object's colours over all frames, see :func:`_log_density`."""
    # Only pixels that are surely not table teach the object's colours.
    sure = [
        (mask > 0) & one.known & (one.difference > 4 * sigma)
        for mask, one in zip(masks, evidence, strict=True)
    ]
    if sum(int(s.sum()) for s in sure) < 100:
        sure = [erode(mask, 2) > 0 for mask in masks]
    return _log_density(np.concatenate([i[s] for i, s in zip(images, sure, strict=True)]))


def _log_density(colours: Images) -> Array:
    """Log density (bins, bins, bins) of colours (n, 3), per grey level cubed, floored."""
    step = 256 // BINS
    index = (colours // step).astype(np.int64) @ np.array([BINS * BINS, BINS, 1])
    histogram = np.bincount(index, minlength=BINS**3).reshape(BINS, BINS, BINS).astype(np.float64)
    histogram = ndimage.gaussian_filter(histogram, 0.7, mode="nearest")
    share = 0.9 * histogram / max(histogram.sum(), 1.0) + 0.1 / BINS**3
    return np.asarray(np.log(share / step**3))


def _cut_frame(
    image: Images,
    evidence: Evidence,
    sigma: float,
    histogram: Array,
    prior: Images,
    trust: float,
    region: Images,
    seeds: Seeds | None,
    settings: MaskSettings,
) -> tuple[Images, float]:
    """Mask (y, x) of one frame, 255 on the object, and its support by colours alone."""
    rows, columns = np.flatnonzero(region.any(axis=1)), np.flatnonzero(region.any(axis=0))
    mask = np.zeros(image.shape[:2], np.uint8)
    if not len(rows):
        return mask, 0.0
    window = np.s_[max(rows[0] - 2, 0) : rows[-1] + 3, max(columns[0] - 2, 0) : columns[-1] + 3]
    picture = image[window]
    binned = (picture // (256 // BINS)).astype(int)
    log_object = histogram[binned[..., 0], binned[..., 1], binned[..., 2]]
    squared = 1.5 * (evidence.difference[window] / sigma) ** 2
    peak = -np.maximum(evidence.log_range[window], 3 * np.log(sigma * np.sqrt(2 * np.pi)))
    # The colours around the object stand for the table where the mosaic is wrong or ends.
    other = _log_density(image[region == 0])[binned[..., 0], binned[..., 1], binned[..., 2]]
    # Among the edges of the print the mosaic says little, the colours around the object more.
    share = np.where(evidence.log_range[window] > 3 * np.log(BUSY), 0.5, OUTLIER)
    log_table = np.where(
        evidence.known[window], np.logaddexp(peak - squared, np.log(share) + other), other
    )
    log_odds = log_object - log_table
    colours = np.clip(log_odds, -6, 8)
    inside = cv2.distanceTransform(prior[window], cv2.DIST_L2, 5)
    outside = cv2.distanceTransform(255 - prior[window], cv2.DIST_L2, 5)
    log_odds = colours + trust * np.clip((inside - outside) / 2.0, -2.0, 2.0)
    grey = np.asarray(cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY), np.uint8)
    fixed = region[window] == 0
    if seeds is not None:
        log_odds[seeds.inside[window]] = LIMIT
        fixed |= seeds.outside[window] & ~seeds.inside[window]
    found = cut(log_odds, grey, fixed, settings.smoothness)
    found = _tidy(found)
    mask[window] = found.astype(np.uint8) * 255
    return mask, float((colours[found] > 0).mean()) if found.any() else 0.0


def _white(flags: Flags) -> Images:
    return flags.astype(np.uint8) * 255


def _tidy(found: Flags) -> Flags:
    """Keep the largest piece (and others a tenth of its size) and fill small holes."""
    label, count = ndimage.label(found)
    if count == 0:
        return found
    sizes = np.bincount(label.ravel())
    sizes[0] = 0
    kept = np.isin(label, np.flatnonzero(sizes >= 0.1 * sizes.max()))
    holes, count = ndimage.label(~kept)
    sizes = np.bincount(holes.ravel())
    small = np.flatnonzero(sizes < 0.01 * kept.sum())
    outer = np.unique(np.r_[holes[0], holes[-1], holes[:, 0], holes[:, -1]])
    return np.asarray(kept | np.isin(holes, np.setdiff1d(small, outer)))


def _hidden(
    masks: Images, intrinsics: Array, T_camera_board: Array, plane: PlaneGrid, margin: int
) -> Flags:
    """Texels that the masks, grown by ``margin`` px, cover, (frame, rows, columns)."""
    size = (plane.columns, plane.rows)
    flags = cv2.WARP_INVERSE_MAP | cv2.INTER_NEAREST
    grown = [dilate(m, margin) for m in masks]
    return np.stack(
        [
            cv2.warpPerspective(m, plane.homography(k, T), size, flags=flags) > 0
            for m, k, T in zip(grown, intrinsics, T_camera_board, strict=True)
        ]
    )


def _refuse_empty(masks: Images, step: int) -> None:
    counts = (masks > 0).sum(axis=(1, 2))
    empty = np.flatnonzero(counts == 0)
    if len(empty):
        raise InputError(
            f"masks: round {step}: {len(empty)} of {len(masks)} masks are empty (kept frames "
            f"{empty[:10].tolist()}; the others have {int(np.median(counts))} object pixels at the "
            "median). Is the object in view there, and did it stand still?"
        )
