"""How many threads to use, and how: a matter of the machine, never of the result."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache

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


@lru_cache(maxsize=1)
def _pool(workers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers, thread_name_prefix="twinloop")


if hasattr(os, "register_at_fork"):  # a forked child has the pool's object but not its threads
    os.register_at_fork(after_in_child=_pool.cache_clear)


def each(work: Callable[[int], None], count: int) -> None:
    """Call ``work(0)`` to ``work(count - 1)``, side by side on `worker_count` threads.

    The calling thread does its share, so one worker means no other thread at all. It pays for work
    that releases the interpreter lock, as a launch of a Warp kernel on the CPU does (one launch is
    one sequential loop). ``work`` must not call `each` itself. All calls are over on return; the
    first exception, by index, is raised then.
    """
    workers = min(worker_count(), count)
    if workers <= 1:
        for i in range(count):
            work(i)
        return

    def share(first: int) -> None:
        for i in range(first, count, workers):
            work(i)

    others = [_pool(worker_count() - 1).submit(share, w) for w in range(1, workers)]
    errors: list[BaseException] = []
    try:
        share(0)
    except BaseException as error:
        errors.append(error)
    errors += [e for e in (f.exception() for f in others) if e is not None]
    if errors:
        raise errors[0]


@contextmanager
def torch_on_one_thread() -> Iterator[None]:
    """Keep torch's operators on the calling thread inside the block; restore the count after it.

    Torch's OpenMP threads wait by spinning, at each operator's end, on the cores that `each` uses:
    small operators between native kernels then take longer on two threads than on one. One thread
    also fixes the order of torch's sums.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
