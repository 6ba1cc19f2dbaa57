"""Where in a picture the robot may hide the object: its shapes, projected at its joint angles.

Every shape of a robot model is the convex hull of balls (a capsule of two, a box of eight of
radius 0).  The outline of a ball under a pinhole is the projection of the circle in which the cone
from the camera's centre touches it, so that a shape's silhouette is the convex hull of a few dozen
points.  A margin in px makes the balls larger by what it measures at their distance.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from twinloop.capture.logs.streams import RobotLog
from twinloop.capture.push_session import PushSession
from twinloop.capture.robot_log import read_robot_log
from twinloop.errors import InputError
from twinloop.geometry import se3
from twinloop.hand.model import Geom, RobotModel
from twinloop.tracking.joint_signals import order_joints
from twinloop.tracking.solver import WorldCamera

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

NEAR = 1e-3
"""What is nearer to the camera's plane than this is cut off, m."""
FARTHEST_PIXEL = 1e6
"""Outlines are cut at this distance from the picture's corner, px: fixed-point numbers end."""
SHIFT = 4
"""Binary digits of an outline behind the point."""
CIRCLE = 12
"""Points of a ball's outline, on the circle's circumscribed polygon."""


@dataclass(frozen=True)
class JointMotion:
    """The robot's joints through a clip.

    time: (n,) s, robot clock, increasing; position: (n, joint) m or rad, in the model's order.
    """

    time: Array
    position: Array

    def at(self, time: float) -> Array:
        """Joints (joint,) at `time` s, robot clock, linear between samples; ends are held."""
        right = int(np.clip(np.searchsorted(self.time, time), 1, max(len(self.time) - 1, 1)))
        if len(self.time) == 1:
            return np.asarray(self.position[0])
        before, after = self.time[right - 1], self.time[right]
        share = float(np.clip((time - before) / (after - before), 0.0, 1.0))
        return np.asarray((1 - share) * self.position[right - 1] + share * self.position[right])

    def around(self, time: float, doubt: float) -> Array:
        """Joints (k, joint) at the ends, the middle and the samples of `time` +- `doubt` s.

        What the robot sweeps while the exact instant is not known; at most 9 postures.
        """
        if doubt <= 0:
            return self.at(time)[None]
        count = int(np.clip(np.ceil(2 * doubt / 0.008), 2, 8)) + 1
        moments = np.linspace(time - doubt, time + doubt, count)
        return np.stack([self.at(float(t)) for t in moments])

    def covers(self, time: float, slack: float = 0.05) -> bool:
        """Whether the log tells the joints at `time` s, or ends at most `slack` s away from it."""
        return bool(self.time[0] - slack <= time <= self.time[-1] + slack)


def joint_motion(robot: RobotModel, log: RobotLog, where: Path) -> JointMotion:
    """The motion that a log tells, in the order of the robot's joints.

    Raises:
        InputError: A joint is missing in the log, or a position is not finite.
    """
    position = order_joints(robot, log.joints, log.position, where)
    bad = np.flatnonzero(~np.isfinite(position).all(axis=1))
    if len(log.time) == 0 or len(bad):
        said = f"sample {bad[0]} has a position that is not finite" if len(bad) else "0 samples"
        raise InputError(f"{where}: {said}; expected positions of all joints. Log the push again.")
    return JointMotion(log.time, position)


def session_motion(session: PushSession, push: str, robot: RobotModel) -> JointMotion:
    """The joints of one push of a session, on the robot's clock.

    Raises:
        InputError: The log is missing or wrong; see :func:`read_robot_log`.
    """
    path = session.log(push)
    return joint_motion(robot, read_robot_log(path, session.robot, robot), path)


