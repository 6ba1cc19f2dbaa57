"""A set of 3D Gaussians as arrays, and how to start one on a surface."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import xarray as xr
from numpy.typing import NDArray

SH0 = 0.28209479177387814
"""The constant spherical harmonic: colour = 0.5 + SH0 * coefficient."""


@dataclass(frozen=True)
class Gaussians:
    """n Gaussians in one frame.

    means (n, 3) m, quaternions (n, 4) wxyz unit, scales (n, 3) standard deviations m, opacities (n)
    0..1, sh (n, bases, 3) spherical-harmonics coefficients of the colour; all float32.

    stored (n, 8) float32, or None: the numbers from which a file gave opacities, scales and
    quaternions (see `twinloop.splat.encoding`), so that writing them again gives the same bytes.
    Where they no longer say what the other arrays say, they are ignored.
    """

    means: NDArray[np.float32]
    quaternions: NDArray[np.float32]
    scales: NDArray[np.float32]
    opacities: NDArray[np.float32]
    sh: NDArray[np.float32]
    stored: NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return len(self.means)

    @property
    def degree(self) -> int:
        """Degree of the spherical harmonics."""
        return int(np.sqrt(self.sh.shape[1])) - 1

    @classmethod
    def from_dataset(cls, group: xr.Dataset | xr.DataTree) -> Gaussians:
        """Read the group `gaussians` of a reconstruction."""
        names = ("means", "quaternions", "scales", "opacities", "sh")
        return cls(*(np.asarray(group[name].values, np.float32) for name in names))

    def to_dataset(self) -> xr.Dataset:
        """The group `gaussians` of a reconstruction."""
        return xr.Dataset(
            {
                "means": (("gaussian", "xyz"), self.means),
                "scales": (("gaussian", "xyz"), self.scales),
                "quaternions": (("gaussian", "wxyz"), self.quaternions),
                "opacities": (("gaussian",), self.opacities),
                "sh": (("gaussian", "basis", "channel"), self.sh),
            }
        )


def on_surface(
    vertices: NDArray[np.floating],
    faces: NDArray[np.integer],
    colors: NDArray[np.uint8],
    count: int,
    degree: int,
    seed: int,
) -> Gaussians:
    """`count` flat Gaussians spread evenly over a coloured mesh, facing along its normals."""
    random = np.random.default_rng(seed)
    corner = np.asarray(vertices, np.float64)[faces]
    cross = np.cross(corner[:, 1] - corner[:, 0], corner[:, 2] - corner[:, 0])
    area = 0.5 * np.linalg.norm(cross, axis=1)
    # Systematic sampling: one point per equal share of area, so that no patch is left bare.
    share = (np.arange(count) + random.uniform(size=count)) / count * area.sum()
    face = np.minimum(np.searchsorted(np.cumsum(area), share), len(area) - 1)
    u, v = random.uniform(size=(2, count))
    flip = u + v > 1
    u, v = np.where(flip, 1 - u, u), np.where(flip, 1 - v, v)
    weights = np.stack([1 - u - v, u, v], axis=1)
    means = np.einsum("nk,nkc->nc", weights, corner[face])
    colour = np.einsum("nk,nkc->nc", weights, colors[faces[face]].astype(np.float64)) / 255
    normal = cross[face] / np.maximum(np.linalg.norm(cross[face], axis=1, keepdims=True), 1e-20)
    # The shortest rotation from z to the normal; about x by half a turn where they are opposite.
    quaternion = np.stack([1 + normal[:, 2], -normal[:, 1], normal[:, 0], 0 * u], axis=1)
    quaternion[np.linalg.norm(quaternion, axis=1) < 1e-6] = [0, 1, 0, 0]
    quaternion /= np.linalg.norm(quaternion, axis=1, keepdims=True)
    spacing = float(np.sqrt(area.sum() / count))
    sh = np.zeros((count, (degree + 1) ** 2, 3))
    sh[:, 0] = (colour - 0.5) / SH0
    return Gaussians(
        means.astype(np.float32),
        quaternion.astype(np.float32),
        np.tile(np.array([0.6, 0.6, 0.2]) * spacing, (count, 1)).astype(np.float32),
        np.full(count, 0.7, np.float32),
        sh.astype(np.float32),
    )
