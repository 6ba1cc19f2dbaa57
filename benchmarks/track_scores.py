"""Errors of tracked poses against true ones, frame by frame, and figures of many frames."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from benchmarks.rows import Figure
from benchmarks.track_sequence import Array, Sequence
from twinloop.geometry.symmetry import Symmetry, nearest_equivalent
from twinloop.metrics.poses import average_distance, rotation_angle
from twinloop.metrics.statistics import wilson_interval
from twinloop.metrics.symmetric import nearest_distance, surface_distance
from twinloop.tracking.pose_track import LOST, OK, UNCERTAIN, PoseTrack
from twinloop.tracking.priors import motion

FREEDOMS = 6
_RESAMPLES = 1000


@dataclass(frozen=True)
class Scores:
    """Errors of n frames of one or several clips.

    add, relative: m, ADD, and ADD of the motion since the first frame; adds: m, ADD-S; mssd: m;
    rotation: rad; nees, speed_nees: squared error over covariance of pose and velocity (6 degrees
    of freedom; NaN where there is none); status; occluded: hidden share; clip: which clip.
    """

    add: Array
    relative: Array
    adds: Array
    mssd: Array
    rotation: Array
    nees: Array
    speed_nees: Array
    status: NDArray[np.int8]
    occluded: Array
    clip: NDArray[np.int64]

    @property
    def ok(self) -> NDArray[np.bool_]:
        """(n,) frames that the tracker vouches for."""
        return self.status == OK


def join(parts: list[Scores]) -> Scores:
    """All frames of several scores, their clips numbered on."""
    offset = np.cumsum([0, *(int(p.clip.max()) + 1 for p in parts)])
    columns = {
        f.name: np.concatenate([getattr(p, f.name) for p in parts])
        for f in fields(Scores)
        if f.name != "clip"
    }
    clips = [p.clip + o for p, o in zip(parts, offset, strict=False)]
    return Scores(**columns, clip=np.concatenate(clips))


def equivalent_truth(pose: Array, sequence: Sequence) -> Array:
    """True poses (n, 4, 4), of those that look the same the ones that `pose` (n, 4, 4) follows.

    One of the object's discrete symmetries is taken for the whole clip, the one that brings most
    frames near; about a continuous axis the turn is free in each frame.
    """
    assert sequence.truth is not None
    options = [sequence.truth @ S for S in sequence.symmetries]
    errors = [np.median(average_distance(pose, T, sequence.vertices)) for T in options]
    best = options[int(np.argmin(errors))]
    if sequence.axis is None:
        return best
    symmetry = Symmetry(axes=(sequence.axis,))
    return np.stack([nearest_equivalent(g, p, symmetry) for g, p in zip(best, pose, strict=True)])


def squared(error: Array, covariance: Array) -> Array:
    """Normalised errors squared (n,) of errors (n, d) with covariances (n, d, d)."""
    solved = np.linalg.solve(covariance, error[..., None])[..., 0]
    return np.asarray(np.einsum("ni,ni->n", error, solved))


def velocities(times: Array, pose: Array) -> Array:
    """Velocities (n, 6) of poses (n, 4, 4) by central differences, NaN at both ends."""
    out = np.full((len(times), 6), np.nan)
    for i in range(1, len(times) - 1):
        out[i] = motion(pose[i - 1], pose[i + 1]) / (times[i + 1] - times[i - 1])
    return out


def score(track: PoseTrack, sequence: Sequence) -> Scores:
    """Errors of a clip's poses; its truth must be known."""
    pose = track.pose
    truth = equivalent_truth(pose, sequence)
    points = sequence.vertices
    error = np.stack([motion(p, g) for p, g in zip(pose, truth, strict=True)])
    since = pose @ np.linalg.inv(pose[0]) @ truth[0]
    speed = np.full(len(pose), np.nan)
    if np.isfinite(track.velocity_covariance).all() and sequence.axis is None:
        off = velocities(track.time, truth)[1:-1] - track.velocity[1:-1]
        speed[1:-1] = squared(off, track.velocity_covariance[1:-1])
    turns = sequence.symmetries
    return Scores(
        add=average_distance(pose, truth, points),
        relative=average_distance(since, truth, points),
        adds=np.asarray(nearest_distance(pose, truth, points)),
        mssd=np.asarray(surface_distance(pose, truth, points, turns)),
        rotation=rotation_angle(np.swapaxes(pose[:, :3, :3], 1, 2) @ truth[:, :3, :3]),
        nees=squared(error, track.covariance),
        speed_nees=speed,
        status=track.status,
        occluded=sequence.occluded,
        clip=np.zeros(len(pose), np.int64),
    )


