"""The offset between the camera's and the robot's clock, from contact.

While the finger touches a face of the object, its distance to that face is constant. The finger's
place comes from the joints (robot clock), the face's from the track (camera clock): only the right
offset makes the distance constant through stick, slide, stop and return.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinloop.track.solver import rotation_exp, rotation_log

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Offset:
    """robot_time = frame_time + value +- std (s); residual: m, rms of the distance at the best."""

    value: float
    std: float
    residual: float


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


def longest_contact(touching: Flags) -> slice | None:
    """The longest run of contact; None when there is none."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], touching.astype(np.int8), [0]])))
    if len(edges) == 0:
        return None
    runs = edges.reshape(-1, 2)
    best = runs[int(np.argmax(runs[:, 1] - runs[:, 0]))]
    return slice(int(best[0]), int(best[1]))


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
        largest: s, the offset is sought within +- this.
        sigma: m, error of a pose along the push, for the standard deviation.
        lead: s at either end of the contact that is left out (smoothing rounds the ends).
    """
    contact = longest_contact(touching)
    if contact is None or usable.sum() < 6:
        return None
    times, track = frame_time[usable], poses[usable]
    dt = float(robot_time[1] - robot_time[0])
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
    return Offset(best, min(std, largest), residual)


def huber(error: Array, limit: float) -> Array:
    """Squares up to `limit`, then linear: a slip or a lost frame must not decide."""
    size = np.abs(error)
    return np.where(size < limit, size**2, 2 * limit * size - limit**2)


def combine(offsets: list[Offset | None], floor: float, fallback: float) -> list[Offset]:
    """One offset per push, helped by the others: both clocks run on through a session.

    When the pushes agree (chi square per push below 6) each gets the common weighted mean; a push
    that disagrees keeps its own with its own doubt; one without its own gets the mean with three
    times its doubt. `floor` s is the least standard deviation; `fallback` s stands for "unknown".
    """
    known = [o for o in offsets if o is not None]
    if not known:
        return [Offset(0.0, fallback, float("nan")) for _ in offsets]
    values = np.array([o.value for o in known])
    stds = np.sqrt(np.array([o.std for o in known]) ** 2 + floor**2)
    centre = float(np.median(values))
    for _ in range(5):
        off = np.abs(values - centre) / stds
        weight = np.minimum(1.0, 2.0 / np.maximum(off, 1e-9)) / stds**2
        centre = float((weight * values).sum() / weight.sum())
    spread = np.sqrt(
        max(
            1.0,
            float((weight * (values - centre) ** 2).mean() / weight.mean())
            * float(np.mean(1 / stds**2)),
        )
    )
    common = float(np.sqrt(1 / weight.sum()) * spread)
    out = []
    for o in offsets:
        if o is None:
            out.append(Offset(centre, 3 * max(common, floor), float("nan")))
        elif abs(o.value - centre) < np.sqrt(6.0) * np.hypot(o.std, floor + common):
            out.append(Offset(centre, max(common, floor), o.residual))
        else:
            out.append(Offset(o.value, max(o.std, floor), o.residual))
    return out
