# mypy: ignore-errors
"""Warp kernel: one thread rolls one rigid object through one whole push, float64.

Semi-implicit Euler (velocity first, then pose). Contacts are compliant in physical units (N/m,
N s/m) with Coulomb friction carried by bristles (Cundall and Strack 1979), which stick; a
regularised Coulomb law creeps and ruins a tilt that is held. The numpy reference of this kernel is
``twinloop.physics.reference``.
"""

import warp as wp

from twinloop.geometry.sdf_kernel import grid_sample
from twinloop.physics import layout

wp.set_module_options({"enable_backward": False})

MASS = wp.constant(layout.MASS)
FRICTION = wp.constant(layout.FRICTION)
COM = wp.constant(layout.COM)
INERTIA = wp.constant(layout.INERTIA)
TIP_FRICTION = wp.constant(layout.TIP_FRICTION)
TIP_STIFFNESS = wp.constant(layout.TIP_STIFFNESS)
TIP_DAMPING = wp.constant(layout.TIP_DAMPING)
TABLE_STIFFNESS = wp.constant(layout.TABLE_STIFFNESS)
TABLE_DAMPING = wp.constant(layout.TABLE_DAMPING)
SPREAD = wp.constant(layout.SPREAD)
EDGE_RADIUS = wp.constant(layout.EDGE_RADIUS)
TIP_CREEP = wp.constant(layout.TIP_CREEP)
POSITION = wp.constant(layout.POSITION)
QUATERNION = wp.constant(layout.QUATERNION)
VELOCITY = wp.constant(layout.VELOCITY)
SPIN = wp.constant(layout.SPIN)
PRELOAD = wp.constant(layout.PRELOAD)
K_RATIO = wp.constant(wp.float64(layout.BRISTLE_STIFFNESS_RATIO))
B_RATIO = wp.constant(wp.float64(layout.BRISTLE_DAMPING_RATIO))
RAMP = wp.constant(wp.float64(1.0 / layout.RAMP_DEPTH))
ZERO = wp.constant(wp.float64(0.0))
ONE = wp.constant(wp.float64(1.0))


@wp.func
def bristle_step(
    bristle: wp.vec3d,
    slip: wp.vec3d,
    limit: wp.float64,
    stiffness: wp.float64,
    dt: wp.float64,
):
    """New bristle deflection: stretched by the slip, capped where the spring alone would slide."""
    stretched = bristle + dt * slip
    length = wp.length(stretched)
    if stiffness * length > limit:
        stretched = stretched * (limit / (stiffness * length))
    return stretched


@wp.func
def bristle_force(
    bristle: wp.vec3d,
    slip: wp.vec3d,
    limit: wp.float64,
    stiffness: wp.float64,
    damping: wp.float64,
):
    """Friction force on the side whose velocity relative to the other is ``slip``."""
    force = -stiffness * bristle - damping * slip
    length = wp.length(force)
    if length > limit:
        force = force * (limit / length)
    return force


