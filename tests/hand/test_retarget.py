"""Retargeting: following a hand, its scale, and contact with the object."""

import os
from pathlib import Path

import numpy as np
import pytest
import trimesh

from tests.stages.box_twin import SIZE, hand_keypoints
from twinloop.errors import InputError
from twinloop.geometry import se3
from twinloop.geometry.sdf import bake
from twinloop.geometry.surface import TriangleSurface
from twinloop.hand.keypoints import check_keypoints, grasp_frames, scale_hand, solve_scale
from twinloop.hand.kinematics import HandKinematics
from twinloop.hand.model import RobotModel
from twinloop.hand.retarget import (
    RetargetWeights,
    _block_tridiagonal,
    finger_map,
    refine_contacts,
    retarget,
)

HAND = HandKinematics(RobotModel.load("twinhand"))
BOX = trimesh.creation.box(SIZE)
SURFACE = TriangleSurface(BOX.vertices, BOX.faces)
DATA = Path(os.environ.get("TWINLOOP_DATA", Path(__file__).parents[3] / "shared" / "data"))


def _demonstration(**options):
    """Keypoints of the stand-in hand in the box's frame."""
    _, keypoints, motion = hand_keypoints(**options)
    start = se3.from_rotation_position(np.eye(3), np.array([0.05, 0.02, SIZE[2] / 2]))
    return se3.apply(se3.inverse(motion @ start), keypoints)


def test_robot_hand_follows_itself():
    """Fingertips of a smooth robot motion are followed below 1 mm, joints inside their limits."""
    time = np.linspace(0, 1, 30)[:, None]
    closed = 0.8 * RobotModel.load("twinhand").posture("closed")[HAND.hand]
    q = (0.3 + 0.7 * time) * closed
    wrist = np.tile(np.eye(4), (30, 1, 1))
    wrist[:, 2, 3] = 0.2 - 0.1 * time[:, 0]
    local, _ = HAND.tips(q)
    targets = se3.apply(wrist, local)
    palm = wrist[:, :3, 3] + [0, 0, 0.03]
    motion = retarget(targets, palm, HAND)
    assert motion.error.mean() < 1e-3
    assert (motion.joints >= HAND.lower).all()
    assert (motion.joints <= HAND.upper).all()


def test_smoothness_slows_the_joints():
    """A larger weight on joint changes gives smaller changes under keypoint noise."""
    keypoints = _demonstration(noise=0.006)
    fingers = finger_map(keypoints, HAND)
    steps = []
    for weight in (0.02, 0.5):
        motion = retarget(
            keypoints[:, fingers],
            keypoints[:, 0],
            HAND,
            weights=RetargetWeights(smooth_joint=weight),
            iterations=8,
        )
        steps.append(np.abs(np.diff(motion.joints, axis=0)).mean())
    assert steps[1] < 0.7 * steps[0]


def test_contacts_touch_and_never_enter():
    """After refinement holding pads are on the surface within 0.1 mm and none is inside."""
    keypoints = _demonstration(noise=0.004)
    fingers = finger_map(keypoints, HAND)
    targets = keypoints[:, fingers]
    holding = np.zeros(targets.shape[:2], dtype=bool)
    holding[26:] = True
    loose = retarget(targets, keypoints[:, 0], HAND)
    tight = refine_contacts(loose, targets, holding, SURFACE, HAND)
    gap = SURFACE.signed_distance(tight.tips.reshape(-1, 3))[0].reshape(holding.shape) - 0.012
    assert np.abs(gap[holding]).max() < 1e-4
    assert gap.min() > -1e-4
    assert tight.error.mean() < 0.01


def test_a_baked_grid_does_instead_of_the_mesh():
    """Contacts refined on a distance grid of 2 mm lie on the mesh within a tenth of its cells."""
    keypoints = _demonstration(noise=0.004)
    targets = keypoints[:, finger_map(keypoints, HAND)]
    holding = np.zeros(targets.shape[:2], dtype=bool)
    holding[26:] = True
    grid = bake(BOX.vertices, BOX.faces, margin=0.03, cells=80)
    tight = refine_contacts(retarget(targets, keypoints[:, 0], HAND), targets, holding, grid, HAND)
    gap = SURFACE.signed_distance(tight.tips.reshape(-1, 3))[0].reshape(holding.shape) - 0.012
    assert np.abs(gap[holding]).max() < 0.1 * grid.spacing


