"""The lab's physics: table, robot and object in MuJoCo, stepped finely and recorded.

MuJoCo stands in for reality. The object rests on many small support spheres, one per hull vertex,
all of which may touch the table at once: a mesh against a plane gets three contacts at most there,
too few for a flat bottom that tilts about its edge. The robot touches the convex pieces.
"""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np
from numpy.typing import NDArray

from twinloop.errors import InputError
from twinloop.geometry import quaternion, se3
from twinloop.hand.mjcf import WORLD, add_robot, low_tessellation
from twinloop.hand.model import RobotModel
from twinloop.lab.objects import LabObject

FloatArray = NDArray[np.float64]

LOG_RATE = 300
"""Hz; commands are given and the log is sampled at this rate."""
SUPPORT_RADIUS = 1e-4
MAX_SUPPORTS = 96
_TABLE, _SUPPORT = 4, 4
_SOLREF = (0.007, 1.0)
_SOLIMP = (0.85, 0.95, 0.0005, 0.5, 2.0)


@dataclass(frozen=True)
class RobotTruth:
    """How the real robot differs from its datasheet: factors per joint (n,)."""

    coulomb: FloatArray
    viscous: FloatArray
    armature: FloatArray


def robot_truth(robot: RobotModel, rng: np.random.Generator) -> RobotTruth:
    """Draw a real robot: dry friction -20..+30 %, viscous -20..+25 %, rotor inertia +-10 %."""
    n = robot.dof
    return RobotTruth(rng.uniform(0.8, 1.3, n), rng.uniform(0.8, 1.25, n), rng.uniform(0.9, 1.1, n))


def support_points(obj: LabObject) -> FloatArray:
    """Points (s, 3) of the object frame that may touch the table: vertices of the convex pieces.

    At most ``MAX_SUPPORTS``, chosen by farthest-point sampling from the lowest vertex on.
    """
    points = np.unique(np.round(np.concatenate([part[0] for part in obj.parts]), 9), axis=0)
    if len(points) <= MAX_SUPPORTS:
        return points
    order = [int(np.lexsort((points[:, 1], points[:, 0], points[:, 2]))[0])]
    distance = np.linalg.norm(points - points[order[0]], axis=1)
    # Points of the resting face come first: they carry the object in nearly every push.
    resting = np.where(points[:, 2] < points[:, 2].min() + 1e-6, 1.0, 0.0)
    for weight in (resting, np.ones(len(points))):
        while len(order) < MAX_SUPPORTS and (distance * weight).max() > 1e-6:
            order.append(int(np.argmax(distance * weight)))
            distance = np.minimum(distance, np.linalg.norm(points - points[order[-1]], axis=1))
    return points[order]


def add_object(spec: mujoco.MjSpec, obj: LabObject, T_world_object: FloatArray) -> mujoco.MjsBody:
    """Add the object as a free body ``object`` with its hidden mass and contact shapes."""
    position, wxyz = se3.to_position_quaternion(T_world_object)
    body = spec.worldbody.add_body(name="object", pos=position, quat=wxyz)
    body.add_freejoint(name="object")
    body.explicitinertial = True
    body.mass = obj.mass
    body.ipos = obj.com
    inertia = obj.inertia
    body.fullinertia = [*np.diag(inertia), inertia[0, 1], inertia[0, 2], inertia[1, 2]]
    for number, (vertices, faces) in enumerate(obj.parts):
        name = f"part_{number}"
        mesh = spec.add_mesh(name=name)
        mesh.uservert = np.asarray(vertices, dtype=np.float64).ravel()
        mesh.userface = np.asarray(faces, dtype=np.int32).ravel()
        geom = body.add_geom(name=name, type=mujoco.mjtGeom.mjGEOM_MESH, meshname=name)
        geom.contype, geom.conaffinity, geom.group, geom.mass = WORLD, 3, 3, 0.0
        geom.friction = [obj.friction, 0.003, 0.0001]
        geom.condim = 4
        geom.solref, geom.solimp = _SOLREF, _SOLIMP
    for number, point in enumerate(support_points(obj)):
        geom = body.add_geom(name=f"support_{number}", type=mujoco.mjtGeom.mjGEOM_SPHERE)
        geom.size = [SUPPORT_RADIUS, 0.0, 0.0]
        geom.pos = (point[0], point[1], point[2] + SUPPORT_RADIUS)
        geom.contype, geom.conaffinity, geom.group, geom.mass = _SUPPORT, 0, 3, 0.0
        # Priority: the pair's friction is exactly the object's coefficient, not the larger of two.
        geom.friction, geom.priority = [obj.friction, 0.0005, 0.0001], 1
        geom.condim = 3
        geom.solref, geom.solimp = _SOLREF, _SOLIMP
    return body


