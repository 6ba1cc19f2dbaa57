"""The graph in ``dvc.yaml``: read it, prove its code dependencies, rewrite them.

``python -m pipelines graph`` prints what differs, ``--write`` puts each stage's import closure into
its ``deps`` and leaves every other line of the file, comments too, as it was written.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pipelines.closure import FIRST_PARTY, Closure, closure, unclaimed_data
from twinloop.errors import ArtifactError, InputError

DVC_FILE = "dvc.yaml"
OBJECTS_FILE = "datasets/objects.yaml"
PARAMS_FILE = "params.yaml"
SAFE_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The C parser reads a lock of 100 objects in 0.3 s, the Python one in 5 s."""


@dataclass(frozen=True)
class Stage:
    """One step of the graph, as ``dvc.yaml`` declares it (``${item}`` not filled in)."""

    name: str
    over: str
    """Key of ``datasets/objects.yaml`` whose names the stage runs over; "" runs once."""
    command: str
    deps: tuple[str, ...]
    outs: tuple[str, ...]
    kept: tuple[str, ...]
    """Metrics and plots: outputs that git keeps, not DVC's cache."""
    params: tuple[tuple[str, tuple[str, ...]], ...]
    """File and keys in it."""

    @property
    def code(self) -> tuple[str, ...]:
        """The deps that are first-party code or its data files."""
        return tuple(sorted(d for d in self.deps if _is_code(d)))


@dataclass(frozen=True)
class Graph:
    """The stages of a project in the order of ``dvc.yaml``, and its lists of objects."""

    root: Path
    stages: dict[str, Stage]
    lists: dict[str, tuple[str, ...]]

    @property
    def objects(self) -> tuple[str, ...]:
        """Names of all objects."""
        return self.lists.get("objects", ())

    def stages_of(self, name: str) -> list[str]:
        """Names of the stages that run for one object, in order."""
        return [s.name for s in self.stages.values() if name in self.lists.get(s.over, ())]


def read_yaml(path: Path) -> Any:
    """Parse a YAML file with the fast safe loader.

    Raises:
        InputError: The file is missing or is not YAML; the message has the line.
    """
    try:
        return yaml.load(path.read_bytes(), Loader=SAFE_LOADER)  # noqa: S506, a safe loader
    except FileNotFoundError as error:
        raise InputError(f"{path} is missing; run this in a Twinloop project.") from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date such as 2026-13-01
        mark = getattr(error, "problem_mark", None)
        place = f" at line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", error)
        raise InputError(f"{path} is not valid YAML{place}: {problem}.") from error


def read_graph(root: Path) -> Graph:
    """Read ``dvc.yaml`` and ``datasets/objects.yaml``.

    Raises:
        InputError: One of them is missing or has the wrong form.
    """
    content = read_yaml(root / DVC_FILE)
    declared = content.get("stages") if isinstance(content, dict) else None
    if not isinstance(declared, dict):
        raise InputError(f"{root / DVC_FILE} has no `stages:` mapping.")
    stages = {name: _stage(name, body) for name, body in declared.items()}
    lists = read_yaml(root / OBJECTS_FILE) or {}
    if not isinstance(lists, dict):
        raise InputError(
            f"{root / OBJECTS_FILE}: expected a mapping such as `objects: [spam]`, "
            f"got {lists!r:.80}; `git checkout {OBJECTS_FILE}` restores the last committed one."
        )
    for key, names in lists.items():
        if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
            raise InputError(
                f"{root / OBJECTS_FILE}: `{key}` must list names, got {names!r:.200}; "
                "write `[]` for none, and quotes around words that YAML takes for something else."
            )
    return Graph(root, stages, {key: tuple(names) for key, names in lists.items()})


def stage_closure(root: Path, stage: Stage) -> Closure:
    """Files that the stage's command can depend on: what its module and its folder import."""
    words = shlex.split(stage.command)
    if "-m" not in words[:-1]:
        fault = f"command `{stage.command}` must have the form `python -m stages.{stage.name} ...`"
        return Closure((), (fault,))
    module = words[words.index("-m") + 1]
    folder = root.joinpath(*module.split("."))
    # Every module of the stage's own folder counts: the harness finds them by name.
    entries = sorted(folder.rglob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]
    missing = [p for p in entries if not p.is_file()]
    if missing or not entries:
        return Closure((), (f"module {module} of command `{stage.command}` does not exist",))
    return closure(root, entries, stage.name)


def check_closure(graph: Graph) -> list[str]:
    """Sentences about every stage whose code deps are not its import closure; [] when sound."""
    faults: list[str] = []
    for stage in graph.stages.values():
        found = stage_closure(graph.root, stage)
        faults += [f"{stage.name}: {fault}" for fault in found.faults]
        missing = sorted(set(found.files) - set(stage.code))
        extra = sorted(set(stage.code) - set(found.files))
        faults += [f"{stage.name}: imported but not in deps: {few(missing)}"] if missing else []
        faults += [f"{stage.name}: in deps but not imported: {few(extra)}"] if extra else []
    lost = unclaimed_data(graph.root)
    if lost:
        faults.append(f"no module names these data files in its DATA_FILES: {few(lost)}")
    return faults


