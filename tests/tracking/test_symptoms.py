"""What users of pose trackers complain of: lost for good, too fast, spinning, no texture."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

import twinloop
from tests.tracking import clips
from tests.tracking import twin_capture as capture
from tests.tracking.box_scene import BoxScene
from twinloop.capture.warning import CaptureWarning
from twinloop.tracking.initialise import first_modes
from twinloop.tracking.model import ObjectModel, build_model
from twinloop.tracking.motion_hint import (
    PixelMotion,
    lost_note,
    motion_note,
    pixel_motion,
    suggested_rate,
)
from twinloop.tracking.pose_track import LOST, OK, PoseTrack
from twinloop.tracking.settings import Settings
from twinloop.tracking.solver import rotation_log
from twinloop.tracking.tracker import unobservable

Array = np.ndarray
BOX = 0.085
"""Height of the boxes, m."""


def along(first: Array, last: Array, count: int) -> Array:
    """x, y, yaw (count, 3) from one place to another, without a start and an end in it."""
    s = (np.arange(count) + 1) / (count + 1)
    s = s * s * (3 - 2 * s)
    return first + s[:, None] * (last - first)


def hidden_clip(scene: BoxScene) -> tuple[list[Array], Array, slice]:
    """A board hides all of the object, which meanwhile is moved 26 mm and turned 0.4 rad."""
    first, last = np.array([0.0, 0.02, 0.4]), np.array([0.025, 0.012, 0.8])
    before, away, after = np.tile(first, (2, 1)), along(first, last, 3), np.tile(last, (3, 1))
    truth = np.array([clips.standing(BOX, *p) for p in np.concatenate([before, away, after])])
    images = clips.pictures(scene, truth)
    board = [(60, 40), (340, 40), (340, 290), (60, 290)]
    hidden = slice(2, 5)
    images[hidden] = [clips.covered(i, board, (120, 95, 70)) for i in images[hidden]]
    return images, truth, hidden


@pytest.mark.parametrize("kind", ["printed", "plain"])
def test_hidden_object_is_lost_and_found_again(kind: str) -> None:
    """Hidden frames are lost with a growing covariance; afterwards it is found within 2 mm."""
    scene, model = getattr(clips, kind)()
    images, truth, hidden = hidden_clip(scene)
    frames = clips.frames_of(images)
    start = None if kind == "printed" else clips.given(truth[0])
    done = clips.tracked(model, frames, start)
    poses, points = done.poses, scene.mesh()[0]
    assert (poses.status[: hidden.start] == OK).all()
    assert (poses.status[hidden] == LOST).all()
    spread = clips.largest_sigma(np.array([f.covariance for f in done.found]))
    assert (np.diff(spread[hidden]) > 0).all()
    assert clips.largest_sigma(poses.covariance)[hidden].min() > 0.001
    off = clips.errors(poses, truth, points)
    assert (poses.status[-2:] == OK).all()
    assert off[-2:].max() < 0.002
    assert len(clips.wrong_and_ok(poses, truth, points)) == 0
    # The true place is within what the covariance of the lost frames says.
    way = truth[hidden, :3, 3] - poses.pose[hidden, :3, 3]
    miss = np.einsum("ni,nij,nj->n", way, np.linalg.inv(poses.covariance[hidden, :3, :3]), way)
    assert miss.max() < 25
    ((first, last),) = poses.lost
    assert first == poses.time[hidden][0]
    assert poses.time[hidden][-1] <= last < poses.time[-2]


def test_object_that_left_the_picture_is_found_when_it_is_back() -> None:
    """Out of the picture it is lost; put back elsewhere, turned by 0.9 rad, it is found."""
    scene, model = clips.printed()
    out = [clips.standing(BOX, 0.13 + 0.045 * i, 0.02, 0.4) for i in range(6)]
    back = [clips.standing(BOX, 0.03, -0.03, 1.3)] * 4
    truth = np.array([out[0], *out, *back])
    done = clips.tracked(model, clips.frames_of(clips.pictures(scene, truth)))
    poses, points = done.poses, scene.mesh()[0]
    assert poses.status[0] == OK
    assert (poses.status[5:7] == LOST).all()
    assert (poses.status[-1:] == OK).all()
    assert clips.errors(poses, truth, points)[-1] < 0.002
    assert len(clips.wrong_and_ok(poses, truth, points)) == 0
    assert len(poses.lost) >= 1


def test_fast_motion_is_followed_or_flagged_and_a_rate_is_said(tmp_path: Path) -> None:
    """60 px from frame to frame, then hidden: no frame is ok and wrong, and notes help."""
    scene = capture.box_scene()
    capture.write_twin(tmp_path / "twin", scene)
    capture.write_camera(tmp_path)
    steps = [-0.05, 0.03, 0.11, 0.11]
    truth = np.array([capture.standing(scene, x, 0.03, 0.4) for x in steps])
    hidden = clips.covered(capture.picture(scene), [(150, 20), (399, 20), (399, 299)], (90, 60, 50))
    images = [*(capture.picture(scene, T) for T in truth), hidden]
    clip = capture.write_clip(tmp_path / "fast.mp4", images)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        made = twinloop.track(
            clip,
            twinloop.tracking.api.read_twin(tmp_path / "twin", views=8),
            camera=tmp_path / "camera.yaml",
            board=tmp_path / "board.yaml",
            box=(123, 80, 96, 90),
        )
    truth = np.concatenate([truth, truth[-1:]])
    assert len(clips.wrong_and_ok(made, truth, scene.mesh()[0])) == 0
    assert made.status[3] == OK
    assert made.motion is not None
    assert 50 < made.motion.most < 70
    assert made.status[4] == LOST
    (fast,) = [note for note in made.notes if "px from frame to frame (" in note]
    assert "Film with 120 frames per second or more (this clip has 30)" in fast
    (lost,) = [note for note in made.notes if "was lost" in note]
    assert "from 0.13 s to the end" in lost
    assert {fast, lost} <= {str(w.message) for w in heard if w.category is CaptureWarning}


def test_plain_object_that_jumps_is_never_ok_and_wrong() -> None:
    """An outline that jumps by 40 px is beyond reach: flagged at least."""
    scene, model = clips.plain()
    truth = np.array([clips.standing(BOX, x, 0.03, 0.4) for x in (-0.1, -0.1, -0.05, 0.0, 0.0)])
    frames = clips.frames_of(clips.pictures(scene, truth))
    done = clips.tracked(model, frames, clips.given(truth[0]))
    assert (done.poses.status[:2] == OK).all()
    assert len(clips.wrong_and_ok(done.poses, truth, scene.mesh()[0])) == 0


def track_of(places: Array, status: Array) -> PoseTrack:
    """A track at 20 frames a second along x (n,) m."""
    n = len(places)
    poses = np.tile(np.eye(4), (n, 1, 1))
    poses[:, 0, 3] = places
    cov = np.tile(np.eye(6), (n, 1, 1))
    return PoseTrack(np.arange(n) / 20, poses, cov, status, np.zeros((n, 6)), cov)


def test_pixels_per_frame_in_closed_form() -> None:
    """A point 0.5 m before a camera of 400 px focal length moves 0.8 px a millimetre."""
    camera = clips.WorldCamera(clips.LENS, clips.se3.inverse(clips.look_down(0.5)), 400, 300)
    places = np.concatenate([np.zeros(40), 0.05 * np.arange(1, 4), [0.15] * 40])
    status = np.zeros(len(places), np.int8)
    status[41] = LOST
    moved = pixel_motion(track_of(places, status), camera, np.zeros((1, 3)))
    assert moved is not None
    assert [moved.median, moved.most, moved.rate] == pytest.approx([40.0, 40.0, 20.0])
    assert moved.p95 < 1
    assert suggested_rate(moved, 20.0) == 60
    assert "up to 40 px" in motion_note(moved, 20.0)
    assert motion_note(moved, 41.0) == ""
    assert suggested_rate(PixelMotion(900.0, 900.0, 900.0, 240.0), 20.0) == 960
    status[:] = LOST
    assert pixel_motion(track_of(places, status), camera, np.zeros((1, 3))) is None


def test_lost_intervals_are_listed() -> None:
    """Runs of lost frames with their first and last times; the ones at the start are no news."""
    status = np.array([2, 2, 0, 2, 1, 2, 2, 0, 2, 2], np.int8)
    track = track_of(np.zeros(10), status)
    spans = [(0.0, 0.05), (0.15, 0.15), (0.25, 0.3), (0.4, 0.45)]
    assert np.array(track.lost) == pytest.approx(np.array(spans))
    said = lost_note(track.time, status)
    assert "at 0.15 s, from 0.25 s to 0.30 s, from 0.40 s to the end" in said
    assert "not found again" in said
    assert lost_note(track.time[:3], status[:3]) == ""
    assert lost_note(track.time[:2], status[:2]) == ""


def turns(poses: Array) -> Array:
    """Signed turns about z (n - 1,) rad from pose to pose."""
    return rotation_log(poses[1:, :3, :3] @ np.swapaxes(poses[:-1, :3, :3], 1, 2))[:, 2]


def test_plain_cylinder_does_not_spin() -> None:
    """Turned while it slides: the turn is said to be unobservable, and none is made up."""
    body, height = clips.cylinder(0.035, 0.09), 0.09
    rest = clips.standing(height, 0, 0, 0)
    model = build_model(body.vertices, body.faces, body.gaussians(), T_world_object=rest, views=8)
    truth = np.array([clips.standing(height, 0.004 * i, 0.02, 0.2 * i) for i in range(8)])
    frames = clips.frames_of([body.picture(T) for T in truth])
    done = clips.tracked(model, frames, clips.given(truth[0]))
    poses = done.poses
    assert "unobservable" in model.symmetry.describe()
    assert unobservable(model, done.modes) == "yaw unobservable"
    assert (poses.status == OK).all()
    assert np.sqrt(poses.covariance[:, 5, 5]).min() > np.radians(90)
    assert np.abs(turns(poses.pose)).max() < np.radians(2)
    ends = np.array([[0, 0, -height / 2], [0, 0, height / 2]])
    assert clips.errors(poses, truth, ends).max() < 0.002
    tilt = np.sqrt(np.linalg.eigvalsh(poses.covariance[:, 3:5, 3:5])[:, -1])
    assert tilt.max() < np.radians(2)


def test_plain_square_box_does_not_flip() -> None:
    """Turned by 69 deg in all, it looks like one turned back by 21: the track does not jump."""
    scene = clips.plain_box((0.06, 0.06, 0.085))
    model = clips.box_model(scene, 8)
    assert "8 discrete" in model.symmetry.describe()
    truth = np.array([clips.standing(BOX, 0.004 * i, 0.02, 0.3 + 0.15 * i) for i in range(9)])
    frames = clips.frames_of(clips.pictures(scene, truth))
    poses = clips.tracked(model, frames, clips.given(truth[0])).poses
    assert (poses.status == OK).all()
    assert np.abs(turns(poses.pose) - 0.15).max() < np.radians(2)
    assert clips.errors(poses, truth, scene.mesh()[0]).max() < 0.002


def modes_of(scene: BoxScene, model: ObjectModel) -> tuple[str, float]:
    """Modes and measured texture of the box at rest."""
    T = clips.standing(BOX, 0.0, 0.02, 0.4)
    (frame,) = clips.frames_of(clips.pictures(scene, T[None]))
    modes = first_modes(model, frame, T, plane=True)
    return modes.names, modes.texture_cells


def test_modes_follow_the_print_on_one_and_the_same_box() -> None:
    """With print its texture is used, without it the outline alone; both are said, with figures."""
    names, cells = modes_of(*clips.printed())
    assert names == "region+texture+plane"
    plain_names, plain_cells = modes_of(*clips.plain())
    assert plain_names == "region+plane"
    assert plain_cells < 4 < 12 < cells


def test_poses_do_not_depend_on_the_clips_before() -> None:
    """Views of the twin rendered for one clip do not serve the next: equal poses, bit by bit."""
    scene, model = clips.printed()
    truth = np.array([clips.standing(BOX, 0.004 * i, 0.02, 0.4) for i in range(2)])
    other = np.array([clips.standing(BOX, 0.1, 0.04, 0.5)])
    frames = clips.frames_of(clips.pictures(scene, truth))
    used = model.fresh()
    first = clips.follow(used, frames[0], clips.given(truth[0]), frames, Settings(), plane=True)
    clips.tracked(used, clips.frames_of(clips.pictures(scene, other)), clips.given(other[0]))
    assert used.look is not None
    assert used.look.views
    again = clips.tracked(used, frames, clips.given(truth[0]))
    assert np.array_equal(first.poses.pose, again.poses.pose)
    assert np.array_equal(first.poses.covariance, again.poses.covariance)
