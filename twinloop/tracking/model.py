"""All that a tracker knows of an object: shape, looks, features and how it rests on a table."""

from __future__ import annotations

from dataclasses import dataclass, field

import cv2
import numpy as np
from numpy.typing import NDArray

from twinloop.errors import InputError
from twinloop.progress import track
from twinloop.tracking.appearance import Reference, Shape
from twinloop.tracking.feature_map import FeatureMap, build_map

Array = NDArray[np.float64]
Image = NDArray[np.uint8]


@dataclass(frozen=True)
class ObjectModel:
    """A tracked object.

    shape: mesh; references: scan images with the object's pose; features: SIFT map; up: (3,)
    object axis that points up as it rests; rest_rotation: (3, 3) one resting orientation;
    rest_height: m of the object's origin above the table; contact_height: m of the lowest hull
    vertex at rest (0 for a perfect mesh on the table); small: shrunk references, made when needed.
    """

    shape: Shape
    references: list[Reference]
    features: FeatureMap
    up: Array
    rest_rotation: Array
    rest_height: float
    contact_height: float
    small: dict[int, list[Reference]] = field(default_factory=dict)

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


def shrink_image(image: Image, intrinsics: Array, factor: int) -> tuple[Image, Array]:
    """Image (h, w) and intrinsics (4,) at 1/factor of the size (area averages)."""
    h, w = image.shape
    size = (max(w // factor, 1), max(h // factor, 1))
    cut = image[: size[1] * factor, : size[0] * factor]
    small = np.asarray(cv2.resize(cut, size, interpolation=cv2.INTER_AREA), np.uint8)
    half = np.array([0.0, 0.0, 1.0, 1.0]) * (0.5 - 0.5 / factor)
    return small, intrinsics / factor - half


def build_model(
    vertices: Array,
    faces: NDArray[np.integer],
    images: NDArray[np.uint8],
    intrinsics: Array,
    T_world_camera: Array,
    T_world_object: Array,
) -> ObjectModel:
    """The model from a mesh and posed scan frames of the resting object.

    Args:
        vertices: (v, 3) m, object frame.
        faces: (f, 3) vertex indices.
        images: (n, h, w) grey or (n, h, w, 3) RGB, undistorted.
        intrinsics: (n, 4) fx, fy, cx, cy in px.
        T_world_camera: (n, 4, 4); the world is the scan's, table at z = 0.
        T_world_object: (4, 4) pose of the object frame in the scan's world.

    Raises:
        InputError: no image, or the mesh is out of all proportion to the scan (wrong unit).
    """
    if len(images) == 0:
        raise InputError(
            "track: the scan has no frame; expected at least one posed reference image"
        )
    shape = Shape(vertices, faces)
    distance = float(
        np.median(np.linalg.norm(T_world_camera[:, :3, 3] - T_world_object[:3, 3], axis=1))
    )
    if not 0.01 < shape.diameter / distance < 3.0:
        raise InputError(
            f"track: the mesh is {shape.diameter:.3g} m across but the scan cameras stand "
            f"{distance:.3g} m away; expected a ratio of 0.01 to 3: check the unit of the mesh "
            "(metres, not millimetres)"
        )
    references = []
    for image, k, camera in track(
        list(zip(images, intrinsics, T_world_camera, strict=True)), "scan references"
    ):
        grey = to_grey(np.asarray(image))
        reference = shape.reference(grey, k, np.linalg.inv(camera) @ T_world_object)
        if (reference.depth > 0).sum() > 50:
            references.append(reference)
    if not references:
        raise InputError(
            "track: the object is in none of the scan frames; check poses and mesh frame"
        )
    lowest = float((shape.hull @ T_world_object[2, :3]).min() + T_world_object[2, 3])
    return ObjectModel(
        shape=shape,
        references=references,
        features=build_map(references),
        up=np.array(T_world_object[2, :3]),
        rest_rotation=np.array(T_world_object[:3, :3]),
        rest_height=float(T_world_object[2, 3]),
        contact_height=lowest,
    )


def to_grey(image: Image) -> Image:
    """Grey image (h, w) u1 of an RGB or grey one (ITU-R BT.601 weights, fixed point)."""
    if image.ndim == 2:
        return np.ascontiguousarray(image)
    return np.asarray(cv2.cvtColor(np.ascontiguousarray(image), cv2.COLOR_RGB2GRAY), np.uint8)
