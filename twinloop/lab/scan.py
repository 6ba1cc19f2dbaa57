"""A phone scan of an object on the tag board: spiral path, portrait video, board.yaml."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from twinloop.film import write_video
from twinloop.geometry import se3
from twinloop.geometry.camera import look_at
from twinloop.lab import assets
from twinloop.lab.board import BoardLayout, board_image, ring_layout, write_board_yaml
from twinloop.lab.lens import LabCamera, Sensor
from twinloop.lab.objects import LabObject
from twinloop.lab.render import PhotoCamera
from twinloop.lab.spec import NoiseSpec
from twinloop.progress import track

import mujoco  # isort: skip  after twinloop.lab.render, which chooses the GL first

Array = NDArray[np.float64]
BLUR_STEP = 1.2  # px
RINGS = 2
TAG_PIXELS = 24.0  # a 36h11 tag has 8 cells, so 3 px per cell seen from straight above


class ScanSettings(BaseModel):
    """How the phone films the object."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    frames: Annotated[int, Field(ge=4, le=2000, description="video frames")] = 168
    duration: Annotated[
        float, Field(gt=0, description="length of the film, s; slow, so that blur stays small")
    ] = 16.8
    width: Annotated[int, Field(ge=64, description="px, upright")] = 480
    height: Annotated[int, Field(ge=64, description="px, upright")] = 848
    turns: Annotated[float, Field(gt=0, description="turns around the object")] = 3.0
    elevation: Annotated[
        tuple[float, float], Field(description="highest and lowest elevation of the path, deg")
    ] = (64.0, 16.0)
    fill: Annotated[
        float, Field(gt=0.1, lt=1.0, description="object's bounding ball / frame width")
    ] = 0.82
    field_of_view: Annotated[float, Field(gt=10, lt=110, description="of the long side, deg")] = (
        56.0
    )
    exposure_time: Annotated[float, Field(ge=0, description="shutter open, s")] = 0.004
    subframes: Annotated[
        int, Field(ge=1, description="most renders per exposure; one per 1.2 px of blur is used")
    ] = 5
    supersample: Annotated[int, Field(ge=1, le=4, description="renders are this much finer")] = 2
    rotation: Annotated[int, Field(description="turn stored in the mp4, deg CCW")] = -90
    shadows: Annotated[bool, Field(description="cast shadows (twice the time)")] = False
    tag_size: Annotated[float | None, Field(description="m; default: from the object's size")] = (
        None
    )


@dataclass(frozen=True)
class ScanTruth:
    """What the scan's maker knows: nothing of it goes into the raw capture."""

    camera: LabCamera
    times: Array
    T_world_camera: Array
    T_world_labobject: Array
    board: BoardLayout


def scan_board(
    item: LabObject, smallest: float = 0.0, tag_size: float | None = None
) -> BoardLayout:
    """Board for an object: rings of tags around its footprint.

    smallest: m, the least tag edge that the camera resolves; small images get larger tags.
    """
    radius = 0.5 * float(np.linalg.norm(item.size))
    foot = 0.5 * float(np.linalg.norm(item.size[:2]))
    size = round(float(tag_size or max(min(max(0.31 * radius, 0.012), 0.04), smallest)), 3)
    return ring_layout(foot + 0.012, size, rings=RINGS)


def scan_scene(
    item: LabObject, layout: BoardLayout, T_world_labobject: Array, seed: int, texels: int = 1536
) -> Any:
    """Compiled model of table, board and object, at rest, for rendering only."""
    spec = assets.new_scene()
    assets.add_table(spec, seed)
    assets.add_board(spec, layout, board_image(layout, seed, texels), np.eye(4))
    position, quaternion = se3.to_position_quaternion(T_world_labobject)
    body = spec.worldbody.add_body(name=item.name, pos=position, quat=quaternion)
    assets.add_object(spec, body, item, collide=False)
    return spec.compile()


def phone_camera(settings: ScanSettings, rng: np.random.Generator) -> LabCamera:
    """A phone's camera: barrel distortion, principal point a few pixels off the centre."""
    w, h = settings.width, settings.height
    focal = 0.5 * max(w, h) / np.tan(0.5 * np.radians(settings.field_of_view))
    focal *= rng.uniform(0.98, 1.02)
    offset = (rng.uniform(-0.008, 0.008, 2) * max(w, h)).tolist()
    k1, k2 = rng.uniform(-0.10, -0.05), rng.uniform(0.005, 0.02)
    return LabCamera(
        w,
        h,
        (float(focal), float(focal), 0.5 * (w - 1) + offset[0], 0.5 * (h - 1) + offset[1]),
        (k1, k2, 0.0, 0.0, 0.0),
    )


