"""Short drawn clips with their truth, and what went wrong in tracking them: printed or plain."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import cv2
import numpy as np

from tests.tracking.box_scene import BoxScene, look_at, pose, rotation
from twinloop.geometry import se3
from twinloop.metrics.poses import average_distance
from twinloop.splat.gaussians import Gaussians
from twinloop.tracking.frame import CameraFrame, Frame
from twinloop.tracking.images import to_grey
from twinloop.tracking.initialise import find_start
from twinloop.tracking.model import ObjectModel, build_model
from twinloop.tracking.pose_track import OK, PoseTrack
from twinloop.tracking.session import Followed, follow
from twinloop.tracking.settings import Settings
from twinloop.tracking.solver import Solution, WorldCamera
from twinloop.tracking.state import Start

Array = np.ndarray
WIDTH, HEIGHT = 400, 300
LENS = np.array([400.0, 400.0, 199.5, 149.5])
EYE = look_at(np.array([0.1, -0.42, 0.3]), np.array([0.0, 0.0, 0.03]))
"""T_world_camera."""
CAMERA = WorldCamera(LENS, se3.inverse(EYE), WIDTH, HEIGHT)
RATE = 30.0


def printed_box() -> BoxScene:
    """The box with labels; noise is added later, to every clip its own."""
    return BoxScene(seed=3, noise=0.0)


def plain_box(size: Sequence[float]) -> BoxScene:
    """A box of one colour."""
    scene = BoxScene(size=np.array(size), seed=3, noise=0.0)
    blue = np.array([50.0, 80.0, 170.0])
    scene.faces = [(corners, np.full((40, 40, 3), blue)) for corners, _ in scene.faces]
    return scene


def box_model(scene: BoxScene, views: int = 12) -> ObjectModel:
    """What is tracked of a box that stood upright in its scan."""
    vertices, faces, _ = scene.mesh()
    rest = pose(np.eye(3), np.array([0.0, 0.0, scene.size[2] / 2]))
    return build_model(vertices, faces, scene.gaussians(0.0012), T_world_object=rest, views=views)


@cache
def printed() -> tuple[BoxScene, ObjectModel]:
    """The printed box and its model, made once; `fresh()` of it for every clip."""
    scene = printed_box()
    return scene, box_model(scene)


@cache
def plain() -> tuple[BoxScene, ObjectModel]:
    """A box of the same size and of one colour, and its model."""
    scene = plain_box((0.10, 0.055, 0.085))
    return scene, box_model(scene)


def standing(height: float, x: float, y: float, yaw: float) -> Array:
    """T_world_object of a body that stands on the table, its origin in its middle."""
    return pose(rotation("z", yaw), np.array([x, y, height / 2]))


class PlainBody:
    """A convex body of one colour, drawn facet by facet in diffuse light."""

    def __init__(self, vertices: Array, faces: Array, colour: Array) -> None:
        self.vertices, self.faces, self.colour = vertices, faces, colour
        self.table = BoxScene(seed=3, noise=0.0).render(LENS, EYE, None, WIDTH, HEIGHT)

    def picture(self, T: Array, fine: int = 4) -> Array:
        """RGB picture (h, w, 3) of the body on the table, each pixel its share of the colours."""
        seen = self.vertices @ T[:3, :3].T + T[:3, 3]
        p = seen @ CAMERA.T_camera_world[:3, :3].T + CAMERA.T_camera_world[:3, 3]
        pixels = (p[:, :2] / p[:, 2:] * LENS[:2] + LENS[2:] + 0.5) * fine - 0.5
        out = np.repeat(np.repeat(self.table, fine, 0), fine, 1)
        a, b, c = (seen[self.faces[:, k]] for k in range(3))
        normals = np.cross(b - a, c - a)
        normals /= np.linalg.norm(normals, axis=1, keepdims=True)
        for facet, n, at in zip(self.faces, normals, a, strict=True):
            if n @ (EYE[:3, 3] - at) > 0:
                shade = 0.75 + 0.25 * float(n @ np.array([0.3, -0.5, 0.81]))
                corners = np.rint(pixels[facet] * 16).astype(np.int32)
                cv2.fillConvexPoly(out, corners, tuple(shade * self.colour), cv2.LINE_8, 4)
        return cv2.resize(out, (WIDTH, HEIGHT), interpolation=cv2.INTER_AREA)

    def gaussians(self, count: int = 4000) -> Gaussians:
        """Its looks: Gaussians all over it."""
        rng = np.random.default_rng(0)
        a, b, c = (self.vertices[self.faces[:, k]] for k in range(3))
        area = np.linalg.norm(np.cross(b - a, c - a), axis=1)
        which = rng.choice(len(area), count, p=area / area.sum())
        u, v = np.sort(rng.uniform(size=(2, count, 1)), axis=0)
        means = a[which] * u + b[which] * (v - u) + c[which] * (1 - v)
        colours = np.tile((self.colour / 255.0 - 0.5) / 0.28209479, (count, 1, 1))
        return Gaussians(
            means.astype(np.float32),
            np.tile(np.array([1, 0, 0, 0], np.float32), (count, 1)),
            np.full((count, 3), 0.0012, np.float32),
            np.full(count, 0.98, np.float32),
            colours.astype(np.float32),
        )


def cylinder(radius: float, height: float, sides: int = 48) -> PlainBody:
    """An upright cylinder of one colour."""
    angles = np.arange(sides) * 2 * np.pi / sides
    ring = radius * np.stack([np.cos(angles), np.sin(angles), 0 * angles], 1)
    up = np.array([0, 0, height / 2])
    vertices = np.concatenate([ring - up, ring + up, [-up, up]])
    i, j = np.arange(sides), (np.arange(sides) + 1) % sides
    wall = [np.stack([i, j, j + sides], 1), np.stack([i, j + sides, i + sides], 1)]
    ends = [
        np.stack([j, i, np.full(sides, 2 * sides)], 1),
        np.stack([i + sides, j + sides, np.full(sides, 2 * sides + 1)], 1),
    ]
    faces = np.concatenate(wall + ends).astype(np.int32)
    return PlainBody(vertices, faces, np.array([190.0, 70.0, 40.0]))


def pictures(scene: BoxScene, truth: Array) -> list[Array]:
    """A picture of the scene for every pose, without noise."""
    return [scene.render(LENS, EYE, T, WIDTH, HEIGHT) for T in truth]


def noisy(image: Array, rng: np.random.Generator) -> Array:
    """The picture with a sensor's noise of 2 grey levels."""
    return np.clip(image + rng.normal(0, 2.0, image.shape), 0, 255).astype(np.uint8)


