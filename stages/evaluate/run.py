"""Judge the twin: against the hidden true world of a lab object, else inside the twin itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import xarray as xr
import yaml

from stages.evaluate import compare
from stages.evaluate.figures import Figure, mean_figure, rate_figure, to_dataset
from stages.evaluate.grasping import grasp_trials
from stages.evaluate.params import Params
from stages.harness import Inputs
from twinloop.errors import InputError
from twinloop.geometry import se3
from twinloop.hand.kinematics import HandKinematics
from twinloop.hand.model import RobotModel
from twinloop.lab.reenact import LabTruth, load_truth
from twinloop.policy.force_law import GRAVITY
from twinloop.policy.posterior import read_posterior
from twinloop.policy.saved import load_policy
from twinloop.policy.scene import convex_parts, twin_scene
from twinloop.policy.world import World


def run(inputs: Inputs, params: Params) -> dict[str, xr.Dataset]:
    """Return trials, figures and comparisons.

    Raises:
        InputError: the truth is there but cannot be read.
    """
    folder = inputs.truth / "lab"
    if folder.is_dir():
        return _against_lab(inputs, params, load_truth(folder, inputs.object))
    return _inside_twin(inputs, params)


def _against_lab(inputs: Inputs, params: Params, truth: LabTruth) -> dict[str, xr.Dataset]:
    artifacts = inputs.artifacts
    T_scan_object = compare.scan_pose(artifacts["reconstruct"])
    T_labobject_object = se3.inverse(truth.scan_pose) @ T_scan_object
    T_object_labobject = se3.inverse(T_labobject_object)
    mesh = compare.mesh_errors(
        artifacts["reconstruct"], truth.tree, T_object_labobject, params.samples, inputs.seed
    )
    points = np.asarray(mesh["point"])
    tracking = compare.tracking_errors(
        artifacts["track"], artifacts["push"], truth.tree, T_labobject_object, points
    )
    known = compare.true_parameters(truth.tree, T_object_labobject, truth.pad_friction)
    table = compare.parameter_table(artifacts["identify"], known)

    policy_tree = artifacts["train"]
    kinematics = HandKinematics(RobotModel.load(str(policy_tree.attrs["robot"])))
    world = World(truth.world(kinematics.model, params.substeps), kinematics, np.eye(4))
    needed = known["mass"] * GRAVITY / (2.0 * truth.pad_friction)
    trials = grasp_trials(
        load_policy(policy_tree, kinematics),
        lambda _: (world, needed),
        T_labobject_object,
        T_labobject_object,
        params,
        inputs.seed,
    )
    figures = [
        *_shared(inputs, params, trials, "grasp_success"),
        Figure(
            "chamfer",
            1e3 * float(np.float64(mesh["chamfer"])),
            "mm",
            "lower",
            params.target_chamfer,
            count=params.samples,
        ),
        Figure(
            "chamfer_after_rigid_fit",
            1e3 * float(np.float64(mesh["chamfer_aligned"])),
            "mm",
            "lower",
            count=params.samples,
        ),
        *_tracking_figures(tracking, params),
        *_parameter_figures(table, params),
    ]
    groups = _groups("lab", trials, figures, table)
    groups["/tracking"] = tracking
    groups["/mesh"] = xr.Dataset(
        {"point": (("sample", "xyz"), points), "distance": ("sample", np.asarray(mesh["distance"]))}
    )
    return groups


def _inside_twin(inputs: Inputs, params: Params) -> dict[str, xr.Dataset]:
    policy_tree = inputs.artifacts["train"]
    kinematics = HandKinematics(RobotModel.load(str(policy_tree.attrs["robot"])))
    posterior = read_posterior(inputs.artifacts["identify"], kinematics.model.tip_friction)
    parts = convex_parts(inputs.artifacts["reconstruct"])
    rows = np.random.default_rng([inputs.seed, 8]).integers(
        0, len(posterior.samples), params.trials
    )

    def world_of(trial: int) -> tuple[World, float]:
        row = int(rows[trial])
        model, grip = posterior.object_model(parts, row), float(posterior.grip_samples()[row])
        scene = twin_scene(kinematics.model, model, tip_friction=grip)
        return World(scene, kinematics, np.eye(4)), model.mass * GRAVITY / (2.0 * grip)

    rest = np.eye(4)
    rest[2, 3] = -min(float(part[:, 2].min()) for part in parts)
    trials = grasp_trials(
        load_policy(policy_tree, kinematics), world_of, np.eye(4), rest, params, inputs.seed
    )
    table = compare.parameter_table(
        inputs.artifacts["identify"],
        _reference(
            inputs.truth / "reference.yaml", inputs.artifacts["identify"].attrs["parameters"]
        ),
    )
    figures = [
        *_shared(inputs, params, trials, "grasp_success_in_twin"),
        *_parameter_figures(table, params),
    ]
    return _groups("twin", trials, figures, table)


def _reference(path: Path, known: Sequence[str]) -> dict[str, float]:
    """Measured values of a real object (`mass: 0.365`), or none; `known` are the names."""
    if not path.is_file():
        return {}
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        values = {str(name): float(value) for name, value in (content or {}).items()}
    except (yaml.YAMLError, AttributeError, TypeError, ValueError) as error:
        raise InputError(
            f"{path}: {error}; expected a mapping of parameters to numbers in SI, as `mass: 0.365`"
        ) from error
    unknown = sorted(set(values) - set(known))
    if unknown:
        raise InputError(f"{path}: unknown parameters {unknown}, expected some of {list(known)}")
    return values


def _shared(inputs: Inputs, params: Params, trials: xr.Dataset, success_name: str) -> list[Figure]:
    success = trials["success"].values
    psnr = inputs.artifacts["reconstruct"]["heldout"]["psnr"].values
    figures = [
        mean_figure("held_out_psnr", psnr, "dB", "higher", params.target_psnr),
        rate_figure(success_name, success[0], params.target_grasp),
    ]
    figures += [
        rate_figure(f"{success_name}_{name}", success[row])
        for row, name in enumerate(trials.attrs["controllers"])
        if row > 0
    ]
    side = np.minimum(trials["finger_side_force"].values, trials["thumb_side_force"].values)[0]
    held = success[0].astype(bool)
    ratio = (side / trials["needed_force"].values)[held]
    figures += [
        mean_figure("grip_force_over_needed", ratio, "1", "none"),
        mean_figure("slip_while_lifting", 1e3 * trials["slip"].values[0][held], "mm", "lower"),
    ]
    pose_only = inputs.artifacts["identify"]["pose_only"]["identifiable"].values
    mass = list(inputs.artifacts["identify"].attrs["parameters"]).index("mass")
    unknown = float(pose_only[mass] == 0)
    figures.append(Figure("mass_unidentifiable_from_poses", unknown, "1", "higher", 1.0, count=1))
    error = _held_out_error(inputs.artifacts["identify"])
    if error is not None:
        figures.append(error)
    return figures


def _held_out_error(physics: xr.DataTree) -> Figure | None:
    """Prediction error of the pushes that identify kept out: RMS distance over frames, per push."""
    if "residuals" not in physics.children:
        return None
    data = physics["residuals"].to_dataset()
    if not {"held_out", "frame_push", "predicted_position", "measured_position"} <= set(data):
        return None
    squared = ((data["predicted_position"] - data["measured_position"]).values ** 2).sum(axis=1)
    push, held = data["frame_push"].values, np.flatnonzero(data["held_out"].values)
    rms = np.array([np.sqrt(squared[push == k].mean()) for k in held if (push == k).any()])
    return mean_figure("held_out_push_prediction", 1e3 * rms, "mm", "lower")


def _tracking_figures(tracking: xr.Dataset, params: Params) -> list[Figure]:
    frames, lost = tracking["frames"].values, tracking["lost"].values
    seen = frames - lost
    add = tracking["add_mean"].values
    known = np.isfinite(add) & (seen > 0)
    overall = float(np.average(add[known], weights=seen[known])) if known.any() else float("nan")
    total = int(frames.sum())
    return [
        Figure(
            "tracking_add", 1e3 * overall, "mm", "lower", params.target_add, count=int(seen.sum())
        ),
        Figure(
            "tracking_lost_frames",
            float(lost.sum()) / total if total else float("nan"),
            "1",
            "lower",
            count=total,
        ),
        mean_figure(
            "clock_offset_error", 1e3 * np.abs(tracking["clock_error"].values), "ms", "lower"
        ),
    ]


def _parameter_figures(table: xr.Dataset, params: Params) -> list[Figure]:
    names = list(table.attrs["parameters"])
    truth, value = table["truth"].values, table["value"].values
    figures = []
    for name, target in (("mass", params.target_mass), ("friction", float("nan"))):
        if name in names and np.isfinite(truth[names.index(name)]):
            i = names.index(name)
            relative = 100.0 * abs(value[i] - truth[i]) / truth[i]
            figures.append(Figure(f"{name}_error", relative, "%", "lower", target, count=1))
            covered = float(table["covered"].values[i])
            figures.append(Figure(f"{name}_interval_covers", covered, "1", "higher", 1.0, count=1))
    com = [names.index(f"com_{axis}") for axis in "xyz" if f"com_{axis}" in names]
    if len(com) == 3 and np.isfinite(truth[com]).all():
        gap = 1e3 * float(np.linalg.norm(value[com] - truth[com]))
        figures.append(Figure("com_error", gap, "mm", "lower", count=1))
    covered = table["covered"].values
    if (covered >= 0).any():
        figures.append(rate_figure("intervals_that_cover", covered[covered >= 0]))
    return figures


def _groups(
    world: str, trials: xr.Dataset, figures: list[Figure], table: xr.Dataset
) -> dict[str, xr.Dataset]:
    return {
        "/": xr.Dataset(attrs={"world": world, "controllers": list(trials.attrs["controllers"])}),
        "/trials": trials,
        "/figures": to_dataset(figures),
        "/parameters": table,
    }
