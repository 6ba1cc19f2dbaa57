"""Scores of pictures, LPIPS from weights on disk, starts of training, and two sets."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from tests.splat.little import RADIUS, ball, little, same, start
from twinloop.errors import InputError
from twinloop.splat.lpips import Lpips, lpips_of_environment
from twinloop.splat.quality import compare, error_image, over_white, psnr, psnr_white, score
from twinloop.splat.start import from_masks, from_points
from twinloop.splat.surfels import Surfels
from twinloop.splat.train import Step, TrainSettings, train
from twinloop.splat.train_sets import train_sets


def lpips_weights() -> dict[str, Tensor]:
    """Random weights of the right names and shapes."""
    generator = torch.Generator().manual_seed(0)
    shapes = (
        (0, 64, 3, 11),
        (3, 192, 64, 5),
        (6, 384, 192, 3),
        (8, 256, 384, 3),
        (10, 256, 256, 3),
    )
    out = {}
    for i, (at, outer, inner, kernel) in enumerate(shapes):
        spread = (inner * kernel * kernel) ** -0.5
        weight = torch.randn(outer, inner, kernel, kernel, generator=generator)
        out[f"features.{at}.weight"] = weight * spread
        out[f"features.{at}.bias"] = torch.zeros(outer)
        out[f"lin{i}.weight"] = torch.rand(outer, generator=generator)
    return out


def test_scores_of_the_truth_are_those_of_rounding() -> None:
    """The truth itself scores over 45 dB, SSIM and overlap near one; a shifted set far less."""
    truth, views, _ = little()
    rows = score(truth, views)
    assert [r.index for r in rows] == list(range(10))
    assert all(r.psnr_white > 45 for r in rows)
    assert all(r.ssim > 0.99 and r.overlap > 0.95 and r.lpips is None for r in rows)
    assert max(r.psnr_white for r in score(start(), views)) < 25


def test_white_psnr_is_over_the_whole_picture() -> None:
    """It equals the mean squared error over all pixels, outside the mask white against white."""
    truth, _, unseen = little()
    picture, shown = over_white(truth, unseen, 0)
    assert picture[0, 0].tolist() == [1, 1, 1]
    assert psnr_white(truth, unseen)[0] == pytest.approx(psnr(shown - picture))


def test_error_image_marks_what_does_not_count() -> None:
    """Grey where nothing is judged, black where there is no error."""
    truth, views, _ = little()
    judged = compare(truth, views, 0)
    image = error_image(judged)
    assert (image[~judged.judged] == 128).all()
    assert image[judged.judged].max() < 40


def test_lpips_needs_its_weights_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Zero for equal pictures, symmetric, more for more noise; no weights, no figure."""
    monkeypatch.delenv("TWINLOOP_LPIPS", raising=False)
    assert lpips_of_environment() is None
    path = tmp_path / "alex.safetensors"
    save_file(lpips_weights(), path)
    monkeypatch.setenv("TWINLOOP_LPIPS", str(path))
    lpips = lpips_of_environment()
    assert lpips is not None
    random = np.random.default_rng(0)
    a = random.uniform(size=(70, 64, 3))
    near, far = (a + s * random.normal(size=a.shape) for s in (0.02, 0.3))
    assert lpips(a, a) == 0
    assert lpips(a, near) == pytest.approx(lpips(near, a))
    assert 0 < lpips(a, near) < lpips(a, far)
    with pytest.raises(InputError, match="at least 63"):
        lpips(a[:10], a[:10])
    weights = lpips_weights()
    del weights["lin3.weight"]
    with pytest.raises(InputError, match=r"lin3\.weight is missing"):
        Lpips(weights)
    path.write_bytes(b"hello")
    with pytest.raises(InputError, match="TWINLOOP_LPIPS"):
        lpips_of_environment()


def test_starts_lie_where_the_pictures_say() -> None:
    """The hull's Gaussians lie around the sphere; points get their neighbours' width."""
    truth, views, _ = little()
    hull = from_masks(views, 400, 1, resolution=32)
    away = np.linalg.norm(hull.means, axis=1)
    assert RADIUS < np.median(away) < 1.4 * RADIUS  # the outline is that of soft Gaussians
    grid = np.stack(np.meshgrid(*[np.arange(4.0)] * 3), axis=-1).reshape(-1, 3)
    colours = np.full((64, 3), 255, np.uint8)
    points = from_points(grid, colours, 2)
    np.testing.assert_allclose(points.scales, 0.1 * 1.5 * 3**0.5, rtol=0.5)
    assert points.degree == 2
    np.testing.assert_allclose(points.sh[:, 0] * 0.28209479 + 0.5, 1.0, atol=1e-6)
    with pytest.raises(InputError, match="expected at least 4"):
        from_points(grid[:3], colours[:3])
    assert len(truth) == len(ball())


class _Nothing:
    """A geometric objective without terms."""

    def keywords(self, iteration: int, progress: float) -> dict[str, Any]:
        return {"surface_normals": False}

    def loss(self, step: Step) -> Tensor | None:
        return None


def test_joint_sets_are_one_and_disjoint_ones_do_not_touch() -> None:
    """Joint: one set of surfels. Disjoint: the appearance set is as if trained alone."""
    views = little()[1]
    begin = start(60)
    flat = Surfels(
        begin.means, begin.quaternions, begin.scales[:, :2].copy(), begin.opacities, begin.sh
    )
    settings = TrainSettings(iterations=10, densify_times=1, largest=1.0)
    joint = train_sets(begin, flat, views, settings, _Nothing(), "joint")
    assert joint.appearance is joint.shape
    two = train_sets(begin, flat, views, settings, _Nothing(), "disjoint")
    assert same(two.appearance, train(begin, views, settings))  # type: ignore[arg-type]
    assert isinstance(two.shape, Surfels)
