"""Plain numpy version of ``rollout_kernel``: slow, readable, what the kernel is tested against."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.spatial.transform import Rotation

from twinloop.physics import layout
from twinloop.physics.shape import CollisionShape
from twinloop.physics.simulate import GRAVITY, Controls, Rollout

Array = npt.NDArray[np.float64]


def simulate_reference(
    shape: CollisionShape,
    controls: Controls,
    parameters: Array,
    state: Array,
    push: int,
    *,
    gravity: float = GRAVITY,
) -> Rollout:
    """Roll one row of parameters (16,) from ``state`` (14,) through one push.

    Same equations as the kernel: compliant contacts, bristle friction, semi-implicit Euler.

    Returns:
        Records with a leading axis of length 1.
    """
    mass, com = parameters[layout.MASS], parameters[layout.COM : layout.COM + 3]
    inertia = parameters[layout.INERTIA : layout.INERTIA + 3]
    points = shape.points + parameters[layout.EDGE_RADIUS] * shape.rounding
    share = shape.weight + parameters[layout.SPREAD] * shape.weight_spread
    q = Rotation.from_quat(state[[4, 5, 6, 3]])
    x = state[:3] + q.apply(com)
    v, w = state[7:10].copy(), state[10:13].copy()
    bristles, tip_bristle = np.zeros((len(points), 3)), np.array([0.0, 0.0, state[layout.PRELOAD]])
    positions, quaternions, forces = [], [], []
    window: list[Array] = []
    touched = False
    for step in range(int(controls.steps[push])):
        if step % controls.every == 0:
            positions.append(x - q.apply(com))
            quaternions.append(q.as_quat()[[3, 0, 1, 2]])
        spin = q.apply(w)
        arm = q.apply(points - com)
        force, bristles = _table(arm, x, v, spin, share, bristles, parameters, controls.dt)
        tip, tip_arm, tip_bristle = _fingertip(
            shape, controls, push, step, parameters, q, x, v, spin, tip_bristle
        )
        window.append(tip)
        touched = touched or bool(tip_arm.any())
        if touched and not tip_arm.any():
            tip_bristle = np.zeros(3)
        total = force.sum(axis=0) + tip + np.array([0.0, 0.0, -mass * gravity])
        torque = np.cross(arm, force).sum(axis=0) + np.cross(tip_arm, tip)
        v = v + controls.dt / mass * total
        twist = q.inv().apply(torque) - np.cross(w, inertia * w)
        w = w + controls.dt * twist / inertia
        x = x + controls.dt * v
        q = q * Rotation.from_rotvec(controls.dt * w)
        if len(window) == controls.every or step == controls.steps[push] - 1:
            forces.append(np.mean(window, axis=0))
            window = []
    return Rollout(np.array([positions]), np.array([quaternions]), np.array([forces]))


def _table(
    arm: Array,
    x: Array,
    v: Array,
    spin: Array,
    share: Array,
    bristles: Array,
    parameters: Array,
    dt: float,
) -> tuple[Array, Array]:
    """Force of the table on each support point (N, 3) and the bristles after this step."""
    stiffness = share * parameters[layout.TABLE_STIFFNESS]
    damping = share * parameters[layout.TABLE_DAMPING]
    depth = -(x[2] + arm[:, 2])
    u = v + np.cross(spin, arm)
    ramp = np.minimum(depth / layout.RAMP_DEPTH, 1.0)
    normal = stiffness * depth - ramp * damping * u[:, 2]
    touching = (depth > 0) & (normal > 0)
    slip = np.where(touching[:, None], u * [1.0, 1.0, 0.0], 0.0)
    limit = parameters[layout.FRICTION] * np.where(touching, normal, 0.0)
    friction, stretched = _friction(bristles, slip, limit, stiffness, damping, dt)
    force = friction + np.outer(normal, [0.0, 0.0, 1.0])
    return (
        np.where(touching[:, None], force, 0.0),
        np.where(touching[:, None], stretched, 0.0),
    )


def _fingertip(
    shape: CollisionShape,
    controls: Controls,
    push: int,
    step: int,
    parameters: Array,
    q: Rotation,
    x: Array,
    v: Array,
    spin: Array,
    bristle: Array,
) -> tuple[Array, Array, Array]:
    """Force of the fingertip on the object, its arm about the centre of mass, the bristle."""
    com = parameters[layout.COM : layout.COM + 3]
    local = q.inv().apply(controls.tip_position[push, step] - x) + com
    distance, gradient = shape.sample(local[None])
    depth = controls.tip_radius[push] - distance[0]
    nothing = np.zeros(3), np.zeros(3), bristle
    if not depth > 0 or not np.linalg.norm(gradient[0]) > 0:
        return nothing
    outward = gradient[0] / np.linalg.norm(gradient[0])
    arm, n = q.apply(local - distance[0] * outward - com), q.apply(outward)
    u = v + np.cross(spin, arm) - controls.tip_velocity[push, step]
    closing = u @ n
    stiffness, damping = parameters[layout.TIP_STIFFNESS], parameters[layout.TIP_DAMPING]
    normal = stiffness * depth + min(depth / layout.RAMP_DEPTH, 1.0) * damping * closing
    if not normal > 0:
        return nothing
    kept = 1 / (1 + controls.dt * parameters[layout.TIP_CREEP])
    friction, stretched = _friction(
        kept * (bristle - (bristle @ n) * n)[None],
        (u - closing * n)[None],
        np.array([parameters[layout.TIP_FRICTION] * normal]),
        np.array([stiffness]),
        np.array([damping]),
        controls.dt,
    )
    return friction[0] - normal * n, arm, stretched[0]


def _friction(
    bristles: Array, slip: Array, limit: Array, stiffness: Array, damping: Array, dt: float
) -> tuple[Array, Array]:
    """Bristle friction (N, 3) and the bristles after this step; contact stiffness and damping."""
    k = stiffness * layout.BRISTLE_STIFFNESS_RATIO
    stretched = bristles + dt * slip
    spring = k * np.linalg.norm(stretched, axis=1)
    over = spring > limit
    shrink = np.where(over, limit / np.where(over, spring, 1.0), 1.0)
    stretched = stretched * shrink[:, None]
    b = damping * layout.BRISTLE_DAMPING_RATIO
    force = -k[:, None] * stretched - b[:, None] * slip
    size = np.linalg.norm(force, axis=1)
    over = size > limit
    return force * np.where(over, limit / np.where(over, size, 1.0), 1.0)[:, None], stretched
