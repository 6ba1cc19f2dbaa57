"""The fused loss against torch in double precision, closed forms and finite differences."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from twinloop.errors import InputError
from twinloop.splat.loss import masked_loss, ssim_map


def pictures(height: int, width: int, seed: int = 0) -> list[Tensor]:
    """Render (image, alpha) and picture (truth, mask) that overlap in part, and a background."""
    g = torch.Generator().manual_seed(seed)
    rows, columns = torch.meshgrid(
        torch.linspace(-1, 1, height), torch.linspace(-1, 1, width), indexing="ij"
    )
    alpha = torch.sigmoid(12 * (0.6 - torch.hypot(rows - 0.1, columns)))
    mask = torch.sigmoid(20 * (0.6 - torch.hypot(rows, columns + 0.05)))
    alpha[alpha < 0.01], mask[mask < 0.01] = 0, 0  # equal pixels, whose L1 gradient is 0
    truth = torch.rand(height, width, 3, generator=g)
    image = (0.7 * truth + 0.3 * torch.rand(truth.shape, generator=g)) * alpha[..., None]
    return [image, alpha, truth, mask, torch.rand(3, generator=g)]


def evaluate(values: list[Tensor], **weights: object) -> tuple[Tensor, Tensor, Tensor]:
    """Loss and its gradient by image and alpha."""
    image, alpha = (t.clone().requires_grad_() for t in values[:2])
    loss = masked_loss(image, alpha, *values[2:], **weights)
    loss.backward()
    assert image.grad is not None
    assert alpha.grad is not None
    return loss.detach(), image.grad, alpha.grad


def assert_exact(values: list[Tensor], **weights: object) -> None:
    """Native loss and gradients equal those of torch in float64, to 1e-5 of their size."""
    wide = {k: v.double() if isinstance(v, Tensor) else v for k, v in weights.items()}
    ours = evaluate(values, **weights)
    exact = evaluate([t.double() for t in values], **wide)
    for a, b in zip(ours, exact, strict=True):
        assert float((a - b).abs().max()) <= 1e-5 * float(b.abs().max()) + 1e-12


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(1, 45), st.integers(1, 45), st.floats(0, 1), st.floats(0, 2), st.integers(0, 99))
def test_equals_torch_in_double_precision(h: int, w: int, s: float, a: float, seed: int) -> None:
    """Any size, also smaller than the window, and any weights."""
    assert_exact(pictures(h, w, seed), ssim_weight=s, alpha_weight=a)


def test_equals_torch_over_several_bands() -> None:
    """An image that is cut into bands for the threads, of an odd width."""
    assert_exact(pictures(131, 77))


def test_weights_take_pixels_out() -> None:
    """Weights equal the torch loss; what a pixel of weight 0 holds has no effect at all."""
    values = pictures(60, 50)
    weights = torch.ones(60, 50)
    weights[10:30, 15:40] = 0
    weights[40:50, :] = 0.25
    assert_exact(values, weights=weights)
    before = evaluate(values, weights=weights)
    for tensor in values[:4]:
        tensor[10:30, 15:40] = 0.77
    after = evaluate(values, weights=weights)
    assert torch.equal(before[0], after[0])
    assert float(after[1][10:30, 15:40].abs().max()) == 0
    all_ignored = evaluate(values, weights=torch.zeros(60, 50))
    assert [float(t.abs().max()) for t in all_ignored] == [0, 0, 0]


def test_closed_forms() -> None:
    """Equal pictures cost nothing; a constant offset of flat pictures costs what the formula says.

    SSIM of two flat pictures is (2 a b + c1) / (a^2 + b^2 + c1) away from the borders.
    """
    image, *_ = pictures(40, 40)
    opaque, black = torch.ones(40, 40), torch.zeros(3)
    loss, *_ = evaluate([image, opaque, image, opaque, black])
    assert abs(float(loss)) < 1e-6
    a, b = torch.full((80, 80, 3), 0.5), torch.full((80, 80, 3), 0.7)
    one = torch.ones(80, 80)
    assert float(masked_loss(a, one, b, one, black, ssim_weight=0)) == pytest.approx(0.2, rel=1e-5)
    inner = ssim_map(a, b)[10:-10, 10:-10]
    expected = (2 * 0.35 + 1e-4) / (0.25 + 0.49 + 1e-4)
    torch.testing.assert_close(inner, torch.full_like(inner, expected), rtol=1e-4, atol=0)
    hidden = masked_loss(0 * a, 0 * one, b, 0 * one, torch.rand(3), alpha_weight=1)
    assert float(hidden) == pytest.approx(0, abs=1e-6)  # nothing shown, nothing wanted
    silhouette = masked_loss(0 * a, 0.25 * one, 0 * b, one, black, ssim_weight=0, alpha_weight=2)
    assert float(silhouette) == pytest.approx(1.5)


def test_gradient_predicts_a_change() -> None:
    """A small step against the gradient lowers the loss by its squared length."""
    values = pictures(50, 64)
    loss, by_image, by_alpha = evaluate(values, ssim_weight=1.0, alpha_weight=0.0)
    squared = float(by_image.square().sum() + by_alpha.square().sum())
    step = 1e-3 * float(loss) / squared
    moved = [values[0] - step * by_image, values[1] - step * by_alpha, *values[2:]]
    lower = masked_loss(*(t.double() for t in moved), ssim_weight=1.0, alpha_weight=0.0)
    before = masked_loss(*(t.double() for t in values), ssim_weight=1.0, alpha_weight=0.0)
    assert float(before - lower) == pytest.approx(step * squared, rel=2e-2)


def test_same_bits_for_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """One worker, two and five give the same loss and gradients, bit for bit."""
    values = pictures(190, 45)
    results = []
    for threads in ("1", "2", "5"):
        monkeypatch.setenv("TWINLOOP_THREADS", threads)
        results.append(evaluate(values))
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_gradient_scales_and_views_work() -> None:
    """A scaled loss scales the gradient; tensors that are not contiguous give the same."""
    values = pictures(30, 40)
    image = values[0].clone().requires_grad_()
    (3 * masked_loss(image, *values[1:])).backward()
    _, plain, _ = evaluate(values)
    assert image.grad is not None
    torch.testing.assert_close(image.grad, 3 * plain)
    turned = values[0].permute(2, 0, 1).contiguous().permute(1, 2, 0)
    loss, gradient, _ = evaluate([turned, *values[1:]])
    assert torch.equal(loss, evaluate(values)[0])
    assert torch.equal(gradient, plain)
    with torch.no_grad():
        assert torch.equal(masked_loss(*values), loss)


def test_faults_are_named() -> None:
    """Shapes, types and weights that do not fit are refused by name."""
    values = pictures(8, 9)
    with pytest.raises(InputError, match=r"truth has shape \(8, 9\)"):
        masked_loss(*values[:2], values[3], *values[3:])
    with pytest.raises(InputError, match=r"mask is torch\.float64"):
        masked_loss(*values[:3], values[3].double(), values[4])
    with pytest.raises(InputError, match="alpha has shape"):
        masked_loss(torch.zeros(0, 4, 3), torch.zeros(0, 4), *values[2:])
    with pytest.raises(InputError, match=r"ssim_weight is 1\.5"):
        masked_loss(*values, ssim_weight=1.5)
    with pytest.raises(InputError, match="weights has shape"):
        masked_loss(*values, weights=torch.ones(3, 3))
