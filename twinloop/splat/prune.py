"""Which Gaussians are to go: those outside the silhouettes, unseen, faint or huge."""

from __future__ import annotations

import torch
from torch import Tensor

from twinloop.splat.pictures import Crop

MARGIN = 4
"""How far (px) a mask is widened before it judges."""
MISSES = 0.2
"""Part of the pictures in which a Gaussian may be outside the mask or out of the picture."""


class Silhouettes:
    """The widened masks of all pictures, to judge points by."""

    def __init__(self, pictures: list[Crop], margin: int = MARGIN) -> None:
        self.pictures = pictures
        self.wide = [
            torch.nn.functional.max_pool2d(c.mask[None, None], 2 * margin + 1, 1, margin)[0, 0]
            > 0.02
            for c in pictures
        ]

    @torch.no_grad()
    def outside(self, means: Tensor, viewmats: list[Tensor] | None = None) -> Tensor:
        """Which points (n, 3) miss the widened mask or the picture in over a fifth of them.

        The pictures are crops around the object: without this rule, Gaussians outside the crops are
        seen by no loss, stay as they are, and hide the object in other pictures.
        """
        misses = torch.zeros(len(means), device=means.device)
        for i, (crop, wide) in enumerate(zip(self.pictures, self.wide, strict=True)):
            viewmat = crop.viewmat if viewmats is None else viewmats[i]
            p = means @ viewmat[:3, :3].T + viewmat[:3, 3]
            pixel = p @ crop.K.T
            depth = pixel[:, 2].clamp_min(1e-9)
            height, width = crop.mask.shape
            x = (pixel[:, 0] / depth).clamp(-1, width).floor().long()
            y = (pixel[:, 1] / depth).clamp(-1, height).floor().long()
            inside = (p[:, 2] > 0) & (x >= 0) & (y >= 0) & (x < width) & (y < height)
            hit = wide[y.clamp(0, height - 1), x.clamp(0, width - 1)]
            misses += (~(inside & hit)).float()
        return misses > MISSES * len(self.pictures)
