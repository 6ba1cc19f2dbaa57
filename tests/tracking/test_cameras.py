"""Several cameras, and one that moves: what more is seen makes poses better, and they say so."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tracking import clips
from tests.tracking.box_scene import BoxScene, look_at
from twinloop.geometry import se3
from twinloop.tracking.frame import CameraFrame, Frame
from twinloop.tracking.images import to_grey
from twinloop.tracking.pose_track import OK
from twinloop.tracking.session import Followed
from twinloop.tracking.solver import WorldCamera

Array = np.ndarray
BOX = 0.085


def seen_from(
    scene: BoxScene, eyes: list[Array], T: Array, rng: np.random.Generator
) -> tuple[CameraFrame, ...]:
    """The scene from cameras at `eyes` (T_world_camera)."""
    out = []
    for eye in eyes:
        clean = scene.render(clips.LENS, eye, T, clips.WIDTH, clips.HEIGHT)
        rgb = clips.noisy(clean, rng)
        camera = WorldCamera(clips.LENS, se3.inverse(eye), clips.WIDTH, clips.HEIGHT)
        out.append(CameraFrame(camera, rgb, to_grey(rgb)))
    return tuple(out)


@pytest.fixture(scope="module")
def one_and_two() -> tuple[Followed, Followed, Array, Array]:
    """A box in the air above the table, by one camera and by two at right angles; truth, points."""
    scene, model = clips.printed()
    side = look_at(np.array([0.45, 0.05, 0.3]), np.array([0.0, 0.0, 0.03]))
    truth = np.array([clips.standing(BOX, 0.004 * i, 0.02, 0.4 + 0.02 * i) for i in range(4)])
    truth[:, 2, 3] += 0.05
    rng = np.random.default_rng(2)
    both = [
        Frame(i / clips.RATE, seen_from(scene, [clips.EYE, side], T, rng))
        for i, T in enumerate(truth)
    ]
    one = [Frame(f.time, f.cameras[:1]) for f in both]
    start = clips.given(truth[0])
    return (
        clips.tracked(model, one, start, plane=False),
        clips.tracked(model, both, start, plane=False),
        truth,
        scene.mesh()[0],
    )


def test_second_camera_tells_the_depth(
    one_and_two: tuple[Followed, Followed, Array, Array],
) -> None:
    """Along the first one's line of sight the covariance and the error are smaller with two."""
    one, two, truth, points = one_and_two
    eye = clips.EYE[:3, 3]
    spread, off = [], []
    for done in (one, two):
        assert all(f.status == OK for f in done.found)
        poses = np.array([f.pose for f in done.found])
        sight = truth[:, :3, 3] - eye
        sight /= np.linalg.norm(sight, axis=1, keepdims=True)
        cov = np.array([f.covariance for f in done.found])[:, :3, :3]
        spread.append(np.sqrt(np.einsum("ni,nij,nj->n", sight, cov, sight)))
        off.append(np.abs(((poses - truth)[:, :3, 3] * sight).sum(axis=1)).mean())
        assert clips.errors(done.poses, truth, points).max() < 0.003
    assert (spread[1] < 0.8 * spread[0]).all()
    assert off[1] < off[0]
    assert off[1] < 3 * spread[1].mean()


def test_object_at_rest_stays_where_it_is_while_the_camera_moves() -> None:
    """A camera goes 20 mm a frame around a box at rest: its pose in the world does not change."""
    scene, model = clips.printed()
    T = clips.standing(BOX, 0.0, 0.02, 0.4)
    rng = np.random.default_rng(3)
    target = np.array([0.0, 0.0, 0.03])
    frames = []
    for i in range(6):
        angle = -1.3 + 0.045 * i
        eye = look_at(
            np.array([0.43 * np.cos(angle), 0.43 * np.sin(angle), 0.3 + 0.004 * i]), target
        )
        frames.append(Frame(i / clips.RATE, seen_from(scene, [eye], T, rng)))
    done = clips.tracked(model, frames)
    poses = done.poses
    assert (poses.status == OK).all()
    truth = np.tile(T, (6, 1, 1))
    assert clips.errors(poses, truth, scene.mesh()[0]).max() < 0.0015
    assert np.linalg.norm(np.diff(poses.pose[:, :3, 3], axis=0), axis=1).max() < 0.0005
    assert np.abs(poses.velocity[:, :3]).max() < 0.02
