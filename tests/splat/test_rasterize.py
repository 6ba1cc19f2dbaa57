"""The CPU rasteriser against a dense reference, gsplat's projection and finite differences."""

import numpy as np
import pytest
import torch

from twinloop.errors import InputError
from twinloop.splat import reference
from twinloop.splat.rasterize import camera_matrix, rasterization

WIDTH, HEIGHT = 70, 53
K = torch.tensor([[80.0, 0, 36], [0, 85.0, 25], [0, 0, 1]])
NAMES = ("means", "quats", "scales", "opacities", "colors")


def scene(n: int, seed: int = 0) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Random Gaussians before a camera."""
    g = torch.Generator().manual_seed(seed)
    gaussians = [
        (torch.rand(n, 3, generator=g) - 0.5) * 1.2,
        torch.randn(n, 4, generator=g),
        torch.exp(-3.2 + 0.7 * torch.randn(n, 3, generator=g)),
        0.02 + 0.97 * torch.rand(n, generator=g),
        torch.rand(n, 3, generator=g),
    ]
    view = torch.eye(4)
    view[:3, :3] = reference.rotation_matrices(torch.tensor([[0.9, 0.2, -0.3, 0.1]]))[0]
    view[2, 3] = 2.0
    return gaussians, view


def compare(gaussians: list[torch.Tensor], view: torch.Tensor, antialiased: bool = False) -> None:
    """Assert equal images (1e-5) and gradients (1e-4 relative) of ours and the reference."""
    ours = [t.clone().requires_grad_() for t in gaussians]
    exact = [t.double().clone().requires_grad_() for t in gaussians]
    mode = "antialiased" if antialiased else "classic"
    image, alpha, _ = rasterization(
        *ours, view[None], K[None], WIDTH, HEIGHT, render_mode="RGB+D", rasterize_mode=mode
    )
    truth, passed = reference.rasterization(
        *exact, view.double(), K.double(), WIDTH, HEIGHT, antialiased=antialiased
    )
    scale = float(truth.detach().abs().max().clamp_min(1))
    assert float((image[0] - truth).detach().abs().max()) < 1e-5 * scale
    assert float((1 - alpha[0, ..., 0] - passed).detach().abs().max()) < 1e-5
    g = torch.Generator().manual_seed(1)
    w, v = torch.randn(HEIGHT, WIDTH, 4, generator=g), torch.randn(HEIGHT, WIDTH, generator=g)
    ((image[0] * w).sum() + (alpha[0, ..., 0] * v).sum()).backward()
    ((truth * w).sum() + ((1 - passed) * v).sum()).backward()
    for name, a, b in zip(NAMES, ours, exact, strict=True):
        assert a.grad is not None
        assert b.grad is not None
        error = float((a.grad - b.grad).norm() / b.grad.norm().clamp_min(1e-12))
        assert error < 1e-4, name


@pytest.mark.parametrize("antialiased", [False, True])
def test_images_and_gradients_equal_the_dense_reference(antialiased: bool) -> None:
    """A dense random scene with early stops gives the reference's image and all its gradients."""
    gaussians, view = scene(250)
    compare(gaussians, view, antialiased)


def test_clamped_opaque_and_huge_gaussians() -> None:
    """Opacity at the clamp, a splat over the whole image, a needle, one behind the camera."""
    gaussians, view = scene(40, seed=3)
    gaussians[3][:10] = 1.0
    gaussians[3][10] = 0.003
    gaussians[2][11] = 3.0
    gaussians[2][12] = torch.tensor([0.3, 1e-5, 1e-5])
    gaussians[0][13] = torch.tensor([0.0, 0.0, -9.0])
    compare(gaussians, view)


def test_empty_image() -> None:
    """With nothing in view the image is the background and gradients are zero."""
    gaussians, view = scene(5)
    gaussians[0] = gaussians[0] + torch.tensor([50.0, 0, 0])
    ours = [t.clone().requires_grad_() for t in gaussians]
    background = torch.tensor([[0.1, 0.2, 0.3]])
    image, alpha, _ = rasterization(
        *ours, view[None], K[None], WIDTH, HEIGHT, backgrounds=background
    )
    assert float(alpha.detach().abs().max()) == 0
    torch.testing.assert_close(image[0, 5, 5].detach(), background[0])
    image.sum().backward()
    assert ours[0].grad is not None
    assert float(ours[0].grad.abs().max()) == 0


def test_one_gaussian_closed_form() -> None:
    """A round Gaussian has alpha = opacity exp(-r^2 / 2 s^2), s^2 = (f scale / z)^2 + 0.3."""
    k = camera_matrix(torch.tensor([50.0, 50.0, 20.0, 20.0]))
    _, alpha, _ = rasterization(
        torch.zeros(1, 3),
        torch.tensor([[1.0, 0, 0, 0]]),
        torch.full((1, 3), 0.1),
        torch.tensor([0.8]),
        torch.ones(1, 3),
        torch.tensor([[1.0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 2], [0, 0, 0, 1]])[None],
        k[None],
        41,
        41,
    )
    variance = (50 * 0.1 / 2) ** 2 + 0.3
    for r in (0, 1, 3, 5):
        expected = 0.8 * np.exp(-0.5 * r * r / variance)
        assert float(alpha[0, 20, 20 + r, 0]) == pytest.approx(expected, abs=1e-6)


