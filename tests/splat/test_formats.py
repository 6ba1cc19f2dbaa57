"""SPZ: what it loses is bounded, its bytes repeat, damage is refused."""

import gzip
import signal
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.splat.test_transform import some
from twinloop.errors import InputError, MachineError
from twinloop.geometry import quaternion
from twinloop.splat import spz
from twinloop.splat.gaussians import Gaussians
from twinloop.splat.spz import read_spz, write_spz
from twinloop.splat.surfels import Surfels

pytest.importorskip("gsply", reason="the extra `splat` is not installed")


@pytest.mark.parametrize("degree", [0, 3])
def test_what_spz_loses(tmp_path: Path, degree: int) -> None:
    """Positions within 0.5 um, scales 3.2 %, opacities half an 8-bit step, rotations 0.3 deg."""
    start = some(degree, 3000)
    write_spz(start, tmp_path / "a.spz")
    back = read_spz(tmp_path / "a.spz")
    assert back.degree == degree
    np.testing.assert_allclose(back.means, start.means, atol=0.51 * 2.0**-20)
    np.testing.assert_allclose(back.scales, start.scales, rtol=np.exp(1 / 32) - 1 + 1e-5)
    np.testing.assert_allclose(back.opacities, start.opacities, atol=0.51 / 255)
    angle = quaternion.angle(back.quaternions, start.quaternions)
    assert np.degrees(angle).max() < 0.3
    colour = 0.28209479 * (back.sh[:, 0] - start.sh[:, 0])
    assert np.abs(colour).max() < 0.51 * 0.28209479 / (0.15 * 255) + 1e-6
    np.testing.assert_allclose(back.sh[:, 1:], start.sh[:, 1:].clip(-1, 127 / 128), atol=0.51 / 128)


def test_bytes_repeat_and_a_second_pass_loses_nothing(tmp_path: Path) -> None:
    """The same file every time; writing what was read gives the same values again."""
    start = some(1, 500)
    for name in ("a", "b"):
        write_spz(start, tmp_path / f"{name}.spz")
    assert (tmp_path / "a.spz").read_bytes() == (tmp_path / "b.spz").read_bytes()
    once = read_spz(tmp_path / "a.spz")
    write_spz(once, tmp_path / "c.spz")
    again = read_spz(tmp_path / "c.spz")
    for name in ("means", "scales", "opacities", "sh"):
        np.testing.assert_array_equal(getattr(once, name), getattr(again, name))


def test_surfels_and_wide_scenes(tmp_path: Path) -> None:
    """Surfels get the thinnest third axis; far things a coarser grid; too far ones a reason."""
    start = some(1, 50)
    flat = Surfels(start.means, start.quaternions, start.scales[:, :2], start.opacities, start.sh)
    write_spz(flat, tmp_path / "a.spz")
    np.testing.assert_allclose(read_spz(tmp_path / "a.spz").scales[:, 2], np.exp(-10), rtol=1e-5)
    wide = Gaussians(start.means * 8000, *list(vars(start).values())[1:5])
    write_spz(wide, tmp_path / "b.spz")
    np.testing.assert_allclose(read_spz(tmp_path / "b.spz").means, wide.means, atol=2.0**-13 * 1.01)
    mm = Gaussians(start.means * 1e6, *list(vars(start).values())[1:5])
    with pytest.raises(InputError, match="SPZ holds 2048 m; is the unit wrong"):
        write_spz(mm, tmp_path / "c.spz")
    with pytest.raises(InputError, match=r"scales reach .* SPZ holds 379 m; is the unit wrong"):
        write_spz(replace(start, scales=start.scales * 1e5, stored=None), tmp_path / "c.spz")
    assert not (tmp_path / "c.spz").exists()


def test_damage(tmp_path: Path) -> None:
    """Cut, forged, blown up and foreign files are refused before anything is allocated."""
    path = tmp_path / "a.spz"
    write_spz(some(1, 500), path)
    whole = path.read_bytes()
    body = gzip.decompress(whole)

    def forged(count: int, version: int = 3, degree: int = 1, data: bytes = body[16:]) -> bytes:
        head = struct.pack("<IIIBBBB", 0x5053474E, version, count, degree, 12, 0, 0)
        return gzip.compress(head + data)

    cases = {
        b"": "is no SPZ file",
        b"ply\n" + bytes(60): "is no SPZ file",
        whole[: len(whole) // 2]: "cut or damaged",
        whole[:30] + bytes([whole[30] ^ 255]) + whole[31:]: "damaged",
        forged(501): "unpacks to .* bytes; it is cut",
        forged(4_000_000_000): "promises 4000000000 Gaussians",
        forged(0): "promises 0 Gaussians",
        forged(500, version=9): "version 9",
        forged(500, degree=7): "degree 7",
        forged(500, data=bytes(30_000_000)): "unpacks to more than",
        struct.pack("<IIIBBBBI", 0x5053474E, 4, 500, 1, 12, 0, 6, 32) + bytes(200): "damaged",
    }
    for content, message in cases.items():
        path.write_bytes(content)
        with pytest.raises(InputError, match=message):
            read_spz(path)
    with pytest.raises(InputError, match="no such file"):
        read_spz(tmp_path / "b.spz")


def test_without_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the extra."""

    def missing(module: str, extra: str, purpose: str) -> None:
        raise MachineError(f"{purpose} needs {module}: twinloop[{extra}]")

    monkeypatch.setattr(spz, "require", missing)
    with pytest.raises(MachineError, match=r"writing SPZ needs gsply: twinloop\[splat\]"):
        write_spz(some(0, 5), tmp_path / "a.spz")


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    """The library's own error becomes one that says what to do; the old file stays as it was."""
    resource = pytest.importorskip("resource", reason="limits of file sizes are POSIX's")
    path = tmp_path / "a.spz"
    path.write_bytes(b"old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    was = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(MachineError, match=r"a\.spz: cannot be written"):
            write_spz(some(3, 3000), path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, was)
    assert [p.read_bytes() for p in tmp_path.iterdir()] == [b"old"]
