"""A triangle mesh with a texture."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
Faces = NDArray[np.int32]


@dataclass(frozen=True)
class TexturedMesh:
    """A mesh with a texture.

    Attributes:
        vertices: (w, 3) m; a vertex on a seam of the atlas is there once for each side.
        faces: (f, 3), in the order of the mesh that was textured.
        uv: (w, 2) in 0..1, origin at the lower left of the image (OpenGL).
        source: (w,) which vertex of the mesh that was textured each one is.
        image: (side, side, 3) uint8 sRGB.
        seen: Share of the surface's texels that a picture saw; NaN where that is not known.
    """

    vertices: Float
    faces: Faces
    uv: Float
    source: NDArray[np.int64]
    image: NDArray[np.uint8]
    seen: float = float("nan")
