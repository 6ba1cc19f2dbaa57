"""A twin made by hand for tests of the last stages: a box of known mass, friction and pose."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import trimesh
import xarray as xr

from stages.harness import Inputs
from twinloop.card import ObjectCard
from twinloop.geometry.sdf import bake

SIZE = (0.100, 0.055, 0.085)
MASS = 0.365
FRICTION = 0.3
NAMES = ["mass", "friction", "com_x", "com_y", "com_z"]
NAMES += [f"inertia_{k}" for k in ("xx", "yy", "zz", "xy", "xz", "yz")] + ["friction_tip"]
UNITS = ["kg", "1", "m", "m", "m", *["kg m^2"] * 6, "1"]


def box_mesh(size=SIZE):
    """Box mesh around the origin, sides split so that faces are 5 mm or so."""
    mesh = trimesh.creation.box(size)
    return mesh.subdivide_to_size(0.02)


def reconstruction(size=SIZE) -> xr.DataTree:
    """Reconstruction of the box, standing on the scan board at (0.05, 0.02)."""
    mesh = box_mesh(size)
    corners = trimesh.creation.box(size).vertices
    return xr.DataTree.from_dict(
        {
            "/": xr.Dataset(
                {
                    "position_world_object": ("xyz", np.array([0.05, 0.02, size[2] / 2])),
                    "quaternion_world_object": ("wxyz", np.array([1.0, 0.0, 0.0, 0.0])),
                }
            ),
            "/mesh": xr.Dataset(
                {
                    "vertices": (("vertex", "xyz"), np.asarray(mesh.vertices)),
                    "faces": (("face", "corner"), np.asarray(mesh.faces, dtype=np.int32)),
                    "colors": (
                        ("vertex", "channel"),
                        np.full((len(mesh.vertices), 3), 128, dtype=np.uint8),
                    ),
                }
            ),
            "/distance": bake(
                np.asarray(mesh.vertices), np.asarray(mesh.faces), margin=0.02, cells=64
            ).to_dataset(),
            "/parts": xr.Dataset(
                {
                    "vertices": (("part_vertex", "xyz"), np.asarray(corners)),
                    "part": ("part_vertex", np.zeros(len(corners), dtype=np.int32)),
                }
            ),
            "/heldout": xr.Dataset(
                {
                    "frame": ("view", np.array([0, 8], dtype=np.int32)),
                    "psnr": ("view", np.array([29.0, 31.0])),
                }
            ),
        }
    )


def physics(
    mass=MASS, friction=FRICTION, size=SIZE, spread=0.04, samples=64, pad_known=True, pad=0.8
) -> xr.DataTree:
    """Identified physics of the box with a log-normal posterior of the given spread."""
    rng = np.random.default_rng(5)
    moments = mass / 12 * (np.sum(np.square(size)) - np.square(size))
    value = np.array([mass, friction, 0.004, 0.0, 0.0, *moments, 0, 0, 0, pad])
    scale = np.array([mass, friction, 0.02, 0.02, 0.02, *moments, *[moments[0] * 0.1] * 3, pad])
    std = spread * np.abs(scale)
    draws = value + std * rng.standard_normal((samples, len(value)))
    known = np.ones(len(value), dtype=np.int8)
    known[-1] = pad_known
    estimate = {
        "value": ("parameter", value),
        "std": ("parameter", std),
        "low": ("parameter", value - 1.96 * std),
        "high": ("parameter", value + 1.96 * std),
        "identifiable": ("parameter", known),
    }
    return xr.DataTree.from_dict(
        {
            "/": xr.Dataset(
                {**estimate, "samples": (("sample", "parameter"), draws)},
                attrs={"parameters": NAMES, "units": UNITS},
            ),
            "/pose_only": xr.Dataset(estimate),
        }
    )


def hand_keypoints(frames=40, noise=0.002, scale=1.0, size=SIZE):
    """A right human hand that comes from above, grips the box across its narrow side, and lifts it.

    Returns time (f,), keypoints (f, 21, 3) in the world, and the object's motion (f, 4, 4).
    """
    rng = np.random.default_rng(11)
    time = np.linspace(0.0, 3.0, frames)
    opening = np.interp(time, [0.0, 1.0, 1.5, 3.0], [0.03, 0.03, 0.0, 0.0])
    above = np.interp(time, [0.0, 1.0, 3.0], [0.12, 0.0, 0.0])
    lift = np.interp(time, [0.0, 2.0, 3.0], [0.0, 0.0, 0.1])
    half = size[1] / 2 + 0.008
    origin = np.array([0.05, 0.02, size[2] / 2])
    keypoints = np.zeros((frames, 21, 3))
    motion = np.tile(np.eye(4), (frames, 1, 1))
    motion[:, 2, 3] = lift
    for f in range(frames):
        wrist = np.array([0.0, 0.03, 0.16])
        tips = {4: np.array([0.0, -half - opening[f], 0.0])}
        for index, x in ((8, -0.025), (12, 0.0), (16, 0.025), (20, 0.045)):
            tips[index] = np.array([x, half + opening[f], 0.0])
        points = np.zeros((21, 3))
        points[0] = wrist
        for tip, end in tips.items():
            for k in range(4):
                part = (k + 1) / 4
                points[tip - 3 + k] = wrist + part * (end - wrist)
        points[9] = wrist + np.array([0.0, 0.01, -0.09])
        points = wrist + scale * (points - wrist)
        keypoints[f] = points + origin + [0.0, 0.0, above[f] + lift[f]]
    return time, keypoints + noise * rng.standard_normal(keypoints.shape), motion


def write_demo(folder: Path, **options) -> None:
    """Write `hand_keypoints` as a capture: hand.npz and object_motion.csv."""
    folder.mkdir(parents=True, exist_ok=True)
    time, keypoints, motion = hand_keypoints(**options)
    np.savez(folder / "hand.npz", time=time, keypoints=keypoints, handedness=np.str_("right"))
    lines = ["time,x,y,z,qw,qx,qy,qz"]
    for t, pose in zip(time, motion, strict=True):
        x, y, z = pose[:3, 3]
        lines.append(f"{t!r},{x!r},{y!r},{z!r},1,0,0,0".replace("np.float64(", "").replace(")", ""))
    (folder / "object_motion.csv").write_text("\n".join(lines) + "\n")


def inputs(root: Path, artifacts: dict[str, xr.DataTree]) -> Inputs:
    """Inputs of a stage for the object `box` in a scratch project."""
    card = ObjectCard(name="box", license="CC0-1.0")
    return Inputs("box", root, card, artifacts, "cpu", 0)
