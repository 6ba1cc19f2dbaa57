"""Package: a whole twin from made-up artifacts: files, cards, loading, equal bytes, refusals."""

import hashlib
import json
from pathlib import Path

import mujoco
import numpy as np
import pytest
import trimesh
import xarray as xr
from safetensors.numpy import load

from stages.harness import Inputs
from stages.package.params import Params
from stages.package.run import run
from twinloop.card import ObjectCard
from twinloop.errors import ArtifactError
from twinloop.splat.gaussians import Gaussians
from twinloop.splat.ply import read_ply, read_splats
from twinloop.splat.surfels import Surfels

SIZE = np.array([0.1, 0.06, 0.08])


def artifacts(com=(0.0, 0.0, -0.01)) -> dict[str, xr.DataTree]:
    """Return what a box of 365 g would leave behind."""
    box = trimesh.creation.box(SIZE).subdivide()
    count = 20
    mesh = xr.Dataset(
        {
            "vertices": (("vertex", "xyz"), np.asarray(box.vertices)),
            "faces": (("face", "corner"), np.asarray(box.faces, dtype=np.int32)),
            "colors": (("vertex", "channel"), np.full((len(box.vertices), 3), 99, np.uint8)),
        }
    )
    parts = xr.Dataset(
        {
            "vertices": (("part_vertex", "xyz"), np.asarray(trimesh.creation.box(SIZE).vertices)),
            "part": ("part_vertex", np.zeros(8, np.int32)),
        }
    )
    rng = np.random.default_rng(0)
    gaussians = xr.Dataset(
        {
            "means": (("gaussian", "xyz"), rng.normal(size=(count, 3)).astype(np.float32)),
            "scales": (("gaussian", "xyz"), np.full((count, 3), 0.002, np.float32)),
            "quaternions": (
                ("gaussian", "wxyz"),
                np.tile(np.float32([1, 0, 0, 0]), (count, 1)),
            ),
            "opacities": ("gaussian", np.full(count, 0.7, np.float32)),
            "sh": (
                ("gaussian", "basis", "channel"),
                rng.normal(size=(count, 1, 3)).astype(np.float32),
            ),
        }
    )
    values = {
        "mass": (0.365, "kg"),
        "friction": (0.3, "1"),
        "com_x": (com[0], "m"),
        "com_y": (com[1], "m"),
        "com_z": (com[2], "m"),
        "inertia_xx": (3.0e-4, "kg m^2"),
        "inertia_yy": (4.0e-4, "kg m^2"),
        "inertia_zz": (3.6e-4, "kg m^2"),
    }
    value = np.array([v for v, _ in values.values()])
    physics = xr.Dataset(
        {
            "value": ("parameter", value),
            "std": ("parameter", np.full(len(value), 1e-3)),
            "low": ("parameter", value - 2e-3),
            "high": ("parameter", value + 2e-3),
            "identifiable": ("parameter", np.ones(len(value), np.int8)),
        },
        attrs={"parameters": list(values), "units": [u for _, u in values.values()]},
    )
    frames = xr.Dataset(
        {"image": (("frame", "y", "x", "channel"), np.full((2, 8, 6, 3), 50, np.uint8))}
    )
    policy = xr.Dataset({"weights": (("a", "b"), np.arange(6.0).reshape(2, 3))})
    return {
        "ingest": xr.DataTree.from_dict({"/": frames}),
        "reconstruct": xr.DataTree.from_dict(
            {"/": xr.Dataset(), "/mesh": mesh, "/parts": parts, "/gaussians": gaussians}
        ),
        "identify": xr.DataTree.from_dict({"/": physics, "/pose_only": physics.copy()}),
        "train": xr.DataTree.from_dict({"/": xr.Dataset(), "/network": policy}),
        "evaluate": xr.DataTree.from_dict({"/": xr.Dataset()}),
    }


