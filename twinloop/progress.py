"""Progress bars for anything over two seconds, silent where nobody looks."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def track(items: Iterable[Item], description: str, total: int | None = None) -> Iterator[Item]:
    """Yield ``items`` and show a progress bar on stderr when it is a terminal.

    Args:
        items: What is iterated over.
        description: Short text before the bar, for example "train Gaussians".
        total: Number of items, when ``items`` has no length.

    Set ``TWINLOOP_QUIET=1`` to silence it.
    """
    if os.environ.get("TWINLOOP_QUIET") == "1" or not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import track as rich_track

    yield from rich_track(
        items, description=description, total=total, console=Console(stderr=True), transient=True
    )
