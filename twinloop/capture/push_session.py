"""The folder ``raw/push``: one static camera, one robot, a list of pushes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from twinloop.capture.board import Board, Pose, load_board
from twinloop.capture.camera_yaml import CameraFile, load_camera, read_model
from twinloop.capture.logs.mapping import LogMapping
from twinloop.errors import InputError

LOGS = ("robot.mcap", "robot.csv", "robot.bag", "robot.db3", "robot.hdf5", "robot.h5", "robot")
"""Names of a push's robot log; ``robot`` is a folder: a ROS 2 bag, or a LeRobot data set."""

PUSH_NAME = r"push_[A-Za-z0-9]{1,60}"
"""Name of a push, and of its folder, as a pattern."""

Action = Literal["tap", "slide", "tilt", "flick", "lift", "push"]


class PushEntry(BaseModel):
    """One push of ``pushes.yaml``."""

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)

    name: Annotated[str, Field(pattern=f"^{PUSH_NAME}$")]
    """Name of the push and of its folder."""
    action: Action = "push"
    """What the finger does; "push" says nothing about it."""
    held_out: bool = False
    """Kept from identification, to judge its prediction."""


class PushList(BaseModel):
    """``pushes.yaml``."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    pushes: tuple[PushEntry, ...] = Field(min_length=1, max_length=1000)
    """The pushes in the order they were made."""

    @model_validator(mode="after")
    def _once(self) -> PushList:
        names = [push.name for push in self.pushes]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"pushes stand twice: {twice}")
        if all(push.held_out for push in self.pushes):
            raise ValueError("every push is held_out: true; leave some to identify the object from")
        return self


class RobotFile(LogMapping):
    """``robot.yaml``: which robot, where it stands, and how to read its log."""

    robot: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=60)]
    """Name of a robot model of ``twinloop/hand/models``; a path would reach out of the capture."""
    T_world_base: Pose = Pose()
    """Where the base stands in the world."""
    tip: str
    """Name of the fingertip that pushes."""
    log_rate: Annotated[float, Field(gt=1.0, le=10000.0)]
    """Nominal rate of the log, Hz."""
    clock: Literal["auto", "common", "separate"] = "auto"
    """Whether camera and robot stamp by one clock; auto: their stamps and the motion tell."""


@dataclass(frozen=True)
class PushSession:
    """All that ``raw/push`` says beside videos and logs."""

    folder: Path
    """``raw/push``."""
    camera: CameraFile
    """The static camera."""
    board: Board
    """The tag board and where it lies in the world (the robot's; table at z = 0)."""
    robot: RobotFile
    """The robot."""
    pushes: tuple[PushEntry, ...]
    """The pushes."""

    def video(self, push: str) -> Path:
        """The push's video."""
        return self.folder / push / "video.mp4"

    def has_log(self, push: str) -> bool:
        """Whether the push has a robot log."""
        return any((self.folder / push / name).exists() for name in LOGS)

    def log(self, push: str) -> Path:
        """The push's robot log: the first of :data:`LOGS` that exists.

        Raises:
            InputError: None exists.
        """
        for name in LOGS:
            path = self.folder / push / name
            if path.is_file() or (path.is_dir() and not path.suffix):
                return path
        raise InputError(
            f"{self.folder / push / LOGS[0]}: no such file, and none of "
            f"{', '.join(LOGS[1:])} beside it; a push needs its log."
        )


def load_session(folder: Path) -> PushSession:
    """Read the YAML files of ``raw/push`` and check that each push has a video.

    Raises:
        InputError: A file is missing or wrong; names file, field and rule.
    """
    session = PushSession(
        folder=folder,
        camera=load_camera(folder / "camera.yaml"),
        board=load_board(folder / "board.yaml"),
        robot=read_model(folder / "robot.yaml", RobotFile),
        pushes=read_model(folder / "pushes.yaml", PushList).pushes,
    )
    missing = [p.name for p in session.pushes if not session.video(p.name).is_file()]
    if missing:
        raise InputError(
            f"{folder / 'pushes.yaml'}: lists {missing}, but {folder}/{missing[0]}/video.mp4 does "
            "not exist; add the video or take the push off the list."
        )
    return session
