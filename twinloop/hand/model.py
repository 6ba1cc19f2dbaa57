"""The robot as data: one YAML of joints, shapes and gains, forward kinematics and Jacobians.

A model is a tree of links joined by prismatic or revolute joints. At joint value zero every link
frame is parallel to the base frame, so a joint is an origin, an axis and a range; nothing else is
needed for the kinematics (product of elementary motions along the tree).
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import yaml
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from twinloop.errors import InputError

FloatArray = NDArray[np.float64]
Vector3 = tuple[float, float, float]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]

DATA_FILES = ("models/*.yaml",)

MODELS = Path(__file__).parent / "models"


class _Strict(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, populate_by_name=True
    )


class Joint(_Strict):
    """One degree of freedom; units m, N, kg (prismatic) or rad, N m, kg m2 (revolute)."""

    name: str
    type: Literal["prismatic", "revolute"]
    parent: str = Field(description="parent link")
    link: str = Field(description="child link, moved by the joint")
    axis: Vector3 = Field(description="unit axis in the parent's frame")
    origin: Vector3 = Field(description="m, joint origin in the parent's frame")
    lower: float
    upper: float
    stiffness: Positive = Field(description="N/m or N m/rad")
    damping: NotNegative = Field(description="controller damping, N s/m or N m s/rad")
    effort: Positive = Field(description="largest effort, N or N m")
    velocity: Positive = Field(description="largest speed, m/s or rad/s")
    coulomb: NotNegative = Field(description="dry friction of the joint, N or N m")
    viscous: NotNegative = Field(description="viscous friction of the joint, N s/m or N m s/rad")
    armature: NotNegative = Field(description="reflected rotor inertia, kg or kg m2")

    @model_validator(mode="after")
    def _check(self) -> Joint:
        if abs(np.linalg.norm(self.axis) - 1.0) > 1e-9:
            raise ValueError(f"joint {self.name}: axis {self.axis} must have length 1")
        if self.lower >= self.upper:
            raise ValueError(
                f"joint {self.name}: lower {self.lower} must be below upper {self.upper}"
            )
        return self


class Geom(_Strict):
    """A primitive solid fixed to a link (link frame, m, kg); shape ``none`` is a point mass."""

    link: str
    shape: Literal["capsule", "sphere", "box", "none"]
    mass: Positive
    start: Vector3 = Field(default=(0.0, 0.0, 0.0), alias="from", description="m, capsule start")
    to: Vector3 = Field(default=(0.0, 0.0, 0.0), description="m, capsule end")
    centre: Vector3 = Field(default=(0.0, 0.0, 0.0), description="m, sphere or box centre")
    size: Vector3 = Field(default=(0.0, 0.0, 0.0), description="m, box half sizes")
    radius: NotNegative = Field(default=0.0, description="m, capsule or sphere radius")
    colour: Vector3 = Field(default=(0.5, 0.5, 0.5), description="RGB, 0..1")


class Tip(_Strict):
    """The centre of a fingertip's contact sphere."""

    name: str
    link: str
    position: Vector3 = Field(description="m, in the link's frame")


