"""How a model of arbitrary scale becomes a metric world: by a board or by stated distances.

Every source of scale gives a :class:`MetricFrame`; robot poses are in ``scale_robot``, depth
pictures in ``scale_depth``.  The scale's uncertainty matters more than any other: one per cent of
scale is several millimetres of tracking error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from twinloop.capture.board import Board, Detections
from twinloop.capture.projection import Camera
from twinloop.capture.similarity import align
from twinloop.capture.triangulate import Sighting, Triangulated, triangulate
from twinloop.errors import InputError
from twinloop.geometry import se3
from twinloop.progress import track

Array = NDArray[np.float64]

CLICK_STD = 0.5
"""Error of a pixel that a person clicks, px per axis."""
CORNER_STD = 0.1
"""Error of a tag's corner, px per axis."""
MODEL_STD = 1e-3
"""How much a model by structure from motion is bent, as a share of its scale: scales by its cameras
and by what they see differ by this (measured on lab scans: 0.02 to 0.1 %).  Part of every
source's uncertainty, because no residual shows it."""
LEAST_ANGLE = np.radians(2.0)
"""Least angle between the rays to a clicked point, rad."""
WORST_CLICK = 5.0
"""Largest reprojection error of a clicked point, px rms."""
AGREEMENT = 0.01
"""Two sources may differ by this share beyond three joint standard deviations."""
LARGEST, SMALLEST = 5.0, 0.005
"""Largest and smallest size of an object, m."""
FARTHEST, NEAREST = 30.0, 0.01
"""Largest and smallest distance of a camera from the object, m."""


@dataclass(frozen=True)
class MetricFrame:
    """How the model's world becomes the metric world: x_world = T_world_model (scale x_model)."""

    scale: float
    """Metres per model unit."""
    scale_std: float
    """Relative standard deviation of the scale."""
    T_world_model: Array
    """Rigid (4, 4), applied after scaling."""
    source: str
    """"board", "robot poses", "distance" or "depth"."""
    notes: tuple[str, ...]
    """What it was found from, one sentence each, for the report."""

    def points(self, points: Array) -> Array:
        """Points (n, 3) of the model in the metric world, m."""
        return se3.apply(self.T_world_model, self.scale * np.asarray(points))

    def poses(self, T_model_camera: Array) -> Array:
        """Camera poses (n, 4, 4) of the model as ``T_world_camera``, m; NaN stays NaN."""
        scaled = np.array(T_model_camera, dtype=np.float64)
        scaled[..., :3, 3] *= self.scale
        return np.asarray(self.T_world_model @ scaled)


@dataclass(frozen=True)
class Clicks:
    """One point of the thing, clicked in two or more pictures."""

    pictures: NDArray[np.int64]
    """Numbers of the pictures (k,)."""
    pixels: Array
    """Where it is (k, 2) px; the centre of the first pixel is (0, 0)."""


@dataclass(frozen=True)
class Distance:
    """A length that was measured on the thing."""

    ends: tuple[Clicks, Clicks]
    """Its two ends."""
    metres: float
    """How long it is, m."""
    metres_std: float = 0.0
    """How well it was measured, m."""


def from_board(
    board: Board,
    tags: Sequence[Detections],
    T_model_camera: Array,
    cameras: Sequence[Camera],
) -> MetricFrame:
    """Scale and table frame by the board's corners, triangulated in the model.

    Args:
        board: The board.
        tags: What was found of it in each picture (n,).
        T_model_camera: Poses of the pictures in the model (n, 4, 4); NaN where not registered.
        cameras: Lens of each picture (n,).

    Raises:
        InputError: Fewer than two tags are seen in two registered pictures, or the corners found do
            not have the shape of the board.
    """
    registered = np.asarray(np.isfinite(T_model_camera).all(axis=(1, 2)))
    sightings: dict[tuple[int, int], list[Sighting]] = {}
    for found, camera, T, usable in zip(tags, cameras, T_model_camera, registered, strict=True):
        for tag, quad in zip(found.ids, found.corners, strict=True) if usable else ():
            for corner in range(4):
                seen = Sighting(quad[corner].astype(np.float64), camera, T)
                sightings.setdefault((int(tag), corner), []).append(seen)
    known = board.corners()
    model, target, weights = [], [], []
    for (tag, corner), rays in track(sorted(sightings.items()), "triangulate the board"):
        point = triangulate(rays, CORNER_STD) if len(rays) > 1 else None
        if point is not None and point.angle > LEAST_ANGLE and point.rms < WORST_CLICK:
            model.append(point.point)
            target.append(known[tag][corner])
            weights.append(1 / np.trace(point.covariance))
    if len(model) < 8:
        raise InputError(
            f"board: {len(model)} tag corners are seen from two of the {int(registered.sum())} "
            "registered pictures, at least 8 (two tags) are needed. Film the board with the object."
        )
    points, corners = np.array(model), np.array(target)
    found_frame = align(points, corners, np.array(weights), robust=True)
    used = int(found_frame.used.sum())
    size = float(np.ptp(corners, axis=0).max())
    if used < 0.5 * len(points) or found_frame.rms > 0.02 * size:
        raise InputError(
            f"board: only {used} of {len(points)} tag corners fit the layout of board.yaml "
            f"({1e3 * found_frame.rms:.1f} mm rms on a board of {1e3 * size:.0f} mm). Is it the "
            "board that was filmed, flat, with sizes and centres in metres?"
        )
    return MetricFrame(
        found_frame.scale,
        float(np.hypot(found_frame.scale_std, MODEL_STD)),
        board.T_world_board.matrix @ found_frame.T,
        "board",
        (
            f"The board gives the scale: {used} of {len(points)} tag corners in "
            f"{int(registered.sum())} pictures fit its layout to {1e3 * found_frame.rms:.2f} mm.",
        ),
    )