@pytest.mark.parametrize("scale", [0.85, 1.0, 1.2])
def test_hand_scale_is_found_from_the_object(scale):
    """A hand that a tracker made too large or small is brought back by the object's size."""
    keypoints = _demonstration(noise=0.001, scale=scale)
    fingers = finger_map(keypoints, HAND)
    found = solve_scale(keypoints, fingers, SURFACE, np.arange(28, 40))
    assert found == pytest.approx(1 / scale, rel=0.03)


def test_scaling_keeps_the_wrist():
    """The hand grows about its own wrist."""
    hand = _demonstration()[0]
    assert scale_hand(hand, 1.3)[0] == pytest.approx(hand[0])
    assert np.linalg.norm(np.ptp(scale_hand(hand, 2.0), axis=0)) == pytest.approx(
        2 * np.linalg.norm(np.ptp(hand, axis=0))
    )


def test_a_mirrored_hand_takes_the_fingers_in_the_other_order():
    """Left and right hands map index and ring to opposite ends of the robot's row."""
    keypoints = _demonstration(noise=0.0)
    mirrored = keypoints * [-1.0, 1.0, 1.0]
    right, left = finger_map(keypoints, HAND), finger_map(mirrored, HAND)
    assert right[:3] == left[2::-1]
    assert right[3] == left[3] == 4


def test_held_frames_are_those_in_which_the_object_moves():
    """The object moves only when held; a hand passing by does not count."""
    distance = np.full((10, 4), 0.1)
    distance[2:9] = 0.005
    moved = np.r_[np.zeros(5), np.linspace(0.01, 0.1, 5)]
    assert grasp_frames(distance, moved, 0.02).tolist() == [5, 6, 7, 8]
    assert grasp_frames(distance, np.zeros(10), 0.02).tolist() == list(range(2, 9))


def test_block_tridiagonal_equals_the_dense_solution():
    """Block elimination gives what a dense solver gives, with held unknowns at zero."""
    rng = np.random.default_rng(2)
    frames, size = 5, 4
    blocks = rng.normal(size=(frames, size, size))
    blocks = blocks @ np.swapaxes(blocks, 1, 2) + 8 * np.eye(size)
    coupling, right = -rng.uniform(0.5, 1.0, size), rng.normal(size=(frames, size))
    free = np.ones((frames, size))
    free[2, 1] = free[4, 3] = 0.0
    dense = np.zeros((frames * size, frames * size))
    for f in range(frames):
        at = slice(f * size, (f + 1) * size)
        dense[at, at] = blocks[f]
        if f:
            before = slice((f - 1) * size, f * size)
            dense[at, before] = dense[before, at] = np.diag(coupling)
    keep = free.ravel() > 0
    expected = np.zeros(frames * size)
    expected[keep] = np.linalg.solve(dense[np.ix_(keep, keep)], right.ravel()[keep])
    found = _block_tridiagonal(blocks, coupling, right, free)
    assert found.ravel() == pytest.approx(expected, abs=1e-10)


@pytest.mark.skipif(
    not (DATA / "hand" / "human_joint_right.npy").is_file(), reason="no real hand data here"
)
def test_real_hand_is_followed():
    """Real keypoints (207 frames): below 1.5 mm on average, no joint beyond its limits."""
    path = DATA / "hand" / "human_joint_right.npy"
    keypoints = np.load(path, allow_pickle=False)[:207].astype(float)
    motion = retarget(keypoints[:, finger_map(keypoints, HAND)], keypoints[:, 0], HAND)
    assert motion.error.mean() < 1.5e-3
    assert (motion.joints >= HAND.lower).all()
    assert (motion.joints <= HAND.upper).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t, k: (t, k[:, :20]), "21, 3"),
        (lambda t, k: (t, np.where(np.arange(len(k))[:, None, None] == 3, np.nan, k)), "frame 3"),
        (lambda t, k: (t, 1000 * k), "metres"),
        (lambda t, k: (np.zeros_like(t), k), "not after"),
    ],
)
def test_keypoints_that_are_no_hand_are_refused(change, words):
    """Wrong shape, NaN, millimetres and repeated times: each is named."""
    time, keypoints, _ = hand_keypoints()
    with pytest.raises(InputError, match=words):
        check_keypoints(*change(time, keypoints), "hand.npz")
