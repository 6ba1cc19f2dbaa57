"""The table as Gaussians of its own: the object is out, what no camera saw is filled in."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from tests.splat.synthetic import rounded_box
from twinloop.errors import InputError
from twinloop.geometry import se3
from twinloop.geometry.camera import look_at, rays
from twinloop.geometry.raycast import MeshRenderer
from twinloop.splat.cameras import Camera
from twinloop.splat.gaussians import Gaussians, on_surface
from twinloop.splat.render import render
from twinloop.splat.scene import merge
from twinloop.splat.surroundings import (
    TABLE,
    fit_surroundings,
    mean_colors,
    surroundings_start,
    within_masks,
)
from twinloop.splat.train import scene_settings
from twinloop.splat.views import Views

BOX = rounded_box()
K = np.array([70.0, 70.0, 35.5, 26.5])
WIDTH, HEIGHT = 72, 54


def table_colour(points: np.ndarray) -> np.ndarray:
    """Colours (..., 3) of the table: broad smooth stripes of two hues."""
    wave = np.sin(points[..., :1] * 30) * np.cos(points[..., 1:2] * 25)
    return 0.5 + wave * np.array([0.3, 0.1, -0.25])


def picture(T_world_camera: np.ndarray, box: bool) -> tuple[np.ndarray, np.ndarray]:
    """Colours (h, w, 3) and object mask (h, w) of the scene, with or without the box."""
    directions = rays(K, WIDTH, HEIGHT) @ T_world_camera[:3, :3].T
    down = np.minimum(directions[..., 2], -1e-6)
    far = -T_world_camera[2, 3] / down
    points = T_world_camera[:3, 3] + far[..., None] * directions
    sky = directions[..., 2] > -1e-3
    colour = np.where(sky[..., None], 0.7, table_colour(points))
    hit = MeshRenderer(BOX.vertices, BOX.faces).render(
        K, WIDTH, HEIGHT, se3.inverse(T_world_camera)
    )
    mask = hit.mask & box
    return np.where(mask[..., None], [0.8, 0.1, 0.1], colour), mask


@dataclass
class Scene:
    """Twelve views around the box on the table."""

    views: Views
    poses: np.ndarray


@pytest.fixture(scope="module")
def scene() -> Scene:
    """Views from two heights."""
    poses, images, masks = [], [], []
    for i in range(12):
        a, e = 2 * np.pi * i / 12, np.radians(35 if i % 2 else 55)
        eye = 0.4 * np.array([np.cos(a) * np.cos(e), np.sin(a) * np.cos(e), np.sin(e)])
        poses.append(look_at(eye, [0, 0, 0.03]))
        image, mask = picture(poses[-1], True)
        images.append(np.rint(255 * image).astype(np.uint8))
        masks.append(np.where(mask, 255, 0).astype(np.uint8))
    T = se3.inverse(np.stack(poses))
    views = Views(np.stack(images), np.stack(masks), np.tile(K, (12, 1)), T)
    return Scene(views, np.stack(poses))


def body() -> Gaussians:
    """The box's Gaussians."""
    colors = np.tile(np.uint8([204, 26, 26]), (len(BOX.vertices), 1))
    return on_surface(BOX.vertices, BOX.faces, colors, 600, 1, seed=0)


def test_the_start_lies_on_the_table_in_its_colours(scene: Scene) -> None:
    """Two thirds on the plane, in the table's colour but under the box; a dome far around."""
    start = surroundings_start(scene.views, 0.0, 1500, seed=0)
    flat = np.abs(start.means[:, 2]) < 1e-6
    assert 0.6 < flat.mean() < 0.75
    assert np.linalg.norm(start.means[~flat], axis=1).min() > 1.0
    near = start.means[flat]
    near = near[np.abs(near[:, :2]).max(axis=1) < 0.2]
    clear = near[~within_masks(near, scene.views)].astype(float)
    error = mean_colors(clear, scene.views) / 255 - table_colour(clear)
    assert np.sqrt((error**2).mean()) < 0.08


def test_what_lies_in_the_masks_is_the_object(scene: Scene) -> None:
    """Points of the box are inside, points of the table around it are not."""
    assert within_masks(BOX.vertices, scene.views).all()
    turn = np.linspace(0, 2 * np.pi, 50)
    ring = np.column_stack([0.15 * np.cos(turn), 0.15 * np.sin(turn), 0 * turn])
    assert not within_masks(ring, scene.views).any()


def test_the_table_without_the_object(scene: Scene) -> None:
    """After a short fit the table alone looks like it; with the body it is the scan again."""
    settings = scene_settings(iterations=100, densify_times=1, most=3000)
    table = fit_surroundings(scene.views, body(), settings, count=1500)
    assert table.names[0] == TABLE
    x, y, z = np.abs(table.splats.means).T
    assert not ((x < 0.045) & (y < 0.022) & (z > 0.03) & (z < 0.08)).any()
    camera = Camera(K, WIDTH, HEIGHT, scene.poses[1])
    alone = render(table, camera, layers=["segmentation"])
    truth, mask = picture(scene.poses[1], False)[0], scene.views.mask[1] >= 128
    error = alone.rgb - truth
    assert -10 * np.log10((error[~mask] ** 2).mean()) > 22
    assert -10 * np.log10((error[mask] ** 2).mean()) > 12
    assert (alone.segmentation == 1).any()
    again = render(merge([(table, np.eye(4), "around"), (body(), np.eye(4), "box")]), camera)
    both = (again.segmentation == 2) & mask
    assert both.sum() / ((again.segmentation == 2) | mask).sum() > 0.8


def test_no_table_in_sight(scene: Scene) -> None:
    """A table above the cameras, and masks that cover everything, are said to be the reason."""
    with pytest.raises(InputError, match="no camera looks down at the plane"):
        surroundings_start(scene.views, 5.0, 100, 0)
    full = replace(scene.views, mask=np.full_like(scene.views.mask, 255))
    with pytest.raises(InputError, match="are the masks inverted"):
        fit_surroundings(full, body(), scene_settings(iterations=1, densify_times=0), count=90)
