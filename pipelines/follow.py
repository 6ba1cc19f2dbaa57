"""Follow the output of ``dvc repro``: which stage runs, was restored, or failed, and why."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from pathlib import Path

from pipelines.advice import advise
from pipelines.events import Emit, Event
from pipelines.workspace import Workspace

TAIL = 12
"""Last lines of a failed stage that the summary shows."""

_MARKS = (
    ("running", re.compile(r"^Running stage '([^']+)'")),
    ("restored", re.compile(r"^Stage '([^']+)' is cached - skipping run")),
    ("unchanged", re.compile(r"^Stage '([^']+)' didn't change, skipping")),
    ("failed", re.compile(r"^ERROR: failed to reproduce '([^']+)'")),
)
_DONE = re.compile(r"^(Updating|Generating) lock file ")


@dataclass
class ObjectRun:
    """What became of one object."""

    name: str
    states: dict[str, str] = field(default_factory=dict)
    """State by stage, in the order in which they were reached."""
    seconds: dict[str, float] = field(default_factory=dict)
    error: str = ""
    """What went wrong and what to do; empty when all went well."""
    log: Path | None = None
    entries: dict[str, str] = field(default_factory=dict)
    workspace: Workspace | None = None


class Follower:
    """Turns the output of ``dvc repro`` into states and events."""

    def __init__(self, run: ObjectRun, emit: Emit) -> None:
        self.run = run
        self.emit = emit
        self.stage = ""
        self.begun = 0.0
        self.recent: list[str] = []

    def line(self, line: str) -> None:
        """Take in one line of output."""
        for state, pattern in _MARKS:
            if match := pattern.match(line):
                stage = match[1].split("@")[0]
                if state != "failed":
                    self.close("ran")
                    self.recent = []
                    self.open(stage, state)
                else:
                    self.recent.append(line)
                    if stage not in self.run.states:
                        self.open(stage, "running")
                return
        if self.stage and _DONE.match(line):
            self.close("ran")
        elif line.strip():
            self.recent = [*self.recent[-200:], line]

    def open(self, stage: str, state: str) -> None:
        """A stage has begun, or is settled without running."""
        self.run.states[stage] = state
        if state == "running":
            self.stage, self.begun = stage, time.monotonic()
        self.emit(Event(self.run.name, stage, state))

    def close(self, state: str, message: str = "") -> None:
        """The running stage, if any, has come to its end."""
        if not self.stage:
            return
        took = time.monotonic() - self.begun
        self.run.states[self.stage] = state
        self.run.seconds[self.stage] = took
        self.emit(Event(self.run.name, self.stage, state, round(took, 2), message))
        self.stage = ""

    def end(self, code: int, *, stopped: bool) -> None:
        """Settle the last stage from the exit code of DVC."""
        if code == 0:
            self.close("ran")
        elif stopped:
            self.run.error = "stopped"
            self.close("stopped")
        else:
            place = f"{self.stage}@{self.run.name}" if self.stage else self.run.name
            tail = "\n".join(self.recent[-TAIL:])
            self.run.error = advise(f"{place} failed (`dvc repro` exit code {code}).\n{tail}")
            self.close("failed", self.recent[-1] if self.recent else "")
