"""Normals of depth images, as gsplat's `depth_to_normal`: native on the CPU, torch elsewhere."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from twinloop.splat.native import surfel_steps as steps
from twinloop.splat.native.surfel_normals import PADDING
from twinloop.threads import worker_count


def depth_to_normal(depth: Tensor, viewmats: Tensor, Ks: Tensor) -> Tensor:
    """Normals (c, h, w, 3) in the world of depth images (c, h, w), m; zero at the border.

    Towards the camera where the surface faces it, as in gsplat: the cross product of the central
    differences of the points. viewmats (c, 4, 4) world to camera, Ks (c, 3, 3) px.
    """
    if depth.device.type == "cpu" and depth.dtype == torch.float32 and not Ks.requires_grad:
        from twinloop.splat import kernels_2dgs
        from twinloop.splat.backend import native

        if native(kernels_2dgs):
            views = [
                _Normals.apply(*values)  # type: ignore[no-untyped-call]
                for values in zip(depth, viewmats, Ks, strict=True)
            ]
            return views[0][None] if len(views) == 1 else torch.stack(views)
    return in_torch(depth, viewmats, Ks)


def in_torch(depth: Tensor, viewmats: Tensor, Ks: Tensor) -> Tensor:
    """Do as `depth_to_normal` on any device, differentiable in the camera too."""
    h, w = depth.shape[-2:]
    fx, fy, cx, cy = (Ks[..., i, j, None, None] for i, j in ((0, 0), (1, 1), (0, 2), (1, 2)))
    x = (torch.arange(w, dtype=depth.dtype, device=depth.device) + 0.5 - cx) / fx
    y = (torch.arange(h, dtype=depth.dtype, device=depth.device)[:, None] + 0.5 - cy) / fy
    points = torch.stack([depth * x, depth * y, depth], dim=-1)
    down = points[..., 2:, 1:-1, :] - points[..., :-2, 1:-1, :]
    right = points[..., 1:-1, 2:, :] - points[..., 1:-1, :-2, :]
    normal = torch.nn.functional.normalize(torch.cross(down, right, dim=-1), dim=-1)
    normal = normal @ viewmats[..., None, :3, :3]
    return torch.nn.functional.pad(normal, (0, 0, 1, 1, 1, 1))


class _Normals(torch.autograd.Function):
    """One camera's: depth (h, w), view matrix (4, 4), K (3, 3) -> (h, w, 3)."""

    @staticmethod
    def forward(ctx: Any, depth: Tensor, viewmat: Tensor, K: Tensor) -> Tensor:  # type: ignore[override]
        from twinloop.splat.cpu_2dgs import run

        h, w = depth.shape
        padded = torch.nn.functional.pad(depth, (1, PADDING - 1))
        camera = torch.zeros(16)
        camera[:9] = viewmat[:3, :3].reshape(-1)
        camera[12:] = torch.stack([K[0, 0], K[1, 1], K[0, 2], K[1, 2]])
        ctx.kept = camera, padded
        normals = torch.empty(h, w, 3)
        run(steps.NORMALS, [h, w], [], [camera, padded, normals], worker_count())
        return normals

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        from twinloop.splat.cpu_2dgs import run

        camera, padded = ctx.kept
        h, w = gradient.shape[:2]
        v_depth, v_rotation = torch.zeros_like(padded), torch.empty(9)
        tensors = [camera, padded, gradient.contiguous(), v_depth, v_rotation]
        run(steps.NORMALS_ADJOINT, [h, w], [], tensors)
        v_view = None
        if ctx.needs_input_grad[1]:
            v_view = torch.zeros(4, 4)
            v_view[:3, :3] = v_rotation.reshape(3, 3)
        return v_depth[:, 1 : w + 1], v_view, None
