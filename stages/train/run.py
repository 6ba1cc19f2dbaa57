"""Imitate the demonstrated grasp, set the force from the posterior, refine both in the twin."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import xarray as xr

from stages.harness import Inputs
from stages.train.params import Params
from twinloop.geometry import se3
from twinloop.geometry.surface import TriangleSurface
from twinloop.hand.kinematics import HandKinematics
from twinloop.hand.model import RobotModel
from twinloop.metrics.chamfer import sample_surface
from twinloop.policy.dataset import make_examples
from twinloop.policy.demonstrated import demonstrated_grasp
from twinloop.policy.force_law import friction_law, upper_load
from twinloop.policy.policy import GraspPolicy, Refinement, finger_forces, payload_side_force
from twinloop.policy.posterior import Posterior, read_posterior
from twinloop.policy.refinement import SearchSettings, search
from twinloop.policy.rollout import RolloutSettings
from twinloop.policy.runner import GraspRunner
from twinloop.policy.scene import convex_parts, twin_scene
from twinloop.policy.training import TrainingSettings, train
from twinloop.policy.trials import Trial, TrialSpread, draw_trials, run_trial
from twinloop.policy.world import World
from twinloop.progress import track


def run(inputs: Inputs, params: Params) -> dict[str, xr.Dataset]:
    """Return the policy.

    Raises:
        InputError: no grasp fits the object; the message says what was tried.
    """
    kinematics = HandKinematics(RobotModel.load(params.robot))
    mesh = inputs.artifacts["reconstruct"]["mesh"]
    vertices, faces = mesh["vertices"].values, mesh["faces"].values
    surface = TriangleSurface(vertices, faces)
    posterior = read_posterior(inputs.artifacts["identify"], kinematics.model.tip_friction)
    com = np.array([posterior.of(f"com_{axis}")[0] for axis in "xyz"])
    grasp, notes = demonstrated_grasp(inputs.artifacts["retarget"], surface, kinematics, com)

    points = sample_surface(vertices, faces, params.points, inputs.seed)
    examples = make_examples(
        grasp,
        points,
        kinematics,
        count=params.examples,
        spread=(params.horizontal, params.vertical, params.yaw),
        margin=params.margin,
        risk_quantile=NormalDist().inv_cdf(1.0 - params.risk),
        touch=params.touch,
        rng=np.random.default_rng([inputs.seed, 1]),
    )
    settings = TrainingSettings(
        hidden=params.hidden,
        epochs=params.epochs,
        batch=params.batch,
        rate=params.rate,
        seed=inputs.seed,
    )
    trained, curve = train(examples, kinematics.lower, kinematics.upper, settings)
    network = GraspRunner(trained.arrays())
    cloned = GraspPolicy(
        network, points, grasp.T_object_wrist, posterior.physics(), Refinement(), kinematics
    )
    found = search(
        cloned,
        _cases(inputs, params, posterior, kinematics, params.cases, 2),
        SearchSettings(
            iterations=params.iterations, population=params.population, elites=params.elites
        ),
        np.random.default_rng([inputs.seed, 3]),
        RolloutSettings(hold=min(params.hold, 0.4)),
    )
    policy = GraspPolicy(
        network, points, grasp.T_object_wrist, cloned.physics, found.best, kinematics
    )
    final = _cases(inputs, params, posterior, kinematics, params.trials, 4)
    outcomes = [
        run_trial(world, policy, trial, "policy", settings=RolloutSettings(hold=params.hold))
        for world, trial in track(final, "try the policy in the twin")
    ]
    chosen, side_force, action = policy.plan()
    law = friction_law(
        upper_load(posterior.mass_samples(), posterior.grip_samples(), params.risk),
        params.margin,
    )
    drawn = _rows(posterior, params.trials, np.random.default_rng([inputs.seed, 4]))
    position, wxyz = se3.to_position_quaternion(policy.T_object_wrist)
    physics = policy.physics
    root = xr.Dataset(
        {
            "points": (("point", "xyz"), points),
            "position_object_wrist": ("xyz", position),
            "quaternion_object_wrist": ("wxyz", wxyz),
            "joint_target": ("joint", chosen.joints),
            "joint_open": ("joint", chosen.open_joints),
            "contact_point": (("tip", "xyz"), chosen.points),
            "contact_normal": (("tip", "xyz"), chosen.normals),
            "contact_constraint": ("constraint", action.contacts),
            "side_force": ((), side_force),
            "finger_force": ("tip", finger_forces(kinematics, chosen, side_force)),
            "payload_side_force": ((), payload_side_force(kinematics, chosen)),
            "law_side_force": ((), law.side_force),
            "physics": (
                "quantity",
                np.array(
                    [
                        physics.mass,
                        physics.mass_low,
                        physics.mass_high,
                        physics.friction,
                        physics.friction_low,
                        physics.friction_high,
                    ]
                ),
            ),
            "refinement": ("offset", policy.refinement.array()),
        },
        attrs={
            "robot": kinematics.model.name,
            "joint_names": [kinematics.model.joint_names[i] for i in kinematics.hand],
            "tips": list(kinematics.model.tips),
            "law": law.law,
            "margin": params.margin,
            "risk": params.risk,
            "grip": posterior.grip,
            "notes": [*posterior.notes, *notes],
        },
    )
    weights = {
        name: (tuple(f"{name}_{axis}" for axis in range(value.ndim)), value)
        for name, value in trained.arrays().items()
    }
    return {
        "/": root,
        "/network": xr.Dataset(weights),
        "/training": xr.Dataset(
            {
                "joints": ("epoch", curve.joints),
                "wrist": ("epoch", curve.wrist),
                "contacts": ("epoch", curve.contacts),
                "force": ("epoch", curve.force),
            }
        ),
        "/search": xr.Dataset(
            {
                "tried": (("candidate", "offset"), found.tried),
                "score": ("candidate", found.scores),
            }
        ),
        "/twin_trials": xr.Dataset(
            {
                "success": ("trial", np.array([o.success for o in outcomes], dtype=np.int8)),
                "lifted": ("trial", np.array([o.lifted for o in outcomes])),
                "slip": ("trial", np.array([o.slip for o in outcomes])),
                "mass": ("trial", posterior.mass_samples()[drawn]),
                "friction": ("trial", posterior.grip_samples()[drawn]),
            }
        ),
    }


def _cases(
    inputs: Inputs,
    params: Params,
    posterior: Posterior,
    kinematics: HandKinematics,
    count: int,
    stream: int,
) -> list[tuple[World, Trial]]:
    """Twin worlds of posterior samples, each with a trial."""
    parts = convex_parts(inputs.artifacts["reconstruct"])
    rng = np.random.default_rng([inputs.seed, stream])
    rows = _rows(posterior, count, rng)
    rest = np.eye(4)
    rest[2, 3] = -min(float(part[:, 2].min()) for part in parts)
    trials = draw_trials(count, TrialSpread(position=params.position, yaw=params.turn), rest, rng)
    worlds = []
    for row in rows:
        model = twin_scene(
            kinematics.model,
            posterior.object_model(parts, int(row)),
            tip_friction=float(posterior.grip_samples()[row]),
            timestep=params.timestep,
        )
        worlds.append(World(model, kinematics, np.eye(4)))
    return list(zip(worlds, trials, strict=True))


def _rows(posterior: Posterior, count: int, rng: np.random.Generator) -> np.ndarray:
    """Which posterior samples a set of trials uses: the generator's first draw."""
    return rng.integers(0, len(posterior.samples), count)
