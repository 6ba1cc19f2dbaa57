"""A splat or a mesh that was made elsewhere starts the reconstruction, or is refused by name."""

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import trimesh
import xarray as xr

from stages.harness import Inputs
from stages.reconstruct import report, run, schema, start
from stages.reconstruct.params import Params
from tests.splat.synthetic import SIZE, rounded_box
from tests.stages.test_reconstruct_resume import TINY, box
from twinloop.artifacts.store import open_artifact, write_artifact
from twinloop.errors import InputError, ParamsError
from twinloop.geometry.surface import TriangleSurface
from twinloop.splat import surfel_mesh
from twinloop.splat.gaussians import Gaussians, on_surface
from twinloop.splat.hull import hull_mesh
from twinloop.splat.imported import load_splats, save_splats
from twinloop.splat.scene import joined
from twinloop.splat.transform import transformed
from twinloop.splat.views import Views

GREY = 128
QUICK = TINY.model_copy(
    update={"iterations": 4, "surfel_iterations": 4, "gaussians": 100, "most_gaussians": 350}
)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    """A scan of a rounded box, and a folder for what starts it."""
    made = box(tmp_path_factory.mktemp("start"))
    (made.raw / "start").mkdir(parents=True)
    return made


@pytest.fixture(scope="module")
def views(inputs: Inputs) -> Views:
    """The frames that are not held out."""
    frames = inputs.artifacts["ingest"]
    return run.load_views(frames, np.flatnonzero(~frames["held_out"].values))


def naming(inputs: Inputs, name: str, params: Params = QUICK, **changes: Any) -> Params:
    """Parameters that name a file of the folder, with its hash."""
    content = (inputs.raw / "start" / name).read_bytes()
    given = {"start": name, "start_sha256": hashlib.sha256(content).hexdigest()} | changes
    return Params.model_validate(params.model_dump() | given)


def splats(count: int = 300, size: float = 1.0) -> Gaussians:
    """Grey Gaussians on the box."""
    mesh = rounded_box()
    grey = np.full((len(mesh.vertices), 3), GREY, np.uint8)
    made = on_surface(mesh.vertices, mesh.faces, grey, count, 1, 0)
    return transformed(made, np.eye(4), size)


def kept(inputs: Inputs, name: str, value: Gaussians) -> str:
    """Write splats into the folder."""
    save_splats(value, inputs.raw / "start" / name)
    return name


def artifact(inputs: Inputs, params: Params) -> xr.DataTree:
    """Run the stage."""
    path = inputs.root / "reconstruct.zarr"
    write_artifact(path, schema.WRITES, run.run(inputs, params))
    return open_artifact(path, schema.WRITES, values=True)


def test_a_mesh_takes_the_place_of_the_hull(inputs: Inputs, views: Views) -> None:
    """In millimetres and turned about: its shape comes out, which the coarse hull's does not."""
    truth = rounded_box()
    made = truth.copy()
    made.apply_translation([0, 0, -0.02])
    made.apply_transform(np.array([[0, 1, 0, 0], [-1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1.0]]))
    made.apply_scale(1000)
    made.export(inputs.raw / "start/box.stl")
    moved = {"start_scale": 1e-3, "start_turn": (0, 0, 90), "start_move": (0, 0, 0.02)}
    params = naming(inputs, "box.stl", surface="hull", faces=20000, part_faces=20000, **moved)
    tree = artifact(inputs, params)
    surface = TriangleSurface(truth.vertices, truth.faces)
    world = tree["mesh"]["vertices"].values + tree["position_world_object"].values
    coarse = hull_mesh(views, params.resolution, table=0.0)[0]
    error, hulls = (np.abs(surface.signed_distance(v[::20])[0]).mean() for v in (world, coarse))
    assert error < 1e-5 < 1e-4 < hulls
    said = tree.attrs["start"]
    assert (said["kind"], said["file"]) == ("mesh", "raw/start/box.stl")
    assert said["sha256"] == params.start_sha256
    assert said["count"] == len(truth.faces)
    assert said["inside_masks"] > 0.95
    assert said["size_in_masks"] == pytest.approx(1, abs=0.05)
    metrics = report.metrics(tree, inputs, params)
    assert {k: v for k, v in metrics.items() if k.startswith("start_")} == {
        f"start_{key}": value for key, value in said.items()
    }


