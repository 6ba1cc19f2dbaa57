"""Lab objects: textured mesh, convex collision pieces and exact mass properties from a recipe."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from twinloop.lab.catalogue import BUILDERS
from twinloop.lab.mass import Moments, ball_moments, contents_moments, shell_moments
from twinloop.lab.mesh_file import load_shape
from twinloop.lab.shapes import Array, Faces, Part, Shape
from twinloop.lab.spec import LabSpec
from twinloop.lab.texture import paint, unwrap


@dataclass(frozen=True)
class LabObject:
    """A body of the lab. Object frame: origin at the bottom centre of the resting pose, z up.

    vertices (v,3) m and faces (f,3) outward: watertight visual mesh. uv (t,2) with v up and face_uv
    (f,3): texture coordinates per corner; texture (h,w,3) u1, row 0 at v = 1. parts: convex pieces.
    mass kg; com (3,) m; inertia (3,3) kg m^2 about the com, axes of the object frame; friction 1.
    """

    name: str
    vertices: Array
    faces: Faces
    uv: Array
    face_uv: Faces
    texture: NDArray[np.uint8]
    parts: list[Part]
    mass: float
    com: Array
    inertia: Array
    friction: float

    @property
    def size(self) -> Array:
        """Bounding box (3,), m."""
        return np.asarray(np.ptp(self.vertices, axis=0))


def build_object(spec: LabSpec, name: str, folder: Path | None = None) -> LabObject:
    """Build the object of a recipe; ``folder`` is where a mesh file of the recipe lies.

    Raises InputError where the mesh file is missing, open or not the one of the recipe.
    """
    shape = build_shape(spec, folder)
    moments = mass_moments(spec, shape)
    atlas = unwrap(shape.vertices, shape.faces)
    return LabObject(
        name=name,
        vertices=shape.vertices,
        faces=shape.faces,
        uv=atlas.uv,
        face_uv=atlas.face_uv,
        texture=paint(atlas.extent, spec.texture, spec.seed),
        parts=shape.parts,
        mass=spec.mass,
        com=moments.com(),
        inertia=moments.inertia(),
        friction=spec.friction,
    )


def mass_moments(spec: LabSpec, shape: Shape) -> Moments:
    """Moments of a recipe's filling in a shape: thin shell + contents cut by a plane + lumps."""
    filling = spec.filling
    low, high = shape.vertices.min(axis=0), shape.vertices.max(axis=0)
    total = Moments(0.0, np.zeros(3), np.zeros((3, 3)))
    if filling.shell > 0.0:
        shell = shell_moments(shape.vertices, shape.faces)
        total = total + shell.scaled_to(filling.shell * spec.mass)
    for lump in filling.lumps:
        centre = low + np.asarray(lump.at) * (high - low)
        total = total + ball_moments(lump.share * spec.mass, centre, lump.radius)
    rest = spec.mass - total.mass
    if rest > 1e-9 * spec.mass:
        contents = contents_moments(
            shape.vertices, shape.faces, filling.level, np.asarray(filling.direction)
        )
        total = total + contents.scaled_to(rest)
    return total


def build_shape(spec: LabSpec, folder: Path | None = None) -> Shape:
    """The recipe's shape, built or read from its mesh file in ``folder``."""
    if spec.shape == "mesh":
        assert spec.mesh is not None
        return load_shape((folder or Path()) / spec.mesh, spec.sha256, spec.size)
    assert spec.size is not None
    return BUILDERS[spec.shape](spec.size)
