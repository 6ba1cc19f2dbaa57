"""The number of workers: from the environment, checked, else the machine's."""

import pytest

from twinloop.errors import ParamsError
from twinloop.threads import worker_count


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
