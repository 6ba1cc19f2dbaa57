"""Forward-backward smoothing of a clip's poses, with velocities and their covariances.

Every frame has its own error (white) and all share one (`common`: model, calibration), which no
averaging removes. The motion is white-noise acceleration of an unknown density in every step
(motion_prior), so that rest comes out as rest and an impact stays within its frame; measurements
have heavy tails, so that a wrong frame does not bend its neighbours. Iterated: a smoother pass
(fixed_interval) about the current trajectory is one Gauss-Newton step on SO(3) x R3 and one
expectation step of the scales.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinloop.geometry import quaternion
from twinloop.tracking.fixed_interval import Chain, Smoothed, smooth_chain
from twinloop.tracking.motion_prior import (
    Motion,
    expected_action,
    linearise,
    rotation_difference,
    spread,
    unit_noise,
)
from twinloop.tracking.pose_track import LOST, OK, UNCERTAIN, PoseTrack
from twinloop.tracking.smooth_input import (
    checked,
    checked_common,
    nearest_seen,
    nodes,
    own_noise,
)

Array = NDArray[np.float64]
Status = NDArray[np.int8]
_BANNED = 1e-6
"""Weight of a frame that all others contradict."""


@dataclass(frozen=True)
class SmoothSettings:
    """What is believed of motions and measurements beforehand.

    noise, turn_noise: typical change of velocity in a second, as sqrt(density), m/s and rad/s per
    sqrt(s), with `motion_dof` degrees of freedom of its Student-t per step (inf: white, known).
    rest_speed, rest_turn: m/s, rad/s under which an object counts as at rest, with `rest_dof` (inf
    speed: no such belief). gap_noise, gap_turn_noise: the same as noise where frames are lost or
    missing, since nobody saw what happened. measurement_dof: of the poses' Student-t (inf: Gauss).
    start_speed, start_turn: standard deviations of velocities before anything is seen. gate: the
    squared normalised difference of a frame from what all others say, beyond which it is
    uncertain. gap: steps longer than this many times the median one are gaps. steps: of the
    iteration.
    """

    noise: float = 0.05
    turn_noise: float = 0.5
    motion_dof: float = 1.0
    rest_speed: float = 0.001
    rest_turn: float = 0.01
    rest_dof: float = 1.0
    gap_noise: float = 0.3
    gap_turn_noise: float = 3.0
    measurement_dof: float = 6.0
    start_speed: float = 1.0
    start_turn: float = 10.0
    gate: float = 45.0
    gap: float = 2.6
    steps: int = 10


def smooth(
    time: Array,
    pose: Array,
    covariance: Array,
    status: NDArray[np.integer],
    settings: SmoothSettings | None = None,
    common: Array | None = None,
) -> PoseTrack:
    """The most probable motion through a clip's poses.

    Args:
        time: (n,) s, not decreasing; frames of one instant are one frame, the best of them.
        pose: (n, 4, 4) T_world_object; those of lost frames are ignored unless all are lost.
        covariance: (n, 6, 6) of a left perturbation in world axes (m, rad), `common` included.
        status: (n,) 0 ok, 1 uncertain, 2 lost.
        settings: beliefs; None takes the defaults.
        common: (6, 6) the part of every frame's covariance that is one error of the whole clip.

    Returns:
        The track, n frames. A lost frame stays lost and gets what its neighbours say of it; an ok
        frame that contradicts the others becomes uncertain.

    Raises:
        InputError: shapes that disagree, times that decrease, poses that are not rigid, covariances
            that are not positive definite, an unknown status.
    """
    settings = settings or SmoothSettings()
    time, pose, covariance, flags = checked(time, pose, covariance, status)
    common = checked_common(common)
    node, first = nodes(time, covariance, flags)
    known = flags[first] != LOST
    if not known.any():
        return _nothing_known(time, pose, covariance, flags, settings)
    noise, hidden = own_noise(covariance[first], known, common)
    start = int(np.argmax(known))
    ahead = slice(start, None)
    run = _Run(time[first][ahead], pose[first][ahead], noise[ahead], known[ahead], settings)
    run.hidden = hidden[ahead]
    smoothed, odd = run.solve()
    motion, widths = _backwards(run.motion, smoothed.covariance, time[first], start, settings)
    flags = flags.copy()
    contradicting = np.concatenate([np.zeros(start, bool), odd])[node]
    flags[(flags == OK) & contradicting] = UNCERTAIN
    out = np.tile(np.eye(4), (len(time), 1, 1))
    out[:, :3, :3], out[:, :3, 3] = motion.rotation[node], motion.position[node]
    return PoseTrack(
        time,
        out,
        widths[node][:, :6, :6] + common,
        flags,
        motion.velocity[node],
        widths[node][:, 6:, 6:],
    )


class _Run:
    """The iteration over nodes from the first one seen on."""

    def __init__(
        self, time: Array, pose: Array, noise: Array, seen: NDArray[np.bool_], s: SmoothSettings
    ) -> None:
        n = len(time)
        self.settings, self.seen, self.noise = s, seen, noise
        self.hidden = np.zeros_like(noise)  # roots of what is added to the noise
        self.place, self.turn = pose[:, :3, 3], pose[:, :3, :3]
        self.step = np.diff(time)
        typical = float(np.median(self.step)) if n > 1 else 1.0
        self.gap = (self.step > s.gap * typical) | ~seen[1:] | ~seen[:-1]
        self.unit = unit_noise(self.step)
        self.weight = np.ones(n)
        self.banned = np.zeros(n, bool)
        if np.isfinite(s.measurement_dof):
            self.weight[_lonely(time, pose, noise, seen)] = _BANNED
        self.base = np.array([s.noise, s.turn_noise]) ** 2
        wide = np.array([s.gap_noise, s.gap_turn_noise]) ** 2
        self.wide = np.maximum(wide, self.base)
        robust = np.isfinite(s.motion_dof)
        self.density = np.tile(self.wide if robust else self.base, (n - 1, 1))
        self.density[self.gap] = self.wide
        start = np.array([s.start_speed, s.start_turn]) ** 2
        self.slow = np.tile(start, (n, 1))  # variance of each velocity about rest
        self.start = start
        # Rest is believed for a time, not for a frame: a faster camera must not believe it more.
        around = np.concatenate([self.step[:1], self.step, self.step[-1:]]) if n > 1 else np.ones(2)
        self.share = np.minimum(0.5 * (around[1:] + around[:-1]) * 30.0, 1.0)
        nearest = nearest_seen(seen)
        self.motion = Motion(self.place[nearest], self.turn[nearest], np.zeros((n, 6)))

    def solve(self) -> tuple[Smoothed, NDArray[np.bool_]]:
        """The last smoothed errors, and which seen nodes contradict all others; sets `motion`."""
        odd = self._contradicting(self._iterate(self.settings.steps))
        if odd.any():  # whoever believed such a frame has to forget it
            self.banned |= odd
            self.weight[odd] = _BANNED
            odd = self._contradicting(self._iterate(self.settings.steps // 2 + 1))
        # When a step's scale was found, its neighbours' may have been meant: the covariance has to
        # hold for both. The motion keeps the sharp ones, so that an impact stays in its frame.
        if np.isfinite(self.settings.motion_dof):
            self.density = np.where(self.gap[:, None], self.wide, _widest(self.density))
        self.slow = _widest(self.slow)
        last = self.once()
        return last, odd | self._set_aside(last)

    def _set_aside(self, smoothed: Smoothed) -> NDArray[np.bool_]:
        """Which nodes (n,) were seen far off the motion, where nothing else tells it as well.

        Beside a gap there may be no other frame that says which of the two is wrong.
        """
        s = self.settings
        if not np.isfinite(s.measurement_dof):
            return np.zeros(len(self.seen), bool)
        far = self.weight < (s.measurement_dof + 6.0) / (s.measurement_dof + s.gate)
        own = np.linalg.eigvalsh(self.noise[:, :3, :3])[:, -1]
        found = np.linalg.eigvalsh(smoothed.covariance[:, :3, :3])[:, -1]
        return self.seen & far & (found > 4.0 * own)

    def _iterate(self, steps: int) -> Smoothed:
        """A fixed number of steps, the same for a clip seen otherwise; sets `motion`."""
        for _ in range(steps):
            smoothed = self.once()
            self.motion = self.motion.moved(smoothed.state)
            self.rescale(smoothed)
        smoothed = self.once()
        self.motion = self.motion.moved(smoothed.state)
        return smoothed

    def _contradicting(self, smoothed: Smoothed) -> NDArray[np.bool_]:
        """Which nodes (n,) were seen where all others together say that they are not."""
        out = np.zeros(len(self.seen), bool)
        here = np.flatnonzero(self.seen)
        if len(here) < 2:
            return out
        claimed: Array = np.asarray(
            np.linalg.inv(smoothed.alone_information[here, :6, :6]), np.float64
        )
        off = np.einsum("nij,nj->ni", claimed, smoothed.alone[here, :6])
        # The weight was found from this very difference; the frame claims the noise without it.
        claimed += self.noise[here] * (1.0 - 1.0 / self.weight[here])[:, None, None]
        out[here] = _squares(off, claimed) > self.settings.gate
        return out

    def once(self) -> Smoothed:
        """One pass about the current motion."""
        F, offset = linearise(self.motion, self.step)
        gone = rotation_difference(self.turn, self.motion.rotation)
        measured = np.concatenate(
            [self.place - self.motion.position, gone, -self.motion.velocity], axis=1
        )
        noise = np.zeros((len(self.seen), 12, 12))
        noise[:, :6, :6] = self.noise / self.weight[:, None, None] + self._unobserved()
        noise[:, np.arange(6, 12), np.arange(6, 12)] = np.repeat(self.slow, 3, axis=1)
        root = np.sqrt(spread(self.density))
        process = self.unit * root[:, :, None] * root[:, None, :]
        return smooth_chain(Chain(F, offset, process, measured, noise, self.seen))

    def _unobserved(self) -> Array:
        """Covariances (n, 6, 6) of directions that nobody observes, at the current motion."""
        if not self.hidden.any():
            return np.zeros_like(self.noise)
        turn = self.motion.rotation @ np.swapaxes(self.turn, 1, 2)
        root = np.concatenate([turn @ self.hidden[:, :3], turn @ self.hidden[:, 3:]], axis=1)
        return np.asarray(root @ np.swapaxes(root, 1, 2))

    def rescale(self, smoothed: Smoothed) -> None:
        """Scales of process, rest and measurements, given what was smoothed."""
        s, motion = self.settings, self.motion
        if np.isfinite(s.motion_dof):
            action = expected_action(smoothed, self.unit, self.density)
            nu = s.motion_dof
            found = (nu * self.base + action) / (nu + 6.0)
            self.density = np.where(self.gap[:, None], self.wide, found)
        P = smoothed.covariance
        if np.isfinite(s.rest_speed):
            diagonal = np.einsum("nii->ni", P)[:, 6:].reshape(-1, 2, 3).sum(2)
            square = (motion.velocity.reshape(-1, 2, 3) ** 2).sum(2) + diagonal
            rest = np.array([s.rest_speed, s.rest_turn]) ** 2
            found = (s.rest_dof * rest + square) / (s.rest_dof + 3.0) / self.share[:, None]
            self.slow = np.minimum(_widest(found), self.start)
        if np.isfinite(s.measurement_dof):
            off = np.concatenate(
                [
                    self.place - motion.position,
                    rotation_difference(self.turn, motion.rotation),
                ],
                axis=1,
            )
            second = off[:, :, None] * off[:, None, :] + P[:, :6, :6]
            square = np.einsum("nij,nji->n", np.linalg.inv(self.noise + self._unobserved()), second)
            nu = s.measurement_dof
            self.weight = np.where(self.seen, (nu + 6.0) / (nu + square), 1.0)
            self.weight[self.banned] = _BANNED


def _squares(value: Array, covariance: NDArray[np.floating]) -> Array:
    """Squared lengths (...,) of values (..., 6) in units of their covariances (..., 6, 6)."""
    solved = np.linalg.solve(covariance, value[..., None])[..., 0]
    return np.asarray((value * solved).sum(axis=-1))


def _lonely(time: Array, pose: Array, noise: Array, seen: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Nodes (n,) far off a line in time through their two neighbours on either side.

    Only where these four agree with one line themselves: where they do not, something has happened
    (an impact), and the node is not to blame. It is where the weights start from: a wrong frame
    that is believed at first is explained by two impacts.
    """
    out = np.zeros(len(time), bool)
    where = np.flatnonzero(seen)
    if len(where) < 5:
        return out
    middle = where[2:-2]
    around = np.stack([where[:-4], where[1:-3], where[3:-1], where[4:]], axis=1)
    t = time[around] - time[middle][:, None]
    R = pose[:, :3, :3]
    turned = np.stack([rotation_difference(R[j], R[middle]) for j in around.T], axis=1)
    value = np.concatenate([pose[around, :3, 3] - pose[middle, None, :3, 3], turned], axis=2)
    design = np.stack([np.ones_like(t), t], axis=2)
    fit = np.linalg.pinv(design)  # (n, 2, 4); the value at t = 0 is the first coefficient
    line = fit @ value
    left = value - design @ line
    predicted = noise[middle] + np.einsum("nk,nkij->nij", fit[:, 0] ** 2, noise[around])
    agree = _squares(left, noise[around]).sum(axis=1) < 60.0  # 12 dof
    out[middle] = agree & (_squares(line[:, 0], predicted) > 60.0)  # 6 dof
    return out


