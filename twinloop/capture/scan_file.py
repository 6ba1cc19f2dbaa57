"""``scan.yaml``: what a scan folder holds, where looking at it does not tell.

A folder with one video (or photos) and a ``board.yaml`` needs no such file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from twinloop.capture.board import Pose
from twinloop.capture.camera_yaml import read_model
from twinloop.capture.prompts import Index, Prompts

Format = Literal[
    "auto",
    "video",
    "photos",
    "colmap",
    "nerfstudio",
    "record3d",
    "polycam",
    "stray",
    "arkitscenes",
    "bop",
    "lerobot",
]
Click = tuple[Index, float, float]
"""Number of a picture, column and row in the full upright picture, px."""
Name = Annotated[str, Field(min_length=1, max_length=500)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class StatedDistance(_Model):
    """A length that was measured on what is seen: two points, each clicked in some pictures."""

    metres: Annotated[float, Field(gt=1e-3, lt=100.0)]
    """The distance, m (a value above 100 is surely in millimetres)."""
    metres_std: Annotated[float, Field(ge=0, lt=100.0)] = 0.0005
    """How well it was measured, m."""
    first: tuple[Click, ...] = Field(min_length=2)
    """The first point, in two pictures or more."""
    second: tuple[Click, ...] = Field(min_length=2)
    """The second point, in two pictures or more."""


class Scale(_Model):
    """Where metres come from when there is no tag board; several sources must agree."""

    distances: tuple[StatedDistance, ...] = ()
    """Measured lengths."""
    robot_poses: Name | None = None
    """A file of camera-carrying flange poses ``time,x,y,z,qw,qx,qy,qz`` (m, robot base), one line a
    picture in the scan's order, or with the pictures' times."""
    T_flange_camera: Pose | None = None
    """Hand-eye calibration; found together with the scale when absent."""
    depth: bool = False
    """Use the depth pictures of the export."""


class ScanFile(_Model):
    """``scan.yaml``."""

    format: Format = "auto"
    """What the folder holds; "auto" looks."""
    source: Name | None = None
    """Video file, or folder of pictures or of the export, relative to the scan folder."""
    camera: Name | None = None
    """File with the lens: Twinloop's camera.yaml, Kalibr's camchain, or OpenCV's YAML or XML."""
    camera_name: Name | None = None
    """Which camera, where the file or export has several."""
    board: Name | None = None
    """Description of the tag board in view; board.yaml where that exists."""
    board_size_std: Annotated[float, Field(ge=0, lt=0.1)] = 0.001
    """How well the print's size was measured, relative [1]: 0.1 mm of 100 mm."""
    scale: Scale = Scale()
    """Where metres come from without a board."""
    prompts: Prompts | None = None
    """Box and clicks of the user on the object."""
    masks: Name | None = None
    """Folder of masks made by another tool (SAM 2, XMem, Cutie, plain)."""
    mask_object: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    """Which object of the masks, or of a BOP scene."""
    alpha: bool = False
    """Whether the pictures' alpha channel is the object's mask."""
    segmenter: Name | None = None
    """ONNX file of a segmenter of your own."""
    episode: Index = 0
    """Which episode of a LeRobot data set."""

    @property
    def pointed_at(self) -> frozenset[int]:
        """Pictures that a click or box is in: they are kept whatever their sharpness."""
        clicks = {c[0] for d in self.scale.distances for c in (*d.first, *d.second)}
        return frozenset(clicks | set(self.prompts.pictures if self.prompts else ()))

    @model_validator(mode="after")
    def _one_source_of_masks(self) -> ScanFile:
        given = [n for n in ("masks", "segmenter") if getattr(self, n)]
        given += ["alpha"] if self.alpha else []
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} are given; name one source of masks")
        return self


def load_scan_file(folder: Path) -> ScanFile:
    """Read ``scan.yaml``; its defaults where there is none.

    Raises:
        InputError: The file is no YAML, or breaks the model.
    """
    path = folder / "scan.yaml"
    there = path.exists() or path.is_symlink()  # a link into nothing is no missing file
    return read_model(path, ScanFile) if there else ScanFile()
