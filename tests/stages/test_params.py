"""Parameters: order of precedence, unknown keys, wrong types, versions, each with its fix."""

from pathlib import Path

import pytest
from pydantic import Field

from stages import harness
from stages.params import StageParams, resolve
from twinloop.card import ObjectCard
from twinloop.errors import MachineError, ParamsError


class Params(StageParams):
    """Parameters of an imaginary stage."""

    steps: int = Field(10, gt=0, description="Number of steps [1].")
    width: float = Field(0.1, gt=0, description="Width [m].")
    colour: str = "red"


def project(tmp_path: Path, text: str) -> Path:
    """Write params.yaml."""
    (tmp_path / "params.yaml").write_text(text)
    return tmp_path


def card(**overrides):
    """Return a card with overrides of the stage `ingest`."""
    return ObjectCard(name="mug", license="CC-BY-4.0", overrides={"ingest": overrides})


def test_precedence(tmp_path):
    """Default < stage block < profile < the object's own overrides."""
    root = project(
        tmp_path,
        "profile: smoke\ningest: {steps: 1, width: 1}\n"
        "profiles: {smoke: {ingest: {steps: 2}}, full: {ingest: {steps: 99}}}\n",
    )
    found = resolve("ingest", Params, root, card(seed=4))
    assert (found.steps, found.width, found.colour, found.seed) == (2, 1.0, "red", 4)
    assert resolve("ingest", Params, root, card(steps=3)).steps == 3


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ({"step": 3}, "did you mean: step -> steps"),
        ({"steps": "many"}, "steps: .*valid integer.*'many'"),
        ({"steps": -1}, "steps: .*greater than 0, got -1"),
    ],
)
def test_wrong_parameters_are_named(tmp_path, overrides, expected):
    """Unknown, mistyped and out-of-range values: field, value, expectation, near names."""
    root = project(tmp_path, "profile: smoke\ningest: {}\nprofiles: {smoke: {ingest: {}}}\n")
    with pytest.raises(ParamsError, match=expected):
        resolve("ingest", Params, root, card(**overrides))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "profile: smokey\nprofiles: {smoke: {}}\n",
            r"profile 'smokey', expected one of \['smoke'",
        ),
        ("profile: [\n", "not valid YAML"),
        ("- a\n", "expected a mapping, got list"),
        ("profile: smoke\nprofiles: {smoke: {ingest: 3}}\n", "expected a mapping of parameters"),
    ],
)
def test_broken_params_files_are_named(tmp_path, text, expected):
    """A wrong profile, broken YAML and wrong shapes say what they are."""
    with pytest.raises(ParamsError, match=expected):
        resolve("ingest", Params, project(tmp_path, text), card())


def test_installed_versions_must_be_the_declared_ones(tmp_path):
    """A library of another version stops the stage and names both versions and the fix."""
    (tmp_path / "dvc.yaml").write_text(
        "stages:\n  ingest:\n    do:\n      params:\n        - versions.yaml: [device, numpy]\n"
    )
    (tmp_path / "versions.yaml").write_text('device: cpu\nnumpy: "0.1"\ntorch: "0.2"\n')
    with pytest.raises(
        MachineError, match=r"(?s)numpy: declared 0\.1, installed .*--write-versions"
    ):
        harness.check_versions("ingest", tmp_path)
    import numpy

    (tmp_path / "versions.yaml").write_text(f'device: cpu\nnumpy: "{numpy.__version__}"\n')
    assert harness.check_versions("ingest", tmp_path)["numpy"] == numpy.__version__
