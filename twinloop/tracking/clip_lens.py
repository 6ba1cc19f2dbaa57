"""The lens of a clip that came without one, from the tag board in its pictures.

Several directions give the whole lens (:func:`calibrate`).  One direction, all that a camera on a
tripod sees, gives the focal length where the board is seen at a slant: what is not known of the
rest of the lens (the principal point, distortion) goes into its deviation, and a focal length that
is not known well enough to track with is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from twinloop.capture.board import Board, detect_tags
from twinloop.capture.calibrate import View, calibrate
from twinloop.capture.projection import Camera
from twinloop.errors import InputError

Array = NDArray[np.float64]
Image = NDArray[np.uint8]

MOST = 20
"""Most pictures that are looked at."""
DIRECTIONS = 12.0
"""Angle between the directions from which a board is seen, for a whole calibration, deg."""
STILL = 1.5
"""Corners that move less through a clip, px, are those of a camera that stands."""
LEAST_CORNERS = 12
"""Fewest corners of one direction: three tags."""
CENTRE = 0.02
"""Deviation of the principal point from the picture's centre, by its width."""
BARREL = 0.1
"""Deviation of the first distortion term."""
HINT = 0.1
"""Relative deviation of a focal length from a file's tags: videos are cropped and stabilised."""
ACCEPTED = 0.03
"""Largest relative deviation of a focal length to track with: 3 % is 2 mm of depth in 60."""


@dataclass(frozen=True)
class ClipLens:
    """camera: the lens; focal_std: px; views: poses of the camera it is from; how: in words."""

    camera: Camera
    focal_std: float
    views: int
    how: str


def lens_of_clip(
    pictures: Sequence[Image], board: Board, where: str, focal_hint: float = np.nan
) -> ClipLens:
    """Estimate the lens from a clip's pictures.

    Args:
        pictures: (h, w) u1 grey pictures as filmed, of one size; some twenty are looked at.
        board: The board in view.
        where: The clip, for messages.
        focal_hint: px, from the file's tags (see :mod:`twinloop.capture.focal`); NaN for none.

    Raises:
        InputError: No picture, no board in any of them, or the focal length is not known to 3 %;
            says what is known and how to do better.
    """
    if not len(pictures):
        raise InputError(f"{where}: the clip has no frame; film it again.")
    height, width = pictures[0].shape
    chosen = np.unique(np.linspace(0, len(pictures) - 1, MOST).round().astype(int))
    views: list[View] = []
    for i in chosen.tolist():
        points, pixels = detect_tags(pictures[i], board).pairs(board)
        if len(points) >= LEAST_CORNERS:
            views.append(View(i, points, pixels))
    if not views:
        raise InputError(
            f"{where}: the camera's intrinsics are not given, and none of {len(chosen)} pictures "
            f"shows {LEAST_CORNERS // 4} tags of the board ({board.family}), from which they could "
            "be estimated. Give camera.yaml (fx, fy, cx, cy, distortion), or film the board too."
        )
    if len(views) >= 3 and _turned(views, width, height) > DIRECTIONS:
        result = calibrate(views, width, height)
        std = float(result.camera_std[:2].max())
        lens = ClipLens(result.camera, std, len(views), f"the board in {len(views)} pictures")
    else:
        lens = _one_direction(_still(views), width, height, focal_hint)
    focal = float(lens.camera.intrinsics[0])
    if not lens.focal_std < ACCEPTED * focal:
        raise InputError(
            f"{where}: the camera's intrinsics are not given; {lens.how} puts the focal length at "
            f"{focal:.0f} +- {lens.focal_std:.0f} px ({100 * lens.focal_std / focal:.1f} %), at "
            f"most {100 * ACCEPTED:g} % is accepted. Give camera.yaml, or film the board at a "
            "slant, larger, or from several sides."
        )
    return lens