class RobotMask:
    """Draws the robot's silhouette into pictures without lens distortion.

    Args:
        robot: Kinematics and shapes.
        T_world_base: (4, 4) where the base stands.
        margin: px by which the silhouette is enlarged: what is left of calibration, of blur, and
            what the shapes lack of the real robot.
    """

    def __init__(self, robot: RobotModel, T_world_base: Array, margin: float = 3.0) -> None:
        shapes = [geom for geom in robot.geoms if geom.shape != "none"]
        if not shapes:
            raise InputError(
                f"robot {robot.name}: has no shapes, so that it hides nothing; add geoms to its "
                "YAML, or track without it."
            )
        self.robot = robot
        self.margin = margin
        self.T_world_base = np.asarray(T_world_base, np.float64)
        balls = [_balls(geom) for geom in shapes]
        self._centre = np.concatenate([centre for centre, _ in balls])
        self._radius = np.concatenate([radius for _, radius in balls])
        self._links = tuple(geom.link for geom in shapes for _ in range(len(_balls(geom)[0])))
        ends = np.cumsum([len(radius) for _, radius in balls])
        self._slices = [slice(a, b) for a, b in pairwise([0, *ends.tolist()])]
        self._axis = np.array([joint.axis for joint in robot.joints])
        self._origin = np.array([joint.origin for joint in robot.joints])
        self._cross = se3.skew(self._axis)
        self._cross_squared = self._cross @ self._cross
        angle = 2 * np.pi * np.arange(CIRCLE) / CIRCLE
        # The polygon goes about the circle, so that it cuts nothing off.
        self._circle = np.stack([np.cos(angle), np.sin(angle)], 1) / np.cos(np.pi / CIRCLE)

    def mask(
        self,
        camera: WorldCamera,
        q: Array,
        *,
        window: tuple[int, int, int, int] | None = None,
        margin: float | None = None,
    ) -> Mask:
        """Where the robot is, or may be.

        Args:
            camera: Intrinsics and pose, no distortion.
            q: Joints (joint,), or (k, joint): each shape then covers all that lies between its k
                places, for when the instant is not known exactly (:meth:`JointMotion.around`).
            window: Left, top, right, bottom px (right and bottom excluded): only this is drawn.
            margin: px, instead of the one given at the start.

        Returns:
            (h, w) bool, or of the window's size.
        """
        left, top, right, bottom = window or (0, 0, camera.width, camera.height)
        drawn = np.zeros((max(bottom - top, 0), max(right - left, 0)), np.uint8)
        for outline in self.outlines(camera, q, self.margin if margin is None else margin):
            if outline is None:
                drawn[:] = 1
                break
            fixed = np.rint((outline - [left, top]) * 2**SHIFT).astype(np.int32)
            cv2.fillConvexPoly(drawn, fixed, 1, cv2.LINE_8, SHIFT)
        return drawn.view(np.bool_)

    def outlines(self, camera: WorldCamera, q: Array, margin: float) -> list[Array | None]:
        """Convex outlines (k, 2) px of the shapes in view; None for one the camera is inside of."""
        T = self._link_poses(np.atleast_2d(self.robot.check(q)), camera.T_camera_world)
        centre = np.einsum("kbij,bj->kbi", T[..., :3, :3], self._centre) + T[..., :3, 3]
        distance = np.sqrt((centre**2).sum(axis=2))
        radius = self._radius + margin * distance / max(float(camera.intrinsics[:2].min()), 1.0)
        inside = (distance <= radius * (1 + 1e-9)).any(axis=0)
        points = self._touching(centre, distance, radius)
        fx, fy, cx, cy = camera.intrinsics
        ahead = points[..., 2] > NEAR
        z = np.where(ahead, points[..., 2], 1.0)
        pixels = np.stack([fx * points[..., 0] / z + cx, fy * points[..., 1] / z + cy], -1)
        pixels = np.clip(pixels, -FARTHEST_PIXEL, FARTHEST_PIXEL).astype(np.float32)
        # By ball: what of it is ahead, and the box about it in the picture.
        every: Mask = np.asarray(ahead.all(axis=(0, 2)))
        some: Mask = np.asarray(ahead.any(axis=(0, 2)))
        low, high = pixels.min(axis=(0, 2)), pixels.max(axis=(0, 2))
        size = np.array([camera.width, camera.height])
        outside = np.stack([(high < -1), (low > size)])
        found: list[Array | None] = []
        for part in self._slices:
            if inside[part].any():
                found.append(None)
            elif every[part].all():
                if not outside[:, part].all(axis=1).any():
                    found.append(_hull(pixels[:, part].reshape(-1, 2)))
            elif some[part].any():
                cut = _cut(points[:, part].reshape(-1, 3), ahead[:, part].reshape(-1))
                outline = cut[:, :2] / cut[:, 2:] * [fx, fy] + [cx, cy]
                limited = np.clip(outline, -FARTHEST_PIXEL, FARTHEST_PIXEL)
                found.append(_hull(limited.astype(np.float32)))
        return found

    def _link_poses(self, postures: Array, T_camera_world: Array) -> Array:
        """T_camera_link (k, ball, 4, 4) of the link of each ball.

        As :meth:`RobotModel.forward`, with all joints' own motions at once: in pictures after
        pictures this is most of the time.
        """
        robot = self.robot
        local = np.zeros((robot.dof, len(postures), 4, 4))
        local[:, :, :3, 3] = self._origin[:, None]
        local[:, :, 3, 3] = 1.0
        value = postures.T[:, :, None]
        turning = ~robot.prismatic
        local[~turning, :, :3, 3] += value[~turning] * self._axis[~turning, None]
        # Rodrigues' formula with the cross-product matrices K of the axes.
        sine, versine = np.sin(value[..., None]), 1.0 - np.cos(value[..., None])
        turns = np.eye(3) + sine * self._cross[:, None] + versine * self._cross_squared[:, None]
        local[:, :, :3, :3] = np.where(turning[:, None, None, None], turns, np.eye(3))
        root = np.broadcast_to(T_camera_world @ self.T_world_base, (len(postures), 4, 4))
        poses = {robot.base_link: root}
        for index, joint in enumerate(robot.joints):
            poses[joint.link] = poses[joint.parent] @ local[index]
        return np.stack([poses[link] for link in self._links], axis=1)

    def _touching(self, centre: Array, distance: Array, radius: Array) -> Array:
        """Points (k, ball, point, 3) of the circles where cones from the origin touch balls."""
        safe = np.maximum(distance, 1e-9)  # a camera in a ball's very centre: told by `inside`
        sine = np.minimum(radius / safe, 1.0)
        cosine = np.sqrt(1.0 - sine**2)
        direction = centre / safe[..., None]
        # Any direction that is not along the ray will do to span the circle's plane.
        other = np.zeros_like(direction)
        np.put_along_axis(other, np.argmin(np.abs(direction), axis=-1)[..., None], 1.0, axis=-1)
        first = _cross(direction, other)
        first /= np.sqrt((first**2).sum(axis=-1, keepdims=True))
        second = _cross(direction, first)
        middle = centre * (cosine**2)[..., None]
        reach = (radius * cosine)[..., None, None]
        across = (
            self._circle[:, :1] * first[..., None, :] + self._circle[:, 1:] * second[..., None, :]
        )
        return np.asarray(middle[..., None, :] + reach * across)


