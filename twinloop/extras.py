"""Packages that not every user needs: imported on use, with an error that says what to install."""

from __future__ import annotations

import importlib
import re
from functools import cache
from importlib.metadata import PackageNotFoundError, requires
from typing import Any

from twinloop.errors import MachineError

FIRST_PARTY = ("twinloop", "stages", "pipelines", "benchmarks", "tests")


def require(module: str, extra: str, purpose: str) -> Any:
    """Import an optional library.

    Args:
        module: Name to import, for example "pycolmap"; never a module of Twinloop itself, because
            the list of code that a stage depends on is read from its import statements.
        extra: The extra of Twinloop that installs it, for example "sfm".
        purpose: What needs it, for the message: "structure from motion".

    Raises:
        MachineError: It is not installed; the message names the command that installs it.
    """
    if module.split(".")[0] in FIRST_PARTY:
        raise ValueError(f"{module} is no optional library; import it by a statement")
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MachineError(
            f"{purpose} needs the package {module!r}, which cannot be imported ({error}). "
            f"Install it with `pip install 'twinloop[{extra}]'` (in a clone: "
            f"`pip install -e '.[{extra}]'`)."
        ) from error


def installed(module: str) -> bool:
    """Whether an optional library can be imported."""
    try:
        importlib.import_module(module)
    except ImportError:
        return False
    return True


@cache
def optional_packages() -> frozenset[str]:
    """Names of the packages that only extras install, as the installed metadata lists them."""
    try:
        declared = requires("twinloop") or []
    except PackageNotFoundError:
        return frozenset()
    found: dict[bool, set[str]] = {False: set(), True: set()}
    for requirement in declared:
        name = re.match(r"[A-Za-z0-9._-]+", requirement)
        if name:
            found["extra ==" in requirement.replace("extra==", "extra ==")].add(name[0].lower())
    return frozenset(found[True] - found[False])
