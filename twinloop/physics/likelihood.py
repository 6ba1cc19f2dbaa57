"""Whitened residuals of pushes and their derivatives.

Residuals of a push: translation and rotation of the object relative to rest at frame times, and the
mean fingertip force per bin. Derivatives with respect to the motion are forward differences over
one batch of rollouts; the rest are exact.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from twinloop.physics.parameters import (
    CAMERA,
    CLOCK,
    DRAG,
    LOG_MASS,
    MOTION,
    MOTION_STEP,
    PLACE,
    PLACE_STEP,
    SHARED,
    Unknowns,
    engine_rows,
    start_states,
)
from twinloop.physics.record import PushWindow, WindowSettings
from twinloop.physics.shape import CollisionShape
from twinloop.physics.simulate import Controls, Rollout, simulate

Array = npt.NDArray[np.float64]

_CLOCK_STEP = 1.0e-4
# Fewest rollouts for an averaged linearisation: a line through the 16 unknowns of a push needs more
# draws than unknowns, and scatter about it more still.
FEWEST_DRAWS = 40


@dataclass(frozen=True)
class NoiseModel:
    """What the simulation does not explain, beyond the stated measurement noise.

    Attributes:
        motion_share: Model error of the pose, as a share of the motion so far.
        force_share: Model error of the force along itself, as a share of the force.
        force_across: The same across it: what a rubbing fingertip carries depends on its history.
        jitter: s, timing error of force peaks; multiplies the change of force per time.
        correlation: s, time over which model error stays the same: a slow error seen in many
            frames counts once, not once per frame.
        floor: m, rad, N: smallest sd of translation, rotation, force.
        temperature: Factor on the posterior covariance, and on cost differences between optima.
            Model error moves all residuals of a push together, so they hold less information than
            their number says; 1 for an exact model.
        huber: Residuals beyond this many sd count linearly.
    """

    motion_share: float = 0.015
    force_share: float = 0.05
    force_across: float = 0.1
    jitter: float = 2.0e-3
    correlation: float = 0.1
    floor: tuple[float, float, float] = (2.0e-4, 2.0e-3, 0.01)
    temperature: float = 3.0
    huber: float = 2.5


@dataclass(frozen=True)
class Prediction:
    """What a rollout says a push should have looked like.

    Attributes:
        translation: (..., F, 3) m.
        rotation: (..., F, 3, 3).
        force: (..., B, 3) N per kg.
    """

    translation: Array
    rotation: Array
    force: Array


class Likelihood:
    """Residuals of a set of pushes at any value of the unknowns."""

    def __init__(
        self,
        shape: CollisionShape,
        windows: list[PushWindow],
        prior: Unknowns,
        settings: WindowSettings,
        noise: NoiseModel,
        *,
        use_force: bool = True,
        threads: int = 2,
    ) -> None:
        self.shape, self.windows, self.prior = shape, windows, prior
        self.settings, self.noise = settings, noise
        self.use_force, self.threads = use_force, threads
        longest = max(w.steps for w in windows)
        self.controls = Controls(
            tip_position=np.stack([_pad(w.tip_position, longest) for w in windows]),
            tip_velocity=np.stack([_pad(w.tip_velocity, longest) for w in windows]),
            tip_radius=np.array([w.tip_radius for w in windows]),
            steps=np.array([w.steps for w in windows], np.int32),
            dt=settings.dt,
            every=settings.every,
        )
        self.whitener = [_pose_whitener(w, noise) for w in windows]
        self.force_scale = [1 / _force_std(w, noise, settings) for w in windows]
        self.sizes = [
            6 * len(w.frame_time) + (3 * len(w.bin_time) if use_force else 0) for w in windows
        ]

    def with_controls(self, controls: Controls) -> Likelihood:
        """Return a likelihood with the same data and another fingertip motion."""
        other = copy.copy(self)
        other.controls = controls
        return other

    @property
    def record_step(self) -> float:
        """Seconds between records."""
        return self.settings.dt * self.settings.every

    def roll(self, values: Array, push: npt.NDArray[np.int32], place: Array) -> Rollout:
        """Rollouts of (R, SHARED) values, each in its push from its own place (R, 4)."""
        motion = values[:, : len(MOTION)]
        state = start_states(
            self.shape,
            self.windows,
            push,
            place - np.pad(values[:, list(CAMERA)], ((0, 0), (0, len(PLACE) - 2))),
            np.exp(motion[:, MOTION.index("log_table_stiffness")]),
        )
        return simulate(
            self.shape, self.controls, engine_rows(motion), state, push, threads=self.threads
        )

    def residuals(self, theta: Array) -> list[Array]:
        """Whitened residuals per push at (n,) or (K, n) unknowns; a leading axis is kept."""
        stack = np.atleast_2d(theta)
        count, pushes = len(stack), len(self.windows)
        values = np.repeat(stack[:, : len(SHARED)], pushes, axis=0)
        push = np.tile(np.arange(pushes, dtype=np.int32), count)
        own = stack[:, len(SHARED) :].reshape(count, pushes, -1)
        rolled = self.roll(values, push, own[..., : len(PLACE)].reshape(-1, len(PLACE)))
        out = []
        for p in range(pushes):
            rows = np.arange(p, count * pushes, pushes)
            predicted = self.predict(p, _rows(rolled, rows), stack[:, CLOCK])
            nuisance = np.concatenate([stack[:, DRAG], own[:, p, len(PLACE) :]], axis=1)
            r = self._whiten(p, predicted, np.exp(stack[:, LOG_MASS]), nuisance)
            out.append(r if np.ndim(theta) == 2 else r[0])
        return out

    def linearise(self, theta: Array, scale: float = 1.0) -> tuple[list[Array], list[Array]]:
        """Residuals and their Jacobians per push, columns as in the full vector.

        ``scale`` multiplies the finite-difference steps: stick, slip and touch make the misfit
        rugged, and a longer step sees its trend.
        """
        motion_step, place_step = scale * MOTION_STEP, scale * PLACE_STEP
        pushes, m, s = len(self.windows), len(MOTION), len(SHARED)
        per = 1 + m + len(PLACE)
        values = np.tile(theta[:s], (pushes * per, 1))
        own = theta[s:].reshape(pushes, -1)
        place = np.repeat(own[:, : len(PLACE)], per, axis=0)
        for p in range(pushes):
            for i in range(m):
                values[p * per + 1 + i, i] += motion_step[i]
            for i in range(len(PLACE)):
                place[p * per + 1 + m + i, i] += place_step[i]
        push = np.repeat(np.arange(pushes, dtype=np.int32), per)
        rolled = self.roll(values, push, place)
        residuals, jacobians = [], []
        mass = np.exp(theta[LOG_MASS])
        for p in range(pushes):
            part = _rows(rolled, np.arange(p * per, (p + 1) * per))
            predicted = self.predict(p, part, np.full(per, theta[CLOCK]))
            nuisance = np.concatenate([theta[DRAG], own[p, len(PLACE) :]])
            r = self._whiten(p, predicted, np.full(per, mass), np.tile(nuisance, (per, 1)))
            J = np.zeros((self.sizes[p], self.prior.size))
            J[:, :m] = ((r[1 : 1 + m] - r[0]) / motion_step[:, None]).T
            at = self.prior.push_slice(p).start
            shift = ((r[1 + m :] - r[0]) / place_step[:, None]).T
            J[:, at : at + len(PLACE)] = shift
            # A camera bias moves the true start the other way; poses count relative to rest.
            J[:, list(CAMERA)] = -shift[:, :2]
            base = _rows(part, np.arange(1))
            later = self.predict(p, base, np.array([theta[CLOCK] + _CLOCK_STEP]))
            ahead = self._whiten(p, later, np.array([mass]), nuisance[None])
            J[:, CLOCK] = (ahead[0] - r[0]) / _CLOCK_STEP
            if self.use_force:
                first = 6 * len(self.windows[p].frame_time)
                per_newton = self.force_scale[p]
                J[first:, LOG_MASS] = (mass * predicted.force[0] * per_newton).ravel()
                late = mass * self._rate(predicted.force[:1])[0] * per_newton
                J[first:, at + len(PLACE) + 3] = -late.ravel()
                for axis in range(3):
                    column = np.zeros_like(per_newton)
                    column[:, axis] = per_newton[:, axis]
                    J[first:, at + len(PLACE) + axis] = column.ravel()
                    J[first:, DRAG.start + axis] = (column * self.windows[p].drag).ravel()
            residuals.append(r[0])
            jacobians.append(J)
        return residuals, jacobians

    def average(
        self, theta: Array, cov: Array, draws: int, rng: np.random.Generator
    ) -> tuple[list[Array], list[Array], list[Array]]:
        """Residuals and Jacobians averaged over a Gaussian about ``theta``.

        Statistical linear regression (Garcia-Fernandez et al. 2015): rollouts at draws from the
        Gaussian, a straight line through their residuals, and the scatter about it. Smooths what
        stick, slip and touch make rugged, and tells which residuals no line can predict.

        Returns:
            Mean residuals, Jacobians and scatter variances, per push.
        """
        _, jacobians = self.linearise(theta, 3.0)
        columns = [
            np.r_[0 : len(MOTION), self.prior.push_slice(p).start + np.arange(len(PLACE))]
            for p in range(len(self.windows))
        ]
        moved = np.unique(np.concatenate(columns))
        std = self.prior.std[moved]
        root = np.linalg.cholesky(
            cov[np.ix_(moved, moved)] / np.outer(std, std) + 1e-12 * np.eye(len(moved))
        )
        half = rng.standard_normal((draws // 2, len(moved))) @ root.T * std
        offset = np.zeros((2 * len(half), self.prior.size))
        offset[:, moved] = np.concatenate([half, -half])
        residuals = self.residuals(theta + offset)
        means, scatter = [], []
        for p, column in enumerate(columns):
            X = offset[:, column] / self.prior.std[column]
            mean = residuals[p].mean(axis=0)
            gram = X.T @ X
            gram = gram + 1e-9 * np.trace(gram) / len(column) * np.eye(len(column))
            slope = np.linalg.solve(gram, X.T @ (residuals[p] - mean))
            left = residuals[p] - mean - X @ slope
            means.append(mean)
            scatter.append((left**2).sum(axis=0) / max(len(X) - len(column) - 1, 1))
            jacobians[p][:, column] = (slope / self.prior.std[column][:, None]).T
            start = self.prior.push_slice(p).start
            jacobians[p][:, list(CAMERA)] = -jacobians[p][:, start : start + 2]
        return means, jacobians, scatter

    def predict(self, push: int, rolled: Rollout, clock: Array) -> Prediction:
        """Poses at the push's frame times (shifted by ``clock``, (K,) s) and force per bin."""
        window = self.windows[push]
        records = rolled.position.shape[1]
        last = window.steps // self.settings.every - 1
        at = (window.frame_time[None] + clock[:, None]) / self.record_step
        at = np.clip(at, 0.0, last - 1e-9)
        i = np.minimum(at.astype(np.int64), records - 2)
        f = (at - i)[..., None]
        k = np.arange(len(clock))[:, None]
        position = rolled.position[k, i] * (1 - f) + rolled.position[k, i + 1] * f
        q0, q1 = rolled.quaternion[k, i], rolled.quaternion[k, i + 1]
        q1 = np.where((q0 * q1).sum(-1, keepdims=True) < 0, -q1, q1)
        R = _matrices(q0 * (1 - f) + q1 * f)
        R0 = _matrices(rolled.quaternion[:, :1])
        bins = len(window.bin_time)
        force = rolled.force[:, : bins * self.settings.bin_records]
        force = force.reshape(len(clock), bins, self.settings.bin_records, 3).mean(axis=2)
        return Prediction(position - rolled.position[:, :1], R @ np.swapaxes(R0, -1, -2), force)

    def _rate(self, force: Array) -> Array:
        """(..., B, 3) N/s, change of a force per bin; zero for a single bin."""
        if force.shape[-2] < 2:
            return np.zeros_like(force)
        width = self.record_step * self.settings.bin_records
        return np.asarray(np.gradient(force, axis=-2) / width)

    def _whiten(self, push: int, predicted: Prediction, mass: Array, nuisance: Array) -> Array:
        """(K, n) residuals, simulated minus measured."""
        window = self.windows[push]
        moved = predicted.translation - window.translation
        turned = _log(predicted.rotation @ np.swapaxes(window.rotation, -1, -2))
        pose = np.concatenate([moved, turned], axis=-1)
        r = np.einsum("fij,kfj->kfi", self.whitener[push], pose).reshape(len(mass), -1)
        if not self.use_force:
            return np.asarray(r)
        force = mass[:, None, None] * predicted.force
        force = force - nuisance[:, 6:, None] * self._rate(force)
        force = force + nuisance[:, None, :3] * window.drag + nuisance[:, None, 3:6]
        f = (force - window.force) * self.force_scale[push]
        return np.concatenate([r, f.reshape(len(mass), -1)], axis=1)


