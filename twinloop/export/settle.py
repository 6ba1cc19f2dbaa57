"""Load the exported twin in MuJoCo, compare its mass properties, and let it settle."""

from __future__ import annotations

from pathlib import Path

import mujoco
import numpy as np

from twinloop.errors import ArtifactError
from twinloop.export.properties import Properties
from twinloop.geometry import quaternion


def settle(scene: Path, name: str, properties: Properties, duration: float) -> float:
    """Return how far the body's origin moves [m] in ``duration`` seconds on a table.

    Args:
        scene: Exported scene.xml.
        name: Name of the object's body.
        properties: What the model's mass, centre of mass and inertia must equal.
        duration: Simulated time [s].

    Raises:
        ArtifactError: The model does not load, or its mass properties are not the twin's.
    """
    try:
        model = mujoco.MjModel.from_xml_path(str(scene))
    except ValueError as error:
        raise ArtifactError(f"{scene.name}: MuJoCo refuses the exported twin: {error}") from error
    body = model.body(name).id
    rotation = quaternion.to_matrix(model.body_iquat[body])
    inertia = rotation @ np.diag(model.body_inertia[body]) @ rotation.T
    pairs = (
        ("mass [kg]", model.body_mass[body], properties.mass),
        ("centre of mass [m]", model.body_ipos[body], properties.com),
        ("inertia [kg m^2]", inertia, properties.inertia),
    )
    for what, loaded, wanted in pairs:
        scale = float(np.max(np.abs(wanted))) or 1.0
        if not np.allclose(loaded, wanted, rtol=0, atol=1e-6 * scale):
            raise ArtifactError(f"{scene.name}: {what} is {loaded} in MuJoCo, expected {wanted}.")
    data = mujoco.MjData(model)
    start = data.qpos[:3].copy()
    while data.time < duration:
        mujoco.mj_step(model, data)
    return float(np.linalg.norm(data.qpos[:3] - start))
