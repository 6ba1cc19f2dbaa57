"""Names stay inside, archives are bounded, orders are natural."""

from __future__ import annotations

import io
import os
import resource
import stat
import zipfile
from pathlib import Path

import pytest

from twinloop.capture import files
from twinloop.capture.files import inside, list_files, read_json, unpack
from twinloop.errors import InputError, MachineError


@pytest.mark.parametrize(
    "name", ["../x", "/etc/passwd", "a/../../x", "C:\\x", "a\\..\\..\\x", "", "a\nb"]
)
def test_names_that_lead_out_are_refused(tmp_path: Path, name: str) -> None:
    """Absolute names, parents, drives and control characters are refused, with the name."""
    with pytest.raises(InputError, match="inside the capture's folder"):
        inside(tmp_path, name)


def test_links_that_lead_out_or_round_are_refused(tmp_path: Path) -> None:
    """A link to elsewhere and a loop of links are refused; a link inside is not."""
    capture = tmp_path / "capture"
    capture.mkdir()
    (tmp_path / "secret.png").write_bytes(b"x")
    (capture / "real.png").write_bytes(b"x")
    (capture / "out.png").symlink_to(tmp_path / "secret.png")
    (capture / "same.png").symlink_to(capture / "real.png")
    (capture / "a").symlink_to(capture / "b")
    (capture / "b").symlink_to(capture / "a")
    assert inside(capture, "same.png").read_bytes() == b"x"
    with pytest.raises(InputError, match="leads out"):
        inside(capture, "out.png")
    with pytest.raises(InputError, match="leads out"):
        list_files(capture, {".png"})
    with pytest.raises(InputError):
        inside(capture, "a/x").read_bytes() if inside(capture, "a/x").is_file() else _lost()


def _lost() -> None:
    raise InputError("a loop of links leads to no file")


def test_natural_order_and_foreign_names(tmp_path: Path) -> None:
    """img2 stands before img10; a name that is no UTF-8 is refused and shown."""
    for name in ("img10.jpg", "img2.jpg", "Img1.JPG", ".hidden.jpg", "note.txt"):
        (tmp_path / name).write_bytes(b"x")
    assert [p.name for p in list_files(tmp_path, {".jpg"})] == ["Img1.JPG", "img2.jpg", "img10.jpg"]
    raw = os.fsencode(tmp_path) + b"/caf\xe9.jpg"
    with open(raw, "wb") as stream:  # noqa: PTH123
        stream.write(b"x")
    with pytest.raises(InputError, match="no UTF-8"):
        list_files(tmp_path, {".jpg"})


def test_archives_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Members that leave, links, bombs, and files that are no archive are refused."""
    out = tmp_path / "out"
    out.mkdir()
    bad = tmp_path / "bad.zip"
    with zipfile.ZipFile(bad, "w") as archive:
        archive.writestr("../evil.txt", "x")
    with pytest.raises(InputError, match="inside the capture's folder"):
        unpack(bad, out)
    assert not (tmp_path / "evil.txt").exists()
    with zipfile.ZipFile(bad, "w") as archive:
        link = zipfile.ZipInfo("link")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    with pytest.raises(InputError, match="is a link"):
        unpack(bad, out)
    with zipfile.ZipFile(bad, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(5_000_000))
    monkeypatch.setattr(files, "LARGEST_UNPACKED", 1_000_000)
    with pytest.raises(InputError, match="unpacks to more than"):
        unpack(bad, out)
    bad.write_bytes(bad.read_bytes()[:-30])
    with pytest.raises(InputError, match="cannot be unpacked"):
        unpack(bad, out)


def test_json_says_what_is_wrong(tmp_path: Path) -> None:
    """Missing, empty, cut and binary files each have their message."""
    path = tmp_path / "a.json"
    with pytest.raises(InputError, match="no such file"):
        read_json(path)
    path.write_bytes(b"")
    with pytest.raises(InputError, match="0 bytes"):
        read_json(path)
    path.write_text('{"a": [1, 2')
    with pytest.raises(InputError, match="line 1 column"):
        read_json(path)
    path.write_bytes(b"\xff\xfe{}")
    with pytest.raises(InputError, match="UTF-8"):
        read_json(path)


@pytest.mark.parametrize("kind", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_damaged_members_are_an_error_of_the_archive(tmp_path: Path, kind: int) -> None:
    """Each packing has errors of its own; bits are turned all over the file."""
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", kind) as packed:
        packed.writestr("a/metadata", bytes(range(256)) * 8)
        packed.writestr("b.txt", "b" * 100)
    data = whole.getvalue()
    faults = []
    for at in range(0, len(data), 3):
        path = tmp_path / "a.zip"
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :])
        into = tmp_path / f"{at}"
        into.mkdir()
        try:
            unpack(path, into)
        except InputError as error:
            faults.append(str(error))
    assert len(faults) > 20
    assert all(str(tmp_path) in fault for fault in faults)


@pytest.mark.parametrize("names", [("a", "a/b"), ("a/b", "a"), ("x" * 300,), ("a//b", "a/\x00b")])
def test_members_that_cannot_lie_side_by_side_are_refused(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    """A file where a folder has to be, a name that no file can have."""
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as packed:
        for name in names:
            info = zipfile.ZipInfo("x")
            info.filename = name
            packed.writestr(info, b"1")
    (tmp_path / "into").mkdir()
    if names[0] == "a//b":
        unpack(tmp_path / "a.zip", tmp_path / "into")
        return
    with pytest.raises(InputError, match=r"a\.zip"):
        unpack(tmp_path / "a.zip", tmp_path / "into")


def test_a_full_disk_is_the_machines_fault(tmp_path: Path) -> None:
    """Stated with the archive and the folder, and how to use another one."""
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("a", bytes(4 * 2**20))
    (tmp_path / "into").mkdir()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, before[1]))
    try:
        with pytest.raises(MachineError, match=r"a\.zip: no space left .* TMPDIR"):
            unpack(tmp_path / "a.zip", tmp_path / "into")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_names_with_other_digits_are_sorted(tmp_path: Path) -> None:
    """A superscript is a digit by Unicode, but no number."""
    for name in ("²1.jpg", "²10.jpg", "²2.jpg", "٣.jpg"):
        (tmp_path / name).touch()
    names = [p.name for p in list_files(tmp_path, {".jpg"})]
    assert [n for n in names if n[0] == "²"] == ["²1.jpg", "²2.jpg", "²10.jpg"]


def test_a_number_of_thousands_of_digits_is_no_json(tmp_path: Path) -> None:
    """The reader refuses it with an error that is none of syntax."""
    (tmp_path / "a.json").write_text(f'{{"a": {"9" * 5000}}}')
    with pytest.raises(InputError, match=r"a\.json: is no JSON"):
        read_json(tmp_path / "a.json")


def test_a_name_that_is_too_long_is_refused(tmp_path: Path) -> None:
    """The system's own error would come wherever the file is looked for."""
    with pytest.raises(InputError, match="too long"):
        inside(tmp_path, "a" * 400)


def test_a_bomb_is_stopped_by_its_ratio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Zeros pack 1000 to 1; what is accepted of so small a file is stated."""
    monkeypatch.setattr(files, "ALWAYS_UNPACKED", 2**20)
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("a", bytes(4 * 2**20))
    (tmp_path / "into").mkdir()
    with pytest.raises(InputError, match=r"more than 1048576 bytes, which is what is accepted of"):
        unpack(tmp_path / "a.zip", tmp_path / "into")
