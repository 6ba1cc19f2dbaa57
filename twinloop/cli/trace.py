"""Where a value comes from: the stages before it, their inputs, parameters and code.

Read from ``dvc.lock`` (what each stage was made from), the artifacts (parameters, frames, pushes)
and ``provenance/`` (when and how long). Nothing is computed anew.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from twinloop.artifacts.kinds.frames import FRAMES
from twinloop.artifacts.kinds.physics import PHYSICS
from twinloop.artifacts.kinds.pushes import PUSHES
from twinloop.artifacts.store import open_artifact
from twinloop.cli.project import read_mapping, unknown
from twinloop.errors import ArtifactError, InputError, TwinloopError
from twinloop.export.properties import read_estimates

LOCK_FILE = "dvc.lock"
CODE = ("stages/", "twinloop/", "pipelines/")


@dataclass(frozen=True)
class Found:
    """A value that an object has."""

    name: str
    stage: str
    value: Any
    unit: str = ""
    std: float | None = None
    interval: tuple[float, float] | None = None
    verdict: str = ""


@dataclass
class Made:
    """How one stage's output was made."""

    stage: str
    command: str
    inputs: dict[str, str] = field(default_factory=dict)
    """Path and MD5 of the data it read."""
    code: dict[str, str] = field(default_factory=dict)
    """Path and MD5 of the code it ran."""
    params: dict[str, Any] = field(default_factory=dict)
    """Parameters as resolved, from the artifact; as DVC recorded them where there is none."""
    versions: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    detail: list[str] = field(default_factory=list)
    """Sentences about the frames or pushes it used."""
    seconds: float | None = None
    started_unix: float | None = None


def find_values(root: Path, name: str) -> dict[str, Found]:
    """All values of an object: identified parameters by name, metrics as ``stage.metric``."""
    folder = root / "datasets" / name
    found: dict[str, Found] = {}
    if (folder / "identify.zarr").is_dir():
        for e in read_estimates(open_artifact(folder / "identify.zarr", PHYSICS)):
            verdict = "identified" if e.identifiable else "unidentifiable"
            interval = (e.low, e.high)
            found[e.name] = Found(e.name, "identify", e.value, e.unit, e.std, interval, verdict)
    for path in sorted((folder / "metrics").glob("*.json")):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, UnicodeDecodeError) as error:
            raise ArtifactError(
                f"{path} is not valid JSON ({error}); `twinloop run {name}` writes it anew."
            ) from error
        for key, value in content.items() if isinstance(content, dict) else ():
            if isinstance(value, int | float | str | bool):
                found[f"{path.stem}.{key}"] = Found(f"{path.stem}.{key}", path.stem, value)
    return found


def find_value(root: Path, name: str, what: str) -> Found:
    """One value by its name; of a metric the last part is enough when only one stage has it.

    Raises:
        InputError: Nothing is built, or no value or several have this name.
    """
    values = find_values(root, name)
    if not values:
        raise InputError(f"{name} has no results yet; build it: twinloop run {name}")
    if what in values:
        return values[what]
    ends = [key for key in values if key.rsplit(".", 1)[-1] == what]
    if len(ends) > 1:
        raise InputError(f"{what!r} stands for several values: {', '.join(ends)}.")
    if not ends:
        raise InputError(unknown(f"value of {name}", what, values))
    return values[ends[0]]


def trace(root: Path, name: str, stage: str) -> list[Made]:
    """The stages that ``stage`` of object ``name`` follows from, first to last, itself included.

    Raises:
        InputError: ``dvc.lock`` does not know the stage.
    """
    entries = read_mapping(root / LOCK_FILE).get("stages") or {}
    own = {key.split("@")[0]: e for key, e in entries.items() if key.endswith(f"@{name}")}
    if stage not in own:
        raise InputError(f"{LOCK_FILE} has no {stage}@{name}; build it: twinloop run {name}")
    maker = {str(out["path"]): key for key, e in own.items() for out in e.get("outs") or ()}
    order: list[str] = []

    def visit(key: str) -> None:
        if key in order:
            return
        for dep in own[key].get("deps") or ():
            # A dep may be a folder that holds another stage's output.
            for path, source in maker.items():
                if path == dep["path"] or path.startswith(f"{dep['path']}/"):
                    visit(source)
        order.append(key)

    visit(stage)
    return [_made(root, name, key, own[key]) for key in order]


