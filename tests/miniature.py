"""A project of three trivial stages and three objects: the fast test bed of the executor.

Stages a -> b -> c copy text; each run is noted in a journal outside the project, so that tests can
count executions. Overrides in object.yaml make a stage fail, sleep or fill the disk.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from pipelines.process import environment

OBJECTS = ("ant", "bee", "cow")

STAGE = '''"""Stage of the miniature project."""
import os, sys, time
from pathlib import Path
import yaml
from stages.common import note
from stages.{stage}.word import WORD

def main(name):
    folder = Path("datasets") / name
    params = yaml.safe_load(Path("params.yaml").read_text())["{stage}"]
    override = yaml.safe_load((folder / "object.yaml").read_text())["overrides"]["{stage}"]
    params |= override
    state = folder / ".work/{stage}/state"
    if state.is_file():
        note("resume", "{stage}", name)
        state.unlink()
    if params.get("sleep"):
        state.parent.mkdir(parents=True, exist_ok=True)
        state.write_text("half way")
    note("begin", "{stage}", name)
    time.sleep(params.get("sleep", 0))
    if params.get("fail"):
        sys.exit("error: {stage}@" + name + ": asked to fail; set fail to false")
    if params.get("full"):
        Path("/dev/full").write_text("x" * 100000)
    source = folder / "{source}"
    text = source.read_text() + WORD + str(params["n"]) + " "
    out = folder / "{stage}.zarr"
    out.mkdir(exist_ok=True)
    (out / "data.txt").write_text(text)
    for where in ("metrics", "plots/{stage}", "provenance"):
        (folder / where).mkdir(parents=True, exist_ok=True)
    (folder / "metrics/{stage}.json").write_text('{{"length": ' + str(len(text)) + "}}")
    (folder / "plots/{stage}/figure.png").write_text("picture of " + text)
    (folder / "provenance/{stage}.json").write_text('{{"seconds": 1}}')
    note("end", "{stage}", name)

main(sys.argv[1])
'''

COMMON = '''"""Shared by the miniature stages."""
import os
from pathlib import Path

def note(what, stage, name):
    with open(os.environ["MINIATURE_JOURNAL"], "a") as stream:
        stream.write(f"{what} {stage}@{name} {Path(__file__).parent.parent}\\n")
'''

BLOCK = """  {stage}:
    foreach: ${{objects}}
    do:
      cmd: python -m stages.{stage} ${{item}}
      deps:
        - stages/{stage}/__main__.py
        - stages/{stage}/word.py
        - stages/common.py
        - datasets/${{item}}/{source}
      params:
        - {stage}
        - datasets/${{item}}/object.yaml:
            - overrides.{stage}
      outs:
        - datasets/${{item}}/{stage}.zarr
      metrics:
        - datasets/${{item}}/metrics/{stage}.json:
            cache: false
      plots:
        - datasets/${{item}}/plots/{stage}:
            cache: false
"""

CARD = "name: {name}\nlicense: CC0-1.0\noverrides:\n  a: {{}}\n  b: {{}}\n  c: {{}}\n"

IGNORED = """/datasets/*/*.zarr/
/datasets/*/raw/scan/
/datasets/*/.*/
/datasets/*/provenance/
/logs/
/.dvc-remote/
__pycache__/
"""

CONFIG = """[core]
    analytics = false
    autostage = false
    remote = local
[cache]
    type = "reflink,hardlink,symlink,copy"
['remote "local"']
    url = ../.dvc-remote
"""


@dataclass
class Miniature:
    """A miniature project on disk."""

    root: Path
    journal: Path

    def run(self, *args: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        """Run a command in the project; ``python`` means this interpreter."""
        words = [sys.executable if a == "python" else a for a in args]
        done = subprocess.run(
            words,
            cwd=self.root,
            env=self.environment(),
            text=True,
            capture_output=True,
            check=False,
        )
        assert code is None or done.returncode == code, done.stdout + done.stderr
        return done

    def environment(self) -> dict[str, str]:
        """Environment in which ``python -m pipelines`` works and stages find the journal."""
        here = str(Path(__file__).resolve().parents[1])
        extra = {"MINIATURE_JOURNAL": str(self.journal), "PYTHONPATH": here, "COLUMNS": "200"}
        return environment(extra)

    def dvc(self, *args: str) -> str:
        """Run DVC and return what it printed."""
        return self.run("python", "-m", "dvc", *args).stdout

    def executed(self) -> list[str]:
        """``stage@object`` of each execution that came to its end, since the last call."""
        if not self.journal.is_file():
            return []
        lines = self.journal.read_text().splitlines()
        self.journal.write_text("")
        return sorted(line.split()[1] for line in lines if line.startswith("end "))

    def override(self, name: str, stage: str, **values: object) -> None:
        """Set overrides of one stage of one object."""
        card = self.root / "datasets" / name / "object.yaml"
        text = ", ".join(f"{k}: {str(v).lower()}" for k, v in values.items())
        lines = card.read_text().splitlines()
        lines = [f"  {stage}: {{{text}}}" if x.startswith(f"  {stage}:") else x for x in lines]
        card.write_text("\n".join(lines) + "\n")

    def edit(self, path: str, old: str, new: str) -> None:
        """Replace text in a file that must hold it."""
        text = (self.root / path).read_text()
        assert old in text, (path, old)
        (self.root / path).write_text(text.replace(old, new))

    def text(self, path: str) -> str:
        """Content of a file."""
        return (self.root / path).read_text()


def create(root: Path, objects: tuple[str, ...] = OBJECTS) -> Miniature:
    """Write the project, make it a git and DVC repository, and commit it."""
    project = Miniature(root, root.parent / f"{root.name}.journal")
    write(root / "stages/__init__.py", '"""Stages."""\n')
    write(root / "stages/common.py", COMMON)
    sources = {"a": "raw/scan/words.txt", "b": "a.zarr/data.txt", "c": "b.zarr/data.txt"}
    graph = "# The miniature graph.\nvars:\n  - datasets/objects.yaml\nstages:\n"
    for stage, source in sources.items():
        write(root / f"stages/{stage}/__main__.py", STAGE.format(stage=stage, source=source))
        write(root / f"stages/{stage}/word.py", f'WORD = "{stage}"\n')
        graph += BLOCK.format(stage=stage, source=source.rsplit("/", 1)[0])
    write(root / "dvc.yaml", graph)
    write(root / "params.yaml", "a: {n: 1}\nb: {n: 1}\nc: {n: 1, small: 1.0e-05}\n")
    write(root / "datasets/objects.yaml", f"objects: [{', '.join(objects)}]\n")
    write(root / ".gitignore", IGNORED)
    for name in objects:
        write(root / f"datasets/{name}/object.yaml", CARD.format(name=name))
        write(root / f"datasets/{name}/raw/scan/words.txt", f"{name} ")
    project.run("git", "init", "-q", "-b", "main")
    project.run("git", "config", "user.email", "test@localhost")
    project.run("git", "config", "user.name", "test")
    project.dvc("init", "-q")
    write(root / ".dvc/config", CONFIG)
    project.dvc("add", "-q", *(f"datasets/{name}/raw/scan" for name in objects))
    project.run("git", "add", "-A")
    project.run("git", "commit", "-q", "-m", "miniature")
    return project


def copy(template: Miniature, root: Path) -> Miniature:
    """A project of its own, from a template: copying is faster than making it again."""
    shutil.copytree(template.root, root, symlinks=True)
    return Miniature(root, root.parent / f"{root.name}.journal")


def write(path: Path, text: str) -> None:
    """Write a file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
