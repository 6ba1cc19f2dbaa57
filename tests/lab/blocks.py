"""A plain uniform block as a lab object, for closed forms."""

from __future__ import annotations

import numpy as np

from twinloop.lab.objects import LabObject
from twinloop.lab.shapes import convex_hull


def block(
    size: tuple[float, float, float] = (0.06, 0.05, 0.08), mass: float = 0.3, friction: float = 0.3
) -> LabObject:
    """A sharp-edged uniform box with a one-texel texture."""
    corners = np.array([[x, y, z] for x in (-0.5, 0.5) for y in (-0.5, 0.5) for z in (0.0, 1.0)])
    vertices, faces = convex_hull(corners * size)
    square = np.square(size)
    inertia = np.diag(mass / 12.0 * (square.sum() - square))
    return LabObject(
        name="block",
        vertices=vertices,
        faces=faces,
        uv=np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]),
        face_uv=np.tile(np.array([[0, 1, 2]], dtype=np.int32), (len(faces), 1)),
        texture=np.full((4, 4, 3), 128, dtype=np.uint8),
        parts=[(vertices, faces)],
        mass=mass,
        com=np.array([0.0, 0.0, 0.5 * size[2]]),
        inertia=inertia,
        friction=friction,
    )
