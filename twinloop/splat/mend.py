"""Mend masks by the shape that most of them agree on."""

from __future__ import annotations

import cv2
import numpy as np

from twinloop.geometry.raycast import MeshRenderer
from twinloop.splat.surface import Faces, Float
from twinloop.splat.views import Views


def mend_masks(vertices: Float, faces: Faces, views: Views, margin: int = 2) -> Views:
    """The views with masks that differ from the mesh's outline by `margin` px at most.

    A mask of one picture may swallow a bright tag behind the object, or miss a shadowed corner; the
    other pictures know better. Only for pictures that the mesh was made from.
    """
    renderer = MeshRenderer(vertices, faces)
    kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * margin + 1, 2 * margin + 1))
    height, width = views.mask.shape[1:]
    masks = np.empty_like(views.mask)
    for i in range(len(views)):
        drawn = renderer.render(views.intrinsics[i], width, height, views.T_camera_world[i]).mask
        outline = drawn.astype(np.uint8) * 255
        outer, inner = cv2.dilate(outline, kernel), cv2.erode(outline, kernel)
        masks[i] = np.maximum(np.minimum(views.mask[i], outer), inner)
    return Views(views.image, masks, views.intrinsics, views.T_camera_world)
