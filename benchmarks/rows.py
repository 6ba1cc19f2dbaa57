"""Rows of a benchmark: resumable, cached by code and params, written to results/NAME.json.

A suite is a list of :class:`Row`.  Each row's function returns figures; they are cached in
``.cache/benchmarks`` under a hash of the code and files that the row names, so an interrupted
suite goes on where it stopped and a changed row alone runs again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shlex
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
CACHE = ROOT / ".cache" / "benchmarks"


@dataclass(frozen=True)
class Figure:
    """One measured figure."""

    figure: str
    value: float | str | None
    unit: str
    target: float | str | None
    better: Literal["lower", "higher"]
    n: int
    interval: list[float] | None = None
    peer: str | None = None
    command: str = ""


@dataclass(frozen=True)
class Row:
    """One resumable part of a suite."""

    name: str
    run: Callable[[], list[Figure]]
    depends: tuple[str, ...]
    """Globs below the project root whose content decides whether the cached figures still hold."""


def digest(row: Row, suite: Path) -> str:
    """Return the hash of everything that the row depends on."""
    total = hashlib.sha256()
    paths = {suite, *(p for glob in row.depends for p in ROOT.glob(glob) if p.is_file())}
    for path in sorted(paths):
        total.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return total.hexdigest()


def main(name: str, suite: Path, rows: list[Row], more: str = "") -> None:
    """Run the rows of a suite that are not cached and write its results and plot.

    ``more`` is added to the help: what the suite itself understands.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}",
        description=f"Measure the figures of '{name}'; rows already measured for this code and "
        "these params are taken from the cache.",
        epilog="rows: " + ", ".join(row.name for row in rows) + more,
    )
    parser.add_argument("--only", metavar="ROW", help="run this row alone, cached or not")
    arguments = parser.parse_args()
    known = [row.name for row in rows]
    if arguments.only and arguments.only not in known:
        parser.error(f"unknown row {arguments.only!r}, expected one of {', '.join(known)}")
    figures: list[dict[str, Any]] = []
    for row in rows:
        cached = CACHE / name / f"{row.name}-{digest(row, suite)[:24]}.json"
        wanted = arguments.only in (None, row.name)
        if cached.is_file() and arguments.only != row.name:
            figures += json.loads(cached.read_text())
            print(f"{row.name}: cached")
            continue
        if not wanted:
            figures += _previous(name, row.name)
            continue
        started = time.perf_counter()
        print(f"{row.name}: running ...", flush=True)
        command = f"python -m benchmarks.{name} --only {shlex.quote(row.name)}"
        measured = [{**asdict(f), "command": f.command or command} for f in row.run()]
        print(f"{row.name}: {time.perf_counter() - started:.0f} s", flush=True)
        write(cached, measured)
        figures += measured
    write(RESULTS / f"{name}.json", figures)
    plot(name, figures)
    print(table(figures))


def _previous(name: str, row: str) -> list[dict[str, Any]]:
    """Figures of a row that is not run now, as the results file has them."""
    path = RESULTS / f"{name}.json"
    if not path.is_file():
        return []
    return [f for f in json.loads(path.read_text()) if f["command"].endswith(f"--only {row}")]


def write(path: Path, figures: list[dict[str, Any]]) -> None:
    """Write figures whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".tmp")
    fresh.write_text(json.dumps(figures, indent=1) + "\n")
    fresh.replace(path)


def reached(figure: dict[str, Any]) -> bool | None:
    """Whether the figure reaches its target; None when there is none."""
    value, target = figure["value"], figure["target"]
    if target is None or value is None:
        return None
    if isinstance(value, str) or isinstance(target, str):
        return bool(value == target)
    return bool(value <= target if figure["better"] == "lower" else value >= target)


def table(figures: list[dict[str, Any]]) -> str:
    """Return the figures as a Markdown table."""
    peers = any(f["peer"] for f in figures)
    lines = ["| figure | value | 95 % interval | n | target | |", "|---|---|---|---|---|---|"]
    if peers:
        lines = [lines[0] + " beside |", lines[1] + "---|"]
    for f in figures:
        value = f"{f['value']:.4g}" if isinstance(f["value"], float) else str(f["value"])
        interval = " to ".join(f"{v:.3g}" for v in f["interval"]) if f["interval"] else "–"
        sign = "≤" if f["better"] == "lower" else "≥"
        target = "–" if f["target"] is None else f"{sign} {f['target']}"
        if isinstance(f["target"], str):
            target = f["target"]
        verdict = {True: "reached", False: "missed", None: ""}[reached(f)]
        lines.append(
            f"| {f['figure']} | {value} {f['unit']} | {interval} | {f['n']} "
            f"| {target} | {verdict} |" + (f" {f['peer'] or ''} |" if peers else "")
        )
    return "\n".join(lines)


def plot(name: str, figures: list[dict[str, Any]]) -> None:
    """Draw value over target for every numeric figure that has a target."""
    shown = [
        f
        for f in figures
        if isinstance(f["value"], (int, float))
        and isinstance(f["target"], (int, float))
        and f["target"]
    ]
    if not shown:
        return
    ratios = [f["value"] / f["target"] for f in shown]
    colours = ["#0a7d38" if reached(f) else "#b3261e" for f in shown]
    figure, axes = plt.subplots(figsize=(9, 0.4 * len(shown) + 1))
    axes.barh(range(len(shown)), ratios, color=colours)
    axes.axvline(1, color="black", linewidth=1)
    labels = [f"{f['figure']} ({'≤' if f['better'] == 'lower' else '≥'})" for f in shown]
    axes.set_yticks(range(len(shown)), labels)
    axes.invert_yaxis()
    axes.set_xlabel("value / target (left of the line is good for ≤, right for ≥)")
    figure.tight_layout()
    RESULTS.mkdir(parents=True, exist_ok=True)
    figure.savefig(RESULTS / f"{name}.png", dpi=100, metadata={"Software": None})
    plt.close(figure)
