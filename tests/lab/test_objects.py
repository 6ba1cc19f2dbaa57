"""Shapes, recipes and unwrapping of lab objects."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
import trimesh

from twinloop.errors import InputError
from twinloop.lab.objects import build_object
from twinloop.lab.spec import dump_lab_spec, load_lab_spec, load_preset, parse_lab_spec, presets

SIZES = {
    "letter_a": 0.134,
    "letter_u": 0.125,
    "letter_u_light": 0.082,
    "letter_u_heavy": 0.218,
    "lego": 0.059,
    "domino": 0.106,
    "wafer_tin": 0.210,
    "ketchup": 0.726,
    "nutella": 0.414,
    "spam": 0.365,
    "spray": 0.548,
    "bulb": 0.037,
    "cube": 0.120,
    "screwdriver": 0.600,
}


def test_the_papers_objects_are_all_there():
    """Each object of the paper has a recipe with its mass."""
    for name, mass in SIZES.items():
        assert load_preset(name).mass == mass


@pytest.mark.parametrize("name", presets())
def test_preset_builds_closed_oriented_and_to_size(name):
    """Visual meshes are watertight, outward, of the asked size, grounded and centred."""
    spec = load_preset(name)
    item = build_object(spec, name)
    mesh = trimesh.Trimesh(item.vertices, item.faces, process=False)
    assert mesh.is_watertight
    assert mesh.is_winding_consistent
    assert mesh.volume > 0
    np.testing.assert_allclose(item.size, spec.size, atol=1e-9)
    np.testing.assert_allclose(item.vertices.min(axis=0)[2], 0.0, atol=1e-12)
    np.testing.assert_allclose(
        item.vertices.min(axis=0)[:2], -item.vertices.max(axis=0)[:2], atol=1e-9
    )
    assert len(item.vertices) < 500


@pytest.mark.parametrize("name", presets())
def test_convex_pieces_tile_the_mesh(name):
    """Pieces are closed and convex, and every vertex of the mesh lies on or in one of them."""
    item = build_object(load_preset(name), name)
    reach = np.full(len(item.vertices), np.inf)
    volume = 0.0
    for vertices, faces in item.parts:
        piece = trimesh.Trimesh(vertices, faces, process=False)
        assert piece.is_watertight
        volume += piece.volume
        t = vertices[faces]
        normal = np.cross(t[:, 1] - t[:, 0], t[:, 2] - t[:, 0])
        normal /= np.linalg.norm(normal, axis=1, keepdims=True)
        offset = np.einsum("fi,fi->f", normal, t[:, 0])
        assert (vertices @ normal.T - offset).max() < 1e-9  # convex
        reach = np.minimum(reach, (item.vertices @ normal.T - offset).max(axis=1))
    assert reach.max() < 1e-3
    whole = trimesh.Trimesh(item.vertices, item.faces, process=False).volume
    assert volume == pytest.approx(whole, rel=0.01)


@pytest.mark.parametrize("name", ["spam", "letter_u", "lego", "screwdriver"])
def test_no_two_faces_share_a_texel(name):
    """Charts do not overlap in the atlas and stretch by less than 1.8."""
    item = build_object(load_preset(name), name)
    uv = item.uv[item.face_uv]
    assert uv.min() > 0.0
    assert uv.max() < 1.0
    extent = np.array(item.texture.shape[1::-1])
    edge = (uv[:, [1, 2]] - uv[:, [0, 0]]) * extent
    flat = 0.5 * np.abs(edge[:, 0, 0] * edge[:, 1, 1] - edge[:, 0, 1] * edge[:, 1, 0])
    t = item.vertices[item.faces]
    area = 0.5 * np.linalg.norm(np.cross(t[:, 1] - t[:, 0], t[:, 2] - t[:, 0]), axis=1)
    texel = np.sqrt(np.median(area / flat))
    assert (area / flat / texel**2).max() < 3.1
    centres = (uv.mean(axis=1) * extent).astype(int)
    owner = np.zeros(item.texture.shape[:2], dtype=int)
    for k, corners in enumerate(uv * extent, start=1):
        inner = corners.mean(axis=0) + 0.3 * (corners - corners.mean(axis=0))
        for x, y in np.rint(inner).astype(int):
            assert owner[y, x] in (0, k)
            owner[y, x] = k
    assert len(centres) == len(item.faces)


def test_texture_depends_on_the_seed_alone():
    """Same seed, same print; another seed, another print."""
    one = build_object(parse_lab_spec({"preset": "cube", "seed": 4}), "a").texture
    two = build_object(parse_lab_spec({"preset": "cube", "seed": 4}), "b").texture
    other = build_object(parse_lab_spec({"preset": "cube", "seed": 5}), "a").texture
    assert np.array_equal(one, two)
    assert not np.array_equal(one, other)


def test_recipe_errors_name_every_fault_and_teach():
    """All wrong fields at once, with value, rule and what to do."""
    with pytest.raises(InputError) as caught:
        parse_lab_spec({"shape": "teapot", "size": [1, 1, 1], "mass": -1, "wieght": 3})
    text = str(caught.value)
    assert "mass" in text
    assert "-1" in text
    assert "wieght" in text
    with pytest.raises(InputError, match=r"unknown shape 'teapot'.*rounded_box"):
        parse_lab_spec({"shape": "teapot", "size": [0.1, 0.1, 0.1], "mass": 1})
    with pytest.raises(InputError, match="not millimetres"):
        parse_lab_spec({"shape": "cylinder", "size": [100, 55, 85], "mass": 1})
    with pytest.raises(InputError, match=r"known: .*spam"):
        parse_lab_spec({"preset": "spma"})
    with pytest.raises(InputError, match="at most 1"):
        parse_lab_spec(
            {
                "preset": "spam",
                "filling": {"shell": 0.8, "lumps": [{"share": 0.5, "at": [0, 0, 0]}]},
            }
        )


def test_recipe_round_trips_through_yaml(tmp_path):
    """What is written is read back equal; a preset with overrides merges deeply."""
    spec = parse_lab_spec({"preset": "spam", "mass": 0.2, "filling": {"level": 0.5}})
    assert spec.filling.level == 0.5
    assert spec.filling.shell == load_preset("spam").filling.shell
    path = tmp_path / "lab.yaml"
    path.write_text(dump_lab_spec(spec))
    assert load_lab_spec(path) == spec
    with pytest.raises(InputError, match="preset: spam"):
        load_lab_spec(tmp_path / "none.yaml")


def sha256(path: Path) -> str:
    """Hash of a file, as `sha256sum` prints it."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_own_mesh_becomes_an_object(tmp_path):
    """A concave closed mesh is read, scaled to size and cut into convex pieces."""
    item = build_object(load_preset("letter_u"), "u")
    trimesh.Trimesh(item.vertices * 1000, item.faces).export(tmp_path / "u.ply")
    recipe = {"shape": "mesh", "mesh": "u.ply", "sha256": sha256(tmp_path / "u.ply"), "mass": 0.1}
    with pytest.raises(InputError, match=r"156 m long.*millimetres"):
        build_object(parse_lab_spec(recipe), "u", tmp_path)
    spec = parse_lab_spec({**recipe, "size": [0.087, 0.043, 0.156]})
    mine = build_object(spec, "u", tmp_path)
    assert len(mine.parts) >= 2
    np.testing.assert_allclose(mine.size, item.size, atol=1e-6)
    mesh = trimesh.Trimesh(mine.vertices, mine.faces, process=False)
    assert mesh.volume == pytest.approx(3.61e-4, rel=0.01)


