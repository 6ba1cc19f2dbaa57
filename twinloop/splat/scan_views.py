"""What of a scan can be used, and whether it can be reconstructed at all.

Every check names what is wrong in the words of whoever filmed: frames, poses, masks, units. What
would give a shape without a word although the scan cannot tell one is refused here.
"""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from twinloop.capture.warning import CaptureWarning
from twinloop.errors import InputError
from twinloop.geometry.raycast import MeshRenderer
from twinloop.splat.pictures import check_views
from twinloop.splat.surface import Faces
from twinloop.splat.views import Float, Views

LEAST_SHOWN = 0.6
"""Part of the frames whose masks must show something; a scan that lost more is not one."""
MOST_CUT = 0.1
"""Part of a mask's width, or height, that may lie at the picture's border. What lies beyond is not
known, and would be taken for empty."""
LEAST_TURN = 10.0
"""deg; views that lie within such an angle tell no depth."""
SMALLEST, LARGEST = 0.004, 3.0
"""m; sides of what a robot pushes and grasps. Beyond them the poses are in another unit."""
LEAST_OVERLAP = 0.8
"""Intersection over union of the first shape's outline with the masks, median over the views."""


def check_poses(views: Views, frames: NDArray[np.integer]) -> None:
    """Raise InputError, naming the frame, for poses or intrinsics that are none.

    frames: number of each view in the artifact of ingest.
    """
    for name, wanted in (("intrinsics", "fx, fy > 0, cx, cy"), ("T_camera_world", "a rigid pose")):
        values: Float = getattr(views, name)
        bad = ~np.isfinite(values).all(axis=tuple(range(1, values.ndim)))
        if name == "intrinsics":
            bad |= ~(values[:, :2] > 0).all(axis=1)
        else:
            R = values[:, :3, :3]
            with np.errstate(invalid="ignore"):
                bad |= ~(np.abs(R @ R.transpose(0, 2, 1) - np.eye(3)).max(axis=(1, 2)) < 1e-3)
        if bad.any():
            i = int(np.flatnonzero(bad)[0])
            raise InputError(
                f"ingest.zarr: {name} of frame {frames[i]} is {values[i].tolist()}, expected "
                f"{wanted}; run ingest again, or leave the frame out"
            )


def usable(views: Views, frames: NDArray[np.integer], least: int = 3) -> Views:
    """The views that show the object, of a scan that can tell a shape.

    Frames with an empty mask, or one that the border cuts off, are left out with a warning.

    Raises:
        InputError: Fewer than `least` frames show the object, or the whole of it; masks that cover
            whole pictures; all views from one side.
    """
    share = (views.mask >= 128).mean(axis=(1, 2))
    shown = share > 0
    needed = max(least, int(np.ceil(LEAST_SHOWN * len(views))))
    if int(shown.sum()) < needed:
        raise InputError(
            f"masks: {int(shown.sum())} of {len(views)} training frames show the object; expected "
            f"at least {needed}. Check the masks of ingest (plots/ingest): is the object in view "
            "and unlike the table?"
        )
    if float(np.median(share[shown])) > 0.97:
        raise InputError(
            "masks: most of them cover the whole picture, so that they show no outline; expected "
            "the object alone. Check the masks of ingest (plots/ingest), or film from farther away"
        )
    whole = shown & ~_cut(views)
    if int(whole.sum()) < needed:
        raise InputError(
            f"masks: {int(whole.sum())} of {len(views)} training frames show the whole object, the "
            f"border of the picture cuts it off in {int((shown & ~whole).sum())}; expected at "
            f"least {needed}. Film it from farther away, or with the object in the middle"
        )
    for which, cause in ((~shown, "an empty mask"), (shown & ~whole, "the object cut off")):
        if not which.any():
            continue
        lost = [int(frames[i]) for i in np.flatnonzero(which)]
        warnings.warn(
            f"frames {lost[:8]}{' and more' if len(lost) > 8 else ''} have {cause} and are "
            f"left out; {int(whole.sum())} of {len(views)} are used",
            CaptureWarning,
            stacklevel=2,
        )
    kept = chosen(views, whole)
    check_views(kept)
    _check_spread(kept)
    return kept


