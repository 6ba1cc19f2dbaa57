"""Fusion of exact depth against closed forms."""

from dataclasses import replace

import numpy as np
import pytest
import trimesh

from twinloop.errors import InputError
from twinloop.geometry import camera, se3
from twinloop.geometry.raycast import MeshRenderer
from twinloop.geometry.surface import TriangleSurface
from twinloop.splat.hull import Silhouettes, silhouettes
from twinloop.splat.surface import is_watertight
from twinloop.splat.tsdf import FusionSettings, depth_cosines, fuse
from twinloop.splat.views import Views

K = np.array([180.0, 180.0, 59.5, 59.5])
SIZE = 120


def depth_views(
    mesh: trimesh.Trimesh, elevations: tuple[float, ...] = (-40.0, 10.0, 50.0), count: int = 7
) -> tuple[Views, Silhouettes, np.ndarray]:
    """Cameras around a mesh, `count` a ring, their outlines and true depth on the crops."""
    renderer = MeshRenderer(mesh.vertices, mesh.faces)
    centre = mesh.bounds.mean(axis=0)
    poses = []
    for ring, elevation in enumerate(np.radians(elevations)):
        for azimuth in (np.arange(count) + ring / 3) * 2 * np.pi / count:
            out = [
                np.cos(elevation) * np.cos(azimuth),
                np.cos(elevation) * np.sin(azimuth),
                np.sin(elevation),
            ]
            poses.append(se3.inverse(camera.look_at(centre + 0.4 * np.array(out), centre)))
    fine = np.r_[3 * K[:2], 3 * (K[2:] + 0.5) - 0.5]
    depth = np.stack([renderer.render(K, SIZE, SIZE, T).depth for T in poses])
    cover = [renderer.render(fine, 3 * SIZE, 3 * SIZE, T).mask for T in poses]
    mask = np.stack([c.reshape(SIZE, 3, SIZE, 3).mean(axis=(1, 3)) for c in cover])
    views = Views(
        np.zeros((len(poses), SIZE, SIZE, 3), np.uint8),
        np.round(255 * mask).astype(np.uint8),
        np.tile(K, (len(poses), 1)),
        np.stack(poses),
        coverage=True,
    )
    shapes = silhouettes(views.mask)
    height, width = shapes.distance.shape[1:]
    crops = [
        d[int(y) : int(y) + height, int(x) : int(x) + width]
        for d, (x, y) in zip(depth, shapes.corner, strict=True)
    ]
    return views, shapes, np.stack(crops)


def ball(radius: float = 0.04, centre: tuple[float, float, float] = (0.01, -0.02, 0.2)):  # type: ignore[no-untyped-def]
    """A fine sphere (m)."""
    made = trimesh.creation.icosphere(5, radius)
    made.apply_translation(centre)
    return made


def test_cosine_of_a_slanted_plane_is_exact() -> None:
    """From the inverse depth of a plane n.p = d the angle to every ray comes out exactly."""
    normal, offset = np.array([0.5, -0.3, -0.81]), -0.4
    rows, columns = np.indices((40, 50))
    ray = np.stack([(columns - 20) / 100, (rows - 22) / 100, np.ones((40, 50))], axis=-1)
    depth = (offset / (ray @ normal)).astype(np.float32)
    found = depth_cosines(depth, np.array([100.0, 100.0, 20.0, 22.0]))
    wanted = -(ray @ normal) / np.linalg.norm(ray, axis=-1) / np.linalg.norm(normal)
    np.testing.assert_allclose(found, wanted, atol=2e-4)


def test_cosine_at_a_depth_edge_is_of_the_surface_it_lies_on() -> None:
    """Beside a step between two planes that face the camera, both still face it."""
    depth = np.full((9, 20), 0.5, np.float32)
    depth[:, 10:] = 0.6
    depth[:, :2] = 0
    found = depth_cosines(depth, np.array([200.0, 200.0, 10.0, 4.0]))
    assert found[:, 2:].min() > 0.98
    assert (found[:, :2] == 0).all()


