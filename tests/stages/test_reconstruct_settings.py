"""Each parameter of `reconstruct` reaches the training that it is of, and nothing else changes."""

from typing import Any

import pytest

from stages.reconstruct import run
from stages.reconstruct.params import Params
from tests.splat.little import ball, little
from twinloop.geometry.mesh import mass_properties
from twinloop.splat.hull import hull_mesh
from twinloop.splat.low_pass import LowPass
from twinloop.splat.shape import FoundShape
from twinloop.splat.surfel_losses import SurfelSettings
from twinloop.splat.surfel_mesh import surfel_training
from twinloop.splat.train_settings import TrainSettings


def appearance(params: Params, monkeypatch: pytest.MonkeyPatch) -> TrainSettings:
    """The settings that the Gaussians are trained with."""
    asked: list[TrainSettings] = []

    def train(start: Any, views: Any, settings: TrainSettings, *_: Any, **__: Any) -> Any:
        asked.append(settings)
        return ball(3)

    monkeypatch.setattr(run, "train", train)
    views = little()[1]
    vertices, faces = hull_mesh(views, 16)
    assert mass_properties(vertices, faces).volume > 0
    found = FoundShape(None, None, views)  # type: ignore[arg-type]
    run.fit_gaussians(vertices, faces, found, params, "cpu", None)  # type: ignore[arg-type]
    return asked[0]


def test_defaults_are_the_librarys(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was not a parameter before keeps its value."""
    params = Params()
    made, plain = appearance(params, monkeypatch), TrainSettings()
    for name in ("opacity_weight", "scale_weight", "low_pass"):
        assert getattr(made, name) == getattr(plain, name)
    shape = run.shape_settings(params).surfels
    assert shape.losses == SurfelSettings()
    assert shape.training == surfel_training(
        iterations=params.surfel_iterations, most=params.most_surfels, exposure=True
    )


def test_weights_and_filter_reach_their_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Opacity, scale and filter are the Gaussians'; normals and distortion the surfels'."""
    params = Params(
        opacity_weight=0.01,
        scale_weight=0.02,
        normal_weight=0.03,
        distortion_weight=4.0,
        antialiased=True,
        eps2d=0.1,
    )
    made = appearance(params, monkeypatch)
    assert (made.opacity_weight, made.scale_weight) == (0.01, 0.02)
    assert made.low_pass == run.low_pass(params) == LowPass(antialiased=True, eps2d=0.1)
    shape = run.shape_settings(params).surfels
    assert shape.losses == SurfelSettings(normal_weight=0.03, distortion_weight=4.0)
    assert shape.training == run.shape_settings(Params()).surfels.training
