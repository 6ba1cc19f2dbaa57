"""Commands that look at results, on the tiny object built by the real stages."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from pipelines.graph import check_names, read_graph
from tests.chain import Built, Tiny
from twinloop.card import STAGES, read_card
from twinloop.cli.main import main

pytestmark = pytest.mark.chain


@pytest.fixture(scope="session")
def shared(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """A copy that these tests may add files to."""
    return built.copy(tmp_path_factory.mktemp("results") / "project")


def call(
    project: Tiny, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], *args: str
) -> tuple[int, str, str]:
    """Run ``twinloop ARGS`` in this process; returns exit code, output and errors."""
    monkeypatch.chdir(project.root)
    monkeypatch.setattr("sys.argv", ["twinloop", *args])
    monkeypatch.setenv("COLUMNS", "200")
    capfd.readouterr()
    code: object = 0
    try:
        main()
    except SystemExit as stopped:
        code = stopped.code or 0
    shown = capfd.readouterr()
    return int(str(code)), shown.out, shown.err


def test_show_gives_a_value_and_everything_it_follows_from(
    shared: Tiny, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """mass: interval, unit, verdict; the stages before it with frames, pushes, params and code."""
    code, out, _ = call(shared, monkeypatch, capfd, "show", "tiny", "mass", "--json")
    assert code == 0
    found = json.loads(out)
    value = found["value"]
    assert value["interval"][0] <= value["value"] <= value["interval"][1]
    assert (value["unit"], value["stage"]) == ("kg", "identify")
    steps = {step["stage"]: step for step in found["trace"]}
    assert list(steps) == ["lab", "ingest", "reconstruct", "track", "push", "identify"]
    assert "frames of raw/scan" in steps["ingest"]["detail"][0]
    assert any("held out" in line for line in steps["push"]["detail"])
    assert steps["identify"]["params"]["iterations"] == 4
    assert "twinloop/physics/fit.py" in steps["identify"]["code"]
    assert steps["identify"]["versions"]["numpy"]
    lock = yaml.safe_load(shared.text("dvc.lock"))["stages"]["identify@tiny"]
    read = {d["path"]: d["md5"] for d in lock["deps"] if d["path"].startswith("datasets/")}
    assert steps["identify"]["inputs"] == read
    code, out, _ = call(shared, monkeypatch, capfd, "show", "tiny", "mass")
    assert "95 % interval" in out
    assert "reads    datasets/tiny/raw/scan" in out
    code, out, _ = call(shared, monkeypatch, capfd, "show", "tiny")
    assert "friction" in out
    code, _, err = call(shared, monkeypatch, capfd, "show", "tiny", "mas")
    assert code == 2
    assert "unknown value of tiny 'mas'. Did you mean mass" in err


def test_report_export_and_validate(
    shared: Tiny,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The report is one file; an exported twin is whole, writable and passes its own check."""
    code, out, _ = call(shared, monkeypatch, capfd, "report", "tiny")
    assert code == 0
    assert "mass" in out
    html = shared.text("datasets/tiny/report.html")
    assert "data:image/png;base64," in html
    assert "http://" not in html.replace("http://www.w3.org", "")
    target = tmp_path / "twins" / "tiny"
    code, _, err = call(shared, monkeypatch, capfd, "export", "tiny", "--to", str(target))
    assert code == 0, err
    assert (target / "twin.json").stat().st_mode & 0o200, "no read-only file of the cache"
    code, out, err = call(shared, monkeypatch, capfd, "validate", str(target), "tiny")
    assert code == 0, err
    assert "loads in MuJoCo" in out
    assert out.count("twinloop.") >= 8
    code, _, err = call(shared, monkeypatch, capfd, "export", "tiny", "--to", str(target))
    assert code == 2
    assert "exists already" in err
    packed = tmp_path / "tiny.zip"
    call(shared, monkeypatch, capfd, "export", "tiny", "--to", str(packed))
    assert "tiny/twin.json" in zipfile.ZipFile(packed).namelist()


def test_export_replaces_nothing_but_an_earlier_export(
    shared: Tiny,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """--force spares the project, cwd, home, foreign folders and files; an old export goes."""
    monkeypatch.setenv("HOME", str(tmp_path / "home/me"))
    work = tmp_path / "work"
    work.mkdir()
    (work / "thesis.txt").write_text("years")
    (tmp_path / "file").write_text("x")
    (tmp_path / "fake.zip").write_text("no zip")
    (tmp_path / "folder.zip").mkdir()
    (tmp_path / "link").symlink_to(work)
    (tmp_path / "home/me").mkdir(parents=True)
    before = sorted(p for p in shared.root.iterdir())

    def export(to: object, code: int, message: str = "") -> None:
        given = ("export", "tiny", "--force", "--to", str(to))
        found, _, err = call(shared, monkeypatch, capfd, *given)
        assert (found, message in err) == (code, True), err
        assert "Traceback" not in err

    export(".", 2, "the project")
    export("/", 2, "the project")
    export(shared.root.parent, 2, "the project")
    export("datasets/tiny/twin", 2, "part of the project")
    export(tmp_path / "home", 2, "your home folder")
    export(work, 2, "it has no twin.json")
    export(tmp_path / "link", 2, "it is a link")
    export(tmp_path / "file", 2, "is a file")
    export(tmp_path / "file/below", 2, "is a file")
    export(tmp_path / "fake.zip", 2, "it is no zip file")
    export(tmp_path / "folder.zip", 2, "is a folder")
    assert (work / "thesis.txt").read_text() == "years"
    assert sorted(p for p in shared.root.iterdir()) == before
    good = tmp_path / "good"
    export(good, 0)
    (good / "README.md").unlink(missing_ok=True)
    export(good, 0)
    (good / "notes.txt").write_text("mine")
    export(good, 2, "it also holds notes.txt")
    export(tmp_path / "good.zip", 0)
    export(tmp_path / "good.zip", 0)
    code, _, err = call(shared, monkeypatch, capfd, "report", "tiny", "-o", str(work))
    assert (code, "is a folder" in err) == (2, True)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copytree", full)
    (good / "notes.txt").unlink()
    export(good, 3, "No space left on device")
    assert (good / "twin.json").is_file()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda t: (t / "mjcf/tiny.xml").write_text("<mujoco/>"), "mjcf/tiny.xml has changed"),
        (lambda t: (t / "meshes/visual.obj").unlink(), "meshes/visual.obj is missing"),
        (lambda t: (t / "more.txt").write_text("x"), "more.txt is not listed"),
        (lambda t: (t / "twin.json").write_text("{"), "is not valid JSON"),
        (lambda t: edit_card(t, hashes={"../../secret": "0"}), "points outside the twin"),
        (lambda t: swap_model(t), "refers to '/etc/passwd', outside the twin"),
    ],
)
def test_damaged_or_hostile_twins_are_refused(
    shared: Tiny,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    damage: object,
    message: str,
) -> None:
    """Changed, missing, added files, paths that leave the folder: exit code 4 and which file."""
    target = tmp_path / "tiny"
    call(shared, monkeypatch, capfd, "export", "tiny", "--to", str(target))
    damage(target)  # type: ignore[operator]
    code, _, err = call(shared, monkeypatch, capfd, "validate", str(target))
    assert code == 4
    assert message in err


