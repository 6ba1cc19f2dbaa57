"""Which first-party files can a result depend on? Read from syntax trees, nothing is imported.

DVC reruns a stage when a file it lists has changed; a file it should list but does not is a wrong
cache hit. So the list is computed: every file that the stage's modules import, directly or through
others, and every data file those modules declare in ``DATA_FILES``.

What counts as an import:

* ``import`` and ``from ... import`` anywhere in the file (in functions too), absolute or relative,
  except under ``if TYPE_CHECKING:``, which never runs;
* ``importlib.import_module("a.b")``; with an f-string, every module that the pattern matches
  (``f"stages.{name}.run"`` means the stage at hand); anything else is reported as a fault, except
  in ``twinloop/extras.py``, which imports optional libraries and refuses first-party names;
* ``["...", "-m", "a.b"]``: a module started in a process of its own.

An ``__init__.py`` that holds only a docstring cannot change a result and is not listed.
``twinloop/__init__.py`` hands out public names when a program asks for them: it is listed, but what
it could import is not followed, since no first-party module may ask (a test sees to it).
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

FIRST_PARTY = ("stages", "twinloop", "pipelines")
"""Top folders whose files are dependencies; everything else is a library."""

LIBRARIES_ONLY = "twinloop/extras.py"
"""Imports by a name known at run time, but never a first-party module: it says so itself."""

PUBLIC = "twinloop/__init__.py"
"""The library's public names, loaded when they are asked for from outside."""

DATA_NAME = "DATA_FILES"
"""Module constant: the data files a module reads, relative to its folder, globs allowed."""

NOT_DATA = {".py", ".pyc", ".md", ".typed", ".pyi"}
"""Suffixes of files in a package that no computation reads."""

Target = tuple[str, ...]
"""Parts of a module name; "*" stands for a part known only at run time."""


@dataclass(frozen=True)
class Closure:
    """Files that one entry point can depend on.

    ``files`` are sorted paths relative to the root, with ``/`` between parts; ``faults`` are
    sentences about what could not be followed: the closure is sound only when there are none.
    """

    files: tuple[str, ...]
    faults: tuple[str, ...] = ()


@dataclass(frozen=True)
class Source:
    """What one file says about its dependencies."""

    targets: tuple[Target, ...]
    patterns: tuple[tuple[int, str], ...]
    faults: tuple[str, ...]
    only_docstring: bool


def closure(root: Path, entries: list[Path], stage: str = "") -> Closure:
    """Collect the files that ``entries`` can depend on, themselves included.

    Args:
        root: Project root, the folder that holds ``stages`` and ``twinloop``.
        entries: Python files that the stage's command runs.
        stage: Name that ``stages.*`` patterns stand for.
    """
    todo = list(entries)
    seen: set[Path] = set()
    files: set[str] = set()
    faults: list[str] = []
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        name = path.relative_to(root).as_posix()
        source = read_source(path, root)
        if name == PUBLIC:
            if not source.only_docstring:
                files.add(name)
            continue
        faults += [f"{name}: {fault}" for fault in source.faults]
        if not (path.name == "__init__.py" and source.only_docstring):
            files.add(name)
        data, data_faults = data_files(path, root, source)
        files.update(data)
        faults += [f"{name}: {fault}" for fault in data_faults]
        todo += parents(path, root)
        for target in source.targets:
            todo += resolve(target, root, stage)
    return Closure(tuple(sorted(files)), tuple(sorted(faults)))


def resolve(target: Target, root: Path, stage: str = "") -> list[Path]:
    """Files that importing ``target`` runs: packages on the way and the module itself."""
    if target[0] not in FIRST_PARTY:
        return []
    if target[0] == "stages" and target[1:2] == ("*",):
        target = ("stages", stage or "*", *target[2:])
    found: list[Path] = []
    for length in range(1, len(target) + 1):
        pattern = "/".join(target[:length])
        found += sorted(root.glob(f"{pattern}.py")) + sorted(root.glob(f"{pattern}/__init__.py"))
    return found


def parents(path: Path, root: Path) -> list[Path]:
    """``__init__.py`` of every package around ``path``: they run before the module does."""
    folders = [f for f in path.parents if f != root and root in f.parents]
    return [f / "__init__.py" for f in folders if (f / "__init__.py").is_file()]


def read_source(path: Path, root: Path) -> Source:
    """Read the imports and data files of one Python file.

    Results are kept per path, size and time of change: hundreds of closures share their files.
    """
    stat = path.stat()
    return _read_source(path, root, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=4096)
