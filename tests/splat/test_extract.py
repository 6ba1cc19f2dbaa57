"""From surfels to meshes: sinkage measured, unseen parts marked, depth modes, second scans."""

import numpy as np
import pytest
import torch
import trimesh

from tests.splat.test_tsdf import SIZE, K, ball, depth_views
from twinloop.errors import InputError
from twinloop.geometry import se3
from twinloop.geometry.raycast import MeshRenderer
from twinloop.splat.extract import (
    ExtractSettings,
    extract_mesh,
    half_sample_mode,
    mesh_of,
    render_depth,
    sinkage,
)
from twinloop.splat.hull import silhouettes
from twinloop.splat.inferred import inferred_faces, merge_scans, unseen_vertices
from twinloop.splat.surface import is_watertight, vertex_normals
from twinloop.splat.surfel_losses import normal_consistency, prior_agreement
from twinloop.splat.surfels import Surfels, on_surface
from twinloop.splat.tsdf import Fusion, FusionSettings, fuse
from twinloop.splat.views import Views

CENTRE = np.array([0.01, -0.02, 0.2])
FUSION = FusionSettings(cell=1.2)


def sunk_depth(views: Views, shapes, mesh: trimesh.Trimesh) -> np.ndarray:  # type: ignore[no-untyped-def]
    """Depth of another mesh on the same crops."""
    renderer = MeshRenderer(mesh.vertices, mesh.faces)
    height, width = shapes.distance.shape[1:]
    out = []
    for T, (x, y) in zip(views.T_camera_world, shapes.corner.astype(int), strict=True):
        out.append(renderer.render(K, SIZE, SIZE, T).depth[y : y + height, x : x + width])
    return np.stack(out)


def test_sinkage_is_measured_and_removed() -> None:
    """Depth that lies 1 mm too deep everywhere is found to, from the outlines alone."""
    views, shapes, _ = depth_views(ball(), count=9)
    fusion = fuse(views, shapes, sunk_depth(views, shapes, ball(0.039)), FUSION)
    found = sinkage(fusion)
    assert found == pytest.approx(1e-3, abs=1.2e-4)
    vertices, _ = fusion.field(found).mesh()
    assert abs(np.linalg.norm(vertices - CENTRE, axis=1).mean() - 0.04) < 1.2e-4


def test_a_dent_is_not_taken_for_sinkage() -> None:
    """Of a bowl, whose inside lies far below its hull, true depth has no sinkage."""
    lathe = trimesh.creation.revolve(
        np.array([[0, -0.02], [0.05, -0.02], [0.05, 0.02], [0.04, 0.02], [0.03, 0.0], [0, 0.0]]),
        sections=96,
    )
    views, shapes, depth = depth_views(lathe, elevations=(-30.0, 25.0, 55.0))
    assert abs(sinkage(fuse(views, shapes, depth, FUSION))) < 1e-4


def test_depth_near_the_hull_becomes_the_hull() -> None:
    """Within half of `agree` the hull's distance is taken, beyond it the depths', never outside."""
    hull = np.full((2, 2, 5), 1e-3, np.float32)
    surface = hull - np.array([0.0, 2e-4, 4.5e-4, 7e-4, -1e-3], np.float32)
    fusion = Fusion(surface, hull, np.zeros(3), 1e-3, 1e-3, FusionSettings(slack=0.1))
    got = fusion.field(0.0, agree=0.6).value[0, 0]
    np.testing.assert_allclose(got, [1e-3, 1e-3, 7.75e-4, 3e-4, 1.1e-3], atol=1e-8)
    plain = fusion.field(1e-4).value[0, 0]
    np.testing.assert_allclose(plain, [1.1e-3, 9e-4, 6.5e-4, 4e-4, 1.1e-3], atol=1e-8)


def test_half_sample_mode_ignores_a_long_tail() -> None:
    """The mode of a narrow heap under a wide spread of others is the heap's place."""
    random = np.random.default_rng(0)
    values = np.concatenate([random.normal(0.7, 0.05, 4000), random.uniform(0, 5, 6000)])
    assert half_sample_mode(np.sort(values)) == pytest.approx(0.7, abs=0.05)


def test_only_the_underside_is_inferred() -> None:
    """Of a ball cut by the table, the flat base is marked and the seen side is not."""
    views, shapes, depth = depth_views(ball(0.04, (0.0, 0.0, 0.03)), elevations=(20.0, 45.0, 70.0))
    fusion = fuse(views, shapes, depth, FusionSettings(cell=1.2, table=0.0))
    mesh = mesh_of(fusion.field(), views)
    height = mesh.vertices[:, 2]
    inner = np.hypot(*mesh.vertices.T[:2]) < 0.02
    assert mesh.inferred[(height < 1e-4) & inner].all()
    assert not mesh.inferred[height > 0.02].any()
    base = mesh.vertices[mesh.faces].mean(axis=1)
    assert mesh.inferred_faces[(base[:, 2] < 1e-4) & (np.hypot(*base.T[:2]) < 0.02)].all()
    assert is_watertight(mesh.faces)
    np.testing.assert_allclose(np.linalg.norm(mesh.normals, axis=1), 1, atol=1e-6)


