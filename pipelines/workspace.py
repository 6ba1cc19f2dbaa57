"""A workspace per object: a git worktree of the project as it stands, cut down to that object.

Inside it plain ``dvc repro`` runs, with the project's one cache. So objects run side by side and
share neither DVC's lock nor files, and edits made meanwhile do not reach a run that has begun.
"""

from __future__ import annotations

import configparser
import json
import shutil
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from pipelines.graph import OBJECTS_FILE, Graph
from pipelines.lock import (
    LOCK_FILE,
    complete,
    outputs,
    parse_entries,
    read_entries,
    write_entries,
    write_text,
)
from pipelines.process import WORKSPACE_VARIABLE, CommandError, dvc, git, kill_orphans
from twinloop.errors import ArtifactError, InputError

FOLDER = Path(".dvc") / "tmp" / "twinloop"
"""Where workspaces stand: ignored by git, and on the cache's file system, so outputs are links."""

LARGEST_UNTRACKED = 50_000_000
"""Bytes; a larger file that neither git nor DVC knows is refused: git would have to swallow it."""

AUTHOR = {
    f"GIT_{role}_{key}": value
    for role in ("AUTHOR", "COMMITTER")
    for key, value in (("NAME", "twinloop"), ("EMAIL", "twinloop@localhost"))
}


@dataclass(frozen=True)
class Workspace:
    """Where one object is built."""

    path: Path
    object: str

    @property
    def environment(self) -> dict[str, str]:
        """Variables of every process in it.

        ``PYTHONPATH``: the worktree's code wins over an installed ``twinloop``.
        ``DVC_SITE_CACHE_DIR``: else /var/tmp fills with one database per dead worktree.
        """
        return {
            WORKSPACE_VARIABLE: str(self.path),
            "PYTHONPATH": str(self.path),
            "DVC_SITE_CACHE_DIR": str(self.path / ".dvc" / "tmp" / "site"),
        }

    def entries(self) -> dict[str, str]:
        """Lock entries of the object that stand in the workspace."""
        return of_object(read_entries(self.path / LOCK_FILE), self.object)

    def base(self) -> dict[str, str]:
        """Lock entries of the object when the workspace was made."""
        try:
            text = git(self.path, "show", f"HEAD:{LOCK_FILE}")
        except CommandError:  # no dvc.lock yet, or a workspace that was never finished
            return {}
        return of_object(parse_entries(text + "\n", self.path / LOCK_FILE), self.object)


def of_object(entries: dict[str, str], name: str) -> dict[str, str]:
    """Lock entries of one object."""
    return {key: text for key, text in entries.items() if key.endswith(f"@{name}")}


def require_git(root: Path) -> None:
    """Raise InputError unless ``root`` is the top of a git repository with DVC in it."""
    try:
        top = git(root, "rev-parse", "--show-toplevel")
    except CommandError as error:
        raise InputError(
            f"{root} is not in a git repository; run `git init && git add -A && git commit`."
        ) from error
    if Path(top).resolve() != root.resolve():
        raise InputError(f"{root} must be the top of its git repository, which is {top}.")
    if not (root / ".dvc" / "config").is_file():
        raise InputError(f"{root} has no .dvc/config; run `dvc init`.")


def snapshot(root: Path) -> str:
    """Commit object of the working tree as it stands: tracked and untracked, minus ignored files.

    Made with a temporary index: HEAD, index, stash and branches stay as they are.

    Raises:
        InputError: An untracked file is too large for git.
    """
    _refuse_large(root)
    with tempfile.TemporaryDirectory() as folder:
        index = Path(folder) / "index"
        extra = {"GIT_INDEX_FILE": str(index), **AUTHOR}
        own = root / git(root, "rev-parse", "--git-path", "index")
        if own.is_file():
            shutil.copy(own, index)  # its cached file times make `add` fast
        git(root, "add", "-A", extra=extra)
        tree = git(root, "write-tree", extra=extra)
    parent = head(root)
    parents = ["-p", parent] if parent else []
    return git(root, "commit-tree", tree, *parents, "-m", "twinloop run", extra=AUTHOR)


def head(root: Path) -> str:
    """Commit that HEAD names; "" before the first commit."""
    try:
        return git(root, "rev-parse", "--verify", "-q", "HEAD")
    except CommandError:
        return ""


def _refuse_large(root: Path) -> None:
    listed = git(root, "ls-files", "-z", "--others", "--exclude-standard")
    for name in filter(None, listed.split("\0")):
        path = root / name
        if path.is_file() and path.stat().st_size > LARGEST_UNTRACKED:
            raise InputError(
                f"{name} ({path.stat().st_size / 1e6:.0f} MB) is known neither to git nor to DVC. "
                f"Track it with `dvc add {name}` or name it in .gitignore, then run again."
            )


