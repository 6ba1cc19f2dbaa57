"""Clocks of camera and robot: offset error over lab pushes, coverage, swapped logs, peers.

Pushes, logs and frame times are the lab's own at 60 Hz, with dropped frames. Poses are the true
ones with 0.15 mm and 0.1 deg of noise in place of the tracker, which takes minutes per object; the
rows of `benchmarks.foundation` hold the error with real tracking.
Run `python -m benchmarks.ingest_clock`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline

from benchmarks.rows import Figure
from twinloop.errors import InputError
from twinloop.hand.model import RobotModel
from twinloop.lab.film import frame_times
from twinloop.lab.objects import build_object
from twinloop.lab.pushes import record_session
from twinloop.lab.robot_log import measure
from twinloop.lab.spec import load_preset
from twinloop.lab.world import LOG_RATE, robot_truth
from twinloop.metrics.statistics import wilson_interval
from twinloop.tracking.contact_force import separate
from twinloop.tracking.impact import find_pulse
from twinloop.tracking.joint_signals import joint_signals
from twinloop.tracking.motion_clock import align_by_motion
from twinloop.tracking.session_clock import Clip, Log, Settings, pair_offset, session_offsets
from twinloop.tracking.solver import rotation_exp
from twinloop.tracking.speed_correlation import carried, correlation, speed

Array = NDArray[np.float64]

OBJECTS = ("domino", "letter_a", "spam", "ketchup", "cube", "nutella", "letter_u", "wafer_tin")
TIP = "index_tip"
POSITION, ROTATION = 1.5e-4, np.deg2rad(0.1)
"""Noise of a pose, standard deviation per axis, m and rad."""


@dataclass(frozen=True)
class Session:
    """One object's pushes: logs, clips, true offset s."""

    logs: list[Log]
    clips: list[Clip]
    offset: float


@cache
def session(name: str) -> Session:
    """The lab's push session of a preset."""
    spec = load_preset(name)
    item, robot = build_object(spec, name), RobotModel.load("twinhand")
    rng = np.random.default_rng([spec.seed, 0x9054])
    truth = robot_truth(robot, rng)
    recorded = record_session(robot, item, spec.pushes, truth, rng, 10, None, False)
    signals, clips = [], []
    for number, push in enumerate(recorded):
        own = np.random.default_rng([spec.seed, 0x9055, number])
        log = measure(robot, push.rollout, spec.noise, own)
        times = frame_times(float(push.rollout.time[-1]), 60.0, spec.noise.dropped, own)
        poses = push.rollout.object_poses(times)
        poses[:, :3, 3] += own.normal(0, POSITION, (len(times), 3))
        poses[:, :3, :3] = rotation_exp(own.normal(0, ROTATION, (len(times), 3))) @ poses[:, :3, :3]
        clips.append(Clip(push.name, times, poses, np.ones(len(times), np.bool_)))
        columns = (log.position, log.velocity, log.effort, log.command)
        where = Path(push.name) / "robot.csv"
        signals.append(
            joint_signals(
                robot, np.eye(4), TIP, log.time, *columns, rate=LOG_RATE, sigma=0.008, where=where
            )
        )
    model, forces = separate(robot, signals, TIP, margin=0.04, still=0.25)
    chain = robot.chain(robot.tip(TIP).link)
    logs = [
        Log(Path(clip.name) / "robot.csv", s, f, find_pulse(s, model, chain))
        for clip, s, f in zip(clips, signals, forces, strict=True)
    ]
    return Session(logs, clips, spec.noise.clock_offset)


def rms(values: list[float]) -> tuple[float, list[float]]:
    """Root mean square and its 95 % bootstrap interval."""
    squares = np.square(values)
    draws = np.random.default_rng(0).choice(squares, (2000, len(squares))).mean(axis=1)
    low, high = np.sqrt(np.quantile(draws, [0.025, 0.975]))
    return float(np.sqrt(squares.mean())), [float(low), float(high)]


def error_figure(name: str, errors: list[float], target: float | None, peer: str = "") -> Figure:
    """Rms error in ms."""
    value, interval = rms([1e3 * e for e in errors])
    return Figure(name, value, "ms", target, "lower", len(errors), interval, peer=peer or None)


def rate_figure(
    name: str, good: int, n: int, better: Literal["lower", "higher"] = "higher"
) -> Figure:
    """A rate k/n with its interval."""
    interval = [float(v) for v in wilson_interval(good, n)]
    return Figure(f"{name} ({good}/{n})", good / n, "", None, better, n, interval)


