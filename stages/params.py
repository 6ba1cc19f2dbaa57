"""Parameters of a stage: pydantic defaults < params.yaml < profile < the object's overrides."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from twinloop.card import ObjectCard, explain, merge_params
from twinloop.errors import ParamsError


class StageParams(BaseModel):
    """Base of every stage's ``Params``: unknown keys are errors, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    seed: int = Field(0, ge=0, description="Seed of everything random in the stage [1].")


AnyParams = TypeVar("AnyParams", bound=StageParams)


def resolve(stage: str, model: type[AnyParams], root: Path, card: ObjectCard) -> AnyParams:
    """Return the parameters of ``stage`` for the object of ``card``.

    Raises:
        ParamsError: A file is missing or a key is unknown or out of range; names the near ones.
    """
    path = root / "params.yaml"
    content = read_yaml(path)
    profile = content.get("profile")
    profiles = content.get("profiles") or {}
    if profile not in profiles:
        raise ParamsError(f"{path}: profile {profile!r}, expected one of {sorted(profiles)}.")
    merged = merge_params(
        content.get(stage),
        (profiles[profile] or {}).get(stage),
        card.overrides.get(stage),
        where=f"{path}: {stage}",
    )
    try:
        return model.model_validate(merged)
    except ValidationError as error:
        raise ParamsError(
            explain(error, f"parameters of {stage} (params.yaml, profile {profile}, object.yaml)")
            + _suggestions(error, model)
        ) from error


def _suggestions(error: ValidationError, model: type[BaseModel]) -> str:
    known = list(model.model_fields)
    unknown = [str(e["loc"][-1]) for e in error.errors() if e["type"] == "extra_forbidden"]
    hints = [f"{name} -> {near[0]}?" for name in unknown if (near := _near(name, known))]
    text = f"\n  known parameters: {', '.join(sorted(known))}"
    return f"\n  did you mean: {'; '.join(hints)}{text}" if hints else text


def _near(name: str, known: list[str]) -> list[str]:
    return difflib.get_close_matches(name, known, n=1)


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML mapping.

    Raises:
        ParamsError: Missing, no YAML, or no mapping.
    """
    try:
        content = yaml.load(path.read_text(), Loader=yaml.CSafeLoader)  # safe, as safe_load is
    except FileNotFoundError:
        raise ParamsError(f"{path} does not exist; run from the project's root.") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ParamsError(f"{path} is not valid YAML: {error}") from error
    if not isinstance(content, dict):
        raise ParamsError(f"{path}: expected a mapping, got {type(content).__name__}.")
    return content
