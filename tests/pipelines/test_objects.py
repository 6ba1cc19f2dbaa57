"""Adding, removing and renaming objects, with real git and DVC."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from pipelines.executor import run_all
from pipelines.graph import check_names, read_graph
from pipelines.objects import NewObject, add, remove, rename, write_lists
from pipelines.reference import REFERENCE, UNITS, reference_text
from pipelines.workspace import Workspaces, snapshot
from tests.miniature import Miniature
from tests.pipelines.captures import write_capture
from twinloop.card import read_card
from twinloop.errors import InputError


def cached_files(mini: Miniature) -> int:
    """Number of files in DVC's cache."""
    return sum(1 for p in (mini.root / ".dvc/cache/files").rglob("*") if p.is_file())


def test_two_objects_share_a_capture_and_one_is_renamed_and_removed(
    mini: Miniature, tmp_path: Path
) -> None:
    """The capture is stored once; both build; a rename builds anew; a removal leaves nothing."""
    (mini.root / "datasets/objects.yaml").write_text("# The list.\nobjects:\n  - ant # first\n")
    parts = write_capture(tmp_path / "capture", "fox ")
    add(mini.root, NewObject("fox", "CC-BY-4.0", parts, title="A fox"))
    before = cached_files(mini)
    add(mini.root, NewObject("twin", "CC-BY-4.0", parts))
    assert cached_files(mini) == before, "the second object's captures are the same files"
    text = mini.text("datasets/objects.yaml")
    assert text == "# The list.\nobjects:\n  - ant # first\n  - fox\n  - twin\n"
    graph = read_graph(mini.root)
    assert check_names(graph) == []
    card = mini.root / "datasets/fox/object.yaml"
    assert "overrides:\n  a: {}\n  b: {}\n  c: {}\n" in card.read_text()
    run_all(mini.root, ["fox", "twin"])
    assert mini.executed() == [f"{s}@{n}" for s in "abc" for n in ("fox", "twin")]
    assert mini.text("datasets/twin/c.zarr/data.txt") == "fox a1 b1 c1 "
    rename(mini.root, "twin", "otter")
    assert read_graph(mini.root).objects == ("ant", "fox", "otter")
    run_all(mini.root, ["otter", "fox"])
    assert mini.executed() == ["a@otter", "b@otter", "c@otter"]
    remove(mini.root, "otter")
    assert read_graph(mini.root).objects == ("ant", "fox")
    assert "otter" not in mini.text("dvc.lock")
    assert "fox" in mini.text("dvc.lock")
    assert not (mini.root / "datasets/otter").exists()
    assert not run_all(mini.root, ["fox"]).runs


def test_the_card_of_a_new_object_can_be_read(mini: Miniature, tmp_path: Path) -> None:
    """A lab object: card with the licence as given, recipe with preset and seed, both lists."""
    (mini.root / "twinloop/lab/presets").mkdir(parents=True)
    (mini.root / "twinloop/lab/presets/tin.yaml").write_text("")
    (mini.root / "datasets/objects.yaml").write_text("objects: []\nlab_objects: []\n")
    add(mini.root, NewObject("can", "Apache-2.0", {}, "tin", 7, title='A "tin": small'))
    content = mini.text("datasets/can/object.yaml")
    # The card's stages are this project's; the real ones are checked by the model.
    plain = content[: content.index("overrides:")]
    path = tmp_path / "object.yaml"
    path.write_text(plain)
    card = read_card(path)
    assert (card.name, card.license, card.title) == ("can", "Apache-2.0", 'A "tin": small')
    assert "preset: tin\nseed: 7\n" in mini.text("datasets/can/lab.yaml")
    assert (mini.root / "datasets/can/truth/reference.yaml").is_file()
    assert read_graph(mini.root).lists == {"objects": ("can",), "lab_objects": ("can",)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "Ant"}, "'Ant' cannot name an object"),
        ({"name": "../ant"}, "cannot name an object"),
        ({"name": "ant"}, "datasets/ant exists already"),
        ({"name": "no"}, "YAML takes the word for a boolean"),
        ({"license": "my licence!"}, r"license: .*expected an SPDX identifier.*got 'my licence!'$"),
        ({"preset": "tni", "captures": {}}, "unknown lab preset 'tni'"),
    ],
)
def test_wrong_arguments_are_explained_and_change_nothing(
    mini: Miniature, tmp_path: Path, change: dict[str, object], message: str
) -> None:
    """Names, licences and presets are checked before anything is written."""
    parts = write_capture(tmp_path / "capture", "fox ")
    given = {"name": "fox", "license": "CC0-1.0", "captures": parts} | change
    with pytest.raises(InputError, match=message):
        add(mini.root, NewObject(**given))  # type: ignore[arg-type]
    assert mini.run("git", "status", "--porcelain").stdout == ""


