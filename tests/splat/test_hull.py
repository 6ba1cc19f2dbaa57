"""Visual hulls against closed forms."""

import numpy as np
import pytest
import trimesh

from tests.splat.synthetic import rounded_box, scan
from twinloop.errors import InputError
from twinloop.geometry import se3
from twinloop.geometry.decimate import decimate
from twinloop.geometry.mesh import mass_properties
from twinloop.geometry.surface import TriangleSurface
from twinloop.splat import surface
from twinloop.splat.hull import hull_mesh
from twinloop.splat.views import Views, matte, signed_distance


def views_of(frames, keep) -> Views:  # type: ignore[no-untyped-def]
    """The frames at `keep` as views."""
    T = se3.from_position_quaternion(
        frames.position_world_camera.values, frames.quaternion_world_camera.values
    )
    return Views(
        frames.image.values[keep],
        frames.mask.values[keep],
        frames.intrinsics.values[keep],
        se3.inverse(T)[keep],
    )


@pytest.fixture(scope="module")
def box_views() -> Views:
    """Views of a rounded box on the table."""
    frames = scan(rounded_box(), views=24, width=160, height=120, supersample=2).frames
    return views_of(frames, ~frames.held_out.values)


def test_signed_distance_is_subpixel_on_a_slanted_edge() -> None:
    """A half plane's distance image is linear through zero to a tenth of a pixel."""
    rows, columns = np.indices((60, 80))
    normal = np.array([np.cos(0.4), np.sin(0.4)])
    exact = columns * normal[0] + rows * normal[1] - 38.3
    found = signed_distance(np.where(exact >= 0, 255, 0).astype(np.uint8))
    inner = (rows > 12) & (rows < 47) & (columns > 12) & (columns < 67)
    near = (np.abs(exact) < 1.5) & inner
    assert np.abs(found - exact)[near].mean() < 0.12
    assert abs((found - exact)[near].mean()) < 0.03
    far = (np.abs(exact) > 4) & (np.abs(exact) < 9) & inner
    assert np.abs(found - exact)[far].max() < 1.0


def test_matte_keeps_the_area() -> None:
    """The covered area of a disc is that of the disc."""
    rows, columns = np.indices((80, 80))
    mask = np.where(np.hypot(rows - 40.2, columns - 39.7) <= 25, 255, 0).astype(np.uint8)
    assert matte(mask).sum() == pytest.approx(np.pi * 25**2, rel=0.01)


def test_sphere_hull_has_the_sphere_s_radius() -> None:
    """The hull of a hovering sphere seen all around is the sphere, to a tenth of a cell outward."""
    ball = trimesh.creation.icosphere(4, 0.04)
    ball.apply_translation([0.01, -0.02, 0.2])
    frames = scan(
        ball, views=36, width=120, height=120, supersample=2, elevations=(-50, -10, 30, 65)
    ).frames
    vertices, faces = hull_mesh(views_of(frames, np.ones(36, bool)), 40)
    radius = np.linalg.norm(vertices - [0.01, -0.02, 0.2], axis=1)
    assert radius.mean() == pytest.approx(0.04, abs=0.0006)
    assert radius.min() > 0.0385
    assert surface.is_watertight(faces)


def test_box_hull_is_closed_on_the_table_and_tight(box_views: Views) -> None:
    """The hull contains the box, is flat on z = 0, watertight, and within 1 mm of it on average."""
    vertices, faces = hull_mesh(box_views, 48)
    vertices = surface.smooth(vertices, faces, 10, 0.0, 0.1 / 48)
    thin, thin_faces, error = decimate(vertices, faces, 3000)
    assert surface.is_watertight(faces)
    assert surface.is_watertight(thin_faces)
    assert error < 1e-3
    assert len(thin_faces) <= 3000
    assert abs(thin[:, 2].min()) < 1e-4
    truth = rounded_box()
    distance, _ = TriangleSurface(truth.vertices, truth.faces).signed_distance(thin)
    assert np.abs(distance).mean() < 1e-3
    volume = mass_properties(thin, thin_faces).volume
    assert truth.volume * 0.98 < volume < truth.volume * 1.1


def test_smoothing_keeps_the_volume() -> None:
    """Taubin smoothing takes noise off a sphere and keeps its volume within half a percent."""
    ball = trimesh.creation.icosphere(4, 0.05)
    noise = np.random.default_rng(0).normal(0, 4e-4, len(ball.vertices))
    rough = ball.vertices * (1 + noise / 0.05)[:, None]
    faces = ball.faces.astype(np.int32)
    smooth = surface.smooth(rough, faces, 10)
    assert mass_properties(smooth, faces).volume == pytest.approx(
        mass_properties(ball.vertices, faces).volume, rel=0.005
    )
    spread = np.linalg.norm(smooth, axis=1).std()
    assert spread < 0.5 * np.linalg.norm(rough, axis=1).std()


def test_largest_piece_drops_specks() -> None:
    """Of two spheres only the larger survives, with its indices compacted."""
    big, small = trimesh.creation.icosphere(2, 1.0), trimesh.creation.icosphere(3, 0.1)
    vertices = np.concatenate([small.vertices + 5, big.vertices])
    faces = np.concatenate([small.faces, big.faces + len(small.vertices)]).astype(np.int32)
    kept, kept_faces = surface.largest_piece(vertices, faces)
    assert len(kept) == len(big.vertices)
    assert mass_properties(kept, kept_faces).volume == pytest.approx(big.volume)


def test_bad_masks_are_explained(box_views: Views) -> None:
    """All-black masks, and masks that no point in space fits, say what to check."""
    black = Views(
        box_views.image,
        np.zeros_like(box_views.mask),
        box_views.intrinsics,
        box_views.T_camera_world,
    )
    with pytest.raises(InputError, match="0 of 21 training frames"):
        hull_mesh(black, 32)
    mixed = box_views.mask.copy()
    mixed[::2] = 0
    mixed[::2, :8, :8] = 255
    torn = Views(box_views.image, mixed, box_views.intrinsics, box_views.T_camera_world)
    with pytest.raises(InputError, match="disagree"):
        hull_mesh(torn, 32)