def test_sphere_from_exact_depth_is_unbiased() -> None:
    """True depth of a sphere, 1.7 mm a pixel, gives its radius to 0.03 mm and its normals."""
    views, shapes, depth = depth_views(ball())
    field = fuse(views, shapes, depth, FusionSettings(cell=1.0)).field()
    vertices, faces = field.mesh()
    offset = vertices - [0.01, -0.02, 0.2]
    radius = np.linalg.norm(offset, axis=1)
    assert abs(radius.mean() - 0.04) < 2e-5
    assert np.abs(radius - 0.04).mean() < 6e-5
    assert is_watertight(faces)
    cosine = np.einsum("vk,vk->v", field.normals(vertices), offset / radius[:, None])
    assert np.median(cosine) > 0.999


def test_field_is_metric_near_the_surface() -> None:
    """Half a reach in front of and behind a sphere the field is the distance, to 4 %."""
    views, shapes, depth = depth_views(ball())
    field = fuse(views, shapes, depth, FusionSettings(cell=1.0, slack=2.0)).field()
    points = np.stack(np.indices(field.value.shape), axis=-1) * field.step + field.origin
    exact = 0.04 - np.linalg.norm(points - [0.01, -0.02, 0.2], axis=-1)
    near = np.abs(exact) < 1.2e-3
    slope = np.polyfit(exact[near], field.value[near], 1)[0]
    assert slope == pytest.approx(1, abs=0.04)


def test_a_dent_that_no_outline_shows_is_found() -> None:
    """The hull of a bowl is full; depth hollows it out, to a tenth of a millimetre."""
    outer = trimesh.creation.cylinder(0.05, 0.04, sections=96)
    lathe = trimesh.creation.revolve(
        np.array([[0, -0.02], [0.05, -0.02], [0.05, 0.02], [0.04, 0.02], [0.03, 0.0], [0, 0.0]]),
        sections=96,
    )
    assert lathe.volume < 0.9 * outer.volume
    views, shapes, depth = depth_views(lathe, elevations=(-60.0, 25.0, 55.0))
    vertices, _ = fuse(views, shapes, depth, FusionSettings(cell=1.0)).field().mesh()
    inner = vertices[(np.hypot(*vertices.T[:2]) < 0.025) & (vertices[:, 2] > -0.01)]
    assert len(inner) > 300
    assert np.abs(inner[:, 2]).mean() < 1e-4
    distance, _ = TriangleSurface(lathe.vertices, lathe.faces).signed_distance(vertices[::5])
    assert np.abs(distance).mean() < 2e-4


def test_the_unseen_underside_is_closed_by_the_table() -> None:
    """Seen from above only, a ball is closed flat at the table's height, and watertight."""
    views, shapes, depth = depth_views(ball(0.04, (0.0, 0.0, 0.03)), elevations=(20.0, 45.0, 70.0))
    field = fuse(views, shapes, depth, FusionSettings(cell=1.0, table=0.0)).field()
    vertices, faces = field.mesh()
    assert is_watertight(faces)
    assert vertices[:, 2].min() == pytest.approx(0.0, abs=2e-5)
    base = np.hypot(*vertices[vertices[:, 2] < 2e-5].T[:2])
    assert base.max() == pytest.approx(np.sqrt(0.04**2 - 0.03**2), abs=1.5e-3)


def test_threads_do_not_change_a_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    """One, two and three threads give the same field."""
    views, shapes, depth = depth_views(ball(), count=3)
    fields = []
    for threads in ("1", "2", "3"):
        monkeypatch.setenv("TWINLOOP_THREADS", threads)
        fields.append(fuse(views, shapes, depth, FusionSettings(cell=1.5)).field().value.tobytes())
    assert fields[0] == fields[1] == fields[2]


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell that would take too many points grows until the grid fits."""
    monkeypatch.setattr("twinloop.splat.tsdf.MOST_CELLS", 20_000)
    views, shapes, depth = depth_views(ball(), count=3)
    field = fuse(views, shapes, depth, FusionSettings(cell=0.02))
    assert field.surface.size < 40_000


def test_bad_depth_is_named() -> None:
    """Another shape, a NaN, and no depth at all are refused with what was expected."""
    views, shapes, depth = depth_views(ball(), count=2)
    with pytest.raises(InputError, match=r"shape .* expected"):
        fuse(views, shapes, depth[:1])
    broken = depth.copy()
    broken[1, 2, 3] = np.nan
    with pytest.raises(InputError, match=r"nan at \(view, row, column\) \(1, 2, 3\)"):
        fuse(views, shapes, broken)
    with pytest.raises(InputError, match="no picture has any"):
        fuse(replace(views), shapes, np.zeros_like(depth))
