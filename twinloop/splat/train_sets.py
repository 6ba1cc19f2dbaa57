"""Two sets per object, one for appearance and one for shape, or one set for both.

D-REX trains 3D Gaussians for appearance and surfels for the collision mesh with parameters and
losses of their own ("disjoint"); its ablation shares one set of surfels, trained with both losses
and drawn as well ("joint").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from twinloop.splat.gaussians import Gaussians
from twinloop.splat.surfels import Surfels
from twinloop.splat.train import train
from twinloop.splat.train_settings import TrainSettings
from twinloop.splat.trainer import Objective
from twinloop.splat.views import Views

Sets = Literal["disjoint", "joint"]


@dataclass(frozen=True)
class TwoSets:
    """What is drawn, and what the mesh is made from; the same set where they are joint."""

    appearance: Gaussians | Surfels
    shape: Surfels


def train_sets(
    appearance: Gaussians,
    shape: Surfels,
    views: Views,
    settings: TrainSettings,
    geometric: Objective,
    sets: Sets = "disjoint",
    shape_settings: TrainSettings | None = None,
    device: str = "cpu",
) -> TwoSets:
    """Train both sets on the same views; `geometric` holds the losses of the shape.

    Disjoint: the appearance set by pictures alone, with `settings`; the shape set by pictures and
    `geometric`, with `shape_settings` (or the same). Joint: the shape set alone, with `settings`.
    """
    if sets == "joint":
        both = train(shape, views, settings, device, objective=geometric)
        return TwoSets(both, both)
    drawn = train(appearance, views, settings, device)
    surface = train(shape, views, shape_settings or settings, device, objective=geometric)
    return TwoSets(drawn, surface)
