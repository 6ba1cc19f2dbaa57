"""The rasteriser of surfels in torch, for a Warp that cannot compile kernels for the CPU.

Same rules and results as `twinloop.splat.cpu_2dgs`, whose `Rasterize.apply` takes and gives the
same; see `twinloop.splat.fallback` for how.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from twinloop.splat.fallback import eye_of, harmonics, near_to_far, over_tiles, weights
from twinloop.splat.reference import rotation_matrices

if TYPE_CHECKING:
    from twinloop.splat.cpu_2dgs import Camera


def rasterize(
    means: Tensor,
    quats: Tensor,
    scales: Tensor,
    opacities: Tensor,
    colors: Tensor,
    viewmat: Tensor,
    intrinsics: Tensor,
    background: Tensor,
    screen: Tensor,
    camera: Camera,
) -> tuple[Tensor, ...]:
    """One camera's picture, as `twinloop.splat.cpu_2dgs.Rasterize` says."""
    means, quats, scales, opacities, colors, viewmat, K, background = (
        t.double()
        for t in (means, quats, scales, opacities, colors, viewmat, intrinsics, background)
    )
    # Zero, with a gradient: that of a shift of each surfel in the image.
    shift = (screen - screen.detach()).double()
    R = viewmat[:3, :3]
    p = means @ R.T + viewmat[:3, 3]
    keep = (p[:, 2] > camera.near) & (p[:, 2] < camera.far) & (opacities >= 1 / 255)
    # What is not drawn is moved before the camera: infinities would reach all gradients.
    p = torch.where(keep[:, None], p, p.new_tensor([0.0, 0, 1]))
    axes = rotation_matrices(quats)
    turned = R @ axes
    plane = torch.stack([turned[:, :, 0] * scales[:, :1], turned[:, :, 1] * scales[:, 1:2], p], -1)
    z = plane[:, 2]
    m0 = K[0, 0] * plane[:, 0] + (K[0, 2] + shift[:, :1]) * z
    m1 = K[1, 1] * plane[:, 1] + (K[1, 2] + shift[:, 1:]) * z
    facing = (turned[:, :, 2] * p).sum(-1)
    normals = axes[:, :, 2] * torch.where(facing < 0, 1.0, -1.0)[:, None]
    # gsplat's means2d, the centre of the one-sigma ellipse, or the mean's image if there is none.
    sign = z.new_tensor([1.0, 1, -1])
    d = (z * z * sign).sum(-1)
    f = torch.where((d < 0)[:, None], z * sign, z.new_tensor([0.0, 0, 1]))
    f = f / torch.where(d < 0, d, z[:, 2])[:, None]
    centre = torch.stack([(m0 * f).sum(-1), (m1 * f).sum(-1)], dim=-1)
    thick = scales[:, :2].abs().min(1).values * torch.minimum(K[0, 0], K[1, 1]) > 1e-4 * p[:, 2]
    edge_on = ~(thick & (facing.abs() > 1e-4 * p.norm(dim=-1)))
    box = _boxes(m0, m1, z, centre, opacities, camera.strength).detach()
    reach = torch.maximum(box[:, 2:] - centre.detach(), centre.detach() - box[:, :2])
    keep = keep & (box[:, 2] > 0) & (box[:, 3] > 0) & (reach > camera.radius_clip).any(1)
    keep = keep & (box[:, 0] < camera.width) & (box[:, 1] < camera.height)
    features = [normals]
    if camera.colour:
        shaded = camera.coefficients > 0
        seen = harmonics(means - eye_of(viewmat), colors, camera.coefficients) if shaded else colors
        features.append(seen)
    feature = torch.cat(features, dim=1)

    def shade(
        px: Tensor,
        py: Tensor,
        m0: Tensor,
        m1: Tensor,
        z: Tensor,
        centre: Tensor,
        opacity: Tensor,
        feature: Tensor,
        edge_on: Tensor,
    ) -> Tensor:
        x, y = px[:, None, None], py[:, None, None]
        zeta = torch.linalg.cross(x * z - m0, y * z - m1)
        flat = (zeta[..., 2] == 0) | edge_on
        below = torch.where(flat, torch.ones_like(zeta[..., 2]), zeta[..., 2])
        u, v = zeta[..., 0] / below, zeta[..., 1] / below
        met = u * z[:, 0] + v * z[:, 1] + z[:, 2]
        # Behind the camera the ray does not meet the surfel: only its disc may show.
        missed = flat | (met.detach() <= 0)
        on_plane = torch.where(missed, torch.full_like(u, torch.inf), u * u + v * v)
        dx, dy = px[:, None] - centre[:, 0], py[:, None] - centre[:, 1]
        on_screen = camera.strength * (dx * dx + dy * dy)
        sigma = 0.5 * torch.minimum(on_plane, on_screen)
        alpha = (opacity * torch.exp(-sigma)).clamp_max(0.999)
        depth = z[:, 2].expand_as(u)
        if camera.crossing:
            depth = torch.where(on_plane <= on_screen, met, depth)
            ahead = depth > camera.near
            alpha = torch.where(ahead, alpha, torch.zeros_like(alpha))
            depth = torch.where(ahead, depth, torch.zeros_like(depth))
        weight, before, passed = weights(alpha)
        summed = weight.cumsum(1) - weight
        moment = (weight * depth).cumsum(1) - weight * depth
        distortion = 2 * (weight * (depth * summed - moment)).sum(1, keepdim=True)
        # The median is at the last contribution that starts with a transmittance above one half.
        rank = torch.arange(1, len(z) + 1) * ((weight > 0) & (before > 0.5))
        padded = torch.cat([depth.new_zeros(len(depth), 1), depth], dim=1)
        last = torch.cat([rank.new_zeros(len(rank), 1), rank], dim=1).max(dim=1, keepdim=True)[0]
        single = [(weight * depth).sum(1, keepdim=True), distortion, padded.gather(1, last)]
        return torch.cat([weight @ feature, *single, passed[:, None]], dim=1)

    order = near_to_far(p[:, 2], keep)
    drawn = [m0, m1, z, centre, opacities, feature, edge_on]
    values = over_tiles(camera.width, camera.height, box, order, shade, drawn)
    normal, colour, single = values[..., :3], values[..., 3:-4], values[..., -4:]
    depth, distortion, median, passed = single.unbind(-1)
    image = torch.cat([colour, depth[..., None]] if camera.depth else [colour], dim=-1)
    image = image + passed[..., None] * background
    if camera.expected:
        expected = image[..., -1:] / (1 - passed).clamp_min(1e-10)[..., None]
        image = torch.cat([image[..., :-1], expected], dim=-1)
    if not camera.normals:
        normal = torch.zeros_like(normal)
    if not camera.distortion:
        distortion = torch.zeros_like(distortion)
    if not camera.depth:
        distortion, median = torch.zeros_like(distortion), torch.zeros_like(median)
    shown = keep[:, None]
    radii = torch.where(shown, reach.clamp_max(1e6).ceil(), torch.zeros_like(reach)).int()
    centres = torch.where(shown, centre, torch.zeros_like(centre)).detach().float()
    depths = torch.where(keep, p[:, 2], torch.zeros_like(p[:, 2])).detach().float()
    pictures = (image, 1 - passed, normal, distortion, median)
    return (*(t.float() for t in pictures), radii, centres, depths)


