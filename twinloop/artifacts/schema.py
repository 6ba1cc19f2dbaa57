"""How an artifact kind is declared, and the rules its arrays are checked against.

A kind is one :class:`ArtifactSchema`: a name, a semantic version, and groups of arrays.  Each
array states dims, dtype, units, frame, chunking and invariants.  Validation collects all faults
before it raises, so that one run shows everything that is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
import xarray as xr
from pydantic import BaseModel, ConfigDict, Field

from twinloop.errors import ArtifactError

Invariant = Literal[
    "finite",
    "unit_quaternion",
    "unit_vector",
    "spd",
    "monotone",
    "positive",
    "non_negative",
    "probability",
]


class ArraySpec(BaseModel):
    """One array of an artifact."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dims: tuple[str, ...]
    """Names of the dimensions, outermost first."""
    dtype: str
    """NumPy dtype, for example "float64" or "uint8"."""
    units: str
    """SI unit ("m", "rad", "kg"), "1" for a pure number, "px" for pixels."""
    description: str
    """What the values are; ends up in the array's ``long_name``."""
    frame: str | None = None
    """Coordinate frame of positions, poses and directions."""
    sizes: dict[str, int] = Field(default_factory=dict)
    """Dimensions whose length is fixed, for example {"quaternion": 4}."""
    invariants: tuple[Invariant, ...] = ()
    """Rules that every value obeys."""
    optional: bool = False
    """Whether the array may be missing."""
    chunk: dict[str, int] = Field(default_factory=dict)
    """Chunk length along a dimension (whole length where not named); one frame for images."""
    shard: int = 64
    """Chunks per shard along the chunked dimension: keeps the number of files low."""


class GroupSpec(BaseModel):
    """One group of an artifact; ``pattern`` groups exist any number of times."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    arrays: dict[str, ArraySpec]
    """Arrays by name."""
    pattern: bool = False
    """True when the group's name is a prefix: "push_" stands for push_000, push_001, ..."""
    optional: bool = False
    """Whether the group may be missing (a pattern group may always be empty)."""
    extra: bool = False
    """Whether arrays that are not declared may stand in the group."""


