"""The offset between the camera's and the robot's clock, from contact.

While the finger touches a face of the object, its distance to that face is constant. The finger's
place comes from the joints (robot clock), the face's from the track (camera clock): only the right
offset makes the distance constant through stick, slide, stop and return.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinloop.tracking.solver import rotation_exp, rotation_log

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Offset:
    """robot_time = frame_time + value +- std (s); residual: m, rms of the distance at the best.

    knocked: the object was knocked off the finger, so that the distance did not stay as it was.
    """

    value: float
    std: float
    residual: float
    knocked: bool = False


def interpolate(times: Array, poses: Array, wanted: Array) -> Array:
    """Poses (m, 4, 4) at `wanted` s: linear in position and along the rotation, ends held."""
    right = np.clip(np.searchsorted(times, wanted), 1, len(times) - 1)
    left = right - 1
    w = np.clip((wanted - times[left]) / (times[right] - times[left]), 0.0, 1.0)[:, None]
    out = np.tile(np.eye(4), (len(wanted), 1, 1))
    out[:, :3, 3] = (1 - w) * poses[left, :3, 3] + w * poses[right, :3, 3]
    step = rotation_log(poses[right, :3, :3] @ np.swapaxes(poses[left, :3, :3], 1, 2))
    out[:, :3, :3] = rotation_exp(w * step) @ poses[left, :3, :3]
    return out


def contact_run(touching: Flags, force: Array, around: slice | None = None) -> slice | None:
    """The run of contact that carries the push: the hardest, not the longest.

    Under a light object the force is hardly above its noise, and at rest noise makes runs too.

    Args:
        touching: (n,) whether the tip touches.
        force: (n, 3) N.
        around: Samples that the run must share, where the impact is known.

    Returns:
        The run, or None when there is none, or none that stands out: its mean force must be twice
        the root mean square of what is found outside it.
    """
    edges = np.flatnonzero(np.diff(np.concatenate([[0], touching.astype(np.int8), [0]])))
    size = np.linalg.norm(force, axis=1)
    runs = [(int(a), int(b)) for a, b in edges.reshape(-1, 2)]
    if around is not None:
        runs = [(a, b) for a, b in runs if a < around.stop and b > around.start]
    if not runs:
        return None
    a, b = max(runs, key=lambda r: float((size[r[0] : r[1]] ** 2).sum()))
    rest = np.concatenate([size[:a], size[b:]])
    if len(rest) and size[a:b].mean() < 2 * np.sqrt((rest**2).mean()):
        return None
    # Joint friction reads as a light touch long after the finger has left.
    hard = np.flatnonzero(size[a:b] >= 0.25 * np.quantile(size[a:b], 0.9))
    return slice(a + int(hard[0]), a + int(hard[-1]) + 1)


def face_distance(tip: Array, poses: Array, normal: Array) -> Array:
    """Coordinate (n,) m of the tip (n, 3) along `normal` (3,), a direction of the object frame."""
    local = np.einsum("nji,nj->ni", poses[:, :3, :3], tip - poses[:, :3, 3])
    return np.asarray(local @ normal)


def estimate_offset(
    robot_time: Array,
    tip: Array,
    force: Array,
    touching: Flags,
    frame_time: Array,
    poses: Array,
    usable: Flags,
    *,
    largest: float,
    sigma: float,
    lead: float = 0.012,
    impact: float | None = None,
    centre: float = 0.0,
) -> Offset | None:
    """Clock offset of one push, or None when nothing can be said (no contact, no motion, no track).

    Args:
        robot_time: (n,) s robot clock, uniform.
        tip: (n, 3) m, centre of the fingertip.
        force: (n, 3) N, force on the object: its mean direction is the push direction.
        touching: (n,) whether the tip touches.
        frame_time: (m,) s camera clock.
        poses: (m, 4, 4) T_world_object; usable: (m,) frames to trust.
        usable: (m,) whether the pose can be trusted.
        largest: s, the offset is sought within +- this of `centre`.
        sigma: m, error of a pose along the push, for the standard deviation.
        impact: s robot clock, when the tip hit the object, where that is known.
        centre: s, about what offset is sought.
        lead: s at either end of the contact that is left out (smoothing rounds the ends).
    """
    if usable.sum() < 6:
        return None
    # Shifted by the centre, so that all that follows is about 0.
    times, track = frame_time[usable] + centre, poses[usable]
    dt = float(robot_time[1] - robot_time[0])
    around = None
    if impact is not None:
        first = int(np.searchsorted(robot_time, impact))
        around = slice(first - round(0.02 / dt), first + round(0.08 / dt))
    contact = contact_run(touching, force, around)
    if contact is None:
        return None
    direction = force[contact].sum(axis=0)
    direction[2] = 0.0
    if np.linalg.norm(direction) < 1e-9:
        return None
    direction /= np.linalg.norm(direction)
    cut = min(round(lead / dt), (contact.stop - contact.start) // 4)
    margin = round(0.15 / dt)
    window = slice(max(contact.start - margin, 0), min(contact.stop + margin, len(tip)))
    t, x = robot_time[window], tip[window]
    if t[0] + largest < times[0] or t[-1] - largest > times[-1]:
        return None
    inside = np.zeros(len(robot_time), np.bool_)
    inside[contact.start + cut : contact.stop - cut] = True
    touch = inside[window]
    outside = ~np.asarray(touching)[window]
    count = max(3.0, float(touch.sum()) * dt * 60.0)  # so many frames stand behind the samples
    normal = track[0, :3, :3].T @ direction

    def spread(offset: float) -> float:
        moved = interpolate(times, track, t - offset)
        distance = face_distance(x, moved, normal)
        level = float(np.median(distance[touch]))
        error = huber(distance[touch] - level, 3 * sigma).mean()
        # Off the face the tip may be farther away, but it is never inside the object.
        inner = np.maximum(distance[outside] - level, 0.0)
        return float(error + huber(inner, 3 * sigma).sum() / max(touch.sum(), 1))

    coarse = np.arange(-largest, largest + 1e-9, 0.004)
    cost = np.array([spread(o) for o in coarse])
    best = float(coarse[int(np.argmin(cost))])
    for step in (0.001, 0.0002):
        fine = best + step * np.arange(-5, 6)
        best = float(fine[int(np.argmin([spread(o) for o in fine]))])
    h = 0.003
    low, middle, high = spread(best - h), spread(best), spread(best + h)
    residual = float(np.sqrt(middle))
    noise = max(sigma, residual) ** 2
    # Mean squares: information on the offset is count * curvature / (2 sigma^2). A second minimum
    # that is hardly worse counts by its distance and likelihood.
    curvature = max((low + high - 2 * middle) / h**2, 1e-12)
    shape = np.exp(-0.5 * count * (cost - middle).clip(0) / noise)
    broad = float((shape * (coarse - best) ** 2).sum() / max(shape.sum(), 1e-300))
    std = max(float(np.sqrt(2 * noise / (count * curvature))), float(np.sqrt(broad)))
    return Offset(centre + best, min(std, largest), residual)


def huber(error: Array, limit: float) -> Array:
    """Squares up to `limit`, then linear: a slip or a lost frame must not decide."""
    size = np.abs(error)
    return np.where(size < limit, size**2, 2 * limit * size - limit**2)


def fuse(first: Offset | None, second: Offset | None) -> Offset | None:
    """Two estimates for one push, weighted; where they disagree, by so much is the doubt larger.

    The residual is the first one's, where there is one.
    """
    if first is None or second is None:
        return first or second
    weights = np.array([first.std, second.std]) ** -2.0
    value = float(weights @ [first.value, second.value] / weights.sum())
    apart = (first.value - second.value) / np.hypot(first.std, second.std)
    std = float(weights.sum() ** -0.5) * max(1.0, abs(float(apart)))
    return Offset(value, std, first.residual)


def combine(
    offsets: list[Offset | None],
    floor: float,
    fallback: float,
    when: list[float] | None = None,
    drift_std: float = 1e-4,
) -> list[Offset]:
    """One offset per push, helped by the others: both clocks run on through a session.

    Pushes that agree get the common line, offset + drift (when - mean); a push that disagrees (6 in
    chi square) keeps its own with its own doubt; one without its own gets the line with three times
    its doubt. Where most disagree (each video starts a clock of its own), each keeps its own.

    Args:
        offsets: Of each push, None where nothing is known.
        floor: s, the least standard deviation.
        fallback: s, stands for "unknown".
        when: s, robot clock, middle of each push; None: all at once, no drift.
        drift_std: Prior standard deviation of the drift, s/s: quartz does better.
    """
    known = [i for i, o in enumerate(offsets) if o is not None]
    if not known:
        return [Offset(0.0, fallback, float("nan")) for _ in offsets]
    at = np.zeros(len(offsets)) if when is None else np.asarray(when, dtype=np.float64)
    at = at - at[known].mean()
    found = [o for o in offsets if o is not None]
    values = np.array([o.value for o in found])
    stds = np.sqrt(np.array([o.std for o in found]) ** 2 + floor**2)
    rows = np.stack([np.ones(len(known)), at[known]], axis=1)
    middle = float(np.median(values))
    line = np.array([0.0, 0.0])
    prior = np.diag([0.0, drift_std**-2])
    for _ in range(20):
        off = np.abs(values - middle - rows @ line) / stds
        weight = np.minimum(1.0, 2.0 / np.maximum(off, 1e-9)) / stds**2
        information = rows.T @ (rows * weight[:, None]) + prior
        line = np.linalg.solve(information, rows.T @ (weight * (values - middle)))
    error = values - middle - rows @ line
    spread = max(1.0, float((weight * error**2).mean()))
    covariance = np.linalg.inv(information) * spread
    common = middle + line[0] + line[1] * at
    doubt = np.sqrt(covariance[0, 0] + covariance[1, 1] * at**2 + 2 * covariance[0, 1] * at)
    fits = np.abs(error) < np.sqrt(6.0) * np.hypot(stds, doubt[known])
    if float(np.median(np.abs(error) / stds)) > 3.0:
        return [
            Offset(0.0, fallback, float("nan"))
            if o is None
            else Offset(o.value, max(o.std, floor), o.residual)
            for o in offsets
        ]
    agrees = dict(zip(known, fits, strict=True))
    out = []
    for i, o in enumerate(offsets):
        if o is None:
            out.append(Offset(float(common[i]), 3 * max(float(doubt[i]), floor), float("nan")))
        elif agrees[i]:
            out.append(Offset(float(common[i]), max(float(doubt[i]), floor), o.residual))
        else:
            out.append(Offset(o.value, max(o.std, floor), o.residual))
    return out
