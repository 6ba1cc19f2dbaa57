"""Can these pictures give a model?  Asked before minutes are spent, and answered with numbers.

Texture, overlap and parallax are what structure from motion lives on.  A turntable in front of a
still background looks as if the camera stood still; its background is found and left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from scipy.spatial import cKDTree

from twinloop.capture.sfm_features import (
    LENGTH,
    Features,
    FeatureSet,
    Image,
    match,
    quiet,
)
from twinloop.errors import InputError

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

FEW_FEATURES = 80
"""A picture with fewer features has too little texture."""
FEW_MATCHES = 15
"""Fewest verified matches that link two pictures."""
STILL = 1.0
"""A feature that moves less stands still, px of the shrunk picture."""
MOVES = 2.5
"""A feature that moves more is surely not still, px of the shrunk picture."""
FLAT = 0.92
"""Share of matches on one homography above which two pictures show no parallax."""
LEAST_ANGLE = 1.5
"""Rays that cross at less than this leave depth unknown, degrees."""


@dataclass(frozen=True)
class Finding:
    """What the pictures offer."""

    linked: float
    """Share of the sampled pairs with enough verified matches."""
    matches: float
    """Median verified matches of a sampled pair."""
    angle: float
    """Upper-quartile angle at which rays of a pair cross, degrees, by the assumed focal length."""
    on_homography: float
    """Lower-quartile share of a pair's matches that one homography explains."""
    text: str
    """The numbers in a sentence."""
    advice: str
    """What would help most."""


@dataclass(frozen=True)
class Turntable:
    """A turning object before a still background."""

    features: FeatureSet
    """The features without those of the background."""
    mask: Image
    """Where something turns, for every picture (height, width), 255 there."""
    still: float
    """Share of the features that stood still."""
    note: str
    """A sentence for the report."""

    @property
    def masks(self) -> tuple[Image, ...]:
        """The mask of every picture."""
        return (self.mask,) * len(self.features.pictures)


def check_texture(features: FeatureSet, where: str) -> None:
    """Refuse pictures without texture.

    Raises:
        InputError: The median picture has fewer than ``FEW_FEATURES`` features.
    """
    counts = features.counts
    if np.median(counts) >= FEW_FEATURES:
        return
    poor = np.flatnonzero(counts < FEW_FEATURES)
    raise InputError(
        f"{where}: too little texture: {len(poor)} of {len(counts)} pictures have fewer than "
        f"{FEW_FEATURES} features (median {int(np.median(counts))}, the first such is picture "
        f"{poor[0]}). Put the object on a printed tag board or newspaper, light it more, and check "
        "that the pictures are sharp and the masks are not empty."
    )


def check_matches(
    features: FeatureSet, pairs: list[tuple[int, int]], focal: float | None, where: str
) -> Finding:
    """Match a sample of pairs and judge overlap and parallax.

    Args:
        features: All features.
        pairs: Pairs that look alike.
        focal: Focal length, px of the full pictures; None for a guess of 1.2 times the longer side.
        where: Name of the capture, for messages.

    Raises:
        InputError: No overlap, nothing that moves, or a camera that only turned.
    """
    sampled = _sample(pairs, len(features.pictures))
    rows = [row for a, b in sampled if (row := _judge(features, a, b, focal)) is not None]
    count = len(features.pictures)
    linked = len(rows) / max(len(sampled), 1)
    if len(rows) < max(2, 0.25 * len(sampled)):
        raise InputError(
            f"{where}: too little overlap: {len(rows)} of {len(sampled)} pairs of the {count} "
            f"pictures share {FEW_MATCHES} features or more. Take more pictures, each showing at "
            "least two thirds of the one before, slowly, without blur."
        )
    table = np.array(rows)
    shift, shared = float(np.median(table[:, 4])), float(np.median(table[:, 0]))
    angle = float(np.percentile(table[:, 1], 75))
    flat = float(np.percentile(table[:, 2], 25))
    turned = float(np.percentile(table[:, 3], 75))
    text = (
        f"Of {len(sampled)} sampled pairs {len(rows)} share features (median {shared:.0f}), rays "
        f"cross at {angle:.1f} degrees (upper quartile), and one homography explains {flat:.0%} of "
        "a pair."
    )
    if shift < STILL / 2:
        raise InputError(
            f"{where}: neither camera nor object moves: matched features shift by {shift:.2f} px "
            "between pictures. Walk around the object, or turn it."
        )
    if flat > FLAT and turned < 2.0:
        raise InputError(
            f"{where}: the camera only turned on the spot (no parallax): a pure rotation explains "
            f"the matches to {turned:.1f} px. {text} Walk around the object instead of panning."
        )
    if angle < LEAST_ANGLE and flat <= FLAT:
        raise InputError(
            f"{where}: too little parallax for depth. {text} Move farther sideways between "
            "pictures, or lay a tag board beside the object: its tags give the poses."
        )
    return Finding(linked, shared, angle, flat, text, _advice(linked, shared, angle, flat))


