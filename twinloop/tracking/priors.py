"""What is known of a pose before a frame is looked at: the table, how the object rests, motion."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from twinloop.tracking.solver import System, rotation_log

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Contact:
    """The object stands on the plane z = 0: its lowest hull vertex is at `height` +- `sigma` m.

    hull: (h, 3) convex hull vertices in the object frame, m. A residual beyond `cutoff` m is taken
    for an object in the air and weighs nothing.
    """

    hull: Array
    height: float
    sigma: float
    cutoff: float

    def system(self, pose: Array, turn: int) -> System | None:
        """Normal equations of the one residual; None in the air."""
        return normal_equations(*contact_system(pose, self))


@dataclass(frozen=True)
class RestPrior:
    """The object rests on a face: only x, y and yaw about world z are free.

    up: (3,) object axis that points along world z at rest; height: m of the object origin;
    sigma_height m and sigma_tilt rad are the standard deviations. A tilt beyond `cutoff` rad (or a
    height as many sigmas off) is taken for an object that has left the face and weighs nothing.
    """

    up: Array
    height: float
    sigma_height: float
    sigma_tilt: float
    cutoff: float = np.inf

    def system(self, pose: Array, turn: int) -> System | None:
        """Normal equations of height and tilt."""
        residual, jacobian, weight = rest_system(pose, self)
        size = float(np.sqrt(weight @ residual**2)) * self.sigma_tilt
        inside = max(0.0, 1 - (size / self.cutoff) ** 2) ** 2
        return normal_equations(residual, jacobian, weight * inside)


@dataclass(frozen=True)
class PosePrior:
    """The pose is `pose` (4, 4) with the covariance `covariance` (6, 6) m, rad."""

    pose: Array
    covariance: Array

    def system(self, pose: Array, turn: int) -> System | None:
        """Normal equations that pull back to the expected pose."""
        residual = motion(pose, self.pose)
        return System(self.information, self.information @ residual, prior=True)

    @cached_property
    def information(self) -> Array:
        """The inverse (6, 6) of the covariance."""
        return np.asarray(np.linalg.inv(self.covariance), np.float64)


def motion(first: Array, second: Array) -> Array:
    """The left perturbation (6,) that carries the pose `first` to `second`."""
    rotation = second[:3, :3] @ first[:3, :3].T
    return np.concatenate([second[:3, 3] - first[:3, 3], rotation_log(rotation)])


def normal_equations(residual: Array, jacobian: Array, weight: Array) -> System | None:
    """The system of residuals (n,), their Jacobian (n, 6) and weights (n,)."""
    if not weight.any():
        return None
    weighted = jacobian * weight[:, None]
    return System(weighted.T @ jacobian, weighted.T @ residual, prior=True)


def contact_system(pose: Array, contact: Contact) -> tuple[Array, Array, Array]:
    """Residual (1,), Jacobian (1, 6) and weight (1,) of the lowest hull vertex on the table."""
    i = int(np.argmin(contact.hull @ pose[2, :3]))
    x, y, z = (pose[:3, :3] @ contact.hull[i]).tolist()
    residual = contact.height - (z + float(pose[2, 3]))
    inside = max(0.0, 1 - (residual / contact.cutoff) ** 2) ** 2
    jacobian = np.array([[0.0, 0.0, 1.0, y, -x, 0.0]])  # the cross product of lever and z
    return np.array([residual]), jacobian, np.array([inside / contact.sigma**2])


def rest_system(pose: Array, rest: RestPrior) -> tuple[Array, Array, Array]:
    """Residuals (3,), Jacobian (3, 6), weights (3,) of height and tilt in the resting pose."""
    up = pose[:3, :3] @ rest.up
    residual = np.array([rest.height - pose[2, 3], -up[0], -up[1]])
    jacobian = np.zeros((3, 6))
    jacobian[0, 2] = 1.0
    x, y, z = up.tolist()
    jacobian[1, 4:], jacobian[2, 3], jacobian[2, 5] = (z, -y), -z, x
    weight = 1 / np.array([rest.sigma_height, rest.sigma_tilt, rest.sigma_tilt]) ** 2
    return residual, jacobian, weight
