"""Finding the resting object: textured, symmetric, and absent; following it through a push."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from tests.tracking.box_scene import BoxScene, look_at, push_motion, scan_views
from twinloop.errors import InputError
from twinloop.metrics.poses import average_distance
from twinloop.tracking.initialise import find_start, search_table
from twinloop.tracking.model import ObjectModel, build_model
from twinloop.tracking.solver import WorldCamera, rotation_log
from twinloop.tracking.tracker import Settings, track_clip

EYE = look_at(np.array([0.1, -0.42, 0.3]), np.array([0.0, 0.0, 0.03]))
CAMERA = WorldCamera(np.array([400.0, 400.0, 199.5, 149.5]), np.linalg.inv(EYE), 400, 300)


def model_of(scene: BoxScene, views: int = 16) -> ObjectModel:
    """The tracked model of a box scene."""
    scan = scan_views(scene, views)
    vertices, faces, _ = scene.mesh()
    return build_model(
        vertices, faces, scan["images"], scan["intrinsics"], scan["cameras"], scan["rest"]
    )


def grey(scene: BoxScene, pose: np.ndarray | None) -> np.ndarray:
    """A grey picture of the scene."""
    image = scene.render(CAMERA.intrinsics, EYE, pose, 400, 300)
    return np.asarray(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY))


@pytest.fixture(scope="module")
def textured() -> tuple[BoxScene, ObjectModel]:
    """A textured box and its model."""
    scene = BoxScene(seed=3)
    return scene, model_of(scene)


def start_of(model: ObjectModel, image: np.ndarray):
    """The start with the usual settings."""
    return find_start(model, CAMERA, image, features=100, sigma=0.8, minimum_inliers=8)


def test_textured_box_is_found_surely_and_followed(
    textured: tuple[BoxScene, ObjectModel],
) -> None:
    """Start within 1 mm and sure; through a tap ADD stays below 2 mm, NEES below 12 on average."""
    scene, model = textured
    times = np.arange(0.42, 0.9, 1 / 40)
    truth = push_motion(scene, times, "tap", np.array([0.01, 0.02, 0.4]))
    images = [grey(scene, pose) for pose in truth]
    start = start_of(model, images[0])
    assert start is not None
    assert start.sure
    points = scene.mesh()[0]
    assert average_distance(start.solution.pose, truth[0], points) < 0.001
    frames = zip(times, images, strict=True)
    _, found = track_clip(model, CAMERA, frames, images[0], start, Settings())
    assert average_distance(found.pose, truth, points).mean() < 0.002
    assert (found.status == 0).mean() > 0.9
    turn = rotation_log(truth[:, :3, :3] @ np.swapaxes(found.pose[:, :3, :3], 1, 2))
    error = np.concatenate([truth[:, :3, 3] - found.pose[:, :3, 3], turn], axis=1)
    nees = np.einsum("ni,nij,nj->n", error, np.linalg.inv(found.covariance), error)
    assert nees.mean() < 12.0


def test_search_over_the_table_needs_no_features(textured: tuple[BoxScene, ObjectModel]) -> None:
    """The best candidates of the template search hold one within 15 mm and 15 deg of the truth."""
    scene, model = textured
    truth = push_motion(scene, np.zeros(1), "slide", np.array([-0.03, 0.04, 2.0]))[0]
    best = search_table(model, CAMERA, grey(scene, truth))[:4]
    misses = [
        (
            np.linalg.norm(pose[:3, 3] - truth[:3, 3]),
            np.linalg.norm(rotation_log(truth[:3, :3] @ pose[:3, :3].T)),
        )
        for _, pose in best
    ]
    assert any(d < 0.015 and angle < 0.27 for d, angle in misses)


def test_same_label_on_opposite_faces_is_uncertain() -> None:
    """A box that looks the same after half a turn is never reported as sure."""
    scene = BoxScene(seed=5)
    for axis in (0, 1):
        corners, _ = scene.faces[2 * axis + 1]
        other, texture = scene.faces[2 * axis]
        # Half a turn about z maps one face on the other with its first coordinate mirrored.
        scene.faces[2 * axis + 1] = (corners, texture[:, ::-1].copy())
        assert other.shape == corners.shape
    top_corners, top = scene.faces[5]
    half = top[: (len(top) + 1) // 2]
    scene.faces[5] = (top_corners, np.concatenate([half, half[::-1, ::-1][len(top) % 2 :]]))
    model = model_of(scene)
    truth = push_motion(scene, np.zeros(1), "slide", np.array([0.0, 0.02, 0.3]))[0]
    start = start_of(model, grey(scene, truth))
    assert start is None or not start.sure


def test_absent_object_is_not_found(textured: tuple[BoxScene, ObjectModel]) -> None:
    """An empty table gives no start, and so a track of lost frames with wide covariance."""
    scene, model = textured
    image = grey(scene, None)
    assert start_of(model, image) is None
    times, found = track_clip(model, CAMERA, [(0.0, image)] * 3, image, None, Settings())
    assert len(times) == 3
    assert (found.status == 2).all()
    assert (np.linalg.eigvalsh(found.covariance) > 0.9).all()


def test_mesh_in_millimetres_is_refused() -> None:
    """A mesh a thousand times too large is an error that says so."""
    scene = BoxScene()
    scan = scan_views(scene, 4)
    vertices, faces, _ = scene.mesh()
    with pytest.raises(InputError, match="metres, not millimetres"):
        build_model(
            1000 * vertices,
            faces,
            scan["images"],
            scan["intrinsics"],
            scan["cameras"],
            scan["rest"],
        )
