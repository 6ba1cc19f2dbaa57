"""More Gaussians where the pictures ask for them: by splitting, or by relocation (MCMC)."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from twinloop.splat.model import Model, rotations

SHRINK = 1.4
"""What the scales of a split Gaussian are divided by."""


def offsets(model: Model[Any], index: Tensor, generator: torch.Generator) -> Tensor:
    """A random displacement (m, 3) of each Gaussian at `index`, drawn from itself, m."""
    scale = model.free["scales"].detach()[index].exp()
    noise = torch.randn(scale.shape, generator=generator).to(scale.device) * scale
    axes = rotations(model.free["quaternions"].detach()[index])[:, :, : scale.shape[1]]
    return torch.einsum("nij,nj->ni", axes, noise)


@torch.no_grad()
def split(
    model: Model[Any],
    pressure: Tensor,
    keep: Tensor,
    share: float,
    most: int,
    generator: torch.Generator,
) -> None:
    """Split the `share` of the set under the most `pressure` in two, drop what is not in `keep`.

    Both halves together are as opaque as the one was, 1 - (1 - o)^2, so that a solid surface stays
    solid. The set grows to `most` at most.
    """
    room = most - int(keep.sum())
    grow = max(0, min(int(share * len(keep)), room, int(keep.sum())))
    score = torch.where(keep, pressure, torch.full_like(pressure, -1.0))
    parents = torch.sort(score, descending=True, stable=True).indices[:grow]
    new = {k: v.detach()[parents].clone() for k, v in model.free.items()}
    if grow:
        shift = offsets(model, parents, generator)
        opacity = torch.sigmoid(new["opacities"])
        new["opacities"] = torch.logit((1 - (1 - opacity).sqrt()).clamp(0.02, 0.98))
        new["scales"] -= math.log(SHRINK)
        new["means"] += 0.5 * shift
        model.free["opacities"][parents] = new["opacities"]
        model.free["scales"][parents] = new["scales"]
        model.free["means"][parents] -= 0.5 * shift
    model.change(keep, new)


def relocation(opacities: Tensor, scales: Tensor, copies: Tensor) -> tuple[Tensor, Tensor]:
    """Opacity and scales of each of `copies` (n, >= 1) Gaussians that replace one.

    The copies lie on top of one another and look as the one did: 1 - (1 - o')^N = o, and scales
    such that the integral along a line through the middle is the same (3DGS as Markov Chain Monte
    Carlo, Kheradmand et al. 2024, equation 9; gsplat's kernel for it runs on CUDA only).
    """
    most = int(copies.max()) if len(copies) else 1
    new = 1 - (1 - opacities.double()) ** (1 / copies.double())
    total = torch.zeros_like(new)
    for i in range(1, most + 1):
        inner = torch.zeros_like(new)
        for k in range(i):
            inner += math.comb(i - 1, k) * (-1) ** k / math.sqrt(k + 1) * new ** (k + 1)
        total += torch.where(copies >= i, inner, torch.zeros_like(inner))
    factor = opacities.double() / total.clamp_min(1e-12)
    return new.to(opacities.dtype), (scales.double() * factor[:, None]).to(scales.dtype)


MOST_COPIES = 32
"""More copies of one Gaussian lose their sum of alternating terms to rounding."""


@torch.no_grad()
def relocate(
    model: Model[Any],
    keep: Tensor,
    share: float,
    most: int,
    generator: torch.Generator,
    least_opacity: float,
) -> None:
    """Move what is not in `keep` onto live Gaussians, drawn by opacity, and add `share` more."""
    count = int(keep.sum())
    total = min(most, int((1 + share) * len(keep)))
    extra = max(0, total - count)
    if count == 0 or extra == 0:
        model.drop(keep)
        return
    model.drop(keep)
    weight = torch.sigmoid(model.free["opacities"].detach()).cpu()
    drawn = torch.multinomial(weight, extra, replacement=True, generator=generator)
    copies = (torch.bincount(drawn, minlength=count) + 1).clamp_max(MOST_COPIES)
    drawn, copies = drawn.to(keep.device), copies.to(keep.device)
    changed = torch.nonzero(copies > 1)[:, 0]
    opacity, scales = relocation(
        torch.sigmoid(model.free["opacities"].detach()[changed]),
        model.free["scales"].detach()[changed].exp(),
        copies[changed],
    )
    model.free["opacities"][changed] = torch.logit(opacity.clamp(least_opacity, 1 - 1e-6))
    model.free["scales"][changed] = scales.log()
    model.forget(changed)
    every = torch.ones(count, dtype=torch.bool, device=keep.device)
    model.change(every, {k: v.detach()[drawn].clone() for k, v in model.free.items()})


@torch.no_grad()
def shake(model: Model[Any], step: float, generator: torch.Generator) -> None:
    """Move each Gaussian by `step` (1/m) times its covariance times noise; faint ones only."""
    opacity = torch.sigmoid(model.free["opacities"])
    scale = model.free["scales"].exp()
    axes = rotations(model.free["quaternions"])[:, :, : scale.shape[1]]
    noise = torch.randn(len(model), 3, generator=generator).to(scale.device)
    faint = torch.sigmoid(100 * ((1 - opacity) - 0.995))[:, None]
    along = torch.einsum("nij,ni->nj", axes, noise * faint) * scale**2
    model.free["means"] += step * torch.einsum("nij,nj->ni", axes, along)
