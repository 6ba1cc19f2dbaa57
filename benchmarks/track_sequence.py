"""What a tracking benchmark runs on: frames, a model, and all that is known of the truth."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from twinloop.geometry.symmetry import Axis
from twinloop.tracking.frame import Frame

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Sequence:
    """One clip of one object.

    name: of object and clip; vertices (v, 3) m and faces (f, 3): the model's mesh in the object
    frame; appearance: folder with `ingest.zarr` and `reconstruct.zarr` of the twin, or None where
    the mesh is all there is; frames: gives the frames from the first on, as often as it is called;
    count: their number; table: whether the world's plane z = 0 is the table; start: (4, 4)
    T_world_object of the first frame that the tracker may use, or None; truth: (n, 4, 4)
    T_world_object of the same object frame, NaN where unknown, or None; occluded: (n,) hidden share
    of the object, NaN where unknown; symmetries: (s, 4, 4) motions of the object that change
    nothing to be seen, the identity first; axis: about which every turn looks the same, or None;
    times: (n,) s of the truth; textured: whether the object has a print.
    """

    name: str
    vertices: Array
    faces: NDArray[np.int64]
    appearance: Path | None
    frames: Callable[[], Iterator[Frame]]
    count: int
    table: bool
    start: Array | None
    truth: Array | None
    occluded: Array
    symmetries: Array = field(default_factory=lambda: np.eye(4)[None])
    axis: Axis | None = None
    times: Array | None = None
    textured: bool = True
