"""Columns of the parameter and state rows shared by the kernel, its reference and the callers."""

from __future__ import annotations

# One row of physical parameters per rollout (SI, body frame = principal frame of the mesh).
MASS = 0
FRICTION = 1  # table, Coulomb, dimensionless
COM = 2  # 2, 3, 4: centre of mass in the body frame, m
INERTIA = 5  # 5, 6, 7: principal moments about the centre of mass, kg m^2
TIP_FRICTION = 8  # fingertip, Coulomb, dimensionless
TIP_STIFFNESS = 9  # N/m
TIP_DAMPING = 10  # N s/m
TABLE_STIFFNESS = 11  # N/m, of the whole footprint
TABLE_DAMPING = 12  # N s/m, of the whole footprint
SPREAD = 13  # share of the load carried by the inner support points, 0..1
EDGE_RADIUS = 14  # radius of the edge that the object stands on, m
TIP_CREEP = 15  # rate at which the fingertip's bristle relaxes, 1/s
PARAMETERS = 16

# One row of initial state per rollout.
POSITION = 0  # 0, 1, 2: body frame origin in the world, m
QUATERNION = 3  # 3..6: wxyz, body to world
VELOCITY = 7  # 7, 8, 9: of the centre of mass, world, m/s
SPIN = 10  # 10, 11, 12: angular velocity, body frame, rad/s
PRELOAD = 13  # upward stretch of the fingertip's bristle when it first touches, m
STATE = 14

# Tangential bristles are this much softer than the normal spring, and damped by this share of the
# normal damping: enough to hold a tilted object still, not so stiff that they limit the step.
BRISTLE_STIFFNESS_RATIO = 0.7
BRISTLE_DAMPING_RATIO = 0.5
# Penetration over which the damper fades in, so that the force does not jump at touch.
RAMP_DEPTH = 1.0e-4