def check_names(graph: Graph) -> list[str]:
    """Sentences about names that do not agree: one word per stage, one folder per object."""
    faults: list[str] = []
    params = read_yaml(graph.root / PARAMS_FILE) or {}
    profiles = params.get("profiles") or {}
    for name, stage in graph.stages.items():
        if f"stages.{name}" not in shlex.split(stage.command):
            faults.append(f"{name}: its command `{stage.command}` runs another stage")
        if name not in params:
            faults.append(
                f"{name}: {PARAMS_FILE} has no key `{name}` (DVC needs it, `{{}}` will do)"
            )
        for profile, body in profiles.items():
            if name not in (body or {}):
                faults.append(f"{name}: profile `{profile}` in {PARAMS_FILE} has no key `{name}`")
        for path in (*stage.deps, *stage.outs, *stage.kept):
            if Path(path).is_absolute() or ".." in Path(path).parts:
                faults.append(f"{name}: {path} must be relative and inside the project")
    stages = graph.root / "stages"
    folders = sorted(p.parent.name for p in stages.glob("*/__main__.py"))
    faults += [f"{f}: stages/{f} is not in {DVC_FILE}" for f in folders if f not in graph.stages]
    return faults + _check_objects(graph)


def _check_objects(graph: Graph) -> list[str]:
    faults: list[str] = []
    for key, names in graph.lists.items():
        faults += [f"{OBJECTS_FILE}: {n} stands twice in `{key}`" for n in _twice(names)]
        if key != "objects":
            strangers = sorted(set(names) - set(graph.objects))
            faults += [f"{OBJECTS_FILE}: {n} is in `{key}` but not in `objects`" for n in strangers]
    for name in graph.objects:
        card = graph.root / "datasets" / name / "object.yaml"
        if not card.is_file():
            faults.append(f"{name}: datasets/{name}/object.yaml is missing")
            continue
        overrides = (read_yaml(card) or {}).get("overrides")
        missing = sorted(set(graph.stages_of(name)) - set(overrides or {}))
        if missing:
            faults.append(
                f"{name}: `overrides` in object.yaml lacks {few(missing)}: `{{}}` will do"
            )
    return faults


def with_closures(graph: Graph) -> str:
    """Text of ``dvc.yaml`` with each stage's code deps replaced by its import closure.

    Only lines inside ``deps`` lists change: code first, sorted, then the other deps as they stood.
    A stage whose imports cannot all be followed is left as it is.

    Raises:
        ArtifactError: A stage has no block list ``deps``.
    """
    path = graph.root / DVC_FILE
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    edits: list[tuple[int, int, list[str]]] = []
    for name, node in _stage_nodes(text):
        found = stage_closure(graph.root, graph.stages[name])
        if found.faults:
            continue  # left as it is: `check_closure` names the faults
        deps = _child(node, "deps")
        if not isinstance(deps, yaml.SequenceNode) or deps.flow_style or not deps.value:
            raise ArtifactError(
                f"{path}: stage {name} needs a block list `deps:` with at least one `- ` entry, "
                "for example its raw input or `- stages`."
            )
        edits.append(_edit(lines, deps, list(found.files)))
    for first, last, fresh in reversed(edits):
        lines[first:last] = fresh
    return "\n".join(lines) + "\n"


def _edit(lines: list[str], deps: yaml.SequenceNode, code: list[str]) -> tuple[int, int, list[str]]:
    """First line, end line and new lines of one ``deps`` list; comments between entries stay."""
    first = deps.start_mark.line
    last = deps.value[-1].end_mark.line + 1
    dash = " " * deps.start_mark.column + "- "
    drop = {item.start_mark.line for item in deps.value if _is_code(str(item.value))}
    kept = [lines[i] for i in range(first, last) if i not in drop]
    return first, last, [dash + name for name in code] + kept


def _stage_nodes(text: str) -> list[tuple[str, yaml.Node]]:
    stages = _child(yaml.compose(text, Loader=yaml.SafeLoader), "stages")
    found = []
    for key, body in stages.value if isinstance(stages, yaml.MappingNode) else []:
        found.append((str(key.value), _child(body, "do") or body))
    return found


def _child(node: yaml.Node | None, name: str) -> yaml.Node | None:
    for key, value in node.value if isinstance(node, yaml.MappingNode) else []:
        if key.value == name:
            return value  # type: ignore[no-any-return]
    return None


def _stage(name: str, body: Any) -> Stage:
    if not isinstance(body, dict) or "cmd" not in (body.get("do") or body):
        raise InputError(f"{DVC_FILE}: stage {name} has no `cmd`.")
    do = body.get("do") or body
    over = body.get("foreach", "")
    return Stage(
        name=name,
        over=str(over).strip("${} "),
        command=str(do["cmd"]),
        deps=_paths(do.get("deps")),
        outs=_paths(do.get("outs")),
        kept=_paths(do.get("metrics")) + _paths(do.get("plots")),
        params=tuple(_param(entry) for entry in do.get("params") or ()),
    )


def _paths(entries: Any) -> tuple[str, ...]:
    """Paths of a list whose entries are ``path`` or ``path: {options}``."""
    return tuple(str(e) if isinstance(e, str) else str(next(iter(e))) for e in entries or ())


def _param(entry: Any) -> tuple[str, tuple[str, ...]]:
    if isinstance(entry, dict):
        file, keys = next(iter(entry.items()))
        return str(file), tuple(map(str, keys or ()))
    return PARAMS_FILE, (str(entry),)


def few(names: list[str], most: int = 6) -> str:
    """The first names of a list, and how many more there are."""
    more = f", and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _is_code(dep: str) -> bool:
    return dep.split("/", 1)[0] in FIRST_PARTY


def _twice(names: tuple[str, ...]) -> list[str]:
    return sorted({n for n in names if names.count(n) > 1})
