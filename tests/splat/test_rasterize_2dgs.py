"""The CPU rasteriser of surfels against a dense float64 reference, closed forms and gsplat."""

import numpy as np
import pytest
import torch

from twinloop.errors import InputError
from twinloop.splat import reference, reference_2dgs
from twinloop.splat.rasterize import camera_matrix
from twinloop.splat.rasterize_2dgs import rasterization_2dgs

WIDTH, HEIGHT = 70, 53
K = torch.tensor([[80.0, 0, 36], [0, 85.0, 25], [0, 0, 1]])
NAMES = ("means", "quats", "scales", "opacities", "colors", "viewmats", "Ks")
FACING = torch.tensor([[1.0, 0, 0, 0]])


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def scene(n: int, seed: int = 0, channels: int = 3) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Random surfels before a camera."""
    g = torch.Generator().manual_seed(seed)
    surfels = [
        (torch.rand(n, 3, generator=g) - 0.5) * 1.2,
        torch.randn(n, 4, generator=g),
        torch.exp(-3.0 + 0.7 * torch.randn(n, 2, generator=g)),
        0.02 + 0.97 * torch.rand(n, generator=g),
        torch.rand(n, channels, generator=g),
    ]
    view = torch.eye(4)
    view[:3, :3] = reference.rotation_matrices(torch.tensor([[0.9, 0.2, -0.3, 0.1]]))[0]
    view[2, 3] = 2.0
    return surfels, view


def compare(
    surfels: list[torch.Tensor],
    view: torch.Tensor,
    crossing: bool = True,
    filter_inv_square: float = 2.0,
    k: torch.Tensor = K,
) -> None:
    """Assert equal pictures (2e-5) and gradients (1e-4 relative) of ours and the reference."""
    ours = [t.clone().requires_grad_() for t in (*surfels, view, k)]
    exact = [t.double().clone().requires_grad_() for t in (*surfels, view, k)]
    image, alpha, normal, _, distortion, median, _ = rasterization_2dgs(
        *ours[:5],
        ours[5][None],
        ours[6][None],
        WIDTH,
        HEIGHT,
        render_mode="RGB+D",
        distloss=True,
        depth="intersection" if crossing else "center",
        filter_inv_square=filter_inv_square,
        surface_normals=False,
    )
    truth = reference_2dgs.rasterization_2dgs(
        *exact, WIDTH, HEIGHT, crossing=crossing, filter_inv_square=filter_inv_square
    )
    got = (
        image[0, ..., :-1],
        1 - alpha[0, ..., 0],
        normal[0],
        image[0, ..., -1],
        distortion[0, ..., 0],
        median[0, ..., 0],
    )
    g = torch.Generator().manual_seed(1)
    ours_sum, exact_sum = torch.zeros(()), torch.zeros((), dtype=torch.float64)
    for name, a, b in zip(truth._fields, got, truth, strict=True):
        scale = float(b.detach().abs().max().clamp_min(1))
        assert float((a - b).detach().abs().max()) < 2e-5 * scale, name
        weight = torch.randn(a.shape, generator=g)
        ours_sum = ours_sum + (a * weight).sum()
        exact_sum = exact_sum + (b * weight).sum()
    ours_sum.backward()
    exact_sum.backward()
    for name, a, b in zip(NAMES, ours, exact, strict=True):
        assert a.grad is not None
        assert b.grad is not None
        error = float((a.grad - b.grad).norm() / b.grad.norm().clamp_min(1e-9))
        assert error < 1e-4, name


@pytest.mark.parametrize("crossing", [True, False])
def test_pictures_and_gradients_equal_the_dense_reference(crossing: bool) -> None:
    """A dense random scene with early stops gives the reference's pictures and all gradients."""
    surfels, view = scene(250)
    compare(surfels, view, crossing)
    compare(surfels, view, crossing, filter_inv_square=16.0)


def test_clamped_opaque_huge_and_degenerate_surfels() -> None:
    """Opacity at the clamp, a surfel over the whole image, a needle, a point, one behind."""
    surfels, view = scene(40, seed=3)
    surfels[3][:10] = 1.0
    surfels[3][10] = 0.003
    surfels[2][11] = 3.0
    surfels[2][12] = torch.tensor([0.3, 1e-7])
    surfels[2][13] = 0.0
    surfels[0][14] = torch.tensor([0.0, 0.0, -9.0])
    surfels[2][15] = torch.tensor([2e-5, 0.4])
    compare(surfels, view)


def test_one_surfel_closed_form() -> None:
    """A surfel that faces the camera has alpha = opacity exp(-(r z / f s)^2 / 2) along a row."""
    k = camera_matrix(torch.tensor([50.0, 50.0, 20.0, 20.0]))
    view = torch.eye(4)
    view[2, 3] = 2.0
    scale = torch.tensor([[0.1, 0.2]])
    out = rasterization_2dgs(
        torch.zeros(1, 3), FACING, scale, torch.tensor([0.8]), torch.ones(1, 3), view[None],
        k[None], 41, 41, render_mode="RGB+ED",
    )  # fmt: skip
    for r in (0, 1, 3, 5):
        expected = 0.8 * np.exp(-0.5 * (r * 2 / 50 / 0.1) ** 2)
        assert float(out[1][0, 20, 20 + r, 0]) == pytest.approx(expected, abs=1e-6)
        expected = 0.8 * np.exp(-0.5 * (r * 2 / 50 / 0.2) ** 2)
        assert float(out[1][0, 20 + r, 20, 0]) == pytest.approx(expected, abs=1e-6)
    assert float(out[0][0, 20, 20, 3]) == pytest.approx(2.0, abs=1e-6)
    torch.testing.assert_close(out[2][0, 20, 20], torch.tensor([0, 0, -0.8]))


def test_faults_are_named() -> None:
    """Wrong shapes, NaN, an impossible degree and options that are not there are refused."""
    surfels, view = scene(4)
    bad = [t.clone() for t in surfels]
    bad[0][2, 1] = torch.nan
    with pytest.raises(InputError, match="means has values"):
        rasterization_2dgs(*bad, view[None], K[None], 8, 8)
    bad = list(surfels)
    bad[1] = bad[1][:, :3]
    with pytest.raises(InputError, match="quats has shape"):
        rasterization_2dgs(*bad, view[None], K[None], 8, 8)
    with pytest.raises(InputError, match="sh_degree 2"):
        rasterization_2dgs(
            *surfels[:4], torch.zeros(4, 4, 3), view[None], K[None], 8, 8, sh_degree=2
        )
    with pytest.raises(InputError, match="distloss needs depth"):
        rasterization_2dgs(*surfels, view[None], K[None], 8, 8, distloss=True)
    with pytest.raises(InputError, match="filter_inv_square is 0"):
        rasterization_2dgs(*surfels, view[None], K[None], 8, 8, filter_inv_square=0.0)
