"""Splitting, gsplat's strategy, relocation and pruning."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.splat.little import ball, little, same, start
from twinloop.splat import densify
from twinloop.splat.gaussians import Gaussians
from twinloop.splat.model import Model
from twinloop.splat.pictures import crops
from twinloop.splat.prune import Silhouettes
from twinloop.splat.quality import psnr_white
from twinloop.splat.surfels import Surfels
from twinloop.splat.train import TrainSettings, train


def _model(count: int = 50) -> Model[Gaussians]:
    return Model(ball(count), TrainSettings(), 0.05, 0.01, "cpu")


@settings(max_examples=20, deadline=None)
@given(st.floats(0.02, 0.98), st.integers(1, 12))
def test_relocated_copies_look_like_the_one_they_replace(opacity: float, copies: int) -> None:
    """N copies on top of one another are as opaque, and as much along a line, as one was."""
    new, scales = densify.relocation(
        torch.tensor([opacity]), torch.tensor([[0.3, 0.2]]), torch.tensor([copies])
    )
    assert 1 - (1 - float(new)) ** copies == pytest.approx(opacity, abs=1e-5)
    assert float(scales[0, 0] / scales[0, 1]) == pytest.approx(1.5, rel=1e-5)
    x = np.linspace(-8, 8, 20001) * 0.3
    one = opacity * np.exp(-0.5 * (x / 0.3) ** 2)
    each = float(new) * np.exp(-0.5 * (x / float(scales[0, 0])) ** 2)
    # (copies of the paper add up front to back with the displacement integrated for each order)
    together = 1 - (1 - each) ** copies
    assert np.trapezoid(together, x) == pytest.approx(np.trapezoid(one, x), rel=2e-3)


def test_split_halves_are_as_opaque_and_within_budget() -> None:
    """Those under most pressure split; opacity, count and moments fit; the dropped are gone."""
    model = _model()
    before = {k: v.detach().clone() for k, v in model.free.items()}
    pressure = torch.arange(50.0)
    keep = torch.ones(50, dtype=torch.bool)
    keep[:5] = False
    keep[49] = False
    densify.split(model, pressure, keep, 0.2, 52, torch.Generator().manual_seed(0))
    assert len(model) == 52  # 44 stay, 8 of the 10 asked for fit the budget
    opacity = torch.sigmoid(model.free["opacities"].detach())
    whole = 1 - (1 - opacity[-8:]) ** 2
    np.testing.assert_allclose(whole, torch.sigmoid(before["opacities"][41:49].flip(0)), atol=1e-5)
    middle = (model.free["means"][36:44].flip(0) + model.free["means"][44:]) / 2
    np.testing.assert_allclose(middle.detach(), before["means"][41:49].flip(0), atol=1e-7)
    assert all(len(m) == 52 for m in model.adam.first.values())
    shrunk = model.free["scales"][-8:].detach().exp() * densify.SHRINK
    np.testing.assert_allclose(shrunk, before["scales"][41:49].flip(0).exp(), rtol=1e-5)


def test_noise_moves_only_faint_gaussians_and_along_their_shape() -> None:
    """Opaque ones stay; faint ones move by covariance times noise."""
    model = _model(4000)
    with torch.no_grad():
        model.free["opacities"][:2000] = -9.0
        model.free["scales"][:, 2] -= 2.0
        before = model.free["means"].clone()
        densify.shake(model, 10.0, torch.Generator().manual_seed(0))
        moved = (model.free["means"] - before).numpy()
        scale = model.free["scales"].exp().numpy()
    assert np.abs(moved[2000:]).max() < 1e-7
    weight = 1 / (1 + np.exp(-100 * (1 - 1 / (1 + np.exp(9.0)) - 0.995)))
    for axis in range(3):
        expected = 10 * scale[0, axis] ** 2 * weight
        assert moved[:2000, axis].std() == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize("way", ["split", "default", "mcmc"])
def test_every_way_grows_to_its_budget_and_repeats(way: str) -> None:
    """Each strategy adds Gaussians, keeps the budget, gives the same bits, gains PSNR."""
    _, views, unseen = little()
    begin = start(60)
    chosen = TrainSettings(
        iterations=90,
        densify=way,
        densify_times=3,
        most=80,
        grow_gradient=1e-6,
        densify_share=0.2,
        largest=1.0,
    )
    torch.manual_seed(1)
    first = train(begin, views, chosen)
    torch.manual_seed(2)  # the global generator must not matter
    state = torch.random.get_rng_state()
    assert same(first, train(begin, views, chosen))
    assert torch.equal(state, torch.random.get_rng_state())
    assert 60 < len(first) <= 80
    grown, plain = psnr_white(first, unseen), psnr_white(begin, unseen)
    assert np.mean(grown) > np.mean(plain) + 2


def test_default_strategy_grows_surfels_too() -> None:
    """Their gradient in the image has another name; gsplat wants three scales, two come out."""
    flat = start(40)
    surfels = Surfels(
        flat.means, flat.quaternions, flat.scales[:, :2].copy(), flat.opacities, flat.sh
    )
    out = train(
        surfels,
        little()[1],
        TrainSettings(
            iterations=20,
            densify="default",
            densify_times=2,
            grow_gradient=1e-7,
            most=60,
            largest=1.0,
        ),
    )
    assert 40 < len(out) <= 60
    assert isinstance(out, Surfels)
    assert out.scales.shape == (len(out), 2)
    assert np.isfinite(out.scales).all()


def test_outside_judges_by_mask_and_by_frame() -> None:
    """Points in the object stay; beside it, behind the cameras, or in few frames they go."""
    _, views, _ = little()
    judge = Silhouettes(crops(views))
    points = torch.tensor([[0.0, 0, 0], [0.03, 0.0, 0.02], [0, 0, 0.2], [0.5, 0, 0], [0, 0, -0.5]])
    assert judge.outside(points).tolist() == [False, False, True, True, True]


def test_floaters_outside_the_crops_must_be_pruned() -> None:
    """Gaussians that no crop shows are seen by no loss; whole unseen pictures suffer by 5 dB."""
    _, views, unseen = little()
    begin = start(150)
    random = np.random.default_rng(3)
    far = random.normal(size=(150, 3))
    far *= 0.1 / np.linalg.norm(far, axis=1, keepdims=True)
    both = Gaussians(
        np.concatenate([begin.means, far.astype(np.float32)]),
        *(
            np.concatenate([getattr(begin, n)] * 2)
            for n in ("quaternions", "scales", "opacities", "sh")
        ),
    )
    chosen = TrainSettings(iterations=60, densify_times=2, most=300, densify_share=0.0)
    pruned = np.mean(psnr_white(train(both, views, chosen), unseen))
    kept = np.mean(psnr_white(train(both, views, replace(chosen, prune_outside=False)), unseen))
    assert pruned > kept + 5
