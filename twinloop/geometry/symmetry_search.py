"""Rotational symmetries of a mesh, found by laying the turned surface over the surface.

Every rotation that brings a surface onto itself keeps its centroid and its second moments, so the
axes are among the directions that these leave open; those that fit roughly are registered finely
(point to plane) and judged by distances, so that a dent of a reconstruction does not hide a
symmetry and a handle does.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from twinloop.errors import InputError
from twinloop.geometry import quaternion, se3
from twinloop.geometry.distance import MeshDistance, check_mesh
from twinloop.geometry.symmetry import Axis, Symmetry

Array = NDArray[np.float64]
_ORDERS = (2, 3, 4, 5, 6, 7, 8, 9, 10, 12)
_COARSE, _FINE = 75, 2100
_DEGENERATE = 0.12
"""Moments (as lengths) that differ by less than this share leave a plane of directions open."""
_SPHERE = 500
"""Directions tried where all moments are alike: one within 4 degrees of any axis."""
_CLOSE = np.radians(6.0)
"""Rotations of one group that differ by less than this are the same."""
_LARGEST_GROUP = 60  # the icosahedron's; more is a continuous symmetry in disguise


def find_symmetry(
    vertices: Array, faces: NDArray[np.integer], tolerance: float | None = None
) -> Symmetry:
    """The rotations that bring a surface onto itself up to deviations that do not matter.

    Args:
        vertices: (v, 3) m.
        faces: (f, 3).
        tolerance: m, that the mean distance of the turned surface from the surface may have; 95 %
            of it stay within twice, 99.5 % within six times that. None takes 0.5 % of the smallest
            extent along the principal axes (a long handle must not hide that it is oval), at least
            0.6 mm (a reconstruction laid over itself errs twice).

    Returns:
        The symmetry; `none` if there is none.

    Raises:
        InputError: no mesh, or one without extent; a tolerance that is not positive.
    """
    check_mesh(vertices, faces)
    if tolerance is not None and not tolerance > 0:
        raise InputError(f"symmetry: tolerance is {tolerance} m; expected a positive length")
    search = _Search(np.asarray(vertices, np.float64), faces, tolerance)
    round_axes = search.continuous()
    if len(round_axes) > 1:
        return Symmetry(axes=round_axes, deviation=search.worst)
    if round_axes:
        axis = round_axes[0]
        across = np.cross(axis.direction, np.eye(3)[int(np.argmin(np.abs(axis.direction)))])
        flip = search.fitted(Axis(across / np.linalg.norm(across), search.centre), 2)
        found = [np.eye(4)]
        if flip is not None:
            # Of all flips, which are turned about the axis, one that fits it exactly.
            found.append(_flip(axis, flip))
        return Symmetry(np.stack(found), round_axes, search.worst)
    return Symmetry(search.group(), (), search.worst)


class _Search:
    """A surface, samples on it, and the ways to lay it over itself."""

    def __init__(
        self, vertices: Array, faces: NDArray[np.integer], tolerance: float | None
    ) -> None:
        self.triangles = triangles = vertices[faces]
        normal = np.cross(triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0])
        length = np.linalg.norm(normal, axis=1)
        self.area = area = 0.5 * length
        if not area.sum() > 0:
            raise InputError("mesh: its faces have no area; expected a surface in metres")
        self.normals = normal / np.where(length > 0, length, 1.0)[:, None]
        self.centre = np.average(triangles.mean(axis=1), axis=0, weights=area)
        self.size = 2.0 * float(np.linalg.norm(vertices[faces] - self.centre, axis=2).max())
        self.mesh = MeshDistance(vertices, faces)
        self.points = _samples(triangles, area, _FINE)
        self.few = self.points[:: _FINE // _COARSE]
        # Second moments of the area, exactly: a triangle's are those of its corners and middle.
        shifted = triangles - self.centre
        middle = shifted.mean(axis=1)
        corner = np.einsum("fki,fkj,f->ij", shifted, shifted, area / 12.0)
        moments = corner + np.einsum("fi,fj,f->ij", middle, middle, area * 0.75)
        value, vector = np.linalg.eigh(moments / area.sum())
        self.spread, self.axes = np.sqrt(np.maximum(value, 0.0)), vector.T
        extent = float(np.ptp(vertices[faces.ravel()] @ self.axes.T, axis=0).min())
        self.tolerance = max(0.0006, 0.005 * extent) if tolerance is None else tolerance
        self.worst = 0.0

    def misfit(self, transforms: Array, points: Array) -> Array:
        """Distances (t, p) m of points moved by transforms (t, 4, 4) from the surface."""
        moved = se3.apply(transforms, points)
        return self.mesh.distance(moved.reshape(-1, 3)).reshape(len(transforms), -1)

    def fits(self, transforms: Array) -> bool:
        """Whether all transforms (t, 4, 4) bring the surface onto itself; notes how well."""
        off = self.misfit(transforms, self.points)
        mean = off.mean(axis=1)
        most = np.quantile(off, [0.95, 0.995], axis=1)
        t = self.tolerance
        good = (mean <= t) & (most[0] <= 2.0 * t) & (most[1] <= 6.0 * t)
        if good.all():
            self.worst = max(self.worst, float(mean.max()))
        return bool(good.all())

    def continuous(self) -> tuple[Axis, ...]:
        """Axes about which any turn fits: none, one, or three of a ball."""
        angles = np.arange(1, 8) * (2.0 * np.pi * 0.381966)  # golden section: no order fits all
        options = [self._slippage(), *(Axis(a, self.centre) for a in self.axes)]
        rough = [float(self.misfit(axis.turned(angles), self.points).mean()) for axis in options]
        found: list[Axis] = []
        for k in np.argsort(rough, kind="stable"):
            direction = options[k].direction
            if any(np.linalg.norm(np.cross(direction, f.direction)) < 0.2 for f in found):
                continue
            if rough[k] <= self.tolerance and self.fits(options[k].turned(angles)):
                found.append(options[k])
        if len(found) < 2:
            return tuple(found)
        return tuple(Axis(direction, self.centre) for direction in np.eye(3))

    def _slippage(self) -> Axis:
        """The axis of the rotation along which the surface slides over itself best.

        Source: Pottmann and Wallner, Computational Line Geometry (2001), 5.2: normals of a surface
        of revolution meet its axis, which is linear in the motion (w, v): w.(p x n) + v.n = 0.
        """
        # The middles of the edges weigh a third of the area each: exact for squares of p.
        n = np.tile(self.normals, (3, 1))
        p = (0.5 * (self.triangles + np.roll(self.triangles, 1, axis=1)) - self.centre) / self.size
        p = np.concatenate([p[:, 0], p[:, 1], p[:, 2]])
        rows = np.concatenate([np.cross(p, n), n], axis=1)
        rows *= np.sqrt(np.tile(self.area, 3))[:, None]
        A = rows.T @ rows / (3.0 * self.area.sum())
        # Smallest for |w| = 1: the part of v is eliminated.
        part = np.linalg.lstsq(A[3:, 3:], A[3:, :3], rcond=1e-9)[0]
        _, vector = np.linalg.eigh(A[:3, :3] - A[:3, 3:] @ part)
        w = vector[:, 0]
        v = -part @ w * self.size
        return Axis(w, self.centre + np.cross(w, v))

    def fitted(self, axis: Axis, order: int) -> Array | None:
        """The symmetry (4, 4) near a turn by 2 pi / order, registered finely; None if none is."""
        return self._registered(axis.turned(2.0 * np.pi / order))

    def _registered(self, T: Array) -> Array | None:
        """A transform (4, 4) near T that brings the surface onto itself, if there is one.

        One that slid far away answers another question, and near the identity none.
        """
        start = T
        for points in (self.points[::16], self.points[::6], self.points[::3]):
            for _ in range(2):
                moved = se3.apply(T, points)
                near, face = self.mesh.closest(moved)
                n = self.normals[face]
                off = ((near - moved) * n).sum(axis=1)
                scale = 3.0 * max(float(np.median(np.abs(off))), 0.2 * self.tolerance)
                weight = 1.0 / (1.0 + (off / scale) ** 2)  # features that do not fit pull less
                arm = np.cross(moved - self.centre, n) / self.size
                J = np.concatenate([n, arm], axis=1)
                A = (J * weight[:, None]).T @ J
                A += 1e-4 * len(points) * np.eye(6)  # along which it slides anyway, it stays
                step = np.linalg.solve(A, J.T @ (weight * off))
                turn = quaternion.to_matrix(quaternion.from_rotvec(step[3:] / self.size))
                shift = self.centre + step[:3] - turn @ self.centre
                T = se3.from_rotation_position(turn, shift) @ T
            if float(np.abs(off).mean()) > 3.0 * self.tolerance or _angle(T, start) > _CLOSE:
                return None
        return T if self.fits(T[None]) else None

    def group(self) -> Array:
        """All discrete symmetries (k, 4, 4), the identity first."""
        found: list[Array] = [np.eye(4)]
        failed: list[Array] = []
        for T in self._candidates():
            if any(_angle(T, g) < 2.0 * _CLOSE for g in found):  # two of a group are 30 deg apart
                continue
            if any(_angle(T, g) < _CLOSE for g in failed):
                continue
            exact = self._registered(T)
            grown = found if exact is None else _closed([*found, exact])
            if len(found) < len(grown) <= _LARGEST_GROUP and self.fits(self._polished(grown)):
                found = grown
            else:
                failed.append(T)
        return self._polished(found)

    def _candidates(self) -> Array:
        """Turns (c, 4, 4) that fit roughly, best first of each kind."""
        length = self.spread
        directions = [self.axes]
        low, high = np.isclose(length[:-1], length[1:], rtol=_DEGENERATE)
        if low and high:
            directions.append(_hemisphere(_SPHERE))
        elif low or high:
            a, b = (self.axes[0], self.axes[1]) if low else (self.axes[1], self.axes[2])
            angle = np.linspace(0.0, np.pi, 90, endpoint=False)[:, None]
            directions.append(np.cos(angle) * a + np.sin(angle) * b)
        tried = np.concatenate(directions)
        turns, rough = [], []
        for order in _ORDERS:
            # In a plane of directions only half turns map the moments onto themselves.
            some = tried if order < 6 and low and high else self.axes
            some = tried if order == 2 else some
            rotation = quaternion.to_matrix(quaternion.from_rotvec(2.0 * np.pi / order * some))
            T = se3.from_rotation_position(rotation, self.centre - rotation @ self.centre)
            turns.append(T)
            rough.append(self.misfit(T, self.few).mean(axis=1))
        all_turns, all_rough = np.concatenate(turns), np.concatenate(rough)
        # A direction 3 degrees off moves the surface by a fortieth of its size at most.
        near = np.flatnonzero(all_rough < self.tolerance + 0.02 * self.size)
        return all_turns[near[np.argsort(all_rough[near], kind="stable")]]

    def _polished(self, group: list[Array]) -> Array:
        """A group's elements (k, 4, 4) made consistent, about one centre."""
        R = np.stack([g[:3, :3] for g in group])
        product = np.einsum("aij,bjk->abik", R, R)
        which = np.einsum("abij,cij->abc", product, R).argmax(axis=2)  # R[a] R[b] = R[which[a, b]]
        for _ in range(8):
            total = np.einsum("aji,abjk->bik", R, R[which])  # R[b] = R[a]^-1 R[a b] for all a
            u, _, vt = np.linalg.svd(total)
            R = u @ vt
        if len(group) == 1:
            return np.eye(4)[None]
        # t = (1 - R) c for all; where that leaves c open (along a single axis) the centroid is it.
        A = np.concatenate([np.eye(3) - r for r in R[1:]])
        t = np.concatenate([g[:3, 3] for g in group[1:]])
        c = self.centre + np.linalg.lstsq(A, t - A @ self.centre, rcond=1e-3)[0]
        out = se3.from_rotation_position(R, c - R @ c)
        out[0] = np.eye(4)
        return out


