"""Behaviour cloning of the grasp network: all heads at once, the same bytes every time."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from twinloop.policy.dataset import Examples
from twinloop.policy.network import GraspNetwork
from twinloop.policy.runner import WRIST_OFFSET
from twinloop.progress import track

Array = NDArray[np.float64]


@dataclass(frozen=True)
class TrainingSettings:
    """Knobs of the training.

    Attributes:
        hidden: width of the network.
        epochs: passes over the examples.
        batch: examples per step.
        rate: Adam's first step size; it falls to a hundredth along a half cosine.
        seed: seed of weights and order.
    """

    hidden: int = 64
    epochs: int = 60
    batch: int = 64
    rate: float = 3e-3
    seed: int = 0


@dataclass(frozen=True)
class Curve:
    """Mean losses per epoch: joints rad2, wrist (share of range)2, contacts nat, force log2."""

    joints: Array
    wrist: Array
    contacts: Array
    force: Array


class Adam:
    """Adam (Kingma & Ba 2015), its step size given at each step.

    The steps equal those of `torch.optim.Adam`, but making one of those loads torch's compiler,
    which takes longer than the training of a small network.

    Attributes:
        count: steps taken so far.
    """

    FIRST, SECOND, SMALL = 0.9, 0.999, 1e-8

    def __init__(self, weights: list[Tensor]) -> None:
        self.count = 0
        self._weights = weights
        self._mean = [torch.zeros_like(weight) for weight in weights]
        self._square = [torch.zeros_like(weight) for weight in weights]

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Move the weights along their gradients by a step of size ``rate``."""
        self.count += 1
        first, second = 1 - self.FIRST**self.count, 1 - self.SECOND**self.count
        for weight, mean, square in zip(self._weights, self._mean, self._square, strict=True):
            if weight.grad is None:
                continue
            mean.lerp_(weight.grad, 1 - self.FIRST)
            square.mul_(self.SECOND).addcmul_(weight.grad, weight.grad, value=1 - self.SECOND)
            scale = (square.sqrt() / math.sqrt(second)).add_(self.SMALL)
            weight.addcdiv_(mean, scale, value=-rate / first)


def train(
    examples: Examples, lower: Array, upper: Array, settings: TrainingSettings
) -> tuple[GraspNetwork, Curve]:
    """Fit a network to examples.

    Single-threaded and seeded: two runs give the same weights bit by bit. Examples whose pads
    missed teach the contact head only.

    Args:
        examples: what to imitate.
        lower: (n,) lower joint limits, rad.
        upper: (n,) upper joint limits, rad.
        settings: knobs.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _train(examples, lower, upper, settings)
    finally:
        torch.set_num_threads(threads)


def _train(
    examples: Examples, lower: Array, upper: Array, settings: TrainingSettings
) -> tuple[GraspNetwork, Curve]:
    generator = torch.Generator().manual_seed(settings.seed)
    network = GraspNetwork(settings.hidden, lower, upper)
    network.initialise(generator)
    as_tensor = torch.as_tensor
    points = as_tensor(examples.points, dtype=torch.float32)
    context = as_tensor(examples.context, dtype=torch.float32)
    joints = as_tensor(examples.joints, dtype=torch.float32)
    wrist = as_tensor(examples.wrist / WRIST_OFFSET, dtype=torch.float32)
    contacts = as_tensor(examples.contacts, dtype=torch.float32)
    factor = as_tensor(examples.log_factor, dtype=torch.float32)
    good = contacts[:, 0]
    count = len(points)
    steps = settings.epochs * max(1, -(-count // settings.batch))
    optimiser = Adam(list(network.parameters()))
    history = np.zeros((settings.epochs, 4))
    for epoch in track(range(settings.epochs), "train policy"):
        order = torch.randperm(count, generator=generator)
        for start in range(0, count, settings.batch):
            rows = order[start : start + settings.batch]
            out = network(points[rows], context[rows])
            weight = good[rows] / good[rows].sum().clamp(min=1.0)
            scale = network.wrist_range
            losses = torch.stack(
                [
                    (weight * (out[0] - joints[rows]).square().mean(dim=1)).sum(),
                    (weight * (out[1] / scale - wrist[rows]).square().mean(dim=1)).sum(),
                    functional.binary_cross_entropy_with_logits(out[2], contacts[rows]),
                    (out[3] - factor[rows]).square().mean(),
                ]
            )
            # Joints in units of 0.05 rad (4 mm at the pad), so that no head drowns the others.
            total = losses[0] / 0.05**2 + 20.0 * losses[1] + 0.2 * losses[2] + 10.0 * losses[3]
            network.zero_grad()
            total.backward()  # type: ignore[no-untyped-call]
            fall = 0.5 * (1 + math.cos(math.pi * optimiser.count / max(1, steps)))
            optimiser.step(settings.rate * (0.01 + 0.99 * fall))
            history[epoch] += losses.detach().double().numpy() * len(rows) / count
    return network, Curve(*history.T)
