"""Profiles: every stage's params resolve in both, and `full` is the more thorough one."""

import importlib
from pathlib import Path

import pytest
import yaml

from stages.params import StageParams, resolve
from twinloop.card import STAGES, ObjectCard

ROOT = Path(__file__).parents[2]
CARD = ObjectCard(name="mug", license="CC0-1.0")


def resolved(stage: str, profile: str, tmp_path: Path) -> StageParams:
    """Return the params of a stage under a profile of the project's own params.yaml."""
    content = yaml.safe_load((ROOT / "params.yaml").read_text()) | {"profile": profile}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(content))
    model = importlib.import_module(f"stages.{stage}.params").Params
    return resolve(stage, model, tmp_path, CARD)


@pytest.mark.parametrize("stage", STAGES)
def test_both_profiles_are_valid(stage, tmp_path):
    """No profile names a parameter that its stage does not know, or a value out of range."""
    for profile in ("smoke", "full"):
        assert resolved(stage, profile, tmp_path).seed == 0


@pytest.mark.parametrize(
    ("stage", "more"),
    [
        ("ingest", "frames"),
        ("reconstruct", "iterations"),
        ("reconstruct", "gaussians"),
        ("track", "features"),
        ("identify", "iterations"),
        ("train", "population"),
        ("evaluate", "trials"),
    ],
)
def test_full_is_more_thorough(stage, more, tmp_path):
    """The full profile spends more where it buys accuracy."""
    smoke = getattr(resolved(stage, "smoke", tmp_path), more)
    assert getattr(resolved(stage, "full", tmp_path), more) > smoke
