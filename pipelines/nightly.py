"""Build new captures on a branch of its own, without Prefect.

Everything happens in a worktree that stays under ``.dvc/tmp``: the user's files, index and branch
are never touched. The branch gets one commit a night with new objects, ``dvc.lock``, metrics and
plots; the cache is shared, so ``git merge`` and ``dvc checkout`` bring a night's work home.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pipelines import share
from pipelines.events import Emit, Event, silent
from pipelines.executor import Result
from pipelines.graph import OBJECTS_FILE, read_graph, read_yaml
from pipelines.lock import LOCK_FILE
from pipelines.objects import PARTS, NewObject, add, replace_captures, write_lists
from pipelines.process import CommandError, git
from pipelines.workspace import AUTHOR, cache_of, configure, head, remove, require_git
from twinloop.card import NAME
from twinloop.errors import InputError, TwinloopError

BRANCH = "twinloop/nightly"
FOLDER = Path(".dvc") / "tmp" / "nightly"
READY = "capture.yaml"
"""Written last into a capture's folder: before that it may still be uploading."""
TAKEN = "taken"
"""Folder of the inbox into which built captures are moved."""

Run = Callable[[Path], Result]


@dataclass
class Night:
    """What became of one night."""

    taken: list[str] = field(default_factory=list)
    """Objects whose captures were taken from the inbox."""
    refused: dict[str, str] = field(default_factory=dict)
    """Reason by folder of the inbox."""
    result: Result = field(default_factory=Result)
    commit: str = ""
    """New commit of the branch; "" when nothing changed."""
    pushed: bool = False


def spend_night(
    root: Path,
    inbox: Path,
    run: Run,
    *,
    branch: str = BRANCH,
    push: bool = True,
    emit: Emit = silent,
) -> Night:
    """Take new captures, build, commit to ``branch``, push cache and run-cache.

    Args:
        root: The user's project; only its commits are read, not its uncommitted edits.
        inbox: Folder with one folder per capture (``scan/ push/ demo/ capture.yaml``).
        run: Builds a project, for example ``run_all``.
        branch: Branch that gets the commit; it follows the user's HEAD by merging it.
        push: Push to the default DVC remote afterwards.
        emit: Receives events.
    """
    require_git(root)
    if not head(root):
        raise InputError(f"{root} has no commit yet; commit the project first.")
    night = Night()
    tree = prepare(root, branch)
    old = head(tree)
    take(tree, inbox, night, emit)
    night.result = run(tree)
    night.commit = commit(root, tree, branch, old, night)
    if push:
        share.push(tree)
        night.pushed = True
    for name in night.taken:
        if name not in night.result.failed:
            store(inbox, name)
    return night


def prepare(root: Path, branch: str) -> Path:
    """The nightly worktree, detached, at the branch with the user's HEAD merged into it."""
    tree = root / FOLDER
    base = head(root)
    tip = git(root, "rev-parse", "-q", "--verify", base if not exists(root, branch) else branch)
    try:
        git(tree, "checkout", "-q", "--force", "--detach", tip)
        git(tree, "clean", "-q", "-f", "-d")  # what a killed night left; ignored outputs stay
    except (CommandError, OSError):
        remove(root, tree)
        tree.parent.mkdir(parents=True, exist_ok=True)
        git(root, "worktree", "add", "-q", "--detach", "--force", tree, tip)
    configure(root, tree, cache_of(root))
    merge_base(tree, base)
    return tree


def exists(root: Path, branch: str) -> bool:
    """Tell whether a local branch exists."""
    return bool(git(root, "branch", "--list", branch))


