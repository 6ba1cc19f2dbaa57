"""Splats and meshes from elsewhere: every ending, and sizes that give a wrong unit away."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trimesh

from tests.splat.test_transform import some
from twinloop.errors import InputError
from twinloop.splat.gaussians import Gaussians
from twinloop.splat.imported import Mesh, load_splats, load_start, save_splats


@pytest.mark.parametrize("ending", [".ply", ".obj", ".glb", ".stl"])
def test_meshes(tmp_path: Path, ending: str) -> None:
    """The same shape from each kind of file, in metres; colours where the file has them."""
    box = trimesh.creation.box([0.1, 0.06, 0.08])
    box.visual.vertex_colors = np.tile(np.uint8([10, 200, 30, 255]), (8, 1))
    path = tmp_path / f"box{ending}"
    box.export(path)
    mesh = load_start(path)
    assert isinstance(mesh, Mesh)
    np.testing.assert_allclose(np.ptp(mesh.vertices, axis=0), [0.1, 0.06, 0.08], atol=1e-7)
    assert len(mesh.faces) == 12
    if ending != ".stl":
        np.testing.assert_array_equal(mesh.colors[0], [10, 200, 30])


def test_splats(tmp_path: Path) -> None:
    """Splats come back from a PLY as they are, and scaled."""
    start = some(2)
    save_splats(start, tmp_path / "a.ply")
    back = load_start(tmp_path / "a.ply")
    assert isinstance(back, Gaussians)
    np.testing.assert_array_equal(back.means, start.means)
    double = load_start(tmp_path / "a.ply", scale=2)
    np.testing.assert_allclose(double.means, 2 * start.means, rtol=1e-6)
    np.testing.assert_allclose(double.scales, 2 * start.scales, rtol=1e-6)


def test_spz(tmp_path: Path) -> None:
    """And from an SPZ."""
    pytest.importorskip("gsply", reason="the extra `splat` is not installed")
    save_splats(some(1), tmp_path / "a.spz")
    assert load_start(tmp_path / "a.spz").degree == 1


def test_wrong_units(tmp_path: Path) -> None:
    """A message that says how large it is and what that looks like; the scale cures it."""
    path = tmp_path / "box.obj"
    trimesh.creation.box([250, 60, 80]).export(path)
    with pytest.raises(InputError, match=r"is 250 m long .*looks like mm \(scale 0.001: 0.25 m\)"):
        load_start(path)
    assert load_start(path, scale=1e-3).extent == pytest.approx(0.25)
    start = some(0)
    tiny = Gaussians(start.means / 1e5, *list(vars(start).values())[1:5])
    save_splats(tiny, tmp_path / "a.ply")
    with pytest.raises(InputError, match=r"expected 0\.003 to 3 m"):
        load_start(tmp_path / "a.ply")


def test_what_is_neither(tmp_path: Path) -> None:
    """Other endings, empty and damaged files, and scales that are none."""
    path = tmp_path / "box.step"
    path.write_text("solid")
    with pytest.raises(InputError, match=r"ends in one of \.ply, \.spz, \.obj"):
        load_start(path)
    with pytest.raises(InputError, match="no such file"):
        load_start(tmp_path / "none.ply")
    for name, content in (("a.glb", b"glTF" + bytes(40)), ("a.obj", b"v 0 0 0\n"), ("a.stl", b"x")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=r"cannot be read as a mesh|no triangles"):
            load_start(tmp_path / name)
    with pytest.raises(InputError, match="metres per unit"):
        load_start(path, scale=-1)
    with pytest.raises(InputError, match=r"ends in \.ply or \.spz"):
        load_splats(path)
    with pytest.raises(InputError, match=r"ends in \.ply or \.spz"):
        save_splats(some(0), tmp_path / "a.splat")


def glb(path: Path, change: Callable[[dict[str, Any]], object]) -> bytes:
    """Write a box as GLB, its tree changed; returns the buffer."""
    whole = trimesh.creation.box([0.1, 0.06, 0.08]).export(file_type="glb")
    length = struct.unpack_from("<I", whole, 12)[0]
    tree, buffer = json.loads(whole[20 : 20 + length]), whole[28 + length :]
    change(tree)
    text = json.dumps(tree).encode()
    text += b" " * (-len(text) % 4)
    body = struct.pack("<II", len(text), 0x4E4F534A) + text
    body += struct.pack("<II", len(buffer), 0x004E4942) + buffer
    path.write_bytes(struct.pack("<4sII", b"glTF", 2, 12 + len(body)) + body)
    return bytes(buffer)


@pytest.mark.parametrize(
    "uri", ["side.bin", "../side.bin", "file:///etc/passwd", "http://127.0.0.1:9/side.bin"]
)
def test_nothing_beside_a_mesh_is_read(tmp_path: Path, uri: str) -> None:
    """A glTF's buffer in another file: of that the hash of the first would say nothing."""
    path = tmp_path / "a.glb"
    (tmp_path / "side.bin").write_bytes(glb(path, lambda tree: None))
    assert isinstance(load_start(path), Mesh)
    glb(path, lambda tree: tree["buffers"][0].update(uri=uri))
    with pytest.raises(InputError, match=r"a\.glb: cannot be read as a mesh .* in one file"):
        load_start(path)


def test_triangles_of_vertices_that_are_not_there(tmp_path: Path) -> None:
    """Found on reading, whatever the format: native code trusts the numbers."""
    path = tmp_path / "a.glb"
    glb(path, lambda tree: [a.update(count=0) for a in tree["accessors"] if a["type"] == "VEC3"])
    with pytest.raises(InputError, match=r"a\.glb: a triangle has vertex 7 of 0"):
        load_start(path)
    box = trimesh.creation.box([0.1, 0.06, 0.08])
    whole = box.export(file_type="ply", encoding="binary")
    for wrong in (-5, 8, 2**31 - 1):
        (tmp_path / "a.ply").write_bytes(whole[:-4] + struct.pack("<i", wrong))
        with pytest.raises(InputError, match=rf"a\.ply: a triangle has vertex {wrong} of 8"):
            load_start(tmp_path / "a.ply")
