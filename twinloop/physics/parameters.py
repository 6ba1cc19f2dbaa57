"""Unknowns of an identification: names, priors, and their map to rows of the engine.

The engine is run at unit mass. With the fingertip's motion given, scaling mass, inertia and contact
stiffness together leaves the object's path unchanged (see ``fit``), so stiffness is a *specific*
stiffness (per kg) with a broad prior, and mass enters as a factor of the force alone: no stiffness
set by hand can turn into a mass that the data never held.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from twinloop.physics import layout
from twinloop.physics.record import PushWindow, upright_rotation
from twinloop.physics.shape import CollisionShape
from twinloop.physics.simulate import GRAVITY

Array = npt.NDArray[np.float64]

# Shared unknowns that change the simulated motion.
MOTION = (
    "log_friction",
    "com_a",
    "com_b",
    "com_c",
    "log_extent_a",
    "log_extent_b",
    "log_extent_c",
    "log_tip_friction",
    "log_tip_stiffness",
    "log_tip_damping",
    "log_table_stiffness",
    "spread",
    "edge_radius",
    "log_tip_creep",
)
# Shared unknowns that change only how the motion is observed.
OBSERVED = ("log_mass", "clock", "camera_x", "camera_y", "drag_x", "drag_y", "drag_z")
# Per push: start pose and tangential preload of the fingertip (change the motion), then nuisances
# of the force (observed only).
PLACE = ("x", "y", "yaw", "preload")
FORCE = ("force_x", "force_y", "force_z", "delay")
PER_PUSH = PLACE + FORCE
SHARED = MOTION + OBSERVED
LOG_MASS = SHARED.index("log_mass")
CLOCK = SHARED.index("clock")
DRAG = slice(SHARED.index("drag_x"), SHARED.index("drag_z") + 1)
CAMERA = (SHARED.index("camera_x"), SHARED.index("camera_y"))
COM = slice(1, 4)
EXTENT = slice(4, 7)

# Finite-difference steps of MOTION and PLACE, small against every prior, large against rounding.
MOTION_STEP = np.array([1e-3, 2e-5, 2e-5, 2e-5, *[1e-3] * 3, *[2e-3] * 4, 5e-3, 2e-5, 1e-2])
PLACE_STEP = np.array([1e-5, 1e-5, 1e-4, 2e-6])


@dataclass(frozen=True)
class Priors:
    """Means and standard deviations of the unknowns. Logs are natural.

    Attributes:
        density: kg/m^3 and sd of its log; sets the prior of mass from the mesh's volume.
        friction: Table friction and sd of its log.
        tip_friction: Fingertip friction and sd of its log.
        com_std: Sd of the centre of mass as a share of the half extent along each axis.
        extent_std: Sd of the log of the root-mean-square extents of the mass distribution along
            the principal axes, about the uniform mesh's. Any positive extents make an inertia
            that a body can have; radii of gyration do not.
        tip_rate: rad/s, square root of specific tip stiffness, and sd of the log of its square.
        tip_damping: Damping ratio of the tip contact and sd of its log.
        table_rate: rad/s, as ``tip_rate`` for the whole footprint.
        spread: Mean and sd of the logit of the inner load share.
        edge_radius: Mean and sd of the radius of the edge the object stands on, as shares of the
            half width of the footprint. A scan from above cannot see how far it is rounded.
        tip_creep: 1/s, rate at which a sticking fingertip lets go of its tangential load (rubber
            relaxes), and sd of its log.
        clock_std: s, lowest sd of the clock offset.
        camera_std: m, common shift of all object poses against the robot.
        place_std: m, m, rad: start pose of each push beyond the noise of its rest frames.
        drag_std: N, dry friction of the robot along each axis that its free motion did not show.
        force_std: N, constant force bias per push and axis.
        gain_std: Relative sd of the effort scale; goes into mass one to one.
        preload_std: m, stretch of the fingertip's bristle at touch: the instant of touch, too fine
            to be seen, decides how much a rubbing tip lifts or loads the object.
        delay_std: s, timing error of a push's forces.
    """

    density: tuple[float, float] = (500.0, 1.5)
    friction: tuple[float, float] = (0.35, 0.7)
    tip_friction: tuple[float, float] = (0.5, 0.6)
    com_std: float = 0.15
    extent_std: float = 0.2
    tip_rate: tuple[float, float] = (120.0, 1.5)
    tip_damping: tuple[float, float] = (0.6, 0.7)
    table_rate: tuple[float, float] = (300.0, 0.7)
    spread: tuple[float, float] = (-1.5, 1.5)
    edge_radius: tuple[float, float] = (0.1, 0.15)
    tip_creep: tuple[float, float] = (15.0, 1.5)
    clock_std: float = 2.0e-3
    camera_std: float = 3.0e-3
    place_std: tuple[float, float, float] = (1.0e-3, 1.0e-3, 0.01)
    drag_std: float = 0.1
    force_std: float = 0.1
    gain_std: float = 0.02
    preload_std: float = 2.0e-4
    delay_std: float = 3.0e-3


@dataclass(frozen=True)
class Unknowns:
    """Prior mean and sd of the full vector: SHARED, then PER_PUSH for every push."""

    mean: Array
    std: Array
    pushes: int

    @property
    def size(self) -> int:
        """Length of the vector."""
        return len(SHARED) + self.pushes * len(PER_PUSH)

    def push_slice(self, push: int) -> slice:
        """Where the unknowns of one push stand."""
        begin = len(SHARED) + push * len(PER_PUSH)
        return slice(begin, begin + len(PER_PUSH))


def unknowns(shape: CollisionShape, windows: list[PushWindow], priors: Priors) -> Unknowns:
    """Prior of the unknowns for an object and its pushes."""
    clock = max([priors.clock_std, *(w.clock_offset_std for w in windows)])
    shared = [
        (np.log(priors.friction[0]), priors.friction[1]),
        *((shape.centroid[i], priors.com_std * shape.half_extent[i]) for i in range(3)),
        *((np.log(shape.extent[i]), priors.extent_std) for i in range(3)),
        (np.log(priors.tip_friction[0]), priors.tip_friction[1]),
        (2 * np.log(priors.tip_rate[0]), priors.tip_rate[1]),
        (np.log(priors.tip_damping[0]), priors.tip_damping[1]),
        (2 * np.log(priors.table_rate[0]), priors.table_rate[1]),
        priors.spread,
        tuple(shape.foot_width * share for share in priors.edge_radius),
        (np.log(priors.tip_creep[0]), priors.tip_creep[1]),
        (np.log(shape.volume * priors.density[0]), priors.density[1]),
        (0.0, clock),
        *[(0.0, priors.camera_std)] * 2,
        *[(0.0, priors.drag_std)] * 3,
    ]
    for window in windows:
        place = np.hypot(window.rest_std, priors.place_std)
        shared += [(0.0, float(s)) for s in place]
        shared += [(0.0, priors.preload_std)]
        shared += [*[(0.0, priors.force_std)] * 3, (0.0, priors.delay_std)]
    mean, std = np.array(shared, dtype=np.float64).T
    return Unknowns(np.ascontiguousarray(mean), np.ascontiguousarray(std), len(windows))


def engine_rows(motion: Array) -> Array:
    """(R, 16) engine parameters at unit mass from (R, 14) values of ``MOTION``."""
    row = np.zeros((len(motion), layout.PARAMETERS))
    tip, table = np.exp(motion[:, 8]), np.exp(motion[:, 10])
    row[:, layout.MASS] = 1.0
    row[:, layout.FRICTION] = np.exp(motion[:, 0])
    row[:, layout.COM : layout.COM + 3] = motion[:, COM]
    row[:, layout.INERTIA : layout.INERTIA + 3] = specific_inertia(motion[:, EXTENT])
    row[:, layout.TIP_FRICTION] = np.exp(motion[:, 7])
    row[:, layout.TIP_STIFFNESS] = tip
    row[:, layout.TIP_DAMPING] = 2 * np.exp(motion[:, 9]) * np.sqrt(tip)
    row[:, layout.TABLE_STIFFNESS] = table
    row[:, layout.TABLE_DAMPING] = np.sqrt(table)
    row[:, layout.SPREAD] = 1 / (1 + np.exp(-motion[:, 11]))
    row[:, layout.EDGE_RADIUS] = motion[:, 12]
    row[:, layout.TIP_CREEP] = np.exp(motion[:, 13])
    return row


def specific_inertia(log_extent: Array) -> Array:
    """(..., 3) principal moments per kg (m^2) from logs of the extents: sums of two squares."""
    square = np.exp(2 * log_extent)
    return np.asarray(square.sum(axis=-1, keepdims=True) - square)


def start_states(
    shape: CollisionShape,
    windows: list[PushWindow],
    push: npt.NDArray[np.int32],
    place: Array,
    table_stiffness: Array,
) -> Array:
    """(R, 14) states at rest: rest pose of each row's push, moved by ``place``.

    Args:
        shape: The object.
        windows: All pushes.
        push: (R,) push of each row.
        place: (R, 4) x, y (m), yaw (rad), preload (m).
        table_stiffness: (R,) 1/s^2; the object starts at its static penetration.
    """
    state = np.zeros((len(push), layout.STATE))
    yaw = np.array([windows[p].rest_yaw for p in push]) + place[:, 2]
    R = upright_rotation(shape.down, yaw)
    height = float((shape.points @ shape.down).max())
    state[:, 0:2] = np.array([windows[p].rest_position[:2] for p in push]) + place[:, :2]
    state[:, 2] = height - GRAVITY / table_stiffness
    state[:, 3:7] = _quaternions(R)
    state[:, layout.PRELOAD] = place[:, 3]
    return state


def _quaternions(R: Array) -> Array:
    from scipy.spatial.transform import Rotation

    return np.asarray(Rotation.from_matrix(R).as_quat()[:, [3, 0, 1, 2]], dtype=np.float64)
