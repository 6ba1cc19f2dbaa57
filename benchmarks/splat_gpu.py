"""gsplat on a CUDA card against the CPU rasteriser: pictures, gradients, speed, training.

Run `python -m benchmarks.splat --gpu`; under four minutes. Without a card the rows say so.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.rows import Figure
from benchmarks.splat_raster import scene
from twinloop.splat.rasterize import rasterization
from twinloop.splat.rasterize_2dgs import rasterization_2dgs

TOLERANCE = 1e-3
COUNT, SIZE = 20_000, 400


def compare(devices: tuple[str, str] = ("cpu", "cuda")) -> list[Figure]:
    """Both rasterisers on both devices, same scene: largest differences, and how much faster."""
    names = ("3DGS", "2DGS")
    if devices[1] == "cuda" and not torch.cuda.is_available():
        return [
            Figure(f"{name}: gsplat against cpu, {what}", "untested on GPU", "", None, "lower", 0)
            for name in names
            for what in ("picture", "gradients")
        ]
    figures = []
    for name, draw in zip(names, (_draw_3d, _draw_2d), strict=True):
        (image, gradients, cpu), (other, others, card) = (
            _measure(draw, device) for device in devices
        )
        picture = float((image - other).abs().max())
        worst = max(
            float((a - b).norm() / a.norm().clamp_min(1e-12))
            for a, b in zip(gradients, others, strict=True)
        )
        figures += [
            Figure(
                f"{name}: gsplat against cpu, picture, largest difference",
                picture,
                "",
                TOLERANCE,
                "lower",
                1,
            ),
            Figure(
                f"{name}: gsplat against cpu, gradients, relative norm",
                worst,
                "",
                TOLERANCE,
                "lower",
                5,
            ),
            Figure(
                f"{name}: {COUNT // 1000}k@{SIZE}, cpu over gsplat",
                cpu / card,
                "x",
                None,
                "higher",
                5,
            ),
        ]
    return figures


def _measure(
    draw: Callable[[list[Tensor], Tensor, Tensor], Tensor], device: str, repeats: int = 5
) -> tuple[Tensor, list[Tensor], float]:
    """Layers and gradients on the CPU, and the shortest wall time of one step, s."""
    s = scene(COUNT, SIZE)
    values = [
        v.to(device, copy=True).requires_grad_()
        for v in (s.means, s.quats, s.scales, s.opacities, s.harmonics)
    ]
    view, k = s.view.to(device)[None], s.k.to(device)[None]
    weight = torch.linspace(-1, 1, SIZE * SIZE).reshape(1, SIZE, SIZE, 1).to(device)
    times = []
    for _ in range(repeats):
        for value in values:
            value.grad = None
        started = time.perf_counter()
        image = draw(values, view, k)
        (image * weight).sum().backward()  # type: ignore[no-untyped-call]
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    gradients = [v.grad.cpu() for v in values if v.grad is not None]
    return image.detach().cpu(), gradients, min(times)


def _draw_3d(values: list[Tensor], view: Tensor, k: Tensor) -> Tensor:
    """Colours, expected depth and alpha."""
    means, quats, scales, opacities, sh = values
    image, alpha, _ = rasterization(
        means,
        quats,
        scales,
        opacities,
        sh,
        view,
        k,
        SIZE,
        SIZE,
        sh_degree=2,
        render_mode="RGB+ED",
    )
    return torch.cat([image, alpha], dim=-1)


def _draw_2d(values: list[Tensor], view: Tensor, k: Tensor) -> Tensor:
    """Colours, expected depth, alpha and normals, by gsplat's choice of depth."""
    means, quats, scales, opacities, sh = values
    image, alpha, normal, *_ = rasterization_2dgs(
        means,
        quats,
        scales,
        opacities,
        sh,
        view,
        k,
        SIZE,
        SIZE,
        sh_degree=2,
        render_mode="RGB+ED",
        depth="center",
    )
    return torch.cat([image, alpha, normal], dim=-1)
