"""One clip of a sliding box, spoilt in the ways that films are: the pose stays right or is flagged.

A knock of the camera is in test_camera_knock and test_api.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import cv2
import numpy as np

from tests.tracking import clips
from tests.tracking.box_scene import rotation
from twinloop.tracking.exposure import Exposure
from twinloop.tracking.frame import CameraFrame
from twinloop.tracking.images import to_grey
from twinloop.tracking.pose_track import LOST, OK, PoseTrack
from twinloop.tracking.session import Followed

Array = np.ndarray
BOX = 0.085
COUNT = 7


def truth() -> Array:
    """The box at rest for two frames, then sliding by 6 mm and 1.7 deg a frame."""
    steps = np.maximum(np.arange(COUNT) - 1.0, 0.0)
    return np.array([clips.standing(BOX, 0.006 * i, 0.02, 0.4 + 0.03 * i) for i in steps])


@cache
def clean() -> tuple[Array, ...]:
    """The clip as it should be, without noise."""
    return tuple(clips.pictures(clips.printed()[0], truth()))


def follow(images: list[Array], poses: Array, times: Array | None = None) -> tuple[Followed, Array]:
    """The spoilt clip as tracked, and its errors in m."""
    scene, model = clips.printed()
    done = clips.tracked(model, clips.frames_of(images, times, seed=1), clips.given(poses[0]))
    return done, clips.errors(done.poses, poses, scene.mesh()[0])


def none_wrong(poses: PoseTrack, off: Array) -> bool:
    """Whether every frame that is ok is within 2 mm."""
    return bool((off[poses.status == OK] < 0.002).all())


def middle(T: Array) -> Array:
    """Pixel (2,) of the box's middle."""
    p = clips.CAMERA.T_camera_world @ T[:, 3]
    return p[:2] / p[2] * clips.LENS[:2] + clips.LENS[2:]


def test_shadow_that_passes_over_moves_no_pose() -> None:
    """A hard shadow at 55 % of the light passes over half of the box and the table beside it."""
    images = []
    for i, image in enumerate(clean()):
        x = 60 + 25 * i
        dark = clips.covered(
            np.zeros_like(image), [(x, 0), (x + 70, 0), (x + 130, 299), (x, 299)], [255] * 3
        )
        shade = 1 - 0.45 * cv2.GaussianBlur(dark, (0, 0), 2.0) / 255.0
        images.append((image * shade).astype(np.uint8))
    done, off = follow(images, truth())
    assert none_wrong(done.poses, off)
    assert (done.poses.status == OK).mean() > 0.7
    assert (done.poses.status != LOST).all()


def test_motion_blur_is_followed() -> None:
    """Shutter open all the time: the box smears over its way of 5 px."""
    scene, _ = clips.printed()
    poses = truth()
    images = list(clean())
    for i in range(3, 5):
        parts = [
            clips.standing(BOX, 0.006 * k, 0.02, 0.4 + 0.03 * k)
            for k in i - 1 + np.linspace(-0.4, 0.4, 4)
        ]
        images[i] = np.mean(clips.pictures(scene, np.array(parts)), axis=0)
    done, off = follow(images, poses)
    assert none_wrong(done.poses, off)
    assert (done.poses.status == OK).mean() > 0.7


def test_exposure_that_changes_is_followed() -> None:
    """From the fourth frame on the camera gives 70 % of the signal: poses stay right and ok."""
    images = [image if i < 3 else (0.7 * image).astype(np.uint8) for i, image in enumerate(clean())]
    done, off = follow(images, truth())
    assert off.max() < 0.002
    assert (done.poses.status == OK).all()


def test_exposure_is_measured_on_what_stands_still() -> None:
    """The gain to 2 %, with a third of the picture covered; none from a camera that moved."""
    rng = np.random.default_rng(4)
    (first,) = clips.frames_of(clean()[:1])
    light = Exposure(first.cameras[0])
    hand = clips.covered(clean()[3], [(0, 0), (130, 0), (130, 299), (0, 299)], (205, 150, 120))
    for gain in (0.6, 0.85, 1.0, 1.2):
        rgb = clips.noisy(gain * hand, rng)
        view = CameraFrame(clips.CAMERA, rgb, to_grey(rgb))
        assert abs(light.gain(view) / gain - 1) < 0.02
        back = light.even(view).rgb[150, 200].astype(float)
        assert np.abs(back - hand[150, 200]).max() < 12
    elsewhere = replace(clips.CAMERA, T_camera_world=np.eye(4))
    assert light.gain(replace(view, camera=elsewhere)) == 1.0
    dark = np.full_like(rgb, 3)
    assert light.gain(CameraFrame(clips.CAMERA, dark, to_grey(dark))) == 1.0


def test_dropped_frames_are_bridged() -> None:
    """Two frames are missing; times say so, and the velocity stays right."""
    kept = np.array([0, 1, 2, 5, 6])
    done, off = follow([clean()[i] for i in kept], truth()[kept], kept / clips.RATE)
    assert none_wrong(done.poses, off)
    assert (done.poses.status == OK).all()
    velocity = done.poses.velocity[-1, :3]
    sigma = np.sqrt(done.poses.velocity_covariance[-1, 0, 0])
    assert abs(velocity[0] - 0.006 * clips.RATE) < max(3 * sigma, 0.02)


def test_repeated_frames_give_no_wrong_pose() -> None:
    """A recorder writes each second picture twice: the poses are those of the pictures."""
    source = np.array([0, 1, 2, 2, 4, 4, 6])
    done, off = follow([clean()[i] for i in source], truth()[source])
    assert none_wrong(done.poses, off)
    assert (done.poses.status != LOST).all()


def test_hand_over_half_of_it_is_no_part_of_it() -> None:
    """A hand-coloured blob covers half of the box for two frames, moving on its own."""
    poses = truth()
    images = list(clean())
    for i in range(2, 4):
        centre = middle(poses[i]) + [28 - 4 * i, -10 + 5 * i]
        turn = np.linspace(0, 2 * np.pi, 40, endpoint=False)
        edge = np.stack([34 * np.cos(turn), 46 * np.sin(turn)], 1) @ rotation("z", 0.4)[:2, :2]
        images[i] = clips.covered(images[i], (centre + edge).tolist(), (205, 150, 120))
    done, off = follow(images, poses)
    assert none_wrong(done.poses, off)
    assert (done.poses.status[[0, 1, -1]] == OK).all()
    assert off[-1] < 0.001
