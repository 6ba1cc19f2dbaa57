"""Replay: the body is drawn where its pose says, and the film's bytes repeat."""

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path

import av
import numpy as np
import pytest

from tests.splat.test_render import at, ball
from twinloop.errors import InputError
from twinloop.geometry import se3
from twinloop.geometry.camera import project
from twinloop.splat.gaussians import Gaussians
from twinloop.splat.render import RenderedView
from twinloop.splat.replay import poses_at, replay, write_film


def motion(x: list[float]) -> np.ndarray:
    """Poses shifted along x."""
    poses = np.tile(np.eye(4), (len(x), 1, 1))
    poses[:, 0, 3] = x
    return poses


def test_the_body_follows_and_the_rest_stays() -> None:
    """The silhouette's middle is where the pose projects to; the wall behind does not move."""
    start = ball(1200)
    small = Gaussians(
        start.means / 4, start.quaternions, start.scales / 4, start.opacities, start.sh
    )
    wall = Gaussians(
        start.means * [2, 0.1, 2] + np.float32([0, 0.4, 0]),
        start.quaternions,
        start.scales * 2,
        start.opacities,
        start.sh,
    )
    camera, poses = at([0, -0.6, 0]), motion([-0.08, 0.0, 0.08])
    views = list(replay(small, poses, camera, surroundings=wall, layers=["segmentation"]))
    assert len(views) == 3
    for view, pose in zip(views, poses, strict=True):
        here = np.argwhere(view.segmentation == 1)[:, ::-1].mean(axis=0)
        T = se3.inverse(camera.T_world_camera)
        np.testing.assert_allclose(here, project(pose[:3, 3], camera.intrinsics, T), atol=0.4)
    far = views[0].segmentation[:, 60:] == 0
    np.testing.assert_array_equal(far, views[1].segmentation[:, 60:] == 0)


def test_poses_between_the_knots() -> None:
    """Half way between two poses lies half of the way and half of the turn; ends hold."""
    poses = np.stack([np.eye(4), se3.exp(np.array([0, 0, 0, 0, 0, 1.0]))])
    poses[1, :3, 3] = [0.2, 0, 0]
    found = poses_at([-1, 1.5, 9], [1, 2], poses)
    np.testing.assert_allclose(found[0], poses[0], atol=1e-12)
    np.testing.assert_allclose(found[2], poses[1], atol=1e-12)
    half = se3.exp(np.array([0, 0, 0, 0, 0, 0.5]))
    half[:3, 3] = [0.1, 0, 0]
    np.testing.assert_allclose(found[1], half, atol=1e-12)
    with pytest.raises(InputError, match="do not increase"):
        poses_at([0], [2, 1], poses)
    with pytest.raises(InputError, match="expected finite"):
        poses_at([0], [1], poses)


def test_film(tmp_path: Path) -> None:
    """As many pictures as poses, at the rate; bytes repeat; nothing is left of a failed one."""
    views = list(replay(ball(300), motion([-0.1, 0.0, 0.1]), at([0, -0.6, 0])))
    for name in ("a", "b"):
        assert write_film(tmp_path / f"{name}.mp4", views, 25) == 3
    assert (tmp_path / "a.mp4").read_bytes() == (tmp_path / "b.mp4").read_bytes()
    with av.open(str(tmp_path / "a.mp4")) as film:
        times = [float(frame.time) for frame in film.decode(video=0)]
    np.testing.assert_allclose(times, [0, 0.04, 0.08], atol=1e-4)
    with pytest.raises(InputError, match="3 views but 2 times"):
        write_film(tmp_path / "c.mp4", views, 25, [0, 1])
    with pytest.raises(InputError, match="does not increase"):
        write_film(tmp_path / "c.mp4", views, 25, [0, 0, 1])
    with pytest.raises(InputError, match="no views"):
        write_film(tmp_path / "c.mp4", [], 25)
    with pytest.raises(InputError, match="3 views but 4 times"):
        write_film(tmp_path / "c.mp4", views, 25, [0, 1, 2, 3])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.mp4", "b.mp4"]


def test_films_of_any_length_and_of_no_size(tmp_path: Path) -> None:
    """A view is let go before the next is asked for; pictures below 2 px are refused."""
    alive: list[weakref.ref[RenderedView]] = []

    def views(width: int) -> Iterator[RenderedView]:
        for _ in range(6):
            gc.collect()
            assert sum(ref() is not None for ref in alive) <= 2
            shape = (2, width)
            view = RenderedView(np.zeros((*shape, 3), "f4"), np.zeros(shape, "f4"), *3 * [None])
            alive.append(weakref.ref(view))
            yield view

    assert write_film(tmp_path / "a.mp4", views(3), 10) == 6
    with pytest.raises(InputError, match="1 x 2 px"):
        write_film(tmp_path / "b.mp4", views(1), 10)
    assert [p.name for p in tmp_path.iterdir()] == ["a.mp4"]
