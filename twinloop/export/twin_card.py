"""The twin's two cards: ``twin.json`` for machines and ``README.md`` for people."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from pydantic import BaseModel, ConfigDict

from twinloop.card import ObjectCard
from twinloop.export.properties import Estimate

DATA_FILES = ("templates/card.md",)

TWIN_SCHEMA = "1.0.0"


class Value(BaseModel):
    """A physical value with its 95 % interval, or the word that the data cannot tell."""

    model_config = ConfigDict(extra="forbid")

    value: float
    std: float
    low: float
    high: float
    unit: str
    verdict: str


class TwinCard(BaseModel):
    """``twin.json``."""

    model_config = ConfigDict(extra="forbid")

    schema_version: str = TWIN_SCHEMA
    name: str
    title: str
    license: str
    authors: list[str]
    tags: list[str]
    frame: str = "object frame: origin at the mesh's volume centroid, z up at rest; SI units"
    rest_height: float
    physics: dict[str, Value]
    pose_only: dict[str, str]
    figures: list[dict[str, Any]]
    hashes: dict[str, str]


def values(estimates: tuple[Estimate, ...]) -> dict[str, Value]:
    """Return the estimates as the card holds them."""
    return {
        e.name: Value(
            value=e.value,
            std=e.std,
            low=e.low,
            high=e.high,
            unit=e.unit,
            verdict="identified" if e.identifiable else "unidentifiable",
        )
        for e in estimates
    }


def twin_card(
    card: ObjectCard,
    estimates: tuple[Estimate, ...],
    pose_only: tuple[Estimate, ...],
    figures: list[dict[str, Any]],
    rest_height: float,
    folder: Path,
) -> TwinCard:
    """Return the machine card of the twin in ``folder`` (its files are hashed)."""
    hashes = {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    return TwinCard(
        name=card.name,
        title=card.title or card.name,
        license=card.license,
        authors=card.authors,
        tags=card.tags,
        rest_height=rest_height,
        physics=values(estimates),
        pose_only={e.name: "identified" if e.identifiable else "unidentifiable" for e in pose_only},
        figures=figures,
        hashes=hashes,
    )


def readme(card: TwinCard, description: str) -> str:
    """Return the card for people, Markdown with front matter."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701 - Markdown, not HTML
        trim_blocks=True,
        lstrip_blocks=True,
    )
    text = environment.get_template("card.md").render(card=card, description=description)
    return text.rstrip() + "\n"
