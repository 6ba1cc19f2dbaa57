"""Replay: Gaussians of a scan that follow true push poses, against the push's own frames.

The object is fitted to clean pictures of it standing still, then drawn at the poses that it takes
when the robot pushes it, in the push's camera. The frames are the lab's (MuJoCo's renderer, not the
one of the fit), without noise and lens, twice supersampled. Light stays in the world while the
object turns, so that its shading, which the Gaussians keep, is no longer right: that is measured,
not removed. Pixels that the robot hides do not count.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.rows import Figure
from benchmarks.splat_scenes import lab_scene
from twinloop.geometry import se3
from twinloop.geometry.raycast import MeshRenderer
from twinloop.hand.model import RobotModel
from twinloop.lab.film import FilmSettings, Stage, robot_scene, set_up, table_scene
from twinloop.lab.lens import LabCamera
from twinloop.lab.objects import LabObject
from twinloop.lab.pushes import (
    RecordedPush,
    auto_pushes,
    first_guess,
    placement,
    run_push,
)
from twinloop.lab.render import Renderer
from twinloop.lab.world import RobotTruth
from twinloop.splat.cameras import Camera
from twinloop.splat.color import vertex_colors
from twinloop.splat.gaussians import Gaussians, on_surface
from twinloop.splat.hull import hull_mesh
from twinloop.splat.quality import psnr
from twinloop.splat.replay import replay
from twinloop.splat.train import TrainSettings, train

import mujoco  # isort: skip  after twinloop.lab.render, which chooses the GL first

ITERATIONS = 1200
FRAMES = 3
"""Frames judged per push."""
FINE = 2
Array = NDArray[np.float64]
Float32 = NDArray[np.float32]


@dataclass(frozen=True)
class Judged:
    """PSNR (dB) over the object's visible pixels, and the silhouette's intersection over union."""

    psnr: float
    overlap: float
    turned: float
    """Angle (deg) between the object's pose and that of the scan."""


def fit(preset: str, size: int = 200) -> tuple[LabObject, Gaussians]:
    """The object and its Gaussians, fitted to 40 clean pictures of it."""
    scene = lab_scene(preset, size=size)
    vertices, faces = hull_mesh(scene.views, 72, table=None)
    colors = vertex_colors(vertices, faces, scene.views)
    start = on_surface(vertices, faces, colors, 4000, 1, seed=0)
    return scene.item, train(start, scene.views, TrainSettings(iterations=ITERATIONS))


def session(item: LabObject, robot: RobotModel, truth: RobotTruth) -> list[RecordedPush]:
    """A tilt, a tap and a slide of the usual session, done once, without rehearsals."""
    rng, out = np.random.default_rng(0), []
    for index in (0, 2, 3):
        push = first_guess(auto_pushes(item.size)[index], item.size)
        pose = placement(push, rng)
        rollout = run_push(robot, item, push, pose, truth, 10)
        out.append(RecordedPush(f"push_{index:03d}", push, pose, rollout))
    return out


def judge(item: LabObject, gaussians: Gaussians, pushes: list[RecordedPush]) -> list[Judged]:
    """Scores of frames spread over each push."""
    robot = RobotModel.load("twinhand")
    settings = FilmSettings()
    stage = set_up(item.size, settings, np.random.default_rng(0))
    plain = LabCamera(settings.width, settings.height, stage.camera.intrinsics, (0.0,) * 5)
    camera = Camera(np.array(plain.intrinsics), plain.width, plain.height, stage.T_world_camera)
    film = _Film(robot_scene(item, robot, stage, 0), plain, stage)
    alone = _Film(table_scene(item, stage, 0).compile(), plain, stage)
    out = []
    for push in pushes:
        moments = np.linspace(0.15, 0.95, FRAMES) * push.rollout.time[-1]
        states = push.rollout.states(moments)
        poses = push.rollout.object_poses(moments)
        for state, pose, view in zip(states, poses, replay(gaussians, poses, camera), strict=True):
            cover = coverage(item, camera, pose)
            frame = film.frame(state)
            bare = film.without(state)
            hidden = _wider(np.abs(frame - alone.frame(state[-7:])).max(axis=-1) > 2 / 255)
            shown = view.rgb + (1 - view.alpha)[..., None] * bare
            inside = (cover > 0.5) & ~hidden
            turned = np.degrees(np.linalg.norm(se3.log(pose)[3:]))
            solid = view.alpha > 0.5
            overlap = (solid & (cover > 0.5)).sum() / (solid | (cover > 0.5)).sum()
            out.append(Judged(psnr((shown - frame)[inside]), float(overlap), float(turned)))
    film.close()
    alone.close()
    return out