def _boxes(
    m0: Tensor, m1: Tensor, z: Tensor, centre: Tensor, opacities: Tensor, strength: float
) -> Tensor:
    """What each surfel may reach, (n, 4) px: its outline at alpha 1/255 and the low-pass disc.

    The outline u^2 + v^2 = level is the dual conic M diag(level, level, -1) M^T; where it reaches
    behind the camera it may be anywhere.
    """
    level = 2 * (255 * opacities).clamp_min(1).log()
    disc = (level / strength).sqrt()[:, None]
    signs = torch.stack([level, level, -torch.ones_like(level)], dim=1)
    bottom = (z * z * signs).sum(1)
    ahead = bottom < -1e-3 * z[:, 2] ** 2
    bottom = torch.where(ahead, bottom, torch.ones_like(bottom))
    middle = torch.stack([(m * z * signs).sum(1) for m in (m0, m1)], dim=1) / bottom[:, None]
    square = torch.stack([(m * m * signs).sum(1) for m in (m0, m1)], dim=1) / bottom[:, None]
    half = (middle * middle - square).clamp_min(0).sqrt() + 0.01
    half = torch.where(ahead[:, None], half, torch.full_like(half, torch.inf))
    low = torch.minimum(middle - half, centre - disc)
    high = torch.maximum(middle + half, centre + disc)
    return torch.cat([low, high], dim=1)