def _read_source(path: Path, root: Path, _mtime: int, _size: int) -> Source:
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    except SyntaxError as error:
        fault = f"line {error.lineno}: syntax error, so its imports are unknown"
        return Source((), (), (fault,), only_docstring=False)
    package = path.relative_to(root).parent.parts
    targets: list[Target] = []
    faults: list[str] = []
    for node in _running_nodes(tree):
        if isinstance(node, ast.Import):
            targets += [tuple(alias.name.split(".")) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            targets += _from_targets(node, package)
        elif isinstance(node, ast.Call) and _called(node) in ("import_module", "__import__"):
            target = _pattern(node.args[0]) if node.args else None
            if path.relative_to(root).as_posix() == LIBRARIES_ONLY:
                continue
            if target is None or target[0] == "*":
                faults.append(
                    f"line {node.lineno}: imports a module whose name is only known at run time; "
                    "write the name, or an f-string that begins with its package."
                )
            else:
                targets.append(target)
        elif isinstance(node, ast.List | ast.Tuple | ast.Call):
            targets += _started_modules(node.args if isinstance(node, ast.Call) else node.elts)
    patterns, pattern_faults = _data_patterns(tree)
    return Source(
        tuple(dict.fromkeys(targets)),
        tuple(patterns),
        (*faults, *pattern_faults),
        only_docstring=all(_is_docstring(node) for node in tree.body),
    )


def _running_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes except the body of ``if TYPE_CHECKING:``."""
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        yield node
        if isinstance(node, ast.If) and _name(node.test) == "TYPE_CHECKING":
            todo += node.orelse
        else:
            todo += ast.iter_child_nodes(node)


def _from_targets(node: ast.ImportFrom, package: tuple[str, ...]) -> list[Target]:
    base = package[: len(package) - node.level + 1] if node.level else ()
    module = (*base, *(node.module.split(".") if node.module else ()))
    if not module:
        return []
    # A name may be a module or an attribute of one; what is no file is dropped later.
    # `from x import *` can only bring names, and submodules that x/__init__.py imports itself.
    return [module, *((*module, alias.name) for alias in node.names if alias.name != "*")]


def _started_modules(elements: list[ast.expr]) -> list[Target]:
    found: list[Target] = []
    for flag, value in itertools.pairwise(elements):
        if isinstance(flag, ast.Constant) and flag.value == "-m":
            target = _pattern(value)
            if target and target[0] != "*":
                found += [target, (*target, "__main__")]
    return found


def _pattern(node: ast.expr) -> Target | None:
    """Module name of a literal or f-string, with "*" for its unknown parts; None if neither."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        text = node.value
    elif isinstance(node, ast.JoinedStr):
        pieces = [p.value if isinstance(p, ast.Constant) else "*" for p in node.values]
        text = "".join(str(piece) for piece in pieces)
    else:
        return None
    return tuple(text.split(".")) if text else None


def _called(node: ast.Call) -> str:
    return _name(node.func)


def _name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _data_patterns(tree: ast.Module) -> tuple[list[tuple[int, str]], list[str]]:
    """Line and text of each entry of ``DATA_FILES``, and what is wrong with its form."""
    found: list[tuple[int, str]] = []
    faults: list[str] = []
    for node in tree.body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        names = node.targets if isinstance(node, ast.Assign) else [node.target]
        if DATA_NAME not in map(_name, names):
            continue
        try:
            patterns = ast.literal_eval(node.value)
        except ValueError:
            patterns = None
        if isinstance(patterns, tuple) and all(isinstance(p, str) for p in patterns):
            found += [(node.lineno, pattern) for pattern in patterns]
        else:
            faults.append(f"line {node.lineno}: {DATA_NAME} must be a literal tuple of strings.")
    return found, faults


def data_files(path: Path, root: Path, source: Source) -> tuple[list[str], list[str]]:
    """Files that the ``DATA_FILES`` of ``path`` match now, and the entries that match none."""
    found: set[str] = set()
    faults: list[str] = []
    for line, pattern in source.patterns:
        folder, parts = path.parent, Path(pattern).parts
        while parts[:1] == ("..",):
            folder, parts = folder.parent, parts[1:]
        matches = [m for m in folder.glob("/".join(parts)) if m.is_file()]
        if not matches:
            faults.append(f"line {line}: {DATA_NAME} entry {pattern!r} matches no file.")
        found.update(m.relative_to(root).as_posix() for m in matches)
    return sorted(found), faults


def unclaimed_data(root: Path) -> list[str]:
    """Data files inside the packages that no module declares: no stage could depend on them."""
    claimed: set[str] = set()
    data: set[str] = set()
    for top in ("stages", "twinloop"):
        for path in sorted((root / top).rglob("*")):
            if not path.is_file() or "__pycache__" in path.parts or path.name.startswith("."):
                continue
            if path.suffix == ".py":
                claimed.update(data_files(path, root, read_source(path, root))[0])
            elif path.suffix not in NOT_DATA:
                data.add(path.relative_to(root).as_posix())
    return sorted(data - claimed)
