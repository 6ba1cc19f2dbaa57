"""Where a clip starts, and what one frame of it hands to the next."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from twinloop.tracking.solver import Solution

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Start:
    """The pose at the start of a clip.

    `sure` is False when another pose fits nearly as well; `method` says what found it: "given",
    "sift", "hint", "search" or "outline"; `resting` whether the object stands as in the scan;
    `proven` is False when nothing but a poor outline speaks for it: another mesh may be meant.
    """

    solution: Solution
    sure: bool
    method: str
    resting: bool
    proven: bool = True


@dataclass
class State:
    """What one frame hands to the next.

    lost: frames since the object was last seen; doubtful: another pose explains the frames as well;
    checked: frames since that was last asked; usual: merit of frames in which it was seen whole, 0
    before; confirmed: whether the object has been sure since it was last found.
    """

    pose: Array
    time: float
    covariance: Array
    velocity: Array = field(default_factory=lambda: np.zeros(6))
    lost: int = 0
    doubtful: bool = False
    checked: int = 0
    usual: float = 0.0
    confirmed: bool = False
