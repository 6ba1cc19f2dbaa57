"""Object poses that another tracker found: the same checks and the same covariance for all of them.

Whatever the source (an estimator's folder, tags on the object, motion capture), a stream of poses
has the same faults: frames are missing, poses jump and jump back, a tracker that is stuck repeats
its last pose, and no source says how far its poses can be trusted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from twinloop.errors import InputError
from twinloop.tracking.pose_noise import FLOOR, jumps, pose_noise, quantum, repeats
from twinloop.tracking.pose_track import LOST, OK, UNCERTAIN, PoseTrack
from twinloop.tracking.smooth import SmoothSettings, smooth
from twinloop.tracking.solver import rotation_exp, rotation_log

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

GUESS = np.diag([0.1**2] * 3 + [1.0**2] * 3)
"""Covariance of a frame without a pose, m2 and rad2: somewhere near the last one."""
ON_TABLE = 0.02
"""Largest distance of an object's lowest point from the table while it rests, m."""
REACH = 5.0
"""Farthest that an object is from the world's origin, m: the world is a table."""


@dataclass(frozen=True)
class PoseObservations:
    """Poses of the object through a clip, as one source saw them.

    time: (n,) s, camera clock, increasing; T_world_object: (n, 4, 4) m, the nearest known pose
    where there is none; covariance: (n, 6, 6) of a left perturbation in world axes (m, rad; see
    solver); valid: (n,) bool, the source tells a pose that is believed to be of that instant;
    status: (n,) 0 ok, 1 uncertain, 2 lost; source: what they come from, for messages; notes: what
    was noticed.
    """

    time: Array
    T_world_object: Array
    covariance: Array | None
    valid: Mask
    source: str
    status: NDArray[np.int8]
    notes: tuple[str, ...] = ()


def observe(
    time: Array,
    T_world_object: Array,
    source: str,
    *,
    measured: Array | None = None,
    axes: Array | None = None,
    covariance: Array | None = None,
) -> PoseObservations:
    """Check a stream of poses, and say how far each can be trusted.

    Args:
        time: (n,) s, camera clock.
        T_world_object: (n, 4, 4) m; NaN where the source tells no pose.
        source: What they come from, for messages.
        measured: (n, 4, 4) the poses in the source's own frame, where a tracker that is stuck
            repeats itself to the last digit; None: the world's.
        axes: (3, 3) or (n, 3, 3) rotations from the source's axes to the world's: errors are
            estimated along the source's axes (a camera's depth is worse than the rest).
        covariance: (n, 6, 6) where the source states it; None: it is estimated from the stream
            (see :func:`pose_noise`), which cannot tell an error that all frames share.

    Raises:
        InputError: No frame, no pose at all, times that do not increase, poses that are not rigid,
            or far from the world's origin; names frame and value.
    """
    time = np.asarray(time, np.float64)
    poses = np.array(T_world_object, np.float64)
    _check_times(time, source)
    if poses.shape != (len(time), 4, 4):
        raise InputError(
            f"{source}: {len(time)} times but poses of shape {poses.shape}; expected "
            f"({len(time)}, 4, 4)."
        )
    known: Mask = np.asarray(np.isfinite(poses).all(axis=(1, 2)))
    if not known.any():
        raise InputError(
            f"{source}: none of the {len(time)} frames has a pose; expected one at least. Was the "
            "object in view, and is the output complete?"
        )
    _check_rigid(poses, known, source)
    raw = poses if measured is None else np.asarray(measured, np.float64)
    notes = []
    missing = int((~known).sum())
    if missing:
        notes.append(f"{missing} of {len(time)} frames have no pose.")
    status = np.where(known, OK, LOST).astype(np.int8)
    doubt = np.zeros((len(time), 2))
    stuck, copied = repeats(time, poses, raw, known)
    status[stuck] = LOST
    if stuck.any():
        notes.append(
            f"The pose stands still to the last digit in {_ranges(stuck)} while it is noisy or "
            "goes on elsewhere: the tracker was stuck."
        )
    believed = (status == OK) & ~copied
    out, edge, size = jumps(time, poses, believed)
    status[out] = LOST
    status[(edge | copied) & (status == OK)] = UNCERTAIN
    doubt = np.maximum(doubt, size)
    if out.any():
        notes.append(f"The pose jumps away and comes back in {_ranges(out)}.")
    if edge.any():
        notes.append(f"The pose jumps for good at {_ranges(edge)}; which side is right is unknown.")
    if copied.any():
        notes.append(f"The pose is that of the frame before in {_ranges(copied)}.")
    if covariance is None:
        rotation = np.broadcast_to(np.eye(3) if axes is None else axes, (len(time), 3, 3))
        covariance = pose_noise(time, poses, status == OK, rotation, quantum(raw[known]))
    else:
        covariance = _checked_covariance(covariance, known, source)
    spread = np.concatenate([np.repeat(doubt[:, :1], 3, 1), np.repeat(doubt[:, 1:], 3, 1)], axis=1)
    covariance = covariance + np.einsum("ni,ij->nij", spread**2, np.eye(6))
    covariance[status == LOST] = GUESS
    return PoseObservations(
        time, _held(poses, known), covariance, status != LOST, source, status, tuple(notes)
    )


