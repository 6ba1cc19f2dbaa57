"""The clock offset of a push from its impact: the force in the log, the start of motion in video.

A light object is knocked off the finger, so that contact does not hold their distance constant.
But what the finger gave it shows in both clocks. Along the push, with x the way of the point that
is touched (camera clock) and f the force (robot clock), over the first moments

    x''(t) = a f(t + offset) - b  while it moves,  x = 0 until a f > b,

a: inverse of the mass that the point carries, b: braking by friction or weight.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinloop.tracking.clock import Offset
from twinloop.tracking.contact_force import FreeMotion
from twinloop.tracking.joint_signals import JointSignals
from twinloop.tracking.solver import rotation_log

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

SLOWEST = 0.01
"""Speed of the tip below which it has no direction, m/s."""
SURE = 6.0
"""So many times its noise must a pulse of force rise above what was before it."""
SYSTEMATIC = 1.0e-3
"""What a pad's creep and unlike sampling leave of the pulse's time, standard deviation in s."""
BRAKING = (2.0, 2.0)
"""Prior mean and standard deviation of b, m/s^2: friction times gravity, or a tilt's weight."""


@dataclass(frozen=True)
class Pulse:
    """The hardest impact of a push, robot clock.

    time: (n,) s; force: (n,) N along `direction`, 0 before the impact; start: s, when it rises;
    direction: (3,) of the tip's horizontal motion; place: (3,) m of the tip then; friction: N that
    dry friction of the joints may hide.
    """

    time: Array
    force: Array
    start: float
    direction: Array
    place: Array
    friction: float

    @property
    def doubt(self) -> float:
        """Standard deviation (s) of when the force acts.

        Dry friction of unknown sign, as a part of the peak, moves it by as much of half its width.
        """
        dt, peak = float(self.time[1] - self.time[0]), float(self.force.max())
        strong = self.force[self.force > 0.1 * peak].sum()
        return float(np.hypot(SYSTEMATIC, 0.5 * strong * dt / peak * self.friction / peak))


def find_pulse(signals: JointSignals, model: FreeMotion, chain: tuple[int, ...]) -> Pulse | None:
    """The hardest impact in the efforts, or None when none is sure.

    Dry friction is unknown in a joint that is held, so only the rise over the time before counts.

    Args:
        signals: Of one push.
        model: The robot's free motion.
        chain: Joints that carry the tip.
    """
    dt = float(signals.time[1] - signals.time[0])
    force, dry, moving = _force_along(signals, model, chain)
    if moving.sum() < round(0.1 / dt):
        return None
    rise = np.where(moving, force - _before(np.where(moving, force, np.nan), dt), 0.0)
    noise = 1.4826 * float(np.median(np.abs(rise[moving] - np.median(rise[moving]))))
    peak = int(np.argmax(rise))
    if rise[peak] < SURE * max(noise, 1e-9):
        return None
    first = peak
    while first > 0 and rise[first] > 0.1 * rise[peak]:
        first -= 1
    level = float(np.median(force[max(first - round(0.1 / dt), 0) : first + 1]))
    lead = signals.time >= signals.time[first] - 0.02
    pushed = np.where(lead, np.maximum(force - level, 0.0), 0.0)
    heading = signals.tip_velocity[first] * np.array([1.0, 1.0, 0.0])
    return Pulse(
        signals.time,
        pushed,
        float(signals.time[first]),
        heading / max(float(np.linalg.norm(heading)), 1e-12),
        signals.tip[first],
        float(dry[first]),
    )


def _force_along(
    signals: JointSignals, model: FreeMotion, chain: tuple[int, ...]
) -> tuple[Array, Array, Flags]:
    """Force (n,) N against the tip's horizontal motion, dry friction (n,) N, where it moves."""
    j = np.array(chain)
    rotor, viscous, dry, links = model.value[j][:, :4].T
    inertia = rotor * signals.acceleration[:, j] + links * signals.inertial[:, j]
    friction = viscous * signals.velocity[:, j] + dry * signals.sign[:, j]
    rest = signals.effort[:, j] - inertia - friction
    variance = signals.effort_noise[j] ** 2 + 1e-18
    heading = signals.tip_velocity * np.array([1.0, 1.0, 0.0])
    size = np.linalg.norm(heading, axis=1)
    heading = heading / np.maximum(size, 1e-12)[:, None]
    lever = np.einsum("nij,ni->nj", signals.jacobian[:, :, j], heading)
    information = (lever**2 / variance).sum(axis=1)
    force = (lever * rest / variance).sum(axis=1) / np.maximum(information, 1e-12)
    hidden = (np.abs(lever) * dry / variance).sum(axis=1) / np.maximum(information, 1e-12)
    return force, hidden, np.asarray(size > SLOWEST)


def _before(values: Array, dt: float) -> Array:
    """Median (n,) of the known values (n,) from 0.2 to 0.03 s before; infinite where none is."""
    far, near = round(0.2 / dt), round(0.03 / dt)
    out = np.full(len(values), np.inf)
    for i in range(near, len(values)):
        past = values[max(i - far, 0) : i - near + 1]
        past = past[np.isfinite(past)]
        if len(past) >= 3:
            out[i] = float(np.median(past))
    return out


