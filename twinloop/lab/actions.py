"""Finger actions as joint commands: tap, slide, tilt, flick, lift.

A tilt is the push about a virtual pivot: high on a face, along the arc about the far bottom edge,
on which the object turns while friction holds it there; a flick carries on until it topples.

Every action starts at rest away from the object, moves through free air at about its working
speed (so that the robot's own friction can be told from contact), touches, and retreats. Lengths
come from the object's bounding box and surface, never from its hidden mass.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from twinloop.errors import InputError
from twinloop.geometry import se3
from twinloop.hand.model import RobotModel
from twinloop.lab.objects import LabObject
from twinloop.lab.spec import PushSpec
from twinloop.lab.world import LOG_RATE

FloatArray = NDArray[np.float64]

REST = 0.30
"""s of everything at rest at the start of a clip."""
FREE_AIR = 0.22
"""s of motion at working speed before contact."""


@dataclass(frozen=True)
class Contact:
    """Where a push touches, in the world: at the start of contact.

    centre (3,) m: fingertip centre; direction (3,): unit push direction; pivot (3,) m: the far
    bottom edge's point below the line of push.
    """

    centre: FloatArray
    direction: FloatArray
    pivot: FloatArray


def first_hit(obj: LabObject, origin: FloatArray, direction: FloatArray) -> float | None:
    """Distance (m) along a ray to the object's surface (Moeller-Trumbore, object frame)."""
    corners = obj.vertices[obj.faces]
    edge1, edge2 = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    p = np.cross(direction, edge2)
    det = np.einsum("ij,ij->i", edge1, p)
    safe = np.where(np.abs(det) < 1e-15, 1.0, det)
    t_vec = origin - corners[:, 0]
    u = np.einsum("ij,ij->i", t_vec, p) / safe
    q = np.cross(t_vec, edge1)
    v = (q @ direction) / safe
    t = np.einsum("ij,ij->i", edge2, q) / safe
    hit = (np.abs(det) > 1e-15) & (u >= -1e-9) & (v >= -1e-9) & (u + v <= 1 + 1e-9) & (t > 0)
    return float(t[hit].min()) if hit.any() else None


def _free_path(obj: LabObject, origin: FloatArray, direction: FloatArray, radius: float) -> float:
    """How far (m) a sphere of ``radius`` moves from ``origin`` until it touches; inf if never.

    Three rays stand for the sphere: its middle and both flanks at 0.8 of the radius.
    """
    side = np.array([-direction[1], direction[0], 0.0])
    distances = [np.inf]
    for share, front in ((0.0, 1.0), (0.8, 0.6), (-0.8, 0.6)):
        hit = first_hit(obj, origin + share * radius * side, direction)
        if hit is not None:
            distances.append(hit - front * radius)
    return float(min(distances))


def find_contact(
    obj: LabObject, push: PushSpec, T_world_object: FloatArray, tip_radius: float
) -> Contact:
    """Touch point of a push on the object where it stands.

    Where the line of push misses the object (an opening), the nearest offset that hits is taken;
    where the object bulges out above, the touch point moves up, or the finger's links would touch.

    Raises:
        InputError: no line of push meets the object.
    """
    angle = np.deg2rad(push.direction)
    forward = np.array([np.cos(angle), np.sin(angle), 0.0])
    side = np.array([-forward[1], forward[0], 0.0])
    low, high = obj.vertices.min(axis=0), obj.vertices.max(axis=0)
    middle = 0.5 * (low + high)
    reach = float(np.ptp(obj.vertices @ forward)) + 0.1
    half_width = 0.5 * float(np.ptp(obj.vertices @ side))
    lowest = max(push.height * float(high[2]), tip_radius + 0.004)
    heights = np.linspace(lowest, max(lowest, 0.97 * float(high[2])), 24)
    offsets = np.array([push.offset, *np.linspace(-0.9, 0.9, 19)])
    for offset in offsets[np.argsort(np.abs(offsets - push.offset), kind="stable")]:
        line = np.array([*middle[:2], 0.0]) + offset * half_width * side - reach * forward
        free = np.array(
            [_free_path(obj, line + [0.0, 0.0, z], forward, tip_radius) for z in heights]
        )
        if np.isfinite(free).any():
            break
    else:
        raise InputError(
            f"object {obj.name}: a push from {push.direction} deg at {push.height} of its height "
            "does not meet it; choose another height or direction"
        )
    chosen = int(np.argmax(free <= free.min() + 0.004))
    base = line + reach * forward + [0.0, 0.0, heights[chosen]]
    centre = base + (free[chosen] - reach) * forward
    bottom = obj.vertices[obj.vertices[:, 2] < low[2] + 0.002]
    pivot = base + forward * (float((bottom @ forward).max()) - float(base @ forward))
    pivot[2] = 0.0
    rotation = T_world_object[:3, :3]
    return Contact(
        se3.apply(T_world_object, centre[None])[0],
        rotation @ forward,
        se3.apply(T_world_object, pivot[None])[0],
    )