class PhonePath:
    """A hand-held path: a spiral from above to low, with sway, breathing and a few jerks."""

    def __init__(
        self, centre: Array, distance: float, settings: ScanSettings, rng: np.random.Generator
    ) -> None:
        self.centre, self.distance, self.settings = centre, distance, settings
        self.duration = settings.duration
        self.start = rng.uniform(0.0, 2.0 * np.pi)
        self.sense = 1.0 if rng.random() < 0.5 else -1.0
        self.frequency = rng.uniform(0.25, 0.9, (6, 3))
        self.phase = rng.uniform(0.0, 2.0 * np.pi, (6, 3))
        self.size = np.array([0.008, 0.008, 0.008, 0.012, 0.012, 0.02])
        jerks = max(1, round(0.15 * self.duration))
        self.jerks = np.sort(rng.uniform(0.05, 0.95, jerks)) * self.duration
        self.jerk_axis = rng.standard_normal((jerks, 3))

    def pose(self, time: float) -> Array:
        """T_world_camera (4,4) at ``time`` s."""
        high, low = np.radians(self.settings.elevation)
        s = time / self.duration
        azimuth = self.start + self.sense * 2.0 * np.pi * self.settings.turns * s
        elevation = high + (low - high) * s
        sway = (self.size[:, None] * np.sin(2.0 * np.pi * self.frequency * time + self.phase)).mean(
            axis=1
        )
        distance = self.distance * (1.0 + 2.0 * sway[5])
        direction = np.array(
            [
                np.cos(elevation) * np.cos(azimuth),
                np.cos(elevation) * np.sin(azimuth),
                np.sin(elevation),
            ]
        )
        T = look_at(self.centre + distance * direction, self.centre + sway[:3])
        pulse = np.exp(-(((time - self.jerks) / 0.03) ** 2)) * (time - self.jerks) / 0.03
        tilt = 0.03 * pulse @ self.jerk_axis + np.array([0.0, 0.0, 2.0 * sway[3]])
        turn = se3.exp(np.concatenate([np.zeros(3), tilt]))
        return T @ turn

    def during_exposure(self, time: float, focal: float, radius: float) -> list[Array]:
        """Camera poses spread over the exposure: one per BLUR_STEP px that the rim moves."""
        open_for = self.settings.exposure_time
        ends = [self.pose(time + side * 0.5 * open_for) for side in (-1.0, 1.0)]
        rim = self.centre + radius * np.vstack([np.eye(3), -np.eye(3)])
        seen = [(rim - T[:3, 3]) @ T[:3, :3] for T in ends]
        shift = [focal * p[:, :2] / p[:, 2:] for p in seen]
        blur = float(np.linalg.norm(shift[1] - shift[0], axis=1).mean())
        count = int(np.clip(np.ceil(blur / BLUR_STEP), 1, self.settings.subframes))
        share = (np.arange(count) + 0.5) / count - 0.5
        return [self.pose(time + s * open_for) for s in share]


def shoot_scan(
    item: LabObject, out: Path, settings: ScanSettings, noise: NoiseSpec, seed: int
) -> ScanTruth:
    """Film the object: writes ``video.mp4`` and ``board.yaml`` into the folder ``out``.

    World is the board's frame. Returns the truth (poses, lens), which is not written there.
    Raises MachineError where nothing can render.
    """
    rng = np.random.default_rng([seed, 0x5CA4])
    T_world_labobject = se3.exp(np.array([0, 0, 0, 0, 0, rng.uniform(-np.pi, np.pi)]))
    T_world_labobject[:2, 3] = rng.uniform(-0.006, 0.006, 2)
    camera = phone_camera(settings, rng)
    radius = 0.5 * float(np.linalg.norm(item.size))
    half_width = 0.5 * settings.fill * min(camera.width, camera.height) / camera.intrinsics[0]
    distance = radius / np.sin(np.arctan(half_width))
    centre = T_world_labobject[:3, 3] + np.array([0.0, 0.0, 0.48 * float(item.size[2])])
    layout = scan_board(item, TAG_PIXELS * distance / camera.intrinsics[0], settings.tag_size)
    path = PhonePath(centre, distance, settings, rng)
    rate = settings.frames / settings.duration
    jitter = rng.uniform(-0.02, 0.02, settings.frames)
    times = np.round((np.arange(settings.frames) + jitter) / rate * 90000) / 90000
    times = times - times[0]
    sensor = Sensor(noise.image, noise.exposure)
    gains = sensor.gains(settings.frames, rng)
    pixels = 2.0 * max(layout.half) * camera.intrinsics[0] / distance
    texels = int(np.clip(2.0 * pixels, 128, 2048))
    model = scan_scene(item, layout, T_world_labobject, seed, texels)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    out.mkdir(parents=True, exist_ok=True)
    with PhotoCamera(
        model, camera, supersample=settings.supersample, shadows=settings.shadows
    ) as photo:

        def frames() -> Iterator[NDArray[np.uint8]]:
            for time, gain in track(list(zip(times, gains, strict=True)), "filming the scan"):
                poses = path.during_exposure(time, camera.intrinsics[0], radius)
                exposure = photo.expose((data, pose) for pose in poses)
                yield sensor.develop(exposure, gain, rng)

        write_video(out / "video.mp4", frames(), times, rate=rate, rotation=settings.rotation)
    write_board_yaml(out / "board.yaml", layout, np.eye(4))
    return ScanTruth(
        camera, times, np.stack([path.pose(t) for t in times]), T_world_labobject, layout
    )
