"""The free parameters of a set of Gaussians or surfels, how they are drawn, and their steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from twinloop.errors import InputError
from twinloop.splat.adam import Adam
from twinloop.splat.gaussians import Gaussians
from twinloop.splat.pictures import Crop
from twinloop.splat.rasterize import rasterization
from twinloop.splat.surfels import Surfels
from twinloop.splat.train_settings import TrainSettings

Splats = TypeVar("Splats", bound=Gaussians | Surfels)

NAMES = ("means", "quaternions", "scales", "opacities", "sh")


@dataclass
class Drawn:
    """One render, differentiable: image (h, w, 3) colour times coverage, alpha (h, w).

    depth (h, w) m, when the render mode has it. Of surfels besides, as `rasterization_2dgs` gives
    them: normals and surface_normals (h, w, 3), distortion, median (h, w). info: the rasteriser's.
    """

    image: Tensor
    alpha: Tensor
    depth: Tensor | None = None
    normals: Tensor | None = None
    surface_normals: Tensor | None = None
    distortion: Tensor | None = None
    median: Tensor | None = None
    info: dict[str, Any] = field(default_factory=dict)


class Model(Generic[Splats]):
    """Free parameters `free` by name: logarithms of scales, logits of opacities, the rest as is."""

    def __init__(
        self, start: Splats, settings: TrainSettings, radius: float, near: float, device: str
    ) -> None:
        self.kind: type[Splats] = type(start)
        self.flat = isinstance(start, Surfels)
        self.near = near
        arrays: dict[str, NDArray[np.float32]] = {
            name: np.asarray(getattr(start, name), np.float32) for name in NAMES
        }
        for name, values in arrays.items():
            if not np.isfinite(values).all():
                bad = int(np.flatnonzero(~np.isfinite(values.reshape(len(values), -1)).all(1))[0])
                raise InputError(
                    f"start of training: {name} of Gaussian {bad} is {values[bad].tolist()}, "
                    "expected finite numbers."
                )
        low, high = arrays["opacities"].min(), arrays["opacities"].max()
        if arrays["scales"].min() < 0 or low < 0 or high > 1:
            raise InputError(
                f"start of training: scales from {arrays['scales'].min():g} m and opacities from "
                f"{low:g} to {high:g}, expected positive scales and opacities of 0 to 1; are they "
                "logarithms and logits, as files hold them?"
            )
        if arrays["sh"].shape[1:] not in ((1, 3), (4, 3), (9, 3), (16, 3)):
            raise InputError(
                f"start of training: sh has shape {arrays['sh'].shape}, expected (n, bases, 3) of "
                "1, 4, 9 or 16 bases"
            )

        def tensor(values: NDArray[np.float32]) -> Tensor:
            return torch.tensor(values, device=device)  # a copy

        self.free: dict[str, Tensor] = {
            "means": tensor(arrays["means"]),
            "quaternions": tensor(arrays["quaternions"]),
            "scales": tensor(arrays["scales"]).clamp_min(1e-6 * radius).log(),
            "opacities": torch.logit(tensor(arrays["opacities"]).clamp(1e-3, 1 - 1e-3)),
            "sh": tensor(arrays["sh"]),
        }
        self.step_size = {
            "means": settings.step_means * radius,
            "quaternions": settings.step_quaternions,
            "scales": settings.step_scales,
            "opacities": settings.step_opacities,
            "sh": settings.step_sh,
        }
        self.adam = Adam(self.free, rest={"sh": settings.sh_rest})
        self.watch()

    def __len__(self) -> int:
        return len(self.free["means"])

    def watch(self) -> None:
        """Make the parameters leaves that collect gradients."""
        self.free = {k: v.detach().contiguous().requires_grad_() for k, v in self.free.items()}

    def draw(
        self, crop: Crop, degree: int, viewmat: Tensor | None = None, **keywords: Any
    ) -> Drawn:
        """Render the crop. `viewmat` takes the place of its pose, `keywords` go to the rasteriser.

        Means of the projected set are in ``info["means2d"]`` where the rasteriser gives them.
        """
        height, width = crop.mask.shape
        arguments = (
            self.free["means"],
            self.free["quaternions"],
            self.free["scales"].exp(),
            torch.sigmoid(self.free["opacities"]),
            self.free["sh"],
            (crop.viewmat if viewmat is None else viewmat)[None],
            crop.K[None],
            width,
            height,
        )
        keywords = {"sh_degree": degree, "near_plane": self.near, **keywords}
        if not self.flat:
            image, alpha, info = rasterization(*arguments, **keywords)
            depth = image[0, ..., 3] if image.shape[-1] > 3 else None
            return Drawn(image[0, ..., :3], alpha[0, ..., 0], depth, info=info)
        from twinloop.splat.rasterize_2dgs import rasterization_2dgs

        image, alpha, normals, surface, distortion, median, info = rasterization_2dgs(
            *arguments, **keywords
        )

        def plane(values: Tensor | None) -> Tensor | None:
            return None if values is None else values[0, ..., 0]

        return Drawn(
            image[0, ..., :3],
            alpha[0, ..., 0],
            image[0, ..., 3] if image.shape[-1] > 3 else None,
            normals[0] if normals is not None else None,
            surface.reshape(-1, *surface.shape[-3:])[0] if surface is not None else None,
            plane(distortion),
            plane(median),
            info,
        )

    def step(self, factors: dict[str, float]) -> None:
        """One step of Adam; `factors` scale the step sizes by name."""
        self.adam.step(
            self.free, {k: size * factors.get(k, 1.0) for k, size in self.step_size.items()}
        )
        for value in self.free.values():
            value.grad = None

    @torch.no_grad()
    def change(self, keep: Tensor, new: dict[str, Tensor]) -> None:
        """Drop what is not in `keep` (bool) and append `new`, whose moments start at zero."""
        self.adam.keep_and_append(keep, len(new["means"]))
        self.free = {k: torch.cat([v[keep], new[k]]) for k, v in self.free.items()}
        self.watch()

    @torch.no_grad()
    def drop(self, keep: Tensor) -> None:
        """Drop what is not in `keep` (bool)."""
        self.change(keep, {k: v.detach()[:0] for k, v in self.free.items()})

    @torch.no_grad()
    def forget(self, index: Tensor) -> None:
        """Set the moments of the Gaussians at `index` to zero: they have jumped."""
        for store in (self.adam.first, self.adam.second):
            for values in store.values():
                values[index] = 0.0

    def result(self) -> Splats:
        """The set as it is now, with unit quaternions."""
        f = {k: v.detach().cpu() for k, v in self.free.items()}
        q = torch.nn.functional.normalize(f["quaternions"].double(), dim=1).float()
        return self.kind(
            f["means"].numpy().copy(),
            q.numpy(),
            f["scales"].exp().numpy(),
            torch.sigmoid(f["opacities"]).numpy(),
            f["sh"].numpy().copy(),
        )

    def state(self) -> dict[str, Tensor]:
        """Everything that the next steps depend on, by name."""
        out = {f"free/{k}": v.detach() for k, v in self.free.items()}
        return out | {f"adam/{k}": torch.from_numpy(v) for k, v in self.adam.state().items()}

    def load(self, state: dict[str, Tensor]) -> None:
        """Take back what `state` gave."""
        device = self.free["means"].device
        self.free = {k: state[f"free/{k}"].clone().to(device) for k in NAMES}
        adam = {k[len("adam/") :]: v for k, v in state.items() if k.startswith("adam/")}
        self.adam.restore({k: v.cpu().numpy() for k, v in adam.items()})
        self.watch()


def rotations(quaternions: Tensor) -> Tensor:
    """Rotation matrices (n, 3, 3) of quaternions wxyz (n, 4) of any length."""
    w, x, y, z = torch.nn.functional.normalize(quaternions, dim=1).unbind(1)
    rows = [
        torch.stack([1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)], dim=1),
        torch.stack([2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)], dim=1),
        torch.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)], dim=1),
    ]
    return torch.stack(rows, dim=1)