def motion_onset(time: Array, poses: Array, rest: float = 0.25) -> int | None:
    """Index of the first of three frames in a row in which the object has left its place.

    Args:
        time: (m,) s.
        poses: (m, 4, 4) T_world_object, all to be trusted.
        rest: s at the start of the clip in which it surely stands still.
    """
    still = time <= time[0] + rest
    place = np.median(poses[still, :3, 3], axis=0)
    middle = poses[still][int(still.sum()) // 2, :3, :3]
    moved = np.linalg.norm(poses[:, :3, 3] - place, axis=1)
    turned = np.linalg.norm(rotation_log(poses[:, :3, :3] @ middle.T), axis=1)
    away = moved > max(5 * float(np.median(moved[still])), 4e-4)
    away |= turned > max(5 * float(np.median(turned[still])), 4e-3)
    runs = np.flatnonzero(away[:-2] & away[1:-1] & away[2:])
    return int(runs[0]) if len(runs) else None


def impact_offset(
    pulse: Pulse | None,
    frame_time: Array,
    poses: Array,
    usable: Flags,
    *,
    largest: float,
    smoothing: float,
    centre: float = 0.0,
    sigma: float = 1.5e-4,
    ahead: float = 0.06,
    behind: float = 0.1,
) -> Offset | None:
    """Clock offset of one push from its impact, or None when nothing can be said.

    Args:
        pulse: The impact in the log.
        frame_time: (m,) s camera clock.
        poses: (m, 4, 4) T_world_object.
        usable: (m,) whether the pose can be trusted.
        largest: s, an offset farther than this from `centre` is none.
        smoothing: s, standard deviation of the Gaussian that the log's signals have passed.
        centre: s, about what offset is sought.
        sigma: m, least error of a pose from frame to frame.
        ahead: s after the start of motion that are fitted; later the object tilts or spins.
        behind: s before it that are fitted.
    """
    if pulse is None or usable.sum() < 12:
        return None
    times, track = frame_time[usable], poses[usable]
    onset = motion_onset(times, track)
    if onset is None or onset < 5:
        return None
    began = float(times[onset])
    guess = pulse.start - began
    if abs(guess - centre) > largest + 0.06:
        return None
    quiet = slice(max(onset - 12, 0), onset - 2)
    origin = np.median(track[quiet, :3, 3], axis=0)
    touched = track[onset - 3, :3, :3].T @ (pulse.place - origin)
    way = (track[:, :3, :3] @ touched + track[:, :3, 3]) @ pulse.direction
    level, scatter = float(way[quiet].mean()), float(way[quiet].std())
    near = (times > began - behind) & (times < began + ahead)
    if near.sum() < 6 or (times[near] >= began).sum() < 3:
        return None
    noise = max(sigma, scatter)
    offsets = guess + np.arange(-0.06, 0.06, 0.00025)
    misfit, rms = _misfits(pulse, times[near], way[near] - level, offsets, noise, smoothing)
    weight = np.exp(-(misfit - misfit.min()))
    weight /= weight.sum()
    value = float(weight @ offsets)
    std = float(np.sqrt(weight @ (offsets - value) ** 2))
    if abs(value - centre) > largest:
        return None
    return Offset(value, float(np.hypot(std, pulse.doubt)), float(rms[int(np.argmin(misfit))]))


def _misfits(
    pulse: Pulse, times: Array, way: Array, offsets: Array, noise: float, smoothing: float
) -> tuple[Array, Array]:
    """Half chi square (k,) and rms error (k,) m at each offset, at the best a > 0 and b >= 0."""
    dt = float(pulse.time[1] - pulse.time[0])
    when = times[None] + offsets[:, None]
    mean, std = BRAKING
    best, rms = np.full(len(offsets), np.inf), np.full(len(offsets), np.inf)
    for threshold in float(pulse.force.max()) * np.linspace(0.0, 0.7, 15):
        gained = np.cumsum(pulse.force - threshold) * dt
        # At rest, friction takes up what is below the threshold: speed never becomes negative.
        speed = gained - np.minimum(np.minimum.accumulate(gained), 0.0)
        # The force is smoothed, the video is not: a Gaussian adds s^2 / 2 of the second derivative.
        blur = 0.5 * smoothing**2 * np.gradient(speed, dt)
        q = np.interp(when, pulse.time, np.cumsum(speed) * dt - blur)
        qq = (q * q).sum(axis=1)
        a = np.maximum((q @ way) / np.maximum(qq, 1e-30), 0.0)
        error = a[:, None] * q - way
        square = (error**2).sum(axis=1)
        brake = (a * threshold - mean) / std
        misfit = 0.5 * square / noise**2 + 0.5 * brake**2
        better = misfit < best
        best = np.where(better, misfit, best)
        rms = np.where(better, np.sqrt(square / len(way)), rms)
    return best, rms