@wp.kernel
def rollout(
    parameters: wp.array2d(dtype=wp.float64),
    state: wp.array2d(dtype=wp.float64),
    push: wp.array(dtype=wp.int32),
    steps: wp.array(dtype=wp.int32),
    points: wp.array(dtype=wp.vec3d),
    rounding: wp.array(dtype=wp.vec3d),
    weight: wp.array(dtype=wp.float64),
    weight_spread: wp.array(dtype=wp.float64),
    grid: wp.array3d(dtype=wp.float64),
    grid_origin: wp.vec3d,
    grid_spacing: wp.float64,
    R_grid_body: wp.mat33d,
    tip_position: wp.array2d(dtype=wp.vec3d),
    tip_velocity: wp.array2d(dtype=wp.vec3d),
    tip_radius: wp.array(dtype=wp.float64),
    gravity: wp.float64,
    dt: wp.float64,
    every: wp.int32,
    bristles: wp.array2d(dtype=wp.vec3d),
    out_position: wp.array2d(dtype=wp.vec3d),
    out_quaternion: wp.array2d(dtype=wp.vec4d),
    out_force: wp.array2d(dtype=wp.vec3d),
):
    """Record pose every ``every`` steps and the mean fingertip force of the steps that follow."""
    t = wp.tid()
    k = push[t]
    count = points.shape[0]
    mass = parameters[t, MASS]
    mu = parameters[t, FRICTION]
    com = wp.vec3d(parameters[t, COM], parameters[t, COM + 1], parameters[t, COM + 2])
    inertia = wp.vec3d(
        parameters[t, INERTIA], parameters[t, INERTIA + 1], parameters[t, INERTIA + 2]
    )
    mu_tip = parameters[t, TIP_FRICTION]
    k_tip = parameters[t, TIP_STIFFNESS]
    b_tip = parameters[t, TIP_DAMPING]
    k_table = parameters[t, TABLE_STIFFNESS]
    b_table = parameters[t, TABLE_DAMPING]
    spread = parameters[t, SPREAD]
    edge_radius = parameters[t, EDGE_RADIUS]
    kept = ONE / (ONE + dt * parameters[t, TIP_CREEP])
    q = wp.normalize(
        wp.quatd(
            state[t, QUATERNION + 1],
            state[t, QUATERNION + 2],
            state[t, QUATERNION + 3],
            state[t, QUATERNION],
        )
    )
    R = wp.quat_to_matrix(q)
    x = wp.vec3d(state[t, POSITION], state[t, POSITION + 1], state[t, POSITION + 2]) + R * com
    v = wp.vec3d(state[t, VELOCITY], state[t, VELOCITY + 1], state[t, VELOCITY + 2])
    w = wp.vec3d(state[t, SPIN], state[t, SPIN + 1], state[t, SPIN + 2])
    for i in range(count + 1):
        bristles[t, i] = wp.vec3d(ZERO, ZERO, ZERO)
    bristles[t, count] = wp.vec3d(ZERO, ZERO, state[t, PRELOAD])
    touched = int(0)  # noqa: RUF046, UP018
    nx = wp.float64(grid.shape[0] - 1)
    ny = wp.float64(grid.shape[1] - 1)
    nz = wp.float64(grid.shape[2] - 1)
    radius = tip_radius[k]
    total = steps[k]
    force_sum = wp.vec3d(ZERO, ZERO, ZERO)
    for step in range(total):
        if step % every == 0:
            row = step / every
            out_position[t, row] = x - R * com
            out_quaternion[t, row] = wp.vec4d(q[3], q[0], q[1], q[2])
            force_sum = wp.vec3d(ZERO, ZERO, ZERO)
        force = wp.vec3d(ZERO, ZERO, -mass * gravity)
        torque = wp.vec3d(ZERO, ZERO, ZERO)
        ww = R * w
        for i in range(count):
            r = R * (points[i] + edge_radius * rounding[i] - com)
            depth = -(x[2] + r[2])
            if depth > ZERO:
                share = weight[i] + spread * weight_spread[i]
                u = v + wp.cross(ww, r)
                ramp = wp.min(depth * RAMP, ONE)
                normal = share * (k_table * depth - ramp * b_table * u[2])
                if normal > ZERO:
                    limit = mu * normal
                    stiffness = share * k_table * K_RATIO
                    slip = wp.vec3d(u[0], u[1], ZERO)
                    s = bristle_step(bristles[t, i], slip, limit, stiffness, dt)
                    bristles[t, i] = s
                    f = bristle_force(s, slip, limit, stiffness, share * b_table * B_RATIO)
                    f = wp.vec3d(f[0], f[1], normal)
                    force += f
                    torque += wp.cross(r, f)
                else:
                    bristles[t, i] = wp.vec3d(ZERO, ZERO, ZERO)
            else:
                bristles[t, i] = wp.vec3d(ZERO, ZERO, ZERO)
        tip = tip_position[k, step]
        local = wp.transpose(R) * (tip - x) + com
        cell = (R_grid_body * local - grid_origin) / grid_spacing
        pushed = wp.vec3d(ZERO, ZERO, ZERO)
        inside = (
            cell[0] > ZERO
            and cell[1] > ZERO
            and cell[2] > ZERO
            and cell[0] < nx
            and cell[1] < ny
            and cell[2] < nz
        )
        touching = int(0)  # noqa: RUF046, UP018  (a kernel variable, not a literal)
        if inside:
            sample = grid_sample(grid, cell)
            depth = radius - sample[0]
            gradient = wp.vec3d(sample[1], sample[2], sample[3])
            steep = wp.length(gradient)
            if depth > ZERO and steep > wp.float64(1.0e-12):
                outward = wp.transpose(R_grid_body) * (gradient / steep)
                r = R * (local - sample[0] * outward - com)
                n = R * outward
                u = v + wp.cross(ww, r) - tip_velocity[k, step]
                closing = wp.dot(u, n)
                ramp = wp.min(depth * RAMP, ONE)
                normal = k_tip * depth + ramp * b_tip * closing
                if normal > ZERO:
                    touching = 1
                    touched = 1
                    limit = mu_tip * normal
                    slip = u - closing * n
                    # The contact plane turns with the object: keep the bristle in it.
                    s = bristles[t, count]
                    s = kept * (s - wp.dot(s, n) * n)
                    s = bristle_step(s, slip, limit, k_tip * K_RATIO, dt)
                    bristles[t, count] = s
                    pushed = bristle_force(s, slip, limit, k_tip * K_RATIO, b_tip * B_RATIO)
                    pushed = pushed - normal * n
                    force += pushed
                    torque += wp.cross(r, pushed)
        if touching == 0 and touched == 1:
            bristles[t, count] = wp.vec3d(ZERO, ZERO, ZERO)
        force_sum += pushed
        v += (dt / mass) * force
        spin_moment = wp.vec3d(inertia[0] * w[0], inertia[1] * w[1], inertia[2] * w[2])
        twist = wp.transpose(R) * torque - wp.cross(w, spin_moment)
        w += dt * wp.vec3d(twist[0] / inertia[0], twist[1] / inertia[1], twist[2] / inertia[2])
        x += dt * v
        angle = dt * wp.length(w)
        if angle > wp.float64(1.0e-14):
            half = wp.sin(wp.float64(0.5) * angle) * dt / angle
            q = wp.normalize(
                q * wp.quatd(half * w[0], half * w[1], half * w[2], wp.cos(wp.float64(0.5) * angle))
            )
        R = wp.quat_to_matrix(q)
        if step % every == every - 1 or step == total - 1:
            out_force[t, step / every] = force_sum / wp.float64(step % every + 1)
