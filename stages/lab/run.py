"""Build the object of ``lab.yaml``, film scan, pushes and demonstration, lay the truth apart."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import xarray as xr

from stages.harness import Inputs
from stages.lab.params import Params
from stages.lab.schema import TRUTH_SCHEMA
from twinloop.artifacts.store import write_artifact
from twinloop.geometry import se3
from twinloop.lab.demo import shoot_demo
from twinloop.lab.objects import LabObject, build_object
from twinloop.lab.scan import shoot_scan
from twinloop.lab.session import shoot_pushes
from twinloop.lab.spec import LabSpec, dump_lab_spec, load_lab_spec


def run(inputs: Inputs, params: Params, out: Path) -> None:
    """Write ``out/raw/{scan,push,demo}`` and ``out/truth/lab``.

    Raises:
        InputError: ``lab.yaml`` or its mesh is missing or wrong, or a push misses the object.
        MachineError: Nothing on this machine can render without a screen.
    """
    spec = load_lab_spec(inputs.folder / "lab.yaml")
    seed = spec.seed + params.seed
    item = build_object(spec, inputs.object, inputs.folder)
    for name in ("scan", "push", "demo"):
        (out / "raw" / name).mkdir(parents=True)
    scan = shoot_scan(item, out / "raw" / "scan", params.scan, spec.noise, seed)
    pushes = shoot_pushes(item, spec, params.push, out / "raw" / "push", seed)
    shoot_demo(item, scan.T_world_labobject, out / "raw" / "demo", params.demo, spec.noise, seed)
    groups = object_truth(item, scan.T_world_labobject) | {
        f"/{name}": dataset for name, dataset in pushes.items()
    }
    write_truth(out / "truth" / "lab", spec, inputs.folder, groups, inputs.object)


def write_truth(
    truth: Path, spec: LabSpec, folder: Path, groups: dict[str, xr.Dataset], name: str
) -> None:
    """Lay down all that `evaluate` needs to rebuild the true world: recipe, mesh file, truth.

    Args:
        truth: `truth/lab`, to be made.
        spec: the recipe.
        folder: where the recipe's mesh file lies, if it has one.
        groups: groups of the truth artifact.
        name: name of the object.
    """
    truth.mkdir(parents=True)
    (truth / "world.yaml").write_text(dump_lab_spec(spec), encoding="utf-8")
    if spec.mesh is not None:
        shutil.copyfile(folder / spec.mesh, truth / spec.mesh)
    write_artifact(truth / "truth.zarr", TRUTH_SCHEMA, groups, {"object": name})


def object_truth(item: LabObject, T_world_labobject: np.ndarray) -> dict[str, xr.Dataset]:
    """The object's true properties, its pose in the scan's world, and its true surface."""
    position, wxyz = se3.to_position_quaternion(T_world_labobject)
    root = xr.Dataset(
        {
            "mass": ((), float(item.mass)),
            "friction": ((), float(item.friction)),
            "com": ("xyz", item.com),
            "inertia": (("row", "column"), item.inertia),
            "position_world_labobject": ("xyz", position),
            "quaternion_world_labobject": ("wxyz", wxyz),
        }
    )
    mesh = xr.Dataset(
        {
            "vertices": (("vertex", "xyz"), np.asarray(item.vertices, dtype=np.float64)),
            "faces": (("face", "corner"), np.asarray(item.faces, dtype=np.int32)),
        }
    )
    return {"/": root, "/mesh": mesh}
