"""Fit Gaussians to posed, masked pictures.

Each step draws one picture's crop around the object, over a random background that both the render
and the masked picture get, and takes one Adam step on

    mean |render - picture| + mask_weight * mean |alpha - mask|

so that colour cannot hide in the background and nothing may stay outside the silhouette. The random
background is part of the picture only where the mask is 0: the real background never enters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from twinloop.progress import track
from twinloop.splat.gaussians import Gaussians
from twinloop.splat.rasterize import camera_matrix, rasterization
from twinloop.splat.views import Views, matte


@dataclass(frozen=True)
class TrainSettings:
    """Settings of `train`; lengths of steps are relative to the object's radius where noted."""

    iterations: int = 1500
    mask_weight: float = 0.5
    step_means: float = 1e-3
    """Adam step of the means at the start, in object radii; falls to 1/20 of it."""
    step_scales: float = 8e-3
    step_quaternions: float = 2e-3
    step_opacities: float = 3e-2
    step_sh: float = 6e-3
    densify_share: float = 0.15
    """Share of the Gaussians that is split at each densification."""
    densify_times: int = 4
    """Number of densifications, spread over the first 60 % of the iterations."""
    most: int = 12000
    """Most Gaussians."""
    seed: int = 0


@dataclass(frozen=True)
class Crop:
    """One picture around the object: colour (h, w, 3), coverage `mask` (h, w), both 0..1."""

    image: Tensor
    mask: Tensor
    K: Tensor
    viewmat: Tensor


def crops(views: Views, margin: int = 8, device: str = "cpu") -> list[Crop]:
    """Each picture's crop: its mask's bounding box plus `margin` px; empty masks are left out."""
    out = []
    for i in range(len(views)):
        box = views.box(i, margin)
        if box is None:
            continue
        x0, y0, x1, y1 = box
        k = views.intrinsics[i] - [0, 0, x0, y0]
        out.append(
            Crop(
                torch.from_numpy(views.image[i, y0:y1, x0:x1].astype(np.float32) / 255).to(device),
                torch.from_numpy(matte(views.mask[i, y0:y1, x0:x1])).to(device),
                camera_matrix(torch.from_numpy(k.astype(np.float32))).to(device),
                torch.from_numpy(views.T_camera_world[i].astype(np.float32)).to(device),
            )
        )
    return out


class _Model:
    """Free parameters, their Adam moments, and what they mean."""

    def __init__(
        self, start: Gaussians, settings: TrainSettings, radius: float, device: str
    ) -> None:
        def tensor(values: NDArray[np.floating]) -> Tensor:
            return torch.tensor(np.asarray(values, np.float32), device=device)  # a copy

        opacity = tensor(start.opacities).clamp(1e-3, 1 - 1e-3)
        self.free: dict[str, Tensor] = {
            "means": tensor(start.means),
            "quaternions": tensor(start.quaternions),
            "scales": tensor(start.scales).log(),
            "opacities": torch.logit(opacity),
            "sh": tensor(start.sh),
        }
        self.step = {
            "means": settings.step_means * radius,
            "quaternions": settings.step_quaternions,
            "scales": settings.step_scales,
            "opacities": settings.step_opacities,
            "sh": settings.step_sh,
        }
        self.first = {k: torch.zeros_like(v) for k, v in self.free.items()}
        self.second = {k: torch.zeros_like(v) for k, v in self.free.items()}
        self.count = 0
        self._watch()

    def _watch(self) -> None:
        self.free = {k: v.detach().requires_grad_() for k, v in self.free.items()}

    def draw(self, crop: Crop, degree: int) -> tuple[Tensor, Tensor]:
        height, width = crop.mask.shape
        image, alpha, _ = rasterization(
            self.free["means"],
            self.free["quaternions"],
            self.free["scales"].exp(),
            torch.sigmoid(self.free["opacities"]),
            self.free["sh"],
            crop.viewmat[None],
            crop.K[None],
            width,
            height,
            sh_degree=degree,
        )
        return image[0], alpha[0, ..., 0]

    @torch.no_grad()
    def adam(self, decay: float) -> None:
        """One step of Adam (Kingma and Ba 2015); `decay` scales the step of the means."""
        self.count += 1
        b1, b2 = 0.9, 0.99
        bias = (1 - b2**self.count) ** 0.5 / (1 - b1**self.count)
        for name, value in self.free.items():
            gradient = value.grad
            assert gradient is not None
            m, v = self.first[name], self.second[name]
            m.lerp_(gradient, 1 - b1)
            v.mul_(b2).addcmul_(gradient, gradient, value=1 - b2)
            step = self.step[name] * bias * (decay if name == "means" else max(decay, 0.2))
            change = m / (v.sqrt() + 1e-15)
            if name == "sh" and value.shape[1] > 1:
                change[:, 1:] *= 0.25  # colour by direction follows slower than colour itself
            value.sub_(change, alpha=step)
            value.grad = None

    @torch.no_grad()
    def keep_and_split(self, keep: Tensor, parents: Tensor, generator: torch.Generator) -> None:
        """Split `parents` (indices) in two, then drop what is not in `keep` (bool)."""
        new = {k: v[parents].clone() for k, v in self.free.items()}
        if len(parents):
            scale = new["scales"].exp()
            noise = torch.randn(scale.shape, generator=generator).to(scale.device) * scale
            shift = torch.einsum("nij,nj->ni", rotations(new["quaternions"]), noise)
            # Two smaller ones with the same opacity together: 1 - (1 - o)^2 is the parent's.
            o = torch.sigmoid(new["opacities"])
            new["opacities"] = torch.logit((1 - (1 - o).sqrt()).clamp(0.02, 0.98))
            new["scales"] -= float(np.log(1.4))
            self.free["opacities"][parents] = new["opacities"]
            self.free["scales"][parents] = new["scales"]
            self.free["means"][parents] -= 0.5 * shift
            new["means"] += 0.5 * shift
        for store in (self.first, self.second):
            for k in store:
                store[k] = torch.cat([store[k][keep], torch.zeros_like(new[k])]).contiguous()
        self.free = {k: torch.cat([v[keep], new[k]]).contiguous() for k, v in self.free.items()}
        self._watch()

    def result(self) -> Gaussians:
        f = {k: v.detach().cpu() for k, v in self.free.items()}
        q = torch.nn.functional.normalize(f["quaternions"].double(), dim=1).float()
        return Gaussians(
            f["means"].numpy(),
            q.numpy(),
            f["scales"].exp().numpy(),
            torch.sigmoid(f["opacities"]).numpy(),
            f["sh"].numpy(),
        )


