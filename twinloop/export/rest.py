"""Whether an object rests as it should: its convex pieces on a plane in MuJoCo."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import mujoco
import numpy as np
from numpy.typing import NDArray

from twinloop.errors import InputError
from twinloop.export.mesh_files import hull_faces, write_obj
from twinloop.export.mjcf import object_mjcf, scene_mjcf
from twinloop.export.properties import Properties
from twinloop.geometry import quaternion
from twinloop.geometry.mesh import mass_properties

Float = NDArray[np.float64]


@dataclass(frozen=True)
class Rest:
    """How an object rests on a plane.

    Attributes:
        sank: m, how far it came down while it settled; negative: it was pushed up.
        tilt: deg, how far its up axis turned while it settled. Large: another face is down now.
        drift: m, how far its origin moved while it was watched.
        turn: deg, how far it turned while it was watched.
        penetration: m, deepest contact while it was watched.
    """

    sank: float
    tilt: float
    drift: float
    turn: float
    penetration: float

    def stable(self) -> bool:
        """Whether it stands on the face it was put on, still, and less than 0.2 mm in the plane."""
        return (
            self.tilt < 1.0
            and self.drift < 1e-4
            and self.turn < 0.1
            and abs(self.penetration) < 2e-4
        )


def uniform_properties(
    vertices: Float, faces: NDArray[np.integer], mass: float, friction: float = 0.3
) -> Properties:
    """Return what a simulator needs of a solid of even density, before it is identified.

    Args:
        vertices: (v, 3) m, closed mesh.
        faces: (f, 3), outward.
        mass: kg.
        friction: Coefficient against a table.

    Raises:
        InputError: The mesh encloses no volume, or the mass is not positive.
    """
    solid = mass_properties(vertices, faces)
    if not (solid.volume > 0 and mass > 0):
        raise InputError(
            f"object of {mass} kg whose mesh encloses {solid.volume:.3g} m^3: expected both above 0"
        )
    return Properties(mass, friction, solid.centroid, solid.inertia * mass / solid.volume, ())


def rest_pose(
    parts: Sequence[Float], properties: Properties, *, settle: float = 1.0, watch: float = 2.0
) -> Rest:
    """Set convex pieces on a plane as they are turned, let them settle, then watch them.

    The model is the one that is exported (`object_mjcf`, `scene_mjcf`), with its contacts.

    Args:
        parts: Vertices (n, 3) m of each convex piece, z up as the object is to stand.
        properties: Mass, friction, centre of mass and inertia in the same frame.
        settle: s, before it is watched.
        watch: s.

    Raises:
        InputError: No parts, or values that MuJoCo makes no model of.
    """
    if not parts:
        raise InputError("object without convex parts: expected at least one; reconstruct it again")
    height = -min(float(part[:, 2].min()) for part in parts)
    with tempfile.TemporaryDirectory(prefix="twinloop-rest-") as name:
        folder = Path(name)
        for sub in ("meshes", "mjcf"):
            (folder / sub).mkdir()
        for index, part in enumerate(parts):
            write_obj(folder / f"meshes/collision_{index:03d}.obj", *hull_faces(part), "piece, m")
        write_obj(folder / "meshes/visual.obj", *hull_faces(np.concatenate(parts)), "hull, m")
        text = object_mjcf("object", len(parts), properties, height)
        (folder / "mjcf/object.xml").write_text(text)
        (folder / "mjcf/scene.xml").write_text(scene_mjcf("object"))
        try:
            model = mujoco.MjModel.from_xml_path(str(folder / "mjcf/scene.xml"))
        except ValueError as error:
            raise InputError(f"object to be set down: MuJoCo refuses it: {error}") from error
    data = mujoco.MjData(model)
    start = data.qpos[:7].copy()
    while data.time < settle:
        mujoco.mj_step(model, data)
    settled = data.qpos[:7].copy()
    deepest = drift = turn = 0.0
    while data.time < settle + watch:
        mujoco.mj_step(model, data)
        contacts = data.contact.dist[: data.ncon]
        deepest = max(deepest, -float(contacts.min(initial=0.0)))
        drift = max(drift, float(np.linalg.norm(data.qpos[:3] - settled[:3])))
        turn = max(turn, _angle(settled[3:], data.qpos[3:7]))
    up = quaternion.to_matrix(settled[3:])[2, 2]
    tilt = float(np.degrees(np.arccos(np.clip(up, -1, 1))))
    return Rest(float(start[2] - settled[2]), tilt, drift, turn, deepest)


def _angle(a: Float, b: Float) -> float:
    """Angle between two rotations (4,) wxyz, deg."""
    turn = quaternion.to_matrix(a).T @ quaternion.to_matrix(b)
    axis = np.array([turn[2, 1] - turn[1, 2], turn[0, 2] - turn[2, 0], turn[1, 0] - turn[0, 1]])
    # The sine, not the cosine: it is exact for small angles.
    return float(np.degrees(np.arctan2(np.linalg.norm(axis) / 2, (np.trace(turn) - 1) / 2)))
