"""The number of workers, the pool that does the work, and torch's own threads."""

import threading
import time

import pytest
import torch

from twinloop.errors import ParamsError
from twinloop.threads import each, torch_on_one_thread, worker_count


def test_worker_count(monkeypatch):
    """A given number counts; nonsense is named; without one there is at least one worker."""
    monkeypatch.setenv("TWINLOOP_THREADS", "3")
    assert worker_count() == 3
    for text in ("0", "-1", "many"):
        monkeypatch.setenv("TWINLOOP_THREADS", text)
        with pytest.raises(ParamsError, match="TWINLOOP_THREADS"):
            worker_count()
    monkeypatch.delenv("TWINLOOP_THREADS")
    assert worker_count() >= 1


@pytest.mark.parametrize("threads", ["1", "2", "4"])
def test_each_calls_every_index_once(monkeypatch, threads):
    """Every index is worked on once, by at most the given number of threads."""
    monkeypatch.setenv("TWINLOOP_THREADS", threads)
    for count in (0, 1, 2, 3, 7):
        seen, names = [], set()

        def work(i, seen=seen, names=names):
            seen.append(i)
            names.add(threading.get_ident())
            time.sleep(0.001)

        each(work, count)
        assert sorted(seen) == list(range(count))
        assert len(names) <= int(threads)
        if threads == "1":
            assert names <= {threading.get_ident()}


def test_each_ends_its_work_before_it_raises(monkeypatch):
    """An exception in one share is raised when the other shares are over."""
    monkeypatch.setenv("TWINLOOP_THREADS", "2")
    done = []

    def work(i):
        if i == 0:
            raise ValueError("zero")
        time.sleep(0.02)
        done.append(i)

    with pytest.raises(ValueError, match="zero"):
        each(work, 2)
    assert done == [1]


def test_torch_on_one_thread_restores_the_count():
    """One thread inside; the former count after it, also after an error."""
    before = torch.get_num_threads()
    with torch_on_one_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before
    with pytest.raises(RuntimeError), torch_on_one_thread():
        torch.zeros(2) @ torch.zeros(3)
    assert torch.get_num_threads() == before
