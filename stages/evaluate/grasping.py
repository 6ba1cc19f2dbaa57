"""Grasp trials: the policy and its baselines in the true world, or in worlds of the posterior."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import xarray as xr

from stages.evaluate.params import Params
from twinloop.policy.policy import GraspPolicy
from twinloop.policy.rollout import Outcome, RolloutSettings
from twinloop.policy.trials import CONTROLLERS, Trial, TrialSpread, draw_trials, run_trial
from twinloop.policy.world import World
from twinloop.progress import track

WorldOf = Callable[[int], tuple[World, float]]
"""World of a trial, and the least side force that holds the object in it, N."""


def grasp_trials(
    policy: GraspPolicy,
    world_of: WorldOf,
    T_body_object: np.ndarray,
    rest: np.ndarray,
    params: Params,
    seed: int,
) -> xr.Dataset:
    """Run all trials of all controllers.

    Args:
        policy: the trained policy.
        world_of: the world of trial i.
        T_body_object: (4, 4) policy's object frame in the world's body frame.
        rest: (4, 4) resting pose of the object frame.
        params: the stage's.
        seed: of places and errors; the same for all controllers.
    """
    spread = TrialSpread(
        position=params.position,
        yaw=params.turn,
        seen_position=params.seen_position,
        seen_yaw=params.seen_yaw,
    )
    trials = draw_trials(params.trials, spread, rest, np.random.default_rng([seed, 7]))
    controllers = CONTROLLERS if params.baselines else CONTROLLERS[:1]
    settings = RolloutSettings(hold=params.hold)
    outcomes: list[list[Outcome]] = [[] for _ in controllers]
    needed = np.zeros(len(trials))
    for number, trial in enumerate(track(trials, "grasp trials")):
        world, needed[number] = world_of(number)
        for row, controller in enumerate(controllers):
            outcomes[row].append(
                run_trial(world, policy, trial, controller, T_body_object, settings)
            )
    return _dataset(trials, outcomes, needed, list(controllers))


def _dataset(
    trials: list[Trial],
    outcomes: list[list[Outcome]],
    needed: np.ndarray,
    controllers: list[str],
) -> xr.Dataset:
    def table(pick: Callable[[Outcome], float]) -> tuple[tuple[str, str], np.ndarray]:
        values = [[pick(outcome) for outcome in row] for row in outcomes]
        return ("controller", "trial"), np.array(values, dtype=np.float64)

    success = np.array([[o.success for o in row] for row in outcomes], dtype=np.int8)
    poses = np.array([trial.T_world_object for trial in trials])
    return xr.Dataset(
        {
            "success": (("controller", "trial"), success),
            "lifted": table(lambda o: o.lifted),
            "slip": table(lambda o: o.slip),
            "tilt": table(lambda o: o.tilt),
            "finger_side_force": table(lambda o: o.side_force[0]),
            "thumb_side_force": table(lambda o: o.side_force[1]),
            "peak_force": table(lambda o: o.peak_force),
            "needed_force": ("trial", needed),
            "position_world_object": (("trial", "xyz"), poses[:, :3, 3]),
            "yaw": ("trial", np.arctan2(poses[:, 1, 0], poses[:, 0, 0])),
        },
        attrs={"controllers": controllers},
    )
