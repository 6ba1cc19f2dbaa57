"""Convex pieces of meshes, and how near their union is to the mesh."""

import numpy as np
import pytest
import trimesh
from scipy.spatial import ConvexHull

from twinloop.errors import InputError, MachineError
from twinloop.geometry.convex import _coacd, convex_parts, union_error


def l_shape() -> trimesh.Trimesh:
    """An L, 10 cm high."""
    profile = [(0, 0), (0.08, 0), (0.08, 0.03), (0.03, 0.03), (0.03, 0.1), (0, 0.1)]
    fan = [(0, 1, 2), (0, 2, 3), (0, 3, 4), (0, 4, 5)]
    return trimesh.creation.extrude_triangulation(np.array(profile), np.array(fan), 0.04)


def box_points(low: tuple[float, ...], high: tuple[float, ...]) -> np.ndarray:
    """Corners of a box."""
    return np.array(np.meshgrid(*zip(low, high, strict=True))).reshape(3, -1).T.astype(float)


def test_a_convex_mesh_is_one_part_of_its_own_volume() -> None:
    """A capsule is kept whole, thinned to 128 vertices that fill most of it."""
    mesh = trimesh.creation.capsule(0.1, 0.03)
    found = convex_parts(mesh.vertices, mesh.faces)
    assert found.hulls == 1
    assert found.threshold == 0
    assert len(found.parts[0]) <= 128
    assert found.volume_ratio == pytest.approx(ConvexHull(found.parts[0]).volume / mesh.volume)
    assert found.volume_ratio == pytest.approx(1, rel=0.1)
    assert 0 < found.error_mean < found.error_max < 0.004


def test_box_corners_survive() -> None:
    """A finely meshed box keeps its size."""
    mesh = trimesh.creation.box((0.1, 0.05, 0.08)).subdivide().subdivide().subdivide()
    found = convex_parts(mesh.vertices, mesh.faces)
    assert ConvexHull(found.parts[0]).volume == pytest.approx(mesh.volume, rel=1e-9)
    assert found.error_max < 1e-7


def test_an_l_shape_splits_the_same_way_twice() -> None:
    """CoACD splits an L into pieces that cover it, and the same ones each time."""
    mesh = l_shape()
    found, again = (convex_parts(mesh.vertices, mesh.faces, target=1e-3) for _ in range(2))
    assert 2 <= found.hulls <= 6
    assert found.error_mean < 1e-3
    assert found.volume_ratio == pytest.approx(1, abs=0.05)
    assert f"{found.hulls} hulls" in found.summary()
    for a, b in zip(found.parts, again.parts, strict=True):
        np.testing.assert_array_equal(a, b)
    assert (found.error_mean, found.error_max) == (again.error_mean, again.error_max)


def test_a_smaller_target_gives_more_and_better_pieces() -> None:
    """A ring: the threshold is searched until the error is met or the pieces run out."""
    ring = trimesh.creation.torus(0.05, 0.015, 16, 8)
    coarse = convex_parts(ring.vertices, ring.faces, concavity=0.4, target=None)
    fine = convex_parts(ring.vertices, ring.faces, concavity=0.4, target=1.2e-3)
    assert fine.error_mean <= 1.2e-3 < coarse.error_mean
    assert coarse.hulls < fine.hulls <= 10


def test_error_of_a_known_union() -> None:
    """Two boxes that make an L exactly, then one of them 2 mm too long."""
    mesh = l_shape()
    low, high = mesh.bounds
    foot = box_points((low[0], low[1], low[2]), (high[0], low[1] + 0.03, high[2]))
    exact = box_points((low[0], low[1] + 0.03, low[2]), (low[0] + 0.03, high[1], high[2]))
    mean, most, ratio = union_error([foot, exact], mesh.vertices, mesh.faces)
    assert mean < 1e-7
    assert most < np.linalg.norm(np.ptp(mesh.vertices, axis=0)) / 100
    assert ratio == pytest.approx(1, rel=0.02)
    long = box_points((low[0], low[1], low[2]), (low[0] + 0.03, high[1] + 0.002, high[2]))
    mean, most, ratio = union_error([foot, long], mesh.vertices, mesh.faces)
    assert most == pytest.approx(0.002, rel=1e-3)
    share = 0.03 * 0.04 / mesh.area
    assert mean == pytest.approx(0.002 * share, rel=0.3)
    assert ratio == pytest.approx(1 + 0.002 * 0.03 * 0.04 / mesh.volume, rel=0.02)


@pytest.mark.parametrize("kind", ["hole", "one face", "twice", "open and thin"])
def test_what_encloses_nothing_is_refused(kind: str) -> None:
    """Open meshes have some signed volume too, and duplicates twice theirs: neither is one."""
    mesh = l_shape()
    vertices, faces = np.array(mesh.vertices), np.array(mesh.faces)
    faces = {"hole": faces[:-1], "one face": faces[:1], "twice": np.tile(faces, (2, 1))}.get(
        kind, faces[:-2]
    )
    with pytest.raises(InputError, match="leave holes or are there twice"):
        convex_parts(vertices * (1, 1, 0.02 if "thin" in kind else 1), faces)


@pytest.mark.parametrize(
    "wrong",
    [
        {"concavity": 0.0},
        {"concavity": float("nan")},
        {"concavity": 5.0},
        {"finest": 0.0},
        {"target": -1.0},
        {"target": float("nan")},
        {"most_parts": 0},
        {"most_vertices": 3},
    ],
)
def test_arguments_out_of_range(wrong: dict[str, float]) -> None:
    """CoACD would abort, or run on until its time is over."""
    mesh = l_shape()
    with pytest.raises(InputError, match=f"{next(iter(wrong))} is .* expected"):
        convex_parts(mesh.vertices, mesh.faces, **wrong)


def test_degenerate_faces_and_no_arrays() -> None:
    """Faces without area change nothing; lists and fractional indices are named."""
    box = trimesh.creation.box((0.1, 0.05, 0.08))
    vertices, faces = np.array(box.vertices), np.array(box.faces)
    more = np.vstack([faces, [[0, 0, 0]], [[1, 1, 2]]])
    assert convex_parts(vertices, more).volume_ratio == pytest.approx(1)
    with pytest.raises(InputError, match="faces are float64"):
        convex_parts(vertices, faces.astype(float))
    with pytest.raises(InputError, match="faces are list"):
        convex_parts(vertices, faces.tolist())


def test_failure_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CoACD that dies or does not end says so; a torn mesh is refused before."""
    vertices = np.random.default_rng(0).normal(size=(6, 3))
    with pytest.raises(InputError, match="index 9"):
        convex_parts(vertices, np.array([[0, 1, 2], [2, 3, 9]]))
    mesh = l_shape()
    with pytest.raises(InputError, match="wound outward"):
        convex_parts(mesh.vertices, mesh.faces[:, ::-1])
    with pytest.raises(MachineError, match="time limit"):
        convex_parts(mesh.vertices, mesh.faces, time_limit=0.05)
    monkeypatch.setattr("twinloop.geometry.convex.sys.executable", "/bin/false")
    with pytest.raises(MachineError, match="CoACD ended with code"):
        _coacd(vertices, np.array([[0, 1, 2], [2, 3, 4]]), 0.05, 4, 0, 60.0)
