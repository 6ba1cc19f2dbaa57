"""The reconstruct stage on a rendered box whose shape is known."""

from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from safetensors.torch import save_file

from stages.harness import Inputs
from stages.reconstruct import report, run, schema
from stages.reconstruct.params import Params
from tests.splat.synthetic import SIZE, Scan, rounded_box, scan
from tests.splat.test_quality import lpips_weights
from twinloop.artifacts.store import open_artifact, write_artifact
from twinloop.card import ObjectCard
from twinloop.errors import InputError
from twinloop.geometry import se3
from twinloop.geometry.mesh import mass_properties
from twinloop.geometry.sdf import DistanceGrid
from twinloop.geometry.surface import TriangleSurface
from twinloop.splat.scene import SplatScene
from twinloop.splat.surface import is_watertight

SMALL = Params(
    resolution=40,
    faces=2000,
    gaussians=500,
    most_gaussians=800,
    iterations=40,
    surfels=1500,
    most_surfels=2000,
    surfel_iterations=60,
    refine_depth=4,
    scene_iterations=10,
    texture=128,
    distance_cells=32,
)


@pytest.fixture(scope="module")
def box() -> Scan:
    """Twenty-four small pictures of a rounded box."""
    return scan(rounded_box(), views=24, width=140, height=104, supersample=2)


def inputs_of(frames: xr.Dataset, root: Path) -> Inputs:
    """What the harness hands to the stage."""
    tree = xr.DataTree.from_dict({"/": frames})
    card = ObjectCard(name="box", license="Apache-2.0")
    return Inputs("box", root, card, {"ingest": tree}, "cpu", 0)


@pytest.fixture(scope="module")
def result(box: Scan, tmp_path_factory: pytest.TempPathFactory) -> tuple[Inputs, xr.DataTree]:
    """The stage's artifact, written and opened again."""
    root = tmp_path_factory.mktemp("reconstruct")
    inputs = inputs_of(box.frames, root)
    write_artifact(root / "a.zarr", schema.WRITES, run.run(inputs, SMALL))
    return inputs, open_artifact(root / "a.zarr", schema.WRITES, values=True)


def test_mesh_is_the_box(box: Scan, result: tuple[Inputs, xr.DataTree]) -> None:
    """Watertight, flat on the table, within 1 mm of the box on average, origin at its centroid."""
    tree = result[1]
    vertices, faces = tree["mesh"]["vertices"].values, tree["mesh"]["faces"].values
    assert is_watertight(faces)
    T = se3.from_position_quaternion(
        tree["position_world_object"].values, tree["quaternion_world_object"].values
    )
    world = vertices @ T[:3, :3].T + T[:3, 3]
    distance, _ = TriangleSurface(box.mesh.vertices, box.mesh.faces).signed_distance(world)
    assert np.abs(distance).mean() < 1e-3
    assert abs(world[:, 2].min()) < 2e-4
    np.testing.assert_allclose(T[:3, :3], np.eye(3), atol=1e-12)
    np.testing.assert_allclose(mass_properties(vertices, faces).centroid, 0, atol=1e-9)
    np.testing.assert_allclose(T[:3, 3], [0, 0, 0.0425], atol=2e-3)


def test_parts_hold_the_mesh(result: tuple[Inputs, xr.DataTree]) -> None:
    """The convex pieces reach as far as the mesh in each direction."""
    tree = result[1]
    mesh, parts = tree["mesh"]["vertices"].values, tree["parts"]["vertices"].values
    np.testing.assert_allclose(parts.min(0), mesh.min(0), atol=3e-3)
    np.testing.assert_allclose(parts.max(0), mesh.max(0), atol=3e-3)
    assert (np.diff(tree["parts"]["part"].values) >= 0).all()


def test_held_out_frames_are_not_used(box: Scan, result: tuple[Inputs, xr.DataTree]) -> None:
    """Repainting the held-out frames changes their scores and nothing else."""
    frames = box.frames.copy(deep=True)
    held_out = frames.held_out.values
    frames.image.values[held_out] = 255 - frames.image.values[held_out]
    other = run.run(inputs_of(frames, result[0].root), SMALL)
    for group in ("mesh", "parts", "gaussians", "surfels", "scene", "texture", "distance"):
        for name, array in other[group].items():
            np.testing.assert_array_equal(array.values, result[1][group][str(name)].values)
    assert other["heldout"]["psnr"].values.max() < result[1]["heldout"]["psnr"].values.min()
    np.testing.assert_array_equal(other["heldout"]["frame"].values, np.flatnonzero(held_out))


