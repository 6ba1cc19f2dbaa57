"""Filming what happens on the table: one static camera, a tag board under the object.

Frames are stamped on the camera's clock with the middle of their exposure; some are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import yaml
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from twinloop.film import TIME_BASE, write_video
from twinloop.geometry import quaternion, se3
from twinloop.geometry.camera import look_at
from twinloop.hand.mjcf import add_robot, low_tessellation
from twinloop.hand.model import RobotModel
from twinloop.lab import assets
from twinloop.lab.board import BoardLayout, board_image, ring_layout, write_board_yaml
from twinloop.lab.lens import LabCamera, Sensor
from twinloop.lab.objects import LabObject
from twinloop.lab.occluder import OccluderSettings, Sweep, add_occluder
from twinloop.lab.render import PhotoCamera
from twinloop.lab.spec import NoiseSpec

import mujoco  # isort: skip  after twinloop.lab.render, which chooses the GL first

FloatArray = NDArray[np.float64]


class FilmSettings(BaseModel):
    """The static camera."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rate: Annotated[float, Field(gt=1, le=240, description="frames per second")] = 60.0
    width: Annotated[int, Field(ge=96, le=1920, multiple_of=2, description="px")] = 640
    height: Annotated[int, Field(ge=72, le=1080, multiple_of=2, description="px")] = 480
    elevation: Annotated[float, Field(gt=5, lt=85, description="of the view, deg")] = 36.0
    field_of_view: Annotated[float, Field(gt=10, lt=100, description="horizontal, deg")] = 44.0
    margin: Annotated[float, Field(gt=0.5, lt=4, description="view width / board width")] = 1.2
    tag_size: Annotated[float, Field(gt=0.005, lt=0.3, description="m")] = 0.045
    exposure_time: Annotated[float, Field(ge=0, lt=0.016, description="shutter open, s")] = 0.006
    subframes: Annotated[int, Field(ge=1, le=16, description="renders of a moving exposure")] = 2
    supersample: Annotated[int, Field(ge=1, le=4, description="renders are this much finer")] = 1
    shadows: Annotated[bool, Field(description="cast shadows (slower)")] = False
    compression: Annotated[int, Field(ge=0, le=45, description="x264's crf; 0 loses nothing")] = 12


@dataclass(frozen=True)
class Stage:
    """A camera on its tripod and the board on the table, all in the world's frame."""

    camera: LabCamera
    T_world_camera: FloatArray
    layout: BoardLayout
    T_world_board: FloatArray


def set_up(size: FloatArray, settings: FilmSettings, rng: np.random.Generator) -> Stage:
    """Place board and camera for an object of ``size`` (3,) m at the world's origin.

    The board's empty middle leaves room for short slides; the camera looks from -y, sees the whole
    board, and is calibrated (the user knows its lens).
    """
    foot = 0.5 * float(np.linalg.norm(size[:2]))
    layout = ring_layout(foot + 0.05, settings.tag_size, rings=1)
    yaw = np.deg2rad(rng.uniform(-5.0, 5.0))
    T_world_board = se3.from_position_quaternion(
        np.array([*rng.uniform(-0.008, 0.008, 2), 0.0]), quaternion.from_rotvec([0.0, 0.0, yaw])
    )
    w, h = settings.width, settings.height
    half_angle = 0.5 * np.deg2rad(settings.field_of_view)
    focal = 0.5 * w / np.tan(half_angle)
    distance = max(layout.half[0], 0.95 * float(size[2])) * settings.margin / np.tan(half_angle)
    azimuth = np.deg2rad(-90.0 + rng.uniform(-8.0, 8.0))
    elevation = np.deg2rad(settings.elevation)
    direction = np.array(
        [
            np.cos(elevation) * np.cos(azimuth),
            np.cos(elevation) * np.sin(azimuth),
            np.sin(elevation),
        ]
    )
    # The near side of the board looks larger, so the aim is a little in front of the object.
    target = np.array([0.0, -0.16 * layout.half[1], 0.36 * float(size[2])])
    centre = rng.uniform(-0.01, 0.01, 2) * w
    camera = LabCamera(
        w,
        h,
        (
            float(focal),
            float(focal),
            float(0.5 * (w - 1) + centre[0]),
            float(0.5 * (h - 1) + centre[1]),
        ),
        (-0.06, 0.012, 0.0004, -0.0003, 0.0),
    )
    return Stage(camera, look_at(target + distance * direction, target), layout, T_world_board)


def write_stage(folder: Path, stage: Stage) -> None:
    """Write ``camera.yaml`` and ``board.yaml``; the camera's pose is for the reader to find."""
    folder.mkdir(parents=True, exist_ok=True)
    write_board_yaml(folder / "board.yaml", stage.layout, stage.T_world_board)
    text = yaml.safe_dump(stage.camera.as_yaml(), sort_keys=False, default_flow_style=None)
    (folder / "camera.yaml").write_text(text, encoding="utf-8")


