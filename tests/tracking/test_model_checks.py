"""Meshes in other units or with another axis up, and clips without intrinsics."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
import trimesh

from tests import realdata
from tests.tracking.box_scene import TAG_CENTRES, TAG_SIZE, BoxScene, look_at
from twinloop.capture.board import Board, Tag
from twinloop.errors import InputError
from twinloop.geometry import se3
from twinloop.tracking.clip_lens import lens_of_clip
from twinloop.tracking.model_checks import (
    TURNS,
    check_mesh,
    check_rest,
    check_scale,
    check_silhouette,
    overlap,
    silhouette,
    stable_rests,
    tilt,
    viewing_distance,
)
from twinloop.tracking.solver import WorldCamera, project, rotation_exp

Array = np.ndarray
CAMERA = WorldCamera(
    np.array([600.0, 600.0, 319.5, 239.5]),
    np.linalg.inv(look_at(np.array([0.0, -0.5, 0.35]), np.array([0.0, 0.0, 0.05]))),
    640,
    480,
)
BOX = trimesh.creation.box(extents=(0.10, 0.055, 0.085))
CONE = trimesh.creation.cone(radius=0.03, height=0.12, sections=48)


def test_scale_is_held_against_the_cameras_distance() -> None:
    """Metres pass; millimetres, centimetres and kilometres are refused with both numbers."""
    assert viewing_distance(CAMERA) == pytest.approx(np.hypot(0.5, 0.3) * 0.35 / 0.3, rel=1e-6)
    V = np.asarray(BOX.vertices)
    check_scale(V, CAMERA, "box.obj")
    for factor, unit, back in (
        (1e3, "millimetres", "0.001"),
        (1e2, "centimetres", "0.01"),
        (1e-3, "kilometres", "1000"),
    ):
        with pytest.raises(
            InputError, match=rf"box.obj: the mesh is .* at a camera 0\.68 m .*{unit} .* by {back}"
        ):
            check_scale(V * factor, CAMERA, "box.obj")


def test_scale_is_held_against_the_silhouette() -> None:
    """An inch that passes for the distance alone does not pass for the object's pixels."""
    pose = se3.exp(np.array([0, 0, 0.0425, 0, 0, 0.3]))
    seen = silhouette(np.asarray(BOX.vertices), np.asarray(BOX.faces), CAMERA, pose)
    # A convex solid's silhouette is the hull of its vertices' pixels.
    hull = cv2.convexHull(project(CAMERA, pose, BOX.vertices)[0].astype(np.float32))
    assert seen.sum() == pytest.approx(cv2.contourArea(hull), rel=0.03)
    check_scale(np.asarray(BOX.vertices), CAMERA, "box.obj", silhouette=seen)
    with pytest.raises(InputError, match=r"its silhouette is 1\d\d px.*In centimetres"):
        check_scale(np.asarray(BOX.vertices) * 100, CAMERA, "box.obj", silhouette=seen)
    with pytest.raises(InputError, match="empty"):
        check_scale(np.asarray(BOX.vertices), CAMERA, "box.obj", silhouette=seen & False)


def test_rests_do_not_mind_noise() -> None:
    """A reconstruction's 0.2 mm of noise leaves a fine box its six rests within a degree."""
    fine = BOX.subdivide().subdivide().subdivide()
    noise = np.random.default_rng(0).normal(0, 2e-4, fine.vertices.shape)
    rests = stable_rests(fine.vertices + noise)
    for axis in np.concatenate([np.eye(3), -np.eye(3)]):
        assert tilt(rests, axis) < 2.0


def test_an_axis_that_is_not_up_is_refused() -> None:
    """A cone whose y is up would fall over as it is, and stand when turned: both are told."""
    V = np.asarray(CONE.vertices)
    check_rest(V, "cone.obj")
    y_up = V @ TURNS["(x, -z, y)"]
    with pytest.raises(
        InputError, match=r"cone.obj: with its z axis up .* is \d\d deg .* to \(x, -z, y\) it is 0"
    ):
        check_rest(y_up, "cone.obj")
    check_rest(y_up @ TURNS["(x, -z, y)"].T, "cone.obj")
    pose = se3.exp(np.array([0.1, 0, 0, np.pi / 2, 0, 0]))  # the pose of a mesh that stands up
    check_rest(y_up, "cone.obj", pose)
    with pytest.raises(InputError, match="in the given pose"):
        check_rest(V, "cone.obj", pose)
    # A box with another face down contradicts nothing.
    check_rest(np.asarray(BOX.vertices) @ TURNS["(x, -z, y)"], "box.obj")


def test_silhouette_tells_the_axes() -> None:
    """In the given pose the mesh as it is agrees; its y-up version is refused."""
    pose = se3.exp(np.array([0.02, 0.0, 0.0, 0.0, 0.0, 0.8]))
    V, F = np.asarray(CONE.vertices), np.asarray(CONE.faces)
    seen = silhouette(V, F, CAMERA, pose)
    assert check_silhouette(V, F, "cone.obj", CAMERA, pose, seen) == 1.0
    with pytest.raises(InputError, match=r"by 0\.\d\d .* turned to \(x, -z, y\) by 1\.00"):
        check_silhouette(V @ TURNS["(x, -z, y)"], F, "cone.obj", CAMERA, pose, seen)
    assert overlap(seen & False, seen & False) == 0.0


