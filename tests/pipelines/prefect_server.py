"""A real Prefect server and worker on 127.0.0.1, for one file of tests."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.process import environment


@dataclass
class PrefectServer:
    """A running server with a home of its own."""

    url: str
    home: Path

    def environment(self, **extra: str) -> dict[str, str]:
        """Environment of a client: this server, no telemetry, nothing of the user's home."""
        fixed = {
            "PREFECT_API_URL": self.url,
            "PREFECT_HOME": str(self.home),
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_LOGGING_LEVEL": "INFO",
            "NO_COLOR": "1",
        }
        return environment({**fixed, **extra})

    def prefect(self, *args: str, cwd: Path, **extra: str) -> str:
        """Run a Prefect command and return what it printed."""
        done = subprocess.run(
            [sys.executable, "-m", "prefect", "--no-prompt", *args],
            cwd=cwd,
            env=self.environment(**extra),
            text=True,
            capture_output=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def read(self, path: str) -> Any:
        """What the server answers at ``path``: a Prefect command takes seconds to start."""
        with urllib.request.urlopen(f"{self.url}/{path}", timeout=60) as answer:
            return json.load(answer)


@contextmanager
def serve(home: Path) -> Iterator[PrefectServer]:
    """Start a server, wait until it is healthy, stop it afterwards."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = PrefectServer(f"http://127.0.0.1:{port}/api", home)
    command = ["server", "start", "--host", "127.0.0.1", "--port", str(port)]
    with running(command, home, server.environment()):
        deadline = time.monotonic() + 180
        while not healthy(server.url):
            assert time.monotonic() < deadline, (home / "server.log").read_text()[-3000:]
            time.sleep(0.3)
        yield server


@contextmanager
def running(args: list[str], home: Path, env: dict[str, str]) -> Iterator[None]:
    """Run ``prefect ARGS`` in the background; end it and its children afterwards."""
    with (home / f"{args[0]}.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "prefect", *args],
            cwd=home,
            env=env,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGKILL):
                try:
                    os.killpg(process.pid, number)
                    process.wait(15)
                except (ProcessLookupError, subprocess.TimeoutExpired):
                    continue


def healthy(url: str) -> bool:
    """Tell whether the server answers."""
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
