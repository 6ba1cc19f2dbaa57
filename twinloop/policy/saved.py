"""Read a trained policy back from its artifact."""

from __future__ import annotations

import numpy as np
import xarray as xr

from twinloop.geometry import se3
from twinloop.hand.kinematics import HandKinematics
from twinloop.policy.policy import GraspPolicy, Refinement
from twinloop.policy.runner import GraspRunner, Physics


def load_policy(tree: xr.DataTree, kinematics: HandKinematics) -> GraspPolicy:
    """Policy of an artifact of `train`.

    Args:
        tree: the artifact.
        kinematics: the hand it was trained for (attribute `robot`).

    Raises:
        ArtifactError: network weights are missing or of another shape.
    """
    weights, root = tree.children["network"].to_dataset(), tree.to_dataset()
    arrays = {str(name): np.asarray(weights[name].values) for name in weights.data_vars}
    quantity = [float(value) for value in root["physics"].values]
    return GraspPolicy(
        network=GraspRunner(arrays),
        points=np.asarray(tree["points"].values, dtype=np.float64),
        T_object_wrist=se3.from_position_quaternion(
            root["position_object_wrist"].values, root["quaternion_object_wrist"].values
        ),
        physics=Physics(*quantity),
        refinement=Refinement(*map(float, root["refinement"].values)),
        kinematics=kinematics,
    )