def pushes() -> list[Figure]:
    """Offset error of lab sessions, with one epoch and with two, coverage, and the peer."""
    shared, apart, single, peer, inside, told = [], [], [], [], 0, 0
    for name in OBJECTS:
        s = session(name)
        found = session_offsets(s.logs, s.clips, "auto", Settings())
        shared.append(found[0].value - s.offset)
        inside += abs(found[0].value - s.offset) < 1.96 * found[0].std
        moved = [shifted(log, 1.7e9) for log in s.logs]
        foreign = session_offsets(moved, s.clips, "auto", Settings())
        apart.append(foreign[0].value - s.offset - 1.7e9)
        lags = []
        for log, clip in zip(s.logs, s.clips, strict=True):
            own = pair_offset(log, clip, Settings(), 0.0)
            if own is not None:
                told += 1
                single.append((own.value - s.offset) / own.std)
            lag = correlated(log, clip)
            if lag is not None:
                lags.append(lag)
        peer.append(float(np.median(lags)) - s.offset)
    within = sum(abs(z) < 1.96 for z in single)
    return [
        error_figure(
            "clock offset of a session, true poses with tracking noise, rms over objects",
            shared,
            1.5,
        ),
        error_figure("the same, the robot in Unix time and the video from 0", apart, 1.5),
        error_figure(
            "peer: median over pushes of the speeds' cross-correlation", peer, None, "correlation"
        ),
        rate_figure("95 % interval of a session's offset covers", inside, len(OBJECTS), "higher"),
        rate_figure("95 % interval of a single push's offset covers", within, told, "higher"),
    ]


def shifted(log: Log, by: float) -> Log:
    """The log on a clock that is `by` s ahead."""
    pulse = log.pulse
    if pulse is not None:
        pulse = replace(pulse, time=pulse.time + by, start=pulse.start + by)
    return replace(log, signals=replace(log.signals, time=log.signals.time + by), pulse=pulse)


def correlated(log: Log, clip: Clip) -> float | None:
    """Lag (s) of the highest cross-correlation of speeds within 0.15 s, or None."""
    way = carried(log.signals.tip, log.force.touching)
    lags, score = correlation(
        speed(clip.time, clip.poses[:, :3, 3]), speed(log.signals.time, way), 0.5
    )
    score = np.where(np.abs(lags) <= 0.15, score, -np.inf)
    return float(lags[int(np.argmax(score))]) if np.isfinite(score).any() else None


def swapped() -> list[Figure]:
    """Sessions with two logs exchanged that are refused, and whole ones that are."""
    caught = named = tries = false = 0
    for name in OBJECTS:
        s = session(name)
        try:
            session_offsets(s.logs, s.clips, "auto", Settings())
        except InputError:
            false += 1
        for i, j in list(combinations(range(len(s.logs)), 2))[::5]:
            logs = list(s.logs)
            logs[i], logs[j] = logs[j], logs[i]
            tries += 1
            try:
                session_offsets(logs, s.clips, "auto", Settings())
            except InputError as error:
                caught += 1
                named += "seem swapped" in str(error)
    return [
        rate_figure("sessions with two logs exchanged that are refused", caught, tries, "higher"),
        rate_figure("of these, named with the clip that fits", named, tries, "higher"),
        rate_figure("whole sessions that are refused", false, len(OBJECTS), "lower"),
    ]


def motion(trials: int = 100) -> list[Figure]:
    """Free motion: 30 Hz with uneven frames, 2 mm noise, offsets to 2 s, drift to 50 ppm."""
    errors, coarse, inside = [], [], 0
    t = np.arange(0, 12, 1 / 250)
    x = 0.1 * np.sin(2.2 * t) * np.clip(t - 1.5, 0, 1)
    x = x + 0.03 * np.sin(6.9 * t + 1) * np.clip(t - 4, 0, 1)
    place = np.stack([x, 0 * x, 0 * x], axis=1)
    for seed in range(trials):
        rng = np.random.default_rng(seed)
        offset, drift = rng.uniform(-2, 2), rng.uniform(-5e-5, 5e-5)
        at = np.cumsum(rng.choice([1 / 30, 1 / 30, 1 / 30, 1 / 24], 330))
        at = at[at < 9] + 1.2
        seen = CubicSpline(t, place, axis=0)(at) + 0.3 + rng.normal(0, 0.002, (len(at), 3))
        stamps = at - offset
        middle = 0.5 * (stamps[0] + stamps[-1])
        stamps = middle + (stamps - middle) / (1 + drift)
        fit = align_by_motion(stamps, seen, np.ones(len(at), np.bool_), t, place)
        errors.append(fit.offset - offset)
        inside += abs(fit.offset - offset) < 1.96 * fit.offset_std
        lags, score = correlation(speed(stamps, seen), speed(t, place), 0.5)
        coarse.append(float(lags[int(np.argmax(score))]) - offset)
    return [
        error_figure("clock offset from free motion at 30 Hz", errors, 1.5),
        error_figure("peer: cross-correlation of speeds alone", coarse, None, "correlation"),
        rate_figure("95 % interval from free motion covers", inside, trials, "higher"),
    ]