def check_on_table(
    seen: PoseObservations, vertices: Array, *, airborne: bool = False, nearest: float = ON_TABLE
) -> None:
    """Refuse poses under which the object floats above the table, or sinks into it.

    Args:
        seen: The poses.
        vertices: (v, 3) m, the object's mesh or its convex hull.
        airborne: Whether the object may be off the table throughout.
        nearest: m, largest distance that is believed: the accuracy of mesh and calibration.

    Raises:
        InputError: Says how far, and what it would be if y and z were exchanged (another up axis),
            or in other units.
    """
    good = seen.status == OK
    poses = seen.T_world_object[good if good.any() else seen.valid]
    low = _lowest(poses, vertices)
    # A twentieth: a few poor frames do not decide.
    deepest, nearby = float(np.quantile(low, 0.05)), float(np.quantile(np.abs(low), 0.05))
    if deepest >= -nearest and (airborne or nearby <= nearest):
        return
    value = deepest if deepest < -nearest else float(low[int(np.argmin(np.abs(low)))])
    hints = []
    for name, turn in UP_AXES.items():
        turned = poses.copy()
        turned[:, :3] = turn @ poses[:, :3]
        other = np.quantile(np.abs(_lowest(turned, vertices)), 0.05)
        inside = poses.copy()
        inside[:, :3, :3] = poses[:, :3, :3] @ turn
        model = np.quantile(np.abs(_lowest(inside, vertices)), 0.05)
        if other <= nearest:
            hints.append(f"with the poses' frame read as {name} it would be {other:.3f} m")
        if model <= nearest:
            hints.append(f"with the mesh read as {name} it would be {model:.3f} m")
    where = "below" if value < 0 else "above"
    raise InputError(
        f"{seen.source}: the object's lowest point is {abs(value):.3f} m {where} the table (z = 0) "
        f"in its usual frames, expected within {nearest:g} m at rest"
        + (f"; {'; '.join(hints)}" if hints else "")
        + ". Check the transforms to the world, the mesh's origin, axes and units."
    )


UP_AXES = {
    "y up (x, -z, y)": np.array([[1.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, 1.0, 0.0]]),
    "y down (x, z, -y)": np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, -1.0, 0.0]]),
}
"""Rotations that bring another up axis to z, by name."""


def resample(seen: PoseObservations, time: Array, longest: float = 0.05) -> PoseObservations:
    """The observations at other times: those of a camera's frames, for motion capture.

    Args:
        seen: Observations.
        time: (m,) s, increasing, on the same clock.
        longest: s, frames farther from their neighbouring samples than this are lost.

    Returns:
        Poses between two samples: linear in position and along the rotation, with the covariance
        of that combination; a frame is as doubtful as the worse of its neighbours.
    """
    _check_times(time, f"{seen.source}: frames")
    n = len(seen.time)
    right = np.clip(np.searchsorted(seen.time, time), min(1, n - 1), n - 1)
    left = np.maximum(right - 1, 0)
    span = np.maximum(seen.time[right] - seen.time[left], 1e-12)
    share = np.clip((time - seen.time[left]) / span, 0.0, 1.0)
    poses = seen.T_world_object[left].copy()
    step = rotation_log(
        seen.T_world_object[right, :3, :3] @ np.swapaxes(seen.T_world_object[left, :3, :3], 1, 2)
    )
    poses[:, :3, :3] = rotation_exp(share[:, None] * step) @ poses[:, :3, :3]
    poses[:, :3, 3] += share[:, None] * (seen.T_world_object[right, :3, 3] - poses[:, :3, 3])
    gap = np.maximum(np.abs(time - seen.time[left]), np.abs(seen.time[right] - time))
    before, after = seen.status[left], seen.status[right]
    status = np.maximum(np.where(share < 1.0, before, OK), np.where(share > 0.0, after, OK))
    outside = (time < seen.time[0] - 1e-9) | (time > seen.time[-1] + 1e-9)
    status = np.where((gap > longest) | outside, LOST, status).astype(np.int8)
    covariance = None
    if seen.covariance is not None:
        covariance = ((1 - share) ** 2)[:, None, None] * seen.covariance[left]
        covariance = covariance + (share**2)[:, None, None] * seen.covariance[right]
        covariance[status == LOST] = GUESS
    return replace(
        seen,
        time=np.asarray(time, np.float64),
        T_world_object=poses,
        covariance=covariance,
        valid=status != LOST,
        status=status,
    )


