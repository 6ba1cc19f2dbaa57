"""The card of an object: ``datasets/<object>/object.yaml``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from twinloop.errors import InputError, ParamsError

STAGES = (
    "lab",
    "ingest",
    "reconstruct",
    "track",
    "push",
    "identify",
    "retarget",
    "train",
    "evaluate",
    "package",
)
"""All stages, in the order of the graph."""

NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
"""Names of objects: they become folder names, stage names and tags."""


class ObjectCard(BaseModel):
    """Who made the object's capture, under which licence, and what it overrides."""

    model_config = ConfigDict(extra="forbid")

    name: str
    """Name of the object, equal to its folder."""
    title: str = ""
    """One line for people."""
    license: str
    """SPDX identifier of the capture's licence; required, there is no default."""
    description: str = ""
    """What it is, how it was captured."""
    authors: list[str] = Field(default_factory=list)
    """Who made the capture."""
    tags: list[str] = Field(default_factory=list)
    """Words to find it by."""
    overrides: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Parameters of single stages that differ from params.yaml, by stage."""

    @field_validator("name")
    @classmethod
    def _name(cls, value: str) -> str:
        if not NAME.fullmatch(value):
            raise ValueError("expected a lower-case letter, then letters, digits or _ (63 at most)")
        return value

    @field_validator("license")
    @classmethod
    def _license(cls, value: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9.+-]+(?: (?:AND|OR|WITH) [A-Za-z0-9.+-]+)*", value):
            raise ValueError("expected an SPDX identifier such as CC-BY-4.0 or Apache-2.0")
        return value

    @field_validator("overrides")
    @classmethod
    def _stages(cls, value: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        unknown = sorted(set(value) - set(STAGES))
        if unknown:
            raise ValueError(f"unknown stages {unknown}, expected some of {list(STAGES)}")
        return value


def read_card(path: Path) -> ObjectCard:
    """Read and check a card.

    Raises:
        InputError: The file is missing, no YAML, or breaks the model; says which field.
    """
    try:
        content = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise InputError(f"{path} does not exist; `twinloop add` makes an object.") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not valid YAML: {error}") from error
    try:
        return ObjectCard.model_validate(content)
    except ValidationError as error:
        raise InputError(explain(error, str(path))) from error


def explain(error: ValidationError, where: str) -> str:
    """Return one line per fault of a pydantic error: where, field, value, what was expected."""
    lines = []
    for fault in error.errors():
        field = ".".join(str(part) for part in fault["loc"]) or "(top level)"
        value = "" if fault["type"] == "missing" else f", got {fault['input']!r}"
        lines.append(f"  {field}: {fault['msg']}{value}")
    return f"{where} has {len(lines)} fault{'s' if len(lines) > 1 else ''}:\n" + "\n".join(lines)


def merge_params(*layers: Any, where: str = "params") -> dict[str, Any]:
    """Merge mappings of parameters, later ones winning, nested mappings key by key.

    Raises:
        ParamsError: A layer is not a mapping.
    """
    merged: dict[str, Any] = {}
    for layer in layers:
        if layer is None:
            continue
        if not isinstance(layer, dict):
            raise ParamsError(f"{where}: expected a mapping of parameters, got {layer!r}.")
        for key, value in layer.items():
            if isinstance(value, dict) and isinstance(merged.get(key), dict):
                merged[key] = merge_params(merged[key], value, where=where)
            else:
                merged[key] = value
    return merged
