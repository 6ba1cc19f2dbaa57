"""The clocks of a session: which log belongs to which clip, and the offset of every push.

Logs whose times fit another clip, or whose fingertip fits another clip's object, are refused as
swapped. Where log and video share no epoch, the impact or the motion that both show gives the
offset to within what contact needs.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from twinloop.capture.warning import CaptureWarning
from twinloop.errors import InputError
from twinloop.tracking.clock import Offset, combine, estimate_offset, fuse
from twinloop.tracking.contact_force import ContactForce
from twinloop.tracking.impact import Pulse, impact_offset, motion_onset
from twinloop.tracking.joint_signals import JointSignals
from twinloop.tracking.motion_clock import align_by_motion
from twinloop.tracking.speed_correlation import carried

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

BLUR = 3e-4
"""Residual below which two pairings fit alike, m."""
VAGUE = 0.02
"""Standard deviation above which contact says nothing of the clocks, s."""
KEPT = 1e-3
"""Residual above which the object was knocked off the finger rather than pushed along, m."""
CLEAR = 3e-3
"""Standard deviation below which contact alone tells the offset, s."""
SWAPPED = 3.0
"""Logs are swapped when they fit other clips so many times better than their own."""


@dataclass(frozen=True)
class Clip:
    """The object in one push's video: time (m,) s, poses (m, 4, 4), usable (m,) bool."""

    name: str
    time: Array
    poses: Array
    usable: Flags


@dataclass(frozen=True)
class Log:
    """One push's robot log: its file, signals, force and hardest impact, robot clock."""

    path: Path
    signals: JointSignals
    force: ContactForce
    pulse: Pulse | None


@dataclass(frozen=True)
class Settings:
    """Limits of the search; s and m.

    largest: offset sought where clocks share an epoch; mismatch: residual that refuses a pair;
    pose_sigma: error of a pose along the push; floor: least deviation of an offset; smoothing: of
    the signals; common_std: deviation of the offset 0 of common clocks; share: whether both clocks
    run on from push to push.
    """

    largest: float = 0.15
    mismatch: float = 2.5e-3
    pose_sigma: float = 8e-4
    floor: float = 5e-4
    smoothing: float = 0.008
    common_std: float = 1e-3
    share: bool = True


def session_offsets(
    logs: list[Log], clips: list[Clip], mode: str, settings: Settings
) -> list[Offset]:
    """Clock offset of every push.

    Args:
        logs: One per push.
        clips: In the same order.
        mode: "common", "separate" or "auto", as in `robot.yaml`.
        settings: Limits.

    Raises:
        InputError: Logs and clips are swapped, share no time or no motion, or clocks that should
            be common are not.
    """
    if share_epoch(logs, clips, mode, settings.largest):
        centres = [0.0 for _ in logs]
    else:
        centres = coarse_offsets(logs, clips)
    own = [
        pair_offset(log, clip, settings, centre)
        for log, clip, centre in zip(logs, clips, centres, strict=True)
    ]
    check_pairs(logs, clips, own, centres, settings)
    when = [0.5 * float(log.signals.time[0] + log.signals.time[-1]) for log in logs]
    if settings.share:
        found = combine(own, settings.floor, settings.largest, when)
    else:
        found = [combine([o], settings.floor, settings.largest)[0] for o in own]
    return common_clock(found, own, mode, settings, logs)


def pair_offset(log: Log, clip: Clip, settings: Settings, centre: float) -> Offset | None:
    """Offset of one log to one clip, sought about `centre` s.

    By contact where that holds long enough to tell; else by impact as well, which leans on the
    object's dynamics too.
    """
    signals, force = log.signals, log.force
    by_contact = estimate_offset(
        signals.time,
        signals.tip,
        force.force,
        force.touching,
        clip.time,
        clip.poses,
        clip.usable,
        largest=settings.largest,
        sigma=settings.pose_sigma,
        impact=None if log.pulse is None else log.pulse.start,
        centre=centre,
    )
    if by_contact is not None and by_contact.std < CLEAR:
        return by_contact
    by_impact = impact_offset(
        log.pulse,
        clip.time,
        clip.poses,
        clip.usable,
        largest=settings.largest,
        smoothing=settings.smoothing,
        centre=centre,
    )
    if by_contact is not None and by_impact is not None and by_contact.residual > KEPT:
        # The residual stays: it tells whether log and video show one push at all.
        return replace(by_impact, residual=by_contact.residual, knocked=True)
    return fuse(by_contact, by_impact)


