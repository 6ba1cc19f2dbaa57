"""A small rigid motion of each camera, fitted together with the Gaussians."""

from __future__ import annotations

import torch
from torch import Tensor

from twinloop.splat.exposure import Rows


def generators(device: str = "cpu") -> Tensor:
    """The six generators (6, 4, 4) of SE(3): translations, then rotations, along x, y, z."""
    g = torch.zeros(6, 4, 4, dtype=torch.float64, device=device)
    for i in range(3):
        g[i, i, 3] = 1.0
        j, k = (i + 1) % 3, (i + 2) % 3
        g[3 + i, k, j], g[3 + i, j, k] = 1.0, -1.0
    return g


def exponential(twist: Tensor) -> Tensor:
    """Rigid motions (..., 4, 4) of twists (..., 6): translation m, then rotation rad."""
    g = generators(str(twist.device))
    motion: Tensor = torch.linalg.matrix_exp(torch.einsum("...i,ijk->...jk", twist.double(), g))
    return motion


class PoseRefinement:
    """World-to-camera matrices that take steps: V <- exp(twist) V, in the camera's frame.

    The pictures alone leave the world's frame and scale free. After each pass over the pictures the
    mean motion of the cameras, as a similarity of the world, is taken out again.
    """

    def __init__(
        self, viewmats: list[Tensor], distance: float, step: float = 1e-4, device: str = "cpu"
    ) -> None:
        self.first = torch.stack(viewmats).double()
        self.now = self.first.clone()
        self.rows = Rows(len(viewmats), 6, step, device)
        # A radian counts as much as the distance to the object: both move the picture alike.
        self.unit = torch.tensor([distance] * 3 + [1.0] * 3, dtype=torch.float64, device=device)
        self.generators = generators(device)
        self._leaf: Tensor | None = None

    def viewmat(self, index: int) -> Tensor:
        """The matrix of one picture, to draw and differentiate with."""
        self._leaf = self.now[index].float().clone().requires_grad_()
        return self._leaf

    def current(self) -> list[Tensor]:
        """All matrices as they are."""
        return list(self.now.float())

    @torch.no_grad()
    def step(self, index: int, factor: float) -> None:
        """After the backward pass: one step of this picture's camera."""
        if self._leaf is None or self._leaf.grad is None:
            return
        moved = self.generators @ self.now[index]
        gradient = torch.einsum("ijk,jk->i", moved, self._leaf.grad.double()) * self.unit
        twist = self.rows.change(index, gradient.float(), factor).double() * self.unit
        self.now[index] = exponential(twist) @ self.now[index]
        self._leaf = None

    @torch.no_grad()
    def fix_gauge(self) -> None:
        """Take out the similarity that best maps the cameras as they were onto those they are."""
        eye = torch.linalg.inv(self.now)[:, :3, 3]
        before = torch.linalg.inv(self.first)[:, :3, 3]
        # Rotation: the mean of the cameras' turns in the world; centres and scale: those of the
        # cloud of cameras. (Orientations fix the rotation even where all cameras are on a line.)
        turns = self.now[:, :3, :3].transpose(1, 2) @ self.first[:, :3, :3]
        u, _, vt = torch.linalg.svd(turns.sum(dim=0))
        rotation = u @ vt
        old, new = before.mean(dim=0), eye.mean(dim=0)
        spread = (before - old).norm(), (eye - new).norm()
        scale = spread[1] / spread[0] if float(spread[0]) > 1e-9 else torch.ones_like(spread[0])
        fixed = (eye - new) @ rotation / scale + old
        turned = self.now[:, :3, :3] @ rotation
        self.now[:, :3, :3] = turned
        self.now[:, :3, 3] = -torch.einsum("vij,vj->vi", turned, fixed)
