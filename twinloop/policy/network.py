"""Force-aware grasp network: object points and physics in; joints, wrist, contacts, force out.

The heads follow the paper (16 joints, 2 contact constraints, 1 force), with two repairs.
Coordinates are
divided by the hand's size before the positional encoding, because in metres the published encoding
is
nearly constant over a hand-sized object. The force head predicts a *load factor* a = F mu / (m g),
which
depends on geometry and on how wide the intervals are but not on the mass itself, so that the force
is
exactly proportional to m / mu and needs no example of a new mass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from twinloop.errors import ArtifactError
from twinloop.policy.force_law import GRAVITY

Array = NDArray[np.float64]
LENGTH_SCALE = 0.1
"""Coordinates are divided by this length before encoding, m: about half a hand."""
FREQUENCIES = 4
WRIST_OFFSET = np.array([0.02, 0.02, 0.02, 0.5])
"""Range of the wrist head: x, y, z in m and yaw in rad, each side."""


@dataclass(frozen=True)
class Physics:
    """What the policy knows of the object's physics: values and 95 % intervals.

    Attributes:
        mass, mass_low, mass_high: kg.
        friction, friction_low, friction_high: coefficient between finger tip and object.
    """

    mass: float
    mass_low: float
    mass_high: float
    friction: float
    friction_low: float
    friction_high: float

    def context(self) -> Array:
        """(2,) log widths of the intervals of mass and friction, the uncertainty input."""
        return np.log(
            np.maximum(
                [
                    self.mass_high / max(self.mass_low, 1e-6),
                    self.friction_high / max(self.friction_low, 1e-6),
                ],
                1.0,
            )
        )

    @property
    def load(self) -> float:
        """M g / mu of the point values, N: the unit of the load factor."""
        return self.mass * GRAVITY / self.friction


@dataclass(frozen=True)
class Action:
    """One answer of the policy.

    Attributes:
        joints: (16,) hand joint targets at contact, rad.
        wrist_offset: (4,) x, y, z (m) and yaw (rad) to add to the nominal wrist pose, in its frame.
        contacts: (2,) probabilities of [at least three fingers touch, the object is in the hand].
        side_force: normal force for each side of the grasp, N.
    """

    joints: Array
    wrist_offset: Array
    contacts: Array
    side_force: float


def encode(points: Tensor) -> Tensor:
    """Positional encoding of points (..., 3) m -> (..., 3 + 6 * FREQUENCIES).

    sin and cos of 2^k pi x for k = 0..3 with x in units of `LENGTH_SCALE`, and x itself.
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

    def act(self, points: Array, physics: Physics) -> Action:
        """Answer for one object: points (p, 3) in the nominal wrist frame, m, and its physics."""
        with torch.no_grad():
            joints, wrist, contacts, factor = self(
                torch.as_tensor(points, dtype=torch.float32)[None],
                torch.as_tensor(physics.context(), dtype=torch.float32)[None],
            )
        return Action(
            joints=joints[0].double().numpy(),
            wrist_offset=wrist[0].double().numpy(),
            contacts=torch.sigmoid(contacts[0]).double().numpy(),
            side_force=float(torch.exp(factor[0])) * physics.load,
        )

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """Weights by name, float32, names without dots so that they are valid variable names."""
        return {
            name.replace(".", "_"): value.detach().numpy().copy()
            for name, value in self.state_dict().items()
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[np.floating]]) -> GraspNetwork:
        """Rebuild a network from `arrays()`.

        Raises:
            ArtifactError: a weight is missing or has another shape.
        """
        missing = [name for name in ("lower", "upper", "point_0_weight") if name not in arrays]
        if missing:
            raise ArtifactError(f"policy network lacks {missing}; train the policy again")
        network = cls(
            int(arrays["point_0_weight"].shape[0]),
            np.asarray(arrays["lower"], dtype=np.float64),
            np.asarray(arrays["upper"], dtype=np.float64),
        )
        state = {}
        for name, value in network.state_dict().items():
            flat = name.replace(".", "_")
            if flat not in arrays or tuple(arrays[flat].shape) != tuple(value.shape):
                found = tuple(arrays[flat].shape) if flat in arrays else "missing"
                raise ArtifactError(
                    f"policy network weight {flat}: {found}, expected shape {tuple(value.shape)}; "
                    "train the policy again"
                )
            state[name] = torch.as_tensor(np.asarray(arrays[flat]), dtype=value.dtype)
        network.load_state_dict(state)
        return network