def merge_base(tree: Path, base: str) -> None:
    """Merge the user's commit into the nightly worktree; the user's side wins every conflict.

    The lists of objects are united; ``dvc.lock`` may become the user's, then what it lacks is
    restored from the run-cache.
    """
    mine = read_graph(tree).lists
    try:
        ancestor = git(tree, "merge-base", "HEAD", base)
        if ancestor == base:
            return
        before = git(tree, "show", f"{ancestor}:{OBJECTS_FILE}")
    except CommandError:
        before = ""
    try:
        git(tree, "merge", "-q", "--no-edit", "-X", "theirs", base, extra=AUTHOR)
    except CommandError as error:
        conflicts = git(tree, "diff", "--name-only", "--diff-filter=U").splitlines()
        if set(conflicts) - {LOCK_FILE}:
            git(tree, "merge", "--abort")
            raise InputError(
                f"the nightly branch cannot take in {base[:10]}: conflicts in "
                f"{', '.join(conflicts)}. Merge or delete the branch by hand."
            ) from error
        git(tree, "checkout", "--theirs", LOCK_FILE)
        git(tree, "commit", "-q", "-a", "--no-edit", extra=AUTHOR)
    now = read_graph(tree).lists
    lists = {}
    for key, names in now.items():
        added = [n for n in mine.get(key, ()) if n not in names and n not in before.split()]
        here = [n for n in added if (tree / "datasets" / n / "object.yaml").is_file()]
        lists[key] = [*names, *here]
    if any(list(now[key]) != names for key, names in lists.items()):
        write_lists(tree, lists)


def take(tree: Path, inbox: Path, night: Night, emit: Emit) -> None:
    """Add each finished capture of the inbox as an object, or as a new capture of one."""
    folders = sorted(inbox.iterdir()) if inbox.is_dir() else []
    for folder in folders:
        if not folder.is_dir() or folder.name == TAKEN or folder.name.startswith("."):
            continue
        try:
            take_one(tree, folder)
            night.taken.append(folder.name)
            emit(Event(folder.name, "", "taken", message=f"capture {folder.name} taken"))
        except TwinloopError as error:
            night.refused[folder.name] = str(error)
            emit(Event(folder.name, "", "refused", message=str(error)))


def take_one(tree: Path, folder: Path) -> None:
    """Add one capture.

    Raises:
        InputError: It is not finished, not complete, or has no licence.
    """
    name = folder.name
    if not NAME.fullmatch(name):
        raise InputError(f"{name!r} cannot name an object: rename the folder in the inbox.")
    if not (folder / READY).is_file():
        raise InputError(
            f"{name}: no {READY} yet; write it last, with `license: SPDX-ID`, when all is copied."
        )
    about = read_yaml(folder / READY) or {}
    captures = {part: folder / part for part in PARTS if (folder / part).is_dir()}
    if name in read_graph(tree).objects:
        replace_captures(tree, name, captures)
        return
    if not isinstance(about, dict) or not isinstance(about.get("license"), str):
        raise InputError(f"{name}: {READY} must say `license: SPDX-ID`, for example CC-BY-4.0.")
    add(tree, NewObject(name, about["license"], captures, title=str(about.get("title", ""))))


def commit(root: Path, tree: Path, branch: str, old: str, night: Night) -> str:
    """Commit the night's work to ``branch`` and return the commit; "" when nothing changed.

    The worktree stays detached, so that the user can check the branch out.
    """
    git(tree, "add", "-A")
    if git(tree, "status", "--porcelain"):
        built = [run.name for run in night.result.runs if not run.error]
        parts = [f"built {', '.join(built)}"] if built else []
        parts += [f"failed {', '.join(night.result.failed)}"] if night.result.failed else []
        message = f"Nightly: {'; '.join(parts) or 'captures taken'}"
        git(tree, "commit", "-q", "--no-verify", "-m", message, extra=AUTHOR)
    new = head(tree)
    if new == old and exists(root, branch):
        return ""
    git(root, "update-ref", f"refs/heads/{branch}", new)
    return new if new != old else ""


def store(inbox: Path, name: str) -> None:
    """Move a built capture out of the way; an older one of the same name keeps its place."""
    target = inbox / TAKEN / time.strftime(f"{name}-%Y%m%d-%H%M%S")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(inbox / name, target)
