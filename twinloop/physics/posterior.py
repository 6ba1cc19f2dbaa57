"""Intervals and verdicts: what the data tell, and what was only assumed.

Covariance of the unknowns = Laplace (inverse Gauss-Newton Hessian, inflated by the residual
variance and a temperature for model error) + *consider* terms for quantities that are not estimated
(effort gain, fingertip height and radius), scaled up where the scatter between pushes (sandwich
estimate) says that this is too little. See Tapley, Schutz and Born 2004, 4.12 (consider
covariance), White 1982 (sandwich).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from twinloop.physics.likelihood import FEWEST_DRAWS, Likelihood
from twinloop.physics.parameters import COM, EXTENT, LOG_MASS, MOTION, Priors, specific_inertia
from twinloop.physics.shape import CollisionShape
from twinloop.physics.solver import normal_equations, scaled_inverse, weights

Array = npt.NDArray[np.float64]

NAMES = (
    "mass",
    "friction",
    "com_x",
    "com_y",
    "com_z",
    "inertia_xx",
    "inertia_yy",
    "inertia_zz",
    "inertia_xy",
    "inertia_xz",
    "inertia_yz",
    "friction_tip",
)
UNITS = ("kg", "1", "m", "m", "m", *["kg m^2"] * 6, "1")
_PAIRS = ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))
_QUANTILE = 1.959964
_MAX_INFLATION = 4.0

# Verdicts: sd left by the data as a share of the prior sd, and the widest useful 95 % factor.
IDENTIFIED_SHARE = 0.5
UNIDENTIFIABLE_SHARE = 0.8
WIDEST_FACTOR = 2.0

CONSIDER = {"tip_height": 1.0e-3, "tip_radius": 5.0e-4}
"""Sd (m) of what is not estimated: fingertip height over the table, and its radius."""


@dataclass(frozen=True)
class Estimates:
    """Reported parameters, in the order of ``NAMES``.

    Attributes:
        value: (12,) SI.
        std: (12,).
        low: (12,) lower end of the 95 % interval.
        high: (12,) upper end.
        prior_value: (12,) prior mean.
        prior_std: (12,).
        verdict: identified, prior-dominated or unidentifiable, per parameter.
        samples: (n, 12) draws from the posterior.
    """

    value: Array
    std: Array
    low: Array
    high: Array
    prior_value: Array
    prior_std: Array
    verdict: tuple[str, ...]
    samples: Array

    @property
    def identifiable(self) -> npt.NDArray[np.int8]:
        """1 where the verdict is identified."""
        return np.array([v == "identified" for v in self.verdict], dtype=np.int8)


def covariance(
    likelihood: Likelihood, theta: Array, priors: Priors, *, draws: int = 96, seed: int = 0
) -> Array:
    """(n, n) covariance of the unknowns at the optimum ``theta``.

    Args:
        likelihood: Of the fit.
        theta: (n,) optimum.
        priors: For what is considered, not estimated.
        draws: Rollouts per averaged linearisation; too few (see ``FEWEST_DRAWS``) linearise at the
            point alone.
        seed: Of the draws.
    """
    prior, bound = likelihood.prior, likelihood.noise.huber
    residuals, jacobians = likelihood.linearise(theta, 3.0)
    scatter = [np.zeros_like(r) for r in residuals]
    H, _ = normal_equations(residuals, jacobians, theta, prior, bound)
    inverse = scaled_inverse(H, prior)
    for turn in range(2 if draws >= FEWEST_DRAWS else 0):
        rng = np.random.default_rng([seed, turn])
        _, jacobians, scatter = likelihood.average(theta, inverse, draws, rng)
        H, _ = normal_equations(residuals, jacobians, theta, prior, bound, scatter)
        inverse = scaled_inverse(H, prior)
    w = [weights(r, bound, s) for r, s in zip(residuals, scatter, strict=True)]
    squares = sum(float((a * r * r).sum()) for a, r in zip(w, residuals, strict=True))
    freedom = max(sum(len(r) for r in residuals) - prior.size, 1)
    total = inverse * likelihood.noise.temperature * max(squares / freedom, 1.0)
    for shifted in _considered(likelihood):
        moved = shifted.residuals(theta)
        slope = np.sum(
            [
                J.T @ (a * (m - r))
                for J, a, m, r in zip(jacobians, w, moved, residuals, strict=True)
            ],
            axis=0,
        )
        sensitivity = inverse @ slope
        total = total + np.outer(sensitivity, sensitivity)
    if likelihood.use_force:
        total[LOG_MASS, LOG_MASS] += priors.gain_std**2
    if len(residuals) > 1:
        scores = [J.T @ (a * r) for J, a, r in zip(jacobians, w, residuals, strict=True)]
        middle = np.sum([np.outer(s, s) for s in scores], axis=0)
        middle = middle * len(scores) / (len(scores) - 1)
        robust = np.diagonal(inverse @ middle @ inverse)
        growth = np.sqrt(np.clip(robust / np.diagonal(total), 1.0, _MAX_INFLATION**2))
        total = total * np.outer(growth, growth)
    # No data make an unknown less certain than its prior.
    cap = np.minimum(1.0, prior.std / np.sqrt(np.diagonal(total)))
    return np.asarray(total * np.outer(cap, cap), dtype=np.float64)


def _considered(likelihood: Likelihood) -> list[Likelihood]:
    """Likelihoods with one quantity that is not estimated moved by its sd."""
    controls = likelihood.controls
    up = np.array([0.0, 0.0, CONSIDER["tip_height"]])
    changed = (
        replace(controls, tip_position=controls.tip_position + up),
        replace(controls, tip_radius=controls.tip_radius + CONSIDER["tip_radius"]),
    )
    return [likelihood.with_controls(c) for c in changed]


def reported(body: Array, shape: CollisionShape, turn: Array | None = None) -> Array:
    """(n, 12) reported parameters from (n, 9) body unknowns.

    Args:
        body: log mass, log friction, CoM (3, body frame), log extents (3), log tip friction.
        shape: The object, for its principal axes.
        turn: (n, 3) rad, rotation of the principal axes, or None.
    """
    R = np.tile(shape.R_object_body, (len(body), 1, 1))
    mass = np.exp(body[:, 0])
    moments = mass[:, None] * specific_inertia(body[:, 5:8])
    axes = R if turn is None else R @ _turns(turn)
    inertia = np.einsum("nij,nj,nkj->nik", axes, moments, axes)
    com = np.einsum("nij,nj->ni", R, body[:, 2:5])
    return np.column_stack(
        [mass, np.exp(body[:, 1]), com, *(inertia[:, i, j] for i, j in _PAIRS), np.exp(body[:, 8])]
    )


BODY = np.array(
    [LOG_MASS, 0, *range(COM.start, COM.stop), *range(EXTENT.start, EXTENT.stop)]
    + [MOTION.index("log_tip_friction")]
)
"""Where the body unknowns of ``reported`` stand in the full vector."""


def estimates(
    likelihood: Likelihood,
    theta: Array,
    cov: Array,
    *,
    samples: int,
    seed: int,
    axes_std: float = 0.1,
) -> Estimates:
    """Values, 95 % intervals, verdicts and samples.

    Args:
        likelihood: Gives shape and prior.
        theta: Optimum.
        cov: Covariance of the unknowns.
        samples: Number of draws.
        seed: Of the draws.
        axes_std: rad, sd of the principal axes about the uniform mesh's; they are not estimated.
    """
    shape, prior = likelihood.shape, likelihood.prior
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal((samples, len(BODY)))
    turn = axes_std * rng.standard_normal((samples, 3))
    mean, mean0 = theta[BODY], prior.mean[BODY]
    C = cov[np.ix_(BODY, BODY)]
    sd0 = prior.std[BODY]
    draws = reported(mean + noise @ _root(C).T, shape, turn)
    value = reported(mean[None], shape)[0]
    prior_value = reported(mean0[None], shape)[0]
    J, J0 = _slope(mean, shape), _slope(mean0, shape)
    # The sd of the axes counts in both, so products of inertia stay what they are: assumed.
    turned = axes_std**2 * (_turn_slope(mean, shape) ** 2).sum(axis=1)
    std = np.sqrt(np.einsum("ij,jk,ik->i", J, C, J) + turned)
    prior_turned = axes_std**2 * (_turn_slope(mean0, shape) ** 2).sum(axis=1)
    prior_std = np.sqrt(((J0 * sd0) ** 2).sum(axis=1) + prior_turned)
    low, high = value - _QUANTILE * std, value + _QUANTILE * std
    log_sd = np.sqrt(np.diagonal(C))
    for name, column in (("mass", 0), ("friction", 1), ("friction_tip", 8)):
        at = NAMES.index(name)
        low[at] = np.exp(mean[column] - _QUANTILE * log_sd[column])
        high[at] = np.exp(mean[column] + _QUANTILE * log_sd[column])
    at_inertia = slice(NAMES.index("inertia_xx"), NAMES.index("inertia_zz") + 1)
    tails = np.quantile(draws[:, at_inertia], [0.025, 0.975], axis=0)
    low[at_inertia] = np.minimum(tails[0], value[at_inertia])
    high[at_inertia] = np.maximum(tails[1], value[at_inertia])
    return Estimates(
        value=value,
        std=np.maximum(std, 1e-12),
        low=low,
        high=high,
        prior_value=prior_value,
        prior_std=np.maximum(prior_std, 1e-12),
        verdict=_verdicts(value, J, C, sd0, turned, low, high),
        samples=draws,
    )


def _verdicts(
    value: Array, J: Array, C: Array, sd0: Array, turned: Array, low: Array, high: Array
) -> tuple[str, ...]:
    """Verdict per parameter from the share of the prior sd that the data left.

    Inertia is judged per kg: that mass is known says nothing about how it is spread.
    """
    out = []
    for i, name in enumerate(NAMES):
        slope = J[i].copy()
        if name.startswith("inertia"):
            slope[0] = 0.0
        left = np.sqrt(slope @ C @ slope + turned[i])
        assumed = np.sqrt(((slope * sd0) ** 2).sum() + turned[i])
        share = left / assumed if assumed > 0 else 1.0
        wide = name in ("mass", "friction", "friction_tip") and (
            high[i] / value[i] > WIDEST_FACTOR or value[i] / low[i] > WIDEST_FACTOR
        )
        if share > UNIDENTIFIABLE_SHARE or (wide and share > IDENTIFIED_SHARE):
            out.append("unidentifiable")
        elif share > IDENTIFIED_SHARE or wide:
            out.append("prior-dominated")
        else:
            out.append("identified")
    return tuple(out)


def _slope(mean: Array, shape: CollisionShape) -> Array:
    """(12, 9) derivative of the reported parameters, central differences."""
    h = 1e-6
    step = h * np.eye(len(mean))
    return np.asarray((reported(mean + step, shape) - reported(mean - step, shape)).T / (2 * h))


def _turn_slope(mean: Array, shape: CollisionShape) -> Array:
    """(12, 3) derivative with respect to a turn of the principal axes."""
    h = 1e-6
    body = np.tile(mean, (3, 1))
    turn = h * np.eye(3)
    ahead, behind = reported(body, shape, turn), reported(body, shape, -turn)
    return np.asarray((ahead - behind).T / (2 * h))


def _turns(turn: Array) -> Array:
    from scipy.spatial.transform import Rotation

    return np.asarray(Rotation.from_rotvec(turn).as_matrix(), dtype=np.float64)


def _root(C: Array) -> Array:
    """Square root of a covariance by eigenvalues; signs fixed so that draws repeat everywhere."""
    scale = np.sqrt(np.diagonal(C))
    values, vectors = np.linalg.eigh(C / np.outer(scale, scale))
    vectors = vectors * np.sign(vectors[np.argmax(np.abs(vectors), axis=0), range(len(C))])
    return np.asarray(scale[:, None] * vectors * np.sqrt(np.maximum(values, 0.0)))
