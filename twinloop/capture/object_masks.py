"""Masks of the object in the kept pictures: first roughly in small ones, then at full size.

Given masks (another tool's files, alpha channels, the user's segmenter) are taken as they are and
judged by the hull that they share; on a tag board the print tells the object from the table; else
points, box and clicks start cuts that the other views mend.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from twinloop.capture.crop import undistorters
from twinloop.capture.given_masks import GivenMask, given_mask, hull_of
from twinloop.capture.hull import Shape
from twinloop.capture.located import Located
from twinloop.capture.mask import Masks, MaskSettings
from twinloop.capture.mask_quality import DROP, quality
from twinloop.capture.multiview_mask import segment_views
from twinloop.capture.plane import PlaneGrid, exposure_gains, rectify
from twinloop.capture.projection import Undistorter
from twinloop.capture.prompts import ViewPrompt, by_picture
from twinloop.capture.seek import Place, seek
from twinloop.capture.source import Scan
from twinloop.capture.sparse_points import sparse_points
from twinloop.capture.survey import Verdict
from twinloop.errors import InputError
from twinloop.geometry import se3

Array = NDArray[np.float64]
Images = NDArray[np.uint8]


@dataclass(frozen=True)
class MaskLimits:
    """What the object and its masks must be like."""

    max_height: float = 0.3
    """Tallest object looked for, m."""
    min_support: float = 0.5
    """Least share of a mask whose colours speak for the object; frames below are dropped."""
    min_quality: float = DROP
    """Least quality of a mask; frames below are dropped."""
    min_frames: int = 6
    """Frames that must remain."""


@dataclass(frozen=True)
class Found:
    """The object, roughly, and the pictures that show it."""

    located: Located
    """Kept pictures; those that do not show the object are dropped."""
    gains: Array
    """Brightness factor of each kept picture (frame,)."""
    shape: Shape
    """Rough hull, table frame."""
    way: str
    """Where masks come from: "board", "board and views", "views", "mask files", "alpha",
    "segmenter", "export"."""
    given: GivenMask | None
    """Masks that were given."""
    prompts: Mapping[int, ViewPrompt]
    """What the user pointed at, by number in the scan, pixels of the full picture."""


def find(scan: Scan, located: Located, settings: MaskSettings, limits: MaskLimits) -> Found:
    """Find the object in small pictures, and drop pictures that do not show it.

    Raises:
        InputError: Nothing stands on the table, masks are missing or empty, or too few frames show
            the object.
    """
    way, given = given_mask(scan)
    prompts = by_picture(scan.file.prompts, scan.pictures) if scan.file.prompts else {}
    _require_pointed_at(prompts, located, str(scan.pictures.path))
    masks: Images | None = None
    if given is not None:
        raw = [given(shot.index, shot.small) for shot in located.shots]
        located = _enough(located, np.array([m is not None for m in raw]), limits, "have a mask")
        lenses, _ = _small(located)
        left = [m for m in raw if m is not None]
        masks = np.stack([lens.image(m) for lens, m in zip(lenses, left, strict=True)])
    lenses, images = _small(located)
    k = np.stack([lens.intrinsics for lens in lenses])
    T = located.T_camera_table
    gains = _gains(images, k, located)
    images = np.stack([brighten(i, g) for i, g in zip(images, gains, strict=True)])
    coarse = replace(settings, rounds=2, voxels=min(60_000, settings.voxels))
    if masks is not None:
        shape = hull_of(masks, k, T, coarse)
        return Found(located, gains, shape, way, given, prompts)
    hints = _hints(prompts, located, lenses, [_whole(lens) for lens in lenses], small=True)
    if located.points is None:
        located = replace(located, points=sparse_points(images, k, se3.inverse(T)))
    bounds = None if located.board is None else located.board.bounds()
    place = seek(images, k, T, located.points, bounds, hints, limits.max_height)
    found = _coarse(images, k, located, place, hints, coarse)
    keep = found.support >= limits.min_support
    if not keep.all():
        located = _enough(
            located,
            keep,
            limits,
            f"show the object (share of the mask whose colours speak for it at least "
            f"{limits.min_support}, median {np.median(found.support):.2f})",
        )
        images, k, gains = images[keep], k[keep], gains[keep]
        lenses = [lens for lens, ok in zip(lenses, keep, strict=True) if ok]
        hints = _hints(prompts, located, lenses, [_whole(lens) for lens in lenses], small=True)
        found = _coarse(images, k, located, place, hints, coarse)
    return Found(located, gains, found.shape, place.way, None, prompts)


@dataclass(frozen=True)
class CutMasks:
    """Masks at full size."""

    mask: Images
    """(frame, y, x), 255 on the object."""
    agreement: Array
    """Overlap (intersection over union) with the silhouette of the common hull (frame,)."""
    support: Array | None
    """Share of each mask's pixels whose colours speak for the object (frame,); None for masks that
    were given."""
    quality: Array
    """How far to trust each mask, 0 to 1 (frame,)."""

    def only(self, keep: NDArray[np.bool_]) -> CutMasks:
        """The frames where ``keep`` (frame,) is true."""
        support = None if self.support is None else self.support[keep]
        return CutMasks(self.mask[keep], self.agreement[keep], support, self.quality[keep])


def cut(
    images: Images,
    intrinsics: Array,
    found: Found,
    given: Images | None,
    lenses: list[Undistorter],
    windows: NDArray[np.int64],
    settings: MaskSettings,
) -> CutMasks:
    """Cut the object out of the stored windows.

    Args:
        images: Undistorted RGB (frame, y, x, 3), exposure evened out.
        intrinsics: (frame, 4) px.
        found: The object, roughly.
        given: Given masks in the same windows (frame, y, x), or None.
        lenses: Undistorter of each frame.
        windows: First column, first row, columns, rows (frame, 4).
        settings: How.

    Raises:
        InputError: A mask came out empty, or the masks have no volume in common.
    """
    T = found.located.T_camera_table
    if given is not None:
        mask = np.where(given > 127, 255, 0).astype(np.uint8)
        empty = np.flatnonzero((mask > 0).sum(axis=(1, 2)) == 0)
        if len(empty):
            raise InputError(
                f"masks: {len(empty)} of {len(mask)} given masks hold no pixel of the object where "
                f"the others have it (kept frames {empty[:10].tolist()})."
            )
        shape = hull_of(mask, intrinsics, T, settings)
        silhouette = shape.silhouettes(intrinsics, T, mask.shape[1:3])
        both = ((mask > 0) & (silhouette > 0)).sum(axis=(1, 2))
        either = ((mask > 0) | (silhouette > 0)).sum(axis=(1, 2))
        agreement, support = both / np.maximum(either, 1), None
    else:
        hints = _hints(found.prompts, found.located, lenses, list(windows), small=False)
        masks = segment_views(
            images,
            intrinsics,
            se3.inverse(T),
            box=found.shape.box(0.1),
            # Points of small pictures are too coarse to be certain at full size.
            points=found.located.points if found.located.board is None else None,
            prompts=hints,
            start=found.shape,
            settings=settings,
        )
        mask, agreement, support = masks.mask, masks.agreement, masks.support
        silhouette = masks.shape.silhouettes(intrinsics, T, mask.shape[1:3])
    trust = quality(images, mask, silhouette, support)
    return CutMasks(mask, agreement, support, trust)


def trusted(masks: CutMasks, found: Found, limits: MaskLimits) -> tuple[Found, NDArray[np.bool_]]:
    """Drop frames whose mask is not to be trusted; says which are kept (frame,).

    Raises:
        InputError: Too few remain.
    """
    keep = np.asarray(masks.quality >= limits.min_quality)
    if keep.all():
        return found, keep
    what = (
        f"have a mask of a quality of at least {limits.min_quality} (median "
        f"{np.median(masks.quality):.2f})"
    )
    located = _enough(found.located, keep, limits, what)
    return replace(found, located=located, gains=found.gains[keep]), keep


def brighten(image: Images, gain: float) -> Images:
    """Multiply a picture by its brightness factor."""
    return np.asarray(np.rint(image * np.float32(gain)).clip(0, 255), np.uint8)


def _small(located: Located) -> tuple[list[Undistorter], Images]:
    """Undistorter of each small picture, and the undistorted small pictures."""
    height, width = located.shots[0].small.shape[:2]
    lenses = undistorters([c.scaled(width, height) for c in located.cameras], 1.0)
    pairs = zip(lenses, located.shots, strict=True)
    return lenses, np.stack([lens.image(shot.small) for lens, shot in pairs])


def _whole(lens: Undistorter) -> NDArray[np.int64]:
    return np.array([0, 0, lens.width, lens.height])


def _coarse(
    images: Images,
    intrinsics: Array,
    located: Located,
    place: Place,
    hints: Mapping[int, ViewPrompt],
    settings: MaskSettings,
) -> Masks:
    """Masks of the small pictures."""
    return segment_views(
        images,
        intrinsics,
        se3.inverse(located.T_camera_table),
        box=place.box,
        points=located.points,
        prompts=hints,
        start=place.rough,
        settings=settings,
    )


def _hints(
    prompts: Mapping[int, ViewPrompt],
    located: Located,
    lenses: list[Undistorter],
    windows: list[NDArray[np.int64]],
    *,
    small: bool,
) -> dict[int, ViewPrompt]:
    """Prompts by number of the kept frame, in the pixels of its window."""
    hints = {}
    for i, shot in enumerate(located.shots):
        if shot.index in prompts:
            prompt = prompts[shot.index]
            if small:
                height, width = shot.small.shape[:2]
                prompt = prompt.scaled(np.array([width, height]) / np.array(shot.size))
            hints[i] = prompt.undistorted(lenses[i], windows[i])
    return hints


def _require_pointed_at(prompts: Mapping[int, ViewPrompt], located: Located, where: str) -> None:
    """Refuse prompts that are all in pictures that were not kept, rather than forget them."""
    kept = [shot.index for shot in located.shots]
    if prompts and not set(prompts) & set(kept):
        raise InputError(
            f"{where}: the prompts point at pictures {sorted(prompts)[:10]}, which cannot be used "
            "(another size, no pose, or no tags); point at others, for example at "
            f"{kept[:: max(1, len(kept) // 5)][:6]}."
        )


def _gains(images: Images, intrinsics: Array, located: Located) -> Array:
    """Brightness factor of each frame from the table's look: the print's, or the ground's."""
    if not located.has_table:
        return np.ones(len(images))
    T = located.T_camera_table
    if located.board is not None:
        low, high = located.board.bounds()
    else:
        eye = se3.inverse(T)[:, :3, 3]
        forward = T[:, 2, :3]
        across = np.eye(3) - forward[:, :, None] * forward[:, None, :]
        target = np.linalg.lstsq(
            across.sum(axis=0), np.einsum("nij,nj->i", across, eye), rcond=1e-6
        )[0]
        reach = 0.35 * float(np.median(np.linalg.norm(eye - target, axis=1)))
        low, high = target[:2] - reach, target[:2] + reach
    grid = PlaneGrid.over(low, high, float((high - low).max()) / 150)
    return exposure_gains(*rectify(images, None, intrinsics, T, grid))


def _enough(located: Located, keep: NDArray[np.bool_], limits: MaskLimits, what: str) -> Located:
    """Drop frames; refuse when too few remain."""
    if keep.sum() < limits.min_frames:
        raise InputError(
            f"masks: {int(keep.sum())} of {len(keep)} frames {what}, at least {limits.min_frames} "
            "are needed. The object must stand still on the table, in view, and not have the "
            "table's colours; a box or clicks in scan.yaml help, or masks of another tool."
        )
    return located if keep.all() else located.only(keep, Verdict.BAD_MASK)
