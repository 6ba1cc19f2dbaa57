"""Levenberg-Marquardt on whitened residuals with Huber weights and Gaussian priors, multi-start."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from twinloop.physics.likelihood import FEWEST_DRAWS, Likelihood
from twinloop.physics.parameters import LOG_MASS, MOTION, Unknowns
from twinloop.progress import track

Array = npt.NDArray[np.float64]

_STEP_SCALES = (3.0, 30.0, 0.3)  # of the finite-difference steps, tried in turn
_LARGEST_STEP = 1.0  # prior sd per iteration: a longer step leaves the linear range


@dataclass(frozen=True)
class Optimum:
    """Where the search ended.

    Attributes:
        theta: (n,) unknowns.
        cost: Robust misfit plus prior misfit.
        iterations: Accepted steps.
        history: Cost after each accepted step, first entry the start.
    """

    theta: Array
    cost: float
    iterations: int
    history: tuple[float, ...]


def huber_weight(r: Array, bound: float) -> Array:
    """1 inside ``bound``, ``bound / |r|`` outside (Huber 1964)."""
    size = np.abs(r)
    return np.asarray(np.where(size <= bound, 1.0, bound / np.maximum(size, 1e-12)))


def robust_cost(residuals: list[Array], theta: Array, prior: Unknowns, bound: float) -> float:
    """Half the Huber misfit plus half the squared prior misfit; infinite if not finite."""
    total = 0.0
    for r in residuals:
        size = np.abs(r)
        total += float(np.where(size <= bound, 0.5 * r * r, bound * size - 0.5 * bound**2).sum())
    z = (theta - prior.mean) / prior.std
    total += 0.5 * float(z @ z)
    return total if np.isfinite(total) else np.inf


def normal_equations(
    residuals: list[Array],
    jacobians: list[Array],
    theta: Array,
    prior: Unknowns,
    bound: float,
    scatter: list[Array] | None = None,
) -> tuple[Array, Array]:
    """Gauss-Newton Hessian (n, n) and gradient (n,) of ``robust_cost``, pushes in order.

    ``scatter`` adds variance to residuals (see ``Likelihood.average``).
    """
    H = np.diag(1 / prior.std**2)
    g = (theta - prior.mean) / prior.std**2
    for p, (r, J) in enumerate(zip(residuals, jacobians, strict=True)):
        w = weights(r, bound, None if scatter is None else scatter[p])
        H = H + (J * w[:, None]).T @ J
        g = g + J.T @ (w * r)
    return H, g


def weights(r: Array, bound: float, scatter: Array | None = None) -> Array:
    """Huber weights of whitened residuals, less for those with extra variance."""
    if scatter is None:
        return huber_weight(r, bound)
    variance = 1 + scatter
    return np.asarray(huber_weight(r / np.sqrt(variance), bound) / variance)


def scaled_inverse(H: Array, prior: Unknowns) -> Array:
    """Inverse of a Hessian, formed in units of the prior sd."""
    scale = 1 / prior.std
    return np.asarray(np.linalg.inv(H / np.outer(scale, scale)) / np.outer(scale, scale))


def minimise(
    likelihood: Likelihood, theta: Array, iterations: int, tolerance: float = 1e-4
) -> Optimum:
    """Levenberg-Marquardt from ``theta``; steps are damped in units of the prior sd.

    Where no damping helps, the finite-difference step is changed before giving up.
    """
    prior, bound = likelihood.prior, likelihood.noise.huber
    cost = robust_cost(likelihood.residuals(theta), theta, prior, bound)
    history, damping, scale, failures = [cost], 1e-2, 0, 0
    for _ in range(iterations):
        residuals, jacobians = likelihood.linearise(theta, _STEP_SCALES[scale])
        H, g = normal_equations(residuals, jacobians, theta, prior, bound)
        # Several dampings in one batch of rollouts: a launch of five costs less than two in turn.
        dampings = damping * np.array([0.1, 1.0, 10.0, 100.0, 1000.0])
        trials = np.stack([theta + _step(H, g, d, prior.std) for d in dampings])
        costs = costs_of(likelihood, trials)
        best = int(np.argmin(costs))
        gain = cost - float(costs[best])
        if gain > 0:
            cost, theta = float(costs[best]), trials[best]
            damping = float(np.clip(dampings[best], 1e-6, 1e2))
            history.append(cost)
        if gain > tolerance * max(cost, 1.0):
            failures = 0
            continue
        failures += 1
        if failures == len(_STEP_SCALES):
            break
        scale, damping = (scale + 1) % len(_STEP_SCALES), 1e-2
    return Optimum(theta, cost, len(history) - 1, tuple(history))


def costs_of(likelihood: Likelihood, thetas: Array) -> Array:
    """(K,) robust costs of (K, n) unknowns, one batch of rollouts."""
    rolled = likelihood.residuals(thetas)
    prior, bound = likelihood.prior, likelihood.noise.huber
    return np.array(
        [robust_cost([r[k] for r in rolled], thetas[k], prior, bound) for k in range(len(thetas))]
    )


def _step(H: Array, g: Array, damping: float, std: Array) -> Array:
    scaled = H * np.outer(std, std)
    scaled = scaled + damping * np.diag(np.diagonal(scaled))
    z = -np.linalg.solve(scaled, g * std)
    return np.asarray(np.clip(z, -_LARGEST_STEP, _LARGEST_STEP) * std)


def profile_mass(likelihood: Likelihood, theta: Array) -> Array:
    """Mass that fits the forces best for each row of (K, n) unknowns: a linear least squares.

    At unit mass the simulated force is force per kg, so mass is a ratio of two measured things,
    whatever it started from. Rows without any force information keep their mass.
    """
    if not likelihood.use_force:
        return theta
    unit = theta.copy()
    unit[:, LOG_MASS] = 0.0
    clean = unit.copy()
    zero = unit.copy()
    zero[:, LOG_MASS] = -50.0
    top = np.zeros(len(theta))
    bottom = np.full(len(theta), 1e-12)
    for at_unit, at_zero, window in zip(
        likelihood.residuals(clean), likelihood.residuals(zero), likelihood.windows, strict=True
    ):
        first = 6 * len(window.frame_time)
        per_kg = at_unit[:, first:] - at_zero[:, first:]
        top += -(per_kg * at_zero[:, first:]).sum(axis=1)
        bottom += (per_kg * per_kg).sum(axis=1)
    mass = np.maximum(top / bottom, 1e-3)
    out = theta.copy()
    out[:, LOG_MASS] = np.where(bottom > 1e-6, np.log(mass), theta[:, LOG_MASS])
    return out


def starts(likelihood: Likelihood, theta: Array, keep: int) -> Array:
    """(keep, n) starts from a value-only scan over frictions and tip stiffness.

    The best of each tip friction come first, so that starts differ in what is most ambiguous.
    """
    rows, group = [], []
    for index, tip_friction in enumerate((0.7, 0.25)):
        for friction in (0.12, 0.22, 0.35, 0.55):
            for rate in (60.0, 200.0):
                row = theta.copy()
                row[MOTION.index("log_friction")] = np.log(friction)
                row[MOTION.index("log_tip_friction")] = np.log(tip_friction)
                row[MOTION.index("log_tip_stiffness")] = 2 * np.log(rate)
                rows.append(row)
                group.append(index)
    grid = profile_mass(likelihood, np.stack(rows))
    order = np.argsort(costs_of(likelihood, grid), kind="stable")
    rank = {0: 0, 1: 0}
    keys = []
    for position, row_index in enumerate(order):
        side = group[row_index]
        keys.append((rank[side], position, int(row_index)))
        rank[side] += 1
    return grid[[row_index for _, _, row_index in sorted(keys)[:keep]]]


def explore(
    likelihood: Likelihood, theta: Array, iterations: int, draws: int, rng: np.random.Generator
) -> Array:
    """(iterations, n) Gauss-Newton path on the averaged misfit (posterior linearisation).

    The misfit has many shallow local minima along what the data say little about; averaging over
    the current posterior steps across them.
    """
    prior, bound = likelihood.prior, likelihood.noise.huber
    H, _ = normal_equations(*likelihood.linearise(theta, 3.0), theta, prior, bound)
    cov, path = scaled_inverse(H, prior), []
    for _ in range(iterations):
        means, jacobians, scatter = likelihood.average(theta, cov, draws, rng)
        H, g = normal_equations(means, jacobians, theta, prior, bound, scatter)
        theta = theta + _step(H, g, 0.0, prior.std)
        cov = scaled_inverse(H, prior)
        path.append(theta)
    return np.stack(path) if path else theta[None]


def solve(
    likelihood: Likelihood,
    *,
    initial: Array | None = None,
    start_count: int = 3,
    first_iterations: int = 6,
    explore_iterations: int = 4,
    iterations: int = 12,
    draws: int = 96,
    seed: int = 0,
) -> list[Optimum]:
    """Multi-start search; every start is followed to its end, best first.

    A rubbing fingertip explains the same forces in more than one way, so distinct optima of about
    the same cost are common; ``mixture_weights`` says how much each counts.

    Args:
        likelihood: Residuals to minimise.
        initial: (n,) where unknowns outside the scan start; the prior mean by default.
        start_count: Starts that are followed.
        first_iterations: Steps from each start.
        explore_iterations: Steps on the averaged misfit.
        iterations: Most steps of the last descents.
        draws: Rollouts per averaged step; too few (see ``FEWEST_DRAWS``) for no such steps.
        seed: Of the draws.
    """
    theta = likelihood.prior.mean if initial is None else initial
    found = []
    begun = list(enumerate(starts(likelihood, theta, start_count)))
    for index, start in track(begun, "fit the pushes"):
        best = minimise(likelihood, start, first_iterations)
        if explore_iterations and draws >= FEWEST_DRAWS:
            rng = np.random.default_rng([seed, index])
            path = explore(likelihood, best.theta, explore_iterations, draws, rng)
            nearest = path[np.argsort(costs_of(likelihood, path), kind="stable")[0]]
            best = min(best, minimise(likelihood, nearest, first_iterations), key=lambda c: c.cost)
        found.append(minimise(likelihood, best.theta, iterations))
    return sorted(found, key=lambda c: c.cost)


def mixture_weights(optima: list[Optimum], temperature: float) -> Array:
    """(K,) share of each optimum by its cost.

    The temperature (1 for an exact likelihood) keeps model error from deciding between optima.
    """
    gap = np.array([o.cost for o in optima]) - optima[0].cost
    weight = np.exp(-gap / temperature)
    return np.asarray(weight / weight.sum())
