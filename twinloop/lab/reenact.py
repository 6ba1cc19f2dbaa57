"""Bring the hidden true world back for judging: only the evaluation and benchmarks import this."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import mujoco
import numpy as np
import xarray as xr
from numpy.typing import NDArray

from twinloop.artifacts.kinds.truth import TRUTH
from twinloop.artifacts.store import open_artifact
from twinloop.geometry import se3
from twinloop.hand.model import RobotModel
from twinloop.lab.objects import LabObject, build_object
from twinloop.lab.spec import load_lab_spec
from twinloop.lab.world import build_world, robot_truth

Array = NDArray[np.float64]


@dataclass(frozen=True)
class LabTruth:
    """The truth of a lab object.

    Attributes:
        tree: artifact of kind truth.
        object: the object with its hidden properties.
        seed: seed of the recipe.
    """

    tree: xr.DataTree
    object: LabObject
    seed: int

    @property
    def scan_pose(self) -> Array:
        """`T_scanworld_labobject` (4, 4): where the object stood in the scan."""
        root = self.tree.to_dataset()
        return se3.from_position_quaternion(
            root["position_world_labobject"].values, root["quaternion_world_labobject"].values
        )

    @property
    def pad_friction(self) -> float:
        """Coefficient between fingertip and object: the larger of the two (MuJoCo)."""
        return max(self.object.friction, RobotModel.load("twinhand").tip_friction)

    def world(self, robot: RobotModel, substeps: int) -> mujoco.MjModel:
        """Compiled true world, object on the table at the origin.

        The robot differs from its datasheet as the one of the captures does.

        Args:
            robot: the robot's datasheet.
            substeps: physics steps per 1/300 s.
        """
        truth = robot_truth(robot, np.random.default_rng([self.seed, 0x9054]))
        return build_world(self.object, robot, np.eye(4), truth, substeps).compile()


def load_truth(folder: Path, name: str) -> LabTruth:
    """Read `truth/lab` of a lab object and rebuild its object.

    Args:
        folder: `truth/lab`, with `truth.zarr`, `world.yaml` and the mesh file, if it has one.
        name: name of the object.

    Raises:
        InputError: the recipe or its mesh file is missing or wrong.
        ArtifactError: the truth artifact is missing or damaged.
    """
    spec = load_lab_spec(folder / "world.yaml")
    tree = open_artifact(folder / "truth.zarr", TRUTH, values=True)
    return LabTruth(tree, build_object(spec, name, folder), spec.seed)
