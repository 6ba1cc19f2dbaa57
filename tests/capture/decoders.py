"""Decoders that misbehave, run by the guard's child process."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path


def decode(path: Path, pixels: bool) -> None:
    """Do what the file's name says."""
    if path.stem == "hang":
        time.sleep(60)
    if path.stem == "spin":
        while True:
            pass
    if path.stem == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if path.stem == "greedy":
        hoard = [bytearray(2**28) for _ in range(64)]
        assert hoard
    if path.stem == "broken":
        raise ZeroDivisionError("deep inside")
    if path.stem == "quit":
        os._exit(7)
    (path.parent / "seen.txt").open("a").write(f"{path.name} {pixels}\n")
