"""The contact force at the fingertip from joint efforts, by the robot's own free-motion model.

Equation of motion of joint j, with f the force of the tip ON the object (world):
    effort_j = inertial_j + I_j ddq_j + b_j dq_j + c_j sign(dq_j) + e_j + (J^T f)_j.
Rotor inertia I, viscous friction b, dry friction c, a scale of the links' inertial effort and an
effort bias e are fitted on samples without contact, around the datasheet's values; what remains in
contact is solved for f by weighted least squares.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinloop.hand.model import RobotModel
from twinloop.tracking.joint_signals import JointSignals, slow_speed

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

SHARE = 0.06
"""Error of the force as a part of its size."""
JITTER = 0.001
"""Error of the force's time, s."""


@dataclass(frozen=True)
class FreeMotion:
    """Free-motion model of each joint.

    value: (joint, 5) rotor inertia (kg or kg m2), viscous (N s/m or N m s/rad), dry friction (N or
    N m), scale of the links' inertial effort (1), bias (N or N m); covariance: (joint, 5, 5);
    residual: (joint,) standard deviation of what the model leaves in free motion, N or N m.
    """

    value: Array
    covariance: Array
    residual: Array


@dataclass(frozen=True)
class ContactForce:
    """Force of the tip on the object: force, std (n, 3) N, world; touching: (n,) bool."""

    force: Array
    std: Array
    touching: Flags


def datasheet(robot: RobotModel) -> tuple[Array, Array]:
    """Prior mean and standard deviation (joint, 5) of the free-motion model, from the datasheet."""
    coulomb, viscous = robot.joint_friction.T
    rotor = np.array([joint.armature for joint in robot.joints])
    ones = np.ones(robot.dof)
    mean = np.stack([rotor, viscous, coulomb, ones, 0 * ones], axis=1)
    std = np.stack(
        [
            0.3 * rotor + 1e-6,
            0.3 * viscous + 1e-6,
            0.4 * coulomb + 1e-6,
            0.1 * ones,
            0.3 * coulomb + 1e-6,
        ],
        axis=1,
    )
    return mean, std


def regressors(signals: JointSignals, robot: RobotModel) -> Array:
    """(n, joint, 5) columns of the free-motion model."""
    ones = np.ones_like(signals.sign)
    return np.stack(
        [signals.acceleration, signals.velocity, signals.sign, signals.inertial, ones], axis=2
    )


def fit_free_motion(robot: RobotModel, pushes: list[JointSignals], free: list[Flags]) -> FreeMotion:
    """Fit each joint's model on the free samples of all pushes together.

    Samples slower than `slow_speed` say nothing of dry friction and are left out, because a stuck
    joint holds any effort. Neighbouring samples are alike (smoothing), so the information is
    thinned accordingly. A joint that never moves keeps its datasheet.
    """
    mean, std = datasheet(robot)
    value, covariance = mean.copy(), np.zeros((robot.dof, 5, 5))
    residual = np.zeros(robot.dof)
    slow = slow_speed(robot)
    columns = [regressors(s, robot) for s in pushes]
    for j in range(robot.dof):
        rows, target, noise = [], [], []
        for signals, keep, x in zip(pushes, free, columns, strict=True):
            moving = keep & (np.abs(signals.velocity[:, j]) > slow[j])
            rows.append(x[moving, j])
            target.append(signals.effort[moving, j])
            noise.append(np.full(int(moving.sum()), signals.effort_noise[j]))
        x, y, sigma = np.concatenate(rows), np.concatenate(target), np.concatenate(noise)
        prior = np.diag(1 / std[j] ** 2)
        weight = np.ones(len(y))
        spread = max(float(np.median(sigma)) if len(y) else 0.0, 1e-9)
        for _ in range(8):
            information = x.T @ (x * (weight / (8 * spread**2))[:, None]) + prior
            gradient = x.T @ (weight / (8 * spread**2) * (y - x @ mean[j]))
            value[j] = mean[j] + np.linalg.solve(information, gradient)
            if len(y) < 10:
                break
            error = y - x @ value[j]
            spread = max(1.4826 * float(np.median(np.abs(error))), float(np.median(sigma)))
            weight = 1 / np.maximum(np.abs(error) / (2 * spread), 1.0)
        covariance[j] = np.linalg.inv(information)
        value[j, :3] = np.maximum(value[j, :3], 0.0)
        residual[j] = spread
    return FreeMotion(value, covariance, residual)