def _pad(value: Array, length: int) -> Array:
    return np.concatenate([value, np.repeat(value[-1:], length - len(value), axis=0)])


def _rows(rolled: Rollout, rows: npt.NDArray[np.intp]) -> Rollout:
    return Rollout(rolled.position[rows], rolled.quaternion[rows], rolled.force[rows])


def _pose_whitener(window: PushWindow, noise: NoiseModel) -> Array:
    """(F, 6, 6) inverse Cholesky factors of measurement noise plus model error."""
    if len(window.frame_time) > 1:
        gap = float(np.median(np.diff(window.frame_time)))
    else:
        gap = noise.correlation
    repeat = max(noise.correlation / max(gap, 1e-6), 1.0)
    distance = np.linalg.norm(window.translation, axis=1)
    angle = np.linalg.norm(_log(window.rotation), axis=1)
    variance = np.empty((len(distance), 6))
    variance[:, :3] = ((noise.motion_share * distance) ** 2 + noise.floor[0] ** 2)[:, None]
    variance[:, 3:] = ((noise.motion_share * angle) ** 2 + noise.floor[1] ** 2)[:, None]
    total = window.covariance + np.einsum("fi,ij->fij", repeat * variance, np.eye(6))
    return np.asarray(np.linalg.inv(np.linalg.cholesky(total)), dtype=np.float64)


