"""The CPU rasteriser against a dense float64 reference, gsplat's own formulas, closed forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from twinloop.splat import reference
from twinloop.splat.rasterize import camera_matrix, rasterization

WIDTH, HEIGHT = 70, 53
K = torch.tensor([[80.0, 0, 36], [0, 85.0, 25], [0, 0, 1]])
NAMES = ("means", "quats", "scales", "opacities", "colors", "viewmats")


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


def harmonics(degree: int, means: torch.Tensor, view: torch.Tensor, sh: torch.Tensor) -> Any:
    """Colours by gsplat's torch formula."""
    from gsplat.cuda._torch_impl import _spherical_harmonics

    eye = -torch.linalg.solve(view[:3, :3], view[:3, 3])
    return (_spherical_harmonics(degree, means - eye, sh) + 0.5).clamp_min(0)


def compare(
    gaussians: list[torch.Tensor],
    view: torch.Tensor,
    k: torch.Tensor = K,
    size: tuple[int, int] = (WIDTH, HEIGHT),
    antialiased: bool = False,
    sh_degree: int | None = None,
    tolerance: float = 1e-4,
    **options: Any,
) -> None:
    """Assert equal images (1e-5) and gradients (`tolerance`, relative) of ours and the reference.

    Of RGB and depth, alpha; by all of the Gaussians' parameters and the view matrix.
    """
    width, height = size
    ours = [t.clone().requires_grad_() for t in (*gaussians, view)]
    exact = [t.double().clone().requires_grad_() for t in (*gaussians, view)]
    images, alphas, _ = rasterization(
        *ours[:5],
        ours[5][None],
        k[None],
        width,
        height,
        render_mode="RGB+D",
        rasterize_mode="antialiased" if antialiased else "classic",
        sh_degree=sh_degree,
        **options,
    )
    features = exact[4] if sh_degree is None else harmonics(sh_degree, exact[0], exact[5], exact[4])
    truth, passed = reference.rasterization(
        *exact[:4],
        features,
        exact[5],
        k.double(),
        width,
        height,
        antialiased=antialiased,
        **options,
    )
    scale = float(truth.detach().abs().max().clamp_min(1))
    assert float((images[0] - truth).detach().abs().max()) < 1e-5 * scale
    assert float((1 - alphas[0, ..., 0] - passed).detach().abs().max()) < 1e-5
    g = torch.Generator().manual_seed(1)
    w, v = torch.randn(height, width, 4, generator=g), torch.randn(height, width, generator=g)
    ((images[0] * w).sum() + (alphas[0, ..., 0] * v).sum()).backward()
    ((truth * w).sum() + ((1 - passed) * v).sum()).backward()
    for name, a, b in zip(NAMES, ours, exact, strict=True):
        assert a.grad is not None
        assert b.grad is not None
        error = float((a.grad - b.grad).norm() / b.grad.norm().clamp_min(1e-6))
        assert error < tolerance, (name, error)


@pytest.mark.parametrize("antialiased", [False, True])
def test_images_and_gradients_equal_the_dense_reference(antialiased: bool) -> None:
    """A dense random scene with early stops gives the reference's image and all its gradients."""
    gaussians, view = scene(250)
    compare(gaussians, view, antialiased=antialiased)


@pytest.mark.parametrize("degree", [0, 1, 2, 3])
def test_harmonics_equal_gsplats_formula(degree: int) -> None:
    """Colours by direction, and their gradients by position, coefficients and camera too.

    The coefficients may be more than the degree uses, as while training raises the degree.
    """
    gaussians, view = scene(80, seed=7)
    g = torch.Generator().manual_seed(2)
    gaussians[4] = 0.4 * torch.randn(80, max(4, (degree + 1) ** 2), 3, generator=g)
    compare(gaussians, view, sh_degree=degree)


