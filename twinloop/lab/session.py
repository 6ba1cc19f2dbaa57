"""The push captures: video, robot log and the files that describe them, and the truth beside."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import xarray as xr
import yaml
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from twinloop.geometry import se3
from twinloop.hand.model import RobotModel
from twinloop.lab.film import (
    FilmSettings,
    Stage,
    film,
    frame_times,
    robot_scene,
    set_up,
    write_stage,
)
from twinloop.lab.objects import LabObject
from twinloop.lab.occluder import OccluderSettings, Sweep, sweep_past
from twinloop.lab.pushes import RecordedPush, record_session
from twinloop.lab.render import PhotoCamera
from twinloop.lab.robot_log import measure, write_csv, write_mcap
from twinloop.lab.spec import LabSpec, NoiseSpec
from twinloop.lab.world import LOG_RATE, robot_truth
from twinloop.progress import track

FloatArray = NDArray[np.float64]

ROBOT = "twinhand"
TIP = "index_tip"


class PushSettings(BaseModel):
    """How the push session is captured."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    limit: Annotated[int | None, Field(ge=1, description="at most so many pushes; all if null")] = (
        None
    )
    substeps: Annotated[int, Field(ge=2, le=100, description="physics steps per log sample")] = 10
    lift: Annotated[bool, Field(description="add a lift-and-weigh clip at the end")] = False
    camera: FilmSettings = FilmSettings()
    occluder: Annotated[
        OccluderSettings | None,
        Field(description="an arm that hides the object for a moment in each clip; none if null"),
    ] = None


def shoot_pushes(
    obj: LabObject, spec: LabSpec, settings: PushSettings, out: Path, seed: int
) -> dict[str, xr.Dataset]:
    """Run and film the push session into the folder ``out`` (``raw/push``).

    Returns:
        The truth of each push, by group name ``push_000``...: object poses at the frames, contact
        force at the log's samples, clock offset. Nothing of it is written to ``out``.

    Raises:
        InputError: a push misses the object or leaves the robot's reach.
        MachineError: nothing can render.
    """
    robot = RobotModel.load(ROBOT)
    rng = np.random.default_rng([seed, 0x9054])
    truth = robot_truth(robot, rng)
    recorded = record_session(
        robot, obj, spec.pushes, truth, rng, settings.substeps, settings.limit, settings.lift
    )
    stage = set_up(obj.size, settings.camera, rng)
    write_stage(out, stage)
    write_descriptions(out, recorded)
    model = robot_scene(obj, robot, stage, seed, settings.occluder)
    groups: dict[str, xr.Dataset] = {}
    with PhotoCamera(
        model,
        stage.camera,
        supersample=settings.camera.supersample,
        shadows=settings.camera.shadows,
    ) as photo:
        for number, push in enumerate(track(recorded, "filming the pushes")):
            # A stream of its own per push: adding one leaves the others as they were.
            own = np.random.default_rng([seed, 0x9055, number])
            folder = out / push.name
            folder.mkdir(parents=True)
            log = measure(robot, push.rollout, spec.noise, own)
            write_csv(folder / "robot.csv", log)
            write_mcap(folder / "robot.mcap", log)
            times = frame_times(
                float(push.rollout.time[-1]), settings.camera.rate, spec.noise.dropped, own
            )
            film(
                folder / "video.mp4",
                photo,
                model,
                stage,
                push.rollout.states,
                times,
                settings.camera,
                spec.noise,
                own,
                push_sweep(push, obj.size, stage, settings.occluder, number, seed),
            )
            groups[push.name] = push_truth(push, times, spec.noise)
    return groups


def push_sweep(
    push: RecordedPush,
    size: FloatArray,
    stage: Stage,
    settings: OccluderSettings | None,
    number: int,
    seed: int,
) -> Sweep | None:
    """The arm's sweep through push ``number``: by turns while the object moves and at rest after.

    None without ``settings``.
    """
    if settings is None:
        return None
    rng = np.random.default_rng([seed, 0x9056, number])
    time = np.arange(0.0, push.rollout.time[-1], 1.0 / 60.0)
    poses = push.rollout.object_poses(time)
    top = poses[:, :3, 3] + size[2] * poses[:, :3, 2]
    speed = np.linalg.norm(np.gradient(top, time, axis=0), axis=1)
    busy = np.flatnonzero(speed > 0.2 * speed.max())
    whole = 0.5 * settings.dwell + settings.travel
    if number % 2 == 0:
        moment = float(time[int(np.argmax(speed))])
    else:
        moment = float(min(time[busy[-1]] + whole, time[-1] - whole - 0.2))
    centre = push.rollout.object_poses(np.array([moment]))[0] @ [0.0, 0.0, 0.5 * size[2], 1.0]
    view = 0.5 * stage.camera.width / stage.camera.intrinsics[0]
    return sweep_past(centre[:3], size, stage.T_world_camera, view, settings, moment, rng)


def write_descriptions(out: Path, recorded: list[RecordedPush]) -> None:
    """Write ``robot.yaml`` and ``pushes.yaml``, as a user with a real robot would."""
    robot = {
        "robot": ROBOT,
        "T_world_base": {"position": [0.0, 0.0, 0.0], "quaternion_wxyz": [1.0, 0.0, 0.0, 0.0]},
        "tip": TIP,
        "log_rate": LOG_RATE,
        "effort_unit": "N_or_Nm",
    }
    pushes = [
        {
            "name": push.name,
            "action": push.spec.action,
            "held_out": push.spec.held_out,
        }
        for push in recorded
    ]
    for name, content in (("robot.yaml", robot), ("pushes.yaml", {"pushes": pushes})):
        text = yaml.safe_dump(content, sort_keys=False, default_flow_style=None)
        (out / name).write_text(text, encoding="utf-8")


def push_truth(push: RecordedPush, times: FloatArray, noise: NoiseSpec) -> xr.Dataset:
    """What really happened in a push, on the clocks of the raw files."""
    rollout = push.rollout
    position, wxyz = se3.to_position_quaternion(rollout.object_poses(times))
    dataset = xr.Dataset(
        {
            "time": ("frame", times),
            "position_world_labobject": (("frame", "xyz"), position),
            "quaternion_world_labobject": (("frame", "wxyz"), wxyz),
            "clock_offset": ((), noise.clock_offset),
            "robot_time": ("sample", rollout.sample_time + noise.clock_offset),
            "contact_force": (("sample", "xyz"), rollout.contact_force),
        }
    )
    dataset.attrs = {
        "action": push.spec.action,
        "held_out": bool(push.spec.held_out),
        "largest_tilt": float(rollout.tilt().max()),
        "contact_height": float(push.spec.height),
        "speed": float(push.spec.speed),
    }
    return dataset