def _nothing_known(
    time: Array, pose: Array, covariance: Array, flags: Status, s: SmoothSettings
) -> PoseTrack:
    """A clip whose frames are all lost: their guesses as they are, with velocities unknown."""
    start = np.array([s.start_speed] * 3 + [s.start_turn] * 3) ** 2
    n = len(time)
    return PoseTrack(
        time, pose, covariance, flags, np.zeros((n, 6)), np.tile(np.diag(start), (n, 1, 1))
    )


def _backwards(
    motion: Motion, covariance: Array, time: Array, start: int, s: SmoothSettings
) -> tuple[Motion, Array]:
    """The motion and covariances of all nodes, those before the first seen one too.

    Before it nothing is known but the motion afterwards, which is run backwards with the noise of
    a gap.
    """
    if start == 0:
        return motion, covariance
    root = np.sqrt(spread(np.array([[s.gap_noise, s.gap_turn_noise]]) ** 2)[0])
    back = np.repeat(
        [1.0, -1.0], 6
    )  # F(-dt) u, for u the noise of dt, is that of dt with this sign
    P, velocity = covariance[0], motion.velocity[0]
    places, turns, spreads = [motion.position[0]], [motion.rotation[0]], [P]
    for k in range(start - 1, -1, -1):
        step = time[k : k + 1] - time[k + 1 : k + 2]
        places.append(places[-1] + step * velocity[:3])
        turns.append(quaternion.to_matrix(quaternion.from_rotvec(step * velocity[3:])) @ turns[-1])
        now = Motion(np.stack(places[-2:]), np.stack(turns[-2:]), np.stack([velocity, velocity]))
        F = linearise(now, step)[0][0]
        P = F @ P @ F.T + (unit_noise(-step)[0] * (root * back)[:, None]) * (root * back)
        spreads.append(0.5 * (P + P.T))
    return (
        Motion(
            np.concatenate([places[:0:-1], motion.position]),
            np.concatenate([turns[:0:-1], motion.rotation]),
            np.concatenate([np.tile(velocity, (start, 1)), motion.velocity]),
        ),
        np.concatenate([spreads[:0:-1], covariance]),
    )


def _widest(value: Array) -> Array:
    """Largest of each of the values (n, c) and its neighbours before and after."""
    out = value.copy()
    out[1:] = np.maximum(out[1:], value[:-1])
    out[:-1] = np.maximum(out[:-1], value[1:])
    return out
