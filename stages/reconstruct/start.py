"""What the object's folder gives to start from: a splat or a mesh that was made elsewhere.

``datasets/<object>/raw/start/`` is no dependency in dvc.yaml, which few objects would have. The
file's hash is a parameter instead, so that the cache's key has the content all the same.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from stages.harness import Inputs
from stages.reconstruct.params import Params
from twinloop.errors import InputError, ParamsError
from twinloop.geometry import quaternion, se3
from twinloop.splat.gaussians import Gaussians
from twinloop.splat.imported import MOST_BYTES, Mesh, load_start
from twinloop.splat.start_check import FittingStart, fitting_start
from twinloop.splat.surfels import Surfels
from twinloop.splat.transform import transformed
from twinloop.splat.views import Views


def read_start(inputs: Inputs, params: Params, views: Views) -> FittingStart | None:
    """The start of the object in the views' world, checked against them; None without.

    Raises:
        ParamsError: Settings that contradict each other.
        InputError: No such file, or a damaged one, or of another content than the parameters say,
            too many splats, or nothing that the masks show.
    """
    if not params.start:
        return None
    path = inputs.raw / "start" / params.start
    if params.hollow:
        raise ParamsError(
            "reconstruct: hollow looks for hollows in the outlines' hull, and start takes its "
            "place; set one of them"
        )
    _check_content(path, params.start_sha256)
    found = load_start(path, params.start_scale)
    turns = np.radians(params.start_turn)
    x, y, z = (quaternion.from_rotvec(turns[i] * np.eye(3)[i]) for i in range(3))
    turn = quaternion.multiply(z, quaternion.multiply(y, x))
    T = se3.from_position_quaternion(params.start_move, turn)
    if isinstance(found, Mesh):
        found = replace(found, vertices=se3.apply(T, found.vertices))
    else:
        found = transformed(found, T)
    start = fitting_start(found, views, str(path))
    if not isinstance(start.found, Mesh):
        count, wanted = len(start.found), ["most_gaussians"] * (params.sets == "disjoint")
        wanted += ["most_surfels"] * (params.surface == "surfels")
        for name in wanted:
            if count > (most := getattr(params, name)):
                raise InputError(
                    f"{path}: has {count} splats within the masks, at most {name} = {most} are "
                    f"trained; raise {name}, or thin it out"
                )
    return start


def stated(start: FittingStart, params: Params) -> dict[str, Any]:
    """The start as the artifact's attributes say it."""
    found = start.found
    kind = {Mesh: "mesh", Gaussians: "gaussians", Surfels: "surfels"}[type(found)]
    count = len(found.faces) if isinstance(found, Mesh) else len(found)
    return {
        "file": f"raw/start/{params.start}",
        "sha256": params.start_sha256,
        "kind": kind,
        "count": count,
        "inside_masks": round(start.inside, 4),
        "size_in_masks": round(start.size, 4),
    }


def _check_content(path: Path, expected: str) -> None:
    try:
        there = path.is_file()
    except OSError:  # say, a name that is too long
        there = False
    if not there:
        raise InputError(
            f"{path}: no such file, which the parameter start of reconstruct names; `dvc pull` "
            "brings what DVC keeps, or set start: '' in object.yaml"
        )
    if path.stat().st_size > MOST_BYTES:
        raise InputError(f"{path}: is larger than {MOST_BYTES >> 30} GiB; thin it out first")
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    if found != expected:
        said = f"is {expected}" if expected else "is not set"
        raise InputError(
            f"{path}: its SHA-256 is {found}, and start_sha256 {said}. If this is the file to "
            f"start from, write into object.yaml: overrides: reconstruct: start_sha256: {found}"
        )
