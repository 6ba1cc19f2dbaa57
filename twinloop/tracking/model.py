"""All that a tracker knows of an object: shape, looks, colours, features, how it can rest."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import cv2
import numpy as np
from numpy.typing import NDArray

from twinloop.geometry.symmetry import Symmetry
from twinloop.geometry.symmetry_search import find_symmetry
from twinloop.splat.gaussians import Gaussians
from twinloop.tracking.appearance import Reference, Shape
from twinloop.tracking.colours import histogram
from twinloop.tracking.feature_map import FeatureMap, build_map
from twinloop.tracking.images import shrink_image
from twinloop.tracking.look import Look, views_around
from twinloop.tracking.resting import Rest, resting_faces

Array = NDArray[np.float64]
Image = NDArray[np.uint8]

CELL = 8
"""Texture is counted in cells of this many px, the size of a window of flow."""
CONTRAST = 2.5
"""Gradient, grey levels per px, that a window must have in both directions to be followed."""


@dataclass(frozen=True)
class ObjectModel:
    """A tracked object.

    shape: mesh; look: its Gaussians, None for a bare mesh; references: views of it from around;
    features: SIFT map; colours: histogram of its colours, None for a bare mesh; texture: cells of
    8 px with texture in the median view, of an object about 100 px large; symmetry: of the shape,
    which its texture may break; rests: how it can stand
    on a table, the likeliest first; contact_height: m of the lowest hull vertex at rest (0 for a
    perfect mesh on the table); small: shrunk references, made when needed.
    """

    shape: Shape
    look: Look | None
    references: list[Reference]
    features: FeatureMap
    colours: NDArray[np.float32] | None
    texture: float
    rests: tuple[Rest, ...]
    contact_height: float
    symmetry: Symmetry
    small: dict[int, list[Reference]] = field(default_factory=dict)

    @property
    def up(self) -> Array:
        """(3,) object axis that points up as it most likely rests."""
        return self.rests[0].up

    @property
    def rest_height(self) -> float:
        """Height of the object's origin above the table as it most likely rests, m."""
        return self.rests[0].height

    def fresh(self) -> ObjectModel:
        """The same model without the views that earlier clips had rendered.

        Poses of a clip must not depend on what was tracked before.
        """
        return self if self.look is None else replace(self, look=replace(self.look, views=[]))

    def shrunk(self, factor: int) -> list[Reference]:
        """The references at 1/factor of their size, made once."""
        if factor not in self.small:
            self.small[factor] = [
                self.shape.reference(
                    *shrink_image(r.image, r.intrinsics, factor), r.T_camera_object
                )
                for r in self.references
            ]
        return self.small[factor]


def texture_cells(grey: Image, solid: NDArray[np.bool_]) -> int:
    """Cells of 8 x 8 px inside the object that vary enough in both directions to be followed.

    grey: (h, w) u1; solid: (h, w) bool, on the object. The smaller eigenvalue of the gradients'
    second moments decides (Shi and Tomasi 1994).
    """
    core = cv2.erode(solid.astype(np.uint8), np.ones((9, 9), np.uint8), borderValue=0) > 0
    smooth = cv2.GaussianBlur(grey, (0, 0), 1.0)
    # OpenCV scales the gradients of u1 images so that 4 / 255^2 of their mean square comes out.
    smaller = cv2.cornerMinEigenVal(smooth, CELL, ksize=3) * (255.0 / 2) ** 2
    h, w = (s // CELL * CELL for s in grey.shape)
    good = ((smaller > CONTRAST**2) & core)[:h, :w]
    return int(good.reshape(h // CELL, CELL, w // CELL, CELL).any(axis=(1, 3)).sum())


def build_model(
    vertices: Array,
    faces: NDArray[np.integer],
    gaussians: Gaussians | None = None,
    *,
    T_world_object: Array | None = None,
    symmetry: Symmetry | None = None,
    views: int = 48,
    size: float = 160.0,
) -> ObjectModel:
    """The model of a twin.

    Args:
        vertices: (v, 3) m, object frame.
        faces: (f, 3) vertex indices.
        gaussians: The looks, object frame; without them only outline, depth and what the clip
            itself shows are followed.
        T_world_object: (4, 4) where it stood in the scan, table at z = 0: how it rests most
            likely. Without it all stable faces are tried.
        symmetry: Motions that leave the shape as it is; None: they are looked for.
        views: Number of reference views from all around, half of which may be from below.
        size: Pixels across the object in them.

    Raises:
        InputError: The mesh is no mesh.
    """
    shape = Shape(vertices, faces)
    same = find_symmetry(vertices, faces) if symmetry is None else symmetry
    rests = resting_faces(shape.hull, T_world_object)
    contact = 0.0
    if T_world_object is not None:
        contact = float((shape.hull @ T_world_object[2, :3]).min() + T_world_object[2, 3])
    if gaussians is None or len(gaussians) == 0:
        empty = FeatureMap(np.zeros((0, 128), np.float32), np.zeros((0, 3)))
        return ObjectModel(shape, None, [], empty, None, 0.0, rests, contact, same)
    look = Look(gaussians, shape)
    around = views_around(look, views, size, rests[0].up, lowest=-0.1)
    references = [v.reference for v in around]
    colours = histogram(np.concatenate([v.rgb[v.covered] for v in around])) if around else None
    small = views_around(look, 8, 100.0, rests[0].up, lowest=0.2)
    texture = (
        float(np.median([texture_cells(v.reference.image, v.reference.depth > 0) for v in small]))
        if small
        else 0.0
    )
    return ObjectModel(
        shape, look, references, build_map(references), colours, texture, rests, contact, same
    )
