"""Textures from pictures, and the GLB that carries them."""

from __future__ import annotations

import json
import struct
from dataclasses import replace

import numpy as np
import pytest
import trimesh

from tests.splat.synthetic import rounded_box, scan, texture
from twinloop.errors import InputError
from twinloop.export.glb import read_glb, write_glb
from twinloop.geometry import se3
from twinloop.geometry.textured import TexturedMesh
from twinloop.splat.surface import vertex_normals
from twinloop.splat.texture import bake_texture
from twinloop.splat.views import Views


def _views(mesh: trimesh.Trimesh, count: int = 18) -> Views:
    frames = scan(mesh, views=count, supersample=2).frames
    poses = se3.from_position_quaternion(
        frames["position_world_camera"].values, frames["quaternion_world_camera"].values
    )
    return Views(
        frames["image"].values,
        frames["mask"].values,
        frames["intrinsics"].values,
        se3.inverse(poses),
    )


@pytest.fixture(scope="module")
def box() -> trimesh.Trimesh:
    """A rounded box that stands on z = 0, with flat sides cut fine enough."""
    return rounded_box()


@pytest.fixture(scope="module")
def textured(box) -> TexturedMesh:
    """Its texture, from eighteen pictures."""
    return bake_texture(np.asarray(box.vertices), np.asarray(box.faces, np.int32), _views(box), 384)


def at_uv(mesh: TexturedMesh, uv: np.ndarray) -> np.ndarray:
    """Nearest texels (n, 3) of uv (n, 2), as glTF says once rows are flipped."""
    size = len(mesh.image)
    column = (uv[:, 0] * size).astype(int).clip(0, size - 1)
    row = ((1 - uv[:, 1]) * size).astype(int).clip(0, size - 1)
    return mesh.image[row, column].astype(float)


def test_texture_shows_what_the_object_looks_like(box, textured) -> None:
    """Colours in the middle of faces equal the object's own under the scan's light."""
    middle = textured.vertices[textured.faces].mean(axis=1)
    found = at_uv(textured, textured.uv[textured.faces].mean(axis=1))
    normal = box.face_normals
    light = 0.75 + 0.25 * (normal @ np.array([0.3, 0.5, 0.81]))
    wanted = 255 * (texture(middle) * light[:, None]).clip(0, 1)
    seen = (normal[:, 2] > -0.3) & (box.area_faces > np.percentile(box.area_faces, 90))
    error = np.abs(found - wanted)[seen]
    assert seen.sum() > 50
    # The pictures' pixels, 1.4 mm, blur waves of 7 mm.
    assert error.mean() < 12
    assert np.corrcoef(found[seen].ravel(), wanted[seen].ravel())[0, 1] > 0.95
    assert 0.6 < textured.seen < 1.0


def test_charts_do_not_overlap_and_have_no_dark_seams(box, textured) -> None:
    """A vertex on a seam has the same colour in each of its charts, on their very border."""
    np.testing.assert_array_equal(textured.source[textured.faces], box.faces)
    corners = at_uv(textured, textured.uv)
    low, high = np.full((len(box.vertices), 3), 255.0), np.zeros((len(box.vertices), 3))
    np.minimum.at(low, textured.source, corners)
    np.maximum.at(high, textured.source, corners)
    spread = (high - low).max(axis=1)[np.bincount(textured.source) > 1]
    assert len(spread) > 100
    assert spread.mean() < 8
    assert np.percentile(spread, 90) < 20
    uv = textured.uv[textured.faces]
    edge = uv[:, 1:] - uv[:, :1]
    area = 0.5 * np.abs(edge[:, 0, 0] * edge[:, 1, 1] - edge[:, 0, 1] * edge[:, 1, 0])
    assert area.sum() < 1
    assert textured.uv.min() >= 0
    assert textured.uv.max() <= 1


