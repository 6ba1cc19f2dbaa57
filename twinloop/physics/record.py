"""One push as the estimator sees it: windows, rest pose, fingertip motion per step, force bins.

Everything here is in the robot clock (frame times are shifted by the push's clock offset) and in
the body frame of ``CollisionShape``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.interpolate import CubicSpline
from scipy.spatial.transform import Rotation

from twinloop.errors import InputError
from twinloop.physics.shape import CollisionShape

Array = npt.NDArray[np.float64]

PROXIMITY = 3.0e-3  # m, gap at which a push begins
_SMALLEST_SCATTER = 0.04  # share of the stated variance: motion blurs what rest frames show sharp
_STILL_SPEED = 2.0e-3  # m/s, slower than this counts as standing still at the end of a push


@dataclass(frozen=True)
class PushRecord:
    """One push, as in the ``pushes`` artifact (SI, world frame, quaternions wxyz).

    Attributes:
        name: For messages, for example ``push_000``.
        held_out: Never fitted; only predicted.
        robot_time: (S,) s, robot clock.
        tip_position: (S, 3) m, centre of the fingertip sphere.
        tip_velocity: (S, 3) m/s.
        contact_force: (S, 3) N, force of the tip on the object, from efforts.
        contact_force_std: (S, 3) N.
        frame_time: (F,) s, camera clock.
        position: (F, 3) m, object frame origin.
        quaternion: (F, 4) wxyz, object to world.
        covariance: (F, 6, 6), translation (m) then rotation (rad), world, left perturbation.
        usable: (F,) frames whose pose can be trusted.
        clock_offset: s, robot_time = frame_time + clock_offset.
        clock_offset_std: s.
        tip_radius: m.
    """

    name: str
    held_out: bool
    robot_time: Array
    tip_position: Array
    tip_velocity: Array
    contact_force: Array
    contact_force_std: Array
    frame_time: Array
    position: Array
    quaternion: Array
    covariance: Array
    usable: npt.NDArray[np.bool_]
    clock_offset: float
    clock_offset_std: float
    tip_radius: float


@dataclass(frozen=True)
class WindowSettings:
    """How a push is cut and sampled; times in s, angles in rad.

    Attributes:
        dt: Step length of the simulation.
        every: Steps per record.
        bin_records: Records per force bin.
        lead: Free motion kept before the first proximity; it calibrates the force bias.
        tail: Time kept after everything has come to rest.
        longest: Longest window.
        max_tilt: The window ends where the object has tilted this far: what follows a tip-over
            is an impact, which says little and amplifies model error.
    """

    dt: float = 5.0e-4
    every: int = 10
    bin_records: int = 4
    lead: float = 0.3
    tail: float = 0.1
    longest: float = 3.0
    max_tilt: float = 0.7


@dataclass(frozen=True)
class PushWindow:
    """A push cut to what is simulated and compared.

    Attributes:
        name: Of the push.
        held_out: Never fitted.
        start: s, robot clock, time of step 0.
        steps: Number of steps.
        tip_position: (steps, 3) m.
        tip_velocity: (steps, 3) m/s.
        tip_radius: m.
        rest_position: (3,) m, body origin before contact.
        rest_yaw: rad about world z, from upright (down axis along gravity) to the rest pose.
        rest_std: (3,) m, m, rad of x, y, yaw.
        frame_time: (F,) s since ``start``, robot clock.
        translation: (F, 3) m, measured position minus rest position.
        rotation: (F, 3, 3), measured rotation relative to rest, world frame.
        covariance: (F, 6, 6) of the two.
        bin_time: (B,) s since ``start``, centre of each bin.
        force: (B, 3) N, measured, mean over the bin.
        force_std: (B, 3) N.
        drag: (B, 3) sign of the tip velocity by axis, smooth at standstill.
        clock_offset_std: s.
    """

    name: str
    held_out: bool
    start: float
    steps: int
    tip_position: Array
    tip_velocity: Array
    tip_radius: float
    rest_position: Array
    rest_yaw: float
    rest_std: Array
    frame_time: Array
    translation: Array
    rotation: Array
    covariance: Array
    bin_time: Array
    force: Array
    force_std: Array
    drag: Array
    clock_offset_std: float


def rest_rotation(record: PushRecord, seconds: float = 0.25) -> Array:
    """(3, 3) object-to-world rotation averaged over the first frames, where all stands still.

    Raises:
        InputError: No usable frame in that time.
    """
    index = _rest_frames(record, record.frame_time[0] + seconds)
    return _matrix(record.quaternion[index]).mean().as_matrix().astype(np.float64)


def upright_rotation(down: Array, yaw: float | Array) -> Array:
    """(..., 3, 3) rotation that puts the body direction ``down`` along -z, then turns by yaw."""
    target = np.array([0.0, 0.0, -1.0])
    axis = np.cross(down, target)
    sine, cosine = float(np.linalg.norm(axis)), float(down @ target)
    if sine < 1e-12:
        axis = np.array([1.0, 0.0, 0.0])
        angle = 0.0 if cosine > 0 else np.pi
    else:
        axis = axis / sine
        angle = np.arctan2(sine, cosine)
    align = Rotation.from_rotvec(axis * angle).as_matrix()
    yaw = np.asarray(yaw, dtype=np.float64)
    c, s, o, i = np.cos(yaw), np.sin(yaw), np.zeros_like(yaw), np.ones_like(yaw)
    turn = np.stack([c, -s, o, s, c, o, o, o, i], axis=-1).reshape(*yaw.shape, 3, 3)
    return np.asarray(turn @ align, dtype=np.float64)


def cut_window(record: PushRecord, shape: CollisionShape, settings: WindowSettings) -> PushWindow:
    """Find contact, rest pose and end of a push, and resample it for the simulation.

    Raises:
        InputError: No usable rest frame, the fingertip never comes near the object, or fewer than
            three usable frames show the push.
    """
    _check_record(record)
    seen = record.frame_time + record.clock_offset
    R_world_body = _matrix(record.quaternion).as_matrix() @ shape.R_object_body
    first = _rest_frames(record, record.frame_time[0] + 0.25)
    touch = _first_proximity(
        record, shape, record.position[first].mean(axis=0), _mean_rotation(R_world_body[first])
    )
    # All frames before contact show the object at rest; more frames, less noise.
    rest = _rest_frames(
        record, max(touch - 0.02 - record.clock_offset, record.frame_time[first[-1]])
    )
    rest_position = record.position[rest].mean(axis=0)
    R_rest = _mean_rotation(R_world_body[rest])
    relative = R_world_body @ R_rest.T
    start = max(touch - settings.lead, float(record.robot_time[0]))
    end = _end_time(record, seen, relative, touch, settings)
    steps = int(np.floor((end - start) / (settings.dt * settings.every))) * settings.every
    times = np.asarray(start + settings.dt * np.arange(steps), dtype=np.float64)
    tip, tip_v = _tip_motion(record, times)
    # What all frames share (scale, calibration) cancels in poses relative to rest; the scatter of
    # the rest frames tells how much of the stated covariance does not.
    scatter = max(_rest_scatter(record, rest), _SMALLEST_SCATTER)
    inside = (
        record.usable
        & (seen > touch - 0.05)
        & (seen < start + (steps - settings.every) * settings.dt)
    )
    if inside.sum() < 3:
        raise InputError(
            f"{record.name}: {int(inside.sum())} usable frames between {touch:.3f} and {end:.3f} s "
            "(robot clock), expected at least 3; check tracking of this push"
        )
    align = upright_rotation(shape.down, 0.0)
    yaw = _yaw(R_rest @ align.T)
    count = len(rest)
    spread = np.sqrt(np.diagonal(record.covariance[rest].mean(axis=0))[[0, 1, 5]] / count)
    bin_time, force, force_std, drag = _force_bins(record, start, steps, settings)
    return PushWindow(
        name=record.name,
        held_out=record.held_out,
        start=start,
        steps=steps,
        tip_position=tip,
        tip_velocity=tip_v,
        tip_radius=record.tip_radius,
        rest_position=rest_position,
        rest_yaw=yaw,
        rest_std=spread,
        frame_time=seen[inside] - start,
        translation=record.position[inside] - rest_position,
        rotation=relative[inside],
        covariance=scatter * record.covariance[inside]
        + record.covariance[rest].mean(axis=0) / count,
        bin_time=bin_time,
        force=force,
        force_std=force_std,
        drag=drag,
        clock_offset_std=record.clock_offset_std,
    )


def _check_record(record: PushRecord) -> None:
    step = np.diff(record.robot_time)
    if len(step) < 10 or (step <= 0).any():
        at = int(np.argmin(step)) if len(step) else 0
        raise InputError(
            f"{record.name}: robot_time has {len(step) + 1} samples and a smallest step of "
            f"{step.min(initial=0):.3g} s at {at}, expected at least 11 increasing samples"
        )
    for field in ("tip_position", "tip_velocity", "contact_force", "contact_force_std"):
        value = getattr(record, field)
        if not np.isfinite(value).all():
            row = int(np.argwhere(~np.isfinite(value))[0, 0])
            raise InputError(f"{record.name}: {field}[{row}] is not finite; check the robot log")


def _rest_frames(record: PushRecord, until: float) -> npt.NDArray[np.intp]:
    index = np.flatnonzero(record.usable & (record.frame_time <= until))
    if len(index) == 0:
        raise InputError(
            f"{record.name}: no usable frame before {until:.3f} s (camera clock); the clip must "
            "begin with 0.3 s of everything at rest, in view"
        )
    return index


def _matrix(quaternion: Array) -> Rotation:
    return Rotation.from_quat(quaternion[:, [1, 2, 3, 0]])


def _mean_rotation(R: Array) -> Array:
    return Rotation.from_matrix(R).mean().as_matrix().astype(np.float64)


def _yaw(R: Array) -> float:
    """Angle about z of the rotation nearest to ``R`` that turns about z only."""
    return float(np.arctan2(R[1, 0] - R[0, 1], R[0, 0] + R[1, 1]))


def _rest_scatter(record: PushRecord, rest: npt.NDArray[np.intp]) -> float:
    """Variance of the rest frames as a share of their stated covariance, at most 1."""
    if len(rest) < 5:
        return 1.0
    variance = record.position[rest].var(axis=0, ddof=1)
    stated = np.diagonal(record.covariance[rest].mean(axis=0))[:3]
    return float(min(np.max(variance / stated), 1.0))


def _first_proximity(
    record: PushRecord, shape: CollisionShape, position: Array, R_rest: Array
) -> float:
    gap, _ = shape.sample((record.tip_position - position) @ R_rest)
    near = np.flatnonzero(gap < record.tip_radius + PROXIMITY)
    if len(near) == 0:
        raise InputError(
            f"{record.name}: the fingertip never comes within {PROXIMITY * 1e3:.0f} mm of the "
            f"object (closest {1e3 * (gap.min() - record.tip_radius):.0f} mm); log and video of "
            "different pushes, or a wrong T_world_base?"
        )
    return float(record.robot_time[near[0]])


def _end_time(
    record: PushRecord, seen: Array, relative: Array, touch: float, settings: WindowSettings
) -> float:
    """End of the push: tip-over, the longest window, or everything at rest again."""
    end = min(touch + settings.longest, float(record.robot_time[-1]))
    tilt = np.arccos(np.clip(relative[:, 2, 2], -1.0, 1.0))
    over = np.flatnonzero(record.usable & (seen > touch) & (tilt > settings.max_tilt))
    if len(over):
        return min(end, float(seen[over[0]]))
    usable = record.usable & (seen > touch) & (seen < end)
    times, position = seen[usable], record.position[usable]
    if len(times) < 5:
        return end
    # The last moment at which the object was still away from where it ends.
    away = np.linalg.norm(position - position[-5:].mean(axis=0), axis=1)
    noise = 3 * np.sqrt(np.trace(record.covariance[usable][-5:].mean(axis=0)[:3, :3]))
    turned = np.linalg.norm(
        (
            Rotation.from_matrix(relative[usable])
            * Rotation.from_matrix(relative[usable][-1]).inv()
        ).as_rotvec(),
        axis=1,
    )
    moving = np.flatnonzero((away > noise + _STILL_SPEED) | (turned > 0.05))
    settled = float(times[moving[-1]]) + settings.tail if len(moving) else touch + settings.tail
    return min(end, max(settled, touch + 2 * settings.tail))


def _tip_motion(record: PushRecord, times: Array) -> tuple[Array, Array]:
    spline = CubicSpline(record.robot_time, record.tip_position, axis=0)
    velocity = np.stack(
        [np.interp(times, record.robot_time, record.tip_velocity[:, i]) for i in range(3)], axis=1
    )
    return np.asarray(spline(times), dtype=np.float64), velocity


def _force_bins(
    record: PushRecord, start: float, steps: int, settings: WindowSettings
) -> tuple[Array, Array, Array, Array]:
    """Means over bins: an average keeps the impulse, whatever the contact does inside the bin."""
    width = settings.dt * settings.every * settings.bin_records
    count = max(int(steps * settings.dt / width + 1e-9), 1)
    edges = np.asarray(start + width * np.arange(count + 1), dtype=np.float64)
    force = _bin_mean(record.robot_time, record.contact_force, edges)
    std = _bin_mean(record.robot_time, record.contact_force_std, edges)
    velocity = _bin_mean(record.robot_time, record.tip_velocity, edges)
    centre = np.asarray(edges[:-1] + (width / 2 - start))
    return centre, force, std, np.asarray(velocity / (np.abs(velocity) + 5e-3))


def _bin_mean(time: Array, value: Array, edges: Array) -> Array:
    """Mean of a piecewise linear signal between consecutive edges, exact."""
    area = np.diff(time)[:, None] * (value[1:] + value[:-1]) / 2
    total = np.concatenate([np.zeros((1, value.shape[1])), np.cumsum(area, axis=0)])
    i = np.clip(np.searchsorted(time, edges, side="right") - 1, 0, len(time) - 2)
    gap = (time[i + 1] - time[i])[:, None]
    h = np.clip((edges - time[i])[:, None], 0.0, gap)
    slope = (value[i + 1] - value[i]) / gap
    integral = total[i] + h * value[i] + 0.5 * h * h * slope
    return np.asarray(np.diff(integral, axis=0) / np.diff(edges)[:, None], dtype=np.float64)
