"""Rasterisers given what no scene has: finite pictures and gradients or a refusal, no crash."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from twinloop.errors import InputError
from twinloop.splat import cpu_2dgs
from twinloop.splat.rasterize import rasterization
from twinloop.splat.rasterize_2dgs import rasterization_2dgs
from twinloop.threads import torch_on_one_thread

BOTH = pytest.mark.parametrize("function", [rasterization, rasterization_2dgs])
NAMES = ("means", "quats", "scales", "opacities", "colors")
ODD = slice(0, 50, 7)
"""The splats that are absurd; others lie in the same eight."""


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with torch_on_one_thread():
        yield


def scene(count: int = 50) -> dict[str, Tensor]:
    """Splats in a box before the camera of `view`."""
    g = torch.Generator().manual_seed(0)
    values = [torch.rand(count, 3, generator=g) - 0.5, torch.randn(count, 4, generator=g)]
    values += [0.01 + 0.05 * torch.rand(count, 3, generator=g)]
    values += [0.1 + 0.8 * torch.rand(count, generator=g), torch.rand(count, 3, generator=g)]
    return dict(zip(NAMES, values, strict=True))


def view(width: int = 40, height: int = 30) -> dict[str, Any]:
    """A camera 2 m away."""
    pose = torch.eye(4)
    pose[2, 3] = 2
    k = torch.tensor([[50.0, 0, width / 2], [0, 50, height / 2], [0, 0, 1]])
    return {"viewmats": pose[None], "Ks": k[None], "width": width, "height": height}


def drawn(function: Callable[..., Any], splats: dict[str, Tensor], **options: Any) -> list[Tensor]:
    """Image and alpha, then the gradients of splats, view and places in the image, all finite."""
    free = {name: t.clone().requires_grad_() for name, t in splats.items()}
    camera = {**view(), **options}
    camera["viewmats"].requires_grad_()
    image, alpha, *_, info = function(**free, **camera)
    weights = torch.linspace(0.5, 1.5, image.numel()).reshape(image.shape)
    ((image * weights).sum() + alpha.sum()).backward()
    places = info["gradient_2dgs" if "gradient_2dgs" in info else "means2d"]
    found = [image, alpha, *(t.grad for t in free.values()), camera["viewmats"].grad, places.grad]
    for value in (*found, *(v for v in info.values() if isinstance(v, Tensor))):
        assert torch.isfinite(value).all()
    return found


@pytest.mark.parametrize("native", ["1", "0"])
@pytest.mark.parametrize("mode", ["classic", "antialiased"])
@pytest.mark.parametrize("axes", [slice(None), slice(2, 3)])
@pytest.mark.parametrize("scale", [1e38, -1e30, 1e19, 1e12, 1e-30])
def test_gaussians_without_a_covariance_are_left_out(
    scale: float, axes: slice, mode: str, native: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if they were not there: the others' picture and gradients bit for bit, their own zero."""
    monkeypatch.setenv("TWINLOOP_NATIVE", native)
    splats, faint = scene(), scene()
    splats["scales"][ODD, axes] = scale
    found = drawn(rasterization, splats, rasterize_mode=mode, render_mode="RGB+ED")
    if abs(scale) < 1:
        return
    faint["opacities"][ODD] = 0
    without = drawn(rasterization, faint, rasterize_mode=mode, render_mode="RGB+ED")
    for value, expected in zip(found, without, strict=True):
        assert torch.equal(value, expected)
    assert not any(gradient[ODD].any() for gradient in found[2:7])


@BOTH
@pytest.mark.parametrize("scale", [1e30, 1e12, 1e-30, 0.0])
def test_absurd_scales(function: Callable[..., Any], scale: float) -> None:
    """Finite for both, in both modes of depth."""
    splats = scene()
    splats["scales"][ODD] = scale
    drawn(function, splats)
    drawn(function, splats, render_mode="RGB+ED")


