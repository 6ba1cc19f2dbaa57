"""gsplat's `DefaultStrategy` on our parameters: clone and split by the gradient in the image.

Its code is plain torch and runs on a CPU, but expects torch's optimisers and draws from torch's
global generator; both are lent to it here.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from twinloop.splat.model import Drawn, Model
from twinloop.splat.train_settings import TrainSettings

_GSPLAT = {"quaternions": "quats"}
_OURS = {v: k for k, v in _GSPLAT.items()}
_SHARED = ("grad2d", "count")


class _Lent:
    """What gsplat's operations touch of an optimiser, over the moments of ours."""

    def __init__(self, parameter: Tensor, first: Tensor, second: Tensor) -> None:
        self.param_groups = [{"params": [parameter]}]
        self.state = {parameter: {"exp_avg": first, "exp_avg_sq": second}}


class DefaultDensifier:
    """The strategy and its running sums.

    `watch` before each backward pass, `see` after it, `apply` now and then. `flat` for surfels,
    whose rasteriser keeps the gradient by image position under another name.
    """

    def __init__(self, settings: TrainSettings, radius: float, flat: bool = False) -> None:
        from gsplat.strategy import DefaultStrategy

        self.strategy = DefaultStrategy(
            prune_opa=settings.least_opacity,
            grow_grad2d=settings.grow_gradient,
            refine_start_iter=-1,
            refine_every=1,
            reset_every=1_000_000_000,
            key_for_gradient="gradient_2dgs" if flat else "means2d",
        )
        self.sums: dict[str, Any] = self.strategy.initialize_state(scene_scale=radius)

    def watch(self, drawn: Drawn) -> None:
        """Keep the gradient by image position, which on CUDA is of no leaf."""
        drawn.info[self.strategy.key_for_gradient].retain_grad()

    @torch.no_grad()
    def see(self, model: Model[Any], drawn: Drawn) -> None:
        """Add one picture's gradients of the projected means."""
        info = {"gaussian_ids": None, "n_cameras": 1, **drawn.info}
        info |= {"height": drawn.alpha.shape[0], "width": drawn.alpha.shape[1]}
        if info[self.strategy.key_for_gradient].grad is not None:  # something was in view
            self.strategy._update_state(model.free, self.sums, info)

    def apply(self, model: Model[Any], most: int, generator: torch.Generator) -> None:
        """Clone, split and prune; only while there is room for more than half of what is asked."""
        if self.sums["grad2d"] is None or len(model) >= most:
            return
        grad = self.sums["grad2d"] / self.sums["count"].clamp_min(1)
        # The budget: the threshold rises until no more ask than there is room for.
        room = max(0, most - len(model))
        ask = torch.sort(grad, descending=True, stable=True).values
        before = self.strategy.grow_grad2d
        if room < len(ask):
            self.strategy.grow_grad2d = max(before, float(ask[room]))
        flat = model.flat
        parameters = {
            _GSPLAT.get(k, k): torch.nn.Parameter(v.detach()) for k, v in model.free.items()
        }
        adam = model.adam
        if flat:  # the operations take three scales
            thin = torch.full_like(parameters["scales"][:, :1], -30.0)
            parameters["scales"] = torch.nn.Parameter(
                torch.cat([parameters["scales"].detach(), thin], dim=1)
            )
            for store in (adam.first, adam.second):
                store["scales"] = torch.cat([store["scales"], torch.zeros_like(thin)], dim=1)
        lent = {
            k: _Lent(p, adam.first[_OURS.get(k, k)], adam.second[_OURS.get(k, k)])
            for k, p in parameters.items()
        }
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(torch.randint(2**31, (1,), generator=generator)))
            self.strategy._grow_gs(parameters, lent, self.sums, 1)
            self.strategy._prune_gs(parameters, lent, self.sums, 1)
        self.strategy.grow_grad2d = before
        for k, p in parameters.items():
            name, kept = _OURS.get(k, k), lent[k].state[p]
            width = slice(0, 2) if flat and name == "scales" else slice(None)
            model.free[name] = p.detach()[:, width] if p.dim() > 1 else p.detach()
            for store, key in ((adam.first, "exp_avg"), (adam.second, "exp_avg_sq")):
                value = kept[key]
                store[name] = (value[:, width] if value.dim() > 1 else value).contiguous()
        for name in _SHARED:
            self.sums[name] = torch.zeros(len(model), device=model.free["means"].device)
        model.watch()

    def drop(self, keep: Tensor) -> None:
        """Follow a pruning of the model."""
        for name in _SHARED:
            if self.sums[name] is not None:
                self.sums[name] = self.sums[name][keep]

    def state(self) -> dict[str, Tensor]:
        """What the next densification depends on."""
        return {f"default/{k}": self.sums[k] for k in _SHARED if self.sums[k] is not None}

    def load(self, state: dict[str, Tensor]) -> None:
        """Take back what `state` gave."""
        for k in _SHARED:
            found = state.get(f"default/{k}")
            self.sums[k] = None if found is None else found.clone()