def edit_card(twin: Path, **changes: object) -> None:
    """Change ``twin.json``."""
    card = json.loads((twin / "twin.json").read_text()) | changes
    (twin / "twin.json").write_text(json.dumps(card))


def swap_model(twin: Path) -> None:
    """A model that reads a file of the system, with the hash put right."""
    import hashlib

    path = twin / "mjcf/tiny.xml"
    text = path.read_text().replace('file="visual.obj"', 'file="/etc/passwd"')
    path.write_text(text)
    hashes = json.loads((twin / "twin.json").read_text())["hashes"]
    digest = hashlib.sha256(text.encode()).hexdigest()
    edit_card(twin, hashes=hashes | {"mjcf/tiny.xml": digest})


def test_a_corrupt_store_is_explained_and_restored(
    built: Built,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Cut files and nonsense metadata: exit code 4 with the way out, which works."""
    project = built.copy(tmp_path / "project")
    store = project.root / "datasets/tiny/identify.zarr"
    meta = store / "zarr.json"
    content = meta.read_text()
    meta.unlink()  # never in place: it may be a link into the cache
    meta.write_text(content[: len(content) // 2])
    code, _, err = call(project, monkeypatch, capfd, "validate", "datasets/tiny/identify.zarr")
    assert code == 4
    assert "is damaged" in err
    assert "dvc checkout --force" in err
    code, _, err = call(project, monkeypatch, capfd, "show", "tiny", "mass")
    assert code == 4
    chunk = max(store.rglob("c/*"), key=lambda p: p.stat().st_size if p.is_file() else -1)
    chunk.unlink()
    chunk.write_bytes(b"\x00\x01")
    meta.write_text(content)
    code, _, err = call(project, monkeypatch, capfd, "validate", "datasets/tiny/identify.zarr")
    assert code == 4
    project.dvc("checkout", "--force", "datasets/tiny/identify.zarr")
    code, _, err = call(project, monkeypatch, capfd, "validate", "datasets/tiny/identify.zarr")
    assert code == 0, err


def test_a_wrong_parameter_fails_with_the_near_one(built: Built, tmp_path: Path) -> None:
    """A misspelt override reaches the user as `did you mean`, exit code 1, and names the file."""
    project = built.copy(tmp_path / "project")
    card = project.root / "datasets/tiny/object.yaml"
    content = yaml.safe_load(card.read_text())
    content["overrides"]["package"]["settle_tmie"] = 1.0
    card.write_text(yaml.safe_dump(content))
    done = project.run("python", "-m", "pipelines", "run", code=1)
    assert "package@tiny failed" in done.stderr
    assert "settle_tmie -> settle_time?" in done.stderr
    assert "object.yaml" in done.stderr


def test_no_gl_names_the_packages(built: Built) -> None:
    """Without headless OpenGL the lab stops with exit code 3 and what to install."""
    environment = built.project.environment() | {"MUJOCO_GL": "glx"}
    done = subprocess.run(
        [sys.executable, "-m", "stages.lab", "tiny"],
        cwd=built.project.root,
        env=environment,
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 3
    assert "MUJOCO_GL" in done.stderr


def test_add_makes_a_lab_object_from_a_preset(
    built: Built,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Card with every stage, recipe, both lists; the card is valid and nothing else changes."""
    project = built.copy(tmp_path / "project")
    given = ["add", "tin", "--lab", "wafer_tin", "--seed", "7", "--license", "CC0-1.0"]
    code, out, err = call(project, monkeypatch, capfd, *given)
    assert code == 0, err
    assert "twinloop run tin" in out
    graph = read_graph(project.root)
    assert check_names(graph) == []
    assert graph.lists["lab_objects"][-1] == "tin"
    card = read_card(project.root / "datasets/tin/object.yaml")
    assert (card.name, card.license, tuple(card.overrides)) == ("tin", "CC0-1.0", STAGES)
    recipe = yaml.safe_load(project.text("datasets/tin/lab.yaml"))
    assert recipe == {"preset": "wafer_tin", "seed": 7}
    code, _, err = call(project, monkeypatch, capfd, *given[:3], "waffle_tin", *given[4:])
    assert code == 2
