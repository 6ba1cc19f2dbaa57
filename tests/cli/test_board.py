"""``twinloop board``: a page and its board.yaml, or a message that says what to do."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import cv2
import pytest

from twinloop.capture.board import detect_tags, load_board
from twinloop.cli.main import main


def twinloop(monkeypatch: pytest.MonkeyPatch, *args: str) -> int:
    """Run the command in this process and return its exit code."""
    monkeypatch.setattr("sys.argv", ["twinloop", "board", *args])
    with pytest.raises(SystemExit) as stopped:
        main()
    return int(stopped.value.code or 0)


def test_a_page_and_its_description(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """PDF and board.yaml; the same board again as PNG shows the described tags."""
    pdf, png, yaml = (str(tmp_path / name) for name in ("b.pdf", "b.png", "board.yaml"))
    assert twinloop(monkeypatch, pdf, "--tag-size", "0.03") == 0
    assert "100 mm ruler" in capsys.readouterr().out
    assert Path(pdf).read_bytes().startswith(b"%PDF")
    assert twinloop(monkeypatch, png, "--board", yaml, "--dpi", "100") == 0
    board = load_board(Path(yaml))
    assert board.tags[0].size == 0.03
    found = detect_tags(cv2.imread(png, cv2.IMREAD_GRAYSCALE), board)
    assert list(found.ids) == [tag.id for tag in board.tags]
    before = Path(yaml).read_bytes()
    assert twinloop(monkeypatch, str(tmp_path / "c.pdf"), "--charuco") == 2
    assert f"--board {yaml}" in capsys.readouterr().err
    assert Path(yaml).read_bytes() == before
    assert not (tmp_path / "c.pdf").exists()


def test_no_description_without_its_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page cannot be written: board.yaml is not left behind."""
    (tmp_path / "b.pdf").mkdir()
    assert twinloop(monkeypatch, str(tmp_path / "b.pdf")) == 2
    assert not (tmp_path / "board.yaml").exists()


@pytest.mark.parametrize("name", ["b.pdf", "b.png"])
def test_a_full_disk_leaves_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    """Neither half a page nor its description; a page that was there stays."""
    out = tmp_path / name
    out.write_bytes(b"old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        code = twinloop(monkeypatch, str(out))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert code == 3
    assert f"{out}: cannot be written" in " ".join(capsys.readouterr().err.split())
    assert [p.name for p in tmp_path.iterdir()] == [name]
    assert out.read_bytes() == b"old"


@pytest.mark.timeout(20)
def test_a_pipe_in_place_of_the_page_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening it would wait for a reader."""
    os.mkfifo(tmp_path / "b.pdf")
    assert twinloop(monkeypatch, str(tmp_path / "b.pdf")) == 2
    assert [p.name for p in tmp_path.iterdir()] == ["b.pdf"]


def test_charuco_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The description holds the ChArUco board, not its tags."""
    out = tmp_path / "lens.pdf"
    assert twinloop(monkeypatch, str(out), "--charuco", "--page", "letter") == 0
    board = load_board(tmp_path / "board.yaml")
    assert board.charuco is not None
    assert "tags" not in (tmp_path / "board.yaml").read_text()
    assert out.read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["x.svg"], ".pdf or .png"),
        (["x.pdf", "--page", "a9"], "expected a4, letter"),
        (["x.pdf", "--family", "37h12"], "expected one of 16h5"),
        (["x.pdf", "--tag-size", "24"], "metres"),
        (["x.pdf", "--board", "gone.yaml"], "no such file"),
        (["x.pdf", "--board", "gone.yaml", "--charuco"], "leave out"),
        (["gone/x.pdf"], "no such folder"),
        (
            ["x.png", "--dpi", "1200", "--page", "5000x5000mm", "--tag-size", "0.3"],
            "a lower --dpi, or write a PDF",
        ),
    ],
)
def test_wrong_usage_writes_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    args: list[str],
    message: str,
) -> None:
    """Exit code 2, a way out, and no file."""
    monkeypatch.chdir(tmp_path)
    assert twinloop(monkeypatch, *args) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not list(tmp_path.iterdir())
