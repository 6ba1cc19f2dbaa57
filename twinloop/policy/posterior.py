"""Identified physics as the policy uses it: grip friction, intervals, worlds from samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from twinloop.errors import ArtifactError
from twinloop.policy.runner import Physics
from twinloop.policy.scene import ObjectModel

Array = NDArray[np.float64]
_INERTIA = (("xx", 0, 0), ("yy", 1, 1), ("zz", 2, 2), ("xy", 0, 1), ("xz", 0, 2), ("yz", 1, 2))


@dataclass(frozen=True)
class Posterior:
    """Samples of all identified parameters and their summary.

    Attributes:
        names: parameters, order of the columns.
        value, low, high: (param,) point values and 95 % intervals, SI.
        identifiable: (param,) verdicts.
        samples: (sample, param).
        grip: name of the parameter used as friction between pads and object.
        grip_limit: largest grip friction that is believed: the pads' datasheet value.
        notes: what was assumed, in words.
    """

    names: tuple[str, ...]
    value: Array
    low: Array
    high: Array
    identifiable: NDArray[np.bool_]
    samples: Array
    grip: str
    grip_limit: float
    notes: tuple[str, ...]

    def of(self, name: str) -> tuple[float, float, float]:
        """Value, low, high of a parameter."""
        i = self.names.index(name)
        return float(self.value[i]), float(self.low[i]), float(self.high[i])

    def column(self, name: str) -> Array:
        """(sample,) draws of a parameter."""
        column: Array = self.samples[:, self.names.index(name)]
        return column

    def physics(self) -> Physics:
        """Mass and grip friction with intervals, kept positive."""
        mass = self.of("mass")
        value, low, high = (min(friction, self.grip_limit) for friction in self.of(self.grip))
        return Physics(
            mass=mass[0],
            mass_low=max(mass[1], 0.05 * mass[0]),
            mass_high=mass[2],
            friction=value,
            friction_low=max(low, 0.05 * value),
            friction_high=high,
        )

    def object_model(self, parts: Sequence[Array], sample: int | None = None) -> ObjectModel:
        """The object with point values (None) or the values of one sample, object frame."""
        row = self.value if sample is None else self.samples[sample]
        values = dict(zip(self.names, map(float, row), strict=True))
        point = dict(zip(self.names, map(float, self.value), strict=True))
        inertia = np.zeros((3, 3))
        for key, i, j in _INERTIA:
            inertia[i, j] = inertia[j, i] = values.get(f"inertia_{key}", 0.0)
        # A draw from a wide normal may leave what is possible; it is held at a small share then.
        return ObjectModel(
            parts=parts,
            mass=max(values["mass"], 0.1 * point["mass"]),
            com=np.array([values[f"com_{axis}"] for axis in "xyz"]),
            inertia=inertia,
            friction=max(values["friction"], 0.1 * point["friction"]),
        )

    def grip_samples(self) -> Array:
        """(sample,) draws of the friction between pads and object, kept possible."""
        point = self.of(self.grip)[0]
        return np.clip(self.column(self.grip), 0.1 * point, max(self.grip_limit, 0.1 * point))

    def mass_samples(self) -> Array:
        """(sample,) draws of the mass, kg, kept positive."""
        return np.maximum(self.column("mass"), 0.1 * self.of("mass")[0])


def read_posterior(tree: xr.DataTree, pad_friction: float) -> Posterior:
    """Read the physics artifact.

    Grip friction is `friction_tip` where the data identify it. Where they do not, table friction
    stands in: rubber pads grip at least as well as the table, so the force errs on the firm side.

    Args:
        tree: the artifact.
        pad_friction: datasheet coefficient of the robot's pads; grip friction beyond it is not
            believed, because an estimate that is too high drops the object.

    Raises:
        ArtifactError: parameters are missing, or there is no sample.
    """
    root = tree.to_dataset()
    names = tuple(str(name) for name in tree.attrs["parameters"])
    needed = ["mass", "friction", "com_x", "com_y", "com_z"]
    missing = [name for name in needed if name not in names]
    samples = np.asarray(root["samples"].values, dtype=np.float64)
    if missing or samples.shape[0] == 0 or samples.shape[1] != len(names):
        raise ArtifactError(
            f"identify: parameters {missing} are missing, or samples have shape {samples.shape}; "
            f"expected one column for each of {list(names)}. Run identify again"
        )
    known = np.asarray(root["identifiable"].values).astype(bool)
    notes = []
    grip = "friction"
    if "friction_tip" in names and known[names.index("friction_tip")]:
        grip = "friction_tip"
        notes.append("grip friction: identified fingertip friction")
    else:
        notes.append(
            "grip friction: table friction stands in, fingertip friction is unidentifiable"
        )
    if float(root["value"].values[names.index(grip)]) > pad_friction:
        notes.append(f"grip friction is held at the pads' datasheet value {pad_friction}")
    for name in ("mass", "friction"):
        if not known[names.index(name)]:
            notes.append(f"{name} is unidentifiable: its prior with the wide interval is used")
    return Posterior(
        names=names,
        value=np.asarray(root["value"].values, dtype=np.float64),
        low=np.asarray(root["low"].values, dtype=np.float64),
        high=np.asarray(root["high"].values, dtype=np.float64),
        identifiable=known,
        samples=samples,
        grip=grip,
        grip_limit=pad_friction,
        notes=tuple(notes),
    )
