"""Reading older artifacts: same major accepted, older majors migrated, newer refused."""

from __future__ import annotations

from collections.abc import Callable

import xarray as xr

from twinloop.artifacts.schema import ArtifactSchema
from twinloop.errors import ArtifactError

Migration = Callable[[xr.DataTree], xr.DataTree]

MIGRATIONS: dict[tuple[str, int], Migration] = {}
"""(kind, major) -> pure function that lifts an artifact of that major to the next one."""


def migrate(
    tree: xr.DataTree,
    schema: ArtifactSchema,
    where: str,
    migrations: dict[tuple[str, int], Migration] | None = None,
) -> xr.DataTree:
    """Lift ``tree`` to the schema's major version.

    Raises:
        ArtifactError: The version is unreadable, newer than ours, or has no migration.
    """
    known = MIGRATIONS if migrations is None else migrations
    version = str(tree.attrs.get("schema_version", ""))
    try:
        major, _minor, _patch = (int(part) for part in version.split("."))
    except ValueError:
        raise ArtifactError(
            f"{where}: schema_version {version!r}, expected major.minor.patch."
        ) from None
    if major > schema.major:
        raise ArtifactError(
            f"{where} is {schema.name} {version}, this Twinloop reads {schema.major}.x; "
            "upgrade with `pip install --upgrade twinloop`."
        )
    while major < schema.major:
        step = known.get((schema.name, major))
        if step is None:
            raise ArtifactError(
                f"{where} is {schema.name} {version} and there is no migration from {major} to "
                f"{major + 1}; rebuild it with `dvc repro`."
            )
        tree = step(tree)
        major += 1
        tree.attrs["schema_version"] = f"{major}.0.0"
    return tree
