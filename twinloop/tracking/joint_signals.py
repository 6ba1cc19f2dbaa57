"""Joint signals of a robot log on a uniform clock, smoothed alike, and the fingertip they carry.

All signals pass the same Gaussian kernel g (derivatives: g'), so that a linear equation of motion
that holds for the raw signals holds for the smoothed ones too, in contact transients as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from twinloop.errors import InputError
from twinloop.hand.model import RobotModel

Array = NDArray[np.float64]


@dataclass(frozen=True)
class JointSignals:
    """Smoothed signals of one push; joints in the robot model's order.

    time: (n,) s robot clock, uniform; position, velocity, acceleration, effort, command: (n, joint)
    in m or rad, their rates, N or N m; sign: (n, joint) smoothed sign of the velocity, -1 to 1;
    effort_noise: (joint,) standard deviation of the smoothed effort; tip, tip_velocity: (n, 3) m,
    m/s, world; jacobian: (n, 3, joint) of the tip; inertial: (n, joint) effort that accelerates
    the links (rotors not included) by the datasheet's masses.
    """

    time: Array
    position: Array
    velocity: Array
    acceleration: Array
    sign: Array
    effort: Array
    command: Array
    effort_noise: Array
    tip: Array
    tip_velocity: Array
    jacobian: Array
    inertial: Array


def slow_speed(robot: RobotModel) -> Array:
    """(joint,) speed below which the sign of dry friction is not known, m/s or rad/s."""
    return np.where(robot.prismatic, 0.004, 0.03)


def gaussian_kernels(dt: float, sigma: float) -> tuple[Array, Array]:
    """Smoothing kernel and first-derivative kernel (1/s), both odd-sized, to convolve with.

    The derivative kernel is scaled to be exact on a ramp, the smoothing kernel on a constant.
    """
    half = max(1, int(np.ceil(4 * sigma / dt)))
    t = np.arange(-half, half + 1) * dt
    g = np.exp(-0.5 * (t / sigma) ** 2)
    g /= g.sum()
    d = -t * g
    return g, d / (d * -t).sum()


def smooth(values: Array, kernel: Array, slope: bool = False) -> Array:
    """Convolve columns (n, k) with `kernel`; ends go on as constants, or as lines if `slope`."""
    half = len(kernel) // 2
    first = np.repeat(values[:1], half, axis=0)
    last = np.repeat(values[-1:], half, axis=0)
    if slope and len(values) > 1:
        steps = np.arange(1, half + 1)[:, None]
        first = values[:1] - steps[::-1] * (values[1:2] - values[:1])
        last = values[-1:] + steps * (values[-1:] - values[-2:-1])
    padded = np.concatenate([first, values, last])
    return np.stack(
        [np.convolve(padded[:, k], kernel, mode="valid") for k in range(values.shape[1])], axis=1
    )


def order_joints(robot: RobotModel, names: tuple[str, ...], values: Array, where: Path) -> Array:
    """Columns (n, k) of a log in the order of the robot's joints (n, joint).

    Raises:
        InputError: A joint of the robot is missing in the log.
    """
    missing = [j for j in robot.joint_names if j not in names]
    if missing:
        raise InputError(
            f"{where}: joints {missing} of robot {robot.name!r} are not in the log, which has "
            f"{list(names)}. Is robot.yaml that of this robot?"
        )
    return np.asarray(values[:, [names.index(j) for j in robot.joint_names]], np.float64)


def uniform(
    time: Array, columns: list[Array], rate: float, where: Path
) -> tuple[Array, list[Array]]:
    """Signals (n, k) on a uniform clock of `rate` Hz from log samples at `time` (m,) s.

    Raises:
        InputError: Fewer than 20 samples, times that do not increase, values that are not finite,
            or a gap of over 0.1 s.
    """
    if len(time) < 20:
        raise InputError(f"{where}: {len(time)} samples; expected 20 at least. Log the whole push.")
    step = np.diff(time)
    if not np.isfinite(time).all() or (step <= 0).any():
        i = int(np.argmin(np.where(np.isfinite(step), step, -1)))
        raise InputError(
            f"{where}: stamps do not increase at sample {i + 1} ({time[i]} -> {time[i + 1]} s); "
            "log the header stamps of one clock."
        )
    for values in columns:
        if not np.isfinite(values).all():
            row, column = (int(v) for v in np.argwhere(~np.isfinite(values))[0])
            raise InputError(
                f"{where}: sample {row}, column {column} is {values[row, column]}; expected finite "
                "numbers for position, velocity, effort and command."
            )
    if step.max() > 0.1:
        i = int(np.argmax(step))
        raise InputError(
            f"{where}: {1e3 * step[i]:.0f} ms without a sample after {time[i]:.3f} s; expected "
            "gaps below 100 ms. The logger lost data: record the push again."
        )
    count = int(np.floor((time[-1] - time[0]) * rate)) + 1
    grid = time[0] + np.arange(count) / rate
    if len(time) == count and np.abs(time - grid).max() < 0.1 / rate:
        return time.copy(), [c.copy() for c in columns]
    return grid, [
        np.stack([np.interp(grid, time, c[:, k]) for k in range(c.shape[1])], axis=1)
        for c in columns
    ]


def link_inertia_effort(
    robot: RobotModel, q: Array, velocity: Array, derivative: Array, base: Array
) -> Array:
    """Joint efforts (n, joint) that accelerate the links' masses along the motion (n, joint).

    Sum over the datasheet's geoms of m J^T a, with J of the geom's centre and a the smoothed
    derivative of its velocity J dq: D'Alembert with centripetal parts included. Geoms count as
    point masses: their own moments of inertia are a hundredth of the rotors'.
    """
    out = np.zeros_like(q)
    for geom in robot.geoms:
        centre = np.array(geom.centre)
        if geom.shape == "capsule":
            centre = 0.5 * (np.array(geom.start) + np.array(geom.to))
        jacobian = robot.point_jacobian(q, geom.link, centre, base)
        speed = np.einsum("nij,nj->ni", jacobian, velocity)
        out += geom.mass * np.einsum("nij,ni->nj", jacobian, smooth(speed, derivative))
    return out


def joint_signals(
    robot: RobotModel,
    base: Array,
    tip: str,
    time: Array,
    position: Array,
    velocity: Array,
    effort: Array,
    command: Array,
    *,
    rate: float,
    sigma: float,
    where: Path,
) -> JointSignals:
    """Smooth a log and carry it to the fingertip.

    Args:
        robot: The robot's datasheet.
        base: T_world_base (4, 4).
        tip: Name of the fingertip.
        time: (m,) s, robot clock.
        position: (m, joint) m or rad, in the robot's order, like the next three.
        velocity: (m, joint) m/s or rad/s.
        effort: (m, joint) N or N m.
        command: (m, joint) m or rad.
        rate: Hz of the uniform clock.
        sigma: s, width of the Gaussian kernel.
        where: The log's path, for messages.
    """
    grid, (q, dq, tau, c) = uniform(time, [position, velocity, effort, command], rate, where)
    dt = float((grid[-1] - grid[0]) / (len(grid) - 1))
    g, d = gaussian_kernels(dt, sigma)
    differenced = smooth(q, d, slope=True)
    filtered = smooth(dq, g)
    # A drive's own velocity is less noisy, but some lag or have another unit: then the encoders'.
    scale = np.maximum(differenced.std(axis=0), 1e-6)
    agrees = np.abs(filtered - differenced).std(axis=0) < 0.1 * scale + 1e-3
    rough = np.where(agrees, dq, np.gradient(q, dt, axis=0))
    smoothed = smooth(q, g, slope=True)
    speed = smooth(rough, g)
    # The noise of neighbouring samples is independent, so differences show it; the kernel thins it.
    noise = np.median(np.abs(np.diff(tau, axis=0)), axis=0) / (0.6745 * np.sqrt(2))
    jacobian = robot.jacobian(smoothed, tip, base)
    return JointSignals(
        time=grid,
        position=smoothed,
        velocity=speed,
        acceleration=smooth(rough, d),
        sign=smooth(np.tanh(rough / slow_speed(robot)), g),
        effort=smooth(tau, g),
        command=c,
        effort_noise=noise * np.sqrt((g**2).sum()),
        tip=robot.tip_positions(smoothed, base)[:, robot.tips.index(tip)],
        tip_velocity=np.einsum("nij,nj->ni", jacobian, speed),
        jacobian=jacobian,
        inertial=link_inertia_effort(robot, smoothed, rough, d, base),
    )
