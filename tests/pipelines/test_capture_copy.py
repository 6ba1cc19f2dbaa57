"""Captures that are copied into the project: what is no plain file is refused, nothing is left."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from pipelines import capture_copy
from pipelines.capture_copy import check_copy, copy_capture
from pipelines.objects import NewObject, add, check_captures, replace_captures
from tests.miniature import Miniature
from tests.pipelines.captures import write_capture
from twinloop.errors import InputError, MachineError


def _name(name: bytes):
    return lambda folder: Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).touch()


FAULTS = {
    "pipe": (lambda f: os.mkfifo(f / "x"), "pipe, socket or device"),
    "device": (lambda f: (f / "x").symlink_to("/dev/zero"), "leads out"),
    "out": (lambda f: (f / "x").symlink_to("/etc/passwd"), "leads out"),
    "folder out": (lambda f: (f / "x").symlink_to("/etc"), "leads out"),
    "circle": (lambda f: (f / "a" / "x").symlink_to(".."), "lies in"),
    "itself": (lambda f: (f / "x").symlink_to("x"), "loop"),
    "nothing": (lambda f: (f / "x").symlink_to("gone"), "into nothing"),
    "bytes": (_name(b"x\xff"), "no UTF-8"),
    "newline": (_name(b"x\ny"), "a path inside"),
    "dvc": (_name(b".dvcignore"), "DVC takes no file"),
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", sorted(FAULTS))
def test_what_is_no_plain_file_is_refused(tmp_path: Path, kind: str) -> None:
    """Before anything is copied; the checks of `twinloop add` say the same."""
    source = tmp_path / "scan"
    (source / "a").mkdir(parents=True)
    (source / "video.mp4").write_bytes(b"1")
    make, words = FAULTS[kind]
    make(source)
    with pytest.raises(InputError, match=words):
        copy_capture(source, tmp_path / "target")
    assert not (tmp_path / "target").exists()
    assert len(check_copy(source)) == 1


def test_files_and_links_within_are_copied(tmp_path: Path) -> None:
    """A link becomes what it names; times stay."""
    source = tmp_path / "scan"
    (source / "a" / "b").mkdir(parents=True)
    (source / "a" / "b" / "c").write_bytes(b"12")
    os.utime(source / "a" / "b" / "c", (5, 5))
    (source / "d").symlink_to("a/b")
    copy_capture(source, tmp_path / "target")
    for name in ("a/b/c", "d/c"):
        copied = tmp_path / "target" / name
        assert copied.read_bytes() == b"12"
        assert not copied.is_symlink()
        assert copied.stat().st_mtime == 5


def test_a_disk_that_is_full_or_will_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked before, and stated when it happens all the same."""
    source = tmp_path / "scan"
    source.mkdir()
    (source / "video.mp4").write_bytes(bytes(100_000))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))
    try:
        with pytest.raises(MachineError, match=r"video\.mp4: cannot be written \(no space left"):
            copy_capture(source, tmp_path / "target")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    monkeypatch.setattr(capture_copy, "RESERVE", 2**62)
    with pytest.raises(MachineError, match="free some space"):
        copy_capture(source, tmp_path / "other")


def test_adding_refuses_and_leaves_the_project_as_it_was(mini: Miniature, tmp_path: Path) -> None:
    """With names of pushes that cannot be folders, and pipes among the files."""
    parts = write_capture(tmp_path / "capture", "fox ")
    before = mini.text("datasets/objects.yaml")
    for name in ("a" * 300, "..", "push_" + "1" * 80, "push_1/..", "push_\x01"):
        said = name.replace("\x01", "\\x01")
        (parts["push"] / "pushes.yaml").write_text(f'pushes: [{{name: "{said}"}}]\n')
        with pytest.raises(InputError, match="has no valid `name`"):
            check_captures(parts)
    (parts["push"] / "pushes.yaml").write_text("pushes: [{name: push_000}]\n")
    os.mkfifo(parts["demo"] / "x")
    with pytest.raises(InputError, match="pipe, socket or device"):
        add(mini.root, NewObject("fox", "CC-BY-4.0", parts))
    assert mini.text("datasets/objects.yaml") == before
    assert not (mini.root / "datasets" / "fox").exists()


def test_a_capture_that_cannot_be_replaced_stays(mini: Miniature, tmp_path: Path) -> None:
    """The old files go only when the new ones are there."""
    parts = write_capture(tmp_path / "capture", "fox ")
    add(mini.root, NewObject("fox", "CC-BY-4.0", parts))
    new = write_capture(tmp_path / "new", "other ")["scan"]
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    (new / "large.bin").write_bytes(bytes(2**20))
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**19, before[1]))
    try:
        with pytest.raises(MachineError, match="no space left"):
            replace_captures(mini.root, "fox", {"scan": new})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    raw = mini.root / "datasets" / "fox" / "raw"
    assert (raw / "scan" / "words.txt").read_text() == "fox "
    assert not [p for p in raw.iterdir() if p.name.endswith(".new")]
