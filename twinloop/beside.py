"""Names of what is made beside the file or folder that it will replace, and what killed runs left.

A name says which process of which machine makes the thing: what a process that is gone did not
bring to its end is removed by the next write into the same folder. One that runs, or that another
machine runs on a shared disk, keeps what it has.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
from pathlib import Path


def fresh(path: Path) -> Path:
    """Name of a file that this process makes to take the place of ``path``; same ending."""
    return path.with_name(f"{prefix(path.name)}{path.suffix.removeprefix('.') or 'new'}")


def prefix(name: str) -> str:
    """Beginning of the name of what this process makes to take the place of ``name``."""
    return f".{name}.{_machine()}-{os.getpid()}."


def clear_killed(folder: Path) -> None:
    """Remove from ``folder`` what processes of this machine that are gone left unfinished."""
    pattern = re.compile(rf"\..+\.{re.escape(_machine())}-([0-9]+)\.[^.]+")
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(folder)):
            found = pattern.fullmatch(entry.name)
            if found is None or _runs(int(found[1])):
                continue
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                with contextlib.suppress(OSError):
                    Path(entry.path).unlink()


def _machine() -> str:
    return re.sub(r"[^A-Za-z0-9-]", "", platform.node())[:48]


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # it does, as another user
        return True
    return True
