"""Differentiable steps of the CPU rasteriser: torch in and out, Warp kernels inside.

Work on an image is split into `SLICES` fixed sets of tiles with one gradient buffer each, summed in
order, so results do not depend on the number of threads, bit for bit. A Warp launch on the CPU is
one sequential loop that releases the interpreter lock; the slices run on a small thread pool of our
own. Call `torch.set_num_threads(1)` in a training program: torch's idle OpenMP threads spin and
would take the cores away from this pool.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import torch
import warp as wp
from torch import Tensor

from twinloop.splat import kernels
from twinloop.splat.compositing import CHANNELS, GRADIENT, RECORD, TILE
from twinloop.threads import worker_count

SLICES = 4


@lru_cache(maxsize=1)
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max(1, min(SLICES, worker_count())))


def _each_slice(work: Callable[[int], None]) -> None:
    wp.load_module(kernels, device="cpu")  # compiling is not for several threads at once
    list(_pool().map(work, range(SLICES)))


def _wrap(tensor: Tensor, dtype: Any = wp.float32) -> Any:
    return wp.from_torch(tensor.detach().contiguous(), dtype=dtype, requires_grad=False)


class Project(torch.autograd.Function):
    """Means, quaternions, scales -> image means, conics, depths, antialiasing factors."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        means: Tensor,
        quats: Tensor,
        scales: Tensor,
        viewmat: Tensor,
        intrinsics: Tensor,
        width: int,
        height: int,
        near: float,
        far: float,
        eps2d: float,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Project to one camera."""
        n = len(means)
        means2d, conics = torch.zeros(n, 2), torch.zeros(n, 3)
        depths, compensations = torch.zeros(n), torch.zeros(n)
        camera = viewmat.double()
        k = intrinsics.double()
        ctx.constant = [
            wp.mat33(*camera[:3, :3].reshape(-1).tolist()),
            wp.vec3(*camera[:3, 3].tolist()),
            wp.vec4(*(float(k[i]) for i in ((0, 0), (1, 1), (0, 2), (1, 2)))),
            wp.vec2(float(width), float(height)),
            float(near),
            float(far),
            float(eps2d),
        ]
        ctx.save_for_backward(means, quats, scales, means2d, conics, depths, compensations)
        wp.launch(
            kernels.project,
            dim=n,
            inputs=[*_gaussians(means, quats, scales), *ctx.constant],
            outputs=_projected(means2d, conics, depths, compensations),
            device="cpu",
        )
        return means2d, conics, depths, compensations

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        """Adjoint of the projection, by Warp."""
        means, quats, scales, *outputs = ctx.saved_tensors
        adjoint = [torch.zeros_like(t) for t in (means, quats, scales)]
        wp.launch(
            kernels.project,
            dim=len(means),
            inputs=[*_gaussians(means, quats, scales), *ctx.constant],
            outputs=_projected(*outputs),
            adj_inputs=[*_gaussians(*adjoint), *ctx.constant],
            adj_outputs=_projected(*(g.clone() for g in gradients)),
            adjoint=True,
            device="cpu",
        )
        return (*adjoint, None, None, None, None, None, None, None)


def _gaussians(means: Tensor, quats: Tensor, scales: Tensor) -> list[Any]:
    return [_wrap(means, wp.vec3), _wrap(quats, wp.vec4), _wrap(scales, wp.vec3)]


def _projected(means2d: Tensor, conics: Tensor, depths: Tensor, factors: Tensor) -> list[Any]:
    return [_wrap(means2d, wp.vec2), _wrap(conics, wp.vec3), _wrap(depths), _wrap(factors)]


class Harmonics(torch.autograd.Function):
    """Means, camera centre, SH coefficients (n, k, 3) -> colours (n, 3)."""

    @staticmethod
    def forward(ctx: Any, means: Tensor, eye: Tensor, coefficients: Tensor) -> Tensor:  # type: ignore[override]
        """Evaluate the harmonics."""
        colors = torch.zeros(len(means), 3)
        ctx.bases = coefficients.shape[1]
        ctx.eye = wp.vec3(*eye.tolist())
        ctx.save_for_backward(means, coefficients, colors)
        wp.launch(
            kernels.harmonics,
            dim=len(means),
            inputs=[ctx.bases, _wrap(means, wp.vec3), ctx.eye, _wrap(coefficients, wp.vec3)],
            outputs=[_wrap(colors, wp.vec3)],
            device="cpu",
        )
        return colors

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, Tensor]:  # type: ignore[override]
        """Adjoint of the harmonics, by Warp."""
        means, coefficients, colors = ctx.saved_tensors
        d_means, d_coefficients = torch.zeros_like(means), torch.zeros_like(coefficients)
        wp.launch(
            kernels.harmonics,
            dim=len(means),
            inputs=[ctx.bases, _wrap(means, wp.vec3), ctx.eye, _wrap(coefficients, wp.vec3)],
            outputs=[_wrap(colors, wp.vec3)],
            adj_inputs=[
                ctx.bases,
                _wrap(d_means, wp.vec3),
                ctx.eye,
                _wrap(d_coefficients, wp.vec3),
            ],
            adj_outputs=[_wrap(gradient.clone(), wp.vec3)],
            adjoint=True,
            device="cpu",
        )
        return d_means, None, d_coefficients


class Composite(torch.autograd.Function):
    """Projected Gaussians -> image (height, width, c) and final transmittance (height, width).

    Takes image means (n, 2), conics (n, 3), opacities (n), features (n, c) and depths (n), which
    only order the Gaussians; a depth of zero leaves one out.
    """

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        means2d: Tensor,
        conics: Tensor,
        opacities: Tensor,
        features: Tensor,
        depths: Tensor,
        width: int,
        height: int,
    ) -> tuple[Tensor, Tensor]:
        """Bin into tiles and composite front to back."""
        n, channels = features.shape
        passes = -(-channels // CHANNELS)
        padded = torch.zeros(n, passes * CHANNELS)
        padded[:, :channels] = features
        ctx.size = (width, height)
        ctx.channels = channels
        ctx.records = [
            _pack(means2d, conics, opacities, padded[:, p * CHANNELS : (p + 1) * CHANNELS])
            for p in range(passes)
        ]
        order = torch.argsort(torch.where(depths > 0, depths, torch.inf), stable=True)
        visible = int(((depths > 0) & (opacities >= 1 / 255)).sum())
        if visible < n:
            order = order[((depths > 0) & (opacities >= 1 / 255))[order]]
        ctx.lists = _bin(order.int(), ctx.records[0], width, height)
        ctx.images, transmittance = [], torch.ones(height, width)
        for records in ctx.records:
            image = torch.zeros(height, width, CHANNELS)
            _composite(ctx.lists, records, image, transmittance, ctx.size)
            ctx.images.append(image)
        ctx.transmittance = transmittance
        ctx.count = n
        stacked = torch.cat(ctx.images, dim=2)[..., :channels] if passes > 1 else ctx.images[0]
        return stacked[..., :channels].clone(), transmittance.clone()

    @staticmethod
    def backward(  # type: ignore[override]
        ctx: Any, image_gradient: Tensor, transmittance_gradient: Tensor
    ) -> tuple[Tensor | None, ...]:
        """Hand-written adjoint of the compositing."""
        width, height = ctx.size
        passes = len(ctx.records)
        padded = torch.zeros(height, width, passes * CHANNELS)
        padded[..., : ctx.channels] = image_gradient
        start, entries = ctx.lists
        tiles = len(start) - 1
        total = torch.zeros(ctx.count, 6)
        features = torch.zeros(ctx.count, passes * CHANNELS)
        for p, (records, image) in enumerate(zip(ctx.records, ctx.images, strict=True)):
            # The gradient is linear in (image, transmittance): the latter goes in once only.
            back = transmittance_gradient if p == 0 else torch.zeros(height, width)
            buffers = torch.zeros(SLICES, ctx.count, GRADIENT)
            fixed = [
                _wrap(start, wp.int32),
                _wrap(entries, wp.int32),
                _wrap(records),
                _wrap(image.reshape(-1)),
                _wrap(ctx.transmittance.reshape(-1)),
                _wrap(padded[..., p * CHANNELS : (p + 1) * CHANNELS].reshape(-1)),
                _wrap(back.reshape(-1)),
            ]
            targets = [_wrap(buffer.reshape(-1)) for buffer in buffers]

            def work(s: int, fixed: list[Any] = fixed, targets: list[Any] = targets) -> None:
                wp.launch(
                    kernels.backward,
                    dim=-(-tiles // SLICES),
                    inputs=[s, SLICES, tiles, width, height, *fixed, targets[s]],
                    device="cpu",
                )

            _each_slice(work)
            summed = buffers[0]
            for buffer in buffers[1:]:
                summed += buffer
            total += summed[:, :6]
            features[:, p * CHANNELS : (p + 1) * CHANNELS] = summed[:, 8:]
        return (
            total[:, :2].contiguous(),
            total[:, 2:5].contiguous(),
            total[:, 5].contiguous(),
            features[:, : ctx.channels].contiguous(),
            None,
            None,
            None,
        )


def _pack(means2d: Tensor, conics: Tensor, opacities: Tensor, features: Tensor) -> Tensor:
    records = torch.empty(len(means2d) * RECORD)
    wp.launch(
        kernels.pack,
        dim=len(means2d),
        inputs=[
            _wrap(means2d, wp.vec2),
            _wrap(conics, wp.vec3),
            _wrap(opacities),
            _wrap(features, wp.vec4),
            _wrap(records),
        ],
        device="cpu",
    )
    return records


def _bin(order: Tensor, records: Tensor, width: int, height: int) -> tuple[Tensor, Tensor]:
    tiles = -(-width // TILE) * -(-height // TILE)
    start = torch.zeros(tiles + 1, dtype=torch.int32)
    total = torch.zeros(1, dtype=torch.int32)
    capacity = 8 * len(order) + 1024
    while True:
        entries = torch.empty(capacity, dtype=torch.int32)
        wp.launch(
            kernels.bin_gaussians,
            dim=1,
            inputs=[
                len(order),
                _wrap(order, wp.int32),
                _wrap(records),
                width,
                height,
                capacity,
                _wrap(start, wp.int32),
                _wrap(entries, wp.int32),
                _wrap(total, wp.int32),
            ],
            device="cpu",
        )
        if int(total) <= capacity:
            return start, entries
        capacity = int(total)


def _composite(
    lists: tuple[Tensor, Tensor],
    records: Tensor,
    image: Tensor,
    transmittance: Tensor,
    size: tuple[int, int],
) -> None:
    start, entries = lists
    tiles = len(start) - 1
    arguments = [
        tiles,
        *size,
        _wrap(start, wp.int32),
        _wrap(entries, wp.int32),
        _wrap(records),
        _wrap(image.reshape(-1)),
        _wrap(transmittance.reshape(-1)),
    ]

    def work(s: int) -> None:
        wp.launch(
            kernels.forward, dim=-(-tiles // SLICES), inputs=[s, SLICES, *arguments], device="cpu"
        )

    _each_slice(work)
