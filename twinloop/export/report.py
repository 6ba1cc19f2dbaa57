"""One self-contained HTML report per object: figures, intervals beside truth, pictures, times."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from twinloop.artifacts.kinds.physics import PHYSICS
from twinloop.artifacts.store import open_artifact
from twinloop.card import STAGES, ObjectCard, read_card
from twinloop.errors import InputError
from twinloop.export.properties import Estimate, read_estimates

DATA_FILES = ("templates/report.html",)

MEDIA_TYPES = {".png": "image/png", ".mp4": "video/mp4"}
"""Pictures and films that stages make, by suffix."""


@dataclass(frozen=True)
class ReportData:
    """What the report shows."""

    card: ObjectCard
    metrics: dict[str, dict[str, Any]]
    """Metrics by stage."""
    plots: dict[str, dict[str, bytes]]
    """Pictures and films by stage and file name."""
    estimates: tuple[Estimate, ...] = ()
    pose_only: tuple[Estimate, ...] = ()
    times: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Provenance by stage; empty in the packaged report, whose bytes must not depend on a clock."""


def collect(
    folder: Path, stages: tuple[str, ...] = STAGES
) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, bytes]]]:
    """Return the metrics and the pictures of the given stages below ``datasets/<object>``.

    Raises:
        InputError: A metrics file is damaged.
    """
    metrics: dict[str, dict[str, Any]] = {}
    plots: dict[str, dict[str, bytes]] = {}
    for stage in stages:
        path = folder / "metrics" / f"{stage}.json"
        if path.is_file():
            metrics[stage] = read_json(path)
        pictures = [
            path
            for kind in ("plots", "films")
            for path in sorted((folder / kind / stage).glob("*.*"))
            if path.suffix in MEDIA_TYPES
        ]
        if pictures:
            plots[stage] = {picture.name: picture.read_bytes() for picture in pictures}
    return metrics, plots


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        InputError: It is no JSON object.
    """
    try:
        content = json.loads(path.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path} is not valid JSON ({error}); `dvc repro` writes it anew."
        ) from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: expected a JSON object, got {type(content).__name__}.")
    return content


def write_report(folder: Path, target: Path) -> ReportData:
    """Write the report of the object in ``folder``, with times, whole; return what it shows.

    Args:
        folder: ``datasets/<object>``; stages that have not run yet are left out.
        target: The HTML file.

    Raises:
        InputError: The object's card or a metrics file is missing or damaged.
        ArtifactError: ``identify.zarr`` is damaged.
    """
    metrics, plots = collect(folder)
    if not metrics:
        raise InputError(
            f"{folder.name} has no results yet; build it: `twinloop run {folder.name}`."
        )
    estimates: tuple[Estimate, ...] = ()
    pose_only: tuple[Estimate, ...] = ()
    if (folder / "identify.zarr").is_dir():
        physics = open_artifact(folder / "identify.zarr", PHYSICS)
        estimates, pose_only = read_estimates(physics), read_estimates(physics, "pose_only")
    times = {
        stage: read_json(path)
        for stage in STAGES
        if (path := folder / "provenance" / f"{stage}.json").is_file()
    }
    card = read_card(folder / "object.yaml")
    data = ReportData(card, metrics, plots, estimates, pose_only, times)
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(f".{target.name}.tmp")
    fresh.write_text(render(data), encoding="utf-8")
    fresh.replace(target)
    return data


def render(data: ReportData) -> str:
    """Return the report as HTML that needs no other file and no network."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["figure"] = format_value
    environment.filters["words"] = lambda text: str(text).replace("_", " ")
    truth = data.metrics.get("evaluate", {}).get("parameters", [])
    return environment.get_template("report.html").render(
        card=data.card,
        figures=data.metrics.get("evaluate", {}).get("figures", []),
        parameters=_parameters(data, {row["parameter"]: row for row in truth}),
        stages=[
            {
                "name": stage,
                "metrics": _scalars(data.metrics.get(stage, {})),
                "plots": [
                    {
                        "name": Path(name).stem,
                        "type": MEDIA_TYPES[Path(name).suffix],
                        "data": base64.b64encode(content).decode(),
                    }
                    for name, content in sorted(data.plots.get(stage, {}).items())
                ],
            }
            for stage in STAGES
            if stage in data.metrics or stage in data.plots
        ],
        times=[{"stage": stage, **data.times[stage]} for stage in STAGES if stage in data.times],
    )


def format_value(value: Any) -> str:
    """Return a number with four significant digits, anything else as it is."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "–"}[value]
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (list, tuple)):
        return " to ".join(format_value(item) for item in value)
    return str(value)


def _parameters(data: ReportData, truth: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    pose_only = {estimate.name: estimate for estimate in data.pose_only}
    rows = []
    for estimate in data.estimates:
        known = truth.get(estimate.name, {}).get("truth")
        alone = pose_only.get(estimate.name)
        rows.append(
            {
                "name": estimate.name,
                "unit": estimate.unit,
                "value": estimate.value,
                "interval": (estimate.low, estimate.high),
                "verdict": "identified" if estimate.identifiable else "unidentifiable",
                "truth": known,
                "covers": None if known is None else estimate.low <= known <= estimate.high,
                "pose_only": None
                if alone is None
                else ("identified" if alone.identifiable else "unidentifiable"),
            }
        )
    return rows


def _scalars(metrics: dict[str, Any]) -> dict[str, Any]:
    return {
        key: value
        for key, value in sorted(metrics.items())
        if isinstance(value, (int, float, str, bool)) or value is None
    }