def _turned(views: list[View], width: int, height: int) -> float:
    """Largest angle (deg) between the board's normals as the camera sees them, roughly.

    Going about a board at one height turns it in its own plane, which tells nothing of the lens.
    """
    focal = 0.9 * max(width, height)
    K = np.array([[focal, 0, (width - 1) / 2], [0, focal, (height - 1) / 2], [0, 0, 1.0]])
    normals = []
    for view in views:
        _, rvec, _ = cv2.solvePnP(view.points, view.pixels, K, None, flags=cv2.SOLVEPNP_IPPE)
        normals.append(cv2.Rodrigues(rvec)[0][:, 2])
    N = np.array(normals)
    return float(np.degrees(np.arccos(np.clip((N @ N.T).min(), -1.0, 1.0))))


def _still(views: list[View]) -> View:
    """The view with most corners; each corner is the median of those in all views that stand still.

    A camera on its tripod sees them in one place: noise goes, and corners that are covered for a
    while are there.
    """
    richest = max(views, key=lambda v: len(v.points))
    places: dict[bytes, list[Array]] = {}
    corner: dict[bytes, Array] = {}
    for view in views:
        for point, pixel in zip(view.points, view.pixels, strict=True):
            places.setdefault(point.tobytes(), []).append(pixel)
            corner[point.tobytes()] = point
    spread = [float(np.ptp(np.array(p), axis=0).max()) for p in places.values()]
    if float(np.median(spread)) > STILL:
        return richest
    return View(
        richest.frame,
        np.array(list(corner.values())),
        np.array([np.median(np.array(p), axis=0) for p in places.values()]),
    )


def _one_direction(view: View, width: int, height: int, hint: float) -> ClipLens:
    """Lens and pose from one view of the board, with weak knowledge of any lens.

    Unknown: log focal length, principal point, k1, pose. The best of several starts, for a plane
    seen nearly frontally has flat minima.
    """
    points, pixels = view.points, view.pixels
    size = float(max(width, height))
    centre = np.array([(width - 1) / 2, (height - 1) / 2])
    expected, spread = (np.log(hint), HINT) if np.isfinite(hint) else (np.log(0.9 * size), 1.0)

    def shown(x: Array) -> Array:
        f = float(np.exp(x[0]))
        K = np.array([[f, 0, x[1]], [0, f, x[2]], [0, 0, 1.0]])
        lens = np.array([x[3], 0.0, 0.0, 0.0, 0.0])
        return np.asarray(cv2.projectPoints(points, x[4:7], x[7:10], K, lens)[0]).reshape(-1, 2)

    def rest(x: Array, sigma: float) -> Array:
        prior = [
            (x[0] - expected) / spread,
            *((x[1:3] - centre) / (CENTRE * size)),
            x[3] / BARREL,
        ]
        return np.concatenate([((shown(x) - pixels) / sigma).ravel(), prior])

    best = None
    for factor in (0.6, 1.0, 1.6):
        f = float(np.exp(expected)) * (1.0 if np.isfinite(hint) else factor)
        K = np.array([[f, 0, centre[0]], [0, f, centre[1]], [0, 0, 1.0]])
        _, rvec, tvec = cv2.solvePnP(points, pixels, K, None, flags=cv2.SOLVEPNP_IPPE)
        start = np.concatenate([[np.log(f), *centre, 0.0], np.ravel(rvec), np.ravel(tvec)])
        found = least_squares(rest, start, args=(0.3,), x_scale="jac", loss="soft_l1")
        if best is None or found.cost < best.cost:
            best = found
    assert best is not None
    error = np.linalg.norm(shown(best.x) - pixels, axis=1)
    # The median length of two normal errors is 1.1774 deviations; corners share errors of print.
    sigma = max(0.1, float(np.median(error)) / 1.1774)
    final = least_squares(rest, best.x, args=(sigma,), x_scale="jac", loss="soft_l1")
    jacobian = np.asarray(final.jac, np.float64)
    covariance = np.linalg.pinv(jacobian.T @ jacobian)
    f = float(np.exp(final.x[0]))
    camera = Camera(
        np.array([f, f, final.x[1], final.x[2]]),
        np.array([final.x[3], 0.0, 0.0, 0.0, 0.0]),
        width,
        height,
    )
    std = f * float(np.sqrt(covariance[0, 0]))
    return ClipLens(camera, std, 1, "the board from one direction")
