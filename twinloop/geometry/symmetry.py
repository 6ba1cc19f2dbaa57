"""Rotations that bring an object onto itself: declared, listed, and undone in poses.

A pose and its product with a symmetry show the same: T_world_object S. Reflections are none, since
no motion makes them. `find_symmetry` (symmetry_search) detects them on a mesh.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from twinloop.errors import InputError
from twinloop.geometry import quaternion, se3

Array = NDArray[np.float64]
_PARALLEL = 1e-3


@dataclass(frozen=True)
class Axis:
    """A line in the object frame: `direction` (3,) of length 1, `point` (3,) on it, m."""

    direction: Array
    point: Array

    def turned(self, angle: ArrayLike) -> Array:
        """Transforms (..., 4, 4) of the object about the axis by angles (...,), rad."""
        turn = np.asarray(angle, np.float64)[..., None] * self.direction
        rotation = quaternion.to_matrix(quaternion.from_rotvec(turn))
        return se3.from_rotation_position(rotation, self.point - rotation @ self.point)


@dataclass(frozen=True)
class Symmetry:
    """The rotations that bring an object onto itself.

    discrete: (k, 4, 4) transforms in the object frame, the identity first; axes: those about which
    any angle is one. All products of a turn about an axis and a discrete transform are symmetries.
    deviation: m, mean distance of the turned surface from the surface, the worst of all (0 if
    declared).
    """

    discrete: Array = field(default_factory=lambda: np.eye(4)[None])
    axes: tuple[Axis, ...] = ()
    deviation: float = 0.0

    @property
    def none(self) -> bool:
        """Whether every pose shows something else."""
        return len(self.discrete) == 1 and not self.axes

    @property
    def ball(self) -> bool:
        """Whether any rotation about a centre is a symmetry: axes of two directions."""
        first = [np.cross(a.direction, self.axes[0].direction) for a in self.axes[1:]]
        return any(float(np.linalg.norm(c)) > _PARALLEL for c in first)

    def transforms(self, step: float = 0.01) -> Array:
        """Symmetries (s, 4, 4), the continuous ones in steps, as bop_toolkit lists them.

        Args:
            step: way of the point that is furthest from an axis (half a diameter at most), from
                one turn to the next, in diameters; BOP's max_sym_disc_step.

        Source: bop_toolkit, `misc.get_symmetry_transformations`: ceil(pi / step) turns an axis.
        """
        if not self.axes:
            return self.discrete
        count = int(np.ceil(np.pi / step))
        angles = np.arange(count) * (2.0 * np.pi / count)
        turns = np.concatenate([axis.turned(angles) for axis in self.axes])
        return np.asarray((turns @ self.discrete[:, None]).reshape(-1, 4, 4))

    def describe(self) -> str:
        """What a person should know of it, in words."""
        if self.none:
            return "no rotational symmetry"
        if self.ball:
            return "a ball: rotation unobservable"
        parts = []
        for axis in self.axes:
            x, y, z = axis.direction
            parts.append(f"rotation about axis ({x:.3f}, {y:.3f}, {z:.3f}) unobservable")
        if len(self.discrete) > 1:
            parts.append(f"{len(self.discrete)} discrete poses look the same")
        return "; ".join(parts)

    @staticmethod
    def from_bop(info: Mapping[str, Any], source: str, unit: float = 0.001) -> Symmetry:
        """The symmetry of one object of BOP's models_info.json.

        Args:
            info: the object's entry; `symmetries_discrete` (lists of 16 numbers, row by row) and
                `symmetries_continuous` (`axis`, `offset`) may be absent.
            source: file and object, for messages.
            unit: m per unit of the file's lengths (BOP: mm).

        Raises:
            InputError: entries of other shapes, transforms that are no rotations, an axis of no
                length.
        """
        found = [np.eye(4)]
        for number, flat in enumerate(_listed(info, "symmetries_discrete", source)):
            what = f"{source}: symmetries_discrete[{number}]"
            T = _numbers(flat, 16, what).reshape(4, 4)
            R = T[:3, :3]
            if np.abs(R @ R.T - np.eye(3)).max() > 1e-4 or np.linalg.det(R) < 0:
                raise InputError(
                    f"{what} has the rotation {R.tolist()}; expected a rotation matrix "
                    "(reflections are no symmetries of a pose); write 16 numbers row by row"
                )
            if (np.abs(T[3] - [0, 0, 0, 1]) > 1e-9).any():
                raise InputError(f"{what} ends in {T[3].tolist()}; expected 0, 0, 0, 1")
            found.append(se3.from_rotation_position(R, unit * T[:3, 3]))
        axes = []
        for number, entry in enumerate(_listed(info, "symmetries_continuous", source)):
            what = f"{source}: symmetries_continuous[{number}]"
            if not isinstance(entry, Mapping) or not {"axis", "offset"} <= set(entry):
                raise InputError(f"{what} is {entry!r}; expected an object with axis and offset")
            direction = _numbers(entry["axis"], 3, f"{what}.axis")
            length = float(np.linalg.norm(direction))
            if length < 1e-9:
                raise InputError(f"{what}.axis is {direction.tolist()}; expected a direction")
            point = unit * _numbers(entry["offset"], 3, f"{what}.offset")
            axes.append(Axis(direction / length, point))
        return Symmetry(np.stack(found), tuple(axes))


def nearest_equivalent(pose: Array, reference: Array, symmetry: Symmetry) -> Array:
    """The pose that shows the same as `pose` and is turned least against `reference`.

    For a track that does not jump between poses that look the same: with the pose before as the
    reference. The turn about a continuous axis is found in closed form, not in steps.

    Args:
        pose: (4, 4) T_world_object.
        reference: (4, 4) T_world_object.
        symmetry: of the object.

    Returns:
        (4, 4) `pose` S.
    """
    if symmetry.none:
        return pose
    if symmetry.ball:
        centre = symmetry.axes[0].point
        at = se3.apply(pose, centre[None])[0]
        return se3.from_rotation_position(reference[:3, :3], at - reference[:3, :3] @ centre)
    between = reference[:3, :3].T @ pose[:3, :3]
    best, likeness = pose, -np.inf
    for D in symmetry.discrete:
        options = [D]
        M = D[:3, :3] @ between  # the trace of reference^T pose C D, for a turn C about an axis
        for axis in symmetry.axes:
            a = axis.direction
            along = float(a @ M @ a)
            angle = np.arctan2(float(np.trace(M @ se3.skew(a))), float(np.trace(M)) - along)
            options.append(axis.turned(angle) @ D)
        for S in options:
            like = float(np.trace(between @ S[:3, :3]))
            if like > likeness + 1e-9:  # of equals the first, so that rounding decides nothing
                best, likeness = pose @ S, like
    return best


def unobservable_axes(symmetry: Symmetry) -> tuple[Axis, ...]:
    """Axes in the object frame about which no picture tells the angle; three for a ball."""
    if not symmetry.ball:
        return symmetry.axes[:1]
    centre = symmetry.axes[0].point
    return tuple(Axis(direction, centre) for direction in np.eye(3))


def unobservable_motions(symmetry: Symmetry, pose: Array) -> Array:
    """Left perturbations (a, 6) per rad of turns that no picture tells: (d m, w rad), world axes.

    A covariance that is honest about them has s^2 v v^T added for each, s the standard deviation of
    the angle. pose: (4, 4) T_world_object.
    """
    R = pose[:3, :3]
    rows = []
    for axis in unobservable_axes(symmetry):
        w = R @ axis.direction
        rows.append(np.concatenate([np.cross(R @ axis.point, w), w]))
    return np.array(rows).reshape(-1, 6)


def _listed(info: Mapping[str, Any], key: str, source: str) -> list[Any]:
    """The list under a key, empty if absent."""
    found = info.get(key, [])
    if not isinstance(found, list):
        raise InputError(f"{source}: {key} is {found!r}; expected a list")
    return found


def _numbers(value: Any, count: int, what: str) -> Array:
    """`count` finite numbers."""
    try:
        out = np.asarray(value, np.float64).reshape(-1)
    except (TypeError, ValueError):
        out = np.zeros(0)
    if len(out) != count or not np.isfinite(out).all():
        raise InputError(f"{what} is {value!r}; expected {count} finite numbers")
    return out