class ArtifactSchema(BaseModel):
    """An artifact kind: its name, its version and its groups."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    """Kind, for example "twinloop.frames"."""
    version: str
    """Semantic version of the schema, "major.minor.patch"."""
    groups: dict[str, GroupSpec]
    """Groups by path: "/" is the root, "mesh" a child, "push_" a pattern."""

    @property
    def major(self) -> int:
        """Major version: a reader accepts its own major only."""
        return int(self.version.split(".")[0])

    def group_of(self, path: str) -> GroupSpec | None:
        """Return the declaration of the group at ``path`` ("/" is the root)."""
        key = path.strip("/") or "/"
        if key in self.groups:
            return self.groups[key]
        for prefix, group in self.groups.items():
            if group.pattern and key.startswith(prefix) and key[len(prefix) :].isalnum():
                return group
        return None


def validate(tree: xr.DataTree, schema: ArtifactSchema, where: str, *, values: bool = True) -> None:
    """Raise :class:`ArtifactError` that lists every way in which ``tree`` breaks ``schema``.

    Args:
        tree: The artifact.
        schema: Its kind.
        where: File name used in the messages.
        values: False checks the structure only and reads no array (lazy opening).
    """
    faults = list(_faults(tree, schema, values))
    if faults:
        shown = "\n".join(f"  {fault}" for fault in faults[:50])
        more = f"\n  ... and {len(faults) - 50} more" if len(faults) > 50 else ""
        raise ArtifactError(
            f"{where} is not a valid {schema.name} {schema.version} "
            f"({len(faults)} fault{'s' if len(faults) > 1 else ''}):\n{shown}{more}\n"
            "Rebuild it with `dvc repro`, or ask its author for a new copy."
        )


def _faults(tree: xr.DataTree, schema: ArtifactSchema, values: bool) -> Iterator[str]:
    newer = _newer_minor(tree, schema)
    present = {node.path.strip("/") or "/": node for node in tree.subtree}
    for key, group in schema.groups.items():
        if group.pattern or group.optional or key in present:
            continue
        if any(not spec.optional for spec in group.arrays.values()):
            yield f"group {key!r}: missing, expected arrays {sorted(group.arrays)}"
    for key, node in present.items():
        declared = schema.group_of(key)
        if declared is None:
            if node.data_vars and not newer:
                yield f"group {key!r}: not declared, expected one of {sorted(schema.groups)}"
            continue
        yield from _group_faults(key, node, declared, values, newer)


def _newer_minor(tree: xr.DataTree, schema: ArtifactSchema) -> bool:
    """A newer minor version of the same major may hold arrays that we do not know yet."""
    version = str(tree.attrs.get("schema_version", schema.version)).split(".")
    ours = schema.version.split(".")
    return version[0] == ours[0] and int(version[1]) > int(ours[1])


def _group_faults(
    key: str, node: xr.DataTree, group: GroupSpec, values: bool, newer: bool
) -> Iterator[str]:
    found = {str(name): array for name, array in node.to_dataset(inherit=False).variables.items()}
    for name, spec in group.arrays.items():
        if name not in found:
            if not spec.optional:
                yield f"{key}: {name}: missing, expected dims {spec.dims} {spec.dtype}"
            continue
        yield from _array_faults(f"{key}: {name}", found[name], spec, values)
    if not (group.extra or newer):
        for name in sorted(set(found) - set(group.arrays)):
            yield f"{key}: {name}: not declared, expected one of {sorted(group.arrays)}"


def _array_faults(label: str, array: xr.Variable, spec: ArraySpec, values: bool) -> Iterator[str]:
    if array.dims != spec.dims:
        yield f"{label}: dims {array.dims}, expected {spec.dims}"
        return
    if array.dtype != np.dtype(spec.dtype):
        yield f"{label}: dtype {array.dtype}, expected {spec.dtype}"
        return
    for key, wanted in (("units", spec.units), ("frame", spec.frame)):
        if array.attrs.get(key) != wanted:
            yield f"{label}: {key} {array.attrs.get(key)!r}, expected {wanted!r}"
    for dim, size in spec.sizes.items():
        if array.sizes[dim] != size:
            yield f"{label}: size of {dim!r} is {array.sizes[dim]}, expected {size}"
    if values and spec.invariants and array.size:  # arrays without rules are never read here
        data = np.asarray(array.values)
        for invariant in spec.invariants:
            bad, rule = RULES[invariant](data)
            if bad.any():
                index = tuple(int(i) for i in np.argwhere(np.atleast_1d(bad))[0])
                value = np.atleast_1d(data)[index[: max(data.ndim, 1)]]
                yield (
                    f"{label}{list(index)}: value {np.array2string(np.asarray(value), precision=6)}"
                    f" breaks the rule '{rule}' ({int(bad.sum())} of {bad.size} do)"
                )


Rule = Callable[[np.ndarray[Any, Any]], tuple[np.ndarray[Any, Any], str]]


def _not_spd(data: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    finite = np.isfinite(data).all(axis=(-2, -1))
    safe = np.where(finite[..., None, None], data, np.eye(data.shape[-1]))
    symmetric = np.abs(safe - np.swapaxes(safe, -1, -2)).max(axis=(-2, -1)) <= 1e-9 * np.abs(
        safe
    ).max(axis=(-2, -1), initial=1e-300)
    lowest = np.linalg.eigvalsh(safe)[..., 0]
    return np.asarray(~(finite & symmetric & (lowest > 0)))


RULES: dict[str, Rule] = {
    "finite": lambda x: (~np.isfinite(x), "finite"),
    "unit_quaternion": lambda x: (
        ~(np.abs(np.linalg.norm(x, axis=-1) - 1) < 1e-6),
        "norm of the quaternion is 1 within 1e-6",
    ),
    "unit_vector": lambda x: (
        ~(np.abs(np.linalg.norm(x, axis=-1) - 1) < 1e-6),
        "norm of the vector is 1 within 1e-6",
    ),
    "spd": lambda x: (_not_spd(x), "symmetric positive definite"),
    "monotone": lambda x: (np.r_[False, ~(np.diff(x) > 0)], "strictly increasing"),
    "positive": lambda x: (~(x > 0), "greater than zero"),
    "non_negative": lambda x: (~(x >= 0), "not negative"),
    "probability": lambda x: (~((x >= 0) & (x <= 1)), "between 0 and 1"),
}
