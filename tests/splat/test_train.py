"""Training, colours and quality on a small rendered box."""

import numpy as np
import pytest

from tests.splat.synthetic import rounded_box, scan, texture
from tests.splat.test_hull import views_of
from twinloop.splat.color import vertex_colors
from twinloop.splat.gaussians import Gaussians, on_surface
from twinloop.splat.quality import compare, psnr
from twinloop.splat.train import TrainSettings, train
from twinloop.splat.views import Views

BOX = rounded_box()


@pytest.fixture(scope="module")
def views() -> tuple[Views, Views]:
    """Training and held-out views of the box."""
    frames = scan(BOX, views=24, width=100, height=76, supersample=2).frames
    held_out = frames.held_out.values
    return views_of(frames, ~held_out), views_of(frames, held_out)


@pytest.fixture(scope="module")
def start(views: tuple[Views, Views]) -> Gaussians:
    """Gaussians on the box's surface in the colours that the pictures show."""
    faces = BOX.faces.astype(np.int32)
    colors = vertex_colors(BOX.vertices, faces, views[0])
    return on_surface(BOX.vertices, faces, colors, 700, 1, seed=0)


def test_surface_gaussians_lie_on_it_and_face_outward(start: Gaussians) -> None:
    """The start lies on the mesh, its thin axis along the normal, evenly spread over the area."""
    from twinloop.geometry import quaternion
    from twinloop.geometry.surface import TriangleSurface

    near = TriangleSurface(BOX.vertices, BOX.faces).closest(start.means.astype(float))
    assert near.distance.max() < 1e-6
    axis = quaternion.to_matrix(start.quaternions.astype(float))[..., 2]
    assert np.median(np.einsum("ni,ni->n", axis, near.normal)) > 0.99
    top = (start.means[:, 2] > 0.0849).mean()
    exact = BOX.area_faces[BOX.face_normals[:, 2] > 0.999].sum() / BOX.area
    assert top == pytest.approx(exact, abs=0.02)


def test_vertex_colors_are_the_texture(views: tuple[Views, Views]) -> None:
    """Colours of vertices in plain view agree with the texture up to the shading."""
    colors = vertex_colors(BOX.vertices, BOX.faces.astype(np.int32), views[0]) / 255
    up = BOX.vertices[:, 2] > 0.08
    assert np.corrcoef(colors[up].ravel(), texture(BOX.vertices[up]).ravel())[0, 1] > 0.6


def test_training_improves_unseen_views_and_repeats(
    views: tuple[Views, Views], start: Gaussians
) -> None:
    """Held-out PSNR rises by 1.5 dB in 60 steps, and a second run gives the same bits."""
    settings = TrainSettings(iterations=60, densify_times=1, most=900)
    first = train(start, views[0], settings)
    before = np.mean([compare(start, views[1], i).psnr for i in range(len(views[1]))])
    after = np.mean([compare(first, views[1], i).psnr for i in range(len(views[1]))])
    assert after > before + 1.5
    assert len(start) < len(first) <= 900
    again = train(start, views[0], settings)
    for name in ("means", "quaternions", "scales", "opacities", "sh"):
        np.testing.assert_array_equal(getattr(first, name), getattr(again, name))


def test_quality_ignores_the_background(views: tuple[Views, Views], start: Gaussians) -> None:
    """Repainting everything outside the mask changes no score, painting on the object does."""
    plain = compare(start, views[1], 0)
    painted = views[1].image.copy()
    from scipy.ndimage import binary_dilation

    painted[~binary_dilation(views[1].mask >= 128, iterations=3)] = 17
    other = Views(painted, views[1].mask, views[1].intrinsics, views[1].T_camera_world)
    assert compare(start, other, 0).psnr == plain.psnr
    painted[views[1].mask >= 128] = 255
    other = Views(painted, views[1].mask, views[1].intrinsics, views[1].T_camera_world)
    assert compare(start, other, 0).psnr < plain.psnr - 1
    assert plain.overlap > 0.8


def test_psnr_closed_form() -> None:
    """A constant error of 0.1 is 20 dB."""
    assert psnr(np.full((5, 3), 0.1)) == pytest.approx(20.0)


def test_colors_of_more_vertices_than_a_picture_has_rows(views: tuple[Views, Views]) -> None:
    """Forty thousand vertices: OpenCV's remap takes 32766 rows, a fine mesh has more."""
    faces = BOX.faces.astype(np.int32)
    many = np.concatenate([BOX.vertices, np.tile(BOX.vertices[:1], (40_000, 1))])
    colors = vertex_colors(many, faces, views[0])
    few = vertex_colors(BOX.vertices, faces, views[0])
    np.testing.assert_array_equal(colors[: len(few)], few)
