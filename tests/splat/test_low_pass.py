"""The low-pass filter of Gaussians: what it does to light, and that sets keep to theirs."""

from dataclasses import replace

import numpy as np
import pytest

from tests.splat.little import DISTANCE, ball, pictures, poses, same
from twinloop.errors import ParamsError
from twinloop.geometry import se3
from twinloop.geometry.camera import look_at
from twinloop.splat.cameras import Camera
from twinloop.splat.low_pass import PLAIN, LowPass
from twinloop.splat.quality import compare, drawn, score
from twinloop.splat.render import render
from twinloop.splat.train import TrainSettings, train

MIP = LowPass(antialiased=True)


def test_antialiased_light_of_a_small_gaussian_is_that_of_its_size() -> None:
    """A fifth of a pixel wide: what it hides is opacity * 2 pi s^2 (px^2), not a filter's width."""
    one = ball(1)
    focal, size = 96.0, 41
    sigma = 0.2 * DISTANCE / focal
    means = np.zeros((1, 3), np.float32)
    small = replace(one, means=means, scales=np.full((1, 3), sigma, np.float32))
    k = np.array([focal, focal, (size - 1) / 2, (size - 1) / 2])
    T = se3.inverse(look_at(np.array([DISTANCE, 0, 0]), np.zeros(3)))
    true = 0.9 * 2 * np.pi * 0.2**2
    light = {low: drawn(small, k, size, size, T, low_pass=low)[1].sum() for low in (PLAIN, MIP)}
    # Alpha under 1/255 is not drawn: a few hundredths of the little that there is.
    assert 0.9 * true < light[MIP] <= 1.001 * true
    assert light[PLAIN] > 7 * true
    shown = render(small, Camera(k, size, size, se3.inverse(T)), layers=(), low_pass=MIP)
    np.testing.assert_allclose(shown.alpha.sum(), light[MIP], rtol=1e-4)


def test_training_and_scores_take_the_filter() -> None:
    """Pictures of Gaussians of a third of a pixel, antialiased: training so stays at them.

    With the plain filter it makes them fainter, because it draws them too bold.
    """
    size, cameras = 40, poses(6)
    truth = ball(900)
    scales = np.full((900, 3), 0.35 * DISTANCE / (1.6 * size), np.float32)
    truth = replace(truth, scales=scales)
    plain = pictures(truth, cameras, size)
    shown = [drawn(truth, plain.intrinsics[0], size, size, T, low_pass=MIP) for T in cameras]
    image = np.stack([i / np.maximum(a, 1e-6)[..., None] for i, a in shown])
    views = replace(
        plain,
        image=np.rint(255 * image.clip(0, 1)).astype(np.uint8),
        mask=np.stack([np.rint(255 * a).astype(np.uint8) for _, a in shown]),
    )
    settings = TrainSettings(
        iterations=40, densify_times=0, largest=1.0, least_opacity=0.0, prune_outside=False
    )
    scores = {}
    for low in (MIP, PLAIN):
        made = train(truth, views, replace(settings, low_pass=low))
        rows = score(made, views, low_pass=MIP)
        scores[low] = np.mean([row.psnr for row in rows])
        assert compare(made, views, 0, low_pass=MIP).psnr == rows[0].psnr
    assert scores[MIP] > scores[PLAIN] + 3
    default = train(truth, views, settings)
    assert same(default, train(truth, views, replace(settings, low_pass=LowPass(False, 0.3))))


@pytest.mark.parametrize("eps2d", [-0.1, float("nan"), 1e9])
def test_what_is_no_filter_is_refused(eps2d: float) -> None:
    """With the value and what was expected."""
    with pytest.raises(ParamsError, match=r"eps2d is .* px\^2, expected 0 to 100"):
        LowPass(eps2d=eps2d)
