"""Find the project around the current folder, and start what belongs to it."""

from __future__ import annotations

import contextlib
import difflib
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import yaml

from twinloop.errors import InputError

MARKER = "dvc.yaml"
OBJECTS_FILE = Path("datasets") / "objects.yaml"
SAFE_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def find_root(start: Path | None = None) -> Path:
    """The nearest folder, from ``start`` upwards, that holds ``dvc.yaml``.

    Raises:
        InputError: There is none.
    """
    start = (start or Path.cwd()).resolve()
    for folder in (start, *start.parents):
        if (folder / MARKER).is_file() and (folder / OBJECTS_FILE).is_file():
            return folder
    raise InputError(
        f"no Twinloop project here: neither {start} nor a folder above it holds {MARKER} and "
        f"{OBJECTS_FILE}. Go into a clone of the project (git clone ... && cd ...)."
    )


def read_mapping(path: Path) -> dict[str, Any]:
    """Read a YAML mapping; an empty file is an empty mapping.

    Raises:
        InputError: Missing, no YAML, or no mapping.
    """
    try:
        content = yaml.load(path.read_bytes(), Loader=SAFE_LOADER)  # noqa: S506, a safe loader
    except FileNotFoundError:
        raise InputError(f"{path} does not exist.") from None
    except (yaml.YAMLError, ValueError) as error:
        raise InputError(f"{path} is not valid YAML: {error}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise InputError(f"{path}: expected a mapping, got {type(content).__name__}.")
    return content


def object_names(root: Path) -> list[str]:
    """Names of the project's objects."""
    names = read_mapping(root / OBJECTS_FILE).get("objects") or []
    if not isinstance(names, list):
        raise InputError(f"{root / OBJECTS_FILE}: `objects` must list names, got {names!r:.80}.")
    return [str(name) for name in names]


def require_object(root: Path, name: str) -> None:
    """Raise InputError, with close names, unless the project has object ``name``."""
    names = object_names(root)
    if name not in names:
        raise InputError(unknown("object", name, names))


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """Sentence about a name that does not exist, with the closest ones that do."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    listed = f"Known: {', '.join(known) or 'none'}."
    hint = f"Did you mean {' or '.join(close)}?" if close else listed
    return f"unknown {kind} {name!r}. {hint}"


def complete_objects(incomplete: str) -> list[str]:
    """Object names for the shell's completion; never an error."""
    with contextlib.suppress(Exception):
        return [n for n in object_names(find_root()) if n.startswith(incomplete)]
    return []


def start_pipelines(root: Path, arguments: list[str]) -> int:
    """Run ``python -m pipelines ...`` in the project's root; returns its exit code.

    Ctrl-C reaches it from the terminal directly; it stops its stages and keeps what is finished, so
    this process waits for it.
    """
    if not (root / "pipelines" / "__main__.py").is_file():
        raise InputError(f"{root} has no folder `pipelines`; is it a whole clone?")
    environment = {**os.environ, "PYTHONPATH": str(root), "DVC_NO_ANALYTICS": "1"}
    with passing_interrupts():
        done = subprocess.run(
            [sys.executable, "-m", "pipelines", *arguments],
            cwd=root,
            env=environment,
            check=False,
        )
    return done.returncode if done.returncode >= 0 else 128 - done.returncode


@contextlib.contextmanager
def passing_interrupts() -> Iterator[None]:
    """Leave Ctrl-C to a child process for a while."""
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def own_version() -> str:
    """Installed version of Twinloop."""
    try:
        return version("twinloop")
    except PackageNotFoundError:
        return "unknown (not installed; run `pip install -e .`)"