def shared_time(log: Log, clip: Clip, largest: float) -> tuple[float, float]:
    """Time (s) that log and clip share at the best offset within `largest`; time of the shorter."""
    a, b = log.signals.time, clip.time
    low, high = max(a[0], b[0] - largest), min(a[-1], b[-1] + largest)
    return float(high - low), float(min(a[-1] - a[0], b[-1] - b[0]))


def share_epoch(logs: list[Log], clips: list[Clip], mode: str, largest: float) -> bool:
    """Whether the stamps of logs and clips lie on one time axis.

    Raises:
        InputError: Some logs overlap with their own clip and some do not, or with another one's, or
            the clocks are declared common and do not overlap.
    """
    if mode == "separate":
        return False
    apart = []
    others: dict[int, list[str]] = {}
    for i, log in enumerate(logs):
        shared, shorter = shared_time(log, clips[i], largest)
        if shared >= 0.5 * shorter:
            continue
        apart.append(i)
        fitting = [
            clip.name
            for clip in clips
            if (pair := shared_time(log, clip, largest))[0] >= 0.5 * pair[1]
        ]
        if fitting:
            others[i] = fitting
    if not apart:
        return True
    if mode == "auto" and len(apart) == len(logs) and not others:
        return False
    i = next(iter(others), apart[0])
    times, frames = logs[i].signals.time, clips[i].time
    shared, shorter = shared_time(logs[i], clips[i], largest)
    hint = f"; it runs at the time of {', '.join(others[i])}" if i in others else ""
    raise InputError(
        f"{logs[i].path}: the log runs from {times[0]:.3f} to {times[-1]:.3f} s, the video from "
        f"{frames[0]:.3f} to {frames[-1]:.3f} s; they share {max(shared, 0.0):.3f} s, expected "
        f"{0.5 * shorter:.3f} s at least{hint}. Logs of two pushes may be swapped; if camera and "
        "robot count time from different moments, say `clock: separate` in robot.yaml."
    )


def coarse_offset(log: Log, clip: Clip) -> float | None:
    """Offset (s) of one log to one clip whatever their epochs, within some 50 ms, or None.

    From the hardest impact and the start of the object's motion; where none is sure, from the way
    that the finger carries the object.
    """
    onset = motion_onset(clip.time[clip.usable], clip.poses[clip.usable])
    if onset is None:
        return None
    if log.pulse is not None:
        return log.pulse.start - float(clip.time[clip.usable][onset])
    signals = log.signals
    fit = align_by_motion(
        clip.time,
        clip.poses[:, :3, 3],
        clip.usable,
        signals.time,
        carried(signals.tip, log.force.touching),
        drift=False,
    )
    return None if fit.problem else fit.offset


def coarse_offsets(logs: list[Log], clips: list[Clip]) -> list[float]:
    """Coarse offset (s) of every push where clocks share no epoch.

    A push that shows nothing, or something else, takes what most of the others agree on within
    0.1 s; where they do not agree (each video starts a clock of its own), each keeps its own.

    Raises:
        InputError: A push shows no impact and no motion, and the others do not tell.
    """
    found = [coarse_offset(log, clip) for log, clip in zip(logs, clips, strict=True)]
    known = np.array([o for o in found if o is not None])
    middle = float(np.median(known)) if len(known) else 0.0
    agree = len(known) > 0 and float((np.abs(known - middle) < 0.1).mean()) > 0.5
    out = []
    for log, value in zip(logs, found, strict=True):
        if value is None and not agree:
            raise InputError(
                f"{log.path}: log and video count time from different moments, and this push "
                "shows no impact and no motion that both share: its clock offset is "
                "unidentifiable. Stamp both by one clock, or take the push off the list."
            )
        stray = value is None or (agree and abs(value - middle) > 0.1)
        out.append(middle if stray or value is None else value)
    return out


