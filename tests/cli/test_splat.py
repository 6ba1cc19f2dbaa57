"""``twinloop splat``: each command does what it says, and says what is wrong."""

import json
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from tests.splat.test_transform import some
from twinloop.cli.main import main
from twinloop.splat.imported import load_splats, save_splats


@pytest.fixture
def ply(tmp_path: Path) -> Path:
    """A file of Gaussians about 0.3 m wide."""
    save_splats(some(1, 200), tmp_path / "thing.ply")
    return tmp_path / "thing.ply"


def twinloop(monkeypatch: pytest.MonkeyPatch, *args: object) -> int:
    """Run the command in this process and return its exit code."""
    monkeypatch.setattr("sys.argv", ["twinloop", "splat", *map(str, args)])
    with pytest.raises(SystemExit) as stopped:
        main()
    return int(stopped.value.code or 0)


def test_info(
    ply: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Counts and extents, for people and programs."""
    assert twinloop(monkeypatch, "info", ply) == 0
    assert "200 gaussians of degree 1" in capsys.readouterr().out
    assert twinloop(monkeypatch, "info", ply, "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["count"] == 200
    assert 0.1 < facts["high_m"][0] - facts["low_m"][0] < 0.4


def test_convert_transform_and_merge(ply: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy has the same bytes; a turn and its opposite cancel; a merge has both."""
    copy, there, back, both = (ply.with_name(f"{n}.ply") for n in ("copy", "there", "back", "both"))
    assert twinloop(monkeypatch, "convert", ply, copy) == 0
    assert copy.read_bytes() == ply.read_bytes()
    turn = ("--rotate", 0, 0, 90, "--scale", 2, "--move", 1, 0, 0)
    assert twinloop(monkeypatch, "transform", ply, there, *turn) == 0
    start, moved = load_splats(ply), load_splats(there)
    np.testing.assert_allclose(moved.means[:, 0], 1 - 2 * start.means[:, 1], atol=1e-6)
    assert twinloop(monkeypatch, "transform", there, back, "--move", -1, 0, 0) == 0
    assert (
        twinloop(monkeypatch, "transform", back, back, "--rotate", 0, 0, -90, "--scale", 0.5) == 0
    )
    np.testing.assert_allclose(load_splats(back).sh, start.sh, atol=1e-5)
    assert twinloop(monkeypatch, "merge", ply, f"{ply}@0.5,0,0,0,0,90", "--to", both) == 0
    merged = load_splats(both)
    assert len(merged) == 400
    np.testing.assert_allclose(merged.means[200:, 0], 0.5 - start.means[:, 1], atol=1e-6)


def test_render(ply: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A picture shows something, each layer is one, a film turns around."""
    png = ply.with_suffix(".png")
    for layer in ("rgb", "alpha", "depth", "normal"):
        assert twinloop(monkeypatch, "render", ply, png, "--size", 64, 48, "--layer", layer) == 0
        assert np.asarray(Image.open(png)).shape == (48, 64, 3)
        assert np.asarray(Image.open(png)).max() > 50
    film = ply.with_suffix(".mp4")
    size = ("--size", 65, 49, "--seconds", 0.5, "--rate", 8)
    assert twinloop(monkeypatch, "render", ply, film, *size) == 0
    with av.open(str(film)) as video:
        frames = [frame.to_ndarray(format="rgb24") for frame in video.decode(video=0)]
    assert len(frames) == 4
    assert frames[0].shape == (48, 64, 3)
    assert not np.array_equal(frames[0], frames[2])


def test_what_is_wrong_is_said(
    ply: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, a message with the file and the cure, and no file left behind."""
    other = ply.with_name("other.ply")
    cases = [
        (("info", other), "other.ply: no such file"),
        (("convert", ply, ply.with_suffix(".splat")), "ends in .ply or .spz"),
        (("transform", ply, other, "--scale", 0), "expected a positive number"),
        (("merge", f"{ply}@1,2", "--to", other), "expected 3 or 6 numbers after the @"),
        (("merge", f"{ply}@a,b,c", "--to", other), "expected 3 or 6 numbers after the @"),
        (("merge", f"{ply}@nan,0,0", "--to", other), f"{ply}@nan,0,0: expected 3 or 6 numbers"),
        (("merge", f"{ply}@0,0,0,inf,0,0", "--to", other), "expected 3 or 6 numbers after the @"),
        (("transform", ply, other, "--scale", 1e300), "splats' scales"),
        (("transform", ply, other, "--move", 1e300, 0, 0), "farther away than"),
        (("render", ply, ply.with_suffix(".gif")), "ends in .png or .mp4"),
        (
            ("render", ply, ply.with_suffix(".png"), "--layer", "flow"),
            "rgb, alpha, depth or normal",
        ),
        (("render", ply, ply.with_suffix(".png"), "--size", 0, 9), "expected 1 to 16384"),
        (("convert", ply, ply.parent / "none" / "a.ply"), "there is no folder"),
        (("info", ply.parent), "expected splats in a file"),
        (("info", f"{'n' * 300}.ply"), "cannot be read (File name too long)"),
        (("info", f"{'n' * 300}.spz"), "cannot be read (File name too long)"),
        (("merge", f"{'n' * 300}.ply", "--to", other), "cannot be read (File name too long)"),
        (("render", ply, ply.with_suffix(".png"), "--device", "tpu"), "expected 'cpu'"),
        (("render", ply, ply.with_suffix(".mp4"), "--size", 9, 1, "--rate", 1), "film of 9 x 1 px"),
    ]
    for args, message in cases:
        assert twinloop(monkeypatch, *args) == 2, args
        assert message in capsys.readouterr().err
    assert [p.name for p in ply.parent.iterdir()] == ["thing.ply"]


def test_a_name_that_cannot_be_written(
    ply: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No traceback, and nothing left behind."""
    assert twinloop(monkeypatch, "convert", ply, ply.with_name(f"{'n' * 300}.ply")) != 0
    assert "cannot be written (File name too long)" in capsys.readouterr().err
    assert [p.name for p in ply.parent.iterdir()] == ["thing.ply"]


def test_help_teaches(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The help shows examples and names the commands."""
    assert twinloop(monkeypatch, "--help") == 0
    shown = capsys.readouterr().out
    for word in (
        "convert",
        "transform",
        "merge",
        "render",
        "info",
        "twinloop splat merge table.ply",
    ):
        assert word in shown
