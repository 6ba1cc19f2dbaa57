"""Signed distance grids: baked once per object, shared by contact and retargeting.

A grid query costs a small part of a query of the mesh, and its gradient is the exact derivative of
the value that it comes with, so that a solver which uses both never contradicts itself. Contact
samples it trilinearly (`sample`, and `grid_sample` inside Warp kernels); solvers that want a
gradient without jumps take the cubic of `signed_distance`. The interpolation is written once, in
`sdf_kernel`: NumPy asks it through `sdf_query`. Torch's version is `sdf_torch`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import xarray as xr

from twinloop.errors import ArtifactError, InputError
from twinloop.geometry.distance import check_mesh

Array = npt.NDArray[np.float64]

MOST_NODES = 512**3
"""Nodes of a grid at most: 512 MiB as float32."""


class SignedDistance(Protocol):
    """What can be asked how far a point is from a surface: a mesh, or a grid baked of it."""

    def signed_distance(self, points: Array) -> tuple[Array, Array]:
        """Distance (n,) m of points (n, 3) m, negative inside, and its gradient (n, 3)."""
        ...


@dataclass(frozen=True)
class DistanceGrid:
    """Signed distances on a regular grid, in the frame of the mesh that it was baked of.

    Attributes:
        value: (I, J, K) m, negative inside.
        origin: (3,) m, position of ``value[0, 0, 0]``.
        spacing: m, between nodes.

    Raises:
        InputError: Fewer than two nodes along an axis, too many nodes, a value or origin that is
            not finite, or a spacing that is no positive number.
    """

    value: Array
    origin: Array
    spacing: float

    def __post_init__(self) -> None:
        shape = np.shape(self.value)
        if len(shape) != 3 or min(shape) < 2 or int(np.prod(shape, dtype=np.int64)) > MOST_NODES:
            raise InputError(
                f"distance grid of shape {shape}: expected three axes of at least 2 nodes and at "
                f"most {MOST_NODES} nodes; bake it again"
            )
        if not np.isfinite(self.value).all():
            bad = tuple(int(i) for i in np.argwhere(~np.isfinite(self.value))[0])
            raise InputError(
                f"distance grid: value {self.value[bad]} at node {bad}; expected finite metres; "
                "bake it again from a mesh of finite vertices"
            )
        if np.shape(self.origin) != (3,) or not np.isfinite(self.origin).all():
            raise InputError(f"distance grid: origin {self.origin}; expected three finite metres")
        if not (np.isfinite(self.spacing) and self.spacing > 0):
            raise InputError(f"distance grid: spacing {self.spacing} m; expected a number above 0")

    @property
    def top(self) -> Array:
        """(3,) m, position of the last node."""
        return np.asarray(self.origin + self.spacing * (np.array(self.value.shape) - 1))

    def sample(self, points: Array) -> tuple[Array, Array]:
        """Trilinear distance (N,) m and its gradient (N, 3); outside: infinity and zero.

        This is what contact sees: a fingertip beyond the grid touches nothing.

        Raises:
            InputError: Points that are not (N, 3) or not finite.
        """
        points = _points(points)
        cell = (points - self.origin) / self.spacing
        inside = np.asarray(((cell > 0) & (cell < np.array(self.value.shape) - 1)).all(axis=-1))
        distance, gradient = self._interpolate(np.where(inside[:, None], cell, 0.0), cubic=False)
        return np.where(inside, distance, np.inf), np.where(inside[:, None], gradient, 0.0)

    def signed_distance(self, points: Array, *, cubic: bool = True) -> tuple[Array, Array]:
        """Distance (n,) m and its exact derivative (n, 3), anywhere in space.

        Outside the grid: the distance at the nearest point of the grid plus the way to it, which is
        continuous and never below the true distance.

        Args:
            points: (n, 3) m.
            cubic: Cubic convolution (Keys 1981), whose gradient is continuous; else trilinear,
                whose gradient jumps from cell to cell.

        Raises:
            InputError: Points that are not (n, 3) or not finite.
        """
        points = _points(points)
        near = np.clip(points, self.origin, self.top)
        away = points - near
        cell = (near - self.origin) / self.spacing
        distance, gradient = self._interpolate(cell, cubic=cubic)
        far = np.linalg.norm(away, axis=1)
        beyond = away != 0
        way = away / np.where(far > 0, far, 1.0)[:, None]
        return distance + far, np.where(beyond, way, gradient)

    def _interpolate(self, cell: Array, *, cubic: bool) -> tuple[Array, Array]:
        """Value (n,) m and gradient (n, 3) at `cell` (n, 3), inside the grid, in cells."""
        import warp as wp

        from twinloop.geometry.sdf_query import cubic_at, linear_at

        out = np.zeros((len(cell), 4))
        if len(cell):
            wp.launch(
                cubic_at if cubic else linear_at,
                dim=len(cell),
                inputs=[
                    self.padded_nodes if cubic else self.nodes,
                    wp.array(cell, dtype=wp.vec3d, device="cpu", copy=False),
                ],
                outputs=[wp.array(out, dtype=wp.vec4d, device="cpu", copy=False)],
                device="cpu",
            )
        return out[:, 0], out[:, 1:] / self.spacing

    @cached_property
    def nodes(self) -> Any:
        """The values as a Warp array on the CPU, which `grid_sample` takes inside a kernel."""
        return _warp_array(self.value)

    @cached_property
    def padded_nodes(self) -> Any:
        """`padded` as a Warp array on the CPU, which `grid_sample_cubic` takes."""
        return _warp_array(self.padded)

    @cached_property
    def padded(self) -> Array:
        """(I + 2, J + 2, K + 2) m: the values with a layer around, extrapolated linearly."""
        out = np.asarray(self.value, dtype=np.float64)
        for axis in range(3):
            first, second = np.take(out, [0], axis), np.take(out, [1], axis)
            last, before = np.take(out, [-1], axis), np.take(out, [-2], axis)
            out = np.concatenate([2 * first - second, out, 2 * last - before], axis)
        return np.ascontiguousarray(out)

    def to_dataset(self) -> xr.Dataset:
        """Return the grid as arrays for an artifact: `distance`, `origin`, `spacing`."""
        return xr.Dataset(
            {
                "distance": (("i", "j", "k"), np.asarray(self.value, dtype=np.float32)),
                "origin": ("xyz", np.asarray(self.origin, dtype=np.float64)),
                "spacing": ((), np.float64(self.spacing)),
            }
        )

    @staticmethod
    def from_dataset(data: xr.Dataset) -> DistanceGrid:
        """Return the grid that `to_dataset` stored.

        Raises:
            ArtifactError: An array is missing, has other axes, is too large or holds no numbers.
            InputError: The values make no grid; see the class.
        """
        for name, dims in (("distance", ("i", "j", "k")), ("origin", ("xyz",)), ("spacing", ())):
            if name not in data or data[name].dims != dims:
                found = data[name].dims if name in data else "nothing"
                raise ArtifactError(
                    f"distance grid: {name} has {found}, expected axes {dims}; reconstruct again"
                )
            if data[name].dtype.kind not in "fiu":
                raise ArtifactError(
                    f"distance grid: {name} is {data[name].dtype}, expected numbers; reconstruct "
                    "again"
                )
        size = int(data["distance"].size)
        if size > MOST_NODES:
            raise ArtifactError(
                f"distance grid: {size} nodes, expected at most {MOST_NODES}; reconstruct again"
            )
        return DistanceGrid(
            data["distance"].values.astype(np.float64),
            data["origin"].values.astype(np.float64),
            float(data["spacing"].values),
        )


def _warp_array(values: Array) -> Any:
    import warp as wp

    wp.config.quiet = True
    return wp.array(np.ascontiguousarray(values, dtype=np.float64), dtype=wp.float64, device="cpu")


def _points(points: npt.ArrayLike) -> Array:
    points = np.asarray(points, dtype=np.float64)
    if points.ndim == 1 and points.size == 3:
        points = points[None]
    if points.ndim != 2 or points.shape[1] != 3:
        raise InputError(f"distance grid: points of shape {points.shape}, expected (n, 3)")
    if not np.isfinite(points).all():
        bad = int(np.flatnonzero(~np.isfinite(points).all(axis=1))[0])
        raise InputError(
            f"distance grid: point {bad} is {points[bad]}, expected finite metres; has the "
            "simulation diverged?"
        )
    return points


def bake(
    vertices: Array, faces: npt.NDArray[np.integer], *, margin: float, cells: int
) -> DistanceGrid:
    """Signed distance grid of a closed triangle mesh.

    Args:
        vertices: (V, 3) m.
        faces: (F, 3) vertex indices, counter-clockwise seen from outside.
        margin: m, how far the grid reaches beyond the bounding box.
        cells: Number of cells along the longest side.

    Raises:
        InputError: The mesh is empty, not finite or has indices out of range; or a margin or a
            number of cells below what makes a grid.
    """
    import warp as wp

    wp.config.quiet = True
    from twinloop.geometry.sdf_kernel import signed_distance

    check_mesh(vertices, faces)
    if len(vertices) < 4 or len(faces) < 4 or not np.isfinite(vertices).all():
        raise InputError(
            f"mesh: {len(vertices)} vertices and {len(faces)} faces, expected a closed mesh of "
            "finite vertices; run reconstruct again"
        )
    if faces.min() < 0 or faces.max() >= len(vertices):
        raise InputError(f"mesh: face index {faces.max()} but only {len(vertices)} vertices")
    if not (np.isfinite(margin) and margin >= 0) or not 2 <= cells <= MOST_NODES:
        raise InputError(
            f"distance grid: margin {margin} m and {cells} cells; expected at least 0 m and 2 cells"
        )
    low, high = vertices.min(axis=0) - margin, vertices.max(axis=0) + margin
    spacing = float((high - low).max()) / cells
    counts = np.ceil((high - low) / spacing).astype(int) + 1
    if int(np.prod(counts, dtype=np.int64)) > MOST_NODES:
        raise InputError(
            f"distance grid of {tuple(counts)} nodes: expected at most {MOST_NODES}; ask for fewer "
            "cells"
        )
    axes = [low[i] + spacing * np.arange(counts[i]) for i in range(3)]
    nodes = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)
    reach = float(np.linalg.norm(high - low))
    with wp.ScopedDevice("cpu"):
        mesh = wp.Mesh(
            points=wp.array(vertices.astype(np.float32), dtype=wp.vec3),
            indices=wp.array(faces.astype(np.int32).ravel(), dtype=wp.int32),
            support_winding_number=True,
        )
        out = wp.zeros(len(nodes), dtype=wp.float32)
        wp.launch(
            signed_distance,
            dim=len(nodes),
            inputs=[mesh.id, wp.array(nodes.astype(np.float32), dtype=wp.vec3), reach],
            outputs=[out],
        )
        value = out.numpy().astype(np.float64)
    return DistanceGrid(value.reshape(tuple(counts)), low, spacing)