def coverage(item: LabObject, camera: Camera, T_world_object: Array) -> Float32:
    """How much of each pixel (h, w) the true mesh covers, by casting 16 rays a pixel."""
    k, s = camera.intrinsics, 4
    fine = np.r_[k[:2] * s, (k[2:] + 0.5) * s - 0.5]
    T = se3.inverse(camera.T_world_camera) @ T_world_object
    hit = MeshRenderer(item.vertices, item.faces).render(
        fine, camera.width * s, camera.height * s, T
    )
    return hit.mask.reshape(camera.height, s, camera.width, s).mean(axis=(1, 3), dtype=np.float32)


class _Film:
    """Frames (h, w, 3) 0..1 of the push's scene without noise and lens."""

    def __init__(self, model: Any, camera: LabCamera, stage: Stage) -> None:
        self.data, self.stage = mujoco.MjData(model), stage
        fx, fy, cx, cy = camera.intrinsics
        k = (fx * FINE, fy * FINE, (cx + 0.5) * FINE - 0.5, (cy + 0.5) * FINE - 0.5)
        self.camera = LabCamera(camera.width * FINE, camera.height * FINE, k, (0.0,) * 5)
        self.model = model
        self.renderer = Renderer(model, self.camera.width, self.camera.height)

    def frame(self, state: Array) -> Float32:
        self.data.qpos[:] = state
        mujoco.mj_kinematics(self.model, self.data)
        mujoco.mj_camlight(self.model, self.data)
        fine = self.renderer.render(self.data, self.camera, self.stage.T_world_camera)
        h, w = self.camera.height // FINE, self.camera.width // FINE
        mean = fine.reshape(h, FINE, w, FINE, 3).mean(axis=(1, 3), dtype=np.float32)
        return np.asarray(mean / np.float32(255))

    def without(self, state: Array) -> Float32:
        """The same moment without the object, which is put a kilometre below."""
        away = state.copy()
        away[-5] = -1000
        return self.frame(away)

    def close(self) -> None:
        self.renderer.close()


def _wider(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The mask and 2 px around it."""
    from scipy.ndimage import binary_dilation

    return np.asarray(binary_dilation(mask, iterations=2))


def figures(preset: str) -> list[Figure]:
    """Object PSNR and silhouette overlap over a push session of `preset`, and the render's time."""
    item, gaussians = fit(preset)
    robot = RobotModel.load("twinhand")
    nominal = RobotTruth(*(np.ones(robot.dof) for _ in range(3)))
    pushes = session(item, robot, nominal)
    scores = judge(item, gaussians, pushes)
    db, overlap = np.array([s.psnr for s in scores]), np.array([s.overlap for s in scores])
    turned = np.array([s.turned for s in scores])
    n, near = len(scores), turned < 45
    stage = set_up(item.size, FilmSettings(), np.random.default_rng(0))
    k = np.array(stage.camera.intrinsics)
    camera = Camera(k, 640, 480, stage.T_world_camera)
    spent = []
    for _ in range(5):
        start = time.process_time()
        list(replay(gaussians, np.eye(4)[None], camera))
        spent.append(time.process_time() - start)
    title = f"replay {preset}:"
    rows = [
        Figure(f"{title} object PSNR, mean", float(db.mean()), "dB", 28.0, "higher", n),
        Figure(f"{title} object PSNR, worst", float(db.min()), "dB", None, "higher", n),
        Figure(f"{title} silhouette IoU, mean", float(overlap.mean()), "", 0.95, "higher", n),
        Figure(f"{title} silhouette IoU, worst", float(overlap.min()), "", None, "higher", n),
        Figure(f"{title} CPU time of a 640x480 frame", 1e3 * min(spent), "ms", None, "lower", 5),
    ]
    for name, which in (("under", near), ("over", ~near)):
        if which.any():
            value = float(db[which].mean())
            name = f"{title} object PSNR, turned {name} 45 deg"
            rows.append(Figure(name, value, "dB", None, "higher", int(which.sum())))
    return rows
