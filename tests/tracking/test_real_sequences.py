"""The readers of third-party sequences agree with the geometry of what they read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.track_real import (
    BOX_HIGH,
    BOX_LOW,
    box_mesh,
    moved_depth,
    rbt,
    read_depth,
    read_obj,
    teabox,
    upright,
)
from tests import realdata
from twinloop.errors import InputError
from twinloop.geometry import se3
from twinloop.geometry.mesh import mass_properties
from twinloop.geometry.raycast import MeshRenderer
from twinloop.tracking.solver import WorldCamera


def test_a_box_is_closed_and_outward() -> None:
    """Its enclosed volume is that of its sides, positive only if all faces look outward."""
    vertices, faces = box_mesh(np.array(BOX_LOW), np.array(BOX_HIGH))
    properties = mass_properties(vertices, faces)
    assert properties.volume == pytest.approx(0.165 * 0.068 * 0.08, rel=1e-12)
    np.testing.assert_allclose(properties.centroid, [0.0825, 0.034, -0.04], atol=1e-12)


def test_y_up_becomes_z_up_by_a_rotation() -> None:
    """The map has determinant 1 and takes y to z: nothing is mirrored."""
    turned = upright(np.eye(3)).T
    assert np.linalg.det(turned) == pytest.approx(1.0)
    np.testing.assert_array_equal(turned @ [0, 1, 0], [0, 0, 1])


def test_depth_moves_to_another_camera() -> None:
    """A slanted plane seen by one camera has its exact depth in another, 5 cm beside."""
    camera = WorldCamera(np.array([300.0, 300.0, 79.5, 59.5]), np.eye(4), 160, 120)
    _v, u = np.mgrid[:120, :160]
    intrinsics = (280.0, 280.0, 79.5, 59.5)
    # The plane z = 0.5 + 0.3 x, where each ray of the first camera meets it.
    depth = (0.5 / (1 - 0.3 * (u - 79.5) / 280.0)).astype(np.float32)
    T = np.eye(4)
    T[0, 3] = -0.05
    moved = moved_depth(depth, camera, intrinsics, T)
    rows, columns = np.nonzero(moved)
    expected = (0.5 + 0.3 * 0.05) / (1 - 0.3 * (columns - 79.5) / 300.0)
    # Half a pixel of rounding, times the slope.
    assert np.abs(moved[rows, columns] - expected).max() < 0.3 * 0.6 * 0.6 / 280
    assert len(rows) > 0.6 * depth.size


def test_an_obj_file_is_read_or_refused(tmp_path: Path) -> None:
    """Quads become triangles; a face that names no vertex is said with the file's name."""
    path = tmp_path / "a.obj"
    path.write_text("v 0 0 0\nv 1 0 0\nv 1 1 0\nv 0 1 0\nvn 0 0 1\nf 1//1 2//1 3//1 4//1\n")
    vertices, faces = read_obj(path)
    assert len(vertices) == 4
    np.testing.assert_array_equal(faces, [[0, 1, 2], [0, 2, 3]])
    path.write_text("v 0 0 0\nf 1 2 3\n")
    with pytest.raises(InputError, match=r"a\.obj"):
        read_obj(path)


def test_the_tea_box_is_where_its_poses_say() -> None:
    """The moved depth is that of the mesh at the true pose: to the rounding of a half float."""
    sequence = teabox(depth=True, folder=realdata.folder("teabox"))
    assert sequence.count == 49
    frame = next(sequence.frames()).cameras[0]
    assert frame.depth is not None
    assert sequence.truth is not None
    mesh = MeshRenderer(sequence.vertices, sequence.faces)
    K = frame.camera.intrinsics
    drawn = mesh.render(K, 640, 480, sequence.truth[0]).depth
    both = (drawn > 0) & (frame.depth > 0)
    assert both.sum() > 0.6 * (drawn > 0).sum()
    assert (both.sum() / (frame.depth > 0).sum()) > 0.99
    difference = frame.depth[both] - drawn[both]
    assert abs(np.median(difference)) < 2e-4
    assert np.percentile(np.abs(difference), 95) < 1.2e-3
    # The picture's own outline: the ground is a plain grey.
    rgb = frame.rgb.astype(int)
    shown = np.abs(rgb - np.median(rgb.reshape(-1, 3), axis=0)).max(axis=-1) > 12
    assert (shown & (drawn > 0)).sum() / (shown | (drawn > 0)).sum() > 0.95


@pytest.mark.parametrize("name", ["cube", "dragon"])
def test_the_real_objects_are_where_they_start(name: str) -> None:
    """Measured depth lies on the mesh at the first pose: the unit and the up axis are right."""
    folder = realdata.folder("rbt")
    sequence = rbt(name, depth=True, folder=folder)  # type: ignore[arg-type]
    assert sequence.count == 99
    assert sequence.start is not None
    assert sequence.truth is not None
    np.testing.assert_allclose(sequence.truth[0], sequence.start, atol=1e-12)
    frame = next(sequence.frames()).cameras[0]
    assert frame.depth is not None
    mesh = MeshRenderer(sequence.vertices, sequence.faces)
    K = frame.camera.intrinsics
    drawn = mesh.render(K, 640, 480, sequence.start)
    both = drawn.mask & (frame.depth > 0)
    near = np.abs(frame.depth[both] - drawn.depth[both]) < 0.02
    assert near.mean() > 0.9
    y_up = MeshRenderer(sequence.vertices[:, [0, 2, 1]] * [1, 1, -1], sequence.faces)
    wrong = y_up.render(K, 640, 480, sequence.start)
    both = wrong.mask & (frame.depth > 0)
    if name == "dragon":
        assert (np.abs(frame.depth[both] - wrong.depth[both]) < 0.02).mean() < near.mean() - 0.2


def test_the_poses_from_tags_keep_the_objects_together() -> None:
    """By the tags' poses the cube stands still beside the dragon, in all frames."""
    folder = realdata.folder("rbt")
    cube, dragon = rbt("cube", folder=folder).truth, rbt("dragon", folder=folder).truth
    assert cube is not None
    assert dragon is not None
    relative = se3.inverse(cube) @ dragon
    np.testing.assert_allclose(relative, np.broadcast_to(relative[0], relative.shape), atol=1e-6)


def test_a_depth_picture_that_is_none_is_refused(tmp_path: Path) -> None:
    """The message names the file."""
    path = tmp_path / "depth.png"
    path.write_bytes(b"no picture")
    with pytest.raises(InputError, match=r"depth\.png"):
        read_depth(path)
