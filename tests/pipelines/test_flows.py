"""The Prefect side: tasks without cache, deployments, the cron one fired for real."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from pipelines.nightly import BRANCH
from tests.miniature import Miniature, copy
from tests.pipelines.captures import write_capture
from tests.pipelines.prefect_server import PrefectServer, running, serve

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def prefect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrefectServer]:
    """One server for this file's tests: it takes 15 s to start, and a tenth of a core idle."""
    with serve(tmp_path_factory.mktemp("prefect")) as server:
        yield server


@pytest.fixture
def project(miniature_template: Miniature, tmp_path: Path) -> Miniature:
    """A miniature project that holds the pipelines, as a clone of Twinloop does."""
    mini = copy(miniature_template, tmp_path / "project")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "pipelines", mini.root / "pipelines", ignore=ignored)
    (mini.root / "datasets/objects.yaml").write_text("objects: [ant]\n")
    with (mini.root / ".gitignore").open("a") as stream:
        stream.write("/inbox/\n")
    mini.run("git", "add", "-A")
    mini.run("git", "commit", "-q", "-m", "with pipelines")
    return mini


def test_the_cron_deployment_takes_a_capture_and_commits_to_its_branch(
    prefect_server: PrefectServer, project: Miniature
) -> None:
    """prefect.yaml deployed, fired once, run by a worker: captures in, branch and cache out."""
    server, root = prefect_server, project.root
    extra = {
        "TWINLOOP_ROOT": str(root),
        "MINIATURE_JOURNAL": str(project.journal),
        "PYTHONPATH": f"{root}:{ROOT}",
    }
    server.prefect("work-pool", "create", "twinloop", "--type", "process", cwd=root)
    server.prefect("deploy", "--prefect-file", "pipelines/prefect.yaml", "--all", cwd=root, **extra)
    deployment = server.read("deployments/name/nightly/nightly")
    assert deployment["schedules"][0]["schedule"]["cron"] == "0 2 * * *"
    assert deployment["concurrency_options"]["collision_strategy"] == "ENQUEUE"
    write_capture(root / "inbox/fox", "fox ")
    (root / "inbox/fox/capture.yaml").write_text("license: CC-BY-4.0\n")
    head = project.run("git", "rev-parse", "HEAD").stdout
    worker = ["worker", "start", "--pool", "twinloop", "--limit", "1"]
    with running(worker, server.home, server.environment(**extra)):
        server.prefect("deployment", "run", "nightly/nightly", "--watch", cwd=root, **extra)
    log = (server.home / "worker.log").read_text()
    assert project.executed() == [f"{s}@{n}" for s in "abc" for n in ("ant", "fox")], log
    assert project.run("git", "rev-parse", "HEAD").stdout == head
    assert project.run("git", "status", "--porcelain").stdout == ""
    files = project.run("git", "show", "--name-only", "--format=%s", BRANCH).stdout
    assert files.startswith("Nightly: built ant, fox")
    assert "dvc.lock" in files
    assert "datasets/fox/metrics/c.json" in files
    assert any((root / ".dvc-remote/files").rglob("*.dir"))
    assert any((root / ".dvc-remote/runs").rglob("*"))
    assert server.read("artifacts/twinloop/latest")["type"] == "table"


FLOW = """
import sys
from pipelines.flows import build_all
try:
    print(build_all(retries=1))
except Exception as error:
    print("flow failed:", error)
"""


def test_a_flow_reruns_what_changed_and_fails_with_the_stage(
    prefect_server: PrefectServer, project: Miniature
) -> None:
    """Called twice with the same arguments after an edit: Prefect may not answer from a cache."""
    extra = {"MINIATURE_JOURNAL": str(project.journal), "PYTHONPATH": f"{project.root}:{ROOT}"}

    def build() -> str:
        done = subprocess.run(
            [sys.executable, "-c", FLOW],
            cwd=project.root,
            env=prefect_server.environment(**extra),
            text=True,
            capture_output=True,
            check=False,
        )
        return done.stdout + done.stderr

    assert "{'built': ['ant']}" in build()
    assert project.executed() == ["a@ant", "b@ant", "c@ant"]
    project.edit("stages/b/word.py", '"b"', '"B"')
    project.override("ant", "c", fail=True)
    out = build()
    assert "flow failed: 1 objects failed" in out
    assert "asked to fail" in out
    assert project.executed() == ["b@ant"], "retried only what may pass by itself"


def test_deployments_limit_runs_and_name_real_flows() -> None:
    """Every deployment enqueues, has a process pool, sends no telemetry and an entry point."""
    text = (ROOT / "pipelines/prefect.yaml").read_text()
    deployments = yaml.safe_load(text)["deployments"]
    assert {d["name"] for d in deployments} == {"nightly", "all", "one"}
    source = (ROOT / "pipelines/flows.py").read_text()
    for d in deployments:
        assert d["concurrency_limit"] == {"limit": 1, "collision_strategy": "ENQUEUE"}
        assert d["work_pool"]["job_variables"]["env"]["DO_NOT_TRACK"] == "1"
        assert f"def {d['entrypoint'].split(':')[1]}(" in source
    assert "cache_policy=NO_CACHE" in source
    assert source.count("@task") == 1
