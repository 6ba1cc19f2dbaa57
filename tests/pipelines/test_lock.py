"""``dvc.lock`` as text, and atomic writing."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.lock import complete, outputs, parse_entries, read_entries, write_entries, write_text
from twinloop.errors import ArtifactError

ENTRY = """  {name}:
    cmd: python -m stages.a ant
    deps:
    - path: datasets/ant/raw/scan
      hash: md5
      md5: 15371b392a443b478d22e51888ddf225.dir
      size: 4
    params:
      params.yaml:
        a:
          rate: 1e-05
          text: |-
            two

            lines
    outs:
    - path: datasets/ant/a.zarr
      hash: md5
      md5: 25371b392a443b478d22e51888ddf225.dir
      size: 4
      nfiles: 1
"""

names = st.builds(
    "{}@{}".format, st.sampled_from("abcdef"), st.from_regex(r"[a-z][a-z0-9_]{0,9}", fullmatch=True)
)


@given(st.sets(names, max_size=6))
def test_cut_and_joined_text_is_the_same(keys: set[str]) -> None:
    """Reading entries and writing them sorted gives back a sorted lock, byte by byte."""
    text = "schema: '2.0'\nstages:\n" + "".join(ENTRY.format(name=k) for k in sorted(keys))
    entries = parse_entries(text, Path("dvc.lock"))
    assert set(entries) == keys
    assert "schema: '2.0'\nstages:\n" + "".join(entries[k] for k in sorted(entries)) == text


def test_writing_is_sorted_and_empty_locks_are_empty(tmp_path: Path) -> None:
    """Entries come in order of their names; no entries, no text."""
    path = tmp_path / "dvc.lock"
    write_entries(path, {"b@x": ENTRY.format(name="b@x"), "a@x": ENTRY.format(name="a@x")})
    assert list(read_entries(path)) == ["a@x", "b@x"]
    write_entries(path, {})
    assert read_entries(path) == {}


@given(st.integers(0, len(ENTRY)))
def test_a_cut_entry_is_never_taken_for_one_with_other_hashes(length: int) -> None:
    """Wherever a killed DVC stopped writing: rejected, or all hashes are those of the whole."""
    whole = ENTRY.format(name="a@ant")
    cut = whole[:length]
    if complete(cut):
        assert outputs(cut) == outputs(whole)


def test_whole_entries_are_complete() -> None:
    """The entry of the examples is complete, and names its output."""
    entry = ENTRY.format(name="a@ant")
    assert complete(entry)
    assert outputs(entry) == {"datasets/ant/a.zarr": "25371b392a443b478d22e51888ddf225.dir"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("schema: '2.0'\n<<<<<<< HEAD\nstages:\n", "git checkout --ours dvc.lock"),
        ("a:\n  cmd: x\n", "not of schema 2.0"),
    ],
)
def test_unusable_locks_are_explained(text: str, message: str) -> None:
    """Conflict markers and old formats are refused with the way out."""
    with pytest.raises(ArtifactError, match=message):
        parse_entries(text, Path("dvc.lock"))


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error before the rename: old content, no leftovers."""
    path = tmp_path / "dvc.lock"
    path.write_text("old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="No space"):
        write_text(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
