"""The graph of this repository and the tool that keeps its code deps right."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from pipelines.graph import (
    check_closure,
    check_names,
    read_graph,
    with_closures,
)
from tests.miniature import Miniature
from twinloop.card import STAGES
from twinloop.errors import ArtifactError, InputError

ROOT = Path(__file__).resolve().parents[2]


def test_code_deps_equal_the_import_closures() -> None:
    """The worst failure of such a framework is a wrong cache hit: no stage may miss a file."""
    faults = check_closure(read_graph(ROOT))
    assert not faults, "\n".join([*faults, "Run `python -m pipelines graph --write`."])


def test_names_agree_everywhere() -> None:
    """One word per stage in dvc.yaml, params.yaml, profiles, cards and folders."""
    graph = read_graph(ROOT)
    assert check_names(graph) == []
    assert tuple(graph.stages) == STAGES


def test_only_lab_and_evaluate_depend_on_the_truth() -> None:
    """No other stage lists lab.yaml or truth/, so nothing it makes can follow from them."""
    for stage in read_graph(ROOT).stages.values():
        secret = [d for d in stage.deps if "/truth" in d or d.endswith("lab.yaml")]
        assert not secret or stage.name in ("lab", "evaluate"), (stage.name, secret)


def test_every_stage_declares_versions_and_its_own_params() -> None:
    """A shared run-cache must never restore another version's or another device's results."""
    for stage in read_graph(ROOT).stages.values():
        keys = {file: keys for file, keys in stage.params if file != "params.yaml"}
        assert "device" in keys["versions.yaml"], stage.name
        assert keys["datasets/${item}/object.yaml"] == (f"overrides.{stage.name}",)
        own = [keys[0] for file, keys in stage.params if file == "params.yaml"]
        assert own == [stage.name, f"profiles.${{profile}}.{stage.name}"]


def test_writing_closures_changes_only_code_deps(mini: Miniature) -> None:
    """Wrong code deps are replaced, sorted, before the data; comments and all else stay."""
    path = mini.root / "dvc.yaml"
    good = path.read_text()
    raw = "        - datasets/${item}/raw/scan\n"
    bad = good.replace("        - stages/common.py\n", "").replace(
        raw, "        # the words\n" + raw + "        - stages/gone.py\n"
    )
    path.write_text(bad)
    graph = read_graph(mini.root)
    faults = check_closure(graph)
    assert "a: imported but not in deps: stages/common.py" in faults
    assert "a: in deps but not imported: stages/gone.py" in faults
    path.write_text(with_closures(graph))
    assert check_closure(read_graph(mini.root)) == []
    assert path.read_text() == good.replace(raw, "        # the words\n" + raw)


def test_the_tool_is_a_command(mini: Miniature) -> None:
    """`python -m pipelines graph` fails with 4 and reasons, `--write` mends it."""
    mini.edit("stages/b/word.py", 'WORD = "b"', 'import stages.extra\nWORD = "b"')
    (mini.root / "stages/extra.py").write_text("")
    done = mini.run("python", "-m", "pipelines", "graph", code=4)
    assert "b: imported but not in deps: stages/extra.py" in done.stderr
    mini.run("python", "-m", "pipelines", "graph", "--write", code=0)
    assert "        - stages/extra.py\n" in mini.text("dvc.yaml")


def test_a_stage_without_deps_list_is_explained(mini: Miniature) -> None:
    """The tool rewrites lists, it does not invent them."""
    mini.edit(
        "dvc.yaml",
        "      deps:\n        - stages/a/__main__.py\n",
        "      deps: []\n      x:\n        - y\n",
    )
    with pytest.raises(ArtifactError, match="stage a needs a block list"):
        with_closures(read_graph(mini.root))


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("dvc.yaml", "stages:", "stages", "is not valid YAML at line"),
        ("dvc.yaml", "cmd:", "command:", "stage a has no `cmd`"),
        ("datasets/objects.yaml", "[ant, bee, cow]", "ant", "must list names"),
    ],
)
def test_damaged_files_are_explained(
    mini: Miniature, file: str, old: str, new: str, message: str
) -> None:
    """A file that cannot be read is named, with what is wrong in it."""
    mini.edit(file, old, new)
    with pytest.raises(InputError, match=message):
        read_graph(mini.root)


def test_disagreeing_names_are_found(mini: Miniature) -> None:
    """Each kind of disagreement gets its own sentence."""
    params = yaml.safe_load(mini.text("params.yaml"))
    del params["c"]
    params["profiles"] = {"smoke": {"a": {}, "b": {}}}
    (mini.root / "params.yaml").write_text(yaml.safe_dump(params))
    mini.edit("dvc.yaml", "python -m stages.b", "python -m stages.a")
    mini.edit("datasets/objects.yaml", "ant, bee", "ant, ant, dog")
    mini.edit("datasets/ant/object.yaml", "  b: {}\n", "")
    faults = "\n".join(check_names(read_graph(mini.root)))
    for expected in (
        "c: params.yaml has no key `c`",
        "c: profile `smoke` in params.yaml has no key `c`",
        "b: its command `python -m stages.a ${item}` runs another stage",
        "datasets/objects.yaml: ant stands twice in `objects`",
        "dog: datasets/dog/object.yaml is missing",
        "ant: `overrides` in object.yaml lacks b",
    ):
        assert expected in faults