def as_json(found: Found | None, steps: list[Made]) -> dict[str, Any]:
    """A value and its trace as plain values."""
    return {"value": asdict(found) if found else None, "trace": [asdict(step) for step in steps]}


def _made(root: Path, name: str, stage: str, entry: dict[str, Any]) -> Made:
    made = Made(stage, str(entry.get("cmd", "")))
    for dep in entry.get("deps") or ():
        side = made.code if str(dep["path"]).startswith(CODE) else made.inputs
        side[str(dep["path"])] = str(dep.get("md5", ""))
    made.outputs = {str(o["path"]): str(o.get("md5", "")) for o in entry.get("outs") or ()}
    recorded = entry.get("params") or {}
    made.versions = {k: str(v) for k, v in (recorded.get("versions.yaml") or {}).items()}
    for file, values in recorded.items():
        if file != "versions.yaml":
            made.params |= values
    folder = root / "datasets" / name
    resolved = _attributes(folder / f"{stage}.zarr").get("params")
    if isinstance(resolved, dict):
        made.params = resolved
    try:
        made.detail = _detail(folder, stage)
    except TwinloopError as error:
        made.detail = [str(error).splitlines()[0]]
    _add_times(made, folder / "provenance" / f"{stage}.json")
    return made


def _attributes(store: Path) -> dict[str, Any]:
    """Root attributes of a Zarr store, without opening its arrays."""
    try:
        attributes = json.loads((store / "zarr.json").read_text(encoding="utf-8"))["attributes"]
    except (OSError, ValueError, KeyError):
        return {}
    return attributes if isinstance(attributes, dict) else {}


def _detail(folder: Path, stage: str) -> list[str]:
    if stage == "ingest":
        frames = open_artifact(folder / "ingest.zarr", FRAMES).to_dataset()
        time, held_out = frames["time"].values, frames["held_out"].values
        return [
            f"{time.size} frames of raw/scan, {time[0]:.2f} to {time[-1]:.2f} s, of which "
            f"{int((held_out != 0).sum())} held out: "
            f"{', '.join(f'{t:.2f}' for t in time[held_out != 0])} s"
        ]
    if stage == "push":
        pushes = open_artifact(folder / "push.zarr", PUSHES)
        return [_push_line(key, pushes[key].attrs) for key in sorted(pushes.children)]
    return []


def _push_line(name: str, attributes: Any) -> str:
    held_out = " (held out: never used to identify)" if attributes.get("held_out") else ""
    return f"{name}: {attributes.get('action', 'push')}{held_out}"


def _add_times(made: Made, path: Path) -> None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return  # built elsewhere and fetched: its times were not fetched
    if isinstance(content, dict):
        seconds, started = content.get("wall_seconds"), content.get("started_unix")
        made.seconds = float(seconds) if isinstance(seconds, int | float) else None
        made.started_unix = float(started) if isinstance(started, int | float) else None


def compact(values: dict[str, Any], most: int = 12) -> str:
    """Parameters in one line; nested ones with dots."""
    flat: dict[str, Any] = {}

    def fill(place: str, content: Any) -> None:
        if isinstance(content, dict):
            for key, value in content.items():
                fill(f"{place}.{key}" if place else str(key), value)
        else:
            flat[re.sub(r"^(profiles\.\w+|overrides)\.", "", place)] = content

    fill("", values)
    shown = [f"{key}={value}" for key, value in list(flat.items())[:most]]
    return ", ".join(shown) + (f", and {len(flat) - most} more" if len(flat) > most else "")
