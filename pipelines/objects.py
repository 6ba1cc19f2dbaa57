"""Add, remove and rename objects: folder, card, raw captures in DVC, entry in the list."""

from __future__ import annotations

import io
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from pipelines.capture_copy import check_copy, copy_capture
from pipelines.graph import OBJECTS_FILE, Graph, read_graph, read_yaml
from pipelines.lock import LOCK_FILE, project_lock, read_entries, write_entries, write_text
from pipelines.process import dvc
from pipelines.reference import LAB_REFERENCE, REFERENCE, reference_text
from pipelines.suggest import unknown
from pipelines.workspace import require_git
from twinloop.card import NAME, ObjectCard, explain
from twinloop.errors import InputError

PARTS = ("scan", "push", "demo")
"""Folders of a capture."""

REQUIRED: dict[str, tuple[str, ...]] = {
    "scan": (),  # many formats: twinloop.capture.source looks
    "push": ("camera.yaml", "board.yaml", "robot.yaml", "pushes.yaml"),
    "demo": ("video.mp4", "camera.yaml", "board.yaml", "hand.npz", "object_motion.csv"),
}
"""Files that each folder of a capture must hold (docs/captures.md says what is in them)."""

PRESETS = Path("twinloop") / "lab" / "presets"

RESERVED = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null"))
"""Words that YAML 1.1 takes for booleans or nothing: they would not come back as names."""


@dataclass(frozen=True)
class NewObject:
    """What ``twinloop add`` was told."""

    name: str
    license: str
    captures: dict[str, Path]
    """Folder by part; empty for a lab object."""
    preset: str = ""
    """Preset of the lab; "" for a real object."""
    seed: int = 0
    title: str = ""
    reference: Path | None = None
    """YAML with known values of a real object."""


def add(root: Path, new: NewObject) -> list[str]:
    """Add an object; returns sentences about what was done.

    The entry in the list comes last: when anything fails, the project is as it was.

    Raises:
        InputError: Name taken or not allowed, unknown preset, captures that lack files, or a
            reference that is no mapping of known names to numbers.
    """
    require_git(root)
    with project_lock(root, "twinloop add"):
        graph = read_graph(root)
        _check_name(graph, new.name)
        card = _card(new, list(graph.stages))
        target = root / "datasets" / new.name
        if new.preset:
            _check_preset(root, new.preset)
        else:
            check_captures(new.captures)
        if new.preset and new.reference:
            raise InputError("--reference is for real objects: the lab makes its own truth.")
        reference = reference_text(new.reference) if new.reference else REFERENCE
        try:
            write(target / "object.yaml", card)
            if new.preset:
                write(target / "lab.yaml", _recipe(new))
                write(target / "truth" / "reference.yaml", LAB_REFERENCE)
            else:
                write(target / "truth" / "reference.yaml", reference)
                for part in PARTS:
                    copy_capture(new.captures[part], target / "raw" / part)
                dvc(root, "add", *(f"datasets/{new.name}/raw/{part}" for part in PARTS))
        except BaseException:
            shutil.rmtree(target, ignore_errors=True)
            raise
        lists = {"objects": [*graph.objects, new.name]}
        if new.preset:
            lists["lab_objects"] = [*graph.lists.get("lab_objects", ()), new.name]
        write_lists(root, lists)
    made = f"made in the lab from preset {new.preset}" if new.preset else "raw captures in DVC"
    return [
        f"datasets/{new.name}/ added ({made}).",
        f"Look at datasets/{new.name}/object.yaml, then build it: twinloop run {new.name}",
        f"Keep it: git add datasets/{new.name} {OBJECTS_FILE} && git commit",
    ]


def remove(root: Path, name: str, *, keep_files: bool = False) -> list[str]:
    """Remove an object from the lists and ``dvc.lock``, and its folder unless ``keep_files``.

    Raises:
        InputError: There is no such object.
    """
    with project_lock(root, "twinloop remove"):
        graph = read_graph(root)
        if name not in graph.objects:
            raise InputError(unknown("object", name, graph.objects))
        write_lists(root, {k: [n for n in v if n != name] for k, v in graph.lists.items()})
        _drop_entries(root, name)
        if not keep_files:
            shutil.rmtree(root / "datasets" / name)
    return [
        f"{name} removed from {OBJECTS_FILE} and {LOCK_FILE}.",
        "Its results stay in DVC's cache until `dvc gc --workspace`; until then "
        "`git checkout` and `dvc checkout` bring it back.",
    ]


