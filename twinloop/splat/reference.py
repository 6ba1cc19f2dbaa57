"""Dense torch reference of the rasteriser, float64, differentiated by autograd; for tests.

Same rules as `twinloop.splat.rasterize`, every Gaussian against every pixel.
"""

from __future__ import annotations

import torch
from torch import Tensor


def rotation_matrices(quats: Tensor) -> Tensor:
    """Rotation matrices (n, 3, 3) of quaternions wxyz (n, 4) of any length."""
    w, x, y, z = torch.nn.functional.normalize(quats, dim=-1).unbind(-1)
    rows = [
        1 - 2 * (y * y + z * z),
        2 * (x * y - w * z),
        2 * (x * z + w * y),
        2 * (x * y + w * z),
        1 - 2 * (x * x + z * z),
        2 * (y * z - w * x),
        2 * (x * z - w * y),
        2 * (y * z + w * x),
        1 - 2 * (x * x + y * y),
    ]
    return torch.stack(rows, dim=-1).reshape(-1, 3, 3)


def rasterization(
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
    eps2d: float = 0.3,
    antialiased: bool = False,
) -> tuple[Tensor, Tensor]:
    """Image (height, width, d + 1), whose last channel is accumulated depth, and transmittance.

    One camera; `colors` (n, d) are features, not harmonics. Shapes otherwise as in `rasterize`.
    """
    p = means @ viewmat[:3, :3].T + viewmat[:3, 3]
    keep = (p[:, 2] > near_plane) & (p[:, 2] < far_plane) & (opacities >= 1 / 255)
    order = torch.argsort(torch.where(keep, p[:, 2], torch.inf), stable=True)[: int(keep.sum())]
    p, opacities, colors = p[order], opacities[order], colors[order]
    fx, fy, cx, cy = K[0, 0], K[1, 1], K[0, 2], K[1, 2]
    x, y, z = p.unbind(-1)
    mx, my = 0.15 * width / fx, 0.15 * height / fy
    u = torch.minimum(torch.maximum(x / z, -cx / fx - mx), (width - cx) / fx + mx)
    v = torch.minimum(torch.maximum(y / z, -cy / fy - my), (height - cy) / fy + my)
    zero = torch.zeros_like(z)
    jacobian = torch.stack([fx / z, zero, -fx * u / z, zero, fy / z, -fy * v / z], dim=-1)
    root = viewmat[:3, :3] @ rotation_matrices(quats[order]) * scales[order][:, None, :]
    flat = jacobian.reshape(-1, 2, 3) @ root
    plain = flat @ flat.transpose(1, 2)
    covariance = plain + eps2d * torch.eye(2, dtype=means.dtype)
    if antialiased:
        ratio = torch.linalg.det(plain) / torch.linalg.det(covariance)
        opacities = opacities * ratio.clamp_min(1e-12).sqrt()
    conic = torch.linalg.inv(covariance)
    centre = torch.stack([fx * x / z + cx, fy * y / z + cy], dim=-1)
    rows, columns = torch.meshgrid(
        torch.arange(height, dtype=means.dtype) + 0.5,
        torch.arange(width, dtype=means.dtype) + 0.5,
        indexing="ij",
    )
    delta = torch.stack([columns, rows], dim=-1).reshape(-1, 1, 2) - centre
    sigma = 0.5 * torch.einsum("pni,nij,pnj->pn", delta, conic, delta)
    alpha = (opacities * torch.exp(-sigma)).clamp_max(0.999)
    alpha = torch.where((alpha >= 1 / 255) & (sigma >= 0), alpha, torch.zeros_like(alpha))
    reached = torch.cumprod(1 - alpha, dim=1).detach() > 1e-4
    alpha = alpha * reached
    passed = torch.cumprod(1 - alpha, dim=1)
    before = torch.cat([torch.ones_like(passed[:, :1]), passed[:, :-1]], dim=1)
    image = (alpha * before) @ torch.cat([colors, z[:, None]], dim=1)
    last = passed[:, -1] if passed.shape[1] else torch.ones(height * width, dtype=means.dtype)
    return image.reshape(height, width, -1), last.reshape(height, width)
