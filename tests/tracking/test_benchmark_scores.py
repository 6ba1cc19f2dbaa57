"""What the tracking benchmark makes of poses: zero errors, symmetries, relative covariances."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.track_others import between, deviations
from benchmarks.track_run import Tracking, load, save
from benchmarks.track_scores import join, resampled, score, squared, velocities
from benchmarks.track_sequence import Sequence
from twinloop.geometry import se3
from twinloop.geometry.symmetry import Axis
from twinloop.tracking.pose_track import PoseTrack
from twinloop.tracking.priors import motion
from twinloop.tracking.solver import perturb

Array = NDArray[np.float64]
N = 12
SPEED = np.array([0.1, -0.2, 0.0, 0.0, 0.0, 1.5])


def poses() -> Array:
    """A steady motion of 12 frames, 1/50 s apart."""
    start = np.eye(4)
    start[:3, 3] = [0.1, 0.2, 0.05]
    return np.stack([perturb(start, SPEED * i / 50) for i in range(N)])


def clip(truth: Array) -> Sequence:
    """A sequence of a small box with these true poses."""
    corners = np.array([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)]) - 0.5
    return Sequence(
        name="box",
        vertices=corners * [0.06, 0.04, 0.1],
        faces=np.array([[0, 1, 2]]),
        appearance=None,
        frames=lambda: iter(()),
        count=len(truth),
        table=True,
        start=None,
        truth=truth,
        occluded=np.zeros(len(truth)),
    )


def follow(pose: Array) -> PoseTrack:
    """A track of these poses, every frame ok, 1 mm and 0.01 rad sure."""
    covariance = np.tile(np.diag([1e-6] * 3 + [1e-4] * 3), (len(pose), 1, 1))
    wide = np.tile(np.eye(6), (len(pose), 1, 1))
    time = np.arange(len(pose)) / 50
    return PoseTrack(
        time, pose, covariance, np.zeros(len(pose), np.int8), np.tile(SPEED, (len(pose), 1)), wide
    )


def test_exact_poses_have_no_error() -> None:
    """Every error of the true poses is zero."""
    s = score(follow(poses()), clip(poses()))
    for values in (s.add, s.relative, s.adds, s.mssd, s.rotation, s.nees, s.speed_nees[1:-1]):
        np.testing.assert_allclose(values, 0, atol=1e-7)


def test_a_constant_offset_is_in_add_but_not_since_the_first_frame() -> None:
    """3 mm along an axis of the object: ADD, three sigma, and no motion."""
    moved = poses()
    moved[:, :3, 3] += moved[:, :3, :3] @ [0.003, 0.0, 0.0]
    s = score(follow(moved), clip(poses()))
    np.testing.assert_allclose(s.add, 0.003, rtol=1e-9)
    np.testing.assert_allclose(s.relative, 0, atol=1e-12)
    np.testing.assert_allclose(s.nees, 9.0, rtol=1e-9)


def test_equivalent_poses_count_as_right() -> None:
    """Half a turn is an error, unless it is a symmetry."""
    half = np.diag([-1.0, -1.0, 1.0, 1.0])
    turned = clip(poses())
    assert score(follow(poses() @ half), turned).add.min() > 0.05
    symmetric = replace(turned, symmetries=np.stack([np.eye(4), half]))
    np.testing.assert_allclose(score(follow(poses() @ half), symmetric).add, 0, atol=1e-12)


def test_about_an_axis_any_turn_counts_as_right_in_any_frame() -> None:
    """The axis may lie beside the origin."""
    axis = Axis(np.array([0.0, 0.0, 1.0]), np.array([0.01, 0.0, 0.0]))
    angles = np.random.default_rng(0).uniform(-3, 3, N)
    s = score(follow(poses() @ axis.turned(angles)), replace(clip(poses()), axis=axis))
    np.testing.assert_allclose(s.add, 0, atol=1e-12)
    np.testing.assert_allclose(s.nees, 0, atol=1e-9)
    assert np.isnan(s.speed_nees).all()


def test_velocities_of_a_steady_motion() -> None:
    """Central differences are exact then."""
    found = velocities(np.arange(N) / 50, poses())
    np.testing.assert_allclose(found[1:-1], np.tile(SPEED, (N - 2, 1)), atol=1e-9)
    assert np.isnan(found[[0, -1]]).all()


def test_joined_scores_keep_clips_apart_and_resample_them() -> None:
    """The interval comes from whole clips, and from five on."""
    one = score(follow(poses()), clip(poses()))
    many = join([one] * 6)
    assert many.clip.tolist() == [c for c in range(6) for _ in range(N)]
    values = many.clip.astype(float)
    low, high = resampled(values, many.clip, lambda v: float(v.mean())) or (0.0, 0.0)
    assert 0 < low < 2.5 < high < 5
    assert resampled(one.add, one.clip, lambda v: float(v.mean())) is None


def test_relative_covariance_is_that_of_perturbed_poses() -> None:
    """Linear in both poses' covariances: columns by finite differences."""
    first, second = poses()[3], poses()[9] @ np.diag([1.0, -1.0, -1.0, 1.0])
    step = 1e-6
    T = se3.inverse(first) @ second
    columns = [motion(T, se3.inverse(perturb(first, d)) @ second) / step for d in step * np.eye(6)]
    others = [motion(T, se3.inverse(first) @ perturb(second, d)) / step for d in step * np.eye(6)]
    rng = np.random.default_rng(1)
    A, B = (m @ m.T for m in rng.normal(size=(2, 6, 6)))
    J, K = np.array(columns).T, np.array(others).T
    tracks = [replace(follow(p[None]), covariance=C[None]) for p, C in ((first, A), (second, B))]
    found, covariance = between(*tracks)
    np.testing.assert_allclose(found[0], T, atol=1e-12)
    np.testing.assert_allclose(covariance[0], J @ A @ J.T + K @ B @ K.T, rtol=1e-4, atol=1e-4)


def test_deviations_from_the_middle_pose() -> None:
    """Random changes of a pose are found again, but for the error of the middle."""
    rng = np.random.default_rng(2)
    middle = poses()[5]
    change = rng.normal(size=(200, 6)) * ([1e-3] * 3 + [1e-2] * 3)
    off = deviations(np.stack([perturb(middle, d) for d in change]))
    np.testing.assert_allclose(off[:, :3], change[:, :3], atol=4e-4)
    np.testing.assert_allclose(off[:, 3:], change[:, 3:], atol=4e-3)


def test_normalised_errors_of_drawn_errors_are_chi_square() -> None:
    """Their mean is the number of freedoms."""
    rng = np.random.default_rng(3)
    root = rng.normal(size=(6, 6))
    errors = rng.normal(size=(4000, 6)) @ root.T
    nees = squared(errors, np.tile(root @ root.T, (4000, 1, 1)))
    assert nees.mean() == pytest.approx(6.0, rel=0.05)


def test_runs_come_back_from_disk(tmp_path: Path) -> None:
    """What is saved is loaded."""
    track = follow(poses())
    run = Tracking("a", "sift", True, "region", 3.0, np.arange(N), track, track, 1.5, np.ones(N))
    save(tmp_path / "runs.npz", [run, replace(run, name="b", sure=False)])
    back = load(tmp_path / "runs.npz")
    assert [(r.name, r.sure) for r in back] == [("a", True), ("b", False)]
    np.testing.assert_array_equal(back[1].smooth.pose, track.pose)
    np.testing.assert_array_equal(back[0].seconds, run.seconds)
