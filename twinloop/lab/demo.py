"""A human demonstration: a right hand grasps the object from above and lifts it.

The hand is kinematic: thumb and fingers are placed on opposite sides of the object, which moves
with them once they hold it. Written as a hand tracker and an object tracker would leave it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from twinloop.geometry import quaternion, se3
from twinloop.lab.actions import first_hit
from twinloop.lab.film import (
    FilmSettings,
    Stage,
    film,
    frame_times,
    set_up,
    table_scene,
    write_stage,
)
from twinloop.lab.human_hand import EDGES, PAD, THUMB, hand_keypoints
from twinloop.lab.objects import LabObject
from twinloop.lab.render import PhotoCamera
from twinloop.lab.spec import NoiseSpec

import mujoco  # isort: skip  after twinloop.lab.render, which chooses the GL first

FloatArray = NDArray[np.float64]

SKIN = (0.80, 0.62, 0.52, 1.0)
SPREAD = np.array([0.0, -0.033, -0.011, 0.011, 0.031])
"""m, sideways places of thumb and fingers in the hand frame; squeezed for narrow objects."""


class DemoSettings(BaseModel):
    """How the demonstration is captured."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    height: Annotated[float, Field(gt=0, le=0.3, description="lift, m")] = 0.08
    pace: Annotated[float, Field(gt=0.1, le=4, description="1 = 2.6 s for the whole grasp")] = 1.0
    camera: FilmSettings = FilmSettings(rate=30.0, subframes=1)


class Grasp:
    """The hand's and the object's motion as functions of time.

    Times scale with 1/pace: rest 0.3 s, come down 0.6 s, close 0.4 s, hold 0.2 s, lift 0.7 s, hold.
    """

    def __init__(
        self, obj: LabObject, T_world_object: FloatArray, settings: DemoSettings, yaw_error: float
    ) -> None:
        self.settings = settings
        self.T_world_object = T_world_object
        size = obj.size
        thin = 0.0 if size[0] <= size[1] else 0.5 * np.pi
        self.T_object_hand = se3.from_position_quaternion(
            np.zeros(3), quaternion.from_rotvec([0.0, 0.0, thin + yaw_error])
        )
        self.depth, self.touch = self._choose(obj)
        # Fingers half bent: their roots 5 cm above the tips, the palm over the object.
        lift = 0.050 + 0.086
        self.T_object_hand[2, 3] = self.depth + lift
        self.T_object_hand[:3, 3] += self.T_object_hand[:3, 0] * (self.touch[2, 0] + 0.012)
        self.duration = 2.6 / settings.pace

    def _choose(self, obj: LabObject) -> tuple[float, FloatArray]:
        """Depth of the tips and their places: near the top, in the middle, if all have hold.

        An opening (the letter U) moves the hand sideways or down until they do.
        """
        size, rotation = obj.size, self.T_object_hand[:3, :3]
        width = float(np.ptp(obj.vertices @ rotation[:, 1]))
        best: tuple[int, float, FloatArray] | None = None
        for depth in (max(size[2] - 0.032, 0.5 * size[2]), 0.5 * size[2], 0.25 * size[2]):
            for shift in (0.0, -0.36, 0.36):
                held, tips = self._touch(obj, float(depth), shift * width, width)
                if best is None or held > best[0]:
                    best = held, float(depth), tips
        assert best is not None
        return best[1:]

    def _touch(
        self, obj: LabObject, depth: float, shift: float, width: float
    ) -> tuple[int, FloatArray]:
        """Tip keypoints (5, 3) on the surface, the hand's axes, the object's origin.

        Also how many have hold, the thumb counting like all fingers together.
        """
        rotation = self.T_object_hand[:3, :3]
        spread = SPREAD * min(1.0, 0.38 * width / 0.033) + shift
        reaches = np.full(5, np.nan)
        for finger, y in enumerate(spread):
            side = 1.0 if finger == THUMB else -1.0
            start = rotation @ np.array([side * 0.5, y, 0.0]) + [0.0, 0.0, depth]
            distance = first_hit(obj, start, rotation @ np.array([-side, 0.0, 0.0]))
            if distance is not None:
                reaches[finger] = 0.5 - distance
        held = np.isfinite(reaches)
        fingers = reaches[1:][held[1:]]
        # A finger that meets nothing lies beside its neighbours.
        reaches[1:] = np.where(held[1:], reaches[1:], fingers.mean() if len(fingers) else 0.0)
        reaches = np.where(np.isfinite(reaches), reaches, 0.0)
        sides = np.where(np.arange(5) == THUMB, 1.0, -1.0)
        tips = np.stack([sides * (reaches + PAD), spread, np.full(5, depth)], axis=1)
        return int(held[1:].sum() + 4 * held[0]), tips

    def _progress(self, time: FloatArray, start: float, span: float) -> FloatArray:
        """0 before, 1 after, smooth between, for times (n,) s."""
        s = np.clip((time * self.settings.pace - start) / span, 0.0, 1.0)
        return np.asarray(s * s * (3.0 - 2.0 * s))

    def object_pose(self, time: FloatArray) -> FloatArray:
        """``T_world_object`` (n, 4, 4)."""
        poses = np.tile(self.T_world_object, (len(time), 1, 1))
        poses[:, 2, 3] += self.settings.height * self._progress(time, 1.5, 0.7)
        return poses

    def keypoints(self, time: FloatArray) -> FloatArray:
        """Keypoints (n, 21, 3) m in the world."""
        come, close = self._progress(time, 0.3, 0.6), self._progress(time, 0.9, 0.4)
        poses = self.object_pose(time) @ self.T_object_hand
        poses[:, 2, 3] += 0.10 * (1.0 - come)
        poses[:, :3, 3] += (1.0 - come[:, None]) * 0.06 * poses[:, :3, 1]
        T_hand_object = se3.inverse(self.T_object_hand)
        points = np.empty((len(time), 21, 3))
        for k, shut in enumerate(close):
            tips = self.touch.copy()
            tips[:, 0] += np.where(np.arange(5) == THUMB, 1.0, -1.0) * 0.018 * (1.0 - shut)
            # ``touch`` has the hand's axes but the object's origin.
            local = tips @ self.T_object_hand[:3, :3].T
            points[k] = se3.apply(poses[k], hand_keypoints(se3.apply(T_hand_object, local)))
        return points


