"""The rasteriser's interface: modes, batches, channels, threads, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.splat.test_rasterize import HEIGHT, WIDTH, K, scene
from twinloop.errors import InputError
from twinloop.splat.rasterize import rasterization
from twinloop.splat.rasterize_2dgs import rasterization_2dgs


def test_many_channels_equal_passes_of_few() -> None:
    """Seven feature channels and depth give what each gives alone, in image and gradient."""
    gaussians, view = scene(80)
    g = torch.Generator().manual_seed(6)
    features = torch.rand(80, 7, generator=g)
    wide = [t.clone().requires_grad_() for t in (*gaussians[:4], features)]
    image, _, _ = rasterization(
        *wide, view[None], K[None], WIDTH, HEIGHT, render_mode="RGB+D", channel_chunk=3
    )
    w = torch.randn(HEIGHT, WIDTH, 8, generator=g)
    (image[0] * w).sum().backward()
    total = [torch.zeros_like(t) for t in wide]
    for c in range(8):
        one = [t.clone().requires_grad_() for t in (*gaussians[:4], features[:, : c + 1][:, -1:])]
        mode: Any = "D" if c == 7 else "RGB"
        single, _, _ = rasterization(*one, view[None], K[None], WIDTH, HEIGHT, render_mode=mode)
        (single[0] * w[..., c : c + 1]).sum().backward()
        torch.testing.assert_close(image[0, ..., c], single[0, ..., 0])
        for i, t in enumerate(one):
            if t.grad is not None and (i < 4 or c < 7):
                part = total[i] if i < 4 else total[i][:, c : c + 1]
                part += t.grad
    for sums, t in zip(total, wide, strict=True):
        assert t.grad is not None
        torch.testing.assert_close(t.grad, sums, rtol=1e-4, atol=1e-4 * float(sums.abs().max()))


def test_cameras_in_one_call_equal_cameras_one_by_one() -> None:
    """Images, and the sum of gradients; colours of each camera's own; the background of each."""
    gaussians, view = scene(60)
    g = torch.Generator().manual_seed(1)
    views = torch.stack([view, view.clone()])
    views[1, 0, 3] = 0.2
    ks = torch.stack([K, K + torch.tensor([[0.0, 0, -9], [0, 0, 4], [0, 0, 0]])])
    colors = torch.rand(2, 60, 3, generator=g)
    backgrounds = torch.rand(2, 3, generator=g)
    w = torch.randn(2, HEIGHT, WIDTH, 3, generator=g)
    both = [t.clone().requires_grad_() for t in (*gaussians[:4], colors, views)]
    images, alphas, info = rasterization(*both, ks, WIDTH, HEIGHT, backgrounds=backgrounds)
    (images * w).sum().backward()
    single = [t.clone().requires_grad_() for t in (*gaussians[:4], colors, views)]
    for c in range(2):
        image, alpha, one = rasterization(
            *single[:4],
            single[4][c],
            single[5][c : c + 1],
            ks[c : c + 1],
            WIDTH,
            HEIGHT,
            backgrounds=backgrounds[c : c + 1],
        )
        (image[0] * w[c]).sum().backward()
        assert torch.equal(image[0], images[c])
        assert torch.equal(alpha[0], alphas[c])
        assert torch.equal(one["means2d"].grad[0], info["means2d"].grad[c])
    for a, b in zip(both, single, strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-5, atol=1e-5)


def test_modes_agree() -> None:
    """Depth alone is the depth beside colour; expected depth is it over alpha; zero background."""
    gaussians, view = scene(60)

    def render(mode: Any, **more: Any) -> tuple[torch.Tensor, torch.Tensor]:
        image, alpha, _ = rasterization(
            *gaussians, view[None], K[None], WIDTH, HEIGHT, render_mode=mode, **more
        )
        return image, alpha

    color, alpha = render("RGB")
    both, _ = render("RGB+D")
    depth, _ = render("D")
    expected, _ = render("ED")
    torch.testing.assert_close(both, torch.cat([color, depth], dim=-1))
    torch.testing.assert_close(expected, depth / alpha.clamp_min(1e-10))
    torch.testing.assert_close(render("RGB+ED")[0], torch.cat([color, expected], dim=-1))
    background = torch.tensor([[1.0, 0.5, 0.0]])
    on, _ = render("RGB+D", backgrounds=background)
    torch.testing.assert_close(on[..., :3], color + (1 - alpha) * background)
    torch.testing.assert_close(on[..., 3:], depth)


