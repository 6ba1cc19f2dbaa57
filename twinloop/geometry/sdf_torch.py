"""Signed distance grids in torch: the same values as `DistanceGrid`, differentiable."""

from __future__ import annotations

import torch
from torch import Tensor

from twinloop.geometry.sdf import DistanceGrid


class TorchGrid:
    """A distance grid on a device, to be asked with tensors.

    Args:
        grid: The grid.
        device: Where it is to live.
        dtype: Of the values; float64 gives `DistanceGrid`'s values to rounding.
    """

    def __init__(
        self, grid: DistanceGrid, device: str = "cpu", dtype: torch.dtype = torch.float64
    ) -> None:
        self._value = torch.from_numpy(grid.padded).to(device, dtype)
        self._low = torch.as_tensor(grid.origin, dtype=dtype, device=device)
        self._high = torch.as_tensor(grid.top, dtype=dtype, device=device)
        self._spacing = grid.spacing

    def signed_distance(self, points: Tensor, *, cubic: bool = True) -> Tensor:
        """Distance (n,) m of points (n, 3) m, as `DistanceGrid.signed_distance`.

        Autograd's derivative by `points` is that of the interpolated value.
        """
        near = torch.minimum(torch.maximum(points, self._low), self._high)
        cell = (near - self._low) / self._spacing
        most = torch.tensor(self._value.shape, device=cell.device) - 4
        base = torch.minimum(cell.detach().floor().long().clamp_min(0), most)
        t = cell - base
        if cubic:
            weight = torch.stack(
                [
                    t * (-0.5 + t * (1 - 0.5 * t)),
                    1 + t * t * (-2.5 + 1.5 * t),
                    t * (0.5 + t * (2 - 1.5 * t)),
                    t * t * (-0.5 + 0.5 * t),
                ],
                dim=-1,
            )
            first = base
        else:
            weight = torch.stack([1 - t, t], dim=-1)
            first = base + 1
        steps = torch.arange(weight.shape[-1], device=cell.device)
        i, j, k = ((first[:, axis, None] + steps) for axis in range(3))
        value = self._value[i[:, :, None, None], j[:, None, :, None], k[:, None, None, :]]
        inside = torch.einsum("nxyz,nx,ny,nz->n", value, *weight.unbind(dim=1))
        away = points - near
        squared = (away * away).sum(dim=1)
        # The root of zero has no derivative: inside the grid the way to it adds nothing.
        beyond = squared > 0
        return inside + torch.where(beyond, torch.where(beyond, squared, 1.0).sqrt(), 0.0)
