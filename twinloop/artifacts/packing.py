"""Groups of a pattern (push_000, push_001, ...) stored as one group, whatever their number.

Every Zarr array is two files at least, and DVC's time grows with the number of files: a session of
thirty pushes must not be a thousand of them.  On disk the arrays of all groups lie end to end
along their first dimension, with the offsets beside them; a reader sees the groups again, lazily.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from twinloop.artifacts.schema import ArtifactSchema, GroupSpec
from twinloop.errors import ArtifactError

STACK = "packed_group"
"""Dimension along which arrays of one fixed shape are stacked."""


def pack(tree: xr.DataTree, schema: ArtifactSchema) -> xr.DataTree:
    """Return ``tree`` with the groups of each pattern joined into one group.

    Groups whose arrays do not agree in names, dims, dtypes or trailing sizes stay as they are.
    """
    groups = {node.path: node.to_dataset(inherit=False) for node in tree.subtree}
    for prefix, spec in schema.groups.items():
        if spec.pattern:
            paths = [p for p in sorted(groups) if schema.group_of(p) is spec]
            members = [groups[path] for path in paths]
            if len(members) > 1 and _alike(members, spec):
                for path in paths:
                    del groups[path]
                names = [path.strip("/") for path in paths]
                groups[f"/{packed_name(prefix)}"] = _join(names, members, spec)
    return xr.DataTree.from_dict(groups)


def packed_name(prefix: str) -> str:
    """Return the group that the members of the pattern ``prefix`` ("push_") are packed into."""
    return prefix.rstrip("_")


def unpack(tree: xr.DataTree, where: str) -> xr.DataTree:
    """Undo :func:`pack`; arrays stay lazy.

    Raises:
        ArtifactError: Names or offsets do not fit the arrays.
    """
    groups: dict[str, xr.Dataset] = {}
    for node in tree.subtree:
        dataset = node.to_dataset(inherit=False)
        if "packed_groups" not in dataset.attrs:
            groups[node.path] = dataset
            continue
        names, attrs = dataset.attrs["packed_groups"], dataset.attrs["packed_attrs"]
        offsets = {
            str(name).removeprefix("offset_"): np.asarray(array.values)
            for name, array in dataset.data_vars.items()
            if str(name).startswith("offset_")
        }
        sizes = dict(dataset.sizes)
        sound = len(names) == len(attrs) and all(
            len(ends) == len(names) + 1
            and ends[0] == 0
            and bool((np.diff(ends) >= 0).all())
            and ends[-1] == sizes.get(dim)
            for dim, ends in offsets.items()
        )
        plain = all(isinstance(name, str) and name.isidentifier() for name in names)
        if not (sound and plain and sizes.get(STACK, len(names)) == len(names)):
            raise ArtifactError(
                f"{where}: group {node.path} is packed with offsets that do not fit."
            )
        arrays = dataset.drop_vars([f"offset_{dim}" for dim in offsets])
        for i, name in enumerate(names):
            part: dict[str, Any] = {
                dim: slice(int(ends[i]), int(ends[i + 1])) for dim, ends in offsets.items()
            }
            if STACK in arrays.dims:
                part[STACK] = i
            member = arrays.isel(part)
            member.attrs = dict(attrs[i])
            groups[f"/{name}"] = member
    return xr.DataTree.from_dict(groups)


def _ragged(name: str, array: xr.Variable, spec: GroupSpec) -> bool:
    """Whether the array's first dimension may differ in length from group to group."""
    declared = spec.arrays.get(name)
    return array.ndim > 0 and not (declared and str(array.dims[0]) in declared.sizes)


def _alike(members: list[xr.Dataset], spec: GroupSpec) -> bool:
    def form(dataset: xr.Dataset) -> dict[str, Any]:
        return {
            str(name): (
                array.dims,
                array.dtype.str,
                array.shape[1:] if _ragged(str(name), array, spec) else array.shape,
            )
            for name, array in dataset.variables.items()
        }

    return all(form(member) == form(members[0]) for member in members[1:])


def _join(names: list[str], members: list[xr.Dataset], spec: GroupSpec) -> xr.Dataset:
    joined: dict[str, xr.Variable] = {}
    for name, first in members[0].variables.items():
        columns = [member.variables[name] for member in members]
        if _ragged(str(name), first, spec):
            dim = str(first.dims[0])
            ends = np.cumsum([0] + [column.sizes[dim] for column in columns])
            joined[f"offset_{dim}"] = xr.Variable((f"ends_{dim}",), ends.astype(np.int64))
            data = np.concatenate([column.values for column in columns])
            joined[str(name)] = xr.Variable(first.dims, data, first.attrs)
        else:
            data = np.stack([column.values for column in columns])
            joined[str(name)] = xr.Variable((STACK, *first.dims), data, first.attrs)
    attrs = {"packed_groups": names, "packed_attrs": [dict(member.attrs) for member in members]}
    return xr.Dataset(joined, attrs=attrs)
