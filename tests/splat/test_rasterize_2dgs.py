"""The CPU rasteriser of surfels against a dense float64 reference, closed forms and gsplat."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from twinloop.errors import InputError
from twinloop.splat import reference, reference_2dgs
from twinloop.splat.depth_normals import depth_to_normal, in_torch
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
    """Assert equal pictures (1e-5) and gradients (1e-4 relative) of ours and the reference."""
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
        assert float((a - b).detach().abs().max()) < 1e-5 * scale, name
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
    surfels, view = scene(180)
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
        assert out[1][0, 20, 20 + r, 0].item() == pytest.approx(expected, abs=1e-6)
        expected = 0.8 * np.exp(-0.5 * (r * 2 / 50 / 0.2) ** 2)
        assert out[1][0, 20 + r, 20, 0].item() == pytest.approx(expected, abs=1e-6)
    assert out[0][0, 20, 20, 3].item() == pytest.approx(2.0, abs=1e-6)
    torch.testing.assert_close(out[2][0, 20, 20], torch.tensor([0, 0, -0.8]))


def test_surfels_that_cross_the_camera_plane() -> None:
    """A floor that starts behind the camera is drawn to the horizon, and not mirrored above it."""
    surfels = [
        torch.tensor([[0.0, 0.5, 1.5], [0.1, -0.1, 2.0]]),
        torch.tensor([[np.cos(np.pi / 4), np.sin(np.pi / 4), 0, 0], [1.0, 0, 0, 0]]).float(),
        torch.tensor([[2.0, 2.0], [0.05, 0.1]]),
        torch.tensor([0.6, 0.8]),
        torch.rand(2, 3),
    ]
    compare(surfels, torch.eye(4))
    compare(surfels, torch.eye(4), crossing=False)
    alpha = rasterization_2dgs(*surfels, torch.eye(4)[None], K[None], WIDTH, HEIGHT)[1]
    assert float(alpha[0, -1, WIDTH // 2]) > 0.1
    assert float(alpha[0, 0].max()) == 0


def test_edge_on_is_the_low_pass_disc() -> None:
    """A surfel in the plane of the rays shows its disc: exp(-k r^2 / 2)."""
    quat = torch.tensor([[np.sqrt(0.5), 0, np.sqrt(0.5), 0]]).float()
    k = camera_matrix(torch.tensor([50.0, 50.0, 10.0, 10.0]))
    args = (torch.tensor([[0.0, 0, 2]]), quat, torch.tensor([[0.1, 0.1]]), torch.tensor([0.9]),
            torch.ones(1, 3), torch.eye(4)[None], k[None], 21, 21)  # fmt: skip
    for factor in (2.0, 4.0):
        alpha = rasterization_2dgs(*args, filter_inv_square=factor)[1][0, ..., 0]
        assert float(alpha[10, 10]) == pytest.approx(0.9, abs=1e-6)
        assert float(alpha[10, 11]) == pytest.approx(0.9 * np.exp(-factor / 2), abs=1e-6)
        assert float(alpha[11, 11]) == pytest.approx(0.9 * np.exp(-factor), abs=1e-6)


def test_distortion_and_median_of_two_layers() -> None:
    """Two layers have distortion 2 w1 w2 (z2 - z1); the median is the one that halves T."""
    means = torch.tensor([[0.0, 0, 2], [0, 0, 3]]).requires_grad_()
    for first, middle in ((0.3, 1), (0.6, 0)):
        opacity = torch.tensor([first, 0.9])
        out = rasterization_2dgs(
            means, FACING.expand(2, 4), torch.full((2, 2), 5.0), opacity, torch.ones(2, 3),
            torch.eye(4)[None], K[None], WIDTH, HEIGHT, render_mode="RGB+D", distloss=True,
        )  # fmt: skip
        w = (first, (1 - first) * 0.9)
        assert out[4][0, 25, 36].item() == pytest.approx(2 * w[0] * w[1], rel=1e-3)
        assert out[5][0, 25, 36].item() == pytest.approx(2 + middle, rel=1e-5)
        (gradient,) = torch.autograd.grad(out[5][0, 25, 36, 0], means)
        assert gradient[middle, 2].item() == pytest.approx(1, rel=1e-4)
        assert gradient[1 - middle].abs().max().item() == 0


def test_surface_normals_of_a_tilted_plane() -> None:
    """Rendered and depth normals of a plane are its normal, towards the camera, in the world."""
    from gsplat.utils import depth_to_normal

    _, view = scene(1)
    quat = torch.tensor([[0.9, 0.3, 0.1, 0.0]])
    for depth_mode in ("expected", "median"):
        _, alpha, normal, surface, _, median, _ = rasterization_2dgs(
            torch.zeros(1, 3), quat, torch.full((1, 3), 9.0), torch.tensor([0.99]),
            torch.ones(1, 3), view[None], K[None], WIDTH, HEIGHT, render_mode="RGB+ED",
            depth_mode=depth_mode,
        )  # fmt: skip
        axis = reference.rotation_matrices(quat)[0, :, 2]
        axis = -axis if float((view[:3, :3] @ axis)[2]) > 0 else axis
        assert surface is not None
        torch.testing.assert_close(surface[0, 20, 30], axis, atol=1e-4, rtol=0)
        torch.testing.assert_close(normal[0, 20, 30] / alpha[0, 20, 30], axis, atol=1e-5, rtol=0)
        theirs = depth_to_normal(median, torch.linalg.inv(view[None]), K[None])
        torch.testing.assert_close(surface, theirs, atol=2e-4, rtol=0)


def test_projection_matches_gsplat() -> None:
    """Image centres and depths equal gsplat's own torch projection."""
    from gsplat.cuda._torch_impl_2dgs import _fully_fused_projection_2dgs

    surfels, view = scene(60)
    scales = torch.cat([surfels[2], torch.ones(60, 1)], dim=1)
    _, means2d, depths, _, _ = _fully_fused_projection_2dgs(
        surfels[0], surfels[1], scales, view[None], K[None], WIDTH, HEIGHT
    )
    info = rasterization_2dgs(*surfels, view[None], K[None], WIDTH, HEIGHT)[-1]
    seen = (info["radii"] > 0).all(-1)
    assert int(seen.sum()) > 50
    torch.testing.assert_close(info["means2d"][seen], means2d[seen], atol=1e-3, rtol=1e-5)
    torch.testing.assert_close(info["depths"][seen], depths[seen], atol=1e-5, rtol=1e-5)