def table_scene(obj: LabObject, stage: Stage, seed: int) -> Any:
    """Spec for rendering only: table, board and the object as the free body ``object``."""
    spec = assets.new_scene()
    low_tessellation(spec)
    assets.add_table(spec, seed)
    assets.add_board(spec, stage.layout, board_image(stage.layout, seed), stage.T_world_board)
    body = spec.worldbody.add_body(name="object")
    body.add_freejoint(name="object")
    assets.add_object(spec, body, obj, collide=False)
    return spec


def robot_scene(
    obj: LabObject,
    robot: RobotModel,
    stage: Stage,
    seed: int,
    occluder: OccluderSettings | None = None,
) -> Any:
    """Compiled scene whose state is that of the physics world: robot joints, then the object.

    With an ``occluder`` its body is there too, at rest at the origin until ``film`` moves it.
    """
    spec = assets.new_scene()
    low_tessellation(spec)
    assets.add_table(spec, seed)
    assets.add_board(spec, stage.layout, board_image(stage.layout, seed), stage.T_world_board)
    add_robot(spec, robot)
    body = spec.worldbody.add_body(name="object")
    body.add_freejoint(name="object")
    assets.add_object(spec, body, obj, collide=False)
    if occluder is not None:
        add_occluder(spec, occluder, obj.size, seed)
    return spec.compile()


def frame_times(
    duration: float, rate: float, dropped: float, rng: np.random.Generator
) -> FloatArray:
    """Presentation times (n,) s of the frames that arrive, on the video's 1/90000 s grid.

    The first frame is never dropped and the start is a random part of a frame period.
    """
    count = max(2, int(np.floor((duration - 0.02) * rate - 1.0)))
    # An mp4 keeps its start offset in whole milliseconds only.
    start = round(rng.uniform(0.3, 1.0) / rate * 1000) / 1000
    time = start + np.arange(count) / rate
    keep = rng.random(count) >= dropped
    keep[0] = True
    return np.asarray(np.round(time[keep] * TIME_BASE.denominator) / TIME_BASE.denominator)


def blur_renders(before: FloatArray, after: FloatArray, subframes: int) -> int:
    """Number of renders for an exposure: 1 where nothing moves, given the states at its ends."""
    return subframes if float(np.abs(after - before).max()) > 4e-4 else 1


def film(
    path: Path,
    photo: PhotoCamera,
    model: Any,
    stage: Stage,
    states: Callable[[FloatArray], FloatArray],
    times: FloatArray,
    settings: FilmSettings,
    noise: NoiseSpec,
    rng: np.random.Generator,
    sweep: Sweep | None = None,
) -> int:
    """Film a clip.

    Args:
        path: mp4 to write.
        photo: the camera's renderer for ``model``.
        model: compiled scene.
        stage: where the camera stands.
        states: model states (n, nq) at world times (n,).
        times: frame times (n,) s, the middle of each exposure.
        settings: shutter.
        noise: pixel noise and exposure drift.
        rng: source of the noise.
        sweep: motion of the model's occluder, if it has one.

    Returns:
        Number of frames.
    """
    data = mujoco.MjData(model)
    size = model.nq

    def scene(time: FloatArray) -> FloatArray:
        """What is drawn at world times (n,): the states and, behind them, the occluder's pose."""
        moving = states(time)
        return moving if sweep is None else np.concatenate([moving, sweep(time)], axis=1)

    sensor = Sensor(noise.image, noise.exposure)
    gains = sensor.gains(len(times), rng)
    open_, close = (scene(times + s * 0.5 * settings.exposure_time) for s in (-1.0, 1.0))

    def instants(index: int) -> Iterator[tuple[Any, FloatArray]]:
        count = blur_renders(open_[index], close[index], settings.subframes)
        shutter = (np.arange(count) - 0.5 * (count - 1)) * settings.exposure_time / count
        for state in scene(times[index] + shutter):
            data.qpos[:] = state[:size]
            if sweep is not None:
                data.mocap_pos[0], data.mocap_quat[0] = state[size : size + 3], state[size + 3 :]
            mujoco.mj_kinematics(model, data)
            mujoco.mj_camlight(model, data)
            yield data, stage.T_world_camera

    def frames() -> Iterator[NDArray[np.uint8]]:
        last: tuple[bytes, NDArray[np.float32]] | None = None
        for index in range(len(times)):
            still = blur_renders(open_[index], close[index], 2) == 1
            key = np.round(open_[index], 5).tobytes()
            if last is not None and still and last[0] == key:
                exposure = last[1]  # nothing has moved: the same photo, with fresh noise
            else:
                exposure = photo.expose(instants(index))
            last = (key, exposure)
            yield sensor.develop(exposure, gains[index], rng)

    return write_video(path, frames(), times, rate=settings.rate, crf=settings.compression)
