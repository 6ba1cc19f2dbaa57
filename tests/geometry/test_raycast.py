"""Ray-cast images against closed forms."""

import numpy as np
import pytest
import trimesh

from twinloop.errors import InputError
from twinloop.geometry.raycast import MeshRenderer, render_mesh

INTRINSICS = np.array([120.0, 130.0, 40.25, 30.5])


def pose(distance: float) -> np.ndarray:
    """A camera that looks at the origin from -z at `distance`, turned about its axis."""
    T = np.eye(4)
    c, s = np.cos(0.3), np.sin(0.3)
    T[:2, :2] = [[c, -s], [s, c]]
    T[2, 3] = distance
    return T


def test_box_front_face_has_constant_depth_and_normal() -> None:
    """The near face of a box is a plane of one depth whose outward normal faces the camera."""
    box = trimesh.creation.box((0.2, 0.2, 0.1))
    image = render_mesh(box.vertices, box.faces, INTRINSICS, 80, 60, pose(0.5))
    front = image.mask & (np.abs(image.normal[..., 2]) > 0.5)
    assert front.sum() > 500
    np.testing.assert_allclose(image.depth[front], 0.45, atol=1e-6)
    np.testing.assert_allclose(image.normal[front], [[0, 0, -1]] * int(front.sum()), atol=1e-6)


def test_sphere_silhouette_and_points() -> None:
    """The hit points lie on the sphere and the silhouette is the tangent cone of it."""
    radius, distance = 0.08, 0.4
    sphere = trimesh.creation.icosphere(5, radius)
    image = render_mesh(sphere.vertices, sphere.faces, INTRINSICS, 80, 60, pose(distance))
    points = image.points(INTRINSICS)[image.mask] - [0, 0, distance]
    np.testing.assert_allclose(np.linalg.norm(points, axis=1), radius, atol=radius * 2e-3)
    rows, columns = np.indices(image.depth.shape)
    ray = np.hypot(
        (columns - INTRINSICS[2]) / INTRINSICS[0], (rows - INTRINSICS[3]) / INTRINSICS[1]
    )
    cone = np.tan(np.arcsin(radius / distance))
    assert image.mask[ray < cone * 0.99].all()
    assert not image.mask[ray > cone].any()


def test_barycentric_interpolates_positions() -> None:
    """Vertex positions carried by the barycentric weights are the hit points."""
    sphere = trimesh.creation.icosphere(3, 0.08)
    T = pose(0.4)
    image = render_mesh(sphere.vertices, sphere.faces, INTRINSICS, 80, 60, T)
    carried = image.interpolate(sphere.vertices, sphere.faces)[image.mask] @ T[:3, :3].T + T[:3, 3]
    np.testing.assert_allclose(carried, image.points(INTRINSICS)[image.mask], atol=2e-6)


def test_crop_is_a_shift_of_the_principal_point() -> None:
    """A crop rendered with a shifted principal point equals the same pixels of the whole image."""
    sphere = trimesh.creation.icosphere(3, 0.08)
    renderer = MeshRenderer(sphere.vertices, sphere.faces)
    whole = renderer.render(INTRINSICS, 80, 60, pose(0.4))
    crop = renderer.render(INTRINSICS - [0, 0, 17, 9], 40, 30, pose(0.4))
    assert (crop.mask == whole.mask[9:39, 17:57]).mean() > 0.999
    np.testing.assert_allclose(crop.depth.max(), whole.depth[9:39, 17:57].max(), atol=1e-5)


def test_faults_are_named() -> None:
    """Empty meshes, indices out of range and NaN are refused with the value in the message."""
    with pytest.raises(InputError, match="0 faces"):
        MeshRenderer(np.zeros((3, 3)), np.zeros((0, 3), int))
    with pytest.raises(InputError, match="inside the vertex list"):
        MeshRenderer(np.zeros((3, 3)), np.array([[0, 1, 3]]))
    with pytest.raises(InputError, match="vertex 1"):
        MeshRenderer(np.array([[0, 0, 0], [np.nan, 0, 0], [1, 0, 0]]), np.array([[0, 1, 2]]))