def test_incomplete_captures_are_named_all_at_once(mini: Miniature, tmp_path: Path) -> None:
    """Each missing file gets a line; nothing is left behind."""
    parts = write_capture(tmp_path / "capture", "fox ")
    (parts["scan"] / "board.yaml").unlink()
    (parts["demo"] / "hand.npz").unlink()
    with pytest.raises(InputError) as error:
        add(mini.root, NewObject("fox", "CC0-1.0", parts))
    assert "board.yaml is missing" in str(error.value)
    assert "hand.npz is missing" in str(error.value)
    assert not (mini.root / "datasets/fox").exists()


def test_a_push_without_log_is_named(mini: Miniature, tmp_path: Path) -> None:
    """Pushes are looked at one by one; a name may not leave the folder."""
    parts = write_capture(tmp_path / "capture", "fox ")
    (parts["push"] / "push_000/robot.csv").unlink()
    with pytest.raises(InputError, match=r"robot.mcap, robot.csv, .* or robot is missing"):
        add(mini.root, NewObject("fox", "CC0-1.0", parts))
    (parts["push"] / "pushes.yaml").write_text("pushes:\n  - {name: ../../x}\n")
    with pytest.raises(InputError, match="has no valid `name`"):
        add(mini.root, NewObject("fox", "CC0-1.0", parts))


def test_the_list_keeps_its_indent_and_reads_the_same_in_yaml_1_1(mini: Miniature) -> None:
    """Adding touches one line; a name that YAML takes for a boolean is written in quotes."""
    path = mini.root / "datasets/objects.yaml"
    path.write_text("objects:\n- ant\n- bee\n")
    write_lists(mini.root, {"objects": ["ant", "bee", "no", "cow"]})
    assert path.read_text() == 'objects:\n- ant\n- bee\n- "no"\n- cow\n'
    assert yaml.safe_load(path.read_text()) == {"objects": ["ant", "bee", "no", "cow"]}


def test_a_workspace_lists_its_object_so_that_yaml_1_1_reads_it(mini: Miniature) -> None:
    """The list in a workspace is quoted too."""
    path = mini.root / "datasets/objects.yaml"
    path.write_text('objects: [ant, "no"]\n')
    mini.run("cp", "-r", "datasets/ant", "datasets/no")
    workspaces = Workspaces(read_graph(mini.root), snapshot(mini.root))
    workspace = workspaces.open("no")
    assert yaml.safe_load((workspace.path / "datasets/objects.yaml").read_text()) == {
        "objects": ["no"]
    }
    workspaces.close(workspace)


def test_a_folder_that_a_removal_left_is_named(mini: Miniature, tmp_path: Path) -> None:
    """After `remove --keep-files`, `add` says what to do with the folder."""
    remove(mini.root, "ant", keep_files=True)
    parts = write_capture(tmp_path / "capture", "fox ")
    with pytest.raises(InputError, match="delete the folder or move it away"):
        add(mini.root, NewObject("ant", "CC0-1.0", parts))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mass: 0.3\nfriktion: 0.2\n", "unknown physical value 'friktion'. Did you mean friction"),
        ("- mass\n", "expected a mapping"),
        ("mass: {value: 0.3}\n", "expected a number in kg"),
        ("mass: yes\n", "expected a number in kg"),
        ("mass: .nan\n", "expected a number in kg"),
        ("mass: [\n", "is not valid YAML at line"),
    ],
)
def test_a_wrong_reference_is_refused_when_it_is_given(
    mini: Miniature, tmp_path: Path, text: str, message: str
) -> None:
    """Names and numbers of a reference are checked before anything is written."""
    path = tmp_path / "reference.yaml"
    path.write_text(text)
    parts = write_capture(tmp_path / "capture", "fox ")
    with pytest.raises(InputError, match=message):
        add(mini.root, NewObject("fox", "CC0-1.0", parts, reference=path))
    assert not (mini.root / "datasets/fox").exists()


def test_the_template_of_a_reference_works_once_uncommented(tmp_path: Path) -> None:
    """As written it says nothing; without the # it gives the example values."""
    from stages.evaluate.run import _reference

    path = tmp_path / "reference.yaml"
    path.write_text(REFERENCE)
    assert _reference(path, list(UNITS)) == {}
    path.write_text(re.sub(r"^# (?=\w+: )", "", REFERENCE, flags=re.MULTILINE))
    assert _reference(path, list(UNITS)) == {"mass": 0.365, "friction": 0.3}
    assert reference_text(path) == path.read_text()


@pytest.mark.parametrize("action", [lambda r: remove(r, "aunt"), lambda r: rename(r, "aunt", "x")])
def test_unknown_objects_get_suggestions(mini: Miniature, action: object) -> None:
    """Removing or renaming what is not there names what is."""
    with pytest.raises(InputError, match=r"unknown object 'aunt'\. Did you mean ant"):
        action(mini.root)  # type: ignore[operator]