def test_splats_start_both_trainings_without_what_is_around(
    inputs: Inputs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Surfels and Gaussians begin as the file's; those of the table are left out."""
    around = transformed(splats(100), np.eye(4))
    far = np.stack([0.15 + 0.3 * around.means[:, 0], around.means[:, 1], 0 * around.means[:, 0]], 1)
    given = joined([splats(), replace(around, means=far.astype(np.float32))])
    assert isinstance(given, Gaussians)
    params = naming(inputs, kept(inputs, "box.ply", given), most_gaussians=400)
    begun: list[Any] = []
    for module in (run, surfel_mesh):
        real = module.train

        def train(first: Any, *rest: Any, real: Any = real, **keywords: Any) -> Any:
            begun.append(first)
            return real(first, *rest, **keywords)

        monkeypatch.setattr(module, "train", train)
    tree = artifact(inputs, params)
    said = tree.attrs["start"]
    assert (said["kind"], said["file"]) == ("gaussians", "raw/start/box.ply")
    assert 0.65 < said["inside_masks"] < 0.76  # 300 of 400, but for some on the outline
    surfels, gaussians = begun
    assert len(surfels) == len(gaussians) == said["count"] > 260
    file = {row.tobytes() for row in load_splats(inputs.raw / "start/box.ply").means[:300]}
    assert all(row.tobytes() in file for row in surfels.means)
    T = tree["position_world_object"].values
    np.testing.assert_allclose(gaussians.means + T, surfels.means, atol=1e-6)
    assert surfels.scales.shape == (len(surfels), 2)


@pytest.mark.parametrize(
    ("size", "move", "message"),
    [
        (3.0, (0, 0, 0), r"b\.ply: \d+% of it lies outside the masks, .* it is 3\.\d+ times as"),
        (0.3, (0, 0, 0), r"b\.ply: it is 0\.[23]\d* times as large as the masks"),
        (1.15, (0, 0, 0), r"b\.ply: it is 1\.1\d* times as large as the masks"),
        (1.0, (0.2, 0, 0), r"its middle is [\d.]+ of their size away"),
        (1.0, (0, 0, -5), r"b\.ply: 100% of it lies outside the masks"),
    ],
)
def test_another_size_or_place_is_refused(
    inputs: Inputs, views: Views, size: float, move: tuple[float, ...], message: str
) -> None:
    """Naming the file and how much it disagrees with the masks by."""
    params = naming(inputs, kept(inputs, "b.ply", splats(size=size)), start_move=move)
    with pytest.raises(InputError, match=message):
        start.read_start(inputs, params, views)


def test_foreign_files_are_not_trusted(inputs: Inputs, views: Views) -> None:
    """Another content, another object, too many, faint, broken, NaN, or not there."""
    folder = inputs.raw / "start"

    def refused(message: str, kind: type[Exception] = InputError, **changes: Any) -> None:
        params = naming(inputs, name, **changes)
        with pytest.raises(kind, match=message):
            start.read_start(inputs, params, views)

    name = kept(inputs, "c.ply", splats())
    content = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    refused(rf"c\.ply: its SHA-256 is {content}, and start_sha256 is not set", start_sha256="")
    refused(rf"start_sha256 is {64 * '0'}.*start_sha256: {content}", start_sha256=64 * "0")
    refused(r"at most most_surfels = 50 are trained; raise most_surfels", most_surfels=50)
    refused("set one of them", ParamsError, hollow=True)
    name = kept(inputs, "faint.ply", replace(splats(), opacities=np.full(300, 0.01, np.float32)))
    refused(r"faint\.ply: all 300 splats have opacities under 0\.05")
    (folder / "cut.ply").write_bytes((folder / "c.ply").read_bytes()[:-7])
    name = "cut.ply"
    refused(r"cut\.ply")
    bad = bytearray((folder / "c.ply").read_bytes())
    bad[-4:] = np.float32(np.nan).tobytes()
    (folder / "nan.ply").write_bytes(bad)
    name = "nan.ply"
    refused(r"nan\.ply")
    corners = np.array([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]]) * SIZE / 2
    four = trimesh.PointCloud(corners + [0, 0, SIZE[2] / 2]).convex_hull
    four.export(folder / "four.stl")
    name = "four.stl"
    refused(r"four\.stl: its outline covers \d+% of the masks")
    rounded_box((SIZE[1], SIZE[0], SIZE[2])).export(folder / "turned.stl")
    name = "turned.stl"
    refused(r"turned\.stl: \d+% of it lies outside the masks, expected less than 10%")
    sheet = rounded_box()
    sheet.update_faces(np.arange(1))
    sheet.export(folder / "sheet.stl")
    name = "sheet.stl"
    refused(r"sheet\.stl: ")
    missing = QUICK.model_copy(update={"start": "no.ply"})
    with pytest.raises(InputError, match=r"no\.ply: no such file.*`dvc pull`"):
        start.read_start(inputs, missing, views)
    for missed in ("..", "n" * 300 + ".ply"):
        with pytest.raises(InputError, match=r"no such file, which the parameter start"):
            start.read_start(inputs, QUICK.model_copy(update={"start": missed}), views)
    with pytest.raises(ValueError, match="start"):
        Params(start="../secret.ply")
    assert start.read_start(inputs, QUICK, views) is None