def rename(root: Path, old: str, new: str) -> list[str]:
    """Rename an object: folder, card, list entries. Captures stay, results are built anew.

    Results carry the object's name in their attributes, so those of the old name do not fit.

    Raises:
        InputError: No such object, or the new name is taken or not allowed.
    """
    with project_lock(root, "twinloop rename"):
        graph = read_graph(root)
        if old not in graph.objects:
            raise InputError(unknown("object", old, graph.objects))
        _check_name(graph, new)
        folder = root / "datasets" / old
        card = folder / "object.yaml"
        content, yaml = _load(card)
        content["name"] = new
        (folder).rename(root / "datasets" / new)
        write_text(root / "datasets" / new / "object.yaml", _dump(content, yaml))
        lists = {key: [new if n == old else n for n in names] for key, names in graph.lists.items()}
        write_lists(root, lists)
        _drop_entries(root, old)
    return [
        f"{old} is now {new}; its captures moved along.",
        f"Results carry the name, so they are built anew: twinloop run {new}",
    ]


def replace_captures(root: Path, name: str, captures: dict[str, Path]) -> None:
    """Replace parts of a real object's capture, and add them to DVC.

    Raises:
        InputError: A lab object, or a part that lacks files.
    """
    from twinloop.artifacts.store import replace_tree

    with project_lock(root, "twinloop add"):
        if name in read_graph(root).lists.get("lab_objects", ()):
            raise InputError(f"{name} is a lab object: its captures are made, not taken.")
        folder = root / "datasets" / name / "raw"
        check_captures({part: folder / part for part in PARTS} | captures)
        for part, source in captures.items():
            fresh = folder / f".{part}.new"
            shutil.rmtree(fresh, ignore_errors=True)
            try:
                copy_capture(source, fresh)
                replace_tree(fresh, folder / part)
            finally:
                shutil.rmtree(fresh, ignore_errors=True)
            dvc(root, "add", f"datasets/{name}/raw/{part}")


def check_captures(captures: dict[str, Path]) -> None:
    """Check that the folders of a capture hold what the stages read; all faults at once.

    Raises:
        InputError: A folder or file is missing.
    """
    faults: list[str] = []
    for part in PARTS:
        folder = captures.get(part)
        if folder is None:
            needed = ", ".join(REQUIRED[part]) or "a video, photos or an export, and board.yaml"
            faults.append(f"--{part} is missing: a folder with {needed}")
        elif not folder.is_dir():
            faults.append(f"--{part} {folder}: not a folder")
        else:
            faults += [
                f"--{part} {folder}: {name} is missing"
                for name in REQUIRED[part]
                if not (folder / name).is_file()
            ]
    if (scan := captures.get("scan")) is not None and scan.is_dir():
        faults += _check_scan(scan)
    if not faults:
        faults += [fault for part in PARTS for fault in check_copy(captures[part])]
    if not faults:
        faults += _check_pushes(captures["push"])
    if faults:
        raise InputError(
            "the captures are not complete:\n  " + "\n  ".join(faults) + "\n"
            "docs/captures.md says what each file holds."
        )


def _check_scan(folder: Path) -> list[str]:
    # Here, not above: readers of captures load in seconds, and most commands read none.
    from twinloop.capture.source import WITHOUT_METRES, look

    try:
        kind = look(folder)
    except InputError as error:
        return [str(error)]
    if kind in WITHOUT_METRES and not any(
        (folder / n).exists() for n in ("board.yaml", "scan.yaml")
    ):
        return [
            f"--scan {folder}: board.yaml is missing, and there is no scan.yaml to say what else "
            f"gives metres to this capture ({kind})"
        ]
    return []


