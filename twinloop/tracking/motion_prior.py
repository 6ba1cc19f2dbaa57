"""How a pushed object moves: white-noise acceleration whose strength, like rest, is found out.

The state of a node is its pose and its velocity (m/s of the origin, rad/s; world axes). Its error
is (d, w, dv, dw): the left perturbation of the solver, then the velocity's, all in world axes.
Source of the noise: Bar-Shalom, Li and Kirubarajan, Estimation with Applications to Tracking and
Navigation (2001), 6.2.2; of the scales: a Student-t process as a Gaussian of unknown scale, by
expectation maximisation (Lange, Little and Taylor, JASA 84, 1989).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinloop.geometry import quaternion, se3
from twinloop.tracking.fixed_interval import Smoothed

Array = NDArray[np.float64]
_PLACE = (np.array([0, 1, 2, 6, 7, 8]), np.array([3, 4, 5, 9, 10, 11]))


@dataclass(frozen=True)
class Motion:
    """Nodes of a trajectory: position (n, 3) m, rotation (n, 3, 3), velocity (n, 6) m/s, rad/s."""

    position: Array
    rotation: Array
    velocity: Array

    def moved(self, error: Array) -> Motion:
        """The nodes moved by errors (n, 12)."""
        turn = quaternion.from_rotvec(error[:, 3:6])
        now = quaternion.multiply(turn, quaternion.from_matrix(self.rotation))
        return Motion(
            self.position + error[:, :3],
            quaternion.to_matrix(quaternion.normalize(now)),
            self.velocity + error[:, 6:],
        )


def rotation_difference(a: Array, b: Array) -> Array:
    """Rotation vectors (n, 3) w, rad, with a = exp(w) b for matrices (n, 3, 3)."""
    return quaternion.to_rotvec(quaternion.from_matrix(a @ np.swapaxes(b, 1, 2)))


def linearise(motion: Motion, step: Array) -> tuple[Array, Array]:
    """Transitions (n - 1, 12, 12) of the errors over steps (n - 1,) s, and their offsets.

    The offsets (n - 1, 12) are what constant velocity predicts of each node less where it is.
    """
    dt = step[:, None]
    turn = dt * motion.velocity[:-1, 3:]
    spin = quaternion.to_matrix(quaternion.from_rotvec(turn))
    # The derivative of log(R[k+1] R[k]^T exp(-turn)) at its value, not at zero: an object turned
    # about its own axis at all nodes then moves as before, so that an unseen yaw stays unseen.
    ahead = motion.rotation[1:] @ np.swapaxes(motion.rotation[:-1], 1, 2)
    F = np.tile(np.eye(12), (len(step), 1, 1))
    F[:, :3, 6:9] = step[:, None, None] * np.eye(3)
    F[:, 3:6, 3:6] = ahead
    F[:, 3:6, 9:12] = (
        step[:, None, None] * ahead @ np.swapaxes(spin, 1, 2) @ se3.left_jacobian(turn)
    )
    offset = np.concatenate(
        [
            motion.position[:-1] + dt * motion.velocity[:-1, :3] - motion.position[1:],
            rotation_difference(spin @ motion.rotation[:-1], motion.rotation[1:]),
            motion.velocity[:-1] - motion.velocity[1:],
        ],
        axis=1,
    )
    return F, offset


def unit_noise(step: Array) -> Array:
    """Covariances (n - 1, 12, 12) of white acceleration of unit density over steps (n - 1,) s."""
    axis = np.stack([step**3 / 3, step**2 / 2, step**2 / 2, step], axis=1).reshape(-1, 2, 2)
    noise: Array = np.einsum("nab,ij->naibj", axis, np.eye(6)).reshape(-1, 12, 12)
    return noise


def spread(density: Array) -> Array:
    """Factors (n - 1, 12) of the state's parts for densities (n - 1, 2) of shift and turn."""
    return np.repeat(np.concatenate([density, density], axis=1), 3, axis=1)


def expected_action(smoothed: Smoothed, unit: Array, density: Array) -> Array:
    """Expected squares (n - 1, 2) of shift's and turn's disturbances, in units of `unit` (6 dof).

    unit: (n - 1, 12, 12) of `unit_noise`; density: (n - 1, 2), which `smoothed` was made with.
    """
    out = np.zeros_like(density)
    for column, part in enumerate(_PLACE):
        u = unit[:, part[:, None], part]
        pull = smoothed.pull[:, part]
        grip = smoothed.grip[:, part[:, None], part]
        q = density[:, column]
        found = np.einsum("ni,nij,nj->n", pull, u, pull) - np.einsum("nij,nji->n", u, grip)
        out[:, column] = np.maximum(6.0 * q + q**2 * found, 0.0)
    return out