def test_radius_clip_leaves_small_ones_out() -> None:
    """Exactly the Gaussians of a radius above the clip are drawn."""
    gaussians, view = scene(60)
    _, _, info = rasterization(*gaussians, view[None], K[None], WIDTH, HEIGHT)
    large = info["radii"][0].amax(dim=1) > 6
    assert 5 < int(large.sum()) < 55
    clipped, _, _ = rasterization(*gaussians, view[None], K[None], WIDTH, HEIGHT, radius_clip=6.0)
    kept, _, _ = rasterization(*(t[large] for t in gaussians), view[None], K[None], WIDTH, HEIGHT)
    torch.testing.assert_close(clipped, kept)


def test_float64_and_strided_inputs() -> None:
    """Tensors of other floats and strides are taken; their gradients have their own type."""
    gaussians, view = scene(20)
    doubles = [t.double().requires_grad_() for t in gaussians]
    image, _, _ = rasterization(*doubles, view[None], K[None], WIDTH, HEIGHT)
    image.sum().backward()
    strided = [torch.stack([t, t], dim=-1)[..., 0] for t in gaussians]
    again, _, _ = rasterization(*strided, view[None], K[None], WIDTH, HEIGHT)
    assert torch.equal(image.detach(), again)
    assert doubles[0].grad is not None
    assert doubles[0].grad.dtype == torch.float64


def test_same_bits_with_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images and gradients are equal bit for bit, from run to run, on one, two or three threads."""
    results = []
    for threads in ("1", "1", "2", "3"):
        monkeypatch.setenv("TWINLOOP_THREADS", threads)
        gaussians, view = scene(1300)
        free = [t.requires_grad_() for t in (*gaussians, view)]
        image, alpha, info = rasterization(*free[:5], free[5][None], K[None], WIDTH, HEIGHT)
        (image.sum() + alpha.square().sum()).backward()
        results.append([image.detach(), info["means2d"].grad, *(t.grad for t in free)])
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            assert a is not None
            assert torch.equal(a, b)


def test_more_entries_than_expected() -> None:
    """Splats that fill many tiles make the lists grow, also where the first guess was too short."""
    gaussians, view = scene(300)
    gaussians[2][:] = 3.0
    gaussians[4][:] = 1.0
    image, alpha, _ = rasterization(*gaussians, view[None], K[None], 400, 300)
    assert float(alpha.min()) > 0.5
    torch.testing.assert_close(image, alpha.expand(-1, -1, -1, 3))


def test_too_many_entries_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work is bounded: splats that all fill the image are refused before memory runs out."""
    from twinloop.splat import cpu_view

    monkeypatch.setattr(cpu_view, "MOST_ENTRIES", 1000)
    gaussians, view = scene(300)
    gaussians[2][:] = 1.0
    with pytest.raises(InputError, match="check their scales"):
        rasterization(*gaussians, view[None], K[None], 400, 300)


def test_faults_are_named() -> None:
    """Wrong shapes, NaN, logits for opacities and an impossible degree are refused by name."""
    gaussians, view = scene(4)
    cameras = (view[None], K[None], 8, 8)

    def refused(match: str, index: int, value: torch.Tensor, **more: Any) -> None:
        bad: list[Any] = [*gaussians, *cameras]
        bad[index] = value
        with pytest.raises(InputError, match=match):
            rasterization(*bad, **more)

    nan = gaussians[0].clone()
    nan[2, 1] = torch.nan
    refused("means has values", 0, nan)
    refused("quats has shape", 1, gaussians[1][:, :3])
    refused("opacities from", 3, 5 * gaussians[3])
    refused("sh_degree 2", 4, gaussians[4], sh_degree=2)
    refused("colors has shape", 4, gaussians[4][None, None])
    refused("no channel", 4, gaussians[4][:, :0])
    refused("viewmats has values", 5, view[None] * torch.inf)
    refused("focal lengths", 6, -K[None])
    refused("float", 0, gaussians[0].long())
    refused("backgrounds has shape", 4, gaussians[4], backgrounds=torch.zeros(1, 2))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"covars": torch.eye(3)}, "covars is not supported"),
        ({"absgrad": True}, "absgrad is not supported"),
        ({"with_ut": True}, "with_ut is not supported"),
        ({"camera_model": "fisheye"}, "undistort"),
        ({"near_plane": 0.0}, "near_plane"),
        ({"render_mode": "depth"}, "render_mode is 'depth'"),
        ({"rasterize_mode": "mip"}, "rasterize_mode is 'mip'"),
        ({"eps2d": -1.0}, "eps2d"),
        ({"width": 0}, "width is 0"),
    ],
)
def test_options_that_do_not_work_are_refused(options: dict[str, Any], match: str) -> None:
    """An option is honoured or refused, never ignored where it would change the result."""
    gaussians, view = scene(4)
    with pytest.raises(InputError, match=match):
        rasterization(*gaussians, view[None], K[None], **{"width": 8, "height": 8, **options})