@BOTH
@pytest.mark.parametrize("place", [1e38, -1e30, 1e15])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_absurd_places(function: Callable[..., Any], place: float, axis: int) -> None:
    """Splats at the end of the world show nowhere and pull nothing."""
    splats = scene()
    splats["means"][ODD, axis] = place
    found = drawn(function, splats, render_mode="RGB+ED")
    assert not any(gradient[ODD].any() for gradient in found[2:7])


@BOTH
@pytest.mark.parametrize("length", [1e30, 1e19, 1e-8])
def test_quaternions_of_any_length(function: Callable[..., Any], length: float) -> None:
    """The same picture; the gradient is one over the length."""
    splats, long = scene(), scene()
    long["quats"] *= length
    expected, found = drawn(function, splats), drawn(function, long)
    torch.testing.assert_close(found[0], expected[0], atol=1e-5, rtol=0)
    scaled = (found[3].double() * length).float()
    if length < 1e20:  # else the gradient is too small for single precision
        torch.testing.assert_close(scaled, expected[3], atol=1e-3, rtol=1e-3)


def test_surfels_that_show_nowhere_have_no_gradient_in_the_image() -> None:
    """Their records are never written, so nothing may come of what memory held before."""
    splats = scene()
    camera = view()["viewmats"]
    camera[:, 2, 3] = 1e-3  # amidst them, most are beside the picture
    for _ in range(3):
        torch.full((200_000,), torch.nan)  # what the next allocation may find
        drawn(rasterization_2dgs, splats, viewmats=camera, render_mode="RGB+ED")


@BOTH
@pytest.mark.parametrize(
    ("row", "column", "value"), [(0, 0, 1e38), (1, 1, 1e-30), (0, 2, 1e20), (1, 2, -1e38)]
)
def test_lenses_in_another_unit(
    function: Callable[..., Any], row: int, column: int, value: float
) -> None:
    """Focal lengths and principal points that overflow are refused."""
    k = view()["Ks"]
    k[0, row, column] = value
    with pytest.raises(InputError, match=r"Ks\[0\].*expected focal lengths"):
        drawn(function, scene(), Ks=k)


@pytest.mark.parametrize(
    ("function", "count"), [(rasterization, 180_000), (rasterization_2dgs, 180_000)]
)
def test_more_list_entries_than_an_int_counts(function: Callable[..., Any], count: int) -> None:
    """180 000 splats over all of 100 000 tiles: the count must not overflow, nor take minutes."""
    splats = {name: t[:1].expand(count, *t.shape[1:]) for name, t in scene(1).items()}
    splats["scales"] = torch.full((count, 3), 30.0)
    splats["quats"] = torch.tensor([1.0, 0, 0, 0]).expand(count, 4)
    with pytest.raises(InputError, match=r"fill more than 268435456 .*smaller image"):
        function(**splats, **view(5000, 5000))


def test_too_many_entries_of_surfels_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before memory is asked for."""
    monkeypatch.setattr(cpu_2dgs, "MOST_ENTRIES", 1000)
    splats: dict[str, Any] = {**scene(300)}
    splats["scales"][:] = 3
    with pytest.raises(InputError, match="300 visible surfels fill more than 1000"):
        rasterization_2dgs(**splats, **view(320, 240))


@BOTH
def test_images_beyond_memory(function: Callable[..., Any]) -> None:
    """Named, with what to do, before memory is asked for."""
    with pytest.raises(InputError, match=r"32768 x 32768 px.*crops"):
        function(**scene(), **view(32768, 32768))
    many = {**scene(), "colors": torch.rand(50, 3000)}
    with pytest.raises(InputError, match=r"300\d channels.*at most"):
        function(**many, **view(2000, 2000))


@BOTH
@pytest.mark.parametrize("change", [Tensor.to_sparse, lambda t: t.to("meta")])
def test_tensors_without_data(function: Callable[..., Any], change: Any) -> None:
    """Sparse ones, and those that have a shape only."""
    splats = scene()
    splats["means"] = change(splats["means"])
    with pytest.raises(InputError, match=r"means is .* expected a dense tensor"):
        function(**splats, **view())
