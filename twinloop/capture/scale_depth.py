"""Metric scale from depth pictures: measured depth over the model's depth at its sparse points."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from twinloop.capture.posed import DepthReader
from twinloop.capture.projection import Camera
from twinloop.capture.scale import FARTHEST, MODEL_STD, NEAREST, MetricFrame
from twinloop.errors import InputError
from twinloop.geometry import se3
from twinloop.progress import track

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

FEWEST_POINTS = 8
"""Points with depth that a picture needs."""
FEWEST_PICTURES = 3
SENSOR_STD = 0.01
"""Error that all depths of a sensor share, as a share of them (a RealSense read 1.7 % more than the
tags of a measured board said); part of the uncertainty, because the scatter does not show it."""
STEEP = 0.02
"""Where neighbouring depths differ by more than this share there is an edge: not used."""
BOOTSTRAPS = 1000
LARGEST_SPREAD = 0.1
"""Largest spread of the pictures' scales (robust standard deviation of their logarithm)."""


def from_depth(
    depth: DepthReader,
    points: Array,
    T_model_camera: Array,
    cameras: Sequence[Camera],
    seen: tuple[Indices, Indices] | None = None,
    sensor_std: float = SENSOR_STD,
    seed: int = 0,
) -> MetricFrame:
    """Scale by depth pictures; the world keeps the model's axes.

    Each picture gives the median ratio of measured to modelled depth over the points it sees; the
    scale is the pictures' robust mean, its uncertainty a bootstrap over them and what a
    sensor's depths are wrong by together.

    Args:
        depth: Depth (rows, columns) m of a picture, NaN or 0 where unknown; None without one.
        points: Sparse points (m, 3) of the model.
        T_model_camera: Poses of the pictures in the model (n, 4, 4); NaN where not registered.
        cameras: Lens of each picture (n,).
        seen: Picture and point of each observation (k,), (k,): only these are compared; without,
            every point in a picture's frame is, hidden ones too.
        sensor_std: Relative error that all depths share.
        seed: Seed of the bootstrap.

    Raises:
        InputError: Depths in millimetres, too few pictures with enough points, or pictures that
            contradict each other.
    """
    poses = np.asarray(T_model_camera, dtype=np.float64)
    registered = np.flatnonzero(np.isfinite(poses).all(axis=(1, 2)))
    ratios, depths = [], []
    for picture in track(registered.tolist(), "compare depths"):
        measured = depth(picture)
        if measured is None:
            continue
        chosen = points if seen is None else points[np.unique(seen[1][seen[0] == picture])]
        in_camera = se3.apply(se3.inverse(poses[picture]), chosen)
        at_points, modelled = _sample(measured, in_camera, cameras[picture])
        if len(modelled) >= FEWEST_POINTS:
            ratios.append(float(np.median(np.log(at_points / modelled))))
            depths.append(float(np.median(at_points)))
    if len(ratios) < FEWEST_PICTURES:
        raise InputError(
            f"depth: {len(ratios)} of {len(registered)} registered pictures have depth at "
            f"{FEWEST_POINTS} or more of the model's points, at least {FEWEST_PICTURES} are needed"
        )
    _require_metres(float(np.median(depths)))
    values = np.array(ratios)
    spread = 1.4826 * float(np.median(np.abs(values - np.median(values))))
    if spread > LARGEST_SPREAD:
        raise InputError(
            f"depth: the scales by single pictures scatter by {100 * spread:.0f} %, at most "
            f"{100 * LARGEST_SPREAD:.0f} % is accepted: do the depth pictures belong to these "
            "pictures, and do they hold depth along the optical axis?"
        )
    rng = np.random.default_rng(seed)
    draws = _centre(values[rng.integers(0, len(values), (BOOTSTRAPS, len(values)))])
    std = float(np.linalg.norm([draws.std(), MODEL_STD, sensor_std]))
    return MetricFrame(
        float(np.exp(_centre(values))),
        std,
        np.eye(4),
        "depth",
        (
            f"Depth in {len(values)} pictures gives the scale to {100 * std:.1f} %: by their "
            f"scatter {100 * draws.std():.2f} %, by what all depths share {100 * sensor_std:g} %.",
        ),
    )


def _centre(values: Array) -> Array:
    """Mean along the last axis, outliers drawn in to three robust deviations of the median."""
    median = np.median(values, axis=-1, keepdims=True)
    reach = 3 * 1.4826 * np.median(np.abs(values - median), axis=-1, keepdims=True)
    return np.asarray(np.clip(values, median - reach, median + reach).mean(axis=-1))


def _require_metres(distance: float) -> None:
    if NEAREST <= distance <= FARTHEST:
        return
    if distance > FARTHEST:
        hint = f"in millimetres it would be {distance / 1e3:.4g} m: divide the depths by 1000"
    else:
        hint = f"were the depths divided by 1000 twice? They would be {distance * 1e3:.4g} m"
    raise InputError(
        f"depth: the median depth is {distance:.4g} m, {NEAREST:g} to {FARTHEST:g} m is expected; "
        f"{hint}."
    )


def _sample(measured: Array, in_camera: Array, camera: Camera) -> tuple[Array, Array]:
    """Measured and modelled depth of the points that fall on known, smooth depth."""
    rows, columns = measured.shape
    if min(rows, columns) < 3:
        raise InputError(f"depth: a depth picture of {columns} x {rows} px; at least 3 x 3")
    ahead = in_camera[in_camera[:, 2] > 0]
    pixels = camera.project(ahead)
    # Areas scale, not centres: the depth picture covers the same field of view.
    size = np.array([columns, rows])
    place = (pixels + 0.5) * size / [camera.width, camera.height] - 0.5
    inside = np.isfinite(place).all(axis=1)
    inside &= ((place >= 1) & (place <= size - 2)).all(axis=1)
    column, row = np.rint(place[inside]).astype(np.int64).T
    around = np.stack([measured[row + i, column + j] for i in (-1, 0, 1) for j in (-1, 0, 1)])
    with np.errstate(invalid="ignore"):
        good = (around > 0).all(axis=0) & np.isfinite(around).all(axis=0)
        low, high = around.min(axis=0), around.max(axis=0)
        good &= high - low < STEEP * high
    return around[4][good], ahead[inside][good, 2]
