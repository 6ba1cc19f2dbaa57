"""Packages that not every user needs: imported on use, with an error that says what to install."""

from __future__ import annotations

import importlib
from typing import Any

from twinloop.errors import MachineError


def require(module: str, extra: str, purpose: str) -> Any:
    """Import an optional module.

    Args:
        module: Name to import, for example "pycolmap".
        extra: The extra of Twinloop that installs it, for example "sfm".
        purpose: What needs it, for the message: "photos in HEIC".

    Raises:
        MachineError: It is not installed; the message names the command that installs it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MachineError(
            f"{purpose} needs the package {module!r}, which cannot be imported ({error}). "
            f"Install it with `pip install 'twinloop[{extra}]'` (in a clone: "
            f"`pip install -e '.[{extra}]'`)."
        ) from error
