"""Progress bars for anything over two seconds, silent where nobody looks."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def track(
    items: Iterable[Item],
    description: str,
    total: int | None = None,
    *,
    done: int = 0,
    note: Callable[[], str] | None = None,
) -> Iterator[Item]:
    """Yield ``items`` and show a progress bar on stderr when it is a terminal.

    Args:
        items: What is iterated over.
        description: Short text before the bar, for example "train Gaussians".
        total: Number of items, when ``items`` has no length.
        done: How many of them are done already.
        note: Says how it goes, after the bar; asked once in a while. With it the bar also shows
            items per second.

    Set ``TWINLOOP_QUIET=1`` to silence it.
    """
    if os.environ.get("TWINLOOP_QUIET") == "1" or not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining
    from rich.progress import track as rich_track

    if note is None and not done:
        yield from rich_track(
            items,
            description=description,
            total=total,
            console=Console(stderr=True),
            transient=True,
        )
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(show_speed=True),
        TextColumn("{task.fields[rate]:.0f}/s {task.fields[note]}"),
        Remaining(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=total, completed=done, rate=0.0, note="")
        for i, item in enumerate(items):
            yield item
            bar.advance(task)
            if i % 20 == 0:
                rate = bar.tasks[0].speed or 0.0
                bar.update(task, rate=rate, note=note() if note else "")