def as_track(
    seen: PoseObservations, settings: SmoothSettings | None = None, common: Array | None = None
) -> PoseTrack:
    """The smoothed track of observations, with velocities.

    Args:
        seen: Observations of a whole clip.
        settings: Beliefs of the smoother; None takes its defaults.
        common: (6, 6) what all frames share and no stream shows (calibration, the model, hand-eye
            transforms); it is added to every frame's covariance and not averaged away.

    Raises:
        InputError: As :func:`smooth`.
    """
    n = len(seen.time)
    covariance = np.tile(GUESS, (n, 1, 1)) if seen.covariance is None else seen.covariance
    if common is not None:
        covariance = covariance + common
    return smooth(seen.time, seen.T_world_object, covariance, seen.status, settings, common)


def _check_times(time: Array, source: str) -> None:
    if time.ndim != 1 or len(time) == 0:
        raise InputError(f"{source}: no frames; expected one at least.")
    bad = np.flatnonzero(~np.isfinite(time))
    if len(bad):
        raise InputError(f"{source}: the time of frame {bad[0]} is {time[bad[0]]}.")
    back = np.flatnonzero(np.diff(time) <= 0)
    if len(back):
        i = int(back[0])
        raise InputError(
            f"{source}: times do not increase at frame {i + 1} ({time[i]:.6f} -> "
            f"{time[i + 1]:.6f} s). Sort the rows, and leave out repetitions."
        )


def _check_rigid(poses: Array, known: Mask, source: str) -> None:
    R = poses[:, :3, :3]
    with np.errstate(invalid="ignore"):
        error = np.abs(R @ np.swapaxes(R, 1, 2) - np.eye(3)).max(axis=(1, 2))
        mirrored = np.linalg.det(np.where(known[:, None, None], R, np.eye(3))) < 0
        far = np.linalg.norm(poses[:, :3, 3], axis=1)
    for i in np.flatnonzero(known & (error > 1e-3))[:1]:
        raise InputError(
            f"{source}: frame {i}: R R^T deviates from 1 by {error[i]:.3g}, expected a rotation "
            "(at most 0.001)."
        )
    for i in np.flatnonzero(known & mirrored)[:1]:
        raise InputError(
            f"{source}: frame {i}: the rotation is mirrored; an axis has its sign off."
        )
    worst = float(far[known].max())
    if worst > REACH:
        i = int(np.flatnonzero(known)[int(np.argmax(far[known]))])
        hint = (
            f" In millimetres it would be {worst * 1e-3:.4g} m: divide the translations by 1000."
            if worst > 50
            else " Check the camera's pose in the world."
        )
        raise InputError(
            f"{source}: frame {i}: the object is {worst:.4g} m from the world's origin (median "
            f"{float(np.median(far[known])):.4g} m), expected {REACH:g} m at most.{hint}"
        )


def _checked_covariance(covariance: Array, known: Mask, source: str) -> Array:
    out = np.where(known[:, None, None], np.asarray(covariance, np.float64), GUESS)
    out = 0.5 * (out + np.swapaxes(out, 1, 2))
    if not np.isfinite(out).all() or (np.linalg.eigvalsh(out)[:, 0] <= 0).any():
        i = int(np.argmin(np.linalg.eigvalsh(np.nan_to_num(out))[:, 0]))
        raise InputError(
            f"{source}: the covariance of frame {i} is not positive definite; expected (6, 6) of "
            "position (m2) and rotation (rad2) in world axes."
        )
    return out + np.diag(FLOOR**2)


def _held(poses: Array, known: Mask) -> Array:
    """Poses with the last known one (at the start: the first) where there is none."""
    index = np.where(known, np.arange(len(known)), -1)
    last = np.maximum.accumulate(index)
    return np.asarray(poses[np.where(last < 0, int(np.argmax(known)), last)])


def _lowest(poses: Array, vertices: Array) -> Array:
    """Height (n,) m of the lowest vertex in each pose."""
    return np.asarray((poses[:, 2, :3] @ vertices.T).min(axis=1) + poses[:, 2, 3])


def _ranges(flags: Mask, most: int = 5) -> str:
    """What flags mark, as in: frames 3-7, 12."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flags.astype(np.int8), [0]])))
    runs = [f"{a}" if b == a + 1 else f"{a}-{b - 1}" for a, b in edges.reshape(-1, 2).tolist()]
    more = f" and {len(runs) - most} more" if len(runs) > most else ""
    return f"frames {', '.join(runs[:most])}{more}"
