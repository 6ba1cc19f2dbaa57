"""The rasteriser of 3D Gaussians in torch, for a Warp that cannot compile kernels for the CPU.

Same rules and results as `twinloop.splat.cpu`, whose `render` has the same signature; float64
inside, gradients by autograd. An image is cut into tiles, each of which composites the Gaussians
that reach it, all pixels against all of them; a tile's forward pass is repeated in its backward
pass, so that memory is that of one tile. Fifty to a hundred times slower than the native kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from twinloop.splat.reference import rotation_matrices

if TYPE_CHECKING:
    from twinloop.splat.cpu_view import Settings

TILE = 32
"""Side of a tile, px: large enough that torch's cost per operator does not rule."""

Shade = Callable[..., Tensor]
"""Pixel centres x and y (p), px, and rows (m, ...) of tensors, near to far -> values (p, k)."""


def over_tiles(
    width: int, height: int, boxes: Tensor, order: Tensor, shade: Shade, tensors: Sequence[Tensor]
) -> Tensor:
    """Call `shade` on every tile and put its values together: (height, width, k).

    Args:
        width: Image width, px.
        height: Image height, px.
        boxes: (n, 4) what a splat may reach: left, top, right, bottom, px.
        order: (m) indices of the splats that are drawn, near to far.
        shade: Gives the values of a tile's pixels; called again for its gradient.
        tensors: (n, ...) each, of whose rows `shade` gets those that reach the tile.
    """
    left, top, right, bottom = boxes.detach()[order].unbind(1)
    tiles = []
    for y0 in range(0, height, TILE):
        for x0 in range(0, width, TILE):
            y1, x1 = min(y0 + TILE, height), min(x0 + TILE, width)
            hit = (right >= x0) & (left <= x1) & (bottom >= y0) & (top <= y1)
            tiles.append(_Tile(slice(y0, y1), slice(x0, x1), order[hit]))
    values: Tensor = _Tiles.apply((height, width), tiles, shade, *tensors)  # type: ignore[no-untyped-call]
    return values


class _Tile(NamedTuple):
    rows: slice
    columns: slice
    splats: Tensor

    def centres(self) -> tuple[Tensor, Tensor]:
        y, x = torch.meshgrid(
            torch.arange(self.rows.start, self.rows.stop, dtype=torch.float64) + 0.5,
            torch.arange(self.columns.start, self.columns.stop, dtype=torch.float64) + 0.5,
            indexing="ij",
        )
        return x.reshape(-1), y.reshape(-1)


class _Tiles(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, size: tuple[int, int], tiles: list[_Tile], shade: Shade, *tensors: Tensor
    ) -> Tensor:
        ctx.tiles, ctx.shade = tiles, shade
        ctx.save_for_backward(*tensors)
        image = torch.empty(0)
        for tile in tiles:
            values = shade(*tile.centres(), *(t[tile.splats] for t in tensors))
            if not image.numel():
                image = values.new_empty(*size, values.shape[1])
            part = image[tile.rows, tile.columns]
            part.copy_(values.reshape(part.shape))
        return image

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        tensors = ctx.saved_tensors
        wanted = [i for i in range(len(tensors)) if ctx.needs_input_grad[3 + i]]
        total = [torch.zeros_like(tensors[i]) for i in wanted]
        for tile in ctx.tiles:
            rows = [t[tile.splats].detach() for t in tensors]
            free = [rows[i].requires_grad_() for i in wanted]
            with torch.enable_grad():
                values = ctx.shade(*tile.centres(), *rows)
            back = gradient[tile.rows, tile.columns].reshape(values.shape)
            if values.requires_grad:
                parts = torch.autograd.grad(values, free, back, allow_unused=True)
                for sum_, part in zip(total, parts, strict=True):
                    if part is not None:
                        sum_.index_add_(0, tile.splats, part)
        found = dict(zip(wanted, total, strict=True))
        return (None, None, None, *(found.get(i) for i in range(len(tensors))))


