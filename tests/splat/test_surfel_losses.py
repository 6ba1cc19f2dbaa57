"""Each term of the surfels' loss does in a training what it is for."""

import numpy as np
import pytest
import torch
import trimesh

from tests.splat.little import RADIUS, little
from twinloop.errors import InputError
from twinloop.geometry import quaternion
from twinloop.geometry.raycast import MeshRenderer
from twinloop.splat.rasterize import camera_matrix
from twinloop.splat.rasterize_2dgs import rasterization_2dgs
from twinloop.splat.surfel_losses import SurfelObjective, SurfelSettings
from twinloop.splat.surfels import Surfels, on_surface
from twinloop.splat.train import TrainSettings, train
from twinloop.splat.views import Views

SHORT = TrainSettings(iterations=80, densify_times=0, largest=1.0, filter_until=0.0)
BARE = {"normal_weight": 0.0, "opaque_weight": 0.0, "begin": 0.0, "every": 1}


@pytest.fixture(scope="module")
def tilted() -> Surfels:
    """Surfels on the ball, each tilted by some 20 degrees."""
    sphere = trimesh.creation.icosphere(3, RADIUS)
    colors = np.full((len(sphere.vertices), 3), 128, np.uint8)
    made = on_surface(sphere.vertices, sphere.faces, colors, 250, 0, 0)
    turn = quaternion.from_rotvec(np.random.default_rng(3).normal(scale=0.25, size=(250, 3)))
    turned = quaternion.multiply(turn, made.quaternions).astype(np.float32)
    return Surfels(made.means, turned, made.scales, made.opacities, made.sh)


def off(surfels: Surfels) -> float:
    """Mean angle (deg) between normals and radius, either way round."""
    radial = surfels.means / np.linalg.norm(surfels.means, axis=1, keepdims=True)
    cosine = np.abs(np.einsum("ni,ni->n", surfels.normals, radial)).clip(0, 1)
    return float(np.degrees(np.arccos(cosine)).mean())


def spread(surfels: Surfels, views: Views) -> float:
    """Mean distortion of the pictures, m."""
    size = views.mask.shape[1]
    arrays = (getattr(surfels, n) for n in ("means", "quaternions", "scales", "opacities", "sh"))
    out = rasterization_2dgs(
        *(torch.from_numpy(np.array(a)) for a in arrays),
        torch.from_numpy(views.T_camera_world.astype(np.float32)),
        camera_matrix(torch.from_numpy(views.intrinsics.astype(np.float32))),
        size,
        size,
        sh_degree=0,
        render_mode="RGB+ED",
        distloss=True,
        filter_inv_square=32.0,
    )
    return float(out[4].detach().mean())


def test_priors_turn_the_surfels(tilted: Surfels) -> None:
    """Normals of another source, here the ball's own, turn them that way."""
    _, views, _ = little()
    sphere = trimesh.creation.icosphere(4, RADIUS)
    renderer = MeshRenderer(sphere.vertices, sphere.faces)
    size = views.mask.shape[1]
    priors = {}
    for i in range(len(views)):
        hit = renderer.render(views.intrinsics[i], size, size, views.T_camera_world[i])
        priors[i] = np.where(hit.mask[..., None], hit.normal, 0).astype(np.float32)
    plain = train(tilted, views, SHORT, objective=SurfelObjective(SurfelSettings(**BARE)))
    objective = SurfelObjective(SurfelSettings(**BARE, prior_weight=10.0), priors)
    guided = train(tilted, views, SHORT, objective=objective)
    assert off(guided) < 0.9 * off(tilted)
    assert off(guided) < 0.7 * off(plain)
    wrong = SurfelObjective(SurfelSettings(**BARE), {i: p[:20] for i, p in priors.items()})
    with pytest.raises(InputError, match="normal prior of view"):
        train(tilted, views, SHORT, objective=wrong)


def test_distortion_draws_depths_together(tilted: Surfels) -> None:
    """With the term, depths along a ray spread less."""
    _, views, _ = little()
    plain, tight = (
        train(
            tilted,
            views,
            SHORT,
            objective=SurfelObjective(SurfelSettings(**BARE, distortion_weight=weight)),
        )
        for weight in (0.0, 100.0)
    )
    assert spread(tight, views) < 0.8 * spread(plain, views)


def test_consistency_smooths_the_sheet(tilted: Surfels) -> None:
    """Normals that shall be those of the depth lose some of their tilt."""
    _, views, _ = little()
    plain, smooth = (
        train(
            tilted,
            views,
            SHORT,
            objective=SurfelObjective(SurfelSettings(**{**BARE, "normal_weight": weight})),
        )
        for weight in (0.0, 0.5)
    )
    assert off(smooth) < 0.9 * off(plain)