def profile(segments: list[tuple[float, float]], ramp: float) -> FloatArray:
    """Travel (n,) m sampled at the log rate for speed segments [(duration s, speed m/s), ...].

    Speed steps are smoothed over ``ramp`` s with a raised-cosine window, so acceleration is bounded
    and the distance covered stays the same.
    """
    counts = [max(1, round(duration * LOG_RATE)) for duration, _ in segments]
    speed = np.concatenate([np.full(n, v) for n, (_, v) in zip(counts, segments, strict=True)])
    width = max(1, round(ramp * LOG_RATE))
    window = 1 - np.cos(2 * np.pi * (np.arange(width) + 0.5) / width)
    padded = np.concatenate([np.full(width, speed[0]), speed, np.full(width, speed[-1])])
    smooth = np.convolve(padded, window / window.sum(), mode="same")[width:-width]
    return np.asarray(np.cumsum(smooth) / LOG_RATE)


def joint_commands(robot: RobotModel, desired: FloatArray) -> FloatArray:
    """Commands (k, n) that make the unloaded impedance follow ``desired`` (k, n).

    Inverse of K (c - q) - D dq = M ddq + viscous dq + coulomb sign(dq) with datasheet values; the
    inertia of a finger joint is its rotor's, that of an arm joint adds everything it carries.
    """
    rate = float(LOG_RATE)
    velocity = np.gradient(desired, axis=0) * rate
    acceleration = np.gradient(velocity, axis=0) * rate
    stiffness, damping = robot.gains.T
    coulomb, viscous = robot.joint_friction.T
    inertia = np.array([joint.armature for joint in robot.joints])
    for index in np.flatnonzero(robot.prismatic):
        inertia[index] += sum(geom.mass for geom in robot.geoms if index in robot.chain(geom.link))
    slow = np.where(robot.prismatic, 0.01, 0.05)
    effort = inertia * acceleration + (damping + viscous) * velocity
    effort += coulomb * np.tanh(velocity / slow)
    return np.asarray(desired + effort / stiffness)


def with_arm(robot: RobotModel, posture: FloatArray, yaw: float, tips: FloatArray) -> FloatArray:
    """Joint targets (k, n) that keep posture and yaw and bring the index tip to ``tips``."""
    q = np.tile(posture, (len(tips), 1))
    q[:, robot.index("arm_yaw")] = yaw
    here = robot.tip_positions(q[0])[robot.tips.index("index_tip")]
    for axis, name in enumerate(("arm_x", "arm_y", "arm_z")):
        q[:, robot.index(name)] = q[0, robot.index(name)] + tips[:, axis] - here[axis]
    return q


def line_push(robot: RobotModel, push: PushSpec, contact: Contact) -> FloatArray:
    """Tap or slide: straight through the touch point at constant speed, back. Joints (k, n)."""
    v, ramp = push.speed, 0.08
    back = max(0.15, 0.5 * v)
    segments = [
        (REST + ramp / 2, 0.0),
        (FREE_AIR + ramp / 2 + push.distance / v, v),
        (0.06, 0.0),
        (0.05 / back, -back),
        (0.3 if push.action == "tap" else 0.12, 0.0),
    ]
    run_up = (FREE_AIR + ramp / 2) * v
    travel = profile(segments, ramp) - run_up
    tips = contact.centre + travel[:, None] * contact.direction + approach(travel, run_up, contact)
    return with_arm(robot, robot.posture("poke"), trailing_yaw(contact), tips)


def trailing_yaw(contact: Contact) -> float:
    """Yaw (rad) that lets the rest of the hand trail behind the poking index: palm +y forward."""
    return float(np.arctan2(-contact.direction[0], contact.direction[1]))


