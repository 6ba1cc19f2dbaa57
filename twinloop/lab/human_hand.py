"""A human-like right hand of bones with fixed lengths: 21 keypoints in MediaPipe's order.

Order: wrist; thumb CMC, MCP, IP, tip; then MCP, PIP, DIP, tip of index, middle, ring, little.
Hand frame: wrist at the origin, fingers along -z, palm looks to +x, thumb side -y (a right hand).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

THUMB, INDEX, MIDDLE, RING, LITTLE = range(5)
ROOTS = np.array(
    [
        [0.030, -0.030, -0.036],
        [0.000, -0.033, -0.086],
        [0.000, -0.011, -0.088],
        [0.000, 0.011, -0.083],
        [0.000, 0.031, -0.075],
    ]
)
"""Thumb CMC and the four MCPs (5, 3) m."""
BONES = np.array(
    [
        [0.047, 0.036, 0.030],
        [0.043, 0.026, 0.022],
        [0.047, 0.030, 0.023],
        [0.043, 0.028, 0.023],
        [0.034, 0.021, 0.020],
    ]
)
"""Bone lengths (5, 3) m from root to tip."""
EDGES = (
    *((0, 1), (1, 2), (2, 3), (3, 4)),
    *((0, 5), (5, 6), (6, 7), (7, 8)),
    *((0, 9), (9, 10), (10, 11), (11, 12)),
    *((0, 13), (13, 14), (14, 15), (15, 16)),
    *((0, 17), (17, 18), (18, 19), (19, 20)),
    *((1, 5), (5, 9), (9, 13), (13, 17)),
)
"""Pairs of keypoints that a bone (or the palm's edge) joins."""
MOST_BENT = 1.9
"""rad, largest bend of a finger joint."""
PAD = 0.009
"""m from a tip keypoint to the skin that touches."""


def chain_reach(bones: FloatArray, curl: float) -> FloatArray:
    """Joint positions (4, 2) of a planar chain whose two joints bend by ``curl`` rad each."""
    angles = np.array([0.0, curl, 2.0 * curl])
    steps = bones[:, None] * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    return np.concatenate([np.zeros((1, 2)), np.cumsum(steps, axis=0)])


def bend_to(
    root: FloatArray, tip: FloatArray, bones: FloatArray, outward: FloatArray
) -> FloatArray:
    """Keypoints (4, 3) of a finger from ``root`` to ``tip``, knuckles bulging towards ``outward``.

    Both joints bend equally by c, so |tip - root|^2 = a^2 + b^2 + d^2 + 2 (a b + b d) cos c +
    2 a d cos 2c for bones a, b, d: a quadratic in cos c. A tip out of reach is approached with the
    finger straight (or fully bent).
    """
    line = tip - root
    distance = float(np.linalg.norm(line))
    first, middle, last = bones
    square = 4.0 * first * last
    linear = 2.0 * middle * (first + last)
    constant = float(bones @ bones) - 2.0 * first * last - distance**2
    root_of = np.sqrt(max(linear**2 - 4.0 * square * constant, 0.0))
    cosine = np.clip((root_of - linear) / (2.0 * square), np.cos(MOST_BENT), 1.0)
    flat = chain_reach(bones, float(np.arccos(cosine)))
    end = flat[-1] / np.linalg.norm(flat[-1])
    along = flat @ end
    bulge = flat[:, 0] * -end[1] + flat[:, 1] * end[0]
    forward = line / distance
    normal = outward - (outward @ forward) * forward
    normal = normal / np.linalg.norm(normal)
    # The chain curls to the left of its own line, so its knuckles lie to the right: bulge <= 0.
    return np.asarray(root + along[:, None] * forward - bulge[:, None] * normal)


def hand_keypoints(tips: FloatArray) -> FloatArray:
    """Keypoints (21, 3) m in the hand frame for tip keypoints ``tips`` (5, 3), thumb first."""
    points = [np.zeros((1, 3))]
    for finger in range(5):
        outward = np.array([1.0, -0.6, 0.3]) if finger == THUMB else np.array([-1.0, 0.0, 0.0])
        points.append(bend_to(ROOTS[finger], tips[finger], BONES[finger], outward))
    return np.concatenate(points)