def _cut(views: Views) -> NDArray[np.bool_]:
    """Which views' masks go on beyond the border of the picture, by more than specks there."""
    cut = np.zeros(len(views), bool)
    for i, mask in enumerate(views.mask >= 128):
        columns, rows = mask.any(axis=0).sum(), mask.any(axis=1).sum()
        across = max(mask[0].sum(), mask[-1].sum())
        along = max(mask[:, 0].sum(), mask[:, -1].sum())
        cut[i] = across > MOST_CUT * columns or along > MOST_CUT * rows
    return cut


def chosen(views: Views, which: NDArray[np.bool_] | NDArray[np.integer]) -> Views:
    """Some of the views."""
    return replace(
        views,
        image=views.image[which],
        mask=views.mask[which],
        intrinsics=views.intrinsics[which],
        T_camera_world=views.T_camera_world[which],
    )


def _check_spread(views: Views) -> None:
    """Refuse scans from one side, and poses in another unit than metres.

    The object is about where the lines of sight through the masks' middles meet, and as large as
    the masks seem there.
    """
    height, width = views.mask.shape[1:]
    R = views.T_camera_world[:, :3, :3]
    eye = -np.einsum("vji,vj->vi", R, views.T_camera_world[:, :3, 3])
    boxes = np.array([views.box(i, 0) or (0, 0, width, height) for i in range(len(views))], float)
    f, c = views.intrinsics[:, :2], views.intrinsics[:, 2:]
    middle = 0.5 * (boxes[:, :2] + boxes[:, 2:])
    ray = np.concatenate([(middle - c) / f, np.ones((len(views), 1))], axis=1)
    ray = np.einsum("vji,vj->vi", R, ray)
    ray /= np.linalg.norm(ray, axis=1, keepdims=True)
    turn = float(np.degrees(np.arccos(np.clip(ray @ ray.T, -1, 1).min())))
    if turn < LEAST_TURN:
        raise InputError(
            f"views: all {len(views)} look at the object from one side, within {turn:.1f}°; "
            f"expected directions at least {LEAST_TURN:.0f}° apart. Film around the object, or "
            "check the poses: do they move?"
        )
    across = np.eye(3) - np.einsum("vi,vj->vij", ray, ray)
    place = np.linalg.solve(across.sum(0), np.einsum("vij,vj->i", across, eye))
    away = np.linalg.norm(eye - place, axis=1)
    sides = (boxes[:, 2:] - boxes[:, :2]).max(axis=1)
    check_size(float(np.median(away * sides / f.mean(axis=1))))


def check_shape(vertices: Float, faces: Faces, views: Views) -> None:
    """Raise InputError for a first shape (vertices (v, 3) m, faces) that contradicts its scan.

    Raises:
        InputError: A size that no object of a table top has, or an outline unlike the masks.
    """
    check_size(float(np.ptp(vertices, axis=0).max()))
    overlap = mask_overlap(vertices, faces, views)
    if overlap < LEAST_OVERLAP:
        raise InputError(
            f"masks and poses disagree: the shape that all views agree on covers {overlap:.0%} of "
            f"the masks (median, intersection over union), expected {LEAST_OVERLAP:.0%}. Are the "
            "poses camera-to-world with OpenCV's axes, and do the silhouettes show one object?"
        )


def mask_overlap(vertices: Float, faces: Faces, views: Views) -> float:
    """Intersection over union of a mesh's outline with the masks, median over a dozen views.

    vertices (v, 3) m, in the views' world.
    """
    renderer = MeshRenderer(vertices, faces)
    height, width = views.mask.shape[1:]
    overlaps = []
    step = max(1, len(views) // 12)
    for i in range(0, len(views), step):
        drawn = renderer.render(views.intrinsics[i], width, height, views.T_camera_world[i]).mask
        inside = views.mask[i] >= 128
        union = int((drawn | inside).sum())
        overlaps.append(float((drawn & inside).sum() / union) if union else 0.0)
    return float(np.median(overlaps))


def check_size(side: float) -> None:
    """Raise InputError unless `side` (m) is one of an object for a robot."""
    if not SMALLEST <= side <= LARGEST:
        unit = "millimetres" if side > LARGEST else "metres, and the scale of the scan that of it"
        raise InputError(
            f"scale: the object is {side:.3g} m long, expected {SMALLEST} to {LARGEST} m. Are the "
            f"poses in {unit}? State a length or use the board (docs/captures.md)"
        )
