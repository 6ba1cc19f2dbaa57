"""The human hand's geometry and the demonstration's motion."""

from __future__ import annotations

import numpy as np
import pytest

from twinloop.geometry import se3
from twinloop.lab.demo import DemoSettings, Grasp, scene_states, track_object
from twinloop.lab.human_hand import BONES, EDGES, PAD, ROOTS, bend_to, hand_keypoints
from twinloop.lab.objects import build_object
from twinloop.lab.spec import NoiseSpec, load_preset, presets

TIPS = [4, 8, 12, 16, 20]


@pytest.fixture(scope="module")
def grasp() -> Grasp:
    """The demo object's grasp, object turned in the world."""
    item = build_object(load_preset("spam"), "spam")
    T = se3.exp(np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.4]))
    return Grasp(item, T, DemoSettings(), 0.03)


def test_fingers_reach_their_targets_with_rigid_bones() -> None:
    """Tip where it was asked, every bone as long as it is."""
    rng = np.random.default_rng(0)
    for finger in range(5):
        for _ in range(20):
            direction = rng.normal(size=3)
            tip = ROOTS[finger] + direction / np.linalg.norm(direction) * rng.uniform(0.045, 0.07)
            points = bend_to(ROOTS[finger], tip, BONES[finger], rng.normal(size=3))
            np.testing.assert_allclose(points[-1], tip, atol=1e-9)
            lengths = np.linalg.norm(np.diff(points, axis=0), axis=1)
            np.testing.assert_allclose(lengths, BONES[finger], atol=1e-9)


def test_knuckles_bulge_outward() -> None:
    """A bent finger's middle joints lie on the side they are told."""
    root, tip = np.zeros(3), np.array([0.0, 0.0, -0.06])
    points = bend_to(root, tip, BONES[1], np.array([-1.0, 0.0, 0.0]))
    assert points[1, 0] < -1e-3
    assert points[2, 0] < -1e-3


def test_hand_has_21_points_and_a_right_thumb() -> None:
    """Palm to +x and fingers down: a right hand's index lies to -y of its little finger."""
    tips = ROOTS + [0.02, 0.0, -0.06]
    points = hand_keypoints(tips)
    assert points.shape == (21, 3)
    assert points[5, 1] < points[17, 1]
    np.testing.assert_allclose(points[TIPS], tips, atol=1e-9)


def test_thumb_and_fingers_hold_opposite_faces(grasp: Grasp) -> None:
    """When closed, tips are one pad's depth from the surface, on both sides."""
    time = np.array([1.45])
    points = grasp.keypoints(time)[0]
    local = se3.apply(se3.inverse(grasp.object_pose(time)[0]), points)[TIPS]
    half = 0.5 * 0.055
    # The hand is turned by 0.03 rad against the faces: a millimetre along the row of fingers.
    np.testing.assert_allclose(np.abs(local[:, 1]), half + PAD, atol=1.5e-3)
    assert len({np.sign(local[0, 1]), *np.sign(local[1:, 1])}) == 2
    assert len(set(np.sign(local[1:, 1]))) == 1


def test_object_moves_with_the_hand_once_held(grasp: Grasp) -> None:
    """During the lift all keypoints stand still in the object's frame; before it, nothing moves."""
    time = np.linspace(1.5, 2.6, 12)
    poses, points = grasp.object_pose(time), grasp.keypoints(time)
    local = np.stack([se3.apply(se3.inverse(T), p) for T, p in zip(poses, points, strict=True)])
    np.testing.assert_allclose(local, np.broadcast_to(local[0], local.shape), atol=1e-9)
    assert poses[-1, 2, 3] - poses[0, 2, 3] == pytest.approx(0.08, abs=1e-6)
    before = grasp.object_pose(np.linspace(0, 1.4, 5))
    np.testing.assert_allclose(before, np.broadcast_to(before[0], before.shape), atol=1e-12)
    lengths = [np.linalg.norm(points[:, b] - points[:, a], axis=1) for a, b in EDGES]
    assert max(np.ptp(length) for length in lengths) < 1e-9


def test_drawn_bones_join_the_keypoints(grasp: Grasp) -> None:
    """Each capsule's z axis runs along its bone, its centre is the middle."""
    time = np.array([0.1, 1.0, 2.0])
    points = grasp.keypoints(time)
    states = scene_states(grasp.object_pose(time), points)
    assert states.shape == (3, 7 + 7 * len(EDGES))
    for number, (a, b) in enumerate(EDGES):
        block = states[:, 7 + 7 * number : 14 + 7 * number]
        T = se3.from_position_quaternion(block[:, :3], block[:, 3:])
        line = points[:, b] - points[:, a]
        line = line / np.linalg.norm(line, axis=1, keepdims=True)
        np.testing.assert_allclose(T[:, :3, 2], line, atol=1e-9)
        np.testing.assert_allclose(block[:, :3], 0.5 * (points[:, a] + points[:, b]), atol=1e-12)


def test_object_tracker_noise_has_its_size_at_the_object() -> None:
    """Position and rotation are off by the declared sd on each axis, wherever the object is."""
    T = se3.exp(np.array([0.4, -0.3, 0.1, 0.2, 0.1, 0.7]))
    noise = NoiseSpec(tracker_position=5e-4, tracker_rotation=5e-3)
    rng = np.random.default_rng(0)
    tracked = track_object(np.broadcast_to(T, (4000, 4, 4)), noise, rng)
    np.testing.assert_allclose((tracked[:, :3, 3] - T[:3, 3]).std(axis=0), 5e-4, rtol=0.05)
    turn = se3.log(tracked @ se3.inverse(T))[:, 3:]
    np.testing.assert_allclose(turn.std(axis=0), 5e-3, rtol=0.05)
    exact = NoiseSpec(tracker_position=0.0, tracker_rotation=0.0)
    np.testing.assert_allclose(track_object(T[None], exact, rng)[0], T, atol=1e-15)


@pytest.mark.parametrize("name", presets())
def test_every_preset_can_be_grasped(name: str) -> None:
    """Tips are finite, above the table, and the thumb faces the fingers."""
    item = build_object(load_preset(name), name)
    grasp = Grasp(item, np.eye(4), DemoSettings(), 0.0)
    points = grasp.keypoints(np.array([0.0, 1.45]))
    assert np.isfinite(points).all()
    assert points[..., 2].min() > 0.0
    gap = points[1, 4] - points[1, 12]
    assert np.linalg.norm(gap) > 2 * PAD + 0.005
