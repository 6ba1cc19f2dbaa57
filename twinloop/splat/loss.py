"""The photometric loss of splat training: L1, SSIM and silhouette, with its gradient.

A render and a masked picture are compared over one and the same background:

    shown  = image + (1 - alpha) background
    wanted = truth mask + (1 - mask) background
    loss   = (1 - s) mean |shown - wanted| + s (1 - mean SSIM(shown, wanted))
             + a mean |alpha - mask|

With a background drawn anew for each step colour cannot hide in it, and nothing may stay outside
the silhouette. SSIM is that of 3D Gaussian Splatting (Kerbl et al. 2023; Wang et al. 2004): a
Gaussian window of 11 x 11 px with sigma 1.5 px, zeros around the image, mean over pixels and
channels. On a CPU a native kernel gives loss and gradient in one go (`native.loss`); on CUDA, in
float64, and where there are no native kernels, torch does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import warp as wp
from torch import Tensor

from twinloop.errors import InputError
from twinloop.splat import kernels_loss
from twinloop.splat.backend import native
from twinloop.threads import each, worker_count

WINDOW, SIGMA = 11, 1.5
C1, C2 = 0.01**2, 0.03**2
ROWS_PER_WORKER = 32
"""Fewest rows that are worth a thread: each band computes ten rows of its neighbours again."""
SCRATCH_ROWS = 122
"""Rows of scratch of one band, see `native.loss`."""


def masked_loss(
    image: Tensor,
    alpha: Tensor,
    truth: Tensor,
    mask: Tensor,
    background: Tensor,
    *,
    ssim_weight: float = 0.2,
    alpha_weight: float = 0.5,
    weights: Tensor | None = None,
) -> Tensor:
    """Loss of a render against a masked picture, over a background; differentiable in the render.

    Args:
        image: (h, w, 3) render without background, that is, colour times coverage.
        alpha: (h, w) coverage of the render, 0..1.
        truth: (h, w, 3) picture, straight colour 0..1; what it holds where mask is 0 is not used.
        mask: (h, w) coverage of the object in the picture, 0..1.
        background: (3,) colour behind both, 0..1.
        ssim_weight: Share s of the SSIM term, 0..1.
        alpha_weight: Weight a of the silhouette term.
        weights: (h, w) 0..1, how much a pixel counts; where it is 0 both pictures show the
            background, so that nothing of it reaches a neighbour's SSIM window. The means are over
            the weights' sum; if no pixel counts the loss is 0.

    Returns:
        Scalar. The same bits from run to run and for any number of threads.

    Raises:
        InputError: Shapes, types or devices that do not fit together, an empty image, a weight
            outside its range.
    """
    _check(image, alpha, truth, mask, background, ssim_weight, alpha_weight, weights)
    if weights is not None:
        # Blending both pictures with the background by `weights` is scaling these three.
        image, alpha, mask = image * weights[..., None], alpha * weights, mask * weights
        counted = weights.sum()
        share = weights.numel() / torch.where(counted > 0, counted, torch.inf)
        loss = masked_loss(
            image,
            alpha,
            truth,
            mask,
            background,
            ssim_weight=ssim_weight,
            alpha_weight=alpha_weight,
        )
        return loss * share
    on_cpu = image.device.type == "cpu" and image.dtype == torch.float32
    if on_cpu and native(kernels_loss):
        fused: Tensor = _Native.apply(  # type: ignore[no-untyped-call]
            image, alpha, truth, mask, background, ssim_weight, alpha_weight
        )
        return fused
    shown = image + (1 - alpha)[..., None] * background
    wanted = truth * mask[..., None] + (1 - mask)[..., None] * background
    loss = (1 - ssim_weight) * (shown - wanted).abs().mean()
    if ssim_weight:
        loss = loss + ssim_weight * (1 - ssim_map(shown, wanted).mean())
    return loss + alpha_weight * (alpha - mask).abs().mean()


def ssim_map(x: Tensor, y: Tensor) -> Tensor:
    """SSIM (h, w, c) of two images (h, w, c) with values 0..1, in torch."""
    window = torch.exp(
        -((torch.arange(WINDOW, device=x.device, dtype=x.dtype) - WINDOW // 2) ** 2)
        / (2 * SIGMA**2)
    )
    window = window / window.sum()
    x, y = x.permute(2, 0, 1), y.permute(2, 0, 1)
    planes = torch.cat([x, y, x * x, y * y, x * y])[None]
    n = planes.shape[1]
    # One group per plane: a batch of one-channel images is 15 times slower on a CPU.
    pad = WINDOW // 2
    conv: Callable[..., Tensor] = torch.nn.functional.conv2d
    planes = conv(planes, window.expand(n, 1, 1, WINDOW), padding=(0, pad), groups=n)
    planes = conv(planes, window[:, None].expand(n, 1, WINDOW, 1), padding=(pad, 0), groups=n)
    mx, my, xx, yy, xy = planes[0].reshape(5, -1, *planes.shape[2:])
    above = (2 * mx * my + C1) * (2 * (xy - mx * my) + C2)
    below = (mx * mx + my * my + C1) * (xx - mx * mx + yy - my * my + C2)
    ratio: Tensor = above / below
    return ratio.permute(1, 2, 0)


class _Native(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        image: Tensor,
        alpha: Tensor,
        truth: Tensor,
        mask: Tensor,
        background: Tensor,
        ssim_weight: float,
        alpha_weight: float,
    ) -> Tensor:
        height, width = alpha.shape
        pixels = height * width
        inputs = [t.detach().contiguous() for t in (image, alpha, truth, mask)]
        factors = ((1 - ssim_weight) / (3 * pixels), ssim_weight / (3 * pixels))
        scale = (*factors, alpha_weight / pixels)
        gradients: list[Tensor] = []
        if any(ctx.needs_input_grad[:2]):
            gradients = [torch.empty_like(t) for t in inputs[:2]]
        sums = torch.empty(height, 3)
        bands = max(1, min(worker_count(), height // ROWS_PER_WORKER))
        scratch = torch.zeros(bands, SCRATCH_ROWS * (-(-width // 16) * 16 + 32))
        arguments = [
            width,
            height,
            *(t.data_ptr() for t in inputs),
            *background.tolist(),
            *scale,
            *([t.data_ptr() for t in gradients] or [0, 0]),
            sums.data_ptr(),
        ]

        def work(b: int) -> None:
            rows = [height * b // bands, height * (b + 1) // bands]
            wp.launch(
                kernels_loss.loss_band,
                dim=1,
                inputs=[*rows, *arguments, scratch[b].data_ptr()],
                device="cpu",
            )

        each(work, bands)
        ctx.save_for_backward(*gradients)
        totals = sums.double().sum(dim=0)
        return (totals * torch.tensor(scale, dtype=torch.float64)).sum().float()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        image, alpha = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        return (
            image * gradient if wanted[0] else None,
            alpha * gradient if wanted[1] else None,
            *[None] * 5,
        )


def _check(
    image: Tensor,
    alpha: Tensor,
    truth: Tensor,
    mask: Tensor,
    background: Tensor,
    ssim_weight: float,
    alpha_weight: float,
    weights: Tensor | None,
) -> None:
    if alpha.dim() != 2 or alpha.numel() == 0:
        raise InputError(
            f"alpha has shape {tuple(alpha.shape)}, expected (height, width), both at least 1."
        )
    shape = tuple(alpha.shape)
    expected = [("image", image, (*shape, 3)), ("truth", truth, (*shape, 3)), ("mask", mask, shape)]
    expected.append(("background", background, (3,)))
    if weights is not None:
        expected.append(("weights", weights, shape))
    for name, tensor, size in expected:
        if tuple(tensor.shape) != size:
            raise InputError(
                f"{name} has shape {tuple(tensor.shape)}, expected {size} by alpha's {shape}."
            )
        if tensor.dtype != alpha.dtype or tensor.device != alpha.device:
            raise InputError(
                f"{name} is {tensor.dtype} on {tensor.device}, but alpha is {alpha.dtype} on "
                f"{alpha.device}: bring both to one type and device."
            )
    if not alpha.dtype.is_floating_point:
        raise InputError(f"alpha is {alpha.dtype}, expected float32: convert the images to 0..1.")
    if not 0 <= ssim_weight <= 1 or not 0 <= alpha_weight < float("inf"):
        raise InputError(
            f"ssim_weight is {ssim_weight}, alpha_weight {alpha_weight}: expected 0..1 and a "
            "finite number from 0 on."
        )
