"""Force-aware grasp network: object points and physics in; joints, wrist, contacts, force out.

The heads follow the paper (16 joints, 2 contact constraints, 1 force), with two repairs.
Coordinates are divided by the hand's size before the positional encoding, because in metres the
published encoding is nearly constant over a hand-sized object. The force head predicts a *load
factor* a = F mu / (m g), which depends on geometry and on how wide the intervals are but not on the
mass itself, so that the force is exactly proportional to m / mu and needs no example of a new mass.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from twinloop.policy.runner import FREQUENCIES, LENGTH_SCALE, WRIST_OFFSET

Array = NDArray[np.float64]


def encode(points: Tensor) -> Tensor:
    """Positional encoding of points (..., 3) m -> (..., 3 + 6 * FREQUENCIES).

    sin and cos of 2^k pi x / 2 for k = 0..3 with x in units of `LENGTH_SCALE`, and x itself.
    """
    scaled = points / LENGTH_SCALE
    octave = torch.pi * 2.0 ** (torch.arange(FREQUENCIES, dtype=points.dtype) - 1)
    angle = (scaled[..., None] * octave).flatten(-2)
    return torch.cat([scaled, torch.sin(angle), torch.cos(angle)], dim=-1)


class GraspNetwork(nn.Module):
    """Permutation-invariant point network with four heads.

    Args:
        hidden: width of the layers.
        lower, upper: (16,) joint limits, rad; the joint head cannot leave them.
    """

    lower: Tensor
    upper: Tensor
    wrist_range: Tensor

    def __init__(self, hidden: int, lower: Array, upper: Array) -> None:
        super().__init__()
        self.point = nn.Sequential(
            nn.Linear(3 + 6 * FREQUENCIES, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()
        )
        self.trunk = nn.Sequential(
            nn.Linear(2 * hidden, 2 * hidden), nn.ReLU(), nn.Linear(2 * hidden, hidden), nn.ReLU()
        )
        self.joints = nn.Linear(hidden, len(lower))
        self.wrist = nn.Linear(hidden, len(WRIST_OFFSET))
        self.contacts = nn.Linear(hidden, 2)
        self.force = nn.Sequential(nn.Linear(hidden + 2, 32), nn.Tanh(), nn.Linear(32, 1))
        self.register_buffer("lower", torch.as_tensor(lower, dtype=torch.float32))
        self.register_buffer("upper", torch.as_tensor(upper, dtype=torch.float32))
        self.register_buffer("wrist_range", torch.as_tensor(WRIST_OFFSET, dtype=torch.float32))

    def initialise(self, generator: torch.Generator) -> None:
        """Draw all weights from a generator (He for hidden layers, small for the heads)."""
        heads = {id(self.joints), id(self.wrist), id(self.contacts), id(self.force[-1])}
        with torch.no_grad():
            for layer in self.modules():
                if isinstance(layer, nn.Linear):
                    gain = 0.1 if id(layer) in heads else 2.0**0.5
                    spread = gain / layer.in_features**0.5
                    layer.weight.copy_(
                        spread * torch.randn(layer.weight.shape, generator=generator)
                    )
                    layer.bias.zero_()

    def forward(self, points: Tensor, context: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Evaluate a batch.

        Args:
            points: (b, p, 3) object surface points in the nominal wrist frame, m.
            context: (b, 2) log interval widths of mass and friction.

        Returns:
            joints (b, 16) rad, wrist offset (b, 4), contact logits (b, 2), log load factor (b,).
        """
        feature = self.point(encode(points))
        pooled = torch.cat([feature.mean(dim=1), feature.amax(dim=1)], dim=-1)
        latent = self.trunk(pooled)
        middle, half = 0.5 * (self.upper + self.lower), 0.5 * (self.upper - self.lower)
        joints = middle + half * torch.tanh(self.joints(latent))
        wrist = self.wrist_range * torch.tanh(self.wrist(latent))
        force = self.force(torch.cat([latent, context], dim=-1))[..., 0]
        return joints, wrist, self.contacts(latent), force

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """Weights by name, float32, names without dots so that they are valid variable names."""
        return {
            name.replace(".", "_"): value.detach().numpy().copy()
            for name, value in self.state_dict().items()
        }
