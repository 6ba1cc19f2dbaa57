"""How wrong poses are because the model is: judged on scan frames, whose poses are known.

A scan frame is tracked like a push frame, with only those references that see the object from
elsewhere. Mesh, calibration and lighting errors show there as they will in a push.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinloop.tracking.fit import fit_pose
from twinloop.tracking.initialise import rest_prior, resting_pose
from twinloop.tracking.model import ObjectModel
from twinloop.tracking.solver import WorldCamera, rotation_log

Array = NDArray[np.float64]


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
    model: ObjectModel, *, features: int, sigma: float, views: int = 6, apart: float = 0.25
) -> ModelError:
    """Track `views` scan frames with references at least `apart` rad away from them.

    The object rests, and the prior of that is used as at the start of a clip. Medians of squares
    are used, because a frame that fails altogether would be noticed in a push, too. Zero views give
    zero errors.
    """
    rest_pose = resting_pose(model, 0.0, 0.0, 0.0)
    rest = rest_prior(model, 0.001, 0.006)
    directions = np.array([r.direction for r in model.references])
    chosen = np.unique(np.linspace(0, len(directions) - 1, views).round().astype(int))
    rows = []
    for i in chosen:
        reference = model.references[i]
        others = [
            model.references[k] for k in np.flatnonzero(directions @ directions[i] < np.cos(apart))
        ]
        h, w = reference.image.shape
        T_camera_world = reference.T_camera_object @ np.linalg.inv(rest_pose)
        camera = WorldCamera(reference.intrinsics, T_camera_world, w, h)
        fit = fit_pose(
            model,
            camera,
            reference.image,
            rest_pose,
            [(others, sigma)],
            features=features,
            rest=rest,
            rounds=2,
        )
        if fit.solution is None or fit.inliers < 12 or fit.ratio < 0.2:
            continue
        found = fit.solution.pose
        shift = found[:3, 3] - rest_pose[:3, 3]
        sight = rest_pose[:3, 3] - np.linalg.inv(T_camera_world)[:3, 3]
        distance = float(np.linalg.norm(sight))
        sight /= distance
        along = float(shift @ sight)
        across = float(np.sum((shift - along * sight) ** 2)) / 2
        turn = float(np.sum(rotation_log(found[:3, :3] @ rest_pose[:3, :3].T) ** 2)) / 3
        rows.append((across, (along / distance) ** 2, turn))
    if not rows:
        return ModelError(0.0, 0.0, 0.0, 0)
    # The median of a chi square with a few freedoms is some 0.7 of its mean.
    middle = np.median(np.array(rows), axis=0) / 0.7
    across, along, rotation = (float(v) for v in np.sqrt(middle))
    return ModelError(across, along, rotation, len(rows))
