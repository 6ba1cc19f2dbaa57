"""The exported twin in MuJoCo: same mass properties, slides and settles as the physics says."""

from pathlib import Path

import mujoco
import numpy as np
import pytest
import trimesh
import xarray as xr

from twinloop.errors import ArtifactError
from twinloop.export.mesh_files import hull_faces, write_obj, write_ply
from twinloop.export.mjcf import object_mjcf, scene_mjcf
from twinloop.export.properties import Properties, read_estimates, read_properties
from twinloop.export.settle import settle

SIZE = np.array([0.1, 0.06, 0.08])
COM = np.array([0.008, -0.004, -0.01])
INERTIA = np.array([[3.1e-4, 1e-5, 0], [1e-5, 4.2e-4, -2e-5], [0, -2e-5, 3.6e-4]])
TWIN = Properties(0.365, 0.3, COM, INERTIA, ())


def export(folder: Path, properties: Properties, parts: int = 1) -> Path:
    """Write a box twin cut into ``parts`` convex pieces; return its scene."""
    (folder / "meshes").mkdir()
    (folder / "mjcf").mkdir()
    box = trimesh.creation.box(SIZE)
    write_obj(folder / "meshes/visual.obj", box.vertices, box.faces, "box")
    for i in range(parts):
        piece = trimesh.creation.box(SIZE / [parts, 1, 1])
        piece.apply_translation([SIZE[0] * ((i + 0.5) / parts - 0.5), 0, 0])
        write_obj(folder / f"meshes/collision_{i:03d}.obj", *hull_faces(piece.vertices), "piece")
    (folder / "mjcf/tin.xml").write_text(object_mjcf("tin", parts, properties, SIZE[2] / 2))
    (folder / "mjcf/scene.xml").write_text(scene_mjcf("tin"))
    return folder / "mjcf/scene.xml"


@pytest.mark.parametrize("parts", [1, 3])
def test_twin_loads_settles_and_keeps_mass_and_inertia(tmp_path, parts):
    """Mass, centre of mass and the full inertia tensor survive; a resting box stays."""
    assert settle(export(tmp_path, TWIN, parts), "tin", TWIN, 1.0) < 5e-4


def test_settle_notices_other_mass_properties(tmp_path):
    """An export whose inertia is not the twin's is refused, with both values."""
    scene = export(tmp_path, TWIN)
    other = Properties(0.365, 0.3, COM, INERTIA * 1.01, ())
    with pytest.raises(ArtifactError, match="inertia"):
        settle(scene, "tin", other, 0.1)


def test_a_topheavy_twin_falls_and_is_measured(tmp_path):
    """A centre of mass outside the base makes the twin tip: the move is reported, not hidden."""
    tipping = Properties(0.3, 0.3, np.array([0.06, 0, 0.03]), INERTIA, ())
    assert settle(export(tmp_path, tipping), "tin", tipping, 1.0) > 0.005


def test_friction_is_the_twins_own_whatever_the_table(tmp_path):
    """On slopes around atan(mu) the twin's own friction decides, not the table's larger one."""
    scene = export(tmp_path, Properties(0.365, 0.3, np.zeros(3), np.eye(3) * 4e-4, ()))
    model = mujoco.MjModel.from_xml_path(str(scene))
    for slope, slides in ((0.9, False), (1.1, True)):
        angle = np.arctan(0.3) * slope
        model.opt.gravity[:] = 9.81 * np.array([np.sin(angle), 0, -np.cos(angle)])
        data = mujoco.MjData(model)
        while data.time < 0.5:
            mujoco.mj_step(model, data)
        assert (data.qpos[0] > 0.01) == slides


def test_hull_faces_close_and_point_outward():
    """The pieces' faces enclose the hull's volume with positive sign."""
    points = np.random.default_rng(0).normal(size=(60, 3))
    vertices, faces = hull_faces(points)
    solid = trimesh.Trimesh(vertices, faces, process=False)
    assert solid.is_watertight
    np.testing.assert_allclose(solid.volume, solid.convex_hull.volume, rtol=1e-9)


def test_ply_is_read_by_trimesh_with_colours(tmp_path):
    """Another library reads the same vertices, faces and colours."""
    box = trimesh.creation.box(SIZE)
    colours = np.arange(24, dtype=np.uint8).reshape(8, 3)
    write_ply(tmp_path / "box.ply", box.vertices, box.faces, colours)
    back = trimesh.load(tmp_path / "box.ply", process=False)
    np.testing.assert_allclose(back.vertices, box.vertices, atol=1e-7)
    np.testing.assert_array_equal(back.faces, box.faces)
    np.testing.assert_array_equal(back.visual.vertex_colors[:, :3], colours)


def physics(**changes):
    """Return a physics artifact in memory."""
    values = {
        "mass": 0.365,
        "friction": 0.3,
        "com_x": 0.0,
        "com_y": 0.0,
        "com_z": 0.0,
        "inertia_xx": 3e-4,
        "inertia_yy": 4e-4,
        "inertia_zz": 5e-4,
    } | changes
    value = np.array(list(values.values()))
    p = "parameter"
    data = xr.Dataset(
        {
            "value": (p, value),
            "std": (p, np.full(len(value), 0.1)),
            "low": (p, value - 0.2),
            "high": (p, value + 0.2),
            "identifiable": (p, np.ones(len(value), np.int8)),
        },
        attrs={"parameters": list(values), "units": ["1"] * len(value)},
    )
    return xr.DataTree.from_dict({"/": data, "/pose_only": data})


def test_properties_are_read_and_impossible_bodies_refused():
    """Values land in the right slots; an inertia that no body has is an error with its numbers."""
    found = read_properties(physics(inertia_xy=1e-5))
    assert found.inertia[0, 1] == found.inertia[1, 0] == 1e-5
    assert read_estimates(physics(), "pose_only")[0].name == "mass"
    with pytest.raises(ArtifactError, match="impossible"):
        read_properties(physics(inertia_zz=8e-4))
    with pytest.raises(ArtifactError, match="impossible"):
        read_properties(physics(inertia_xx=-1e-4))
