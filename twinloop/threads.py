"""How many threads to use: a matter of the machine, never of the result."""

from __future__ import annotations

import os

from twinloop.errors import ParamsError


def worker_count() -> int:
    """Return the number of worker threads: ``TWINLOOP_THREADS``, else one per core.

    Work is split into a fixed number of slices and summed in a fixed order, so that the count
    changes the time and not a byte; that is why it is no parameter of a stage.

    Raises:
        ParamsError: The variable is no positive whole number.
    """
    text = os.environ.get("TWINLOOP_THREADS", "")
    if not text:
        return max(1, os.cpu_count() or 1)
    if not text.isdigit() or int(text) < 1:
        raise ParamsError(f"TWINLOOP_THREADS is {text!r}, expected a whole number from 1 on.")
    return int(text)