def _closed(group: list[Array]) -> list[Array]:
    """A set of transforms with all products of them, each once."""
    out = list(group)
    grown = True
    while grown and len(out) <= _LARGEST_GROUP:
        grown = False
        for a in list(out):
            for b in list(out):
                T = a @ b
                if all(_angle(T, g) >= _CLOSE for g in out):
                    out.append(T)
                    grown = True
                    if len(out) > _LARGEST_GROUP:
                        return out
    return out


def _angle(a: Array, b: Array) -> float:
    """Angle between the rotations of two transforms, rad."""
    cosine = 0.5 * (float((a[:3, :3] * b[:3, :3]).sum()) - 1.0)
    return float(np.arccos(np.clip(cosine, -1.0, 1.0)))


def _flip(axis: Axis, near: Array) -> Array:
    """The half turn (4, 4) about a line square to the axis and through it, near a transform."""
    a = axis.direction
    shifted = se3.apply(near, axis.point[None])[0]
    middle = axis.point + 0.5 * float((shifted - axis.point) @ a) * a
    across = np.linalg.eigh(near[:3, :3] + near[:3, :3].T)[1][:, 2]
    across = across - (across @ a) * a
    return Axis(across / np.linalg.norm(across), middle).turned(np.pi)


def _hemisphere(count: int) -> Array:
    """Directions (count, 3) spread evenly over a half sphere (Fibonacci's spiral)."""
    k = np.arange(count) + 0.5
    z = k / count
    angle = k * np.pi * (3.0 - np.sqrt(5.0))
    r = np.sqrt(1.0 - z * z)
    return np.stack([r * np.cos(angle), r * np.sin(angle), z], axis=1)


def _samples(triangles: Array, area: Array, count: int) -> Array:
    """Points (count, 3) m spread over triangles by area; seeded."""
    rng = np.random.default_rng(0)
    edges = np.cumsum(area) / area.sum()
    at = rng.permutation((np.arange(count) + rng.random(count)) / count)
    face = np.minimum(np.searchsorted(edges, at), len(area) - 1)
    u, v = np.sqrt(rng.random(count)), rng.random(count)
    weight = np.stack([1.0 - u, u * (1.0 - v), u * v], axis=1)
    return np.asarray(np.einsum("pk,pki->pi", weight, triangles[face]))