def inputs(root: Path, **changes) -> Inputs:
    """Return the stage's inputs for an object `tin`."""
    (root / "datasets/tin/metrics").mkdir(parents=True, exist_ok=True)
    (root / "datasets/tin/metrics/lab.json").write_text('{"secret": 1}')
    card = ObjectCard(name="tin", license="CC-BY-4.0", description="A <tin>.", tags=["box"])
    return Inputs("tin", root, card, artifacts(**changes), "cpu", 0)


def digest(folder: Path) -> dict[str, str]:
    """Return the hash of every file."""
    return {
        str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }


def test_the_twin_is_whole_and_other_tools_read_it(tmp_path):
    """MuJoCo, trimesh, gsplat's format and safetensors read what was written; hashes are right."""
    run(inputs(tmp_path), Params(), tmp_path / "out")
    twin = tmp_path / "out" / "twin"
    model = mujoco.MjModel.from_xml_path(str(twin / "mjcf/scene.xml"))
    np.testing.assert_allclose(model.body("tin").mass, 0.365)
    mesh = trimesh.load(twin / "meshes/visual.obj", process=False)
    np.testing.assert_allclose(mesh.extents, SIZE, atol=1e-6)
    splats = read_ply(twin / "splat/tin.ply")
    np.testing.assert_allclose(splats.scales, 0.002, rtol=1e-5)
    weights = load((twin / "policy/policy.safetensors").read_bytes())
    np.testing.assert_array_equal(weights["network/weights"], np.arange(6.0).reshape(2, 3))
    card = json.loads((twin / "twin.json").read_text())
    assert card["license"] == "CC-BY-4.0"
    assert card["physics"]["mass"]["verdict"] == "identified"
    for name, sha in card["hashes"].items():
        assert hashlib.sha256((twin / name).read_bytes()).hexdigest() == sha
    readme = (twin / "README.md").read_text()
    assert readme.startswith('---\nlicense: "CC-BY-4.0"')
    assert "| mass | 0.365 | 0.363 to 0.367 | kg | identified |" in readme
    report = (twin / "report.html").read_text()
    assert not (twin / "splat/surfels.ply").exists()
    assert "surfels.ply" not in readme
    assert "A &lt;tin&gt;" in report
    assert "secret" not in report  # the lab's metrics are no input


def test_surfels_are_exported_too(tmp_path):
    """In the 2DGS convention: read back as surfels with their values, their hash in the card."""
    given = inputs(tmp_path)
    group = given.artifacts["reconstruct"]["gaussians"].to_dataset().rename(gaussian="surfel")
    group["scales"] = (("surfel", "uv"), np.full((20, 2), 0.003, np.float32))
    given.artifacts["reconstruct"]["surfels"] = xr.DataTree(group)
    run(given, Params(), tmp_path / "out")
    twin = tmp_path / "out" / "twin"
    splats = read_splats(twin / "splat/surfels.ply")
    assert isinstance(splats, Surfels)
    np.testing.assert_array_equal(splats.means, group["means"].values)
    np.testing.assert_allclose(splats.scales, 0.003, rtol=1e-6)
    assert isinstance(read_splats(twin / "splat/tin.ply"), Gaussians)
    assert "splat/surfels.ply" in json.loads((twin / "twin.json").read_text())["hashes"]
    assert "`splat/surfels.ply`" in (twin / "README.md").read_text()


def test_equal_inputs_give_equal_bytes(tmp_path):
    """Two runs write the same files, byte for byte."""
    for name in ("a", "b"):
        run(inputs(tmp_path), Params(), tmp_path / name)
    assert digest(tmp_path / "a") == digest(tmp_path / "b")


def test_a_twin_that_would_tip_is_refused(tmp_path):
    """A centre of mass outside the base contradicts the pose it rested in: an error says so."""
    with pytest.raises(ArtifactError, match=r"tin: the exported twin moves .* mm while settling"):
        run(inputs(tmp_path, com=(0.07, 0.0, 0.03)), Params(), tmp_path / "out")
