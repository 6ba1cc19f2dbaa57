"""Start git and DVC as processes that can be stopped as a whole, also after a crash."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from twinloop.errors import MachineError, TwinloopError

WORKSPACE_VARIABLE = "TWINLOOP_WORKSPACE"
"""Environment variable that marks every process of one object's run."""

GRACE = 5.0
"""Seconds between asking a process to stop and killing it."""


INTERRUPTED = (-signal.SIGINT, -signal.SIGTERM, 128 + signal.SIGINT, 252)
"""Exit codes of git and DVC (252) after Ctrl-C, which a terminal sends to them too."""


class CommandError(TwinloopError):
    """A git or DVC command failed; ``output`` holds what it printed."""

    def __init__(self, args: Sequence[str], cwd: Path, code: int, output: str) -> None:
        """Build the message from the command, its place and the end of its output."""
        self.code = code
        self.output = output
        tail = "\n".join(output.strip().splitlines()[-12:])
        self.interrupted = code in INTERRUPTED
        super().__init__(f"`{' '.join(args)}` failed in {cwd} with exit code {code}:\n{tail}")


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Environment for git and DVC: no telemetry, this interpreter first on PATH.

    Variables that a git hook sets (``GIT_DIR``, ``GIT_INDEX_FILE``) would redirect git: dropped.
    """
    kept = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    folder = str(Path(sys.executable).parent)
    path = f"{folder}{os.pathsep}{kept.get('PATH', '')}"
    fixed = {"PATH": path, "DVC_NO_ANALYTICS": "1", "DO_NOT_TRACK": "1", "PYTHONUNBUFFERED": "1"}
    return {**kept, **fixed, **(extra or {})}


def call(args: Sequence[str | Path], cwd: Path, extra: Mapping[str, str] | None = None) -> str:
    """Run a command to its end and return its standard output.

    Raises:
        CommandError: Its exit code is not 0.
        MachineError: The program is not installed.
        FileNotFoundError: There is no folder ``cwd``.
    """
    words = [str(a) for a in args]
    try:
        done = subprocess.run(
            words,
            cwd=cwd,
            env=environment(extra),
            text=True,
            capture_output=True,
            check=False,
            errors="replace",
        )
    except FileNotFoundError as error:
        if not cwd.is_dir():
            raise
        raise MachineError(f"cannot start `{words[0]}` in {cwd}: {error}; install it.") from error
    if done.returncode:
        raise CommandError(words, cwd, done.returncode, done.stdout + done.stderr)
    return done.stdout


def git(cwd: Path, *args: str | Path, extra: Mapping[str, str] | None = None) -> str:
    """Run git and return its output without the last newline."""
    return call(["git", *args], cwd, extra).rstrip("\n")


def dvc(cwd: Path, *args: str | Path, extra: Mapping[str, str] | None = None) -> str:
    """Run DVC of this interpreter; it waits for another DVC command instead of giving up."""
    return call([sys.executable, "-m", "dvc", *_patient(args)], cwd, extra)


def _patient(args: Sequence[str | Path]) -> list[str | Path]:
    # Default is to give up after 3 s, and then a stage's finished result is thrown away.
    return ["--wait-for-lock", *args] if args and args[0] in WAITING else list(args)


WAITING = {"repro", "checkout", "add", "status", "pull", "push", "fetch", "commit", "remove"}


class Supervisor:
    """The processes of one run: stopped together, none outlives the run."""

    def __init__(self) -> None:
        """Begin with no processes."""
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self.stopping = False

    def start(
        self, args: Sequence[str | Path], cwd: Path, extra: Mapping[str, str]
    ) -> subprocess.Popen[str]:
        """Start a process in a session of its own, so that Ctrl-C reaches it only through us."""
        with self._lock:
            if self.stopping:
                raise KeyboardInterrupt
            process = subprocess.Popen(
                [str(a) for a in args],
                cwd=cwd,
                env=environment(extra),
                text=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                errors="replace",
            )
            self._running.add(process)
        return process

    def finish(self, process: subprocess.Popen[str]) -> int:
        """Wait for ``process`` and forget it; returns its exit code."""
        code = process.wait()
        with self._lock:
            self._running.discard(process)
        return code

    def stops_soon(self, seconds: float = 1.0) -> bool:
        """Tell whether the run is being stopped, or is within moments.

        Ctrl-C reaches a command that a thread waits for before it reaches the main thread.
        """
        deadline = time.monotonic() + seconds
        while not self.stopping and time.monotonic() < deadline:
            time.sleep(0.02)
        return self.stopping

    def stop(self) -> None:
        """Ask every process group to stop, then kill what is left."""
        with self._lock:
            self.stopping = True
            running = list(self._running)
        for process in running:
            _signal_group(process.pid, signal.SIGTERM)
        deadline = time.monotonic() + GRACE
        while time.monotonic() < deadline and any(p.poll() is None for p in running):
            time.sleep(0.05)
        for process in running:
            _signal_group(process.pid, signal.SIGKILL)


def _signal_group(leader: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def kill_orphans(workspace: Path) -> int:
    """Kill processes that a dead run left at work in ``workspace``; returns how many.

    They are known by the variable that the run put into their environment, never by name.
    """
    found: list[Any] = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(WORKSPACE_VARIABLE) == str(workspace):
                found.append(process)
    for process in found:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(found, timeout=GRACE)
    return len(found)
