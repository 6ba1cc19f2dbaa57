"""Surfels as arrays and as a dataset."""

import numpy as np
import pytest
import trimesh

from twinloop.errors import InputError
from twinloop.splat import surfels


def ball() -> surfels.Surfels:
    """Surfels on a sphere."""
    mesh = trimesh.creation.icosphere(3, 0.05)
    colors = np.full((len(mesh.vertices), 3), 200, np.uint8)
    return surfels.on_surface(mesh.vertices, mesh.faces, colors, 400, 1, 0)


def test_surfels_lie_on_the_surface_and_face_outward() -> None:
    """On a sphere each normal is the direction of its centre, to the facets' angle."""
    made = ball()
    radius = np.linalg.norm(made.means, axis=1)
    np.testing.assert_allclose(radius, 0.05, rtol=0.01)
    facing = np.einsum("nk,nk->n", made.normals, made.means / radius[:, None])
    assert facing.min() > 0.99
    assert made.scales.shape == (400, 2)
    assert made.degree == 1


def test_a_dataset_round_trips() -> None:
    """Written to a dataset and read back, every array is the same."""
    made = ball()
    back = surfels.Surfels.from_dataset(made.to_dataset())
    for name in ("means", "quaternions", "scales", "opacities", "sh"):
        np.testing.assert_array_equal(getattr(back, name), getattr(made, name))


def test_a_group_of_another_shape_is_refused() -> None:
    """Three scales a splat, as of 3D Gaussians, and a missing array are named."""
    group = ball().to_dataset()
    with pytest.raises(InputError, match="no scales"):
        surfels.Surfels.from_dataset(group.drop_vars("scales"))
    wide = group.drop_vars("scales").assign(scales=(("surfel", "xyz"), np.ones((400, 3))))
    with pytest.raises(InputError, match=r"scales has shape \(400, 3\)"):
        surfels.Surfels.from_dataset(wide)