def _force_std(window: PushWindow, noise: NoiseModel, settings: WindowSettings) -> Array:
    """(B, 3) N."""
    width = settings.dt * settings.every * settings.bin_records
    repeat = max(noise.correlation / width, 1.0)
    # Smoothed: a weight that follows the noise would trust low readings and bias the mass down.
    span = 2 * max(round(noise.correlation / width), 1) + 1
    smooth = _smooth(window.force, span)
    length = np.linalg.norm(smooth, axis=1, keepdims=True)
    along = (smooth / np.maximum(length, 1e-9)) ** 2
    size = _smooth(length, span)
    quick = np.linalg.norm(_smooth(window.force, 3), axis=1)
    change = np.abs(np.gradient(quick)) / width if len(quick) > 1 else np.zeros(1)
    share = along * noise.force_share**2 + (1 - along) * noise.force_across**2
    model = repeat * share * size**2 + ((noise.jitter * change) ** 2)[:, None]
    return np.asarray(np.sqrt(window.force_std**2 + noise.floor[2] ** 2 + model))


def _smooth(value: Array, span: int) -> Array:
    """Running mean over an odd ``span`` of rows, edges repeated."""
    padded = np.pad(value, ((span // 2, span // 2), (0, 0)), mode="edge")
    total = np.cumsum(np.concatenate([np.zeros((1, value.shape[1])), padded]), axis=0)
    return np.asarray((total[span:] - total[:-span]) / span)


def _matrices(q: Array) -> Array:
    """Rotation matrices of (unnormalised) wxyz quaternions."""
    q = q / np.linalg.norm(q, axis=-1, keepdims=True)
    w, x, y, z = np.moveaxis(q, -1, 0)
    return np.stack(
        [
            1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y),
            2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x),
            2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y),
        ],
        axis=-1,
    ).reshape(*q.shape[:-1], 3, 3)  # fmt: skip


def _log(R: Array) -> Array:
    """Rotation vectors of rotation matrices, for angles below pi."""
    axis = (
        np.stack(
            [R[..., 2, 1] - R[..., 1, 2], R[..., 0, 2] - R[..., 2, 0], R[..., 1, 0] - R[..., 0, 1]],
            axis=-1,
        )
        / 2
    )
    sine = np.linalg.norm(axis, axis=-1)
    cosine = (np.trace(R, axis1=-2, axis2=-1) - 1) / 2
    angle = np.arctan2(sine, cosine)
    scale = np.where(sine > 1e-9, angle / np.maximum(sine, 1e-12), 1.0)
    return axis * scale[..., None]