def rotations(quaternions: Tensor) -> Tensor:
    """Rotation matrices (n, 3, 3) of quaternions wxyz (n, 4) of any length."""
    w, x, y, z = torch.nn.functional.normalize(quaternions, dim=1).unbind(1)
    rows = [
        torch.stack([1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)], dim=1),
        torch.stack([2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)], dim=1),
        torch.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)], dim=1),
    ]
    return torch.stack(rows, dim=1)


def outside(means: Tensor, pictures: list[Crop], margin: int = 4) -> Tensor:
    """Which points fall outside the mask, widened by `margin` px, in over a fifth of the crops."""
    misses = torch.zeros(len(means), device=means.device)
    for crop in pictures:
        p = means @ crop.viewmat[:3, :3].T + crop.viewmat[:3, 3]
        pixel = p @ crop.K.T
        x = torch.floor(pixel[:, 0] / pixel[:, 2]).long()
        y = torch.floor(pixel[:, 1] / pixel[:, 2]).long()
        height, width = crop.mask.shape
        wide = torch.nn.functional.max_pool2d(crop.mask[None, None], 2 * margin + 1, 1, margin)[
            0, 0
        ]
        inside = (p[:, 2] > 0) & (x >= 0) & (y >= 0) & (x < width) & (y < height)
        hit = wide[y.clamp(0, height - 1), x.clamp(0, width - 1)] > 0.5
        misses += (~(inside & hit)).float()
    return misses > 0.2 * len(pictures)


def train(
    start: Gaussians,
    views: Views,
    settings: TrainSettings,
    device: str = "cpu",
    watch: Callable[[int, Gaussians], None] | None = None,
) -> Gaussians:
    """Fit `start` to `views` (poses in the Gaussians' own frame) and return the result.

    Deterministic for given inputs and settings on one machine class. `watch`, when given, is called
    every 100 iterations with the count so far and the Gaussians.
    """
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(settings.seed)
    pictures = crops(views, device=device)
    radius = float(np.linalg.norm(start.means - start.means.mean(0), axis=1).max())
    model = _Model(start, settings, radius, device)
    degree = start.degree
    densify = {
        int(settings.iterations * 0.6 * (i + 1) / (settings.densify_times + 1))
        for i in range(settings.densify_times)
    } - {0}
    pressure = torch.zeros(len(start), device=device)
    order: list[int] = []
    for i in track(range(settings.iterations), "train Gaussians"):
        if not order:
            order = torch.randperm(len(pictures), generator=generator).tolist()
        crop = pictures[order.pop()]
        background = torch.rand(3, generator=generator).to(device)
        image, alpha = model.draw(crop, degree)
        shown = image + (1 - alpha)[..., None] * background
        truth = crop.image * crop.mask[..., None] + (1 - crop.mask)[..., None] * background
        loss = (shown - truth).abs().mean()
        loss = loss + settings.mask_weight * (alpha - crop.mask).abs().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        gradient = model.free["means"].grad
        assert gradient is not None
        pressure += gradient.norm(dim=1)
        model.adam(0.05 ** (i / settings.iterations))
        if i + 1 in densify:
            _densify(model, pressure, pictures, settings, generator, radius)
            pressure = torch.zeros(len(model.free["means"]), device=device)
        if watch is not None and (i + 1) % 100 == 0:
            watch(i + 1, model.result())
    nothing = torch.zeros(0, dtype=torch.long, device=device)
    model.keep_and_split(_sound(model, pictures, radius), nothing, generator)
    return model.result()


def _sound(model: _Model, pictures: list[Crop], radius: float) -> Tensor:
    with torch.no_grad():
        visible = torch.sigmoid(model.free["opacities"]) > 0.02
        small = model.free["scales"].max(dim=1).values < float(np.log(0.3 * radius))
        return visible & small & ~outside(model.free["means"], pictures)


def _densify(
    model: _Model,
    pressure: Tensor,
    pictures: list[Crop],
    settings: TrainSettings,
    generator: torch.Generator,
    radius: float,
) -> None:
    keep = _sound(model, pictures, radius)
    room = settings.most - int(keep.sum())
    grow = max(0, min(int(settings.densify_share * len(keep)), room))
    score = torch.where(keep, pressure, torch.zeros_like(pressure))
    parents = torch.sort(score, descending=True, stable=True).indices[:grow]
    model.keep_and_split(keep, parents, generator)