def test_glb_round_trips_and_opens_upright(tmp_path, box, textured) -> None:
    """Same bytes twice; trimesh reads texture and metres, y up; `read_glb` gives the mesh back."""
    normals = vertex_normals(np.asarray(box.vertices), np.asarray(box.faces, np.int32))
    for name in ("one.glb", "two.glb"):
        write_glb(tmp_path / name, textured, normals)
    data = (tmp_path / "one.glb").read_bytes()
    assert data == (tmp_path / "two.glb").read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["one.glb", "two.glb"]
    vertices, faces = read_glb(tmp_path / "one.glb")
    np.testing.assert_array_equal(faces, textured.faces)
    np.testing.assert_array_equal(vertices, textured.vertices.astype(np.float32))
    loaded = trimesh.load(tmp_path / "one.glb", process=False)
    (solid,) = loaded.geometry.values()
    assert solid.bounds[0][1] == pytest.approx(0, abs=1e-7)
    assert solid.extents == pytest.approx(box.extents[[0, 2, 1]], abs=1e-6)
    assert solid.volume == pytest.approx(box.volume, rel=1e-5)
    np.testing.assert_allclose(solid.visual.uv, textured.uv, atol=1e-6)
    picture = np.asarray(solid.visual.material.baseColorTexture.convert("RGB"))
    np.testing.assert_array_equal(picture, textured.image)
    length, _ = struct.unpack_from("<II", data, 12)
    tree = json.loads(data[20 : 20 + length])
    assert tree["asset"]["version"] == "2.0"
    assert tree["materials"][0]["pbrMetallicRoughness"]["metallicFactor"] == 0.0
    assert "NORMAL" in tree["meshes"][0]["primitives"][0]["attributes"]


def test_baking_is_deterministic(box, textured) -> None:
    """The same atlas and the same texels from the same pictures."""
    again = bake_texture(
        np.asarray(box.vertices), np.asarray(box.faces, np.int32), _views(box), 384
    )
    assert again.uv.tobytes() == textured.uv.tobytes()
    assert again.image.tobytes() == textured.image.tobytes()


def test_faults_are_named(tmp_path, box, textured) -> None:
    """Pictures that see nothing, sizes that mean nothing, files that are none, a failed write."""
    views = _views(box, 3)
    vertices, faces = np.asarray(box.vertices), np.asarray(box.faces, np.int32)
    with pytest.raises(InputError, match="none of 3 pictures"):
        bake_texture(vertices + 5.0, faces, views, 64)
    with pytest.raises(InputError, match="16 to 8192"):
        bake_texture(vertices, faces, views, 0)
    for lost in (vertices * 1e20, vertices * 1e-20, vertices + 1e6, vertices * 0):
        with pytest.raises(InputError, match="m long and lies up to"):
            bake_texture(lost, faces, views, 64)
    with pytest.raises(InputError, match="no face of the mesh has an area"):
        bake_texture(vertices * (1, 0, 0), faces, views, 64)
    with pytest.raises(InputError, match="normals"):
        write_glb(tmp_path / "x.glb", textured, np.zeros((2, 3)))
    normals = vertex_normals(vertices, faces)
    for wrong, message in (
        ({"uv": textured.uv * np.nan}, "not finite"),
        ({"source": textured.source - 5}, "sources"),
        ({"source": textured.source[:3]}, "sources"),
        ({"image": textured.image[:0]}, "expected uint8"),
        ({"image": textured.image.astype(float)}, "texture of float64"),
    ):
        with pytest.raises(InputError, match=message):
            write_glb(tmp_path / "x.glb", replace(textured, **wrong), normals)
    with pytest.raises(InputError, match="not finite"):
        write_glb(tmp_path / "x.glb", textured, normals * np.nan)
    with pytest.raises(InputError, match="there is no folder"):
        write_glb(tmp_path / "none" / "x.glb", textured, normals)
    assert not list(tmp_path.iterdir())
    (tmp_path / "bad.glb").write_bytes(b"glTF\x02\x00\x00\x00\xff\xff\xff\xff")
    with pytest.raises(InputError, match=r"bad\.glb"):
        read_glb(tmp_path / "bad.glb")
