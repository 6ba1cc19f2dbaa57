"""YAML files of a capture that are forged, damaged or no files at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from twinloop.capture.board import load_board
from twinloop.capture.camera_yaml import load_camera, read_mapping
from twinloop.capture.scan_file import load_scan_file
from twinloop.errors import InputError

CAMERA = "width: 640\nheight: 480\nintrinsics: [600, 600, 320, 240]\n"


def bomb(merge: bool = False) -> str:
    """A billion values by aliases, as lists or as merged mappings."""
    lines = ["a0: &a0 {x: 1}" if merge else "a0: &a0 [x, x]"]
    for k in range(1, 30):
        names = ", ".join([f"*a{k - 1}"] * 8)
        lines.append(f"a{k}: &a{k} " + (f"{{<<: [{names}]}}" if merge else f"[{names}]"))
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (bomb(), "aliases"),
        (bomb(merge=True), "aliases"),
        ("a: &a [*a]\n", "stands within what it names"),
        ("[" * 20_000, "cannot be read as YAML"),
        ("a: 2026-13-01\n", "month must be in"),
        (f"a: {'9' * 5000}\n", "digits"),
        ("a: 1\nb: {c: 1, c: 2}\n", r"keys \['c'\] stand twice"),
        ("", "found NoneType"),
        ("- 1\n", "found list"),
        ("a: [1\n", "cannot be read as YAML"),
    ],
    ids=lambda text: text[:12],
)
def test_yaml_that_is_no_plain_mapping_is_refused(tmp_path: Path, text: str, words: str) -> None:
    """At once, and without filling the memory."""
    path = tmp_path / "a.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=words):
        read_mapping(path)


def test_plain_aliases_and_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    """Other tools write both."""
    path = tmp_path / "a.yaml"
    path.write_text("\ufeffa: &a [1, 2]\nb: *a\nc: {<<: {d: 1}, d: 2}\n", encoding="utf-8")
    assert read_mapping(path) == {"a": [1, 2], "b": [1, 2], "c": {"d": 2}}


@pytest.mark.timeout(10)
@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "loop", "large", "bytes"])
def test_what_is_no_text_file_is_refused_and_does_not_hang(tmp_path: Path, kind: str) -> None:
    """Reading a pipe would wait for ever, a device would fill the memory."""
    path = tmp_path / "camera.yaml"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path.name)
    elif kind == "large":
        with path.open("wb") as file:
            file.truncate(2**33)
    else:
        path.write_bytes(b"width: \xff\xfe\n")
    with pytest.raises(InputError, match=r"camera\.yaml: "):
        load_camera(path)


@pytest.mark.parametrize(
    ("old", "new"),
    [("640", "1" + "0" * 30), ("640", "-1"), ("[600", "[1e300"), ("600, 320", "600, .nan")],
)
def test_numbers_that_no_camera_has_are_refused(tmp_path: Path, old: str, new: str) -> None:
    """They would overflow much later, where nobody knows the file."""
    path = tmp_path / "camera.yaml"
    path.write_text(CAMERA.replace(old, new))
    with pytest.raises(InputError, match="fault"):
        load_camera(path)


@pytest.mark.parametrize(
    "text",
    [
        "prompts: {inside: [[100000000000000000000, 1, 1]]}",
        "scale: {distances: [{metres: 0.1, first: [[-1, 1, 1], [2, 1, 1]], second: [[1, 1, 1],"
        " [2, 1, 1]]}]}",
        "scale: {T_flange_camera: {position: [30, 0, 800]}}",
        "episode: 100000000000000000000",
        "mask_object: 100000000000000000000",
        "board_size_std: .inf",
        "extra: 1",
    ],
)
def test_numbers_that_no_scan_has_are_refused(tmp_path: Path, text: str) -> None:
    """Pictures that cannot be counted, positions in millimetres, unknown keys."""
    (tmp_path / "scan.yaml").write_text(text)
    with pytest.raises(InputError, match=r"scan\.yaml: [12] fault"):
        load_scan_file(tmp_path)


def test_a_broken_link_is_no_missing_scan_file(tmp_path: Path) -> None:
    """What it was to say would be left out in silence."""
    (tmp_path / "scan.yaml").symlink_to("gone.yaml")
    with pytest.raises(InputError, match="no such file"):
        load_scan_file(tmp_path)


def test_a_board_of_too_many_tags_is_refused_at_once(tmp_path: Path) -> None:
    """All pairs of tags are compared; the message does not list each fault."""
    path = tmp_path / "board.yaml"
    tag = "{id: 0, size: 0.02, centre: [0, 0]}"
    path.write_text("tags: [" + ", ".join([tag] * 6_000) + "]\n")
    with pytest.raises(InputError, match="at most 2500"):
        load_board(path)
    path.write_text("tags: [" + ", ".join(["x"] * 2000) + "]\n")
    with pytest.raises(InputError, match="2001 fault") as caught:
        load_board(path)
    assert len(str(caught.value).splitlines()) < 30