def approach(travel: FloatArray, run_up: float, contact: Contact) -> FloatArray:
    """Offsets (k, 3) m of the fingertip on its way in: from above and from one side.

    All three arm axes move in free air this way, so that the friction of each can be fitted. The
    offset ends at a fifth of the run-up before contact and comes back in the retreat.
    """
    s = np.clip((travel + run_up) / (0.8 * run_up), 0.0, 1.0)
    share = 1.0 - s * s * (3.0 - 2.0 * s)
    side = np.array([-contact.direction[1], contact.direction[0], 0.0])
    return np.asarray(share[:, None] * (0.02 * np.array([0.0, 0.0, 1.0]) + 0.012 * side))


def arc(contact: Contact, angle: FloatArray) -> FloatArray:
    """Fingertip centres (k, 3) that ride on the face while it turns about the far bottom edge.

    Args:
        contact: the start of contact.
        angle: turn (k,) rad.
    """
    start = contact.centre - contact.pivot
    along, up = float(start @ contact.direction), float(start[2])
    c, s = np.cos(angle), np.sin(angle)
    forward = along * c + up * s
    rise = -along * s + up * c
    tips = contact.pivot + forward[:, None] * contact.direction
    tips[:, 2] = rise
    # The pivot lies on the line of push, so only the lateral part of the start is left to add.
    lateral = start - along * contact.direction
    lateral[2] = 0.0
    return np.asarray(tips + lateral)


def tilt_push(robot: RobotModel, push: PushSpec, contact: Contact) -> FloatArray:
    """Push about a virtual pivot: along the arc about the far bottom edge, hold, let back down.

    Joints (k, n).
    """
    v, ramp = push.speed, 0.08
    radius = float(np.linalg.norm(contact.centre - contact.pivot))
    segments = [
        (REST + ramp / 2, 0.0),
        (FREE_AIR + ramp / 2 + push.distance / v, v),
        (0.12, 0.0),
        ((push.distance + 0.05) / (1.5 * v), -1.5 * v),
        (0.12, 0.0),
    ]
    run_up = (FREE_AIR + ramp / 2) * v
    travel = profile(segments, ramp) - run_up
    inside = np.clip(travel, 0.0, None)
    tips = arc(contact, inside / radius)
    tips += np.clip(travel, None, 0.0)[:, None] * contact.direction
    tips += approach(travel, run_up, contact)
    return with_arm(robot, robot.posture("poke"), trailing_yaw(contact), tips)


def flick(robot: RobotModel, push: PushSpec, contact: Contact) -> FloatArray:
    """Swing the index finger about its base through the touch point (the paper's push).

    The arm stays; ``speed`` is the tip's, ``distance`` its swing after contact. Joints (k, n).
    """
    yaw = float(np.arctan2(contact.direction[1], contact.direction[0]))
    posture = robot.posture("poke")
    posture[robot.index("index_0")] = 0.0
    flexion = robot.index("index_1")
    limits = robot.joint_limits[flexion]
    reach = float(np.linalg.norm(robot.jacobian(posture, "index_tip")[:, flexion]))
    at_touch = -0.15
    posture[flexion] = at_touch
    rate = push.speed / reach
    wind_up = at_touch - limits[0] - 0.05
    swing = min(push.distance / reach, limits[1] - at_touch - 0.05)
    segments = [
        (REST, 0.0),
        (wind_up / rate + swing / rate, rate),
        (0.15, 0.0),
        ((wind_up + swing) / (0.5 * rate), -0.5 * rate),
        (0.3, 0.0),
    ]
    angle = profile(segments, 0.04) - wind_up
    q = with_arm(robot, posture, yaw, np.tile(contact.centre, (len(angle), 1)))
    q[:, flexion] = np.clip(at_touch + angle, *limits)
    return q


def reach_tips(robot: RobotModel, start: FloatArray, targets: FloatArray) -> FloatArray:
    """Joints (n,) near ``start`` that bring all tips to ``targets`` (tips, 3), the arm held still.

    Damped Gauss-Newton inside the joint limits; out of reach, they come near.
    """
    q, moving = start.copy(), ~np.array([name.startswith("arm_") for name in robot.joint_names])
    low, high = robot.joint_limits.T
    for _ in range(80):
        jacobian = np.concatenate([robot.jacobian(q, tip) for tip in robot.tips])[:, moving]
        error = (targets - robot.tip_positions(q)).ravel()
        step = jacobian.T @ np.linalg.solve(
            jacobian @ jacobian.T + 1e-5 * np.eye(len(error)), error
        )
        # Short steps: long ones fold the fingers over.
        step *= min(1.0, 0.1 / max(float(np.abs(step).max()), 1e-12))
        q[moving] = np.clip(q[moving] + step, low[moving], high[moving])
    return q