def build_world(
    obj: LabObject,
    robot: RobotModel,
    T_world_object: FloatArray,
    truth: RobotTruth | None = None,
    substeps: int = 10,
) -> mujoco.MjSpec:
    """Table at z = 0, the robot with its base at the origin, and the object.

    Args:
        obj: the object with its hidden properties.
        robot: the robot's datasheet.
        T_world_object: pose (4, 4) of the lab-object frame.
        truth: deviations of the real robot; none if None.
        substeps: physics steps per log sample (timestep = 1 / (300 substeps) s).
    """
    if substeps < 1:
        raise InputError(f"substeps is {substeps}, expected at least 1")
    spec = mujoco.MjSpec()
    spec.modelname = "lab"
    spec.compiler.degree = False
    option = spec.option
    option.timestep = 1.0 / (LOG_RATE * substeps)
    option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    option.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
    option.impratio = 50.0
    low_tessellation(spec)
    table = spec.worldbody.add_geom(name="table", type=mujoco.mjtGeom.mjGEOM_PLANE)
    table.size = [1.0, 1.0, 0.1]
    table.contype, table.conaffinity, table.group = _TABLE, 1 | _SUPPORT, 3
    table.friction, table.condim = [0.5, 0.003, 0.0001], 3
    factors = {}
    if truth is not None:
        factors = {
            "coulomb": truth.coulomb,
            "viscous": truth.viscous,
            "armature": truth.armature,
        }
    add_robot(spec, robot, scale=factors)
    add_object(spec, obj, T_world_object)
    return spec


@dataclass(frozen=True)
class Rollout:
    """What really happened, on the world's own clock (s).

    time (t,); qpos (t, nq) of the model; sample_time (k,) of the log; position, velocity, effort,
    command (k, joint): the joints without noise, effort is the motors' with friction, N or N m;
    contact_force (k, 3) N: force of the robot on the object, world frame.
    """

    time: FloatArray
    qpos: FloatArray
    sample_time: FloatArray
    position: FloatArray
    velocity: FloatArray
    effort: FloatArray
    command: FloatArray
    contact_force: FloatArray

    def object_poses(self, time: FloatArray) -> FloatArray:
        """``T_world_object`` (n, 4, 4) at world times (n,), interpolated."""
        states = self.qpos[:, -7:]
        position = np.stack([np.interp(time, self.time, states[:, i]) for i in range(3)], axis=-1)
        return se3.from_position_quaternion(
            position, quaternion.slerp(time, self.time, states[:, 3:])
        )

    def states(self, time: FloatArray) -> FloatArray:
        """Model states (n, nq) at world times (n,), for drawing."""
        linear = [
            np.interp(time, self.time, self.qpos[:, i]) for i in range(self.qpos.shape[1] - 4)
        ]
        rotation = quaternion.slerp(time, self.time, self.qpos[:, -4:])
        return np.concatenate([np.stack(linear, axis=-1), rotation], axis=1)

    def tilt(self) -> FloatArray:
        """Angle (t,) rad between the object's z axis and the vertical."""
        x, y = self.qpos[:, -3:-1].T
        return np.asarray(np.arccos(np.clip(1 - 2 * (x * x + y * y), -1.0, 1.0)))


def contact_force(model: mujoco.MjModel, data: mujoco.MjData) -> FloatArray:
    """Sum (3,) N of all contact forces of the robot on the object, world frame."""
    target = model.body("object").id
    total, wrench = np.zeros(3), np.zeros(6)
    for number in range(data.ncon):
        contact = data.contact[number]
        first, second = model.geom_bodyid[contact.geom1], model.geom_bodyid[contact.geom2]
        if 0 in (first, second) or target not in (first, second):
            continue
        mujoco.mj_contactForce(model, data, number, wrench)
        # The contact frame's x axis points from geom1 to geom2; the force is the one on geom2.
        force = contact.frame.reshape(3, 3).T @ wrench[:3]
        total += force if second == target else -force
    return total


def simulate(
    model: mujoco.MjModel, start: FloatArray, commands: FloatArray, substeps: int = 10
) -> Rollout:
    """Run commands through the world.

    Args:
        model: compiled ``build_world``; the object's free joint comes last.
        start: joint positions (joint,) of the robot at rest; the object starts as the model says.
        commands: position commands (k, joint) at 300 Hz, linear in between.
        substeps: physics steps per command.

    Raises:
        InputError: the simulation diverged (a state is not finite).
    """
    data = mujoco.MjData(model)
    count, joints = commands.shape
    data.qpos[:joints] = start
    data.ctrl[:] = commands[0]
    mujoco.mj_forward(model, data)
    qpos = np.empty((count * substeps, model.nq))
    shape = (count, joints)
    position, velocity, effort = np.empty(shape), np.empty(shape), np.empty(shape)
    forces = np.empty((count, 3))
    for k in range(count):
        position[k], velocity[k] = data.qpos[:joints], data.qvel[:joints]
        effort[k] = data.actuator_force
        forces[k] = contact_force(model, data)
        step = (commands[min(k + 1, count - 1)] - commands[k]) / substeps
        for i in range(substeps):
            # Drives interpolate between set-points; held ones would make the effort a sawtooth.
            data.ctrl[:] = commands[k] + i * step
            qpos[k * substeps + i] = data.qpos
            mujoco.mj_step(model, data)
    if not np.isfinite(qpos).all():
        raise InputError("the lab's simulation diverged; check the object's size, mass and pushes")
    dt = float(model.opt.timestep)
    return Rollout(
        time=np.arange(count * substeps) * dt,
        qpos=qpos,
        sample_time=np.arange(count) / LOG_RATE,
        position=position,
        velocity=velocity,
        effort=effort,
        command=commands.copy(),
        contact_force=forces,
    )