def test_harmonics_match_gsplat() -> None:
    """Colours by direction equal gsplat's torch formula to degree 3, and so do their gradients."""
    from gsplat.cuda._torch_impl import _spherical_harmonics

    surfels, view = scene(40)
    g = torch.Generator().manual_seed(2)
    sh, w = 0.4 * torch.randn(40, 16, 3, generator=g), torch.randn(HEIGHT, WIDTH, 3, generator=g)
    eye = -view[:3, :3].T @ view[:3, 3]
    for degree in range(4):
        results = []
        for ours in (True, False):
            means, k = surfels[0].clone().requires_grad_(), sh.clone().requires_grad_()
            if ours:
                colors, option = k, {"sh_degree": degree}
            else:
                colors = (_spherical_harmonics(degree, means - eye, k) + 0.5).clamp_min(0)
                option = {}
            image = rasterization_2dgs(
                means, *surfels[1:4], colors, view[None], K[None], WIDTH, HEIGHT, **option
            )[0]
            (image[0] * w).sum().backward()
            results.append((image.detach(), means.grad, k.grad))
        for a, b in zip(*results, strict=True):
            assert a is not None
            assert b is not None
            torch.testing.assert_close(a, b, atol=1e-4 * float(b.abs().max()), rtol=1e-4)


