"""Improve a cloned policy in the twin: cross-entropy search over offsets, by rollouts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinloop.policy.policy import GraspPolicy, Refinement, finger_forces
from twinloop.policy.rollout import Outcome, RolloutSettings, Squeeze, execute
from twinloop.policy.trials import Trial
from twinloop.policy.world import World
from twinloop.progress import track

Array = NDArray[np.float64]


@dataclass(frozen=True)
class SearchSettings:
    """Knobs of the search.

    Attributes:
        iterations, population, elites: of the cross-entropy method.
        height, shift: first standard deviations, m.
        log_gain: first standard deviation of the log force gain.
    """

    iterations: int = 2
    population: int = 6
    elites: int = 2
    height: float = 0.006
    shift: float = 0.006
    log_gain: float = 0.15


@dataclass(frozen=True)
class Search:
    """Result: the best offsets, and all that were tried: `tried` (n, 3), `scores` (n,)."""

    best: Refinement
    tried: Array
    scores: Array


def score(outcome: Outcome, slip_scale: float = 0.01) -> float:
    """Score of a rollout: 1 for a success, less slip, tilt and joints at their limits.

    Excess force is not rewarded: a rigid simulator never punishes it, so a search that sees success
    alone would squeeze without end.
    """
    if not np.isfinite(outcome.lifted):
        return -1.0
    value = float(outcome.success)
    value -= 0.3 * min(outcome.slip / slip_scale, 1.0) + 0.2 * min(outcome.tilt / 0.3, 1.0)
    return value - 0.05 * len(outcome.saturated)


def search(
    policy: GraspPolicy,
    cases: Sequence[tuple[World, Trial]],
    settings: SearchSettings,
    rng: np.random.Generator,
    rollout: RolloutSettings | None = None,
) -> Search:
    """Find offsets of grasp height, lateral shift and force that do best in the twin.

    Common cases for all candidates, so that differences come from the candidates. The unchanged
    policy is always one of them; a change must earn its size.

    Args:
        policy: the cloned policy.
        cases: worlds drawn from the posterior of mass and friction, each with a trial.
        settings: knobs.
        rng: generator.
        rollout: settings of the executor.
    """

    def value(candidate: Array) -> float:
        change = Refinement(*map(float, candidate))
        scores = []
        for world, trial in cases:
            grasp, force, _ = policy.plan(policy.T_object_wrist @ trial.coarse, change)
            squeeze = Squeeze(finger_forces(policy.kinematics, grasp, force), policy.physics.mass)
            outcome = execute(world, grasp, squeeze, trial.T_world_object, trial.believed, rollout)
            scores.append(score(outcome))
        spread = np.array([settings.height, settings.shift, settings.log_gain])
        return float(np.mean(scores)) - 0.01 * float(((candidate / (2 * spread)) ** 2).sum())

    return _cross_entropy(value, settings, rng)


def _cross_entropy(
    value: Callable[[Array], float], settings: SearchSettings, rng: np.random.Generator
) -> Search:
    mean = np.zeros(3)
    spread = np.array([settings.height, settings.shift, settings.log_gain])
    tried: list[Array] = [mean.copy()]
    scores: list[float] = [value(mean)]
    for _ in track(range(settings.iterations), "refine policy in the twin"):
        batch = mean + spread * rng.standard_normal((settings.population, 3))
        batch = np.clip(batch, -2.5 * spread - np.abs(mean), 2.5 * spread + np.abs(mean))
        results = [value(candidate) for candidate in batch]
        tried.extend(batch)
        scores.extend(results)
        order = np.argsort(-np.array(scores), kind="stable")[: settings.elites]
        elites = np.array(tried)[order]
        mean = elites.mean(axis=0)
        spread = 0.5 * spread + 0.5 * np.maximum(elites.std(axis=0), 0.2 * spread)
    best = int(np.argmax(scores))
    return Search(Refinement(*map(float, tried[best])), np.array(tried), np.array(scores))
