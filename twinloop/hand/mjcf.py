"""The robot as a MuJoCo model, built from the same YAML as the kinematics.

Collision bits: robot shapes carry ``ROBOT``; things of the world carry ``WORLD`` and accept both,
so the robot touches the world and never itself.
"""

from __future__ import annotations

from collections.abc import Mapping

import mujoco
import numpy as np
from numpy.typing import NDArray

from twinloop.hand.model import Geom, Joint, RobotModel

ROBOT, WORLD = 1, 2


def _joint_type(joint: Joint) -> mujoco.mjtJoint:
    slide = joint.type == "prismatic"
    return mujoco.mjtJoint.mjJNT_SLIDE if slide else mujoco.mjtJoint.mjJNT_HINGE


def _add_geom(body: mujoco.MjsBody, geom: Geom, model: RobotModel, name: str, is_pad: bool) -> None:
    if geom.shape == "none":
        body.explicitinertial = True
        body.mass = geom.mass
        body.inertia = [1e-5, 1e-5, 1e-5]
        return
    added = body.add_geom(name=name, mass=geom.mass, rgba=[*geom.colour, 1.0])
    if geom.shape == "capsule":
        added.type = mujoco.mjtGeom.mjGEOM_CAPSULE
        added.fromto = [*geom.start, *geom.to]
        added.size = [geom.radius, 0.0, 0.0]
    elif geom.shape == "sphere":
        added.type = mujoco.mjtGeom.mjGEOM_SPHERE
        added.pos = geom.centre
        added.size = [geom.radius, 0.0, 0.0]
    else:
        added.type = mujoco.mjtGeom.mjGEOM_BOX
        added.pos = geom.centre
        added.size = geom.size
    added.contype, added.conaffinity = ROBOT, 0
    added.condim = 4 if is_pad else 3
    added.friction = [model.tip_friction, 0.003, 0.0001]
    if is_pad:
        # Soft rubber: a hard tip on a light finger chatters against anything that slides.
        added.solref, added.solimp, added.solmix = [0.02, 1.0], [0.6, 0.9, 0.001, 0.5, 2.0], 1e4


def add_robot(
    spec: mujoco.MjSpec,
    model: RobotModel,
    base: NDArray[np.float64] | None = None,
    scale: Mapping[str, NDArray[np.float64]] | None = None,
) -> mujoco.MjsBody:
    """Add the robot to a world.

    Adds bodies, joints, position actuators (named as the joints), tip sites and touch sensors
    ``<tip>_touch``. Gravity of the robot is compensated.

    Args:
        spec: the world to add to (changed in place).
        model: the robot.
        base: ``T_world_base`` (4, 4); identity if None.
        scale: optional factors (n,) by which this robot's true ``coulomb``, ``viscous`` and
            ``armature`` differ from the datasheet.

    Returns:
        The base body.
    """
    pose = np.eye(4) if base is None else np.asarray(base, dtype=np.float64)
    quaternion = np.zeros(4)
    mujoco.mju_mat2Quat(quaternion, pose[:3, :3].ravel())
    root = spec.worldbody.add_body(name=model.base_link, pos=pose[:3, 3], quat=quaternion)
    bodies = {model.base_link: root}
    factors = {key: np.ones(model.dof) for key in ("coulomb", "viscous", "armature")} | dict(
        scale or {}
    )
    for index, joint in enumerate(model.joints):
        body = bodies[joint.parent].add_body(name=joint.link, pos=joint.origin, gravcomp=1.0)
        bodies[joint.link] = body
        body.add_joint(
            name=joint.name,
            type=_joint_type(joint),
            axis=joint.axis,
            range=[joint.lower, joint.upper],
            limited=True,
            damping=joint.viscous * factors["viscous"][index],
            frictionloss=joint.coulomb * factors["coulomb"][index],
            armature=joint.armature * factors["armature"][index],
        )
        actuator = spec.add_actuator(name=joint.name, target=joint.name)
        actuator.trntype = mujoco.mjtTrn.mjTRN_JOINT
        actuator.set_to_position(kp=joint.stiffness, kv=joint.damping)
        actuator.forcelimited = True
        actuator.forcerange = [-joint.effort, joint.effort]
        actuator.ctrllimited = False
    pads = {tip.link for tip in model.description.tips}
    for number, geom in enumerate(model.geoms):
        is_pad = geom.shape == "sphere" and geom.link in pads
        _add_geom(bodies[geom.link], geom, model, f"{geom.link}_geom_{number}", is_pad)
    for tip in model.description.tips:
        bodies[tip.link].add_site(
            name=tip.name, pos=tip.position, size=[model.tip_radius * 1.05] * 3
        )
        sensor = spec.add_sensor(name=f"{tip.name}_touch", type=mujoco.mjtSensor.mjSENS_TOUCH)
        sensor.objtype = mujoco.mjtObj.mjOBJ_SITE
        sensor.objname = tip.name
    return root


def low_tessellation(spec: mujoco.MjSpec) -> None:
    """Draw round shapes with few triangles (rendering on a CPU costs per vertex, not per pixel)."""
    quality = spec.visual.quality
    quality.numslices, quality.numstacks, quality.numquads = 10, 6, 1
    quality.shadowsize = 512