def test_shift_of_all_surfels_is_that_of_the_principal_point() -> None:
    """The gradients for densification add up to the principal point's."""
    surfels, view = scene(80)
    free, k = surfels[0].clone().requires_grad_(), K.clone().requires_grad_()
    out = rasterization_2dgs(
        free, *surfels[1:], view[None], k[None], WIDTH, HEIGHT, render_mode="RGB+ED", distloss=True
    )
    g = torch.Generator().manual_seed(3)
    sum((out[i] * torch.randn(out[i].shape, generator=g)).sum() for i in (0, 1, 2, 4)).backward()
    shift = out[-1]["gradient_2dgs"].grad[0].sum(0)
    assert k.grad is not None
    torch.testing.assert_close(shift, k.grad[:2, 2], rtol=1e-4, atol=1e-3)


def test_modes_backgrounds_batches_and_channels() -> None:
    """Each mode and channel is what it is alone, with background, of two cameras at once."""
    surfels, view = scene(80, channels=11)
    views = torch.stack([view, view])
    views[1, 0, 3] = 0.1
    background = torch.rand(2, 11, generator=torch.Generator().manual_seed(4))
    arguments = (views, K.expand(2, 3, 3), WIDTH, HEIGHT)
    free = [t.clone().requires_grad_() for t in surfels]
    behind = background.clone().requires_grad_()
    both = rasterization_2dgs(*free, *arguments, backgrounds=behind, render_mode="RGB+ED")
    w = torch.randn(both[0].shape, generator=torch.Generator().manual_seed(5))
    (both[0] * w).sum().backward()
    total = torch.zeros_like(surfels[0])
    for c in range(2):
        one = [t.clone().requires_grad_() for t in surfels]
        out = rasterization_2dgs(
            *one, views[c : c + 1], K[None], WIDTH, HEIGHT, render_mode="RGB+D"
        )
        alpha = out[1]
        shown = out[0][..., :11] + (1 - alpha) * background[c]
        expected = out[0][..., 11:] / alpha.clamp_min(1e-10)
        torch.testing.assert_close(both[0][c : c + 1], torch.cat([shown, expected], -1))
        (torch.cat([shown, expected], -1) * w[c]).sum().backward()
        assert one[0].grad is not None
        total += one[0].grad
        alone = rasterization_2dgs(
            *surfels[:4], surfels[4][:, 7:8].contiguous(), views[c : c + 1], K[None], WIDTH, HEIGHT
        )
        torch.testing.assert_close(out[0][..., 7:8], alone[0])
        assert behind.grad is not None
        passed = ((1 - alpha[0]) * w[c, ..., :11]).sum((0, 1))
        torch.testing.assert_close(behind.grad[c], passed.detach(), rtol=1e-4, atol=1e-3)
    assert free[0].grad is not None
    torch.testing.assert_close(free[0].grad, total, rtol=1e-3, atol=1e-3 * float(total.abs().max()))
    depth = rasterization_2dgs(*surfels, *arguments, render_mode="ED")[0]
    torch.testing.assert_close(depth, both[0][..., 11:].detach())


