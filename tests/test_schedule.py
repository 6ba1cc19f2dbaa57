"""The suite's spread over processes keeps up with the tests."""

from __future__ import annotations

import re
from pathlib import Path

from tests import schedule

ROOT = Path(__file__).parents[1]


def test_named_files_exist() -> None:
    """A file that was renamed or deleted leaves the lists too."""
    files = {*schedule.TOGETHER, *schedule.APART}
    files |= {name for name in schedule.FIRST if name.endswith(".py")}
    assert not {name for name in files if not (ROOT / name).is_file()}


def test_the_chain_is_built_in_one_process() -> None:
    """Every file whose tests take the fixture `built` is in the chain's unit."""
    taking = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tests").rglob("test_*.py")
        if re.search(r"\bbuilt: (chain\.)?Built\b", path.read_text())
    }
    assert taking == {name for name, unit in schedule.TOGETHER.items() if unit == "chain"}


def test_files_that_are_split_share_nothing_of_a_module() -> None:
    """A fixture of a module would be made again in each process, for each test."""
    for name in schedule.APART:
        assert 'scope="module"' not in (ROOT / name).read_text(), name


def test_units_and_their_order() -> None:
    """A file is a unit; the chain is one of two files; a long file's tests stand alone."""
    assert schedule.unit("tests/a/test_b.py::test_c[x::y]") == "tests/a/test_b.py"
    chain = schedule.unit("tests/pipelines/test_chain.py::test_a")
    assert chain == schedule.unit("tests/cli/test_results.py::test_b")
    alone = "tests/pipelines/test_executor.py::test_c"
    assert schedule.unit(alone) == alone
    assert schedule.rank("tests/cli/test_results.py::test_b") < schedule.rank(alone)
