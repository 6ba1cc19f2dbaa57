"""From pushes and a mesh to physical parameters with intervals and verdicts."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from stages.harness import Inputs
from stages.identify.params import Params
from twinloop.errors import InputError
from twinloop.geometry.object_grid import object_grid
from twinloop.physics.fit import (
    Curves,
    FitSettings,
    Identification,
    contact_reach,
    identify,
)
from twinloop.physics.likelihood import NoiseModel
from twinloop.physics.parameters import Priors
from twinloop.physics.posterior import NAMES, UNITS, Estimates
from twinloop.physics.record import PushRecord, WindowSettings
from twinloop.threads import worker_count

# A lift is several fingers around the object: the engine's single fingertip cannot stand for it.
_UNMODELLED = ("lift",)


def run(inputs: Inputs, params: Params) -> dict[str, xr.Dataset]:
    """Identify the object; contact asks the distance grid that the reconstruction stores.

    Raises:
        InputError: No push can be fitted.
    """
    pushes = inputs.artifacts["push"]
    reconstruction = inputs.artifacts["reconstruct"]
    mesh = reconstruction["mesh"]
    names = sorted(str(name) for name in pushes.children)
    left_out = {
        name: f"{name}: action {pushes[name].attrs['action']!r} is not modelled"
        for name in names
        if pushes[name].attrs.get("action") in _UNMODELLED
    }
    records = [push_record(name, pushes[name]) for name in names if name not in left_out]
    if not records:
        raise InputError(
            f"{inputs.object}: push.zarr holds no push that can be fitted ({len(names)} pushes, "
            f"{len(left_out)} lifts); record at least one tap, slide, tilt or flick"
        )
    found = identify(
        records,
        mesh["vertices"].to_numpy().astype(np.float64),
        mesh["faces"].to_numpy().astype(np.int32),
        fit_settings(params),
        grid=object_grid(reconstruction, inputs.object, reach=contact_reach(records)),
    )
    return to_groups(found, left_out)


def push_record(name: str, group: xr.DataTree) -> PushRecord:
    """One push of the ``pushes`` artifact as the estimator takes it."""
    data = group.to_dataset()

    def array(key: str) -> Any:
        return data[key].to_numpy().astype(np.float64)

    return PushRecord(
        name=name,
        held_out=bool(group.attrs.get("held_out", False)),
        robot_time=array("robot_time"),
        tip_position=array("tip_position"),
        tip_velocity=array("tip_velocity"),
        contact_force=array("contact_force"),
        contact_force_std=array("contact_force_std"),
        frame_time=array("frame_time"),
        position=array("position_world_object"),
        quaternion=array("quaternion_world_object"),
        covariance=array("covariance"),
        usable=data["status"].to_numpy() == 0,
        clock_offset=float(data["clock_offset"]),
        clock_offset_std=float(data["clock_offset_std"]),
        tip_radius=float(group.attrs["tip_radius"]),
    )


def fit_settings(params: Params) -> FitSettings:
    """The library's settings from the stage's parameters."""
    return FitSettings(
        window=WindowSettings(
            dt=params.step,
            every=params.steps_per_record,
            bin_records=params.records_per_bin,
            lead=params.lead,
            tail=params.tail,
            longest=params.longest_push,
            max_tilt=params.max_tilt,
        ),
        noise=NoiseModel(
            motion_share=params.motion_error,
            force_share=params.force_error,
            force_across=params.force_error_across,
            jitter=params.force_jitter,
            correlation=params.error_correlation,
            temperature=params.temperature,
            huber=params.huber,
        ),
        priors=Priors(
            density=(params.prior_density, params.prior_log_density_std),
            friction=(params.prior_friction, params.prior_log_friction_std),
            tip_friction=(params.prior_tip_friction, params.prior_log_tip_friction_std),
            com_std=params.prior_com_std,
            extent_std=params.prior_extent_std,
            edge_radius=(params.prior_edge_radius, params.prior_edge_radius_std),
            camera_std=params.camera_std,
            drag_std=params.drag_std,
            force_std=params.force_bias_std,
            gain_std=params.effort_gain_std,
        ),
        starts=params.starts,
        first_iterations=params.first_iterations,
        explore_iterations=params.explore_iterations,
        iterations=params.iterations,
        draws=params.draws,
        samples=params.samples,
        seed=params.seed,
        threads=worker_count(),
    )


def to_groups(found: Identification, left_out: dict[str, str]) -> dict[str, xr.Dataset]:
    """The ``physics`` artifact's groups."""
    full, poses = found.full, found.pose_only
    root = _estimate(full).assign(
        samples=(("sample", "parameter"), full.samples),
        prior_value=("parameter", full.prior_value),
        prior_std=("parameter", full.prior_std),
        unknown_value=("unknown", found.unknown_value),
        unknown_std=("unknown", found.unknown_std),
        unknown_prior_std=("unknown", found.unknown_prior_std),
    )
    root.attrs = {
        "parameters": list(NAMES),
        "units": list(UNITS),
        "verdicts": list(full.verdict),
        "unknowns": list(found.unknown_names),
        "excluded": {**left_out, **found.excluded},
        "cost": found.optimum.cost,
        "iterations": found.optimum.iterations,
    }
    pose_only = _estimate(poses)
    pose_only.attrs = {"verdicts": list(poses.verdict)}
    return {"/": root, "pose_only": pose_only, "residuals": _residuals(found.curves)}


def _estimate(estimates: Estimates) -> xr.Dataset:
    return xr.Dataset(
        {
            "value": ("parameter", estimates.value),
            "std": ("parameter", estimates.std),
            "low": ("parameter", estimates.low),
            "high": ("parameter", estimates.high),
            "identifiable": ("parameter", estimates.identifiable),
        }
    )


def _residuals(curves: tuple[Curves, ...]) -> xr.Dataset:
    """All pushes behind each other: one group, whatever their number."""
    curves = tuple(sorted(curves, key=lambda c: c.name))

    def index(lengths: list[int]) -> Any:
        return np.repeat(np.arange(len(curves), dtype=np.int32), lengths)

    def joined(field: str) -> Any:
        return np.concatenate([getattr(c, field) for c in curves])

    vectors = ("measured_position", "predicted_position", "measured_rotation", "predicted_rotation")
    forces = ("measured_force", "predicted_force", "force_std")
    data: dict[str, Any] = {
        "held_out": ("push", np.array([c.held_out for c in curves], dtype=np.int8)),
        "pose_chi2": ("push", np.array([c.pose_chi2 for c in curves])),
        "force_chi2": ("push", np.array([c.force_chi2 for c in curves])),
        "frame_push": ("frame", index([len(c.frame_time) for c in curves])),
        "frame_time": ("frame", joined("frame_time")),
        "bin_push": ("bin", index([len(c.bin_time) for c in curves])),
        "bin_time": ("bin", joined("bin_time")),
    }
    data |= {name: (("frame", "xyz"), joined(name)) for name in vectors}
    data |= {name: (("bin", "xyz"), joined(name)) for name in forces}
    return xr.Dataset(data, attrs={"pushes": [c.name for c in curves]})
