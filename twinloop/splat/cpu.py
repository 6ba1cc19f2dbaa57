"""The CPU rasteriser of 3D Gaussians as one differentiable step: torch in and out, Warp inside.

One `autograd.Function` does a whole call (project, shade, sort, bin, composite, all cameras), so
that torch adds next to nothing. Tiles are spread over threads; every sum has a fixed order that
does not know of threads, so that results are the same bit for bit with any number of them. Call
`torch.set_num_threads(1)` in a training program: torch's idle OpenMP threads spin and would take
the cores away from ours (see `twinloop.threads`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from twinloop.splat import kernels, kernels_project
from twinloop.splat.backend import native
from twinloop.splat.cpu_view import Settings, View

Render = Callable[..., tuple[Tensor, Tensor, dict[str, Tensor]]]


def renderer() -> Render:
    """Return `render`, its kernels compiled and loaded, or where that cannot be torch's."""
    if native(kernels_project) and native(kernels):
        return render
    from twinloop.splat import fallback

    return fallback.render


def render(
    means: Tensor,
    quats: Tensor,
    scales: Tensor,
    opacities: Tensor,
    colors: Tensor,
    viewmats: Tensor,
    settings: Settings,
) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Render float32, contiguous, checked tensors.

    Shapes as in `rasterize.rasterization`, but colours always have the camera's dimension: (1 or c,
    n, d) or (1 or c, n, k, 3).

    Returns:
        Images (c, height, width, x) without background, x the colours and then accumulated depth;
        alphas (c, height, width, 1); info: means2d (c, n, 2), a leaf whose `grad` the backward pass
        fills, conics (c, n, 3), depths (c, n), opacities (c, n), radii (c, n, 2).

    Raises:
        InputError: The Gaussians fill more tiles than memory allows for.
    """
    cameras, n = len(viewmats), len(means)
    wanted = torch.is_grad_enabled() and any(
        t.requires_grad for t in (means, quats, scales, opacities, colors, viewmats)
    )
    means2d = torch.zeros(cameras, n, 2, requires_grad=wanted)
    views = [
        View(means, quats, scales, opacities, colors[c % len(colors)], viewmats[c], settings, c)
        for c in range(cameras)
    ]
    images, alphas = _Rasterize.apply(  # type: ignore[no-untyped-call]
        means, quats, scales, opacities, colors, viewmats, means2d, views
    )
    with torch.no_grad():
        geometry = _stack([v.geometry for v in views])
        p, s, q = geometry[..., 2], geometry[..., 3], geometry[..., 4]
        info = {
            "means2d": means2d,
            "conics": torch.stack([p, p * s, q + p * s * s], dim=-1),
            "depths": _stack([v.depths for v in views]),
            "opacities": geometry[..., 5],
            "radii": _stack([v.radii for v in views]),
        }
    return images, alphas, info


def _stack(tensors: list[Tensor]) -> Tensor:
    return tensors[0][None] if len(tensors) == 1 else torch.stack(tensors)


class _Rasterize(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        means: Tensor,
        quats: Tensor,
        scales: Tensor,
        opacities: Tensor,
        colors: Tensor,
        viewmats: Tensor,
        means2d: Tensor,
        views: list[View],
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(means, quats, scales, opacities, colors, viewmats)
        ctx.views = views
        rendered = [view.forward() for view in views]
        for view, image_mean in zip(views, means2d.detach(), strict=True):
            image_mean.copy_(view.geometry[:, :2])
        passed = _stack([transmittance for _, transmittance in rendered])
        return _stack([image for image, _ in rendered]), (1 - passed)[..., None]

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(  # type: ignore[override]
        ctx: Any, image_gradient: Tensor, alpha_gradient: Tensor
    ) -> tuple[Tensor | None, ...]:
        means, quats, scales, opacities, colors, viewmats = ctx.saved_tensors
        inputs = (means, quats, scales, opacities, colors)
        gradients = [torch.empty_like(t) for t in inputs]
        cameras = torch.zeros_like(viewmats) if ctx.needs_input_grad[5] else None
        means2d = torch.empty(len(viewmats), len(means), 2)
        for c, view in enumerate(ctx.views):
            means2d[c] = view.backward(
                image_gradient[c].contiguous(),
                alpha_gradient[c].contiguous(),
                [*gradients[:4], gradients[4][c % len(colors)]],
                None if cameras is None else cameras[c],
                first=c == 0,
                first_colors=c < len(colors),
            )
        return (*gradients, cameras, means2d, None)