def _balls(geom: Geom) -> tuple[Array, Array]:
    """Centres (n, 3) m in the link's frame and radii (n,) of balls whose hull a shape is."""
    if geom.shape == "capsule":
        return np.array([geom.start, geom.to]), np.full(2, geom.radius)
    if geom.shape == "sphere":
        return np.array([geom.centre]), np.array([geom.radius])
    signs = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], np.float64)
    return np.array(geom.centre) + signs * np.array(geom.size), np.zeros(8)


def _cross(a: Array, b: Array) -> Array:
    """Cross products (..., 3); NumPy's own takes longer for what it checks."""
    ax, ay, az = a[..., 0], a[..., 1], a[..., 2]
    bx, by, bz = b[..., 0], b[..., 1], b[..., 2]
    return np.stack([ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx], axis=-1)


def _hull(pixels: NDArray[np.float32]) -> Array:
    """Convex hull (k, 2) of pixels (n, 2)."""
    return np.asarray(cv2.convexHull(pixels), np.float64).reshape(-1, 2)


def _cut(points: Array, seen: Mask) -> Array:
    """The points (n, 3) before the camera, and where lines to those behind it cross the plane."""
    ahead, behind = points[seen], points[~seen]
    share = (ahead[:, None, 2] - NEAR) / (ahead[:, None, 2] - behind[None, :, 2])
    crossing = ahead[:, None] + share[..., None] * (behind[None] - ahead[:, None])
    crossing[..., 2] = NEAR
    return np.concatenate([ahead, crossing.reshape(-1, 3)])
