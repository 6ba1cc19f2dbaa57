"""Fixed-interval smoothing of a linear chain of 12-dimensional states, and what its noises were.

Forward: Kalman filter. Backward: the modified Bryson-Frazier recursion, which inverts nothing but
innovation covariances, so that a process noise of zero, a gap without measurements and a direction
of huge variance all stay well conditioned where the information form loses every digit.

Source: Bierman, "Fixed interval smoothing with discrete measurements", Int. J. Control 18 (1973);
the smoothed disturbances: de Jong, "Smoothing and interpolation with the state-space model", JASA
84 (1989), and Koopman, Biometrika 80 (1993).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
STATE = 12


@dataclass(frozen=True)
class Chain:
    """States x of n nodes: x[k + 1] = transition[k] x[k] + offset[k] + u[k], u ~ N(0, process[k]).

    transition, process: (n - 1, 12, 12); offset: (n - 1, 12). Every node with `seen` (n,) bool has
    a measurement (n, 12) of its whole state with a covariance `noise` (n, 12, 12); the first node
    must be seen, and its measurement is all that is known of it beforehand.
    """

    transition: Array
    offset: Array
    process: Array
    measurement: Array
    noise: Array
    seen: NDArray[np.bool_]


@dataclass(frozen=True)
class Smoothed:
    """Given all measurements, of every node and every step between two.

    state: (n, 12), covariance: (n, 12, 12). pull: (n - 1, 12) and grip (n - 1, 12, 12): the
    disturbance u[k] has mean process[k] pull[k] and covariance process[k] - process[k] grip[k]
    process[k]. alone, alone_information: (n, 12), (n, 12, 12), zero where not seen: with D =
    alone_information, a part p of the measurement differs from what all other measurements say by
    D_pp^-1 alone_p, which has the covariance D_pp^-1.
    """

    state: Array
    covariance: Array
    pull: Array
    grip: Array
    alone: Array
    alone_information: Array


def smooth_chain(chain: Chain) -> Smoothed:
    """Means and covariances of all states and disturbances of a chain; linear in its length."""
    n = len(chain.seen)
    x, P = np.zeros((n, STATE)), np.zeros((n, STATE, STATE))
    gain = np.zeros((n, STATE, STATE))  # K^T = S^-1 P-, zero where not seen
    inverse = np.zeros((n, STATE, STATE))  # S^-1
    innovation = np.zeros((n, STATE))
    x[0], P[0] = chain.measurement[0], chain.noise[0]
    gain[0] = np.eye(STATE)  # the limit of a prior that knows nothing
    for k in range(1, n):
        F = chain.transition[k - 1]
        state = F @ x[k - 1] + chain.offset[k - 1]
        before = F @ P[k - 1] @ F.T + chain.process[k - 1]
        if chain.seen[k]:
            inv = np.linalg.inv(before + chain.noise[k])
            inv = 0.5 * (inv + inv.T)
            kt = inv @ before
            y = chain.measurement[k] - state
            state = state + y @ kt
            before = before - before @ kt
            gain[k], inverse[k], innovation[k] = kt, inv, y
        x[k], P[k] = state, 0.5 * (before + before.T)
    push, grip = np.zeros((n, STATE)), np.zeros((n, STATE, STATE))  # after each node's measurement
    pull, hold = np.zeros((n - 1, STATE)), np.zeros((n - 1, STATE, STATE))
    lam, Lam = np.zeros(STATE), np.zeros((STATE, STATE))
    for k in range(n - 1, 0, -1):
        push[k], grip[k] = lam, Lam
        if chain.seen[k]:
            rest = -gain[k].copy()
            rest.flat[:: STATE + 1] += 1.0  # A^T = I - K^T
            lam = rest @ lam - inverse[k] @ innovation[k]
            Lam = inverse[k] + rest @ Lam @ rest.T
        pull[k - 1], hold[k - 1] = -lam, Lam
        F = chain.transition[k - 1]
        lam = F.T @ lam
        Lam = F.T @ Lam @ F
        Lam = 0.5 * (Lam + Lam.T)
    push[0], grip[0] = lam, Lam
    state = x - np.einsum("nij,nj->ni", P, push)
    covariance = P - P @ grip @ P
    alone = np.einsum("nij,nj->ni", inverse, innovation) + np.einsum("nij,nj->ni", gain, push)
    information = inverse + gain @ grip @ np.swapaxes(gain, 1, 2)
    return Smoothed(
        state, 0.5 * (covariance + np.swapaxes(covariance, 1, 2)), pull, hold, alone, information
    )
