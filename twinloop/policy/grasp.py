"""Top-down grasps on a mesh: where the pads touch, and the hand posture that puts them there.

Frames: object frame with z up at rest; the closing direction runs from the three-finger side to the
thumb side and is the wrist's x axis, the lateral direction is the wrist's y axis, the palm looks
down -z.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinloop.errors import InputError
from twinloop.geometry import se3
from twinloop.geometry.surface import TriangleSurface
from twinloop.hand.kinematics import HandKinematics, solve_tips

Array = NDArray[np.float64]
CLEARANCE = 0.022
"""How far the pads stay off the object on the way down, m."""
_PALM_GAP = 0.008
_SPREADS = (0.034, 0.026, 0.018)
_SQUARENESS = 3.0
_REACHED = 2e-3
_TABLE_GAP = 0.006
_REACHES = np.arange(0.136, 0.079, -0.004)


@dataclass(frozen=True)
class GraspRequest:
    """Where to grasp, in the object frame.

    Attributes:
        yaw: angle of the closing direction (fingers to thumb) about z from the object's x, rad.
        height: height of the pads, z in the object frame, m.
        shift: offset of the hand along its lateral direction from the object's origin, m.
        spread: lateral distance between neighbouring fingers, m.
    """

    yaw: float
    height: float
    shift: float = 0.0
    spread: float = 0.032

    @property
    def closing(self) -> Array:
        """(3,) unit closing direction."""
        return np.array([np.cos(self.yaw), np.sin(self.yaw), 0.0])

    @property
    def lateral(self) -> Array:
        """(3,) unit lateral direction, z x closing."""
        return np.array([-np.sin(self.yaw), np.cos(self.yaw), 0.0])


@dataclass(frozen=True)
class Grasp:
    """A solved grasp; arrays of tips are ordered as the robot's tips, frames are the object's.

    Attributes:
        request: what was asked for.
        T_object_wrist: (4, 4) wrist pose when the pads touch.
        joints: (n,) hand joints with the pads on the surface, rad.
        open_joints: (n,) hand joints on the way down, pads `CLEARANCE` away, rad.
        pads: (tip, 3) pad centres at contact, m.
        points: (tip, 3) contact points on the surface, m.
        normals: (tip, 3) unit normals into the object.
        tip_error: largest distance of a pad from where it should be, m.
        alignment: smallest cosine between a normal and the direction its pad presses in.
    """

    request: GraspRequest
    T_object_wrist: Array
    joints: Array
    open_joints: Array
    pads: Array
    points: Array
    normals: Array
    tip_error: float
    alignment: float

    @property
    def closing(self) -> Array:
        """(3,) unit closing direction in the object frame, from the fingers to the thumb."""
        return self.request.closing

    @property
    def pressing(self) -> Array:
        """(tip, 3) unit direction in which each pad presses: along the closing line, inwards."""
        sign = np.sign(self.normals @ self.closing)
        return sign[:, None] * self.closing


def sphere_cast(
    surface: TriangleSurface, origins: Array, directions: Array, radius: float, reach: float
) -> tuple[Array, NDArray[np.bool_]]:
    """Move spheres along rays until they touch the surface (sphere tracing, Hart 1996).

    Args:
        surface: what they run into.
        origins: (n, 3) start of each sphere's centre, outside, m.
        directions: (n, 3) unit directions.
        radius: m.
        reach: longest way, m.

    Returns:
        Centres where they touch (n, 3), and which of them touched (n,).
    """
    way = np.zeros(len(origins))
    gap = np.full(len(origins), np.inf)
    for _ in range(80):
        gap = surface.closest(origins + way[:, None] * directions).distance - radius
        if ((gap < 1e-6) | (way > reach)).all():
            break
        way = np.where(way > reach, way, way + np.maximum(gap, 0.0))
    return origins + way[:, None] * directions, (gap < 1e-4) & (way <= reach)


def finger_offsets(kinematics: HandKinematics) -> tuple[Array, NDArray[np.bool_]]:
    """Lateral order of the tips, -1..1, and which tip is on the thumb side.

    Read off the hand with all joints at 0, so that other hands with opposed fingers work too.
    """
    rest, _ = kinematics.tips(np.zeros(len(kinematics.hand)))
    thumb = rest[:, 0] > rest[:, 0].mean()
    offset = np.zeros(len(rest))
    for side in (thumb, ~thumb):
        y = rest[side, 1] - rest[side, 1].mean()
        span = np.abs(y).max(initial=0.0)
        offset[side] = y / span if span > 1e-6 else 0.0
    return offset, thumb


def place_pads(
    surface: TriangleSurface, kinematics: HandKinematics, request: GraspRequest
) -> tuple[Array, Array] | None:
    """Pad centres that touch the surface and inward normals there; None if a ray misses."""
    offset, thumb = finger_offsets(kinematics)
    vertices = surface.triangles.reshape(-1, 3)
    size = float(np.linalg.norm(np.ptp(vertices, axis=0)))
    middle = 0.5 * (vertices.max(axis=0) + vertices.min(axis=0))
    along = float(middle @ request.closing)
    inward = np.where(thumb, -1.0, 1.0)
    lateral = request.shift + offset * request.spread
    start = (
        (along - inward * size)[:, None] * request.closing
        + lateral[:, None] * request.lateral
        + np.array([0.0, 0.0, request.height])
    )
    radius = kinematics.model.tip_radius
    pads, hit = sphere_cast(surface, start, inward[:, None] * request.closing, radius, 1.6 * size)
    if not hit.all():
        return None
    near = surface.closest(pads)
    normals = near.point - pads
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    return pads, normals


def solve_grasp(
    surface: TriangleSurface,
    kinematics: HandKinematics,
    request: GraspRequest,
    rest_height: float,
    least_alignment: float = 0.0,
) -> Grasp | None:
    """Pads, wrist and joints for a request.

    Args:
        surface: object mesh in the object frame.
        kinematics: the hand.
        request: where to grasp.
        rest_height: height of the table in the object frame (lowest vertex), m.
        least_alignment: grasps that press less squarely than this cosine are not solved.

    Returns:
        The grasp with the wrist height that costs least, or None where no posture keeps the palm
        off the object and the fingers off the table.
    """
    placed = place_pads(surface, kinematics, request)
    if placed is None:
        return None
    pads, normals = placed
    radius = kinematics.model.tip_radius
    _, thumb = finger_offsets(kinematics)
    pressing = np.where(thumb, -1.0, 1.0)[:, None] * request.closing
    alignment = float((normals * pressing).sum(axis=1).min())
    if alignment < least_alignment:
        return None
    if pads[:, 2].min() - radius < rest_height + _TABLE_GAP:
        return None
    top = float(surface.triangles[..., 2].max())
    closing, lateral = request.closing, request.lateral
    midline = 0.5 * (pads[thumb].mean(axis=0) + pads[~thumb].mean(axis=0))
    rotation = np.stack([closing, lateral, np.array([0.0, 0.0, 1.0])], axis=1)
    origin = (midline @ closing) * closing + request.shift * lateral
    heights = request.height + _REACHES
    heights = heights[heights >= top + _PALM_GAP]
    if len(heights) == 0:
        return None
    wrists = np.tile(np.eye(4), (len(heights), 1, 1))
    wrists[:, :3, :3] = rotation
    wrists[:, :3, 3] = origin + np.stack([0 * heights, 0 * heights, heights], axis=1)
    inverse = se3.inverse(wrists)
    wanted = np.concatenate([pads, pads - CLEARANCE * pressing])
    local = np.einsum("wij,pj->wpi", inverse[:, :3, :3], wanted) + inverse[:, None, :3, 3]
    start = np.clip(_preferred_posture(kinematics), kinematics.lower, kinematics.upper)
    count = len(pads)
    joints, error = solve_tips(kinematics, local[:, :count], start, iterations=30)
    if error.max(axis=1).min() > _REACHED:
        return None
    opened, _ = solve_tips(kinematics, local[:, count:], joints, iterations=30)
    cost = error.max(axis=1) / 1e-3 + _link_depth(surface, kinematics, wrists, joints) / 1e-3
    # Straight fingers lose leverage against side loads and have no room left to close.
    cost = cost + 5.0 * np.abs(heights - request.height - 0.112)
    best = int(np.argmin(cost))
    if error[best].max() > _REACHED:
        return None
    return Grasp(
        request=request,
        T_object_wrist=wrists[best],
        joints=joints[best],
        open_joints=opened[best],
        pads=pads,
        points=pads + radius * normals,
        normals=normals,
        tip_error=float(error[best].max()),
        alignment=alignment,
    )


def plan_grasp(
    surface: TriangleSurface,
    kinematics: HandKinematics,
    *,
    centre_of_mass: Array,
    yaws: Sequence[float],
    height: float | None = None,
) -> Grasp:
    """Best top-down grasp near a wanted one.

    Args:
        surface: object mesh in the object frame, z up at rest.
        kinematics: the hand.
        centre_of_mass: (3,) in the object frame, m: the hand is put over it.
        yaws: closing directions to try, rad, best liked first.
        height: liked pad height in the object frame, m; the centre of mass's if None.

    Returns:
        The grasp that costs least over all yaws, heights and spreads tried.

    Raises:
        InputError: nothing fits between the hand's fingers; says how large the object is.
    """
    vertices = surface.triangles.reshape(-1, 3)
    low, high = float(vertices[:, 2].min()), float(vertices[:, 2].max())
    radius = kinematics.model.tip_radius
    liked = float(centre_of_mass[2]) if height is None else height
    liked = float(np.clip(liked, low + radius + 0.01, max(high - 0.015, low + radius + 0.01)))
    levels = liked + np.array([0.0, 0.008, -0.008, 0.016, 0.024, 0.036, 0.05, 0.07, 0.1])
    levels = levels[(levels <= high - 0.006) & (levels >= low + radius + _TABLE_GAP)]
    # Best first: what a candidate costs at least is known before any ray is cast.
    candidates = sorted(
        (
            abs(float(level) - liked) / 0.05 + 0.05 * rank + (0.034 - spread) / 0.05,
            rank,
            spread,
            float(level),
        )
        for rank in range(len(yaws))
        for spread in _SPREADS
        for level in levels
    )
    best: tuple[float, Grasp] | None = None
    for least, rank, spread, level in candidates:
        if best is not None and least >= best[0]:
            break
        yaw = yaws[rank]
        shift = float(centre_of_mass @ GraspRequest(yaw, 0.0).lateral)
        request = GraspRequest(yaw, level, shift, spread)
        limit = np.inf if best is None else best[0] - least
        grasp = solve_grasp(surface, kinematics, request, low, 1.0 - limit / _SQUARENESS)
        if grasp is None:
            continue
        cost = least + _SQUARENESS * (1.0 - grasp.alignment) + grasp.tip_error / 1e-3
        if best is None or cost < best[0]:
            best = (cost, grasp)
    if best is None:
        extent = np.round(np.ptp(vertices, axis=0), 3)
        raise InputError(
            f"no top-down grasp found on an object of {extent.tolist()} m: expected one horizontal "
            "side below about 0.10 m and a top that leaves room for the palm; try another object"
        )
    return best[1]


def narrow_yaws(surface: TriangleSurface, count: int = 12) -> list[float]:
    """Closing directions by the object's horizontal width along them, narrowest first, rad.

    Both senses of each direction are given (thumb on either side), as the arm may prefer one.
    """
    points = surface.triangles.reshape(-1, 3)
    angles = np.arange(count) * np.pi / count
    along = points[:, :2] @ np.stack([np.cos(angles), np.sin(angles)])
    order = np.argsort(np.ptp(along, axis=0), kind="stable")
    return [float(angles[i] + turn) for i in order for turn in (0.0, np.pi)]


def _preferred_posture(kinematics: HandKinematics) -> Array:
    """Fingers out at the knuckle and bent back in, so that the pads, not the links, touch."""
    names = [kinematics.model.joint_names[i] for i in kinematics.hand]
    bend = {"0": 0.0, "1": -0.25, "2": 0.45, "3": 0.45}
    return np.array([bend.get(name.rsplit("_", 1)[-1], 0.0) for name in names])


def _link_depth(
    surface: TriangleSurface, kinematics: HandKinematics, wrists: Array, joints: Array
) -> Array:
    """Deepest entry of a finger link into the object, (w,) m; 0 where all are outside."""
    poses = kinematics.links(joints)
    points = []
    for geom in kinematics.model.geoms:
        if geom.shape == "capsule" and geom.link in poses and geom.link != kinematics.wrist:
            for t in (0.25, 0.75):
                middle = (1 - t) * np.array(geom.start) + t * np.array(geom.to)
                points.append(poses[geom.link][:, :3, :3] @ middle + poses[geom.link][:, :3, 3])
    stacked = np.stack(points, axis=1)
    world = np.einsum("wij,wpj->wpi", wrists[:, :3, :3], stacked) + wrists[:, None, :3, 3]
    # A link axis nearer than its radius is a collision; unsigned distance suffices to see it
    # coming.
    distance = surface.closest(world.reshape(-1, 3)).distance.reshape(len(wrists), -1)
    depth: Array = np.maximum(0.0085 - distance, 0.0).max(axis=1)
    return depth
