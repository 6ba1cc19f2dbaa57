"""How hard to squeeze: grip force from mass, friction and their uncertainty.

Two laws stand here. `friction_law` is ours: a grasp from two opposing sides holds an object of mass
m by friction alone when each side presses with F >= m g / (2 mu); with a margin S, F = S m g / (2
mu). `paper_law` is the published one, f = m g / n at each of n contacts; it ignores friction, so
its two sides can carry only mu m g, and it lifts only where mu >= 1. It is kept as a named
baseline.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from twinloop.errors import InputError

Array = NDArray[np.float64]
GRAVITY = 9.81
"""Standard acceleration of free fall used by every world here, m/s2."""

LawName = Literal["friction", "paper", "position_only"]


@dataclass(frozen=True)
class GripForce:
    """A grip force and how it came about.

    Attributes:
        law: name of the law.
        side_force: normal force of each of the two sides, N.
        load: the m/mu the law was asked to carry, kg.
        margin: S, ratio of the force to the least that holds that load (nan where a law has none).
    """

    law: LawName
    side_force: float
    load: float
    margin: float


def friction_law(load: float, margin: float) -> GripForce:
    """F = S (m/mu) g / 2 for each side.

    Args:
        load: m/mu, kg (see `upper_load`).
        margin: S >= 0; below 1 the object slips.

    Raises:
        InputError: load or margin negative or not finite.
    """
    _require_positive("load m/mu (kg)", load)
    _require_positive("margin S", margin)
    return GripForce("friction", 0.5 * margin * load * GRAVITY, load, margin)


def paper_law(mass: float, contacts: int) -> GripForce:
    """Published law f = m g / n per contact, so each of two sides gets m g / 2 (D-REX, eq. for f).

    Args:
        mass: kg.
        contacts: n, number of contacts in the grasp, at least 2.

    Raises:
        InputError: mass negative or not finite, fewer than two contacts.
    """
    _require_positive("mass (kg)", mass)
    if contacts < 2:
        raise InputError(
            f"paper's force law: {contacts} contacts; expected at least 2 to oppose each other"
        )
    per_contact = mass * GRAVITY / contacts
    return GripForce("paper", per_contact * contacts / 2.0, mass, float("nan"))


def position_only_law() -> GripForce:
    """No force target: the fingers go to where they touch and stay (baseline without force)."""
    return GripForce("position_only", 0.0, 0.0, float("nan"))


def upper_load(mass: Array, friction: Array, risk: float) -> float:
    """Load m/mu that is exceeded with probability `risk` under posterior samples, kg.

    The samples are taken together (mass and friction of the same draw), so their correlation
    counts.

    Args:
        mass: (sample,) kg, > 0.
        friction: (sample,) coefficient, > 0.
        risk: accepted probability in (0, 1) that the true load is larger.

    Raises:
        InputError: sizes differ, empty, non-positive values, or risk outside (0, 1).
    """
    mass, friction = np.asarray(mass, dtype=np.float64), np.asarray(friction, dtype=np.float64)
    if mass.shape != friction.shape or mass.size == 0:
        raise InputError(
            f"posterior samples: {mass.size} of mass and {friction.size} of friction; expected "
            f"equally many, "
            "at least one"
        )
    bad = ~((mass > 0) & (friction > 0) & np.isfinite(mass) & np.isfinite(friction))
    if bad.any():
        i = int(np.argmax(bad))
        raise InputError(
            f"posterior sample {i}: mass {mass[i]} kg, friction {friction[i]}; expected both "
            f"finite and > 0"
        )
    if not 0.0 < risk < 1.0:
        raise InputError(f"risk {risk}: expected a probability between 0 and 1, such as 0.05")
    return float(np.quantile(mass / friction, 1.0 - risk))


def distribute(points: Array, normals: Array, side_force: float, closing: Array) -> Array:
    """Normal force of each finger such that the sides balance and do not turn the object.

    Minimises the sum of squared forces subject to: each side's sum equals `side_force` along the
        closing
    direction, and the moments of the two sides about the closing line cancel. Non-negative least
    squares with heavily weighted balance rows, so a grasp that cannot balance gets the nearest
    feasible answer.

    Args:
        points: (tip, 3) contact points in any frame, m.
        normals: (tip, 3) unit normals pointing INTO the object, same frame.
        side_force: wanted force of each side, N.
        closing: (3,) unit closing direction from the many-finger side to the thumb side.

    Returns:
        (tip,) normal forces, N >= 0.
    """
    points, normals = np.asarray(points, dtype=np.float64), np.asarray(normals, dtype=np.float64)
    along = normals @ closing
    fingers, thumb = along > 0, along <= 0
    if side_force <= 0.0 or not fingers.any() or not thumb.any():
        return np.zeros(len(points))
    size = max(float(np.ptp(points, axis=0).max()), 1e-3)
    moments = np.cross(points - points.mean(axis=0), normals) / size
    heavy = 30.0
    rows = [np.where(fingers, np.abs(along), 0.0), np.where(thumb, np.abs(along), 0.0)]
    system = np.concatenate(
        [heavy * np.stack(rows), 0.3 * heavy * moments.T, np.eye(len(points))], axis=0
    )
    target = np.zeros(len(system))
    target[:2] = heavy * side_force
    force, _ = nnls(system, target)
    # The sides' sums are what holds the object: restore them exactly after the soft solve.
    for side in (fingers, thumb):
        total = float((force * np.abs(along))[side].sum())
        if total > 0:
            force[side] *= side_force / total
    return force


def _require_positive(name: str, value: float) -> None:
    if not (np.isfinite(value) and value >= 0.0):
        raise InputError(f"{name} is {value}: expected a finite value >= 0")
