"""The executor's promises, on the miniature project with real git and DVC."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from pipelines import workspace
from pipelines.events import Event
from pipelines.executor import Extent, read_status, run_all, threads
from pipelines.lock import project_lock
from pipelines.process import WORKSPACE_VARIABLE, CommandError
from pipelines.share import push
from pipelines.workspace import FOLDER
from tests.miniature import Miniature
from twinloop.errors import ArtifactError, InputError, MachineError

ALL = [f"{stage}@{name}" for stage in "abc" for name in ("ant", "bee", "cow")]


def only(mini: Miniature, *names: str) -> None:
    """Cut the list of objects: fewer objects, faster test."""
    (mini.root / "datasets/objects.yaml").write_text(f"objects: [{', '.join(names)}]\n")


def status(mini: Miniature) -> list[str]:
    """What DVC finds changed."""
    return sorted(json.loads(mini.dvc("status", "--json") or "{}"))


def wait_for(mini: Miniature, line: str, seconds: float = 60) -> None:
    """Wait until a line of the journal begins with ``line``."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if mini.journal.is_file() and f"\n{line} " in "\n" + mini.journal.read_text():
            return
        time.sleep(0.02)
    raise AssertionError(f"{line!r} did not come in {seconds} s")


def processes_of(mini: Miniature) -> list[psutil.Process]:
    """Processes that still work in one of the project's workspaces."""
    found = []
    for process in psutil.process_iter():
        try:
            place = process.environ().get(WORKSPACE_VARIABLE, "")
        except (psutil.Error, OSError):
            continue
        if place.startswith(str(mini.root)):
            found.append(process)
    return found


def test_fleet_run_is_clean_and_nothing_runs_twice(mini: Miniature) -> None:
    """Three objects at once: each stage once, status clean, git untouched, then a no-op."""
    (mini.root / "note.txt").write_text("staged\n")
    mini.run("git", "add", "note.txt")
    head = mini.run("git", "rev-parse", "HEAD").stdout
    result = run_all(mini.root, spread=threads(3))
    assert not result.failed
    assert not result.edited
    assert mini.executed() == ALL
    assert status(mini) == []
    lock = mini.text("dvc.lock")
    assert "small: 1e-05" in lock, "the number must not have become a string"
    assert mini.text("datasets/bee/metrics/c.json") == '{"length": 13}'
    assert mini.text("datasets/bee/c.zarr/data.txt") == "bee a1 b1 c1 "
    assert (mini.root / "datasets/bee/provenance/c.json").is_file()
    assert "up to date" in mini.dvc("repro")
    assert mini.text("dvc.lock") == lock, "plain `dvc repro` has nothing to rewrite"
    assert mini.executed() == []
    assert not run_all(mini.root).runs, "a second run finds nothing to do"
    assert mini.run("git", "rev-parse", "HEAD").stdout == head
    assert mini.run("git", "diff", "--cached", "--name-only").stdout == "note.txt\n"
    assert mini.run("git", "worktree", "list").stdout.count("\n") == 1
    assert not list((mini.root / FOLDER).iterdir())


def test_uncommitted_edits_count_and_putting_them_back_restores(mini: Miniature) -> None:
    """An edit reruns its stage and what follows; the old state comes back from the cache."""
    only(mini, "ant")
    run_all(mini.root)
    assert mini.executed() == ["a@ant", "b@ant", "c@ant"]
    mini.edit("stages/b/word.py", '"b"', '"B"')
    result = run_all(mini.root)
    assert mini.executed() == ["b@ant", "c@ant"]
    assert result.runs[0].states == {"a": "unchanged", "b": "ran", "c": "ran"}
    assert mini.text("datasets/ant/c.zarr/data.txt") == "ant a1 B1 c1 "
    mini.edit("stages/b/word.py", '"B"', '"b"')
    result = run_all(mini.root)
    assert mini.executed() == []
    assert result.runs[0].states == {"a": "unchanged", "b": "restored", "c": "restored"}
    assert mini.text("datasets/ant/plots/c/figure.png") == "picture of ant a1 b1 c1 "
    assert status(mini) == []