def test_a_hidden_vertex_is_unseen() -> None:
    """A ball behind a plate, looked at from the front, is unseen; the plate's front is not."""
    plate = trimesh.creation.box((0.2, 0.2, 0.01))
    behind = trimesh.creation.icosphere(2, 0.02)
    behind.apply_translation([0, 0, 0.05])
    both = trimesh.util.concatenate([plate.subdivide().subdivide(), behind])
    T = np.eye(4)
    T[2, 3] = 0.4
    views = Views(
        np.zeros((1, SIZE, SIZE, 3), np.uint8),
        np.full((1, SIZE, SIZE), 255, np.uint8),
        K[None],
        T[None],
    )
    faces = both.faces.astype(np.int32)
    unseen = unseen_vertices(both.vertices, faces, vertex_normals(both.vertices, faces), views)
    front = both.vertices[:, 2] < -0.004
    middle = np.abs(both.vertices[:, :2]).max(axis=1) < 0.09
    assert not unseen[front & middle].any()
    assert unseen[both.vertices[:, 2] > 0.02].all()
    assert inferred_faces(unseen, faces)[-1]


def test_a_second_scan_shows_the_underside() -> None:
    """With views of the object turned over, nothing is inferred and the whole ball is round."""
    above, _, first = depth_views(ball(), elevations=(25.0, 60.0), count=8)
    turn = np.diag([1.0, -1.0, -1.0, 1.0])
    turn[:3, 3] = [0.3, 0.1, 0.4]
    flipped = ball()
    flipped.apply_transform(turn)
    below, _, second = depth_views(flipped, elevations=(25.0, 60.0), count=8)
    views = merge_scans(above, below, turn)
    shapes = silhouettes(views.mask)
    depth = sunk_depth(views, shapes, ball())
    assert len(views) == len(first) + len(second)
    mesh = mesh_of(fuse(views, shapes, depth, FUSION).field(), views)
    assert not mesh.inferred.any()
    radius = np.linalg.norm(mesh.vertices - CENTRE, axis=1)
    assert np.abs(radius - 0.04).mean() < 1e-4
    with pytest.raises(InputError, match="no rigid motion"):
        merge_scans(above, below, 2 * np.eye(4))


def surfels_of(mesh: trimesh.Trimesh, count: int = 6000) -> Surfels:
    """Opaque surfels spread over a mesh."""
    colors = np.full((len(mesh.vertices), 3), 128, np.uint8)
    return on_surface(mesh.vertices, mesh.faces, colors, count, 0, 0, opacity=0.98)


def test_surfels_on_a_sphere_give_the_sphere() -> None:
    """Surfels that lie on a sphere give its radius to 0.1 mm, 1.7 mm a pixel, closed."""
    views, _, _ = depth_views(ball(), count=8)
    mesh = extract_mesh(surfels_of(ball()), views, ExtractSettings(fusion=FUSION))
    radius = np.linalg.norm(mesh.vertices - CENTRE, axis=1)
    assert np.abs(radius - 0.04).mean() < 1.5e-4
    assert is_watertight(mesh.faces)
    assert not mesh.inferred.any()
    assert np.median(np.einsum("vk,vk->v", mesh.normals, (mesh.vertices - CENTRE) / 0.04)) > 0.99


def test_depth_of_surfels_is_where_rays_cross_them() -> None:
    """On a few large surfels tangent to a sphere, crossings differ from centres as they must."""
    views, shapes, truth = depth_views(ball(), count=3)
    made = surfels_of(ball(), 3000)
    both = truth > 0
    errors = {}
    for depth in ("intersection", "center"):
        found = render_depth(made, views, shapes, ExtractSettings(depth=depth))  # type: ignore[arg-type]
        use = both & (found > 0)
        errors[depth] = float(np.abs(found - truth)[use].mean())
    assert errors["intersection"] < 0.6 * errors["center"]


def test_surfels_that_no_view_shows_are_refused() -> None:
    """No surfels, and surfels a metre away, say so."""
    views, shapes, _ = depth_views(ball(), count=2)
    far = ball()
    far.apply_translation([5.0, 0, 0])
    with pytest.raises(InputError, match="no view shows any"):
        render_depth(surfels_of(far, 50), views, shapes, ExtractSettings())
    empty = Surfels(*(np.zeros((0, *s), np.float32) for s in ((3,), (4,), (2,), (), (1, 3))))
    with pytest.raises(InputError, match="there are none"):
        render_depth(empty, views, shapes, ExtractSettings())


def test_normal_terms_are_zero_when_normals_agree_and_grow_with_the_angle() -> None:
    """1 - cosine over the covered pixels; the rest of the picture counts as zero."""
    alpha = torch.zeros(8, 8)
    alpha[2:6, 2:6] = 1.0
    surface = torch.zeros(8, 8, 3)
    surface[2:6, 2:6, 2] = 1.0
    turned = torch.zeros(8, 8, 3)
    turned[2:6, 2:6] = torch.tensor([np.sin(0.5), 0.0, np.cos(0.5)], dtype=torch.float32)
    assert float(normal_consistency(surface, surface, alpha)) == 0.0
    wanted = (1 - np.cos(0.5)) * 16 / 64
    assert float(normal_consistency(turned, surface, alpha)) == pytest.approx(wanted, rel=1e-5)
    assert float(prior_agreement(turned, surface, alpha)) == pytest.approx(wanted, rel=1e-5)


def test_merged_views_keep_their_cameras() -> None:
    """A point seen through a merged camera falls on the same pixel as in its own scan."""
    views, _, _ = depth_views(ball(), count=2)
    turn = se3.inverse(views.T_camera_world[0])
    merged = merge_scans(views, views, turn)
    point = np.array([0.02, 0.01, 0.19, 1.0])
    there = merged.T_camera_world[len(views)] @ point
    np.testing.assert_allclose(there, views.T_camera_world[0] @ turn @ point, atol=1e-12)