def resampled(
    values: Array, clip: NDArray[np.int64], of: Callable[[Array], float]
) -> list[float] | None:
    """95 % interval of a statistic under other clips (bootstrap of whole clips); None under five.

    Frames of one clip share their errors, so that clips are drawn and not frames.
    """
    parts = [values[clip == c] for c in np.unique(clip)]
    if len(parts) < 5:
        return None
    rng = np.random.default_rng(0)
    drawn = [
        of(np.concatenate([parts[i] for i in rng.integers(len(parts), size=len(parts))]))
        for _ in range(_RESAMPLES)
    ]
    return [float(v) for v in np.percentile(drawn, [2.5, 97.5])]


def mean(values: Array) -> float:
    """Mean, as a float."""
    return float(np.mean(values))


def p95(values: Array) -> float:
    """95th percentile."""
    return float(np.percentile(values, 95))


def figure(
    name: str,
    values: Array,
    clip: NDArray[np.int64],
    of: Callable[[Array], float],
    unit: str,
    target: float | None,
    better: Literal["lower", "higher"] = "lower",
    peer: str | None = None,
) -> Figure:
    """A statistic of frames, with its interval over clips; None where there is no frame."""
    if len(values) == 0:
        return Figure(name, None, unit, target, better, 0, peer=peer)
    interval = resampled(values, clip, of)
    return Figure(name, of(values), unit, target, better, len(values), interval, peer=peer)


def rate(
    name: str,
    good: NDArray[np.bool_],
    target: float | None,
    better: Literal["lower", "higher"] = "higher",
    peer: str | None = None,
) -> Figure:
    """A share k/n with its Wilson interval."""
    k, n = int(good.sum()), len(good)
    value = k / n if n else None
    bounds = [float(v) for v in wilson_interval(k, n)]
    return Figure(f"{name} ({k}/{n})", value, "", target, better, n, bounds, peer=peer)


def calibration(name: str, s: Scores, *, targets: bool = True) -> list[Figure]:
    """Whether covariances say how large errors are: of ok frames."""
    nees, clip = s.nees[s.ok], s.clip[s.ok]
    middle = float(chi2.median(FREEDOMS))
    moving = s.ok & np.isfinite(s.speed_nees)
    out = [
        figure(
            f"{name}: NEES / 6 of ok frames, mean",
            nees / FREEDOMS,
            clip,
            mean,
            "",
            2.0 if targets else None,
        ),
        figure(
            f"{name}: NEES of ok frames over that of a normal error, median",
            nees / middle,
            clip,
            lambda v: float(np.median(v)),
            "",
            2.0 if targets else None,
        ),
        rate(
            f"{name}: ok frames inside the 95 % ellipsoid",
            nees < chi2.ppf(0.95, FREEDOMS),
            0.9 if targets else None,
        ),
    ]
    if moving.any():
        values = s.speed_nees[moving] / FREEDOMS
        out.append(
            figure(f"{name}: velocity NEES / 6, mean", values, s.clip[moving], mean, "", None)
        )
    return out


def safety(name: str, s: Scores) -> list[Figure]:
    """Silent errors, and how many frames are vouched for."""
    seen = s.occluded < 0.5
    states = ((OK, "ok"), (UNCERTAIN, "uncertain"), (LOST, "lost"))
    shares = [
        rate(f"{name}: frames {word}", s.status == code, None, "higher" if code == OK else "lower")
        for code, word in states
    ]
    return [
        rate(f"{name}: ok frames with ADD above 10 mm", s.add[s.ok] > 0.010, 0.0, "lower"),
        rate(f"{name}: ok, of frames under 50 % hidden", s.ok[seen], 0.9),
        *shares,
    ]