def test_a_command_that_an_interrupt_ends_is_no_failure(
    mini: Miniature, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C reaches DVC's checkout before us: the object was stopped, it did not fail."""
    only(mini, "ant")
    events: list[Event] = []
    real = workspace.dvc

    def checkout(cwd: Path, *args: str, **rest: Any) -> str:
        if args[0] == "checkout":
            raise CommandError(["dvc", *args], cwd, 252, "ERROR: interrupted by the user")
        return real(cwd, *args, **rest)

    monkeypatch.setattr(workspace, "dvc", checkout)
    result = run_all(mini.root, emit=events.append)
    assert [run.error for run in result.runs] == ["stopped"]
    assert [e.state for e in events if e.object == "ant"] == ["stopped"]


@pytest.mark.parametrize(
    ("file", "content", "kind", "message"),
    [
        ("dvc.lock", b"\x00\xff\xfe\x80", ArtifactError, "git checkout dvc.lock"),
        ("dvc.lock", b"schema: '2.0'\nstages:\n  'a: :\n", ArtifactError, "git checkout dvc.lock"),
        ("dvc.lock", b"<<<<<<< HEAD\n=======\n>>>>>>> x\n", ArtifactError, "conflict markers"),
        ("params.yaml", b"a: {n: 1\nb: 2\n", InputError, r"params.yaml is not valid YAML at line"),
    ],
)
def test_damaged_files_are_named_before_dvc_stumbles(
    mini: Miniature, file: str, content: bytes, kind: type[Exception], message: str
) -> None:
    """A lock, params or card that cannot be read: the right kind of error, and the file."""
    (mini.root / file).write_bytes(content)
    with pytest.raises(kind, match=message):
        read_status(mini.root)


def test_a_failing_object_stops_no_other_and_keeps_its_finished_stages(mini: Miniature) -> None:
    """Bee fails in b: ant lands, a@bee is kept; once mended only b and c of bee run."""
    only(mini, "ant", "bee")
    mini.override("bee", "b", fail=True)
    result = run_all(mini.root, spread=threads(2))
    assert result.failed == ["bee"]
    bee = result.runs[1]
    assert bee.states == {"a": "ran", "b": "failed"}
    assert "b@bee failed" in bee.error
    assert "asked to fail; set fail to false" in bee.error
    assert bee.log is not None
    assert "asked to fail" in bee.log.read_text()
    assert mini.executed() == ["a@ant", "a@bee", "b@ant", "c@ant"]
    assert status(mini) == ["b@bee", "c@bee"]
    mini.override("bee", "b")
    assert not run_all(mini.root).failed
    assert mini.executed() == ["b@bee", "c@bee"]
    assert status(mini) == []


def test_an_edit_during_the_run_is_flagged_afterwards(mini: Miniature) -> None:
    """The run builds the state it began with and then names the stages that no longer fit."""
    only(mini, "ant")
    mini.override("ant", "a", sleep=2)

    def edit() -> None:
        wait_for(mini, "begin a@ant")
        mini.edit("stages/c/word.py", '"c"', '"C"')

    editor = threading.Thread(target=edit)
    editor.start()
    result = run_all(mini.root)
    editor.join()
    assert result.edited == ["c@ant"]
    assert mini.text("datasets/ant/c.zarr/data.txt") == "ant a1 b1 c1 "
    assert status(mini) == ["c@ant"]


def start(mini: Miniature, *args: str) -> subprocess.Popen[str]:
    """Start ``python -m pipelines run`` in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "pipelines", "run", *args],
        cwd=mini.root,
        env=mini.environment(),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_kill_9_loses_only_the_running_stage(mini: Miniature) -> None:
    """Killed within b, the next run keeps a, stops the orphan, and goes on with b, and c."""
    only(mini, "ant")
    mini.override("ant", "b", sleep=60)
    process = start(mini)
    wait_for(mini, "begin b@ant")
    process.kill()
    process.communicate()
    assert processes_of(mini), "DVC and the stage outlive the executor"
    assert mini.executed() == ["a@ant"]
    mini.override("ant", "b")
    result = run_all(mini.root)
    assert not processes_of(mini)
    assert result.salvaged == ["a@ant"]
    assert "resume b@ant" in mini.journal.read_text()
    assert mini.executed() == ["b@ant", "c@ant"]
    assert status(mini) == []
    assert mini.run("git", "worktree", "list").stdout.count("\n") == 1


CRASH = """
import os, signal, sys
from pathlib import Path
import pipelines.{module} as module
from pipelines.executor import run_all
real = module.{name}
def crash(*args, **kwargs):
    if args[1] == []:  # nothing to bring home yet
        return real(*args, **kwargs)
    if {late}:
        real(*args, **kwargs)
    os.kill(os.getpid(), signal.SIGKILL)
module.{name} = crash
run_all(Path.cwd())
"""


@pytest.mark.parametrize(
    ("module", "name", "late"),
    [
        ("executor", "merge", False),
        ("merge", "copy", True),
        ("merge", "write_entries", True),
        ("merge", "checkout", True),
    ],
)
def test_kill_9_while_bringing_home_loses_nothing(
    mini: Miniature, module: str, name: str, late: bool
) -> None:
    """Killed at any step of the merge, the next run brings all results home, running nothing."""
    only(mini, "ant")
    code = CRASH.format(module=module, name=name, late=late)
    done = mini.run("python", "-c", code, code=None)
    assert done.returncode == -signal.SIGKILL
    assert mini.executed() == ["a@ant", "b@ant", "c@ant"]
    result = run_all(mini.root)
    assert mini.executed() == []
    assert not result.failed
    assert status(mini) == []
    assert mini.text("datasets/ant/metrics/c.json") == '{"length": 13}'
    assert not list((mini.root / FOLDER).iterdir())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_stops_all_processes_and_keeps_finished_stages(
    mini: Miniature, number: signal.Signals
) -> None:
    """Ctrl-C: exit code 130, no process left, a is home, the message says how to go on."""
    only(mini, "ant")
    mini.override("ant", "b", sleep=60)
    process = start(mini)
    wait_for(mini, "begin b@ant")
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, out + err
    assert "twinloop run" in err
    assert not processes_of(mini)
    assert mini.executed() == ["a@ant"]
    assert status(mini) == ["b@ant", "c@ant"]
    assert not list((mini.root / FOLDER).iterdir())


def test_two_runs_of_one_project_cannot_interleave(mini: Miniature) -> None:
    """A second run is refused with a message that names the first one."""
    ready, done = threading.Event(), threading.Event()

    def hold() -> None:
        with project_lock(mini.root, "twinloop run"):
            ready.set()
            done.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    ready.wait(30)
    try:
        with pytest.raises(
            MachineError, match=f"is in use: `twinloop run` of process {os.getpid()}"
        ):
            run_all(mini.root)
    finally:
        done.set()
        holder.join()


def test_unknown_object_suggests_close_names(mini: Miniature) -> None:
    """A misspelt object is answered with the ones that look like it."""
    with pytest.raises(InputError, match=r"unknown object 'aunt'\. Did you mean ant"):
        run_all(mini.root, ["aunt"])


def test_a_full_disk_is_explained(mini: Miniature) -> None:
    """ENOSPC in a stage comes with what to do; finished stages stay."""
    only(mini, "ant")
    mini.override("ant", "b", full=True)
    result = run_all(mini.root)
    assert "No space left on device" in result.runs[0].error
    assert "dvc gc --workspace" in result.runs[0].error
    assert status(mini) == ["b@ant", "c@ant"]


def test_a_changed_capture_is_added_and_an_absent_one_is_explained(mini: Miniature) -> None:
    """New raw files are recorded as `dvc repro` would; lost ones lead to `dvc pull`."""
    only(mini, "ant", "bee")
    run_all(mini.root, spread=threads(2))
    mini.executed()
    (mini.root / "datasets/ant/raw/scan").chmod(0o755)
    words = mini.root / "datasets/ant/raw/scan/words.txt"
    words.unlink()
    words.write_text("aunt ")
    result = run_all(mini.root)
    assert result.recorded == ["datasets/ant/raw/scan"]
    assert mini.executed() == ["a@ant", "b@ant", "c@ant"]
    assert status(mini) == []
    assert mini.text("datasets/ant/c.zarr/data.txt") == "aunt a1 b1 c1 "
    # A half-written output must not keep the others from coming home.
    broken = mini.root / "datasets/bee/a.zarr/data.txt"
    broken.unlink()
    broken.write_text("half")
    assert not run_all(mini.root).failed
    assert mini.executed() == []
    assert status(mini) == []


def test_large_unknown_files_are_refused(mini: Miniature, monkeypatch: pytest.MonkeyPatch) -> None:
    """A video that neither git nor DVC knows would be swallowed by the snapshot: refused."""
    monkeypatch.setattr("pipelines.workspace.LARGEST_UNTRACKED", 10)
    (mini.root / "clip.mp4").write_bytes(b"0" * 100)
    with pytest.raises(InputError, match=r"clip.mp4 .* is known neither to git nor to DVC"):
        run_all(mini.root)


def test_lock_with_conflict_markers_is_explained(mini: Miniature) -> None:
    """A dvc.lock with merge conflict markers is refused with the way out."""
    only(mini, "ant")
    run_all(mini.root)
    lock = mini.text("dvc.lock")
    conflict = lock + "<<<<<<< HEAD\n=======\n>>>>>>> other\n"
    (mini.root / "dvc.lock").write_text(conflict)
    done = mini.run("python", "-m", "pipelines", "run", code=4)
    assert "conflict" in done.stderr
    assert "git checkout --ours dvc.lock" in done.stderr


def test_two_clones_share_results_through_one_remote(mini: Miniature, tmp_path: Path) -> None:
    """A clone pulls results, and restores what another has run, without running anything."""
    only(mini, "ant")
    run_all(mini.root)
    mini.run("git", "add", "-A")
    mini.run("git", "commit", "-q", "-m", "built")
    mini.dvc("push", "-q", "--run-cache")
    clone = Miniature(tmp_path / "clone", mini.journal)
    mini.run("git", "clone", "-q", str(mini.root), str(clone.root))
    clone.dvc("config", "--local", "remote.local.url", str(mini.root / ".dvc-remote"))
    clone.dvc("pull", "-q")
    assert status(clone) == []
    mini.executed()
    # The first clone tries a value, pushes it, and the second meets the same value.
    for project in (mini, clone):
        project.edit("params.yaml", "b: {n: 1}", "b: {n: 2}")
    run_all(mini.root)
    push(mini.root)
    assert mini.executed() == ["b@ant", "c@ant"]
    result = run_all(clone.root, extent=Extent(pull=True))
    assert clone.executed() == []
    assert result.runs[0].states == {"a": "unchanged", "b": "restored", "c": "restored"}
    assert status(clone) == []
    assert clone.text("dvc.lock") == mini.text("dvc.lock")