def test_a_crop_is_a_part_of_the_picture() -> None:
    """With the principal point moved out of the image, a crop is cut from the whole."""
    surfels, view = scene(80)
    whole = rasterization_2dgs(*surfels, view[None], K[None], WIDTH, HEIGHT, render_mode="RGB+ED")
    k = K.clone()
    k[:2, 2] -= torch.tensor([41.0, 29.0])
    part = rasterization_2dgs(*surfels, view[None], k[None], 19, 13, render_mode="RGB+ED")
    for a, b in zip(part[:3], whole[:3], strict=True):
        torch.testing.assert_close(a, b[:, 29:42, 41:60], atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize(("count", "size"), [(0, (9, 5)), (5, (1, 1)), (5, (33, 17))])
def test_nothing_in_view(count: int, size: tuple[int, int]) -> None:
    """With nothing in view the image is the background and gradients are zero."""
    surfels, view = scene(count)
    surfels[0] = surfels[0] + torch.tensor([50.0, 0, 0])
    free = [t.clone().requires_grad_() for t in surfels]
    background = torch.tensor([[0.1, 0.2, 0.3]])
    out = rasterization_2dgs(
        *free, view[None], K[None], *size, backgrounds=background, render_mode="RGB+ED"
    )
    assert float(out[1].detach().abs().max()) == 0
    torch.testing.assert_close(out[0][0, -1, -1, :3].detach(), background[0])
    (out[0].sum() + out[2].sum()).backward()
    assert all(t.grad is not None and float(t.grad.abs().sum()) == 0 for t in free)


def test_same_bits_with_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures and gradients are equal bit for bit on one, two and three threads."""
    results = []
    for threads in ("1", "2", "3", "3"):
        monkeypatch.setenv("TWINLOOP_THREADS", threads)
        surfels, view = scene(300, channels=5)
        free = [t.requires_grad_() for t in (*surfels, view)]
        out = rasterization_2dgs(
            *free[:5], free[5][None], K[None], WIDTH, HEIGHT, render_mode="RGB+ED", distloss=True
        )
        sum((t * t).sum() for t in out[:6] if t is not None).backward()
        results.append([*(t.detach() for t in out[:6]), *(t.grad for t in free)])
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    size=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    spread=st.floats(-6, 2),
    factor=st.floats(0.5, 64),
)
def test_pictures_are_bounded(
    seed: int, size: tuple[int, int], spread: float, factor: float
) -> None:
    """0 <= alpha < 1, weights add up to it, all else is finite."""
    surfels, view = scene(25, seed)
    surfels[2] = surfels[2] * float(np.exp(spread))
    free = [t.requires_grad_() for t in surfels]
    image, alpha, normal, _, distortion, median, _ = rasterization_2dgs(
        *free, view[None], K[None], *size, render_mode="RGB+D", distloss=True,
        filter_inv_square=factor,
    )  # fmt: skip
    assert float(alpha.detach().min()) >= 0
    assert float(alpha.detach().max()) < 1
    assert bool((image[..., :3] <= alpha + 1e-5).all())
    assert bool((normal.norm(dim=-1, keepdim=True) <= alpha + 1e-5).all())
    # With crossings out of the order of the means it may fall below zero, by their distance.
    assert bool(torch.isfinite(distortion).all())
    assert bool((median >= 0).all())
    (image.sum() + normal.sum() + distortion.sum()).backward()
    assert all(t.grad is not None and bool(torch.isfinite(t.grad).all()) for t in free)


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


@pytest.mark.parametrize("size", [(1, 1), (2, 5), (3, 3), (20, 37)])
def test_normals_of_depth_equal_the_torch_formula(size: tuple[int, int]) -> None:
    """Native normals and their gradients by depth and view matrix equal autograd's in float64."""
    g = torch.Generator().manual_seed(0)
    depth = 1 + 0.02 * torch.rand(2, *size, generator=g)
    turn = reference.rotation_matrices(torch.randn(2, 4, generator=g))
    views = torch.nn.functional.pad(turn, (0, 1, 0, 1))
    w = torch.randn(2, *size, 3, generator=g)
    results = []
    for draw, dtype in ((depth_to_normal, torch.float32), (in_torch, torch.float64)):
        free = [t.detach().to(dtype, copy=True).requires_grad_() for t in (depth, views)]
        if dtype == torch.float64 and min(size) < 3:  # torch does not pad what is empty
            results.append([torch.zeros(*w.shape), *(torch.zeros_like(t) for t in free)])
            continue
        normal = draw(*free, K.expand(2, 3, 3).to(dtype))
        (normal * w).sum().backward()
        results.append([normal.detach(), *(t.grad for t in free)])
    for a, b in zip(*results, strict=True):
        assert a is not None
        assert b is not None
        assert float((a - b).norm()) <= 1e-4 * float(b.norm())


def test_normals_that_are_not_asked_for() -> None:
    """Without normals they are zero and all else is the same."""
    surfels, view = scene(60)
    found = []
    for normals in (True, False):
        free = [t.clone().requires_grad_() for t in surfels]
        out = rasterization_2dgs(*free, view[None], K[None], WIDTH, HEIGHT, normals=normals)
        (out[0].square().sum() + out[1].sum() + out[2].sum() * 0).backward()
        assert bool(out[2].any()) is normals
        found.append([out[0].detach(), out[1].detach(), *(t.grad for t in free)])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