@pytest.mark.parametrize("function", [rasterization, rasterization_2dgs])
@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"width": 0}, "width is 0"),
        ({"height": -3}, "height is -3"),
        ({"width": 32769}, "width is 32769"),
        ({"width": 1.5}, "width is 1.5 px, expected an integer"),
        ({"height": None}, "height is None"),
        ({"near_plane": float("nan")}, "near_plane nan"),
        ({"near_plane": 2.0, "far_plane": 1.0}, "0 < near_plane < far_plane"),
        ({"radius_clip": float("nan")}, "radius_clip is nan"),
        ({"means": None}, "means is NoneType, expected a tensor"),
        ({"quats": torch.tensor(1.0)}, "quats is a number, expected a tensor"),
        ({"opacities": torch.full((4,), 1.5)}, "opacities from 1.5"),
        ({"viewmats": torch.zeros(1, 4, 4)}, "determinant 0"),
        ({"viewmats": torch.arange(16.0).sqrt()[[0, 1, 2, 3] * 4].view(1, 4, 4)}, "determinant 0"),
        ({"viewmats": torch.zeros(0, 4, 4), "Ks": torch.zeros(0, 3, 3)}, "no camera"),
        ({"Ks": torch.zeros(1, 3, 3)}, "focal lengths above zero"),
        ({"backgrounds": torch.full((1, 3), torch.nan)}, "backgrounds has values"),
        ({"backgrounds": [0, 0, 0]}, "backgrounds is list"),
        ({"backgrounds": torch.zeros(1, 7)}, "backgrounds has shape"),
        ({"colors": torch.zeros(4, 4, 3), "sh_degree": 1.0}, "sh_degree is 1.0"),
    ],
)
def test_both_rasterisers_refuse_the_same(function: Any, wrong: Any, match: str) -> None:
    """Sizes, planes, cameras and tensors that are none: an InputError that says which."""
    gaussians, view = scene(4)
    names = ("means", "quats", "scales", "opacities", "colors")
    given = dict(zip(names, gaussians, strict=True), viewmats=view[None], Ks=K[None])
    with pytest.raises(InputError, match=match):
        function(**{**given, "width": 8, "height": 8, **wrong})


@pytest.mark.parametrize("shared", [True, False])
def test_gradients_of_cameras_add_up(shared: bool) -> None:
    """Those of two cameras are the sums of each one's, harmonics that are not used have zero."""
    gaussians, view = scene(40)
    means, *rest = gaussians[:4]
    means[:17] -= 100 * view[2, :3]  # behind the cameras, whole groups of eight and more
    views = torch.stack([view, view])
    views[1, 2, 3] += 0.5
    g = torch.Generator().manual_seed(4)
    harmonics = torch.rand(*(() if shared else (2,)), 40, 9, 3, generator=g)
    pull = torch.randn(2, HEIGHT, WIDTH, 3, generator=g)

    def gradients(cameras: slice) -> list[torch.Tensor]:
        colors = harmonics if shared else harmonics[cameras]
        free = [t.clone().requires_grad_() for t in (means, *rest, colors)]
        image, _, _ = rasterization(
            *free, views[cameras], K[None].repeat(2, 1, 1)[cameras], WIDTH, HEIGHT, sh_degree=1
        )
        (image * pull[cameras]).sum().backward()
        return [t.grad for t in free if t.grad is not None]

    both, one, other = (gradients(slice(*at)) for at in ((0, 2), (0, 1), (1, 2)))
    for k in range(4):
        torch.testing.assert_close(both[k], one[k] + other[k])
    colors = one[4] + other[4] if shared else torch.cat([one[4], other[4]])
    torch.testing.assert_close(both[4], colors)
    assert float(both[4].abs().sum()) > 0
    assert not both[4][..., 4:, :].any()
    assert not any(t[:17].any() for t in both[:4])