def lift(
    robot: RobotModel, push: PushSpec, obj: LabObject, T_world_object: FloatArray
) -> FloatArray:
    """Grasp from above across the thinner side, lift by 5 cm, hold, put down. Joints (k, n)."""
    size = obj.size
    thin = 0.0 if size[0] <= size[1] else 0.5 * np.pi
    yaw = float(np.arctan2(T_world_object[1, 0], T_world_object[0, 0])) + thin
    yaw = float((yaw + np.pi) % (2 * np.pi) - np.pi)
    depth = max(0.55 * float(size[2]), robot.tip_radius + 0.004)
    half = 0.5 * float(min(size[0], size[1])) + robot.tip_radius
    spread = min(0.045, 0.3 * float(max(size[0], size[1])))
    q = robot.posture("bent")
    reach = -float(robot.tip_positions(q)[0, 2])
    middle = se3.apply(T_world_object, np.array([[0.0, 0.0, depth]]))[0]
    q[:4] = [middle[0], middle[1], middle[2] + reach, yaw]
    forward, side = (
        np.array([np.cos(yaw), np.sin(yaw), 0]),
        np.array([-np.sin(yaw), np.cos(yaw), 0]),
    )
    places = [(-1.0, spread), (-1.0, 0.0), (-1.0, -spread), (1.0, 0.0)]

    def hand(gap: float) -> FloatArray:
        # The thumb presses as hard as the three fingers together, or the soft arm would give way.
        gaps = [gap, gap, gap, gap if gap >= 0 else 3.0 * gap]
        targets = [
            middle + s * (half + g) * forward + y * side
            for (s, y), g in zip(places, gaps, strict=True)
        ]
        return reach_tips(robot, q, np.array(targets))

    away, touch, squeeze = hand(0.025), hand(0.0), hand(-0.008)
    height = robot.index("arm_z")
    above, raised = away.copy(), squeeze.copy()
    above[height] += float(size[2]) - depth + 0.03
    raised[height] += 0.05
    clear = (0.03 + float(size[2]) - depth) / push.speed
    keys = [above, above, away, touch, squeeze, squeeze, raised, raised, squeeze, touch, away, away]
    spans = [REST, clear, 0.25, 0.2, 0.1, 0.05 / push.speed, 0.5, 0.05 / push.speed, 0.2, 0.2, 0.1]
    path = [above[None]]
    for (first, second), span in zip(pairwise(keys), spans, strict=True):
        s = np.linspace(0.0, 1.0, max(2, round(span * LOG_RATE)))[1:, None]
        path.append(first + (second - first) * s * s * (3.0 - 2.0 * s))
    return np.concatenate(path)


def plan(
    robot: RobotModel, obj: LabObject, push: PushSpec, T_world_object: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Start posture (n,) and commands (k, n) of a push on the object where it stands.

    Raises:
        InputError: the push misses the object or asks for something out of the robot's reach.
    """
    if push.action == "lift":
        return _within_limits(robot, push, lift(robot, push, obj, T_world_object))
    contact = find_contact(obj, push, T_world_object, robot.tip_radius)
    if push.action in ("tap", "slide"):
        desired = line_push(robot, push, contact)
    elif push.action == "tilt":
        desired = tilt_push(robot, push, contact)
    else:
        desired = flick(robot, push, contact)
    return _within_limits(robot, push, desired)


def _within_limits(
    robot: RobotModel, push: PushSpec, desired: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Start and commands of a path, after checking it against the joint limits."""
    low, high = robot.joint_limits.T
    beyond = (desired < low - 1e-9) | (desired > high + 1e-9)
    if beyond.any():
        names = [robot.joint_names[i] for i in np.flatnonzero(beyond.any(axis=0))]
        raise InputError(f"push {push.action}: joints {names} would pass their limits")
    return desired[0], joint_commands(robot, desired)
