"""The twin's physical properties in one place, read from the identify artifact."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from twinloop.errors import ArtifactError

INERTIA = (("xx", 0, 0), ("yy", 1, 1), ("zz", 2, 2), ("xy", 0, 1), ("xz", 0, 2), ("yz", 1, 2))


@dataclass(frozen=True)
class Estimate:
    """One identified value with its 95 % interval."""

    name: str
    value: float
    std: float
    low: float
    high: float
    unit: str
    identifiable: bool


@dataclass(frozen=True)
class Properties:
    """Mass [kg], friction [1], centre of mass (3,) [m], inertia (3, 3) [kg m^2] about it."""

    mass: float
    friction: float
    com: NDArray[np.float64]
    inertia: NDArray[np.float64]
    estimates: tuple[Estimate, ...]


def read_estimates(physics: xr.DataTree, group: str = "/") -> tuple[Estimate, ...]:
    """Return the estimates of a group of the physics artifact ("/" or "pose_only")."""
    names = [str(name) for name in physics.attrs["parameters"]]
    units = [str(unit) for unit in physics.attrs["units"]]
    node = physics.to_dataset() if group == "/" else physics.children[group].to_dataset()
    value, std, low, high, known = (
        node[key].to_numpy() for key in ("value", "std", "low", "high", "identifiable")
    )
    return tuple(
        Estimate(
            name=name,
            value=float(value[i]),
            std=float(std[i]),
            low=float(low[i]),
            high=float(high[i]),
            unit=unit,
            identifiable=bool(known[i]),
        )
        for i, (name, unit) in enumerate(zip(names, units, strict=True))
    )


def read_properties(physics: xr.DataTree) -> Properties:
    """Return what a simulator needs.

    Raises:
        ArtifactError: A value is missing, or the inertia is not one that a body can have.
    """
    estimates = read_estimates(physics)
    values = {estimate.name: estimate.value for estimate in estimates}
    needed = ("mass", "friction", "com_x", "com_y", "com_z", *(f"inertia_{k}{k}" for k in "xyz"))
    missing = [name for name in needed if name not in values]
    if missing:
        raise ArtifactError(f"identify: parameters {missing} are missing, found {sorted(values)}.")
    inertia = np.zeros((3, 3))
    for key, i, j in INERTIA:
        inertia[i, j] = inertia[j, i] = values.get(f"inertia_{key}", 0.0)
    principal = np.linalg.eigvalsh(inertia)
    if principal[0] <= 0 or principal[2] > principal[0] + principal[1] + 1e-12:
        raise ArtifactError(
            f"identify: principal inertias {principal} kg m^2 are impossible for a body (each must "
            "be positive and at most the sum of the other two)."
        )
    com = np.array([values[f"com_{axis}"] for axis in "xyz"])
    return Properties(values["mass"], values["friction"], com, inertia, estimates)
