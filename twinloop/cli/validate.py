"""Check an artifact against its kind, and a twin against its own card."""

from __future__ import annotations

import hashlib
import json
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any
from xml.etree import ElementTree

from pydantic import ValidationError

import twinloop.artifacts.kinds as kinds
from twinloop.artifacts.schema import ArtifactSchema
from twinloop.artifacts.store import open_artifact
from twinloop.card import explain
from twinloop.errors import ArtifactError
from twinloop.export.twin_card import TwinCard

LARGEST_CARD = 10_000_000
"""Bytes; a larger ``twin.json`` is not read."""

MASS_TOLERANCE = 1e-6
"""Relative difference of mass between the card and the loaded model."""


def schemas() -> dict[str, ArtifactSchema]:
    """All artifact kinds by the name that stands in an artifact's attributes."""
    found: dict[str, ArtifactSchema] = {}
    for path in sorted(Path(next(iter(kinds.__path__))).glob("[a-z]*.py")):
        module = import_module(f"twinloop.artifacts.kinds.{path.stem}")
        declared = [v for v in vars(module).values() if isinstance(v, ArtifactSchema)]
        found |= {schema.name: schema for schema in declared}
    return found


def validate_artifact(path: Path) -> str:
    """Check every value of an artifact; returns its kind and version.

    Raises:
        ArtifactError: It cannot be read, is of no known kind, or breaks its kind's rules.
    """
    try:
        content = json.loads((path / "zarr.json").read_text(encoding="utf-8"))
        kind = content["attributes"]["schema"]
    except FileNotFoundError:
        raise ArtifactError(
            f"{path} is no Zarr store (zarr.json is missing); `dvc checkout --force` restores it."
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArtifactError(
            f"{path / 'zarr.json'} is damaged ({type(error).__name__}: {error}); "
            "`dvc checkout --force` restores it from the cache."
        ) from error
    known = schemas()
    if kind not in known:
        raise ArtifactError(f"{path} is of kind {kind!r}; known kinds: {', '.join(sorted(known))}.")
    tree = open_artifact(path, known[kind], values=True)
    return f"{kind} {tree.attrs.get('schema_version', known[kind].version)}"


def validate_twin(folder: Path) -> str:
    """Check a twin's card, hashes and model; returns what was checked.

    Raises:
        ArtifactError: All faults at once.
    """
    card = read_twin(folder)
    faults = check_hashes(folder, card)
    if not faults:
        faults = check_model(folder, card)
    if faults:
        raise ArtifactError(
            f"{folder} is not a sound twin:\n  " + "\n  ".join(faults) + "\n"
            "Ask its author for a new copy, or build it again with `twinloop run`."
        )
    return f"twin {card.name}, {len(card.hashes)} files, loads in MuJoCo with the card's mass"


def read_twin(folder: Path) -> TwinCard:
    """Read ``twin.json``.

    Raises:
        ArtifactError: It is missing, too large, or not what a card has to be.
    """
    path = folder / "twin.json"
    if not path.is_file():
        raise ArtifactError(f"{folder} is no twin: it has no twin.json.")
    if path.stat().st_size > LARGEST_CARD:
        raise ArtifactError(f"{path} has {path.stat().st_size} bytes, at most {LARGEST_CARD}.")
    try:
        return TwinCard.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        raise ArtifactError(explain(error, str(path))) from error
    except ValueError as error:
        raise ArtifactError(f"{path} is not valid JSON: {error}") from error


def check_hashes(folder: Path, card: TwinCard) -> list[str]:
    """Files that are missing, changed, not listed, or that would lie outside the folder."""
    faults: list[str] = []
    base = folder.resolve()
    for name, expected in card.hashes.items():
        pure = PurePosixPath(name)
        path = folder / name
        if pure.is_absolute() or ".." in pure.parts or base not in path.resolve().parents:
            faults.append(f"{name!r} points outside the twin")
        elif not path.is_file():
            faults.append(f"{name} is missing")
        elif digest(path) != expected:
            faults.append(f"{name} has changed: SHA-256 {digest(path)}, card says {expected}")
    present = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    strangers = present - set(card.hashes) - {"twin.json", "README.md"}
    return faults + [f"{name} is not listed in twin.json" for name in sorted(strangers)]


def digest(path: Path) -> str:
    """SHA-256 of a file, read in pieces."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def check_model(folder: Path, card: TwinCard) -> list[str]:
    """Load the MJCF and compare its mass with the card's."""
    path = folder / "mjcf" / f"{card.name}.xml"
    if not path.is_file():
        return [f"mjcf/{card.name}.xml is missing"]
    faults = outside_paths(folder, path)
    if faults:
        return faults
    import mujoco

    try:
        model: Any = mujoco.MjModel.from_xml_path(str(path))
    except ValueError as error:
        return [f"mjcf/{card.name}.xml does not load: {error}"]
    mass, expected = float(model.body_mass.sum()), card.physics["mass"].value
    if abs(mass - expected) > MASS_TOLERANCE * expected:
        return [f"mjcf/{card.name}.xml weighs {mass} kg, twin.json says {expected} kg"]
    return []


def outside_paths(folder: Path, path: Path) -> list[str]:
    """References of an MJCF file to files outside the twin: a model from a stranger may try."""
    text = path.read_text(encoding="utf-8", errors="replace")
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        return [f"{path.name} declares XML entities, which no twin needs"]
    try:
        elements = list(ElementTree.fromstring(text).iter())  # noqa: S314, entities are refused
    except ElementTree.ParseError as error:
        return [f"{path.name} is not valid XML: {error}"]
    folders = [e.get(k, "") for e in elements for k in ("meshdir", "texturedir", "assetdir")]
    base = folder.resolve()
    faults: list[str] = []
    for name in [e.get("file", "") for e in elements] + folders:
        for start in ("", *filter(None, folders)):
            target = (path.parent / start / name).resolve()
            if target != base and base not in target.parents:
                faults.append(f"{path.name} refers to {name!r}, outside the twin")
                break
    return faults