def weights(alpha: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Weights (p, m), transmittance before each (p, m) and in the end (p), of alphas (p, m).

    A pixel is done before the splat that would bring its transmittance to 1e-4 or less.
    """
    alpha = torch.where(alpha >= 1 / 255, alpha, torch.zeros_like(alpha))
    alpha = alpha * (torch.cumprod(1 - alpha, dim=1).detach() > 1e-4)
    passed = torch.cumprod(1 - alpha, dim=1)
    passed = torch.cat([alpha.new_ones(len(alpha), 1), passed], dim=1)
    return alpha * passed[:, :-1], passed[:, :-1], passed[:, -1]


def harmonics(directions: Tensor, coefficients: Tensor, bases: int) -> Tensor:
    """Colours (n, 3), not below zero, seen along `directions` (n, 3) of any length."""
    x, y, z = torch.nn.functional.normalize(directions, dim=1).unbind(1)
    xx, yy, zz = x * x, y * y, z * z
    values = [
        torch.full_like(x, 0.28209479177387814),
        -0.4886025119029199 * y,
        0.4886025119029199 * z,
        -0.4886025119029199 * x,
        1.0925484305920792 * x * y,
        -1.0925484305920792 * y * z,
        0.31539156525252005 * (2 * zz - xx - yy),
        -1.0925484305920792 * x * z,
        0.5462742152960396 * (xx - yy),
        -0.5900435899266435 * y * (3 * xx - yy),
        2.890611442640554 * x * y * z,
        -0.4570457994644658 * y * (4 * zz - xx - yy),
        0.3731763325901154 * z * (2 * zz - 3 * xx - 3 * yy),
        -0.4570457994644658 * x * (4 * zz - xx - yy),
        1.445305721320277 * z * (xx - yy),
        -0.5900435899266435 * x * (xx - 3 * yy),
    ]
    basis = torch.stack(values[:bases], dim=1)
    colour: Tensor = torch.einsum("nk,nkc->nc", basis, coefficients[:, :bases]) + 0.5
    return torch.relu(colour)


def eye_of(viewmat: Tensor) -> Tensor:
    """Camera centre (3) of a view matrix (4, 4)."""
    eye: Tensor = torch.linalg.solve(viewmat[:3, :3], viewmat[:3, 3])
    return -eye


def near_to_far(depths: Tensor, keep: Tensor) -> Tensor:
    """Indices of what is kept (n, bool), by depth (n); equal depths keep their order."""
    kept = torch.nonzero(keep)[:, 0]
    return kept[torch.argsort(depths.detach()[kept], stable=True)]


def render(
    means: Tensor,
    quats: Tensor,
    scales: Tensor,
    opacities: Tensor,
    colors: Tensor,
    viewmats: Tensor,
    settings: Settings,
) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Render as `twinloop.splat.cpu.render` does, which says what is taken and given."""
    inputs = (means, quats, scales, opacities, colors, viewmats)
    wanted = torch.is_grad_enabled() and any(t.requires_grad for t in inputs)
    means2d = torch.zeros(len(viewmats), len(means), 2, requires_grad=wanted)
    # Zero, with a gradient: that of a shift of each Gaussian in the image.
    shifts = (means2d - means2d.detach()).double()
    m, q, r, o, colors, viewmats = (t.double() for t in inputs)
    views = []
    for c, viewmat in enumerate(viewmats):
        own = colors[c % len(colors)], viewmat, shifts[c], settings.Ks[c]
        views.append(_view(m, q, r, o, *own, settings))
    images, alphas, *facts = (torch.stack(values) for values in zip(*views, strict=True))
    centres, *rest = (t.detach() for t in facts)
    means2d.detach().copy_(centres)
    names = ("conics", "depths", "opacities", "radii")
    info = {k: v if k == "radii" else v.float() for k, v in zip(names, rest, strict=True)}
    return images.float(), alphas.float(), {"means2d": means2d, **info}


def _view(
    means: Tensor,
    quats: Tensor,
    scales: Tensor,
    opacities: Tensor,
    colors: Tensor,
    viewmat: Tensor,
    shift: Tensor,
    k: Tensor,
    settings: Settings,
) -> tuple[Tensor, ...]:
    s = settings
    fx, fy, cx, cy = k[0, 0], k[1, 1], k[0, 2], k[1, 2]
    p = means @ viewmat[:3, :3].T + viewmat[:3, 3]
    keep = (p[:, 2] > s.near) & (p[:, 2] < s.far)
    # What is not drawn is moved before the camera: infinities would reach all gradients.
    p = torch.where(keep[:, None], p, p.new_tensor([0.0, 0, 1]))
    x, y, z = p.unbind(1)
    mx, my = 0.15 * s.width / fx, 0.15 * s.height / fy
    u = torch.minimum(torch.maximum(x / z, -cx / fx - mx), (s.width - cx) / fx + mx)
    v = torch.minimum(torch.maximum(y / z, -cy / fy - my), (s.height - cy) / fy + my)
    root = viewmat[:3, :3] @ rotation_matrices(quats) * scales[:, None, :]
    rows = (fx / z)[:, None] * (root[:, 0] - u[:, None] * root[:, 2])
    columns = (fy / z)[:, None] * (root[:, 1] - v[:, None] * root[:, 2])
    a, b, c = ((i * j).sum(1) for i, j in ((rows, rows), (rows, columns), (columns, columns)))
    c = c.clamp_min(1e-15)
    plain = torch.linalg.cross(rows, columns).square().sum(1)
    det = (plain + s.eps2d * (a + c) + s.eps2d**2).clamp_min(1e-30)
    if s.antialiased:
        opacities = opacities * (plain / det).clamp_min(1e-12).sqrt()
    conic = torch.stack([(c + s.eps2d) / det, -b / det, (a + s.eps2d) / det], dim=1)
    centre = torch.stack([fx * x / z + cx, fy * y / z + cy], dim=1)
    # As in the native code, where products of four standard deviations would overflow.
    keep = keep & (torch.maximum(a, c) < 1e18) & (centre.abs().amax(1) < 1e10)
    level = 2 * (255 * opacities.detach()).clamp_min(1e-9).log()
    spread = torch.stack([a, c], dim=1).detach() + s.eps2d
    reach = (level.clamp_min(0)[:, None] * spread).sqrt().ceil()
    box = torch.cat([centre - reach, centre + reach], dim=1).detach()
    shown = (box[:, 2] > 0) & (box[:, 3] > 0) & (box[:, 0] < s.width) & (box[:, 1] < s.height)
    ahead, keep = keep, keep & (level >= 0) & shown & (reach > s.radius_clip).any(1)
    features = []
    if s.color:
        seen = colors
        if s.bases is not None:
            seen = harmonics(means - eye_of(viewmat), colors, s.bases)
        features.append(seen)
    if s.depth:
        features.append(z[:, None])
    feature = torch.cat(features, dim=1)

    def shade(
        px: Tensor, py: Tensor, at: Tensor, conic: Tensor, opacity: Tensor, feature: Tensor
    ) -> Tensor:
        dx, dy = px[:, None] - at[:, 0], py[:, None] - at[:, 1]
        qa, qb, qc = conic.unbind(1)
        sigma = 0.5 * (qa * dx * dx + qc * dy * dy) + qb * dx * dy
        weight, _, passed = weights((opacity * torch.exp(-sigma)).clamp_max(0.999))
        return torch.cat([weight @ feature, passed[:, None]], dim=1)

    drawn = [centre + shift, conic, opacities, feature]
    values = over_tiles(s.width, s.height, box, near_to_far(z, keep), shade, drawn)
    seen_depth = torch.where(ahead, z, torch.zeros_like(z))
    radii = torch.where(keep[:, None], reach.clamp_max(1e9), torch.zeros_like(reach)).int()
    return values[..., :-1], 1 - values[..., -1:], centre, conic, seen_depth, opacities, radii
