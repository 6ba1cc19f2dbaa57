"""The twin as a MuJoCo world: table, robot, and the identified object made of its convex parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mujoco
import numpy as np
import xarray as xr
from numpy.typing import NDArray

from twinloop.errors import InputError
from twinloop.hand.mjcf import WORLD, add_robot, low_tessellation
from twinloop.hand.model import RobotModel
from twinloop.policy.force_law import GRAVITY

Array = NDArray[np.float64]
OBJECT_BODY = "object"
OBJECT_JOINT = "object_free"
TIMESTEP = 0.002


@dataclass(frozen=True)
class ObjectModel:
    """What a world needs to know of an object; everything in the object frame, SI.

    Attributes:
        parts: convex pieces, each (p, 3) vertices, m.
        mass: kg.
        com: (3,) centre of mass, m.
        inertia: (3, 3) about the centre of mass, kg m2.
        friction: Coulomb coefficient of its surface.
    """

    parts: Sequence[Array]
    mass: float
    com: Array
    inertia: Array
    friction: float


def physical_inertia(inertia: Array, mass: float) -> Array:
    """Nearest inertia that a solid body can have: symmetric, positive, triangle inequality.

    An estimate may break these rules within its error; MuJoCo refuses it then. Principal moments
    are I_k = S - s_k with second moments s_k of the mass, so it suffices that no s_k is below a
    small floor.

    Args:
        inertia: (3, 3) kg m2.
        mass: kg, sets the floor: a body is at least 2 mm thick.
    """
    symmetric = 0.5 * (inertia + inertia.T)
    moments, axes = np.linalg.eigh(symmetric)
    second = np.maximum(0.5 * moments.sum() - moments, mass * (0.002**2) / 12.0)
    result: Array = axes @ np.diag(second.sum() - second) @ axes.T
    return result


def add_object(spec: mujoco.MjSpec, model: ObjectModel, tip_friction: float | None) -> None:
    """Add the object as body `object` with a free joint to a world.

    Args:
        spec: world, changed in place.
        model: the object.
        tip_friction: coefficient between finger pads and the object; None leaves MuJoCo's rule, the
            larger of the two surfaces'. Otherwise the value holds for *every* contact of the
            object.

    Raises:
        InputError: no parts, or a part of fewer than four vertices.
    """
    if not model.parts:
        raise InputError("object without convex parts: expected at least one; reconstruct it again")
    body = spec.worldbody.add_body(name=OBJECT_BODY)
    body.add_freejoint(name=OBJECT_JOINT)
    body.explicitinertial = True
    body.mass = model.mass
    body.ipos = model.com
    inertia = physical_inertia(model.inertia, model.mass)
    body.fullinertia = [inertia[i, j] for i, j in ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))]
    for number, part in enumerate(model.parts):
        if len(part) < 4:
            raise InputError(f"convex part {number} has {len(part)} vertices; expected at least 4")
        name = f"object_part_{number}"
        spec.add_mesh(name=name, uservert=np.asarray(part, dtype=np.float64).ravel())
        geom = body.add_geom(name=name, type=mujoco.mjtGeom.mjGEOM_MESH, meshname=name)
        geom.contype, geom.conaffinity = WORLD, 3
        geom.condim = 4
        geom.friction = [tip_friction or model.friction, 0.003, 0.0001]
        geom.priority = 1 if tip_friction is not None else 0
        geom.rgba = [0.85, 0.45, 0.20, 1.0]


def twin_scene(
    robot: RobotModel,
    model: ObjectModel,
    *,
    base: Array | None = None,
    tip_friction: float | None = None,
    timestep: float = TIMESTEP,
) -> mujoco.MjModel:
    """Compile the world: table at z = 0, robot, object.

    Args:
        robot: the robot; actuators, sites and sensors carry its names.
        model: the object.
        base: (4, 4) `T_world_base`.
        tip_friction: see `add_object`.
        timestep: s.
    """
    spec = mujoco.MjSpec()
    spec.modelname = "twin"
    spec.compiler.degree = False
    low_tessellation(spec)
    option = spec.option
    option.timestep = timestep
    option.gravity = [0.0, 0.0, -GRAVITY]
    option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    # Elliptic cones, stiff friction and a few no-slip sweeps: without them a held object creeps.
    option.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
    option.impratio = 10.0
    option.noslip_iterations = 3
    spec.worldbody.add_light(pos=[0.4, -0.6, 1.5], dir=[-0.25, 0.35, -1.0])
    table = spec.worldbody.add_geom(name="table", type=mujoco.mjtGeom.mjGEOM_PLANE)
    table.size = [1.0, 1.0, 0.05]
    table.contype, table.conaffinity = WORLD, 3
    table.friction = [min(model.friction, 0.3), 0.003, 0.0001]
    table.rgba = [0.62, 0.60, 0.56, 1.0]
    add_robot(spec, robot, base)
    add_object(spec, model, tip_friction)
    return spec.compile()


def convex_parts(reconstruction: xr.DataTree) -> list[Array]:
    """Vertices of each convex piece, object frame, m."""
    pieces = reconstruction.children["parts"].to_dataset()
    vertices, label = pieces["vertices"].values, pieces["part"].values
    return [vertices[label == part] for part in np.unique(label)]
