"""Stereo in hollows: the floor of a bowl that no outline shows."""

import numpy as np
import pytest
import trimesh

from tests.splat.test_tsdf import SIZE, ball, depth_views
from tests.splat.textured import textured
from twinloop.splat.hull import hull_mesh
from twinloop.splat.stereo import StereoSettings, _coarse, _dense, hollowed
from twinloop.splat.surface import is_watertight
from twinloop.splat.views import Views


@pytest.fixture(scope="module")
def bowl() -> Views:
    """A textured bowl, 10 cm wide with a floor 2 cm below its rim, in 20 pictures."""
    lathe = trimesh.creation.revolve(
        np.array([[0, -0.02], [0.05, -0.02], [0.05, 0.02], [0.045, 0.02], [0.035, 0.0], [0, 0.0]]),
        sections=48,
    )
    views, _, _ = depth_views(lathe, elevations=(20.0, 55.0), count=10)
    return textured(lathe, views)


def test_a_bowl_is_hollow(bowl: Views) -> None:
    """The hull's lid goes down to the floor, to a pixel (1.9 mm) in the median, and is closed."""
    vertices, faces = hull_mesh(bowl, 40, 0, -0.02)
    assert _floor(vertices) > 6e-3
    found, triangles = hollowed(vertices, faces, bowl, StereoSettings(cell=1.0), 0, -0.02)
    assert abs(_floor(found)) < 1.9e-3
    assert is_watertight(triangles)
    assert trimesh.Trimesh(found, triangles).volume < 0.9 * trimesh.Trimesh(vertices, faces).volume


def _floor(vertices: np.ndarray) -> float:
    """Height (m) of the upper side of a mesh around the axis, median."""
    middle = np.hypot(*vertices.T[:2]) < 0.02
    return float(np.median(vertices[middle & (vertices[:, 2] > -0.015), 2]))


def test_without_texture_the_hull_stays() -> None:
    """Plain pictures agree at any depth, which is no depth."""
    views, _, _ = depth_views(ball(), count=3)
    plain = np.where(views.mask[..., None] > 0, 128, 0).repeat(3, -1).astype(np.uint8)
    views = Views(plain, views.mask, views.intrinsics, views.T_camera_world, coverage=True)
    vertices, faces = hull_mesh(views, 30, 0, None)
    found, _ = hollowed(vertices, faces, views)
    assert found is vertices


def test_coarse_pictures_keep_their_geometry(bowl: Views) -> None:
    """The centre of a block of four pixels is the coarse pixel's; small pictures stay."""
    assert _coarse(bowl, 160) is bowl
    small = _coarse(bowl, 30)
    factor = SIZE // small.mask.shape[2]
    assert factor >= 2
    point = np.array([0.01, 0.02, 0.0, 1.0])
    for views, scale in ((bowl, 1), (small, factor)):
        p = (views.T_camera_world[0] @ point)[:3]
        k = views.intrinsics[0]
        at = (k[:2] * p[:2] / p[2] + k[2:] + 0.5) * scale - 0.5
        if scale == 1:
            wanted = at
    np.testing.assert_allclose(at, wanted, atol=1e-9)


def test_depth_between_looked_at_pixels_is_of_the_plane() -> None:
    """Every third pixel of a slanted plane gives every pixel of it, and nothing beyond a gap."""
    rows, columns = np.indices((30, 30))
    plane = (1 / (2.0 + 0.01 * columns + 0.005 * rows)).astype(np.float32)
    grid = plane[::3, ::3].copy()
    grid[4, 4] = 0
    dense = _dense(grid, (30, 30), 3)
    known = dense > 0
    np.testing.assert_allclose(dense[known], plane[known], rtol=1e-5)
    assert known[:10, :28].all()
    assert not known[10:15, 10:15].any()
