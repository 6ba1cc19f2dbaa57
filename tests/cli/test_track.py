"""``twinloop track``: files in, poses and a film out, or a message and an exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.tracking import twin_capture as capture
from twinloop.cli.main import main
from twinloop.export.mesh_files import write_obj

SCENE = capture.box_scene()
LENS = ",".join(str(v) for v in capture.LENS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bare mesh, and a clip of one frame with its camera and board."""
    out = tmp_path_factory.mktemp("clip")
    vertices, faces, _ = SCENE.mesh(1)
    write_obj(out / "box.obj", vertices, faces, "metres")
    capture.write_camera(out)
    there = capture.picture(SCENE, capture.standing(SCENE, 0.01, 0.02, 0.4))
    capture.write_clip(out / "one.mp4", [there])
    return out


def twinloop(monkeypatch: pytest.MonkeyPatch, *args: object) -> int:
    """Run the command in this process and return its exit code."""
    monkeypatch.setattr("sys.argv", ["twinloop", "track", *map(str, args)])
    with pytest.raises(SystemExit) as stopped:
        main()
    return int(stopped.value.code or 0)


def test_help_teaches(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The help shows examples, statuses and exit codes."""
    assert twinloop(monkeypatch, "--help") == 0
    said = capsys.readouterr().out
    for word in ("Examples", "uncertain", "--preview", "Exit codes", "X,Y,W,H"):
        assert word in said


def test_what_is_not_found_is_said_and_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A bare mesh without a box: every frame lost, a note what helps, exit code 1."""
    clip = folder / "one.mp4"
    assert twinloop(monkeypatch, clip, folder / "box.obj", "--intrinsics", LENS, "--json") == 1
    said = capsys.readouterr()
    facts = json.loads(said.out)
    assert facts["lost"] == 1.0
    assert facts["start"] == "none"
    assert "give a box or a mask" in said.err
    lines = (folder / "one.poses.csv").read_text().splitlines()
    assert lines[0].startswith("time,status,x,y,z,qw")
    assert [line.split(",")[1] for line in lines[1:]] == ["lost"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--intrinsics", "400,400"), "expected FX,FY,CX,CY"),
        (("--intrinsics", LENS, "--box", "1,2,three,4"), "expected X,Y,W,H"),
        (("--intrinsics", LENS, "--camera", "camera.yaml"), "expected one of them"),
        (("--intrinsics", LENS, "--out", "poses.txt"), ".csv or .npz"),
        (("--intrinsics", LENS, "--preview", "out.avi"), ".mp4"),
        (("--intrinsics", LENS, "--up", "y"), "expected z or any"),
        ((), "intrinsics are not given"),
    ],
)
def test_wrong_options_are_explained(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    said: str,
) -> None:
    """Exit code 2 and a sentence that names what was expected; nothing is written."""
    before = sorted(folder.iterdir())
    assert twinloop(monkeypatch, folder / "one.mp4", folder / "box.obj", *options) == 2
    assert said in capsys.readouterr().err
    assert sorted(folder.iterdir()) == before


def test_a_twin_that_is_not_there(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Neither a file nor an object of a project: the message says what a twin is."""
    monkeypatch.chdir(tmp_path)
    assert twinloop(monkeypatch, folder / "one.mp4", "mug", "--intrinsics", LENS) == 2
    assert "twin.json" in capsys.readouterr().err