def test_report_has_figures_and_pictures(result: tuple[Inputs, xr.DataTree]) -> None:
    """Metrics are plain numbers, and the pictures can be drawn."""
    inputs, tree = result
    metrics = report.metrics(tree, inputs, SMALL)
    assert metrics["psnr_heldout_mean_db"] > 18
    assert metrics["silhouette_overlap_mean"] > 0.93
    assert metrics["watertight"] is True
    assert metrics["views_heldout"] == 3
    plots = report.plots(tree, inputs, SMALL)
    assert set(plots) == {"heldout", "mesh", "psnr", "turntable"}
    film = plots["turntable"]
    assert isinstance(film, bytes)
    assert film[4:8] == b"ftyp"


def test_lpips_where_its_weights_are(
    result: tuple[Inputs, xr.DataTree], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A figure with weights on disk, none without."""
    inputs, tree = result
    monkeypatch.delenv("TWINLOOP_LPIPS", raising=False)
    assert report.metrics(tree, inputs, SMALL)["lpips_heldout_mean"] is None
    save_file(lpips_weights(), tmp_path / "alex.safetensors")
    monkeypatch.setenv("TWINLOOP_LPIPS", str(tmp_path / "alex.safetensors"))
    assert 0 < report.metrics(tree, inputs, SMALL)["lpips_heldout_mean"] < 10


def test_distance_grid_is_that_of_the_mesh(result: tuple[Inputs, xr.DataTree]) -> None:
    """What contact, retargeting and tracking ask is the mesh's own distance."""
    tree = result[1]
    grid = DistanceGrid.from_dataset(tree["distance"].to_dataset())
    surface = TriangleSurface(tree["mesh"]["vertices"].values, tree["mesh"]["faces"].values)
    points = np.random.default_rng(0).uniform(-0.045, 0.045, (200, 3))
    true, _ = surface.signed_distance(points)
    assert np.abs(grid.signed_distance(points)[0] - true).max() < 2 * grid.spacing
    assert np.abs(grid.signed_distance(points)[0] - true).mean() < 0.1 * grid.spacing


def test_the_underside_is_closed_and_marked(result: tuple[Inputs, xr.DataTree]) -> None:
    """No camera saw what stood on the table: there the mesh is flat and says `inferred`."""
    mesh = result[1]["mesh"]
    inferred = mesh["inferred"].values.astype(bool)
    height = mesh["vertices"].values[:, 2]
    assert inferred.any()
    assert np.ptp(height[inferred]) < 0.012
    assert height[inferred].mean() < height.min() + 0.004
    low = height < height.min() + 1e-4
    assert mesh["normals"].values[low & inferred][:, 2].mean() < -0.8


def test_uniform_solid_is_the_box(result: tuple[Inputs, xr.DataTree]) -> None:
    """Volume and inertia at unit density, against the box's closed form to its rounded edges."""
    uniform = result[1]["uniform"]
    sides = np.array(SIZE)
    volume = float(uniform["volume"].values)
    np.testing.assert_allclose(volume, sides.prod(), rtol=0.06)
    wanted = volume / 12 * (np.sum(sides**2) - sides**2)
    np.testing.assert_allclose(np.diag(uniform["inertia"].values), wanted, rtol=0.06)


def test_scene_holds_the_object_and_the_table(result: tuple[Inputs, xr.DataTree]) -> None:
    """The object's Gaussians are in the scene as they are; the table lies below them."""
    tree = result[1]
    scene = SplatScene.from_dataset(tree["scene"])
    own = scene.part("object")
    np.testing.assert_array_equal(own.means, tree["gaussians"]["means"].values)
    low = tree["mesh"]["vertices"].values[:, 2].min()
    around = scene.label != scene.names.index("object")
    near = np.linalg.norm(scene.splats.means[around][:, :2], axis=1) < 0.2
    assert abs(np.median(scene.splats.means[around][near][:, 2]) - low) < 0.01


def test_too_few_frames_are_refused(box: Scan, tmp_path: Path) -> None:
    """Two frames are no scan."""
    few = box.frames.isel(frame=[0, 1])
    with pytest.raises(InputError, match="2 frames to reconstruct from"):
        run.run(inputs_of(few, tmp_path), SMALL)
