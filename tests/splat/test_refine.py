"""Photometric refinement and mending of masks on a rendered box."""

import numpy as np
import pytest
import trimesh

from tests.splat import synthetic
from tests.splat.test_hull import views_of
from twinloop.geometry.surface import TriangleSurface
from twinloop.splat import surface
from twinloop.splat.hull import hull_mesh
from twinloop.splat.mend import mend_masks
from twinloop.splat.refine import RefineSettings, refine, visible_views
from twinloop.splat.views import Views

BOX = synthetic.rounded_box()


def soft_texture(points: np.ndarray) -> np.ndarray:
    """Blotches of some millimetres, which pictures of two pixels per three millimetres resolve."""
    random = np.random.default_rng(3)
    colour = np.full((len(points), 3), 0.5)
    for scale in (150.0, 300.0, 450.0):
        colour += 0.16 * np.sin(
            points @ (random.normal(size=(3, 3)) * scale) + random.uniform(0, 6)
        )
    return colour.clip(0, 1)


def views_with(texture, monkeypatch: pytest.MonkeyPatch) -> Views:  # type: ignore[no-untyped-def]
    """Views of the box from low cameras that leave a bulge on its top."""
    monkeypatch.setattr(synthetic, "texture", texture)
    frames = synthetic.scan(
        BOX, views=30, width=200, height=150, supersample=2, elevations=(25.0, 45.0, 60.0)
    ).frames
    return views_of(frames, np.ones(30, bool))


def error_of(vertices: np.ndarray, top: bool) -> float:
    """Mean distance (m) of vertices to the box, of those near the top or of all."""
    chosen = vertices[vertices[:, 2] > 0.08] if top else vertices
    distance, _ = TriangleSurface(BOX.vertices, BOX.faces).signed_distance(chosen[::3])
    return float(np.abs(distance).mean())


def test_texture_flattens_the_bulge(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a textured box the error over the top falls to under half, and the base stays at 0."""
    views = views_with(soft_texture, monkeypatch)
    vertices, faces = hull_mesh(views, 40)
    vertices = surface.smooth(vertices, faces, 6, 0.0, 0.0025)
    moved = refine(vertices, faces, views, RefineSettings(), 0.0)
    assert error_of(moved, top=True) < 0.5 * error_of(vertices, top=True)
    assert error_of(moved, top=False) < 0.0006
    assert abs(moved[:, 2].min()) < 1e-4
    np.testing.assert_array_equal(moved, refine(vertices, faces, views, RefineSettings(), 0.0))


def test_without_texture_the_hull_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a plain box refinement does little: the error grows by less than a half."""
    views = views_with(lambda points: np.full((len(points), 3), 0.4), monkeypatch)
    vertices, faces = hull_mesh(views, 32)
    vertices = surface.smooth(vertices, faces, 6, 0.0, 0.003)
    moved = refine(vertices, faces, views, RefineSettings(), 0.0)
    assert error_of(moved, top=False) < 1.5 * error_of(vertices, top=False)


def test_visible_views_face_the_vertex(monkeypatch: pytest.MonkeyPatch) -> None:
    """No view is chosen from behind a face, and the top is seen by the most."""
    views = views_with(soft_texture, monkeypatch)
    box = trimesh.Trimesh(*trimesh.remesh.subdivide_to_size(BOX.vertices, BOX.faces, 0.01))
    faces = box.faces.astype(np.int32)
    normals = surface.vertex_normals(box.vertices, faces)
    chosen = visible_views(box.vertices, faces, normals, views, 6)
    rotation = views.T_camera_world[:, :3, :3]
    eye = -np.einsum("vji,vj->vi", rotation, views.T_camera_world[:, :3, 3])
    for slot in range(6):
        has = chosen[:, slot] >= 0
        ray = eye[chosen[has, slot]] - box.vertices[has]
        assert (np.einsum("vi,vi->v", ray, normals[has]) > 0).all()
    assert (chosen[normals[:, 2] > 0.99, -1] >= 0).mean() > 0.9
    assert (chosen[normals[:, 2] < -0.9] < 0).all()


def test_masks_are_mended_within_two_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    """A blob beside the object goes, a hole in it is filled, a pixel more or less stays."""
    views = views_with(soft_texture, monkeypatch)
    bad = views.mask.copy()
    bad[:, :20, :20] = 255
    rows, columns = np.nonzero(bad[0, 30:] >= 128)
    bad[0, 30 + int(rows.mean()), int(columns.mean())] = 0
    broken = Views(views.image, bad, views.intrinsics, views.T_camera_world)
    mended = mend_masks(BOX.vertices, BOX.faces.astype(np.int32), broken)
    assert (mended.mask != views.mask).mean() < 1e-3
