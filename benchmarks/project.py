"""A copy of the working tree in a scratch folder: own git, own DVC, an empty cache."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import yaml

from benchmarks.rows import ROOT


def environment() -> dict[str, str]:
    """Return the environment in which `python` and `dvc` are this environment's own."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "DVC_NO_ANALYTICS": "1", "TWINLOOP_QUIET": "1"}


def run(command: list[str], cwd: Path) -> float:
    """Run a command and return its wall time [s]; its output is shown when it fails."""
    started = time.perf_counter()
    done = subprocess.run(
        command, cwd=cwd, env=environment(), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(
            f"`{' '.join(command)}` failed ({done.returncode}):\n{done.stdout[-3000:]}\n"
            f"{done.stderr[-3000:]}"
        )
    return time.perf_counter() - started


def copy(folder: Path, objects: list[str]) -> Path:
    """Copy tracked and new files to ``folder`` and keep only ``objects`` in the list.

    Lock, metrics and plots stay behind, so that nothing looks finished.
    """
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout.decode()
    for name in filter(None, listed.split("\0")):
        source, target = ROOT / name, folder / name
        made = name.startswith("datasets/") and ("/metrics/" in name or "/plots/" in name)
        if source.is_file() and name != "dvc.lock" and not made:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
    lists = {"objects": objects, "lab_objects": objects}
    (folder / "datasets" / "objects.yaml").write_text(yaml.safe_dump(lists))
    for command in (
        ["git", "init", "-q"],
        ["git", "add", "-A"],
        ["git", "-c", "user.name=b", "-c", "user.email=b@example.org", "commit", "-qm", "copy"],
    ):
        run(command, folder)
    return folder