class Workspaces:
    """Opens and closes the workspaces of one run."""

    def __init__(self, graph: Graph, commit: str) -> None:
        """Workspaces of ``commit`` (see :func:`snapshot`)."""
        self.graph = graph
        self.commit = commit
        self.cache = cache_of(graph.root)
        self._open: set[str] = set()
        # `git worktree add` and `remove` edit .git/worktrees: one at a time, it takes 40 ms.
        self._git = threading.Lock()

    def open(self, name: str) -> Workspace:
        """Make the workspace of object ``name`` and link its inputs and outputs from the cache."""
        root = self.graph.root
        workspace = Workspace(root / FOLDER / name, name)
        if name in self._open:  # a second attempt goes on where the first one failed
            return workspace
        with self._git:
            remove(root, workspace.path)
        workspace.path.parent.mkdir(parents=True, exist_ok=True)
        bare = ("add", "-q", "--no-checkout", "--detach", "--force")
        with self._git:
            git(root, "worktree", *bare, workspace.path, self.commit)
        # Other objects' folders stay out: DVC would look after their raw files too.
        for paths in ((".", ":(exclude)datasets"), (":(glob)datasets/*", f"datasets/{name}")):
            git(workspace.path, "checkout", "-q", self.commit, "--", *paths)
        configure(root, workspace.path, self.cache)
        lists = {k: [name] if name in v else [] for k, v in self.graph.lists.items()}
        # In quotes, as JSON is: a name such as "no" stays a name.
        text = "".join(f"{key}: {json.dumps(names)}\n" for key, names in lists.items())
        write_text(workspace.path / OBJECTS_FILE, text)
        if (workspace.path / LOCK_FILE).is_file():
            write_entries(workspace.path / LOCK_FILE, workspace.entries())
        dvc(workspace.path, "checkout", "--allow-missing", extra=workspace.environment)
        carry_work(root, workspace.path, name)
        self._open.add(name)
        return workspace

    def discard(self, name: str) -> None:
        """Remove what is left of a workspace that could not be opened."""
        path = self.graph.root / FOLDER / name
        carry_work(path, self.graph.root, name)
        with self._git:
            remove(self.graph.root, path)

    def close(self, workspace: Workspace) -> None:
        """Remove a workspace; what it built is in the cache."""
        carry_work(workspace.path, self.graph.root, workspace.object)
        with self._git:
            remove(self.graph.root, workspace.path)


def cache_of(root: Path) -> Path:
    """Folder of the project's DVC cache, wherever its configuration puts it."""
    return (root / dvc(root, "cache", "dir").strip()).resolve()


def configure(root: Path, worktree: Path, cache: Path) -> None:
    """Point DVC in ``worktree`` at the project's cache and remotes; keep local settings."""
    config = configparser.ConfigParser(interpolation=None, strict=False)
    config.read(root / ".dvc" / "config.local", encoding="utf-8")
    shared = configparser.ConfigParser(interpolation=None, strict=False)
    shared.read([root / ".dvc" / "config", root / ".dvc" / "config.local"], encoding="utf-8")
    if not config.has_section("cache"):
        config.add_section("cache")
    config.set("cache", "dir", str(cache))
    for section in shared.sections():
        url = shared.get(section, "url", fallback="")
        # A relative path is meant from the project's .dvc, not from the worktree's.
        if section.startswith("'remote ") and url and "://" not in url:
            if not config.has_section(section):
                config.add_section(section)
            config.set(section, "url", str((root / ".dvc" / url).resolve()))
    with (worktree / ".dvc" / "config.local").open("w", encoding="utf-8") as stream:
        config.write(stream)


def leftovers(graph: Graph) -> list[Workspace]:
    """Workspaces of a run that was killed, with their processes stopped.

    Call it only while holding the project: then no live run owns them.
    """
    folder = graph.root / FOLDER
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    found = [Workspace(path, path.name) for path in paths if path.is_dir()]
    for workspace in found:
        kill_orphans(workspace.path)
    return found


def salvageable(graph: Graph, workspace: Workspace) -> dict[str, str]:
    """Lock entries that a killed run finished: new, whole, and naming all declared outputs."""
    try:
        entries, base = workspace.entries(), workspace.base()
    except (OSError, ValueError, ArtifactError):
        return {}
    good: dict[str, str] = {}
    for key, text in entries.items():
        stage = graph.stages.get(key.split("@")[0])
        if stage and text != base.get(key) and complete(text):
            declared = {p.replace("${item}", workspace.object) for p in stage.outs + stage.kept}
            if declared == set(outputs(text)):
                good[key] = text
    return good


def carry_work(source: Path, target: Path, name: str) -> None:
    """Move what stages that were stopped keep for their next run from one tree to another.

    It is in ``datasets/<object>/.work`` (see `stages.harness.Inputs.work`); stages themselves tell
    whether it is of use.
    """
    work = Path("datasets") / name / ".work"
    if (source / work).is_dir() and (target / work).parent.is_dir():
        shutil.rmtree(target / work, ignore_errors=True)
        (source / work).rename(target / work)


def remove(root: Path, path: Path) -> None:
    """Remove a worktree whatever its state: half made, half removed, or unknown to git."""
    if not path.exists():
        return
    try:
        git(root, "worktree", "remove", "--force", "--force", path)
    except CommandError:
        shutil.rmtree(path, ignore_errors=True)
        git(root, "worktree", "prune")
