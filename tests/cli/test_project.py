"""Commands that work on a project: found from any folder, exit codes kept, errors that teach."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipelines.check import cuda_driver
from tests.miniature import Miniature
from tests.pipelines.captures import write_capture
from twinloop.cli.main import main

OBJECTS = "datasets/objects.yaml"
ROOT = Path(__file__).resolve().parents[2]
TWINLOOP = [sys.executable, "-c", "from twinloop.cli.main import main; main()"]


@pytest.fixture
def project(mini: Miniature) -> Miniature:
    """A miniature project that holds the pipelines, as a clone of Twinloop does."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "pipelines", mini.root / "pipelines", ignore=ignored)
    return mini


def twinloop(
    mini: Miniature, *args: str, code: int = 0, folder: str = "."
) -> subprocess.CompletedProcess[str]:
    """Run ``twinloop ARGS`` in a folder of the project."""
    done = subprocess.run(
        [*TWINLOOP, *args],
        cwd=mini.root / folder,
        env=mini.environment(),
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == code, (done.returncode, done.stdout + done.stderr)
    return done


def test_help_teaches_with_examples_and_exit_codes(tmp_path: Path) -> None:
    """The first page shows what to type; each command that takes names shows examples."""
    mini = Miniature(tmp_path, tmp_path / "journal")
    text = twinloop(mini, "--help").stdout
    for expected in ("twinloop run spam", "twinloop add mug --scan", "Exit codes", "130"):
        assert expected in text
    for command in ("add", "run", "show", "export", "validate"):
        assert "Examples" in twinloop(mini, command, "--help").stdout
    assert twinloop(mini, "--version").stdout.startswith("twinloop ")


def test_outside_a_project_every_command_says_so(tmp_path: Path) -> None:
    """No dvc.yaml above: exit code 2 and what to do."""
    mini = Miniature(tmp_path, tmp_path / "journal")
    for args in (["run"], ["status"], ["check"], ["show", "ant"], ["report", "ant"]):
        assert "no Twinloop project here" in twinloop(mini, *args, code=2).stderr
    done = twinloop(mini, "status", "--json", code=2)
    assert json.loads(done.stderr)["exit_code"] == 2


def test_add_run_status_from_a_subfolder(project: Miniature, tmp_path: Path) -> None:
    """The life of an object through the command, started below the project's root."""
    (project.root / "datasets/objects.yaml").write_text("objects: []\n")
    parts = write_capture(tmp_path / "capture", "fox ")
    given = [
        f"--{part}={os.path.relpath(path, project.root / 'stages')}" for part, path in parts.items()
    ]
    done = twinloop(project, "add", "fox", *given, "--license", "CC0-1.0", folder="stages")
    assert "twinloop run fox" in done.stdout
    states = json.loads(twinloop(project, "status", "--json", folder="stages").stdout)
    assert states == {"fox": {"a": "new", "b": "new", "c": "new"}}
    done = twinloop(project, "run", "--json", folder="datasets")
    events = [json.loads(line) for line in done.stderr.splitlines()]
    assert [(e["stage"], e["state"]) for e in events if e["state"] == "ran"] == [
        (stage, "ran") for stage in "abc"
    ]
    result = json.loads(done.stdout)
    assert result["objects"]["fox"]["states"] == {"a": "ran", "b": "ran", "c": "ran"}
    project.edit("stages/b/word.py", '"b"', '"B"')
    states = json.loads(twinloop(project, "status", "--json").stdout)
    assert states == {"fox": {"a": "built", "b": "changed", "c": "follows"}}
    project.override("fox", "b", fail=True)
    done = twinloop(project, "run", "-q", code=1)
    assert done.stdout == ""
    assert "b@fox failed" in done.stderr
    assert "asked to fail; set fail to false" in done.stderr
    assert "Whole log: logs/" in done.stderr
    twinloop(project, "remove", "fox", "--yes")
    assert not (project.root / "datasets/fox").exists()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["run", "aunt"], "unknown object 'aunt'. Did you mean ant?"),
        (["run", "ant", "--until", "d"], "unknown stage 'd'"),
        (["remove", "aunt", "--yes"], "unknown object 'aunt'. Did you mean ant?"),
        (["rename", "aunt", "fox"], "unknown object 'aunt'. Did you mean ant?"),
        (["show", "aunt"], "unknown object 'aunt'. Did you mean ant?"),
        (["show", "ant"], "ant has no results yet; build it: twinloop run ant"),
        (["report", "ant"], "ant has no results yet"),
        (["export", "ant", "--to", "x"], "ant has no twin yet"),
        (["validate", "ant"], "ant has no results yet"),
        (["validate", "gone.zarr"], "gone.zarr does not exist"),
        (["add", "fox", "--license", "CC0-1.0"], "needs --scan, --push and --demo"),
        (["add", "Fox", "--lab", "x", "--license", "CC0-1.0"], "'Fox' cannot name an object"),
        (["add", "fox"], "--license"),
        (["fly"], "No such command 'fly'"),
    ],
)
def test_wrong_usage_is_exit_code_2_with_a_way_out(
    project: Miniature,
    args: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Every wrong name or missing argument is answered with what exists or what to give."""
    # In this process: importing everything anew for each case would take most of the time.
    monkeypatch.chdir(project.root)
    monkeypatch.setattr("sys.argv", ["twinloop", *args])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert message in capfd.readouterr().err


def test_missing_params_and_damaged_files_are_explained(project: Miniature) -> None:
    """A params key that is gone, a params.yaml that is no YAML, a lock that is cut short."""
    (project.root / "datasets/objects.yaml").write_text("objects: [ant]\n")
    twinloop(project, "run", "-q")
    good = project.text("params.yaml")
    project.edit("params.yaml", "c: {n: 1, small: 1.0e-05}", "")
    done = twinloop(project, "check", code=4)
    assert "c: params.yaml has no key `c`" in done.stdout
    project.edit("params.yaml", "b: {n: 1}", "b: {n: 1")
    assert "params.yaml" in twinloop(project, "check", code=4).stdout
    (project.root / "params.yaml").write_text(good.replace("1.0e-05", "1e-05"))
    done = twinloop(project, "check", code=4)
    assert "c.small is '1e-05' to Python but 1e-05 to DVC" in done.stdout
    (project.root / "params.yaml").write_text(good)
    assert "FAULT" not in twinloop(project, "check").stdout
    lock = project.text("dvc.lock")
    (project.root / "dvc.lock").write_text(lock[: lock.rindex("md5:") + 12] + "\n")
    assert "is cut short" in twinloop(project, "check", code=4).stdout


def test_check_finds_what_changed_behind_dvc(project: Miniature) -> None:
    """An output edited by hand, an import that DVC does not watch, a hidden .dvc file."""
    (project.root / "datasets/objects.yaml").write_text("objects: [ant]\n")
    twinloop(project, "run", "-q")
    report = project.root / "datasets/ant/metrics/c.json"
    report.write_text('{"length": 99}')
    assert (
        "datasets/ant/metrics/c.json (c@ant) is modified"
        in twinloop(project, "check", code=4).stdout
    )
    project.edit("stages/b/word.py", "WORD", "import stages.extra\nWORD")
    (project.root / "stages/extra.py").write_text("")
    with (project.root / ".gitignore").open("a") as stream:
        stream.write("/datasets/*/raw/*/\n")
    found = json.loads(twinloop(project, "check", "--json", code=4).stdout)
    faults = "\n".join(fault for check in found for fault in check["faults"])
    assert "b: imported but not in deps: stages/extra.py" in faults
    assert "datasets/ant/raw/: DVC sees no .dvc file in it" in faults
    done = twinloop(project, "run", code=4)
    assert "the cache could lie" in done.stderr
    assert "python -m pipelines graph --write" in done.stderr


def check_text(project: Miniature) -> str:
    """What `twinloop check` prints, whatever its exit code."""
    return project.run("python", "-m", "pipelines", "check", code=None).stdout


def test_status_and_check_explain_a_broken_project(project: Miniature) -> None:
    """Damaged files and a missing repository: exit code and message, no traceback."""
    lock, params, listed = (project.root / f for f in ("dvc.lock", "params.yaml", OBJECTS))
    good = params.read_bytes(), listed.read_bytes()
    lock.write_bytes(bytes(range(128, 256)))
    assert "git checkout dvc.lock" in twinloop(project, "status", code=4).stderr
    assert "git checkout dvc.lock" in twinloop(project, "run", code=4).stderr
    lock.write_text("<<<<<<< HEAD\n=======\n>>>>>>> theirs\n")
    assert "merge conflict markers" in twinloop(project, "status", code=4).stderr
    lock.unlink()
    params.write_text("a: {n: 1\nb: 2\n")
    for command in ("run", "status"):
        assert "params.yaml is not valid YAML at line" in twinloop(project, command, code=2).stderr
    params.write_bytes(good[0])
    listed.write_text("- ant\n")
    for command in ("run", "status", "check"):
        assert "expected a mapping such as" in twinloop(project, command, code=2).stderr
    listed.write_bytes(good[1])
    (project.root / "versions.yaml").write_text("device: cuda\n")
    if not cuda_driver():
        assert "says device: cuda, but this machine has no CUDA" in check_text(project)
    done = project.run("python", "-m", "pipelines", "add", "fox", code=None)
    assert "Usage: twinloop add" in done.stderr
    assert (
        "is the folder of an object" in twinloop(project, "validate", "datasets/ant", code=2).stderr
    )
    shutil.rmtree(project.root / ".git")
    for command in ("run", "status", "check"):
        assert "is not in a git repository" in twinloop(project, command, code=2).stderr


def test_a_second_run_is_refused_with_the_first_ones_name(project: Miniature) -> None:
    """Two runs of one project: exit code 3, and the process that holds it."""
    (project.root / "datasets/objects.yaml").write_text("objects: [ant]\n")
    project.override("ant", "a", sleep=120)
    first = subprocess.Popen(
        [*TWINLOOP, "run", "-q"],
        cwd=project.root,
        env=project.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 60
        while not project.journal.is_file() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert "is in use: `twinloop run`" in twinloop(project, "run", code=3).stderr
        assert "a run was killed" not in check_text(project)
    finally:
        os.killpg(first.pid, 2)  # as Ctrl-C does: the whole group of the terminal
        assert first.wait(60) == 130


def test_a_live_table_is_drawn_on_a_terminal(project: Miniature) -> None:
    """On a terminal the objects and stages are shown as they go."""
    (project.root / "datasets/objects.yaml").write_text("objects: [ant]\n")
    main, side = pty.openpty()
    process = subprocess.Popen(
        [*TWINLOOP, "run"],
        cwd=project.root,
        env=project.environment() | {"TERM": "xterm"},
        stdout=subprocess.DEVNULL,
        stderr=side,
    )
    os.close(side)
    shown = b""
    while True:
        try:
            part = os.read(main, 4096)
        except OSError:
            break
        if not part:
            break
        shown += part
    os.close(main)
    assert process.wait(60) == 0
    text = shown.decode(errors="replace")
    assert "object" in text
    assert "✔" in text