def test_clamped_opaque_and_huge_gaussians() -> None:
    """Opacity at the clamp, a splat over the whole image, one of no extent, one behind the eye."""
    gaussians, view = scene(40, seed=3)
    gaussians[3][:10] = 1.0
    gaussians[3][10] = 0.003
    gaussians[2][11] = 3.0
    gaussians[2][12] = 0.0
    gaussians[0][13] = torch.tensor([0.0, 0.0, -9.0])
    for antialiased in (False, True):
        compare(gaussians, view, antialiased=antialiased)


def test_needles() -> None:
    """Splats a thousand times longer than wide, to a length of many images, keep the precision."""
    gaussians, view = scene(30, seed=8)
    gaussians[2] = torch.tensor([1.0, 1e-3, 1e-3]) * torch.linspace(0.1, 20, 30)[:, None]
    gaussians[2][::2, 2] = 0.0
    compare(gaussians, view, tolerance=3e-4)


def test_opaque_stack_stops_early() -> None:
    """Behind opaque splats nothing counts, to the last rule of which splat is the last."""
    gaussians, view = scene(60, seed=4)
    gaussians[2] = torch.tensor([0.6, 0.4, 0.5]).repeat(60, 1)
    gaussians[3] = torch.linspace(0.3, 1.0, 60)
    compare(gaussians, view)


def test_near_and_far_planes() -> None:
    """Only what lies between the planes is drawn."""
    gaussians, view = scene(100, seed=5)
    compare(gaussians, view, near_plane=1.9, far_plane=2.2)


def test_close_to_the_eye() -> None:
    """Splats around and just before the eye: the projection's clamp far outside the image."""
    gaussians, view = scene(100, seed=6)
    view[2, 3] = 0.3
    compare(gaussians, view, near_plane=0.05, tolerance=3e-4)


@pytest.mark.parametrize("size", [(1, 1), (16, 16), (17, 1), (3, 40), (33, 31)])
def test_sizes(size: tuple[int, int]) -> None:
    """Images of one pixel, whole tiles and parts of tiles."""
    gaussians, view = scene(60, seed=9)
    k = K.clone()
    k[0, 2], k[1, 2] = size[0] / 2, size[1] / 2
    compare(gaussians, view, k=k, size=size)


def test_crop_of_a_larger_image() -> None:
    """A crop, its principal point outside, is the image's part where the clamp does not matter.

    And it equals the reference, whose clamp is the crop's own as in gsplat.
    """
    gaussians, view = scene(120, seed=10)
    k = K.clone()
    k[0, 2] -= 45
    k[1, 2] -= 30
    whole, _, _ = rasterization(*gaussians, view[None], K[None], WIDTH, HEIGHT)
    part, _, _ = rasterization(*gaussians, view[None], k[None], 20, 17)
    torch.testing.assert_close(part[0], whole[0, 30:47, 45:65], atol=2e-2, rtol=0)
    compare(gaussians, view, k=k, size=(20, 17))


def test_nothing_to_see() -> None:
    """No Gaussians, or none in view: the background, gradients of zero, and no warning."""
    gaussians, view = scene(5)
    gaussians[0] = gaussians[0] + torch.tensor([50.0, 0, 0])
    background = torch.tensor([[0.1, 0.2, 0.3]])
    for n in (0, 5):
        ours = [t[:n].clone().requires_grad_() for t in gaussians]
        image, alpha, info = rasterization(
            *ours, view[None], K[None], WIDTH, HEIGHT, backgrounds=background
        )
        assert float(alpha.detach().abs().max()) == 0
        torch.testing.assert_close(image[0, 5, 5].detach(), background[0])
        image.sum().backward()
        for t in ours:
            assert t.grad is not None
            assert not t.grad.any()
        assert info["means2d"].shape == (1, n, 2)
        assert not info["radii"].any()


