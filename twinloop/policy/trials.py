"""Repeated grasps: where the object stands, how wrong the policy's eyes are, and who grips how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinloop.geometry import se3
from twinloop.policy.dataset import displacement
from twinloop.policy.force_law import paper_law
from twinloop.policy.policy import GraspPolicy, finger_forces
from twinloop.policy.rollout import Outcome, RolloutSettings, Squeeze, execute
from twinloop.policy.world import World, level

Array = NDArray[np.float64]
CONTROLLERS = ("policy", "position_only", "paper_force")
"""Named controllers: ours, positions without force, and the published force law m g / n."""


@dataclass(frozen=True)
class TrialSpread:
    """Half widths of what differs between trials, and noise of the policy's eyes (sd).

    Attributes:
        position: object position on the table, m.
        yaw: object yaw, rad.
        seen_position, seen_yaw: sd of the error of the pose that the policy believes, m and rad.
        coarse_position, coarse_yaw: half widths of the coarse wrist pose's error, m and rad.
    """

    position: float = 0.02
    yaw: float = 0.5
    seen_position: float = 0.002
    seen_yaw: float = 0.02
    coarse_position: float = 0.008
    coarse_yaw: float = 0.1


@dataclass(frozen=True)
class Trial:
    """One trial: where the object stands, what the policy believes, where the wrist comes in.

    Attributes:
        T_world_object: (4, 4) true pose.
        believed: (4, 4) pose that the policy is told.
        coarse: (4, 4) displacement of the coarse wrist pose from the nominal one, wrist frame.
    """

    T_world_object: Array
    believed: Array
    coarse: Array


def draw_trials(
    count: int, spread: TrialSpread, rest: Array, rng: np.random.Generator
) -> list[Trial]:
    """Trials around a resting pose.

    Args:
        count: how many.
        spread: what differs.
        rest: (4, 4) resting pose `T_world_object` about which the object is displaced.
        rng: generator.
    """
    trials = []
    for _ in range(count):
        offset = np.zeros(4)
        offset[:2] = rng.uniform(-spread.position, spread.position, 2)
        offset[3] = rng.uniform(-spread.yaw, spread.yaw)
        pose = displacement(offset)
        pose[:3, :3] = pose[:3, :3] @ rest[:3, :3]
        pose[:3, 3] += rest[:3, 3]
        error = np.zeros(4)
        error[:3] = spread.seen_position * rng.standard_normal(3)
        error[3] = spread.seen_yaw * rng.standard_normal()
        wrong = displacement(error)
        believed = pose.copy()
        believed[:3, :3] = wrong[:3, :3] @ pose[:3, :3]
        believed[:3, 3] += error[:3]
        coarse = np.zeros(4)
        coarse[:2] = rng.uniform(-spread.coarse_position, spread.coarse_position, 2)
        coarse[3] = rng.uniform(-spread.coarse_yaw, spread.coarse_yaw)
        trials.append(Trial(pose, believed, displacement(coarse)))
    return trials


def run_trial(
    world: World,
    policy: GraspPolicy,
    trial: Trial,
    controller: str,
    T_body_object: Array | None = None,
    settings: RolloutSettings | None = None,
) -> Outcome:
    """One grasp by a named controller.

    Args:
        world: the world.
        policy: plans the grasp; its force is used by controller `policy` only.
        trial: object pose and beliefs, both of the policy's object frame.
        controller: one of `CONTROLLERS`.
        T_body_object: (4, 4) known pose of the policy's object frame in the world's own body frame;
            identity if None.
        settings: of the executor.
    """
    grasp, side_force, _ = policy.plan(policy.T_object_wrist @ trial.coarse)
    if controller == "policy":
        forces, payload = finger_forces(policy.kinematics, grasp, side_force), policy.physics.mass
    elif controller == "paper_force":
        law = paper_law(policy.physics.mass, len(grasp.pads))
        forces = finger_forces(policy.kinematics, grasp, law.side_force, reserve=False)
        payload = policy.physics.mass
    else:
        forces, payload = np.zeros(len(grasp.pads)), 0.0
    body = np.eye(4) if T_body_object is None else T_body_object
    return execute(
        world,
        grasp,
        Squeeze(forces, payload),
        trial.T_world_object @ se3.inverse(body),
        believed=level(trial.believed),
        settings=settings,
    )


def success_count(outcomes: Sequence[Outcome]) -> int:
    """Number of successes."""
    return sum(outcome.success for outcome in outcomes)