def contact_force(
    robot: RobotModel, signals: JointSignals, model: FreeMotion, chain: tuple[int, ...]
) -> ContactForce:
    """Force at the tip by weighted least squares over the joints of `chain`.

    The variance of a joint's remaining effort is that of its noise, of the free-motion parameters,
    of a tenth of what accelerates it, and, near standstill, of dry friction anywhere in [-c, c] (a
    uniform law: c^2 / 3). The force's own variance adds SHARE of its size (the force acts on the
    pad's surface and not in its centre) and JITTER times its rate of change (efforts and encoders
    are not sampled at quite the same instant).
    """
    j = np.array(chain)
    x = regressors(signals, robot)[:, j]
    explained = x * model.value[j]
    rest = signals.effort[:, j] - explained.sum(axis=2)
    stuck = np.clip(1 - signals.sign[:, j] ** 2, 0, 1)
    variance = np.maximum(signals.effort_noise[j], model.residual[j]) ** 2
    variance = variance + np.einsum("njk,jkl,njl->nj", x, model.covariance[j], x)
    variance = variance + 0.01 * (explained[:, :, 0] + explained[:, :, 3]) ** 2
    variance = variance + stuck * model.value[j, 2] ** 2 / 3
    jacobian = signals.jacobian[:, :, j]
    weighted = jacobian / variance[:, None, :]
    information = np.einsum("nij,nkj->nik", weighted, jacobian)
    # A direction in which no joint works is unknown: 100 N stand for "no idea".
    information += np.eye(3) * 1e-4
    covariance = np.linalg.inv(information)
    force = np.einsum("nik,nk->ni", covariance, np.einsum("nij,nj->ni", weighted, rest))
    whitened = np.einsum("ni,nik,nk->n", force, information, force)
    size = np.linalg.norm(force, axis=1)
    rate = np.linalg.norm(np.gradient(force, signals.time, axis=0), axis=1)
    own = (SHARE * size) ** 2 + (JITTER * rate) ** 2
    std = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2) + own[:, None])
    return ContactForce(force, std, sustained(whitened > 20.0, 4))


def sustained(flags: Flags, count: int, gap: int = 9) -> Flags:
    """Runs of at least `count` true samples, runs closer than `gap` samples joined."""
    out = np.zeros_like(flags)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flags.astype(np.int8), [0]])))
    runs = [(int(a), int(b)) for a, b in edges.reshape(-1, 2)]
    joined: list[tuple[int, int]] = []
    for a, b in runs:
        if joined and a - joined[-1][1] < gap:
            joined[-1] = (joined[-1][0], b)
        else:
            joined.append((a, b))
    for a, b in joined:
        if b - a >= count:
            out[a:b] = True
    return out


def widen(flags: Flags, count: int) -> Flags:
    """True also for `count` samples before and after each true one."""
    kernel = np.ones(2 * count + 1)
    return np.asarray(np.convolve(flags, kernel, mode="same") > 0.5)


def separate(
    robot: RobotModel,
    pushes: list[JointSignals],
    tip: str,
    *,
    margin: float,
    still: float,
    rounds: int = 4,
) -> tuple[FreeMotion, list[ContactForce]]:
    """Free-motion model and contact forces of all pushes of a session, in turns.

    Starting from the datasheet, the samples without contact are found, the model is fitted on
    them, and again. `margin` s around contact is left out; the first `still` s of each push are
    free by protocol.
    """
    chain = robot.chain(robot.tip(tip).link)
    mean, std = datasheet(robot)
    model = FreeMotion(mean, np.stack([np.diag(s**2) for s in std]), np.zeros(robot.dof))
    forces: list[ContactForce] = []
    for _ in range(rounds):
        forces = [contact_force(robot, s, model, chain) for s in pushes]
        free = []
        for signals, found in zip(pushes, forces, strict=True):
            dt = float(signals.time[1] - signals.time[0])
            keep = ~widen(found.touching, round(margin / dt))
            keep |= signals.time - signals.time[0] < still
            free.append(keep)
        model = fit_free_motion(robot, pushes, free)
    return model, [contact_force(robot, s, model, chain) for s in pushes]
