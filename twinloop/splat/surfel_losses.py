"""What surfels obey beside the pictures, so that they make one smooth sheet (2DGS, sec. 5).

The normal that is rendered shall be the normal of the depth that is rendered; depths along one ray
shall not spread; and where a picture comes with normals of another source, they shall agree too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from twinloop.errors import InputError
from twinloop.splat.trainer import Step


@dataclass(frozen=True)
class SurfelSettings:
    """Weights of the terms, and when they set in."""

    normal_weight: float = 0.05
    """Of 1 - cosine between rendered normals and those of the rendered depth."""
    distortion_weight: float = 0.0
    """Of the spread of depth along a ray, in object radii; it costs sharpness when large."""
    prior_weight: float = 0.1
    """Of 1 - cosine between rendered normals and given ones, where there are any."""
    opaque_weight: float = 0.02
    """Of the mean of 1 - opacity: clear layers would share the surface between depths."""
    begin: float = 0.1
    """Part of the training before which only the pictures count."""
    every: int = 2
    """Only each so-manieth step has the terms, at so many times their weight."""


@dataclass(frozen=True)
class SurfelObjective:
    """The terms as `twinloop.splat.trainer` takes them.

    priors: by index of the view, unit normals (y, x, 3) in the world, 0 where there is none, of the
    whole picture.
    """

    settings: SurfelSettings = field(default_factory=SurfelSettings)
    priors: dict[int, NDArray[np.float32]] = field(default_factory=dict)

    def keywords(self, iteration: int, progress: float) -> dict[str, Any]:
        """Depth and normals are rendered only in the steps that need them."""
        if not self._due(iteration, progress):
            return {"surface_normals": False, "normals": False}
        keywords: dict[str, Any] = {"render_mode": "RGB+ED"}
        if self.settings.distortion_weight > 0:
            keywords["distloss"] = True
        return keywords

    def loss(self, step: Step) -> Tensor | None:
        """The weighted sum of the terms, or None in a step without."""
        s = self.settings
        if not self._due(step.iteration, step.progress):
            return None
        drawn = step.drawn
        assert drawn.normals is not None
        assert drawn.surface_normals is not None
        total = s.normal_weight * normal_consistency(
            drawn.normals, drawn.surface_normals, drawn.alpha
        )
        if s.opaque_weight > 0:
            clear = 1 - torch.sigmoid(step.model.free["opacities"])
            total = total + s.opaque_weight * clear.mean()
        if s.distortion_weight > 0 and drawn.distortion is not None:
            total = total + s.distortion_weight / step.radius * drawn.distortion.mean()
        prior = self.priors.get(step.crop.index)
        if prior is not None and s.prior_weight > 0:
            total = total + s.prior_weight * prior_agreement(
                drawn.normals, self._cut(prior, step), drawn.alpha
            )
        return s.every * total

    def _due(self, iteration: int, progress: float) -> bool:
        return progress >= self.settings.begin and iteration % self.settings.every == 0

    @staticmethod
    def _cut(prior: NDArray[np.float32], step: Step) -> Tensor:
        x, y = step.crop.corner
        height, width = step.drawn.alpha.shape
        part = prior[y : y + height, x : x + width]
        if part.shape != (height, width, 3):
            raise InputError(
                f"normal prior of view {step.crop.index} has shape {prior.shape}, expected the "
                "size of its picture and 3 components; training from coarse pictures has no priors"
            )
        return torch.from_numpy(np.ascontiguousarray(part)).to(step.drawn.alpha.device)


def normal_consistency(normals: Tensor, surface: Tensor, alpha: Tensor) -> Tensor:
    """Mean over a picture of alpha - normal . surface normal (Huang et al. 2024, eq. 14).

    normals (h, w, 3), summed with the weights of the colours; surface (h, w, 3), unit, of the
    depth; alpha (h, w). Where less than 0.9 is covered, depth is of several surfaces and does not
    count. The border, whose depth has no neighbours, does not either.
    """
    cover = alpha.detach()
    clear = (cover > 0.9) & (surface.detach().abs().sum(-1) > 0)
    return torch.where(clear, cover - (normals * surface).sum(-1), 0.0).mean()


def prior_agreement(normals: Tensor, prior: Tensor, alpha: Tensor) -> Tensor:
    """Mean of alpha - normal . prior where there is a prior; shapes as `normal_consistency`."""
    known = prior.abs().sum(-1) > 0.5
    return torch.where(known, alpha.detach() - (normals * prior).sum(-1), 0.0).mean()
