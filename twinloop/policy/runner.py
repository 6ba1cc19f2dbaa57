"""Run a trained grasp network with NumPy alone: the reference for exported policies.

The layout of weights is that of `twinloop.policy.network`; both agree to float32 rounding (tested).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinloop.errors import ArtifactError
from twinloop.policy.force_law import GRAVITY

Array = NDArray[np.float64]
Weights = Mapping[str, NDArray[np.floating]]
LENGTH_SCALE = 0.1
"""Coordinates are divided by this length before encoding, m: about half a hand."""
FREQUENCIES = 4
WRIST_OFFSET = np.array([0.02, 0.02, 0.02, 0.5])
"""Range of the wrist head: x, y, z in m and yaw in rad, each side."""
_LAYERS = (
    "point_0",
    "point_2",
    "trunk_0",
    "trunk_2",
    "joints",
    "wrist",
    "contacts",
    "force_0",
    "force_2",
)


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


class GraspRunner:
    """The network's forward pass in float64.

    Args:
        weights: arrays by name, as `GraspNetwork.arrays()` gives them.

    Raises:
        ArtifactError: a weight is missing or its shape does not fit its neighbours.
    """

    def __init__(self, weights: Weights) -> None:
        names = [f"{layer}_{part}" for layer in _LAYERS for part in ("weight", "bias")]
        missing = [name for name in (*names, "lower", "upper") if name not in weights]
        if missing:
            raise ArtifactError(f"policy network lacks {missing}; train the policy again")
        self._weights = {name: np.asarray(weights[name], dtype=np.float64) for name in weights}
        hidden = self._weights["point_0_weight"].shape[0]
        joints = self._weights["lower"].shape[0]
        expected = {
            "point_0_weight": (hidden, 3 + 6 * FREQUENCIES),
            "point_2_weight": (hidden, hidden),
            "trunk_0_weight": (2 * hidden, 2 * hidden),
            "trunk_2_weight": (hidden, 2 * hidden),
            "joints_weight": (joints, hidden),
            "wrist_weight": (len(WRIST_OFFSET), hidden),
            "contacts_weight": (2, hidden),
            "force_0_weight": (32, hidden + 2),
            "force_2_weight": (1, 32),
        }
        for name, shape in expected.items():
            found = self._weights[name].shape
            if found != shape or self._weights[name.replace("weight", "bias")].shape != shape[:1]:
                raise ArtifactError(
                    f"policy network weight {name}: {found}, expected shape {shape}; "
                    "train the policy again"
                )

    def _layer(self, name: str, value: Array) -> Array:
        result: Array = value @ self._weights[f"{name}_weight"].T + self._weights[f"{name}_bias"]
        return result

    def act(self, points: Array, physics: Physics) -> Action:
        """Answer for one object: points (p, 3) in the nominal wrist frame, m, and its physics."""
        feature = np.maximum(self._layer("point_0", encode(points)), 0.0)
        feature = np.maximum(self._layer("point_2", feature), 0.0)
        pooled = np.concatenate([feature.mean(axis=0), feature.max(axis=0)])
        latent = np.maximum(self._layer("trunk_0", pooled), 0.0)
        latent = np.maximum(self._layer("trunk_2", latent), 0.0)
        lower, upper = self._weights["lower"], self._weights["upper"]
        joints = 0.5 * (upper + lower) + 0.5 * (upper - lower) * np.tanh(
            self._layer("joints", latent)
        )
        force = np.tanh(self._layer("force_0", np.concatenate([latent, physics.context()])))
        return Action(
            joints=joints,
            wrist_offset=WRIST_OFFSET * np.tanh(self._layer("wrist", latent)),
            contacts=0.5 * (1.0 + np.tanh(0.5 * self._layer("contacts", latent))),
            side_force=float(np.exp(self._layer("force_2", force)[0])) * physics.load,
        )


def encode(points: Array) -> Array:
    """Positional encoding of points (..., 3) m -> (..., 3 + 6 * FREQUENCIES).

    sin and cos of 2^k pi x / 2 for k = 0..3 with x in units of `LENGTH_SCALE`, and x itself.
    """
    scaled = points / LENGTH_SCALE
    octave = np.pi * 2.0 ** (np.arange(FREQUENCIES) - 1)
    angle = (scaled[..., None] * octave).reshape(*points.shape[:-1], -1)
    return np.concatenate([scaled, np.sin(angle), np.cos(angle)], axis=-1)