def test_open_or_missing_mesh_is_refused(tmp_path):
    """A hole makes mass undefined: the message says so."""
    item = build_object(load_preset("cube"), "c")
    trimesh.Trimesh(item.vertices, item.faces[:-2]).export(tmp_path / "open.obj")
    with pytest.raises(InputError, match="holes"):
        build_object(
            parse_lab_spec(
                {
                    "shape": "mesh",
                    "mesh": "open.obj",
                    "sha256": sha256(tmp_path / "open.obj"),
                    "mass": 0.1,
                }
            ),
            "c",
            tmp_path,
        )
    with pytest.raises(InputError, match="no such mesh file"):
        build_object(
            parse_lab_spec({"shape": "mesh", "mesh": "no.obj", "mass": 0.1}), "c", tmp_path
        )


def test_an_edited_mesh_is_refused_until_the_recipe_names_it(tmp_path):
    """The recipe's hash binds the file; the message gives the right hash and what to do with it."""
    item = build_object(load_preset("cube"), "c")
    path = tmp_path / "c.stl"
    trimesh.Trimesh(item.vertices, item.faces).export(path)
    recipe = {"shape": "mesh", "mesh": "c.stl", "mass": 0.1}
    with pytest.raises(InputError, match=f"no sha256.*`sha256: {sha256(path)}` below"):
        build_object(parse_lab_spec(recipe), "c", tmp_path)
    bound = parse_lab_spec({**recipe, "sha256": sha256(path)})
    first = build_object(bound, "c", tmp_path)
    trimesh.Trimesh(item.vertices * 1.01, item.faces).export(path)
    with pytest.raises(InputError, match=f"says sha256 {bound.sha256}.*is {sha256(path)}"):
        build_object(bound, "c", tmp_path)
    edited = build_object(parse_lab_spec({**recipe, "sha256": sha256(path)}), "c", tmp_path)
    np.testing.assert_allclose(edited.size, 1.01 * first.size, rtol=1e-6)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mesh": "../secret.obj"}, "plain name"),
        ({"mesh": "/etc/passwd"}, "plain name"),
        ({"mesh": "world.yaml"}, "plain name"),
        ({"sha256": "ABC"}, "sha256"),
        ({"shape": "cylinder", "size": [0.1, 0.1, 0.1]}, "set shape: mesh"),
    ],
)
def test_a_mesh_is_a_plain_file_beside_the_recipe(change, words):
    """No path outside the folder, no other kind of file, no hash without a mesh."""
    recipe = {"shape": "mesh", "mesh": "u.ply", "sha256": "0" * 64, "mass": 0.1}
    with pytest.raises(InputError, match=words):
        parse_lab_spec({**recipe, **change})
