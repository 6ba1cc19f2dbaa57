"""Dense torch reference of the surfel rasteriser, float64, differentiated by autograd; for tests.

Same rules as `twinloop.splat.rasterize_2dgs`, every surfel against every pixel.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from twinloop.splat.reference import rotation_matrices


class Picture(NamedTuple):
    """What one camera sees: features (h, w, d), the rest (h, w) but normal (h, w, 3) in the world.

    `depth` is accumulated, not divided by alpha; `passed` is the transmittance.
    """

    features: Tensor
    passed: Tensor
    normal: Tensor
    depth: Tensor
    distortion: Tensor
    median: Tensor


def rasterization_2dgs(
    means: Tensor,
    quats: Tensor,
    scales: Tensor,
    opacities: Tensor,
    colors: Tensor,
    viewmat: Tensor,
    K: Tensor,
    width: int,
    height: int,
    near_plane: float = 0.01,
    far_plane: float = 1e10,
    crossing: bool = True,
    filter_inv_square: float = 2.0,
) -> Picture:
    """Picture from one camera; `colors` (n, d) are features, the rest as for the rasteriser."""
    R = viewmat[:3, :3]
    p = means @ R.T + viewmat[:3, 3]
    keep = (p[:, 2] > near_plane) & (p[:, 2] < far_plane) & (opacities >= 1 / 255)
    order = torch.argsort(torch.where(keep, p[:, 2], torch.inf), stable=True)[: int(keep.sum())]
    p, scales, opacities, colors = p[order], scales[order], opacities[order], colors[order]
    axes = rotation_matrices(quats[order])
    turned = R @ axes
    plane = torch.stack([turned[:, :, 0] * scales[:, :1], turned[:, :, 1] * scales[:, 1:2], p], -1)
    fx, fy = K[0, 0], K[1, 1]
    z = plane[:, 2]
    m0 = fx * plane[:, 0] + K[0, 2] * z
    m1 = fy * plane[:, 1] + K[1, 2] * z
    facing = (turned[:, :, 2] * p).sum(-1)
    normals = axes[:, :, 2] * torch.where(facing < 0, 1.0, -1.0)[:, None]
    # gsplat's means2d, the centre of the one-sigma ellipse, or the mean's image if there is none.
    d = (z * z * z.new_tensor([1.0, 1, -1])).sum(-1)
    f = torch.where((d < 0)[:, None], z * z.new_tensor([1.0, 1, -1]), z.new_tensor([0.0, 0, 1]))
    f = f / torch.where(d < 0, d, z[:, 2])[:, None]
    centre = torch.stack([(m0 * f).sum(-1), (m1 * f).sum(-1)], dim=-1)
    rows, columns = torch.meshgrid(
        torch.arange(height, dtype=means.dtype) + 0.5,
        torch.arange(width, dtype=means.dtype) + 0.5,
        indexing="ij",
    )
    x, y = columns.reshape(-1, 1, 1), rows.reshape(-1, 1, 1)
    zeta = torch.cross(x * z - m0, y * z - m1, dim=-1)
    thick = scales[:, :2].abs().min(dim=1).values * torch.minimum(fx, fy) > 1e-4 * p[:, 2]
    flat = (zeta[..., 2] == 0) | ~(thick & (facing.abs() > 1e-4 * p.norm(dim=-1)))
    below = torch.where(flat, torch.ones_like(zeta[..., 2]), zeta[..., 2])
    u, v = zeta[..., 0] / below, zeta[..., 1] / below
    met = u * z[:, 0] + v * z[:, 1] + z[:, 2]
    on_plane = torch.where(flat | (met <= 0), torch.full_like(u, torch.inf), u * u + v * v)
    delta = torch.stack([x[..., 0] - centre[:, 0], y[..., 0] - centre[:, 1]], dim=-1)
    on_screen = filter_inv_square * (delta * delta).sum(-1)
    sigma = 0.5 * torch.minimum(on_plane, on_screen)
    alpha = (opacities * torch.exp(-sigma)).clamp_max(0.999)
    ok = alpha >= 1 / 255
    depth = z[:, 2].expand_as(u)
    if crossing:
        depth = torch.where(on_plane <= on_screen, met, depth)
        ok = ok & (depth > near_plane)
    alpha = torch.where(ok, alpha, torch.zeros_like(alpha))
    depth = torch.where(ok, depth, torch.zeros_like(depth))
    reached = torch.cumprod(1 - alpha, dim=1).detach() > 1e-4
    alpha = alpha * reached
    passed = torch.cumprod(1 - alpha, dim=1)
    before = torch.cat([torch.ones_like(passed[:, :1]), passed[:, :-1]], dim=1)[:, : len(p)]
    weight = alpha * before
    summed = weight.cumsum(1) - weight
    moment = (weight * depth).cumsum(1) - weight * depth
    distortion = 2 * (weight * (depth * summed - moment)).sum(1)
    # The median is at the last contribution that starts with a transmittance above one half.
    candidates = (weight > 0) & (before > 0.5)
    index = torch.arange(1, len(p) + 1) * candidates
    last = index.max(dim=1).values if len(p) else torch.zeros(height * width, dtype=torch.int64)
    padded = torch.cat([torch.zeros_like(depth[:, :1]) if len(p) else depth.new_zeros(
        height * width, 1), depth], dim=1)  # fmt: skip
    median = padded.gather(1, last[:, None])[:, 0]
    end = passed[:, -1] if len(p) else torch.ones(height * width, dtype=means.dtype)
    shape = (height, width)
    return Picture(
        (weight @ colors).reshape(*shape, -1),
        end.reshape(shape),
        (weight @ normals).reshape(*shape, 3),
        (weight * depth).sum(1).reshape(shape),
        distortion.reshape(shape),
        median.reshape(shape),
    )