def hand_scene(obj: LabObject, stage: Stage, seed: int, keypoints: FloatArray) -> Any:
    """Compiled scene: the object, then a free capsule per bone of ``keypoints`` (21, 3)."""
    spec = table_scene(obj, stage, seed)
    for number, (a, b) in enumerate(EDGES):
        length = float(np.linalg.norm(keypoints[b] - keypoints[a]))
        body = spec.worldbody.add_body(name=f"bone_{number}")
        body.add_freejoint(name=f"bone_{number}")
        palm = a == 0 or number >= 20
        geom = body.add_geom(name=f"bone_{number}", type=mujoco.mjtGeom.mjGEOM_CAPSULE)
        geom.size = [0.013 if palm else 0.0085, 0.5 * length, 0.0]
        geom.rgba, geom.contype, geom.conaffinity, geom.mass = SKIN, 0, 0, 0.01
    return spec.compile()


def scene_states(object_poses: FloatArray, keypoints: FloatArray) -> FloatArray:
    """States (n, 7 + 7 bones) of ``hand_scene`` from poses (n, 4, 4) and points (n, 21, 3)."""
    position, wxyz = se3.to_position_quaternion(object_poses)
    parts = [position, wxyz]
    for a, b in EDGES:
        line = keypoints[:, b] - keypoints[:, a]
        direction = line / np.linalg.norm(line, axis=1, keepdims=True)
        # Shortest turn that takes z to the bone: (1 + d_z, z x d), normalised.
        turn = np.stack(
            [
                1.0 + direction[:, 2],
                -direction[:, 1],
                direction[:, 0],
                np.zeros(len(line)),
            ],
            axis=1,
        )
        turn[direction[:, 2] < -1.0 + 1e-9] = [0.0, 1.0, 0.0, 0.0]
        parts += [0.5 * (keypoints[:, a] + keypoints[:, b]), quaternion.normalize(turn)]
    return np.concatenate(parts, axis=1)


