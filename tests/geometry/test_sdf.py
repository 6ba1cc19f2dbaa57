"""Distance grids against exact distances; NumPy, torch and Warp give the same values."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
import trimesh
import warp as wp
from hypothesis import given, settings
from hypothesis import strategies as st

from twinloop.errors import ArtifactError, InputError
from twinloop.geometry.sdf import DistanceGrid, bake
from twinloop.geometry.sdf_kernel import grid_sample, grid_sample_cubic
from twinloop.geometry.sdf_torch import TorchGrid
from twinloop.geometry.surface import TriangleSurface
from twinloop.lab.catalogue import spray

wp.set_module_options({"enable_backward": False})


def random_grid(seed: int) -> DistanceGrid:
    """A grid of random values: what is said of the derivative must hold for any."""
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(2, 7, 3))
    return DistanceGrid(rng.normal(size=shape), rng.normal(size=3), float(rng.uniform(0.1, 2)))


def spread_points(grid: DistanceGrid, seed: int, count: int = 40) -> np.ndarray:
    """Points in the grid and around it."""
    size = grid.top - grid.origin
    unit = np.random.default_rng(seed).uniform(-0.4, 1.4, (count, 3))
    return grid.origin + unit * size


@pytest.fixture(scope="module")
def baked() -> tuple[DistanceGrid, TriangleSurface, np.ndarray]:
    """A spray can of the lab: its grid, its exact distance, and points within 15 mm of it."""
    shape = spray((0.06, 0.06, 0.2))
    grid = bake(shape.vertices, shape.faces, margin=0.02, cells=64)
    exact = TriangleSurface(shape.vertices, shape.faces)
    rng = np.random.default_rng(0)
    on = shape.vertices[shape.faces].mean(axis=1)
    points = on[rng.integers(0, len(on), 800)] + rng.uniform(-0.015, 0.015, (800, 3))
    return grid, exact, points


@pytest.mark.parametrize("cubic", [False, True])
@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6))
def test_gradient_is_the_derivative_everywhere(cubic: bool, seed: int) -> None:
    """Central differences agree within a cell, across the grid's border, and far outside."""
    grid = random_grid(seed)
    points = spread_points(grid, seed)
    step = 1e-6 * grid.spacing
    cell = (points - grid.origin) / grid.spacing
    off_faces = (np.abs(cell - np.rint(cell)) > 1e-4).all(axis=1)
    _, gradient = grid.signed_distance(points, cubic=cubic)
    for axis in range(3):
        move = step * np.eye(3)[axis]
        ahead, _ = grid.signed_distance(points + move, cubic=cubic)
        behind, _ = grid.signed_distance(points - move, cubic=cubic)
        slope = (ahead - behind) / (2 * step)
        np.testing.assert_allclose(
            slope[off_faces], gradient[off_faces, axis], atol=1e-5 / grid.spacing + 1e-6
        )


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6))
def test_cubic_gradient_does_not_jump_between_cells(seed: int) -> None:
    """On both sides of a face of cells the cubic has the same gradient, the trilinear has not."""
    grid = random_grid(seed)
    node = np.array(grid.value.shape) // 2
    if (node < 1).any() or (node > np.array(grid.value.shape) - 2).any():
        return
    place = node + np.array([0.0, 0.3, -0.4])
    side = np.array([1e-9, 0, 0])
    two = grid.origin + grid.spacing * np.stack([place - side, place + side])
    _, (before, after) = grid.signed_distance(two)
    np.testing.assert_allclose(before, after, atol=1e-6 / grid.spacing)


@pytest.mark.parametrize("cubic", [False, True])
def test_planes_are_exact(cubic: bool) -> None:
    """A plane's distance is reproduced to rounding up to the border of the grid."""
    normal = np.array([0.6, -0.48, 0.64])
    axes = np.meshgrid(*(np.arange(n) * 0.01 for n in (5, 6, 7)), indexing="ij")
    grid = DistanceGrid(np.stack(axes, -1) @ normal - 0.01, np.zeros(3), 0.01)
    points = np.random.default_rng(0).uniform(0, 1, (200, 3)) * grid.top
    distance, gradient = grid.signed_distance(points, cubic=cubic)
    np.testing.assert_allclose(distance, points @ normal - 0.01, atol=1e-14)
    np.testing.assert_allclose(gradient, np.tile(normal, (200, 1)), atol=1e-12)


