"""Adding, removing and renaming objects, with real git and DVC."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.executor import run_all
from pipelines.graph import check_names, read_graph
from pipelines.objects import NewObject, add, remove, rename
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
        ({"license": "my licence!"}, "expected an SPDX identifier"),
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
    with pytest.raises(InputError, match=r"robot.mcap or robot.csv is missing"):
        add(mini.root, NewObject("fox", "CC0-1.0", parts))
    (parts["push"] / "pushes.yaml").write_text("pushes:\n  - {name: ../../x}\n")
    with pytest.raises(InputError, match="has no valid `name`"):
        add(mini.root, NewObject("fox", "CC0-1.0", parts))


@pytest.mark.parametrize("action", [lambda r: remove(r, "aunt"), lambda r: rename(r, "aunt", "x")])
def test_unknown_objects_get_suggestions(mini: Miniature, action: object) -> None:
    """Removing or renaming what is not there names what is."""
    with pytest.raises(InputError, match=r"unknown object 'aunt'\. Did you mean ant"):
        action(mini.root)  # type: ignore[operator]
