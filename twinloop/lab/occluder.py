"""A forearm that reaches between the camera and the object for a moment, as people do at a bench.

It touches nothing: a body of the drawn scene alone, moved from outside the physics.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import mujoco
import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from twinloop.geometry import quaternion
from twinloop.lab.assets import VISUAL, add_texture
from twinloop.lab.texture import clouds

FloatArray = NDArray[np.float64]

NAME = "occluder"
_LEAN = 0.2
"""rad between the arm and the image's vertical."""


class OccluderSettings(BaseModel):
    """The arm and its sweep. Its width is that of the object as the camera sees it, times `width`.

    In the middle of the sweep the arm stands still at most `aside` half widths of the object beside
    the object's middle, so that it hides all of it, or a part.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    reach: Annotated[
        float, Field(gt=0.2, lt=0.8, description="how far from camera to object the arm is, share")
    ] = 0.55
    width: Annotated[float, Field(gt=0.2, lt=3, description="of the arm / of the object")] = 1.2
    aside: Annotated[float, Field(ge=0, lt=2, description="half widths of the object")] = 0.7
    dwell: Annotated[float, Field(gt=0, lt=5, description="s in front of the object")] = 0.25
    travel: Annotated[float, Field(gt=0.05, lt=5, description="s from out of view to there")] = 0.3


@dataclass(frozen=True)
class Sweep:
    """The arm's motion: along the camera's x axis, in from one side and out on the other.

    middle: (3,) m world, where the arm dwells; side: (3,) m, from there to out of view; wxyz: (4,)
    the arm's constant attitude; moment: s, world time, of the middle; dwell, travel: s.
    """

    middle: FloatArray
    side: FloatArray
    wxyz: FloatArray
    moment: float
    dwell: float
    travel: float

    def __call__(self, time: FloatArray) -> FloatArray:
        """Position and quaternion (n, 7) of the body at world times (n,)."""
        late = np.asarray(time) - self.moment
        share = np.clip((np.abs(late) - 0.5 * self.dwell) / self.travel, 0.0, 1.0)
        # Smooth at both ends; while it dwells the arm still drifts, as nobody holds it quite still.
        away = share * share * (3.0 - 2.0 * share) + 0.01 * np.clip(np.abs(late) / self.dwell, 0, 1)
        position = self.middle + (np.sign(late) * away)[:, None] * self.side
        return np.concatenate([position, np.tile(self.wxyz, (len(position), 1))], axis=1)


def half_width(size: FloatArray) -> float:
    """Half of the object's width (m) across the arm, for its bounding box (3,) m."""
    return 0.5 * float(np.hypot(*size[:2]) + np.sin(_LEAN) * size[2])


def add_occluder(spec: Any, settings: OccluderSettings, size: FloatArray, seed: int) -> None:
    """Add the arm in its sleeve as the body ``occluder``, for an object of ``size`` (3,) m.

    Its frame: z along the arm towards the hand, origin at its middle.
    """
    radius = settings.width * settings.reach * half_width(size)
    half = 4.0 * radius + settings.reach * float(size[2])
    body = spec.worldbody.add_body(name=NAME, mocap=True)
    weave = 128 + 14 * clouds(np.random.default_rng([seed, 0x0CC1]), 128, 128, 5.0)
    cloth = np.clip(weave[..., None] * np.array([0.35, 0.45, 0.8]), 0, 255).astype(np.uint8)
    sleeve = add_texture(spec, "sleeve", cloth)
    for start, end, look in ((-half, 0.6 * half, sleeve), (0.0, half, None)):
        thin = 1.0 if look else 0.93
        geom = body.add_geom(type=mujoco.mjtGeom.mjGEOM_CAPSULE)
        geom.fromto = [0.0, 0.0, start, 0.0, 0.0, end]
        geom.size = [thin * radius, 0.0, 0.0]
        geom.contype, geom.conaffinity, geom.group, geom.mass = 0, 0, VISUAL, 0.0
        if look:
            geom.material = look
        else:
            geom.rgba = [0.78, 0.58, 0.47, 1.0]


def sweep_past(
    target: FloatArray,
    size: FloatArray,
    T_world_camera: FloatArray,
    view: float,
    settings: OccluderSettings,
    moment: float,
    rng: np.random.Generator,
) -> Sweep:
    """The sweep that hides ``target``.

    Args:
        target: (3,) m world, middle of the object at the moment.
        size: (3,) m, the object's bounding box.
        T_world_camera: (4, 4) of the static camera.
        view: half of the picture's width at unit depth (tangent of half the angle of view).
        settings: the arm.
        moment: s, world time, at which the arm is in front of the object.
        rng: source of side and aim.
    """
    eye, right, down, forward = (T_world_camera[:3, i] for i in (3, 0, 1, 2))
    wide = half_width(size)
    aim = target + right * (wide * settings.aside * rng.uniform(-1.0, 1.0))
    middle = eye + settings.reach * (aim - eye)
    depth = float(forward @ (middle - eye))
    radius = settings.width * settings.reach * wide
    out = view * depth * 1.2 + 1.5 * radius + 4.0 * radius * np.sin(_LEAN)
    lean = _LEAN * rng.uniform(-1.0, 1.0)
    along = np.cos(lean) * -down + np.sin(lean) * right
    across = np.cos(lean) * right + np.sin(lean) * down
    rotation = np.stack([across, np.cross(along, across), along], axis=1)
    side = right * (out if rng.random() < 0.5 else -out)
    return Sweep(
        middle, side, quaternion.from_matrix(rotation), moment, settings.dwell, settings.travel
    )
