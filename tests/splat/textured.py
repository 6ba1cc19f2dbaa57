"""Pictures of a textured mesh through given cameras, mean of 3 x 3 rays a pixel."""

import numpy as np
import trimesh

from tests.splat.synthetic import texture
from twinloop.geometry.raycast import MeshRenderer
from twinloop.splat.views import Views


def textured(mesh: trimesh.Trimesh, views: Views, scale: float = 0.4) -> Views:
    """The same views, showing the mesh with the texture of `tests.splat.synthetic`."""
    renderer = MeshRenderer(mesh.vertices, mesh.faces)
    centre = mesh.bounds.mean(axis=0)
    height, width = views.mask.shape[1:]
    images = np.zeros_like(views.image)
    for i, (k, T) in enumerate(zip(views.intrinsics, views.T_camera_world, strict=True)):
        fine = np.r_[3 * k[:2], 3 * (k[2:] + 0.5) - 0.5]
        hit = renderer.render(fine, 3 * width, 3 * height, T)
        points = (hit.points(fine) - T[:3, 3]) @ T[:3, :3]
        colour = texture(scale * (points.reshape(-1, 3) - centre)).reshape(points.shape)
        colour *= hit.mask[..., None]
        total = colour.reshape(height, 3, width, 3, 3).sum(axis=(1, 3))
        count = hit.mask.reshape(height, 3, width, 3).sum(axis=(1, 3))
        images[i] = np.rint(255 * total / np.maximum(count, 1)[..., None])
    return Views(images, views.mask, views.intrinsics, views.T_camera_world, coverage=True)