def from_distance(
    distances: Sequence[Distance],
    T_model_camera: Array,
    cameras: Sequence[Camera],
    *,
    numbers: Sequence[int] | None = None,
    where: str = "",
) -> MetricFrame:
    """Scale by lengths that were measured on the thing; the world keeps the model's axes.

    Args:
        distances: One or more.
        T_model_camera: Poses of the pictures in the model (n, 4, 4); NaN where not registered.
        cameras: Lens of each picture (n,).
        numbers: What messages call each picture (n,); by its place if None.
        where: File that states the distances, for messages.

    The scale's uncertainty follows from clicks of 0.5 px, the angle between the rays and
    :data:`MODEL_STD`.

    Raises:
        InputError: A click is in a picture that is not registered or outside of it, the rays to a
            point are too alike or do not meet, or two distances contradict each other.
    """
    if not distances:
        raise InputError("distance: none is given")
    called = list(range(len(cameras))) if numbers is None else list(numbers)
    file = f"{where}: " if where else ""
    scales, variances = [], []
    for number, distance in enumerate(distances):
        if not (np.isfinite(distance.metres) and distance.metres > 0):
            raise InputError(
                f"{file}distance {number}: {distance.metres} m; expected a length above 0"
            )
        name = f"{file}distance {number} ({distance.metres:g} m)"
        a, b = (
            _clicked(clicks, f"{name}, end {side}", T_model_camera, cameras, called)
            for side, clicks in zip("AB", distance.ends, strict=True)
        )
        along = b.point - a.point
        length = float(np.linalg.norm(along))
        spread = float(along @ (a.covariance + b.covariance) @ along) / max(length**2, 1e-300)
        if not length > 3 * np.sqrt(spread):
            raise InputError(
                f"{name}: its ends are {length:.3g} model units apart, known to "
                f"{np.sqrt(spread):.2g}: unidentifiable. Are both ends the same point?"
            )
        scales.append(distance.metres / length)
        variances.append(spread / length**2 + (distance.metres_std / distance.metres) ** 2)
    _require_agreement(
        [
            (f"{file}distance {i} ({d.metres:g} m)", s, float(np.sqrt(v)))
            for i, (d, s, v) in enumerate(zip(distances, scales, variances, strict=True))
        ]
    )
    weight = 1 / np.array(variances)
    scale = float(np.exp(weight @ np.log(scales) / weight.sum()))
    std = float(np.hypot(1 / np.sqrt(weight.sum()), MODEL_STD))
    return MetricFrame(
        scale,
        std,
        np.eye(4),
        "distance",
        (
            "The scale follows from "
            + ", ".join(f"{1e3 * d.metres:g} mm" for d in distances)
            + f", known to {100 * std:.2f} % by clicks of {CLICK_STD} px.",
        ),
    )


