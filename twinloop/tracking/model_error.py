"""How wrong poses are because the model is: judged on scan frames, whose poses are known.

A scan frame is fitted like a push frame, against pictures of the twin. Errors of mesh, Gaussians
and calibration show there as they will in a push.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinloop.tracking.fitter import Fitter, table_knowledge
from twinloop.tracking.frame import CameraFrame, Frame
from twinloop.tracking.initialise import first_modes
from twinloop.tracking.model import ObjectModel
from twinloop.tracking.priors import motion
from twinloop.tracking.settings import Settings
from twinloop.tracking.sight import Eye, colours_at

Array = NDArray[np.float64]


BY_OUTLINE = 2.0
"""An outline was carved from the very frames that it is judged on; other views show more error."""


@dataclass(frozen=True)
class ModelError:
    """Root mean square pose errors of the model alone.

    across: m, in each direction across the line of sight; along: part of the range, along it;
    rotation: rad, about each axis; views: scan frames behind the figures.
    """

    across: float
    along: float
    rotation: float
    views: int


def model_error(
    model: ObjectModel, views: Sequence[CameraFrame], pose: Array, settings: Settings
) -> ModelError:
    """Fit the resting object at `pose` (T_world_object of the scan) in each of the scan's views.

    The table is known, as at the start of a clip. Medians of squares are used, because a frame that
    fails altogether would be noticed in a push, too. No view that shows the object gives zeros.
    """
    rows = []
    for view in views:
        frame = Frame(0.0, (view,))
        modes = first_modes(model, frame, pose, plane=True)
        eye = Eye(colours=colours_at(model, view, pose))
        if eye.colours is None:
            continue
        fitter = Fitter(model, modes, settings, [eye], table_knowledge(model, settings))
        found = pose
        attempt = None
        for _ in range(2):
            attempt = fitter.attempt(frame, found)
            if attempt is None:
                break
            found = attempt.pose
        if attempt is None or attempt.used < 12:
            continue
        error = motion(pose, found)
        sight = pose[:3, 3] - np.linalg.inv(view.camera.T_camera_world)[:3, 3]
        distance = float(np.linalg.norm(sight))
        sight /= distance
        along = float(error[:3] @ sight)
        across = float(np.sum((error[:3] - along * sight) ** 2)) / 2
        more = 1.0 if modes.texture else BY_OUTLINE**2
        turn = float(np.sum(error[3:] ** 2)) / 3
        rows.append((more * across, (along / distance) ** 2, more * turn))
    if not rows:
        return ModelError(0.0, 0.0, 0.0, 0)
    # The median of a chi square with a few freedoms is some 0.7 of its mean.
    middle = np.median(np.array(rows), axis=0) / 0.7
    across, along, rotation = (float(v) for v in np.sqrt(middle))
    return ModelError(across, along, rotation, len(rows))