def test_grid_of_a_real_shape_is_near_the_exact_distance(baked) -> None:
    """Within a cell's bend of the exact distance; cubic beats trilinear, in value and direction."""
    grid, exact, points = baked
    wanted, normal = exact.signed_distance(points)
    smooth, gradient = grid.signed_distance(points)
    straight, steps = grid.signed_distance(points, cubic=False)
    assert np.abs(smooth - wanted).max() < 0.35 * grid.spacing
    assert np.abs(smooth - wanted).mean() < 0.02 * grid.spacing
    assert np.abs(smooth - wanted).mean() < 0.8 * np.abs(straight - wanted).mean()
    off = [np.linalg.norm(g - normal, axis=1).mean() for g in (gradient, steps)]
    assert off[0] < off[1]


def test_outside_the_grid_the_distance_is_bounded(baked) -> None:
    """Far away: continuous across the border, not below the true distance nor far above it."""
    grid, exact, _ = baked
    rng = np.random.default_rng(3)
    way = rng.normal(size=(200, 3))
    way /= np.linalg.norm(way, axis=1, keepdims=True)
    points = grid.origin + 0.5 * (grid.top - grid.origin) + 0.4 * way
    found, gradient = grid.signed_distance(points)
    wanted, _ = exact.signed_distance(points)
    assert (found > wanted - 0.1 * grid.spacing).all()
    assert (found < 1.25 * wanted).all()
    assert (np.einsum("ij,ij->i", gradient, way) > 0.5).all()


@wp.kernel
def ask(
    grid: wp.array3d(dtype=wp.float64),
    padded: wp.array3d(dtype=wp.float64),
    u: wp.array(dtype=wp.vec3d),
    linear: wp.array(dtype=wp.vec4d),
    cubic: wp.array(dtype=wp.vec4d),
) -> None:
    """Both interpolations at each point."""
    t = wp.tid()
    linear[t] = grid_sample(grid, u[t])
    cubic[t] = grid_sample_cubic(padded, u[t])


def test_torch_and_warp_agree_with_numpy(baked) -> None:
    """The three ways to ask give the same value and the same gradient."""
    grid, _, points = baked
    points = points[((points > grid.origin) & (points < grid.top)).all(axis=1)]
    with wp.ScopedDevice("cpu"):
        out = [wp.zeros(len(points), dtype=wp.vec4d) for _ in range(2)]
        wp.launch(
            ask,
            dim=len(points),
            inputs=[
                wp.array(grid.value, dtype=wp.float64),
                wp.array(grid.padded, dtype=wp.float64),
                wp.array((points - grid.origin) / grid.spacing, dtype=wp.vec3d),
                *out,
            ],
        )
    beyond = np.concatenate([points, spread_points(grid, 1)])
    for cubic, result in zip((False, True), (o.numpy() for o in out), strict=True):
        distance, gradient = grid.signed_distance(points, cubic=cubic)
        np.testing.assert_allclose(result[:, 0], distance, atol=1e-13)
        np.testing.assert_allclose(result[:, 1:] / grid.spacing, gradient, atol=1e-11)
        asked = torch.from_numpy(beyond).requires_grad_()
        value = TorchGrid(grid).signed_distance(asked, cubic=cubic)
        (slope,) = torch.autograd.grad(value.sum(), asked)
        distance, gradient = grid.signed_distance(beyond, cubic=cubic)
        np.testing.assert_allclose(value.detach().numpy(), distance, atol=1e-13)
        np.testing.assert_allclose(slope.numpy(), gradient, atol=1e-10)