class _Description(_Strict):
    name: str
    tip_radius: Positive = Field(description="m")
    tip_friction: Positive = Field(description="Coulomb coefficient of the pads")
    defaults: dict[str, Any] = Field(default_factory=dict, description="YAML anchors only")
    joints: tuple[Joint, ...]
    geoms: tuple[Geom, ...]
    tips: tuple[Tip, ...]
    postures: dict[str, dict[str, float]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check_tree(self) -> _Description:
        known = {self.joints[0].parent} if self.joints else set()
        for joint in self.joints:
            if joint.parent not in known:
                raise ValueError(
                    f"joint {joint.name}: parent link {joint.parent!r} is not of an earlier joint"
                )
            if joint.link in known:
                raise ValueError(f"joint {joint.name}: link {joint.link!r} is defined twice")
            known.add(joint.link)
        for kind, link in [("geom", g.link) for g in self.geoms] + [
            ("tip", t.link) for t in self.tips
        ]:
            if link not in known:
                raise ValueError(f"{kind}: unknown link {link!r}; known: {sorted(known)}")
        joints = {joint.name: joint for joint in self.joints}
        for name, posture in self.postures.items():
            for key, value in posture.items():
                if key not in joints or not joints[key].lower <= value <= joints[key].upper:
                    raise ValueError(
                        f"posture {name}: {key}={value} is no joint or beyond its limits"
                    )
        return self


def _rotations(axis: FloatArray, angle: FloatArray) -> FloatArray:
    """Rotation matrices (..., 3, 3) about unit ``axis`` (3,) by ``angle`` (...,) rad."""
    x, y, z = axis
    k = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    s, c = np.sin(angle)[..., None, None], np.cos(angle)[..., None, None]
    return np.asarray(np.eye(3) + s * k + (1.0 - c) * (k @ k))


class RobotModel:
    """Kinematics, limits and gains of a robot, all from one YAML (see ``models/twinhand.yaml``).

    Joint vectors are ordered as ``joint_names``: arm joints first, then fingers. All methods
    accept a joint vector ``q`` (..., n) with leading batch dimensions and an optional ``base``
    (4, 4), the pose ``T_world_base`` (default identity).
    """

    def __init__(self, description: _Description) -> None:
        self.description = description
        self.name = description.name
        self.joints = description.joints
        self.geoms = description.geoms
        self.tip_radius = description.tip_radius
        self.tip_friction = description.tip_friction
        self.joint_names: tuple[str, ...] = tuple(joint.name for joint in self.joints)
        self.tips: tuple[str, ...] = tuple(tip.name for tip in description.tips)
        self.base_link = self.joints[0].parent

    @classmethod
    def load(cls, source: str | Path) -> RobotModel:
        """Load a shipped model by name (``"twinhand"``) or any model by the path of its YAML.

        Raises:
            InputError: the file is missing, is not YAML, or breaks a rule (all are named).
        """
        path = Path(source)
        if path.suffix not in {".yaml", ".yml"}:
            path = MODELS / f"{source}.yaml"
        if not path.is_file():
            known = sorted(p.stem for p in MODELS.glob("*.yaml"))
            raise InputError(
                f"robot model {str(source)!r}: {path} does not exist; "
                f"use one of {known} or give the path of a YAML file"
            )
        try:
            # libyaml's safe loader is ten times as fast as the one in Python.
            raw = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
            return cls(_Description.model_validate(raw))
        except (yaml.YAMLError, ValidationError) as error:
            raise InputError(f"robot model {path}: {error}") from error

    @property
    def dof(self) -> int:
        """Number of joints."""
        return len(self.joints)

    @cached_property
    def joint_limits(self) -> FloatArray:
        """(n, 2) lower and upper limits, m or rad."""
        return np.array([(joint.lower, joint.upper) for joint in self.joints])

    @cached_property
    def gains(self) -> FloatArray:
        """(n, 2) stiffness and damping: N/m and N s/m, or N m/rad and N m s/rad."""
        return np.array([(joint.stiffness, joint.damping) for joint in self.joints])

    @cached_property
    def effort_limits(self) -> FloatArray:
        """(n,) largest effort, N or N m."""
        return np.array([joint.effort for joint in self.joints])

    @cached_property
    def joint_friction(self) -> FloatArray:
        """(n, 2) nominal Coulomb and viscous friction (the datasheet's; a real joint differs)."""
        return np.array([(joint.coulomb, joint.viscous) for joint in self.joints])

    @cached_property
    def prismatic(self) -> NDArray[np.bool_]:
        """(n,) true for prismatic joints."""
        return np.array([joint.type == "prismatic" for joint in self.joints])

    @cached_property
    def _chains(self) -> dict[str, tuple[int, ...]]:
        """Link name -> indices of the joints that move it, base first."""
        chains: dict[str, tuple[int, ...]] = {self.base_link: ()}
        for index, joint in enumerate(self.joints):
            chains[joint.link] = (*chains[joint.parent], index)
        return chains

    def index(self, joint: str) -> int:
        """Index of a joint by name; raises InputError for an unknown name."""
        if joint not in self.joint_names:
            raise InputError(
                f"robot {self.name}: no joint {joint!r}; joints are {list(self.joint_names)}"
            )
        return self.joint_names.index(joint)

    def tip(self, name: str) -> Tip:
        """A tip by name; raises InputError for an unknown name."""
        for tip in self.description.tips:
            if tip.name == name:
                return tip
        raise InputError(f"robot {self.name}: no tip {name!r}; tips are {list(self.tips)}")

    def chain(self, link: str) -> tuple[int, ...]:
        """Indices of the joints that move ``link``, base first; InputError for an unknown link."""
        if link not in self._chains:
            raise InputError(f"robot {self.name}: no link {link!r}; links are {list(self._chains)}")
        return self._chains[link]

    def posture(self, name: str) -> FloatArray:
        """(n,) a named posture (rad); joints that it does not name, and the arm, are 0."""
        if name not in self.description.postures:
            known = sorted(self.description.postures)
            raise InputError(f"robot {self.name}: no posture {name!r}; postures are {known}")
        q = np.zeros(self.dof)
        for joint, value in self.description.postures[name].items():
            q[self.index(joint)] = value
        return q

    def check(self, q: ArrayLike) -> FloatArray:
        """``q`` as float64 (..., n); InputError on a wrong size or a value that is not finite."""
        array = np.asarray(q, dtype=np.float64)
        if array.ndim == 0 or array.shape[-1] != self.dof:
            raise InputError(
                f"robot {self.name}: joint vector has shape {array.shape}, "
                f"expected (..., {self.dof})"
            )
        if not np.all(np.isfinite(array)):
            bad = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
            raise InputError(
                f"robot {self.name}: joint value at index {bad} is {array[bad]}, expected finite"
            )
        return array

    def forward(self, q: ArrayLike, base: FloatArray | None = None) -> dict[str, FloatArray]:
        """Link poses.

        Args:
            q: joint values (..., n), m and rad.
            base: ``T_world_base`` (4, 4); identity if None.

        Returns:
            Link name -> ``T_world_link`` (..., 4, 4).
        """
        values = self.check(q)
        root = np.eye(4) if base is None else np.asarray(base, dtype=np.float64)
        poses = {self.base_link: np.broadcast_to(root, (*values.shape[:-1], 4, 4))}
        for index, joint in enumerate(self.joints):
            axis, value = np.array(joint.axis), values[..., index]
            local = np.broadcast_to(np.eye(4), (*values.shape[:-1], 4, 4)).copy()
            local[..., :3, 3] = joint.origin
            if joint.type == "prismatic":
                local[..., :3, 3] += value[..., None] * axis
            else:
                local[..., :3, :3] = _rotations(axis, value)
            poses[joint.link] = poses[joint.parent] @ local
        return poses

    def tip_positions(self, q: ArrayLike, base: FloatArray | None = None) -> FloatArray:
        """Centres of the fingertip spheres (..., tips, 3) in the world, m, ordered as ``tips``."""
        poses = self.forward(q, base)
        points = [
            poses[tip.link][..., :3, :3] @ np.array(tip.position) + poses[tip.link][..., :3, 3]
            for tip in self.description.tips
        ]
        return np.stack(points, axis=-2)

    def point_jacobian(
        self, q: ArrayLike, link: str, position: ArrayLike, base: FloatArray | None = None
    ) -> FloatArray:
        """Jacobian (..., 3, n) of a point ``position`` (3,) of a link's frame: v = J dq.

        A prismatic column is the joint's world axis a, a revolute one a x (p - joint origin).
        """
        values = self.check(q)
        poses = self.forward(values, base)
        local = np.asarray(position, dtype=np.float64)
        point = poses[link][..., :3, :3] @ local + poses[link][..., :3, 3]
        jacobian = np.zeros((*values.shape[:-1], 3, self.dof))
        for index in self.chain(link):
            joint = self.joints[index]
            # The axis is the same in parent and child: the joint's motion leaves it fixed.
            axis = poses[joint.link][..., :3, :3] @ np.array(joint.axis)
            if joint.type == "prismatic":
                jacobian[..., :, index] = axis
            else:
                jacobian[..., :, index] = np.cross(axis, point - poses[joint.link][..., :3, 3])
        return jacobian

    def jacobian(self, q: ArrayLike, tip: str, base: FloatArray | None = None) -> FloatArray:
        """Jacobian (..., 3, n) of the centre of fingertip ``tip`` in the world, m per m or rad."""
        found = self.tip(tip)
        return self.point_jacobian(q, found.link, found.position, base)