def test_a_real_mesh_whose_y_is_up() -> None:
    """The dragon of the ViSP sequence, its own pose, and its silhouette from the depth picture."""
    folder = realdata.folder("rbt")
    mesh = trimesh.load(folder / "models/dragon/dragon.obj", process=False, force="mesh")
    V, F = np.asarray(mesh.vertices), np.asarray(mesh.faces)
    given = np.loadtxt(folder / "models/dragon/dragon.0.pos")
    pose = se3.from_rotation_position(rotation_exp(given[3:]), given[:3])
    fx, fy, cx, cy = 607.18, 607.23, 321.39, 241.92
    camera = WorldCamera(np.array([fx, fy, cx, cy]), np.eye(4), 640, 480)
    z = cv2.imread(str(folder / "sequence/depth_image_0000.png"), cv2.IMREAD_UNCHANGED) * 1e-3
    # What is as far away as the object, within its surroundings, and above the table's plane.
    y, x = np.mgrid[:480, :640]
    points = np.stack([(x - cx) / fx * z, (y - cy) / fy * z, z], axis=-1)
    table = points[345:470:5, 400:440].reshape(-1, 3)
    table = table[table[:, 2] > 0.1]
    for _ in range(5):
        middle = np.median(table, axis=0)
        normal = np.linalg.svd(table - middle)[2][2]
        off = np.abs((table - middle) @ normal)
        table = table[off < max(2 * np.median(off), 2e-3)]
    above = -(points - middle) @ (normal * np.sign(normal[1]))
    seen = (np.abs(z - given[2]) < 0.06) & (above > 0.006)
    seen[:, :440] = seen[:270] = seen[390:] = False
    with pytest.raises(InputError, match=r"by 0\.[34]\d .* turned to \(x, -z, y\) by 0\.6\d"):
        check_silhouette(V, F, "dragon.obj", camera, pose, seen)
    turned = V @ TURNS["(x, -z, y)"].T
    assert check_silhouette(turned, F, "dragon.obj", camera, pose, seen) > 0.6
    distance = float(given[2])
    check_scale(turned, camera, "dragon.obj", distance=distance, silhouette=seen)
    with pytest.raises(InputError, match=r"is 133\.\d m across at a camera 0\.494 m away.*0\.001"):
        check_scale(turned * 1e3, camera, "dragon.obj", distance=distance, silhouette=seen)


@pytest.mark.parametrize(
    ("vertices", "faces", "message"),
    [
        (np.zeros((5, 3)), np.zeros((5, 3), int), "all vertices are in one place"),
        (np.zeros((3, 3)), np.zeros((1, 3), int), "3 vertices and 1 faces"),
        (np.eye(4)[:, :3], np.full((4, 3), 7), "faces name vertices 7 to 7, there are 4"),
        (np.full((4, 3), np.nan), np.zeros((4, 3), int), "vertex 0 is"),
        (np.zeros((4, 2)), np.zeros((4, 3), int), "shape"),
    ],
)
def test_meshes_that_are_none(vertices: Array, faces: Array, message: str) -> None:
    """Each says what is wrong."""
    with pytest.raises(InputError, match=message):
        check_mesh(vertices, faces, "a.obj")


BOARD = Board(tags=tuple(Tag(id=i, size=TAG_SIZE, centre=c) for i, c in TAG_CENTRES.items()))


def filmed(eyes: list[Array], width: int, focal: float, k1: float) -> list[Array]:
    """Grey pictures of the tagged table by a lens with focal length and distortion."""
    scene = BoxScene(noise=1.5)
    height = width * 3 // 4
    K = np.array([focal, focal, (width - 1) / 2 + 0.01 * width, (height - 1) / 2])
    out = []
    for eye in eyes:
        camera = look_at(eye, np.array([0.0, 0.02, 0.0]))
        rgb = scene.render(K, camera, None, width, height, None, np.array([k1, 0, 0, 0, 0]))
        out.append(cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY))
    return out


def test_focal_length_from_one_direction() -> None:
    """A tripod's clip: within 2 % and within what is said of it; from straight above it is not."""
    pictures = filmed([np.array([0.05, -0.45, 0.3])], 400, 420.0, -0.08)
    lens = lens_of_clip(pictures * 2, BOARD, "clip")
    error = abs(lens.camera.intrinsics[0] - 420.0)
    assert error < 0.02 * 420
    assert error < 3 * lens.focal_std
    assert lens.views == 1
    with pytest.raises(InputError, match=r"focal length at \d+ \+- \d+ px"):
        lens_of_clip(filmed([np.array([0.0, 0.0199, 0.6])], 320, 333.0, 0.0), BOARD, "clip")


def test_lens_from_several_directions() -> None:
    """A camera that moves about gives the whole lens."""
    eyes = [
        np.array([0.5 * np.sin(a) * np.cos(e), -0.5 * np.cos(a) * np.cos(e), 0.5 * np.sin(e)])
        for a, e in ((-0.9, 0.5), (-0.3, 1.2), (0.3, 0.6), (0.9, 0.9))
    ]
    lens = lens_of_clip(filmed(eyes, 320, 340.0, -0.08), BOARD, "clip")
    np.testing.assert_allclose(lens.camera.intrinsics[:2], 340.0, rtol=0.01)
    assert lens.views == 4
    assert lens.camera.intrinsics[2] == pytest.approx(159.5 + 3.2, abs=2.0)


def test_without_a_board_the_lens_has_to_be_given() -> None:
    """The message says what to give; an empty clip is an error, too."""
    with pytest.raises(
        InputError, match=r"clip: the camera's intrinsics are not given.*camera.yaml"
    ):
        lens_of_clip([np.full((240, 320), 90, np.uint8)], BOARD, "clip")
    with pytest.raises(InputError, match="no frame"):
        lens_of_clip([], BOARD, "clip")