def _advice(linked: float, shared: float, angle: float, flat: float) -> str:
    if flat > FLAT:
        return "The scene looks flat: use pictures that show something that rises, or a tag board."
    if angle < 6:
        return "The baseline is short: move farther sideways, or lay a tag board into the scene."
    if shared < 60:
        return "There is little texture: lay a tag board or newspaper under the object."
    if linked < 0.7:
        return "Neighbouring pictures overlap too little: take more of them, closer together."
    return "Leave out blurred pictures, and take more between those that were not registered."


def _sample(pairs: list[tuple[int, int]], count: int, size: int = 14) -> list[tuple[int, int]]:
    """Some pairs of neighbours and some of the widest, evenly over the pictures."""
    widest: dict[int, tuple[int, int]] = {}
    for a, b in pairs:
        if a not in widest or b - a > widest[a][1] - widest[a][0]:
            widest[a] = (a, b)
    near = sorted({a: (a, b) for a, b in reversed(pairs)}.values())
    chosen: set[tuple[int, int]] = set()
    for group in (near, sorted(widest.values())):
        step = np.unique(np.linspace(0, len(group) - 1, min(size, len(group))).round().astype(int))
        chosen.update(group[i] for i in step if len(group))
    return sorted(chosen)


def _judge(
    features: FeatureSet, a: int, b: int, focal: float | None
) -> tuple[float, float, float, float, float] | None:
    """Verified matches, ray angle, share on a homography, misfit of a turn, shift of a pair."""
    first, second = features.pictures[a], features.pictures[b]
    matches = match(first, second)
    if len(matches) < FEW_MATCHES:
        return None
    p = first.keypoints[:, :2].astype(np.float64)
    q = second.keypoints[:, :2].astype(np.float64)
    width, height = features.size
    length = 1.2 * max(width, height) if focal is None else focal * width / features.full[0]
    with quiet() as pycolmap:
        camera = pycolmap.Camera.create_from_model_name(1, "SIMPLE_PINHOLE", length, width, height)
        camera.has_prior_focal_length = True
        options = pycolmap.TwoViewGeometryOptions()
        options.compute_relative_pose = True
        options.ransac.random_seed = 0
        # Watermark detection would call a turntable's background a watermark.
        options.detect_watermark = False
        view = pycolmap.estimate_two_view_geometry(
            camera, p + 0.5, camera, q + 0.5, matches.astype(np.uint32), options
        )
    inliers = np.asarray(view.inlier_matches, np.int64).reshape(-1, 2)
    if len(inliers) < FEW_MATCHES:
        return None
    p, q = p[inliers[:, 0]], q[inliers[:, 1]]
    cv2.setRNGSeed(0)
    H, on = cv2.findHomography(p, q, cv2.RANSAC, 3.0)
    share = float(np.mean(on)) if H is not None else 0.0
    turn = _turn_misfit(H, p, q, width, height) if H is not None else np.inf
    shift = float(np.median(np.linalg.norm(q - p, axis=1)))
    return float(len(inliers)), float(np.degrees(view.tri_angle)), share, turn, shift


def _turn_misfit(H: Array, p: Array, q: Array, width: int, height: int) -> float:
    """Median error of the best pure rotation, any focal length, px.

    A camera that turns maps pixels by K R K^-1 (Hartley and Zisserman, "Multiple view geometry",
    2nd ed., section 8.4.2); R is the rotation nearest to K^-1 H K.
    """
    best = np.inf
    for focal in np.geomspace(0.4, 5.0, 40) * max(width, height):
        K = np.array([[focal, 0, (width - 1) / 2], [0, focal, (height - 1) / 2], [0, 0, 1.0]])
        M = np.linalg.inv(K) @ H @ K
        u, _, vt = np.linalg.svd(M * np.sign(np.linalg.det(M)))
        turned = np.column_stack([p, np.ones(len(p))]) @ (K @ (u @ vt) @ np.linalg.inv(K)).T
        miss = np.linalg.norm(turned[:, :2] / turned[:, 2:] - q, axis=1)
        best = min(best, float(np.median(miss)))
    return best