def frames_of(images: Sequence[Array], times: Array | None = None, seed: int = 0) -> list[Frame]:
    """Noisy frames of the camera, 30 a second unless told."""
    rng = np.random.default_rng(seed)
    times = np.arange(len(images)) / RATE if times is None else times
    out = []
    for time, image in zip(times, images, strict=True):
        rgb = noisy(image, rng)
        out.append(Frame(float(time), (CameraFrame(CAMERA, rgb, to_grey(rgb)),)))
    return out


def started(model: ObjectModel, frame: Frame) -> Start:
    """The start found in a frame."""
    start = find_start(model, frame, Settings())
    assert start is not None
    return start


def given(T: Array) -> Start:
    """A start that is known to a third of a millimetre."""
    covariance = np.diag([3e-4**2] * 3 + [0.003**2] * 3)
    return Start(Solution(T, covariance, np.linalg.inv(covariance), ()), True, "given", True)


def tracked(
    model: ObjectModel, frames: list[Frame], start: Start | None = None, *, plane: bool = True
) -> Followed:
    """The clip from its start (found in the first frame unless given) to its smoothed poses."""
    model = model.fresh()
    start = start or started(model, frames[0])
    return follow(model, frames[0], start, frames, Settings(), plane=plane)


def largest_sigma(covariances: Array) -> Array:
    """Largest standard deviation of the position, m, of every frame."""
    return np.sqrt(np.linalg.eigvalsh(covariances[:, :3, :3])[:, -1])


def errors(poses: PoseTrack, truth: Array, points: Array) -> Array:
    """Mean distance of the model's points from where they are, m, of every frame."""
    return average_distance(poses.pose, truth, points)


def wrong_and_ok(poses: PoseTrack, truth: Array, points: Array, most: float = 0.004) -> Array:
    """Frames that are called ok and are further off than `most` m."""
    return np.flatnonzero((poses.status == OK) & (errors(poses, truth, points) > most))


def covered(image: Array, corners: Sequence[tuple[float, float]], colour: Sequence[int]) -> Array:
    """The picture with a polygon (corners in px) of a colour before everything."""
    out = image.copy()
    shape = np.rint(np.asarray(corners) * 16).astype(np.int32)
    cv2.fillConvexPoly(out, shape, tuple(float(c) for c in colour), cv2.LINE_AA, 4)
    return out


def look_down(height: float) -> Array:
    """T_world_camera of a camera at a height (m) looking down, x as the world."""
    return pose(np.diag([1.0, -1.0, -1.0]), np.array([0.0, 0.0, height]))