def _clicked(
    clicks: Clicks,
    where: str,
    T_model_camera: Array,
    cameras: Sequence[Camera],
    called: Sequence[int],
) -> Triangulated:
    pictures = np.asarray(clicks.pictures, dtype=np.int64)
    pixels = np.asarray(clicks.pixels, dtype=np.float64)
    if len(set(pictures.tolist())) < 2 or pixels.shape != (len(pictures), 2):
        raise InputError(
            f"{where}: clicked in {len(set(pictures.tolist()))} pictures; at least two, far apart, "
            "are needed"
        )
    sightings = []
    for picture, pixel in zip(pictures.tolist(), pixels, strict=True):
        if not 0 <= picture < len(cameras) or not np.isfinite(T_model_camera[picture]).all():
            there = np.flatnonzero(np.isfinite(T_model_camera).all(axis=(1, 2)))
            number = called[picture] if 0 <= picture < len(called) else picture
            raise InputError(
                f"{where}: picture {number} is not registered; click in another one of "
                f"{[called[i] for i in there[:20]]}"
            )
        camera = cameras[picture]
        if not ((pixel >= -0.5) & (pixel <= [camera.width - 0.5, camera.height - 0.5])).all():
            raise InputError(
                f"{where}: the click {pixel.tolist()} is outside picture {called[picture]} of "
                f"{camera.width} x {camera.height} px"
            )
        sightings.append(Sighting(pixel, camera, T_model_camera[picture]))
    point = triangulate(sightings, CLICK_STD)
    if point is None or point.rms > WORST_CLICK:
        off = "do not meet" if point is None else f"miss each other by {point.rms:.1f} px (rms)"
        seen_in = [called[i] for i in pictures.tolist()]
        raise InputError(
            f"{where}: the rays of its clicks in pictures {seen_in} {off}, at most "
            f"{WORST_CLICK:g} px is accepted. Is it the same point in each?"
        )
    if point.angle < LEAST_ANGLE:
        raise InputError(
            f"{where}: the rays of its clicks differ by {np.degrees(point.angle):.1f} deg, at "
            f"least {np.degrees(LEAST_ANGLE):.0f} deg are needed: click in pictures from places "
            "farther apart"
        )
    return point


def reconcile(frames: Sequence[MetricFrame]) -> MetricFrame:
    """The most certain of several sources of scale, when none contradicts another.

    Raises:
        InputError: Two differ by more than three joint standard deviations and one per cent; names
            both with their numbers.
    """
    if not frames:
        raise InputError("no source of metric scale: give a board, distance, robot poses or depth")
    _require_agreement([(f.source, f.scale, f.scale_std) for f in frames])
    best = min(frames, key=lambda frame: frame.scale_std)
    others = [
        f"{f.source} gives {100 * (f.scale / best.scale - 1):+.2f} % of it (known to "
        f"{100 * f.scale_std:.2f} %)"
        for f in frames
        if f is not best
    ]
    checked = (f"The scale is that of the {best.source}; {'; '.join(others)}.",) if others else ()
    return MetricFrame(
        best.scale, best.scale_std, best.T_world_model, best.source, best.notes + checked
    )


def _require_agreement(named: Sequence[tuple[str, float, float]]) -> None:
    for (one, a, a_std), (two, b, b_std) in combinations(named, 2):
        off = abs(float(np.log(a / b)))
        allowed = 3 * float(np.hypot(a_std, b_std)) + AGREEMENT
        if off <= allowed:
            continue
        ratio = max(a / b, b / a)
        hint = (
            "One of them is in millimetres."
            if abs(np.log(ratio / 1e3)) < 0.1
            else "Measure again, or leave out the one that is wrong."
        )
        raise InputError(
            f"metric scale: {one} says {a:.5g} m per model unit (known to {100 * a_std:.2g} %), "
            f"{two} says {b:.5g} m ({100 * b_std:.2g} %): they differ by a factor {ratio:.4g}, "
            f"accepted is {np.exp(allowed):.4g}. {hint}"
        )


def check_units(size: Array, camera_distance: float, where: str) -> None:
    """Refuse sizes that no object on a table has: some number is in another unit.

    Args:
        size: Extents of the object (3,) m.
        camera_distance: Median distance of the cameras from it, m.
        where: What the metres come from, for the message.

    Raises:
        InputError: The object is larger than 5 m or smaller than 5 mm, or the cameras are farther
            than 30 m or nearer than 10 mm; says the number and what it would be in millimetres.
    """
    largest = float(np.max(size))
    for name, value, low, high in (
        ("the object is", largest, SMALLEST, LARGEST),
        ("the cameras' distance from the object is", camera_distance, NEAREST, FARTHEST),
    ):
        if low <= value <= high:
            continue
        if value > high:
            hint = f"if that is in millimetres it is {value / 1e3:.4g} m; convert to metres"
        else:
            hint = f"if a length was converted once too often it is {value * 1e3:.4g} m"
        raise InputError(
            f"{where}: {name} {value:.4g} m; {low:g} to {high:g} m is expected: {hint}."
        )