def test_one_gaussian_closed_form() -> None:
    """A round Gaussian has alpha = opacity exp(-r^2 / 2 s^2), s^2 = (f scale / z)^2 + 0.3."""
    k = camera_matrix(torch.tensor([50.0, 50.0, 20.0, 20.0]))
    _, alpha, info = rasterization(
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
    radius = np.ceil(np.sqrt(2 * np.log(255 * 0.8) * variance))
    assert info["radii"].tolist() == [[[radius, radius]]]


def test_projection_matches_gsplat() -> None:
    """Image means, conics, depths and antialiasing equal gsplat's own torch projection."""
    from gsplat.cuda._torch_impl import _fully_fused_projection, _quat_scale_to_covar_preci

    (means, quats, scales, opacities, colors), view = scene(60)
    covariance, _ = _quat_scale_to_covar_preci(quats, scales, compute_preci=False)
    k = K.clone()
    k[0, 2] = -12.0
    for camera in (K, k):
        _, means2d, depths, conics, factors = _fully_fused_projection(
            means, covariance, view[None], camera[None], WIDTH, HEIGHT, calc_compensations=True
        )
        _, _, info = rasterization(
            means,
            quats,
            scales,
            opacities,
            colors,
            view[None],
            camera[None],
            WIDTH,
            HEIGHT,
            rasterize_mode="antialiased",
        )
        torch.testing.assert_close(info["means2d"], means2d, atol=1e-4, rtol=1e-5)
        torch.testing.assert_close(info["conics"], conics, atol=1e-5, rtol=1e-3)
        torch.testing.assert_close(info["depths"], depths, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(info["opacities"], opacities * factors, atol=1e-4, rtol=1e-3)


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


def test_image_gradient_of_the_means() -> None:
    """info["means2d"].grad is the gradient by image position: moving the camera's K shows it."""
    gaussians, view = scene(50, seed=11)
    image, _, info = rasterization(
        *[t.clone().requires_grad_() for t in gaussians], view[None], K[None], WIDTH, HEIGHT
    )
    g = torch.Generator().manual_seed(3)
    w = torch.randn(HEIGHT, WIDTH, 3, generator=g)
    (image[0] * w).sum().backward()
    exact = [t.double() for t in gaussians]
    shift = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    k = K.double()
    k = k + torch.nn.functional.pad(shift[:, None], (2, 0, 0, 1)) * torch.ones(3, 3)
    truth, _ = reference.rasterization(*exact, view.double(), k, WIDTH, HEIGHT)
    (truth[..., :3] * w).sum().backward()
    assert shift.grad is not None
    # The clamp of the projection moves with the principal point; these splats are all inside it.
    total = info["means2d"].grad[0].sum(dim=0)
    torch.testing.assert_close(total.double(), shift.grad, rtol=1e-3, atol=1e-3)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    n=st.integers(0, 60),
    seed=st.integers(0, 10**6),
    size=st.floats(-6, 0.5),
    distance=st.floats(0.4, 6),
    width=st.integers(1, 60),
    height=st.integers(1, 50),
)
def test_any_scene_equals_the_reference(
    n: int, seed: int, size: float, distance: float, width: int, height: int
) -> None:
    """Whatever the number, size and distance of the splats and the image's size."""
    gaussians, view = scene(n, seed)
    gaussians[2] = gaussians[2] * float(np.exp(size + 3.2))
    view[2, 3] = distance
    k = K.clone()
    k[0, 2], k[1, 2] = width / 2, height / 2
    ours, alphas, _ = rasterization(
        *gaussians, view[None], k[None], width, height, render_mode="RGB+D"
    )
    truth, passed = reference.rasterization(
        *(t.double() for t in gaussians), view.double(), k.double(), width, height
    )
    # A pixel on the edge of a threshold (1/255, or the last splat) may fall to either side.
    off = (ours[0] - truth).abs().amax(dim=-1) > 2e-5 * max(1.0, distance)
    assert float(off.float().mean()) <= 0.002 + 1.01 / (width * height)
    assert float((ours[0] - truth).abs().max()) < 0.02 * max(1.0, distance + 1)
    assert float((1 - alphas[0, ..., 0] - passed).abs().max()) < 0.02
