"""The nightly build without Prefect: its own branch, the user's work untouched."""

from __future__ import annotations

from pathlib import Path

from pipelines.executor import run_all, threads
from pipelines.nightly import BRANCH, FOLDER, TAKEN, Night, spend_night
from tests.miniature import Miniature
from tests.pipelines.captures import write_capture


def night(mini: Miniature, inbox: Path) -> Night:
    """One night of the project."""
    return spend_night(mini.root, inbox, lambda tree: run_all(tree, spread=threads(2)))


def test_nights_take_captures_and_follow_the_user(mini: Miniature, tmp_path: Path) -> None:
    """Two nights with the user's work between them: commits on the branch, cache pushed."""
    (mini.root / "datasets/objects.yaml").write_text("objects: [ant]\n")
    mini.run("git", "commit", "-q", "-a", "-m", "one object")
    inbox = tmp_path / "inbox"
    write_capture(inbox / "fox", "fox ")
    (inbox / "fox/capture.yaml").write_text("license: CC-BY-4.0\ntitle: A fox\n")
    write_capture(inbox / "owl", "owl ")  # still uploading: no capture.yaml
    # The user has an edit that is not committed: the night must neither use nor touch it.
    mini.edit("stages/b/word.py", '"b"', '"B"')
    mini.run("git", "add", "stages/b/word.py")
    head = mini.run("git", "rev-parse", "HEAD").stdout
    done = night(mini, inbox)
    assert done.taken == ["fox"]
    assert "no capture.yaml yet" in done.refused["owl"]
    assert mini.executed() == [f"{s}@{n}" for s in "abc" for n in ("ant", "fox")]
    assert mini.run("git", "rev-parse", "HEAD").stdout == head
    assert mini.run("git", "branch", "--show-current").stdout == "main\n"
    assert mini.run("git", "status", "--porcelain").stdout == "M  stages/b/word.py\n"
    show = mini.run("git", "show", "--stat=200", BRANCH).stdout
    assert "Nightly: built ant, fox" in show
    for path in ("dvc.lock", "datasets/fox/object.yaml", "datasets/fox/metrics/c.json"):
        assert path in show
    assert "word.py" not in show
    remote = mini.root / ".dvc-remote"
    assert any((remote / "files").rglob("*.dir"))
    assert any((remote / "runs").rglob("*")), "the run-cache is pushed too"
    assert not (inbox / "fox").exists()
    assert list((inbox / TAKEN).glob("fox-*"))
    # Next day the user commits other work; the next night takes it in and adds to it.
    mini.run("git", "commit", "-q", "-a", "-m", "shout")
    write_capture(inbox / "fox", "vixen ")
    (inbox / "fox/capture.yaml").write_text("license: CC-BY-4.0\n")
    done = night(mini, inbox)
    assert done.taken == ["fox"]
    assert mini.executed() == ["a@fox", "b@ant", "b@fox", "c@ant", "c@fox"]
    tree = mini.root / FOLDER
    assert (tree / "datasets/fox/c.zarr/data.txt").read_text() == "vixen a1 B1 c1 "
    # A night without news makes no commit.
    tip = mini.run("git", "rev-parse", BRANCH).stdout
    assert night(mini, inbox).commit == ""
    assert mini.run("git", "rev-parse", BRANCH).stdout == tip
    # In the morning the user merges the night's work: nothing is left to run.
    mini.run("git", "merge", "-q", "--no-edit", BRANCH)
    mini.dvc("checkout", "-q")
    assert not run_all(mini.root).runs
    assert mini.executed() == []
