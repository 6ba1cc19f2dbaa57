"""Training of surfels for shape: the low-pass trap, and the way from pictures to a mesh."""

from typing import Any

import numpy as np
import pytest

from tests.splat.test_tsdf import ball, depth_views
from tests.splat.textured import textured
from twinloop.errors import ParamsError
from twinloop.splat import surfel_mesh as surfel_mesh_module
from twinloop.splat.extract import ExtractSettings
from twinloop.splat.rasterize_2dgs import rasterization_2dgs
from twinloop.splat.surface import is_watertight
from twinloop.splat.surfel_losses import SurfelObjective
from twinloop.splat.surfel_mesh import SurfelMeshSettings, surfel_mesh, surfel_training
from twinloop.splat.surfels import WideFilterWarning, on_surface
from twinloop.splat.train import train
from twinloop.splat.trainer import Trainer
from twinloop.splat.tsdf import FusionSettings
from twinloop.splat.views import Views

CENTRE = np.array([0.01, -0.02, 0.2])


@pytest.fixture(scope="module")
def pictures() -> Views:
    """A textured ball in 12 pictures, 1.7 mm a pixel."""
    views, _, _ = depth_views(ball(), count=4)
    return textured(ball(), views)


def sunk(pictures: Views, factor: float) -> float:
    """How far (m) surfels that start on the true ball sink in a short training."""
    mesh = ball()
    colors = np.full((len(mesh.vertices), 3), 128, np.uint8)
    start = on_surface(mesh.vertices, mesh.faces, colors, 2500, 0, 0)
    settings = surfel_training(iterations=60, filter_last=factor, step_means=2e-3, densify_times=0)
    done = train(start, pictures, settings, objective=SurfelObjective())
    shown = done.opacities > 0.5
    return 0.04 - float(np.median(np.linalg.norm(done.means - CENTRE, axis=1)[shown]))


def test_gsplat_s_filter_sinks_surfels_and_a_narrow_one_does_not(pictures: Views) -> None:
    """The known trap: from the true surface, factor 2 sinks them far deeper than 32."""
    wide, narrow = sunk(pictures, 2.0), sunk(pictures, 32.0)
    assert wide > 4e-4
    assert narrow < 0.6 * wide


def test_pictures_become_a_closed_mesh_of_the_right_size(pictures: Views) -> None:
    """Hull, surfels, mesh: the ball's radius to 0.2 mm, an eighth of a pixel."""
    settings = SurfelMeshSettings(
        count=1200,
        resolution=40,
        stereo=None,
        training=surfel_training(iterations=60, densify_times=0),
        extract=ExtractSettings(fusion=FusionSettings(cell=1.2)),
    )
    surfels, mesh = surfel_mesh(pictures, settings)
    radius = np.linalg.norm(mesh.vertices - CENTRE, axis=1)
    assert np.abs(radius - 0.04).mean() < 2e-4
    assert abs(radius.mean() - 0.04) < 1e-4
    assert is_watertight(mesh.faces)
    assert len(surfels) > 1000


def test_settings_refuse_what_makes_no_training() -> None:
    """A filter factor under 1 is named."""
    with pytest.raises(ParamsError, match="filter_last"):
        surfel_training(filter_last=0.5)


def test_on_cuda_surfels_are_asked_for_what_gsplat_has(
    pictures: Views, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rasteriser gets centre depth and factor 2, the mesh the same factor, and a warning."""
    asked: list[dict[str, Any]] = []

    def draw(*arguments: Any, **keywords: Any) -> tuple[Any, ...]:
        asked.append(keywords)
        return rasterization_2dgs(*arguments, **keywords)

    monkeypatch.setattr("twinloop.splat.rasterize_2dgs.rasterization_2dgs", draw)
    start = on_surface(ball().vertices, ball().faces, np.zeros((10242, 3), np.uint8), 200, 0, 0)
    trainer = Trainer(start, pictures, surfel_training(), objective=SurfelObjective())
    trainer.device = "cuda"  # as far as keywords go; no card is needed for those
    for trainer.iteration in (0, 1):
        trainer.model.draw(trainer.pictures[0], 0, **trainer._keywords(0.5))
    assert [k["depth"] for k in asked] == ["center", "center"]
    assert [k["filter_inv_square"] for k in asked] == [2.0, 2.0]
    given: list[ExtractSettings] = []
    monkeypatch.setattr(surfel_mesh_module, "train", lambda made, *_, **__: made)
    monkeypatch.setattr(surfel_mesh_module, "extract_mesh", lambda *a: given.append(a[2]))
    with pytest.warns(WideFilterWarning, match="low-pass factor 2 instead of 32"):
        surfel_mesh(pictures, None, "cuda", (ball().vertices, ball().faces))
    assert given[0].filter_inv_square == 2.0
