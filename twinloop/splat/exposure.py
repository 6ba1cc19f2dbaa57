"""Per-picture parameters with an Adam of their own, and the change of exposure among them."""

from __future__ import annotations

import torch
from torch import Tensor


class Rows:
    """One row of parameters per picture; only the picture that was drawn takes a step."""

    def __init__(self, rows: int, width: int, step: float, device: str = "cpu") -> None:
        self.step_size = step
        self.values = torch.zeros(rows, width, device=device)
        self.first = torch.zeros(rows, width, device=device)
        self.second = torch.zeros(rows, width, device=device)
        self.count = torch.zeros(rows, dtype=torch.int64)

    def change(self, row: int, gradient: Tensor, factor: float) -> Tensor:
        """What Adam (Kingma and Ba 2015) adds to a row; counts the step."""
        self.count[row] += 1
        count = int(self.count[row])
        b1, b2 = 0.9, 0.99
        self.first[row].lerp_(gradient, 1 - b1)
        self.second[row].mul_(b2).addcmul_(gradient, gradient, value=1 - b2)
        bias = (1 - b2**count) ** 0.5 / (1 - b1**count)
        moved = self.first[row] / (self.second[row].sqrt() + 1e-15)
        step: Tensor = moved * (-self.step_size * factor * bias)
        return step

    def state(self, prefix: str) -> dict[str, Tensor]:
        """All that the next steps depend on."""
        return {
            f"{prefix}.values": self.values,
            f"{prefix}.first": self.first,
            f"{prefix}.second": self.second,
            f"{prefix}.count": self.count,
        }

    def load(self, prefix: str, state: dict[str, Tensor]) -> None:
        """Take back what `state` gave."""
        for name in ("values", "first", "second", "count"):
            mine = getattr(self, name)
            setattr(self, name, state[f"{prefix}.{name}"].clone().to(mine.device))


class Exposure:
    """An affine change of colour for each picture: shown = image (I + A) + alpha b.

    Auto exposure and white balance make one surface look different in two pictures; without this,
    the Gaussians explain it by colour that depends on direction. The change is pulled towards none,
    and its mean over the pictures is none, so that the Gaussians keep the colours of the pictures.
    """

    def __init__(
        self, pictures: int, step: float = 2e-3, pull: float = 0.01, device: str = "cpu"
    ) -> None:
        self.rows = Rows(pictures, 12, step, device)
        self.pull = pull
        self._row: Tensor | None = None

    def matrix(self, index: int) -> Tensor:
        """The 3 x 4 matrix [I + A, b] of a picture; a colour's row vector is multiplied by it."""
        change = self.rows.values[index].reshape(3, 4)
        return change + torch.eye(3, 4, device=change.device)

    def apply(self, index: int, image: Tensor, alpha: Tensor) -> Tensor:
        """The image (h, w, 3), colour times coverage, as picture `index` would show it."""
        self._row = self.rows.values[index].clone().requires_grad_()
        change = self._row.reshape(3, 4)
        return image + image @ change[:, :3].T + alpha[..., None] * change[:, 3]

    @torch.no_grad()
    def step(self, index: int, factor: float) -> None:
        """After the backward pass: one step for this picture."""
        if self._row is None or self._row.grad is None:
            return
        gradient = self._row.grad + self.pull * self._row.detach()
        self.rows.values[index] += self.rows.change(index, gradient, factor)
        self._row = None

    def fix_gauge(self) -> None:
        """Take the mean over the pictures out."""
        self.rows.values -= self.rows.values.mean(dim=0)
