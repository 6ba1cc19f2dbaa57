"""Estimates beside the truth: mesh, poses, physics, clocks. Pure functions over artifacts."""

from __future__ import annotations

import numpy as np
import xarray as xr

from twinloop.geometry import se3
from twinloop.geometry.surface import TriangleSurface
from twinloop.metrics.chamfer import chamfer_distance, refine_rigid, sample_surface
from twinloop.metrics.poses import average_distance, interpolate_poses

INERTIA = {
    "inertia_xx": (0, 0),
    "inertia_yy": (1, 1),
    "inertia_zz": (2, 2),
    "inertia_xy": (0, 1),
    "inertia_xz": (0, 2),
    "inertia_yz": (1, 2),
}


def scan_pose(reconstruction: xr.DataTree) -> np.ndarray:
    """`T_scanworld_object` (4, 4) of the reconstruction."""
    return se3.from_position_quaternion(
        reconstruction["position_world_object"].values,
        reconstruction["quaternion_world_object"].values,
    )


def mesh_errors(
    reconstruction: xr.DataTree,
    truth: xr.DataTree,
    T_object_labobject: np.ndarray,
    samples: int,
    seed: int,
) -> dict[str, object]:
    """Chamfer distance of the reconstructed and the true surface, as placed and after a rigid fit.

    Args:
        reconstruction: artifact of reconstruct.
        truth: artifact of the lab.
        T_object_labobject: (4, 4) known frames: true object coordinates into the reconstruction's.
        samples: points per surface.
        seed: of the sampling.

    Returns:
        `chamfer` and `chamfer_aligned` (m), `point` (n, 3), `distance` (n,) to the true surface, m,
        `shift` (m) and `turn` (rad) of the rigid fit.
    """
    vertices, faces = (
        reconstruction["mesh"]["vertices"].values,
        reconstruction["mesh"]["faces"].values,
    )
    true_vertices = se3.apply(T_object_labobject, truth["mesh"]["vertices"].values)
    true_faces = truth["mesh"]["faces"].values
    ours, theirs = TriangleSurface(vertices, faces), TriangleSurface(true_vertices, true_faces)
    points = sample_surface(vertices, faces, samples, seed)
    true_points = sample_surface(true_vertices, true_faces, samples, seed + 1)
    placed = chamfer_distance(points, ours, true_points, theirs)
    fit = refine_rigid(points[:: max(1, samples // 1000)], theirs)
    moved = TriangleSurface(se3.apply(fit, vertices), faces)
    aligned = chamfer_distance(se3.apply(fit, points), moved, true_points, theirs)
    if aligned.mean > placed.mean:
        # The fit leaves out the worst tenth of the pairs, which may cost more than it gains.
        fit, aligned = np.eye(4), placed
    angle = np.arccos(np.clip((np.trace(fit[:3, :3]) - 1.0) / 2.0, -1.0, 1.0))
    return {
        "chamfer": placed.mean,
        "chamfer_aligned": aligned.mean,
        "point": points,
        "distance": placed.a_to_b,
        "shift": float(np.linalg.norm(fit[:3, 3])),
        "turn": float(angle),
    }


def push_names(tree: xr.DataTree) -> list[str]:
    """Names of the push groups, in order."""
    return sorted(name for name in tree.children if name.startswith("push_"))


def tracking_errors(
    tracks: xr.DataTree,
    pushes: xr.DataTree,
    truth: xr.DataTree,
    T_labobject_object: np.ndarray,
    points: np.ndarray,
) -> xr.Dataset:
    """ADD of every push against the true poses, and the error of the clock offset.

    Args:
        tracks: artifact of track.
        pushes: artifact of push (clock offsets).
        truth: artifact of the lab.
        T_labobject_object: (4, 4) object frame of the reconstruction in the lab object's.
        points: (p, 3) points of the object, object frame, m.
    """
    names = [name for name in push_names(tracks) if name in truth.children]
    rows = []
    for name in names:
        track, true = tracks[name], truth[name]
        estimate = se3.from_position_quaternion(
            track["position_world_object"].values, track["quaternion_world_object"].values
        )
        poses = se3.from_position_quaternion(
            true["position_world_labobject"].values, true["quaternion_world_labobject"].values
        )
        at = (
            interpolate_poses(true["time"].values, poses, track["time"].values) @ T_labobject_object
        )
        add = average_distance(estimate, at, points)
        seen = track["status"].values < 2
        clock = np.nan
        if name in pushes.children:
            clock = float(pushes[name]["clock_offset"].values) - float(true["clock_offset"].values)
        chosen = add[seen] if seen.any() else np.array([np.nan])
        rows.append((chosen.mean(), np.quantile(chosen, 0.95), len(add), int((~seen).sum()), clock))
    columns = (
        [np.array(column) for column in zip(*rows, strict=True)] if rows else [np.zeros(0)] * 5
    )
    return xr.Dataset(
        {
            "add_mean": ("push", columns[0].astype(np.float64)),
            "add_p95": ("push", columns[1].astype(np.float64)),
            "frames": ("push", columns[2].astype(np.int32)),
            "lost": ("push", columns[3].astype(np.int32)),
            "clock_error": ("push", columns[4].astype(np.float64)),
        },
        attrs={"pushes": names},
    )


def true_parameters(
    truth: xr.DataTree, T_object_labobject: np.ndarray, pad_friction: float
) -> dict[str, float]:
    """True values of the identified parameters, moved into the reconstruction's object frame."""
    rotation = T_object_labobject[:3, :3]
    com = se3.apply(T_object_labobject, truth["com"].values[None])[0]
    inertia = rotation @ truth["inertia"].values @ rotation.T
    values = {
        "mass": float(truth["mass"].values),
        "friction": float(truth["friction"].values),
        "friction_tip": pad_friction,
    }
    values |= {f"com_{axis}": float(com[i]) for i, axis in enumerate("xyz")}
    values |= {name: float(inertia[i, j]) for name, (i, j) in INERTIA.items()}
    return values


def parameter_table(physics: xr.DataTree, known: dict[str, float]) -> xr.Dataset:
    """Identified values beside known ones: covered 1, not covered 0, unknown -1."""
    names = [str(name) for name in physics.attrs["parameters"]]
    value, low, high = (
        np.asarray(physics[key].values, dtype=np.float64) for key in ("value", "low", "high")
    )
    truth = np.array([known.get(name, np.nan) for name in names])
    covered = np.where(np.isnan(truth), -1, ((low <= truth) & (truth <= high)).astype(int))
    return xr.Dataset(
        {
            "value": ("parameter", value),
            "low": ("parameter", low),
            "high": ("parameter", high),
            "truth": ("parameter", truth),
            "covered": ("parameter", covered.astype(np.int8)),
            "identifiable": (
                "parameter",
                np.asarray(physics["identifiable"].values).astype(np.int8),
            ),
        },
        attrs={"parameters": names, "units": [str(unit) for unit in physics.attrs["units"]]},
    )
