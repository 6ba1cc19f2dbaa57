"""``dvc.lock`` as text blocks, and the lock that keeps two runs of one project apart.

``dvc.lock`` is cut and joined as text, entry by entry: DVC's own bytes survive (a YAML round trip
would turn the number ``1e-05`` into a string) and a lock of 100 objects costs milliseconds.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from pipelines.graph import SAFE_LOADER
from twinloop.beside import clear_killed, prefix
from twinloop.errors import ArtifactError, MachineError

LOCK_FILE = "dvc.lock"
HEADER = "schema: '2.0'\nstages:\n"
_ENTRY = re.compile(r"^  (?=\S)(.+):\s*$")
_HASH = re.compile(r"^[0-9a-f]{32}(\.dir)?$")


def read_entries(path: Path) -> dict[str, str]:
    """Entries of a ``dvc.lock`` by stage name, each as its text; {} when the file is missing.

    Raises:
        ArtifactError: It is no text, holds merge conflict markers or is not of schema 2.0.
    """
    if not path.is_file():
        return {}
    try:
        return parse_entries(path.read_text(encoding="utf-8"), path)
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise ArtifactError(
            f"{path} is damaged ({error}); `git checkout {path.name}` restores the last committed "
            "one, and results come back from the cache."
        ) from error


def parse_entries(text: str, path: Path) -> dict[str, str]:
    """Entries in the text of a ``dvc.lock``; ``path`` is for messages."""
    if re.search(r"^(<{7}|>{7}) ", text, re.MULTILINE):
        raise ArtifactError(
            f"{path} holds merge conflict markers. Take either side, for example "
            "`git checkout --ours dvc.lock`, and run again: what does not fit is built anew."
        )
    if text.strip() and "schema: '2.0'" not in text:
        raise ArtifactError(
            f"{path} is not of schema 2.0: if it is damaged, `git checkout {path.name}` restores "
            "the last committed one; if it is old, run `dvc repro` once to rewrite it."
        )
    entries: dict[str, list[str]] = {}
    name = ""
    inside = False
    for line in text.splitlines(keepends=True):
        if not line.startswith((" ", "\n")):
            inside = line.startswith("stages:")
            name = ""
        elif inside and (match := _ENTRY.match(line)):
            name = str(yaml.load(match[1], Loader=SAFE_LOADER))  # noqa: S506, a safe loader
            entries[name] = [line]
        elif name:
            entries[name].append(line)
    return {key: "".join(lines) for key, lines in entries.items()}


def write_entries(path: Path, entries: Mapping[str, str]) -> None:
    """Replace a ``dvc.lock`` atomically, entries sorted by name; without any, it goes.

    DVC refuses an empty lock, and does not need one.
    """
    if not entries:
        path.unlink(missing_ok=True)
        return
    body = "".join(entries[name].rstrip("\n") + "\n" for name in sorted(entries))
    write_text(path, HEADER + body)


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all: beside, fsynced, renamed; its mode is kept."""
    clear_killed(path.parent)
    handle, beside = tempfile.mkstemp(prefix=prefix(path.name), dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
        Path(beside).chmod(mode)
        Path(beside).replace(path)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise


def complete(entry: str) -> bool:
    """Tell whether an entry is whole: a killed DVC can leave the last one cut short."""
    try:
        content = yaml.load(entry, Loader=SAFE_LOADER)  # noqa: S506, a safe loader
    except yaml.YAMLError:
        return False
    body = next(iter(content.values())) if isinstance(content, dict) and content else None
    if not isinstance(body, dict) or not isinstance(body.get("cmd"), str):
        return False
    outs = body.get("outs") or []
    files = [*(body.get("deps") or []), *outs]
    if not outs or not all(isinstance(f, dict) for f in files):
        return False
    # DVC writes the size after the hash: an output with a size has its whole hash.
    hashes = all(_HASH.match(str(f.get("md5", ""))) for f in files)
    return hashes and all("size" in out for out in outs)


def outputs(entry: str) -> dict[str, str]:
    """Paths and hashes of an entry's outputs."""
    body = next(iter(yaml.load(entry, Loader=SAFE_LOADER).values()))  # noqa: S506, a safe loader
    return {str(out["path"]): str(out["md5"]) for out in body.get("outs") or []}


def held(root: Path) -> bool:
    """Tell whether a run, or another command that changes the project, is at work in it."""
    path = root / ".dvc" / "tmp" / "twinloop.lock"
    if not path.is_file():
        return False
    with path.open(encoding="utf-8") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@contextlib.contextmanager
def project_lock(root: Path, what: str, *, wait: bool = False) -> Iterator[None]:
    """Hold the project for one run; the system frees it when the process dies, however it dies.

    Args:
        root: Project root.
        what: What is being done, told to whoever finds the project locked.
        wait: Wait for the other run instead of failing.

    Raises:
        MachineError: Another run holds it.
    """
    folder = root / ".dvc" / "tmp"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "twinloop.lock").open("a+", encoding="utf-8") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError as error:
            stream.seek(0)
            owner = stream.read().strip() or "another process"
            raise MachineError(
                f"{root} is in use: {owner}. Wait for it, pass --wait, or stop it."
            ) from error
        stream.seek(0)
        stream.truncate()
        since = time.strftime("%H:%M:%S")
        stream.write(f"`{what}` of process {os.getpid()}, since {since}")
        stream.flush()
        yield
