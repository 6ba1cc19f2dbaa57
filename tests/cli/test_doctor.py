"""The doctor: what is missing and what it costs, on machines that lack things."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from twinloop.cli import doctor
from twinloop.cli.main import main
from twinloop.errors import MachineError

CONFIG = """[core]
    remote = store
['remote "store"']
    url = {url}
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder that looks like a project to the doctor."""
    (tmp_path / "datasets").mkdir()
    (tmp_path / ".dvc").mkdir()
    (tmp_path / "dvc.yaml").write_text("stages: {}\n")
    (tmp_path / "datasets/objects.yaml").write_text("objects: []\n")
    (tmp_path / "versions.yaml").write_text(
        '# Kept.\ndevice: cpu\nnumpy: "1.0"  # old\nzarr: 3.0\n'
    )
    return tmp_path


def test_versions_are_compared_and_accepted(root: Path) -> None:
    """Wrong versions are a fault; --write-versions changes just those, comments stay."""
    line = doctor.check_versions(root)[0]
    assert line.state == "fault"
    assert "numpy" in line.found
    assert "--write-versions" in line.cost
    installed = {name: have for name, (_, have) in doctor.versions(root).items()}
    assert len(doctor.write_versions(root)) == 2
    numpy, zarr = installed["numpy"], installed["zarr"]
    text = (root / "versions.yaml").read_text()
    assert text == f'# Kept.\ndevice: cpu\nnumpy: "{numpy}"  # old\nzarr: "{zarr}"\n'
    assert doctor.check_versions(root)[0].state == "ok"


def test_a_library_that_is_not_installed_cannot_be_accepted(root: Path) -> None:
    """Nothing is written for a library that is not there."""
    (root / "versions.yaml").write_text('no-such-library: "1"\n')
    with pytest.raises(MachineError, match="no-such-library is not installed"):
        doctor.write_versions(root)


@pytest.mark.parametrize(
    ("url", "state", "found"),
    [
        ("../remote", "ok", "local folder"),
        ("s3://bucket/twins", "missing", "needs dvc_s3"),
        ("https://example.org/twins", "ok", "not contacted"),
    ],
)
def test_remotes(
    root: Path, url: str, state: str, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A local folder is looked at, a scheme needs its package, a server is not contacted."""
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    (root / ".dvc/config").write_text(CONFIG.format(url=url))
    line = doctor.check_remote(root)
    assert (line.state, found in line.found) == (state, True), line


def test_no_remote_costs_sharing(root: Path) -> None:
    """Without a remote the doctor says what cannot be done."""
    line = doctor.check_remote(root)
    assert line.state == "missing"
    assert "dvc remote add" in line.cost


def test_no_gl_no_server_no_disk(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each missing thing is a line with its cost; none stops the examination."""
    monkeypatch.setenv("MUJOCO_GL", "glx")
    line = doctor.check_gl()
    assert line.state == "missing"
    assert "apt.txt" in line.cost
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    line = doctor.check_prefect()
    assert line.state == "missing"
    assert "prefect server start" in line.cost
    monkeypatch.setenv("PREFECT_API_URL", "file:///etc/passwd")
    assert doctor.check_prefect().state == "missing"
    monkeypatch.setattr(doctor, "LITTLE_DISK", 1e18)
    assert "dvc gc" in doctor.check_disk(root).cost


def test_a_check_that_breaks_is_a_finding(monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    """An unforeseen error in one check does not hide the others; faults give exit code 3."""

    def check_git() -> doctor.Line:
        raise RuntimeError("no luck")

    def fault() -> doctor.Line:
        return doctor.Line("dvc", "fault", "not installed")

    monkeypatch.setattr(doctor, "check_git", check_git)
    monkeypatch.setattr(doctor, "check_dvc", fault)
    for name in ("check_gl", "check_gpu", "check_gsplat", "check_video"):
        monkeypatch.setattr(doctor, name, lambda: doctor.Line("x", "ok", "fine"))
    lines = doctor.examine(root)
    assert any(line.name == "git" and "no luck" in line.found for line in lines)
    assert any(line.name == "extra dev" for line in lines)


def test_the_command_prints_json_and_fails_on_faults(
    root: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Exit code 3 because of the wrong versions; the lines are JSON."""
    monkeypatch.setattr(doctor, "check_gl", lambda: doctor.Line("gl", "ok", "fine"))
    monkeypatch.chdir(root / "datasets")
    monkeypatch.setattr("sys.argv", ["twinloop", "doctor", "--json"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 3
    lines = json.loads(capfd.readouterr().out)
    assert {"python", "git", "dvc", "gpu", "gsplat", "gl"} <= {line["name"] for line in lines}
    assert all(line["cost"] for line in lines if line["state"] != "ok")
