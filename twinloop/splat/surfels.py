"""A set of 2D Gaussians (surfels): flat discs with normals, which make the surface."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from twinloop.errors import InputError
from twinloop.geometry import quaternion
from twinloop.splat.gaussians import on_surface as gaussians_on_surface

_NAMES = ("means", "quaternions", "scales", "opacities", "sh")


class WideFilterWarning(UserWarning):
    """Surfels are trained with a wider low-pass filter than they should be."""


def device_keywords(device: str, factor: float) -> dict[str, Any]:
    """Keywords of `rasterization_2dgs` for low-pass factor `factor`, as far as the device has it.

    gsplat's kernels on "cuda" have factor 2 and the depth of centres built in.
    """
    if device.startswith("cuda"):
        return {"depth": "center", "filter_inv_square": 2.0}
    return {"filter_inv_square": factor}


@dataclass(frozen=True)
class Surfels:
    """n flat Gaussians in one frame, after 2DGS (Huang et al. 2024).

    means (n, 3) m, quaternions (n, 4) wxyz unit, scales (n, 2) standard deviations m along the
    rotation's first two axes, opacities (n) 0..1, sh (n, bases, 3) spherical-harmonics coefficients
    of the colour; all float32. The rotation's third axis is the normal; by convention it points out
    of the object, though rendering takes either side for the front.
    """

    means: NDArray[np.float32]
    quaternions: NDArray[np.float32]
    scales: NDArray[np.float32]
    opacities: NDArray[np.float32]
    sh: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.means)

    @property
    def degree(self) -> int:
        """Degree of the spherical harmonics."""
        return int(np.sqrt(self.sh.shape[1])) - 1

    @property
    def normals(self) -> NDArray[np.float32]:
        """Unit normals (n, 3), the rotations' third axes."""
        return np.asarray(quaternion.to_matrix(self.quaternions)[..., :, 2], np.float32)

    @classmethod
    def from_dataset(cls, group: xr.Dataset | xr.DataTree) -> Surfels:
        """Read the group `surfels` of a reconstruction.

        Raises:
            InputError: An array is missing, or its length or width is not that of surfels.
        """
        absent = [name for name in _NAMES if name not in group]
        if absent:
            raise InputError(
                f"surfels: the group has no {', '.join(absent)}; expected {', '.join(_NAMES)}. "
                "Was it written by another version? Run `twinloop run` to make it again."
            )
        arrays = {name: np.asarray(group[name].values, np.float32) for name in _NAMES}
        count = len(arrays["means"])
        wanted = {"means": (3,), "quaternions": (4,), "scales": (2,), "opacities": ()}
        for name, tail in wanted.items():
            if arrays[name].shape != (count, *tail):
                raise InputError(
                    f"surfels: {name} has shape {arrays[name].shape}, expected {(count, *tail)}"
                )
        return cls(**arrays)

    def to_dataset(self) -> xr.Dataset:
        """The group `surfels` of a reconstruction."""
        return xr.Dataset(
            {
                "means": (("surfel", "xyz"), self.means),
                "scales": (("surfel", "uv"), self.scales),
                "quaternions": (("surfel", "wxyz"), self.quaternions),
                "opacities": (("surfel",), self.opacities),
                "sh": (("surfel", "basis", "channel"), self.sh),
            }
        )


def on_surface(
    vertices: NDArray[np.floating],
    faces: NDArray[np.integer],
    colors: NDArray[np.uint8],
    count: int,
    degree: int,
    seed: int,
    opacity: float = 0.9,
) -> Surfels:
    """`count` surfels spread evenly over a coloured mesh, facing along its normals.

    `opacity` starts high, so that one layer of surfels hides what is behind it: several half-clear
    layers would share the surface between depths.
    """
    flat = gaussians_on_surface(vertices, faces, colors, count, degree, seed)
    return Surfels(
        flat.means,
        flat.quaternions,
        np.ascontiguousarray(flat.scales[:, :2]),
        np.full(count, opacity, np.float32),
        flat.sh,
    )
