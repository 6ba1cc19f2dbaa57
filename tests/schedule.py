"""Which tests share a process when the suite runs in several (``make test``).

One file is one unit of work, so that fixtures of a module are made once. Files that share a costly
fixture of the session are one unit together; files of long tests that share nothing are split into
single tests. The largest units start first, so that no process is left alone with one at the end.
"""

from __future__ import annotations

TOGETHER = {
    "tests/pipelines/test_chain.py": "chain",
    "tests/cli/test_results.py": "chain",
}
"""Files of one unit: they read the two tiny objects that the real stages built (``built``)."""

APART = frozenset(
    {
        "tests/capture/formats/test_colmap.py",
        "tests/pipelines/test_executor.py",
        "tests/pipelines/test_nightly.py",
        "tests/pipelines/test_objects.py",
        "tests/cli/test_project.py",
        "tests/lab/test_pushes.py",
        "tests/lab/test_scan.py",
    }
)
"""Files whose tests are long and share no fixture: each test is a unit."""

FIRST = (
    "chain",
    "tests/pipelines/test_flows.py",
)
"""Units that start first."""


def unit(nodeid: str) -> str:
    """Return the unit of work that the test with this id belongs to."""
    path = nodeid.split("::", 1)[0]
    if path in TOGETHER:
        return TOGETHER[path]
    return nodeid if path in APART else path


def rank(nodeid: str) -> int:
    """Return when the test's unit starts: small numbers first, equal ones in order of the files."""
    name = unit(nodeid)
    if name in FIRST:
        return FIRST.index(name)
    return len(FIRST)