def shoot_demo(
    obj: LabObject,
    T_scanworld_labobject: FloatArray,
    out: Path,
    settings: DemoSettings,
    noise: NoiseSpec,
    seed: int,
) -> None:
    """Film the demonstration into ``out`` (``raw/demo``).

    Writes ``video.mp4``, ``camera.yaml``, ``board.yaml``, ``hand.npz`` (keypoints with a hand
    tracker's noise) and ``object_motion.csv`` (with an object tracker's noise): the rigid motion
    ``T_world_scanworld`` that carries the object from where it stood in the scan to where it is.

    Args:
        obj: the object.
        T_scanworld_labobject: where it stood in the scan (4, 4).
        out: folder to fill.
        settings: camera and timing.
        noise: pixel noise, keypoint noise, object tracker noise.
        seed: reproduces everything.

    Raises:
        MachineError: nothing can render.
    """
    rng = np.random.default_rng([seed, 0xDE30])
    stage = set_up(obj.size, settings.camera, rng)
    write_stage(out, stage)
    T_world_object = se3.from_position_quaternion(
        np.array([*rng.uniform(-0.008, 0.008, 2), 0.0]),
        quaternion.from_rotvec([0.0, 0.0, rng.uniform(-0.5, 0.5)]),
    )
    grasp = Grasp(obj, T_world_object, settings, float(rng.uniform(-0.06, 0.06)))
    times = frame_times(grasp.duration, settings.camera.rate, noise.dropped, rng)
    keypoints = grasp.keypoints(times)
    model = hand_scene(obj, stage, seed, keypoints[0])

    def states(time: FloatArray) -> FloatArray:
        return scene_states(grasp.object_pose(time), grasp.keypoints(time))

    with PhotoCamera(
        model,
        stage.camera,
        supersample=settings.camera.supersample,
        shadows=settings.camera.shadows,
    ) as photo:
        film(
            out / "video.mp4",
            photo,
            model,
            stage,
            states,
            times,
            settings.camera,
            noise,
            rng,
        )
    noisy = keypoints + rng.normal(0.0, noise.hand, keypoints.shape)
    np.savez(
        out / "hand.npz",
        time=times,
        keypoints=np.round(noisy, 6),
        handedness=np.array("right"),
    )
    tracked = track_object(grasp.object_pose(times), noise, rng)
    motion = tracked @ se3.inverse(T_scanworld_labobject)
    write_motion(out / "object_motion.csv", times, motion)


def track_object(poses: FloatArray, noise: NoiseSpec, rng: np.random.Generator) -> FloatArray:
    """What an object tracker says of poses ``T_world_object`` (n, 4, 4).

    White noise of position and rotation, frame by frame, about the object's own origin: so the
    error at the object does not grow with its distance from the world's origin.
    """
    shift = rng.normal(0.0, noise.tracker_position, (len(poses), 3))
    turn = quaternion.from_rotvec(rng.normal(0.0, noise.tracker_rotation, (len(poses), 3)))
    tracked = poses.copy()
    tracked[:, :3, :3] = quaternion.to_matrix(turn) @ poses[:, :3, :3]
    tracked[:, :3, 3] += shift
    return tracked


def write_motion(path: Path, times: FloatArray, motion: FloatArray) -> None:
    """Write columns time,x,y,z,qw,qx,qy,qz of rigid motions (n, 4, 4)."""
    position, wxyz = se3.to_position_quaternion(motion)
    rows = np.column_stack([times, position, wxyz])
    lines = [",".join(f"{value:.9f}" for value in row) for row in rows]
    path.write_text("time,x,y,z,qw,qx,qy,qz\n" + "\n".join(lines) + "\n", encoding="utf-8")
