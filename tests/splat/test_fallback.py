"""The torch rasterisers, loss and Adam that take over where native kernels cannot be compiled."""

from __future__ import annotations

import warnings
from types import ModuleType

import pytest
import torch
import warp as wp

from tests.splat import test_rasterize as solid
from tests.splat import test_rasterize_2dgs as flat
from twinloop.errors import ParamsError
from twinloop.splat import backend, cpu, cpu_2dgs, fallback, fallback_2dgs, kernels_loss
from twinloop.splat.rasterize import rasterization
from twinloop.splat.rasterize_2dgs import rasterization_2dgs
from twinloop.threads import torch_on_one_thread


@pytest.fixture(autouse=True)
def _one_thread():
    with torch_on_one_thread():
        yield


@pytest.fixture
def no_native(monkeypatch: pytest.MonkeyPatch) -> None:
    """Force the torch code."""
    monkeypatch.setenv("TWINLOOP_NATIVE", "0")


@pytest.mark.usefixtures("no_native")
def test_gaussians_equal_the_dense_reference() -> None:
    """Image and all gradients, over several tiles, with clamps and early stops."""
    gaussians, view = solid.scene(120)
    gaussians[3][:10] = 1.0
    gaussians[2][11] = 3.0
    gaussians[0][13] = torch.tensor([0.0, 0.0, -9.0])
    solid.compare(gaussians, view)
    solid.compare(gaussians, view, antialiased=True)


@pytest.mark.usefixtures("no_native")
@pytest.mark.parametrize("crossing", [True, False])
def test_surfels_equal_the_dense_reference(crossing: bool) -> None:
    """All six pictures and all gradients, with huge, edge-on, empty and hidden surfels."""
    surfels, view = flat.scene(120)
    surfels[3][:10] = 1.0
    surfels[2][11] = 3.0
    surfels[2][13] = 0.0
    surfels[0][14] = torch.tensor([0.0, 0.0, -9.0])
    flat.compare(surfels, view, crossing)


@pytest.mark.usefixtures("no_native")
def test_surfels_that_cross_the_camera_plane() -> None:
    """Crossings behind the camera are not mirrored before it, by either depth."""
    flat.test_surfels_that_cross_the_camera_plane()


@pytest.mark.usefixtures("no_native")
def test_both_rasterisers_ask_for_the_torch_code() -> None:
    """The seam of each gives the torch code, with the same signature."""
    assert cpu.renderer() is fallback.render
    assert cpu_2dgs.renderer() is fallback_2dgs.rasterize


def _harmonics(count: int) -> torch.Tensor:
    return 0.4 * torch.randn(count, 16, 3, generator=torch.Generator().manual_seed(1))


def _solid(values: list[torch.Tensor], view: torch.Tensor) -> list[torch.Tensor]:
    free = [t.clone().requires_grad_() for t in (*values[:4], _harmonics(len(values[0])))]
    views = torch.stack([view, view])
    views[1, 0, 3] += 0.3
    image, alpha, info = rasterization(
        *free,
        views,
        solid.K.repeat(2, 1, 1),
        solid.WIDTH,
        solid.HEIGHT,
        backgrounds=torch.tensor([[0.2, 0.4, 0.6], [0.1, 0.9, 0.3]]),
        render_mode="RGB+ED",
        radius_clip=3.0,
        sh_degree=3,
    )
    (image.square().sum() + alpha.sum()).backward()
    seen = info["depths"] > 0
    facts = [info["means2d"].detach() * seen[..., None], info["means2d"].grad, info["radii"]]
    return [image.detach(), alpha.detach(), *facts, *(t.grad for t in free)]


def _flat(values: list[torch.Tensor], view: torch.Tensor) -> list[torch.Tensor]:
    free = [t.clone().requires_grad_() for t in (*values[:4], _harmonics(len(values[0])))]
    image, alpha, normal, surface, distortion, median, info = rasterization_2dgs(
        *free,
        view[None],
        flat.K[None],
        flat.WIDTH,
        flat.HEIGHT,
        backgrounds=torch.tensor([[0.2, 0.4, 0.6]]),
        render_mode="RGB+ED",
        distloss=True,
        filter_inv_square=8.0,
        sh_degree=3,
    )
    pictures = [image[..., :3], alpha, normal, distortion, median]
    # Expected depth and its normals are 0 / 0 where nothing is: only what is well covered counts.
    pictures += [image[..., 3:] * alpha.square(), surface * (alpha.detach() > 0.5)]
    sum(p.square().sum() for p in pictures[:6]).backward()
    # Of surfels beyond the border either may say that they are seen.
    centre = info["means2d"]
    inside = ((centre > 0) & (centre < torch.tensor([flat.WIDTH, flat.HEIGHT]))).all(-1)
    facts = [centre * inside[..., None], info["gradient_2dgs"].grad, info["depths"] * inside]
    return [*(p.detach() for p in pictures), *facts, *(t.grad for t in free)]


@pytest.mark.parametrize("kind", ["solid", "flat"])
def test_equal_to_the_native_code_in_all_they_return(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Images, side results, gradients by image position and by every input agree."""
    draw, (values, view) = (_solid, solid.scene(80)) if kind == "solid" else (_flat, flat.scene(80))
    results = []
    for native in ("1", "0"):
        monkeypatch.setenv("TWINLOOP_NATIVE", native)
        results.append(draw(values, view))
    for i, (a, b) in enumerate(zip(*results, strict=True)):
        assert a is not None
        assert b is not None
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        error = (a.double() - b.double()).norm() / b.double().norm().clamp_min(1e-9)
        assert float(error) < 2e-4, i


@pytest.mark.usefixtures("no_native")
def test_nothing_in_view() -> None:
    """An empty image has gradients of zero."""
    gaussians, view = solid.scene(5)
    gaussians[0] = gaussians[0] + torch.tensor([50.0, 0, 0])
    free = [t.clone().requires_grad_() for t in gaussians]
    image, alpha, _ = rasterization(*free, view[None], solid.K[None], 40, 40)
    image.sum().backward()
    assert float(alpha.detach().abs().max()) == 0
    assert free[0].grad is not None
    assert float(free[0].grad.abs().max()) == 0


def test_the_choice_is_made_once_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a compiler in Warp, or one that fails, a warning says so, once; then torch works."""
    monkeypatch.delenv("TWINLOOP_NATIVE", raising=False)
    assert backend.native(kernels_loss)
    with pytest.warns(backend.SlowBackendWarning, match=r"some\.kernels.*cannot compile them here"):
        assert not backend.native(ModuleType("some.kernels"))
    monkeypatch.setattr(wp, "is_cpu_available", lambda: False)
    other = ModuleType("other.kernels")
    with pytest.warns(backend.SlowBackendWarning, match=r"no compiler.*slower.*official wheel"):
        assert not backend.native(other)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not backend.native(other)
    for word in ("yes", "2"):
        monkeypatch.setenv("TWINLOOP_NATIVE", word)
        with pytest.raises(ParamsError, match="TWINLOOP_NATIVE"):
            backend.native(kernels_loss)