def test_stored_and_read_again(baked) -> None:
    """A baked grid survives float32 exactly; a stored grid with a hole in it is refused."""
    grid, _, points = baked
    data = grid.to_dataset()
    back = DistanceGrid.from_dataset(data)
    np.testing.assert_array_equal(back.sample(points)[0], grid.sample(points)[0])
    assert data["distance"].dtype == np.float32
    with pytest.raises(ArtifactError, match="spacing has nothing"):
        DistanceGrid.from_dataset(data.drop_vars("spacing"))
    with pytest.raises(ArtifactError, match="expected axes"):
        DistanceGrid.from_dataset(data.transpose("k", "j", "i", "xyz"))


@pytest.mark.parametrize(
    ("value", "origin", "spacing", "said"),
    [
        (np.full((3, 3, 3), np.nan), np.zeros(3), 1.0, r"node \(0, 0, 0\)"),
        (np.zeros((3, 3, 1)), np.zeros(3), 1.0, "at least 2 nodes"),
        (np.zeros((3, 3)), np.zeros(3), 1.0, "three axes"),
        (np.zeros((3, 3, 3)), np.zeros(2), 1.0, "origin"),
        (np.zeros((3, 3, 3)), np.array([0, np.inf, 0]), 1.0, "origin"),
        (np.zeros((3, 3, 3)), np.zeros(3), 0.0, "spacing 0.0"),
        (np.zeros((3, 3, 3)), np.zeros(3), np.nan, "spacing nan"),
        (np.broadcast_to(0.0, (4000, 4000, 4000)), np.zeros(3), 1.0, "at most"),
    ],
)
def test_bad_grids_are_refused(value, origin, spacing: float, said: str) -> None:
    """Values that are not finite, axes, origin, spacing and a size that lies."""
    with pytest.raises(InputError, match=said):
        DistanceGrid(value, origin, spacing)


def test_bad_bakes_are_refused() -> None:
    """Too many nodes, no cells and a margin that is not finite are named, not allocated."""
    box = trimesh.creation.box((1e-6, 1e-6, 1.0))
    with pytest.raises(InputError, match="nodes"):
        bake(box.vertices, box.faces, margin=1.0, cells=2000)
    with pytest.raises(InputError, match="cells"):
        bake(box.vertices, box.faces, margin=0.1, cells=0)
    with pytest.raises(InputError, match="margin"):
        bake(box.vertices, box.faces, margin=float("nan"), cells=8)
    for cells in (float("nan"), 2**40):
        with pytest.raises(InputError, match="cells"):
            bake(box.vertices, box.faces, margin=0.1, cells=cells)
    with pytest.raises(InputError, match="faces are list"):
        bake(box.vertices, box.faces.tolist(), margin=0.1, cells=8)


@pytest.mark.parametrize("ask_for", ["sample", "cubic", "linear"])
def test_points_that_are_none_are_refused(ask_for: str) -> None:
    """What a diverged simulation gives is named."""
    grid = random_grid(0)
    how = {
        "sample": grid.sample,
        "cubic": grid.signed_distance,
        "linear": partial(grid.signed_distance, cubic=False),
    }[ask_for]
    for value in (np.nan, np.inf):
        points = np.zeros((3, 3))
        points[1, 2] = value
        with pytest.raises(InputError, match=rf"point 1 is .*{value}"):
            how(points)
    with pytest.raises(InputError, match=r"shape \(4, 2\)"):
        how(np.zeros((4, 2)))


@pytest.mark.parametrize("values", [np.full((2, 2, 2), "x"), np.ones((2, 2, 2), complex)])
def test_stored_values_that_are_no_numbers(values: np.ndarray) -> None:
    """Texts and complex numbers, as an artifact of somebody else may hold them."""
    data = random_grid(0).to_dataset().drop_vars("distance")
    with pytest.raises(ArtifactError, match="expected numbers"):
        DistanceGrid.from_dataset(data.assign(distance=(("i", "j", "k"), values)))