def find_turntable(features: FeatureSet) -> Turntable | None:
    """Tell a turntable before a still background from a camera that moves.

    Far apart in time, features that match at the same pixel are background (a moving camera leaves
    none), and between neighbours others must move.

    Raises:
        InputError: What turns has too few features.
    """
    n = len(features.pictures)
    far = [(i, (i + n // 2) % n) for i in range(0, n, max(1, n // 10))]
    still = [_shifts(features, a, b) for a, b in far if a != b]
    if np.mean([(s < STILL).sum() >= FEW_MATCHES for s in still]) < 0.7:
        return None
    near = [_shifts(features, i, i + 1) for i in range(0, n - 1, max(1, n // 10))]
    if np.mean([(s > MOVES).sum() >= FEW_MATCHES for s in near]) < 0.5:
        return None
    mask = _moving(features)
    kept = []
    for i, picture in enumerate(features.pictures):
        others = sorted({(i + k * n // 7) % n for k in range(1, 7)} - {i})
        place = np.rint(features.to_full(picture.keypoints[:, :2].astype(np.float64))).astype(int)
        place = np.clip(place, 0, np.array(features.full) - 1)
        inside = mask[place[:, 1], place[:, 0]] > 0
        stands = _stands(picture, [features.pictures[j] for j in others])
        kept.append(picture.only(inside & ~stands))
    moving = FeatureSet(tuple(kept), features.full, features.size)
    share = 1 - moving.counts.sum() / max(features.counts.sum(), 1)
    note = (
        f"The background stands still while the object turns (a turntable): {share:.0%} of the "
        "features belong to the background and were left out; poses are relative to the object."
    )
    if np.median(moving.counts) < FEW_FEATURES:
        raise InputError(
            f"turntable pictures: the background stands still, and what turns has a median of "
            f"{int(np.median(moving.counts))} features, {FEW_FEATURES} are needed. Put a tag board "
            "or newspaper on the turntable under the object, so that it turns with it."
        )
    return Turntable(moving, mask, float(share), note)


def _shifts(features: FeatureSet, a: int, b: int) -> Array:
    """How far the matched features of two pictures are apart (m,), px."""
    first, second = features.pictures[a], features.pictures[b]
    found = match(first, second)
    apart = first.keypoints[found[:, 0], :2] - second.keypoints[found[:, 1], :2]
    return np.asarray(np.linalg.norm(apart.astype(np.float64), axis=1))


def _stands(picture: Features, others: list[Features]) -> Flags:
    """Features (m,) that two or more of the other pictures show at the same place."""
    votes = np.zeros(len(picture.keypoints), np.int64)
    for other in others:
        if not len(other.keypoints) or not len(picture.keypoints):
            continue
        near = cKDTree(other.keypoints[:, :2]).query(
            picture.keypoints[:, :2], k=3, distance_upper_bound=1.5 * STILL
        )[1]
        found = near < len(other.keypoints)
        descriptors = other.descriptors[np.where(found, near, 0)].astype(np.float32)
        cosine = np.einsum("mkd,md->mk", descriptors, picture.descriptors.astype(np.float32))
        votes += ((cosine > 0.8 * LENGTH**2) & found).any(axis=1)
    return votes >= 2


def _moving(features: FeatureSet) -> Image:
    """Where brightness changes over the pictures (height, width) of the full size, 255 there."""
    stack = np.stack([p.thumb for p in features.pictures])
    low, high = np.percentile(stack, [10, 90], axis=0)
    changed = ndimage.binary_opening(high - low > 12)
    closed = ndimage.binary_closing(np.pad(changed, 6), iterations=5)[6:-6, 6:-6]
    filled = ndimage.binary_dilation(ndimage.binary_fill_holes(closed), iterations=2)
    mask = filled.astype(np.uint8) * 255
    return np.asarray(cv2.resize(mask, features.full, interpolation=cv2.INTER_NEAREST), np.uint8)