def check_pairs(
    logs: list[Log],
    clips: list[Clip],
    own: list[Offset | None],
    centres: list[float],
    settings: Settings,
) -> None:
    """Refuse logs that fit another push's video better than their own, or none.

    While finger and object touch, the finger's distance to the touched face is constant on the
    right clocks: 0.1 to 0.6 mm rms where log and video belong together, 3 mm and more where not.

    A third of the pushes at most in which the finger slid along the object lose their estimate in
    `own`, with a CaptureWarning.

    Raises:
        InputError: Names the logs, the clips that they fit, and the residuals.
    """
    wrong = [
        i
        for i, o in enumerate(own)
        if o is not None and o.residual > settings.mismatch * (2.0 if o.knocked else 1.0)
    ]
    suspects = [i for i, o in enumerate(own) if o is not None and o.residual > SWAPPED * BLUR]
    fits = _fits(logs, clips, own, centres, suspects, settings) if suspects else {}
    if fits:
        listed = "; ".join(
            f"the log of {clips[i].name} fits the video of {clips[j].name} "
            f"({now * 1e3:.1f} mm there, {was * 1e3:.1f} mm in its own)"
            for i, (j, was, now) in fits.items()
        )
        raise InputError(
            f"{logs[next(iter(fits))].path}: logs and videos seem swapped: {listed}. Exchange "
            "them, or film the pushes again."
        )
    slid = [i for i in wrong if (o := own[i]) is not None and o.std > VAGUE]
    if slid == wrong and 0 < 3 * len(wrong) <= len(logs):
        # The others vouch for the session: here the finger slid along the object.
        for i in wrong:
            own[i] = None
        warnings.warn(
            f"{logs[wrong[0]].path.parent.parent}: in "
            f"{', '.join(clips[i].name for i in wrong)} the finger does not keep its place "
            "on the object, so that the clock offset is taken from the other pushes. If it did "
            "not slide there, log and video show different pushes.",
            CaptureWarning,
            stacklevel=3,
        )
        return
    if wrong:
        listed = ", ".join(
            f"{clips[i].name} ({o.residual * 1e3:.1f} mm)" for i in wrong if (o := own[i])
        )
        raise InputError(
            f"{logs[wrong[0]].path.parent.parent}: while the finger touches the object, its "
            f"distance to it should be constant within {settings.mismatch * 1e3:.1f} mm rms, but "
            f"no clock offset makes it so in {listed}: the robot's log and the video show "
            "different pushes. Check whether clips or logs were swapped; "
            "`push.largest_mismatch` in params.yaml raises the limit."
        )


def _fits(
    logs: list[Log],
    clips: list[Clip],
    own: list[Offset | None],
    centres: list[float],
    suspects: list[int],
    settings: Settings,
) -> dict[int, tuple[int, float, float]]:
    """For suspects that fit other clips: the clip, residual at home and there, m.

    Clips whose own log is a suspect too, or says nothing, are there to be had.
    """
    free = suspects + [j for j, o in enumerate(own) if o is None]
    cost = np.full((len(suspects), len(free)), 0.05)
    for row, i in enumerate(suspects):
        for column, j in enumerate(free):
            if i == j:
                found = own[i]
            else:
                centre = 0.0 if centres[i] == 0.0 else coarse_offset(logs[i], clips[j])
                found = None if centre is None else pair_offset(logs[i], clips[j], settings, centre)
            if found is not None:
                cost[row, column] = max(found.residual, BLUR)
    _, best = linear_sum_assignment(np.log(cost))
    out = {}
    for row, other in enumerate(best.tolist()):
        was, now = float(cost[row, row]), float(cost[row, other])
        if row != other and was > SWAPPED * now:
            out[suspects[row]] = (free[other], was, now)
    return out


def common_clock(
    found: list[Offset],
    own: list[Offset | None],
    mode: str,
    settings: Settings,
    logs: list[Log],
) -> list[Offset]:
    """Offset 0 where the clocks are common: declared so, or found so within their doubt.

    Raises:
        InputError: Declared so, and the motion is 5 standard deviations or more off.
    """
    if mode == "separate":
        return found
    known = [i for i, o in enumerate(own) if o is not None]
    doubt = [float(np.hypot(found[i].std, settings.common_std)) for i in known]
    off = [abs(found[i].value) / d for i, d in zip(known, doubt, strict=True)]
    if mode == "common" and off and float(np.median(off)) > 5:
        i = known[int(np.argsort(off)[len(off) // 2])]
        raise InputError(
            f"{logs[i].path}: robot.yaml says `clock: common`, but the motion puts the robot's "
            f"clock {found[i].value * 1e3:.1f} +- {found[i].std * 1e3:.1f} ms after the camera's. "
            "Say `clock: separate`, or find the delay of the stamps."
        )
    if mode == "auto" and (not off or max(off) > 2):
        return found
    return [
        Offset(0.0, max(settings.common_std, settings.floor), o.residual)
        if mode == "common"
        else Offset(0.0, float(np.hypot(o.std, settings.common_std)), o.residual)
        for o in found
    ]
