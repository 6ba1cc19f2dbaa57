"""What happens during a run, and three ways to show it: live table, JSON lines, nothing."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal, TextIO

State = Literal["running", "ran", "restored", "unchanged", "failed", "stopped"]

FINISHED: tuple[State, ...] = ("ran", "restored", "unchanged")
"""States after which a stage's output stands."""


@dataclass(frozen=True)
class Event:
    """One change of state of a stage (``stage`` "" for the object or run as a whole)."""

    object: str
    stage: str
    state: str
    seconds: float = 0.0
    message: str = ""


Emit = Callable[[Event], None]


def silent(_event: Event) -> None:
    """Show nothing."""


class JsonLines:
    """One JSON object a line, with a time in seconds since the epoch."""

    def __init__(self, stream: TextIO | None = None) -> None:
        """Write to ``stream``, standard error by default."""
        self._stream = stream or sys.stderr
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        """Write one event."""
        with self._lock:
            line = {"time": round(time.time(), 3), **asdict(event)}
            print(json.dumps(line, sort_keys=True), file=self._stream, flush=True)


class Lines:
    """One plain line per finished stage: for pipes and logs."""

    def __init__(self, stream: TextIO | None = None) -> None:
        """Write to ``stream``, standard error by default."""
        self._stream = stream or sys.stderr
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        """Write one event; stages that begin are not worth a line."""
        if event.state == "running" and event.stage:
            return
        name = f"{event.stage}@{event.object}" if event.stage else event.object
        took = f" {event.seconds:.1f} s" if event.seconds else ""
        with self._lock:
            text = f"{name}: {event.state}{took} {event.message}".rstrip()
            print(text.removeprefix(": "), file=self._stream, flush=True)


class LiveTable:
    """A table of objects and stages that changes in place; use it as a context manager."""

    MARKS = {  # noqa: RUF012, read only
        "running": "[yellow]●[/]",
        "ran": "[green]✔[/]",
        "restored": "[cyan]↺[/]",
        "unchanged": "[dim]·[/]",
        "failed": "[red]✘[/]",
        "stopped": "[red]◌[/]",
    }

    def __init__(self, stages: list[str]) -> None:
        """Show ``stages`` as columns; objects become rows as they come."""
        from rich.console import Console
        from rich.live import Live

        self._stages = stages
        self._rows: dict[str, dict[str, str]] = {}
        self._begun: dict[tuple[str, str], float] = {}
        self._notes: list[str] = []
        self._lock = threading.Lock()
        # `get_renderable` is called at each refresh, so that running seconds count up.
        self._live = Live(
            get_renderable=self._table, console=Console(stderr=True), refresh_per_second=4
        )

    def __enter__(self) -> LiveTable:
        """Begin to show."""
        self._live.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        """Leave the last state on the screen."""
        self._live.__exit__(*error)

    def __call__(self, event: Event) -> None:
        """Take in one event."""
        with self._lock:
            if not event.stage:
                if event.message:
                    self._notes.append(event.message)
                return
            row = self._rows.setdefault(event.object, {})
            key = (event.object, event.stage)
            if event.state == "running":
                self._begun[key] = time.monotonic()
            else:
                self._begun.pop(key, None)
            took = f" {event.seconds:.0f}s" if event.seconds >= 1 else ""
            row[event.stage] = self.MARKS.get(event.state, event.state) + took

    def _table(self) -> Any:
        from rich.table import Table

        with self._lock:
            table = Table(box=None, pad_edge=False, caption="\n".join(self._notes[-3:]) or None)
            for title in ("object", *self._stages):
                table.add_column(title)
            now = time.monotonic()
            for name, row in self._rows.items():
                cells = dict(row)
                for (item, stage), begun in self._begun.items():
                    if item == name:
                        cells[stage] = f"{self.MARKS['running']} {now - begun:.0f}s"
                table.add_row(name, *(cells.get(stage, "") for stage in self._stages))
            return table