def test_harmonics_match_gsplat_and_finite_differences() -> None:
    """Colours by direction equal gsplat's torch formula to degree 3, and so do their gradients."""
    from gsplat.cuda._torch_impl import _spherical_harmonics

    from twinloop.splat.cpu import Harmonics

    g = torch.Generator().manual_seed(2)
    means, sh = torch.randn(30, 3, generator=g), 0.4 * torch.randn(30, 16, 3, generator=g)
    eye = torch.tensor([0.3, -0.2, 0.1])
    ours = [means.clone().requires_grad_(), sh.clone().requires_grad_()]
    theirs = [means.clone().requires_grad_(), sh.clone().requires_grad_()]
    a = Harmonics.apply(ours[0], eye, ours[1])
    b = (_spherical_harmonics(3, theirs[0] - eye, theirs[1]) + 0.5).clamp_min(0)
    torch.testing.assert_close(a, b, atol=2e-6, rtol=1e-5)
    w = torch.randn(30, 3, generator=g)
    (a * w).sum().backward()
    (b * w).sum().backward()
    for x, y in zip(ours, theirs, strict=True):
        torch.testing.assert_close(x.grad, y.grad, atol=2e-5, rtol=1e-4)


def test_projection_matches_gsplat() -> None:
    """Image means, conics and depths equal gsplat's own torch projection."""
    from gsplat.cuda._torch_impl import _fully_fused_projection, _quat_scale_to_covar_preci

    from twinloop.splat.cpu import Project

    (means, quats, scales, *_), view = scene(60)
    covariance, _ = _quat_scale_to_covar_preci(quats, scales, compute_preci=False)
    _, means2d, depths, conics, _ = _fully_fused_projection(
        means, covariance, view[None], K[None], WIDTH, HEIGHT
    )
    ours = Project.apply(means, quats, scales, view, K, WIDTH, HEIGHT, 0.01, 1e10, 0.3)
    torch.testing.assert_close(ours[0], means2d[0], atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(ours[1], conics[0], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(ours[2], depths[0], atol=1e-5, rtol=1e-5)


def test_gradient_by_finite_differences() -> None:
    """The gradient of a smooth loss predicts its change along a random direction.

    To 6 %: a change moves the edge at which alpha is cut to zero, which no gradient sees.
    """
    gaussians, view = scene(60, seed=5)
    gaussians[3] = gaussians[3].clamp(0.2, 0.6)  # away from clamp and threshold

    def loss(values: list[torch.Tensor]) -> torch.Tensor:
        image, alpha, _ = rasterization(*values, view[None], K[None], WIDTH, HEIGHT)
        return (image.double() ** 2).sum() + alpha.double().sum()

    free = [t.clone().requires_grad_() for t in gaussians]
    loss(free).backward()
    g = torch.Generator().manual_seed(4)
    for i in (0, 2, 3, 4):
        direction = torch.randn(gaussians[i].shape, generator=g) * 1e-3
        ends = []
        for sign in (1, -1):
            moved = list(gaussians)
            moved[i] = moved[i] + sign * direction
            with torch.no_grad():
                ends.append(float(loss(moved)))
        gradient = free[i].grad
        assert gradient is not None
        predicted = 2 * float((gradient * direction).sum())
        assert ends[0] - ends[1] == pytest.approx(predicted, rel=0.06, abs=2e-3), NAMES[i]


def test_many_channels_equal_passes_of_few() -> None:
    """Seven feature channels give what each gives alone, in image and gradient."""
    gaussians, view = scene(80)
    g = torch.Generator().manual_seed(6)
    features = torch.rand(80, 7, generator=g)
    wide = features.clone().requires_grad_()
    image, _, _ = rasterization(*gaussians[:4], wide, view[None], K[None], WIDTH, HEIGHT)
    w = torch.randn(HEIGHT, WIDTH, 7, generator=g)
    (image[0] * w).sum().backward()
    one = features[:, 5:6].clone().requires_grad_()
    single, _, _ = rasterization(*gaussians[:4], one, view[None], K[None], WIDTH, HEIGHT)
    (single[0] * w[..., 5:6]).sum().backward()
    torch.testing.assert_close(image[0, ..., 5], single[0, ..., 0])
    assert wide.grad is not None
    assert one.grad is not None
    torch.testing.assert_close(wide.grad[:, 5], one.grad[:, 0])


def test_same_bits_every_time() -> None:
    """Two evaluations of image and gradients are equal bit for bit, tiles on several threads."""
    results = []
    for _ in range(2):
        gaussians, view = scene(300)
        free = [t.requires_grad_() for t in gaussians]
        image, alpha, _ = rasterization(*free, view[None], K[None], WIDTH, HEIGHT)
        (image.sum() + alpha.square().sum()).backward()
        results.append([image.detach(), *(t.grad for t in free)])
    for a, b in zip(*results, strict=True):
        assert a is not None
        assert torch.equal(a, b)


def test_faults_are_named() -> None:
    """Wrong shapes, NaN and an impossible degree are refused by name."""
    gaussians, view = scene(4)
    bad = list(gaussians)
    bad[0] = bad[0].clone()
    bad[0][2, 1] = torch.nan
    with pytest.raises(InputError, match="means has values"):
        rasterization(*bad, view[None], K[None], 8, 8)
    bad = list(gaussians)
    bad[1] = bad[1][:, :3]
    with pytest.raises(InputError, match="quats has shape"):
        rasterization(*bad, view[None], K[None], 8, 8)
    with pytest.raises(InputError, match="sh_degree 2"):
        rasterization(*gaussians, view[None], K[None], 8, 8, sh_degree=2)