def _check_pushes(folder: Path) -> list[str]:
    from twinloop.capture.push_session import LOGS, PUSH_NAME

    listed = read_yaml(folder / "pushes.yaml")
    pushes = listed.get("pushes") if isinstance(listed, dict) else None
    if not isinstance(pushes, list) or not pushes:
        return [f"{folder / 'pushes.yaml'}: expected a list `pushes:` of at least one push"]
    faults: list[str] = []
    for index, push in enumerate(pushes):
        name = push.get("name") if isinstance(push, dict) else None
        if not isinstance(name, str) or not re.fullmatch(PUSH_NAME, name):
            faults.append(
                f"{folder / 'pushes.yaml'}: push {index} has no valid `name` ({name!r:.80}); "
                "expected push_ and up to 60 letters or digits"
            )
            continue
        for options in (("video.mp4",), LOGS):  # one of each is enough
            if not any((folder / name / option).exists() for option in options):
                listed_options = ", ".join(options[:-1]) + (" or " if options[1:] else "")
                faults.append(f"{folder / name}: {listed_options}{options[-1]} is missing")
    return faults


def write(path: Path, text: str) -> None:
    """Write a new file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text)


def _check_name(graph: Graph, name: str) -> None:
    if not NAME.fullmatch(name):
        raise InputError(
            f"{name!r} cannot name an object: a lower-case letter, then letters, digits or _."
        )
    if name in RESERVED:
        raise InputError(
            f"{name!r} cannot name an object: YAML takes the word for a boolean or for nothing. "
            f"Take another one, for example {name}_object."
        )
    if name in graph.objects:
        raise InputError(f"datasets/{name} exists already; `twinloop remove {name}` or rename it.")
    if (graph.root / "datasets" / name).exists():
        raise InputError(
            f"datasets/{name} exists already, though no object of that name is listed (perhaps "
            "`twinloop remove --keep-files` left it): delete the folder or move it away, or take "
            "another name."
        )


def _check_preset(root: Path, preset: str) -> None:
    known = sorted(path.stem for path in (root / PRESETS).glob("*.yaml"))
    if preset not in known:
        raise InputError(unknown("lab preset", preset, known))


def _card(new: NewObject, stages: list[str]) -> str:
    try:
        card = ObjectCard(name=new.name, license=new.license, title=new.title)
    except ValidationError as error:
        raise InputError(explain(error, "the card")) from error
    head = {"name": card.name, "title": card.title, "license": card.license}
    text = _dump(head, YAML())
    text += 'description: ""\nauthors: []\ntags: []\n'
    text += "# Parameters of single stages that differ from params.yaml, for example\n"
    text += "#   identify: {iterations: 200}\noverrides:\n"
    return text + "".join(f"  {stage}: {{}}\n" for stage in stages)


def _recipe(new: NewObject) -> str:
    return (
        "# The hidden truth: only the lab and the evaluation read it. Any field of the preset\n"
        f"# (twinloop/lab/presets/{new.preset}.yaml) may be given here again with another value.\n"
        f"preset: {new.preset}\nseed: {new.seed}\n"
    )


def write_lists(root: Path, lists: dict[str, list[str]]) -> None:
    """Put new lists into ``objects.yaml``; comments and the order of keys stay."""
    content, yaml = _load(root / OBJECTS_FILE)
    for key, names in lists.items():
        have = content.get(key)
        if have is None:
            content[key] = [_safe(name) for name in names]
            continue
        for name in [n for n in have if n not in names]:
            have.remove(name)
        for index, name in enumerate(names):
            if index >= len(have) or have[index] != name:
                have.insert(index, _safe(name))
    write_text(root / OBJECTS_FILE, _dump(content, yaml))


def _safe(name: str) -> str:
    """A name as YAML 1.1 and 1.2 both read it: in quotes where they would not."""
    return DoubleQuotedScalarString(name) if name in RESERVED else name


def _drop_entries(root: Path, name: str) -> None:
    entries = read_entries(root / LOCK_FILE)
    kept = {key: text for key, text in entries.items() if not key.endswith(f"@{name}")}
    if kept != entries:
        write_entries(root / LOCK_FILE, kept)


def _load(path: Path) -> tuple[Any, YAML]:
    text = path.read_text(encoding="utf-8")
    # As the file has it, or else the first change would move every line.
    item = re.search(r"^( *)- ", text, re.MULTILINE)
    offset = len(item[1]) if item else 2
    yaml = YAML()
    yaml.indent(mapping=2, sequence=offset + 2, offset=offset)
    yaml.width = 100
    yaml.preserve_quotes = True
    return yaml.load(text) or {}, yaml  # ruamel's round trip makes no objects of the file's choice


def _dump(content: Any, yaml: YAML) -> str:
    stream = io.StringIO()
    yaml.dump(content, stream)
    return stream.getvalue()
