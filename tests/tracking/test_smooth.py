"""Smoothed clips against closed forms, simulated pushes and what must not change."""

import time as clock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from twinloop.errors import InputError
from twinloop.geometry import quaternion, se3
from twinloop.tracking.pose_track import LOST, OK, UNCERTAIN
from twinloop.tracking.smooth import SmoothSettings, smooth

SIGMA, TURN = 5e-4, 5e-3
KNOWN = SmoothSettings(
    motion_dof=np.inf, measurement_dof=np.inf, rest_speed=np.inf, start_speed=3.0, start_turn=30.0
)
"""A motion and errors that are what the model says: plain Gauss, no scale to be found."""


def rotation(w):
    """Matrices of rotation vectors."""
    return quaternion.to_matrix(quaternion.from_rotvec(w))


def poses_of(position, turn):
    """Poses of positions (n, 3) and rotation matrices (n, 3, 3)."""
    return se3.from_rotation_position(turn, position)


def noisy(rng, truth, mix=True):
    """Measured poses of true ones (n, 4, 4), with covariances that differ from frame to frame."""
    size = np.array([SIGMA] * 3 + [TURN] * 3)
    roots = np.tile(np.diag(size), (len(truth), 1, 1))
    if mix:
        turned = np.linalg.qr(rng.normal(size=(len(truth), 6, 6)))[0]
        roots = roots @ turned * rng.uniform(0.5, 1.6, (len(truth), 1, 6))
    error = np.einsum("nij,nj->ni", roots, rng.normal(size=(len(truth), 6)))
    measured = poses_of(truth[:, :3, 3] + error[:, :3], rotation(error[:, 3:]) @ truth[:, :3, :3])
    return measured, roots @ np.swapaxes(roots, 1, 2)


def difference(truth, pose):
    """Left perturbations (n, 6) from `pose` to `truth`."""
    turn = truth[:, :3, :3] @ np.swapaxes(pose[:, :3, :3], 1, 2)
    w = quaternion.to_rotvec(quaternion.from_matrix(turn))
    return np.concatenate([truth[:, :3, 3] - pose[:, :3, 3], w], axis=1)


def squares(error, covariance):
    """Normalised error squared (n,)."""
    return np.einsum("ni,ni->n", error, np.linalg.solve(covariance, error[:, :, None])[..., 0])


def pushed(rng, n=90, rate=30.0, fine=10):
    """A push on a table: rest, struck to a speed, pushed unevenly, slides, rests; (t, pose, v)."""
    dt = 1 / rate / fine
    place, turn = np.zeros((n * fine, 3)), np.zeros((n * fine, 4))
    turn[0] = quaternion.normalize(rng.normal(size=4))
    rates = np.zeros((n * fine, 6))
    start = rng.uniform(0.25, 0.45) * n / rate
    stop = start + rng.uniform(0.4, 0.9)
    way = rng.uniform(0, 2 * np.pi)
    v, w = np.zeros(2), 0.0
    for k in range(n * fine - 1):
        now = k * dt
        if start <= now < start + dt:
            v, w = rng.uniform(0.06, 0.2) * np.array([np.cos(way), np.sin(way)]), rng.normal()
        if start <= now < stop:
            v, w = v + 0.06 * np.sqrt(dt) * rng.normal(size=2), w + 0.6 * np.sqrt(dt) * rng.normal()
        else:
            v = v * max(0.0, 1 - 3.0 * dt / max(np.linalg.norm(v), 1e-12))
            w = np.sign(w) * max(0.0, abs(w) - 40 * dt)
        rates[k] = [*v, 0, 0, 0, w]
        place[k + 1] = place[k] + dt * rates[k, :3]
        turn[k + 1] = quaternion.multiply(quaternion.from_rotvec(dt * rates[k, 3:]), turn[k])
    at = np.arange(n) * fine
    return np.arange(n) / rate, poses_of(place[at], quaternion.to_matrix(turn[at])), rates[at]


def gliding(n=41, rate=40.0, velocity=(0.1, -0.05, 0.02, 0.3, -0.5, 1.0)):
    """A motion of constant velocity: times, poses."""
    t = np.arange(n) / rate
    v = np.array(velocity)
    first = rotation(np.array([0.4, -1.0, 0.3]))
    return t, poses_of(t[:, None] * v[:3], rotation(t[:, None] * v[3:]) @ first)


def test_constant_velocity_is_a_line_fit():
    """Without process noise the variances are those of a least-squares line (textbook).

    With n times of sigma each: the value at t has sigma^2 (1/n + (t - mean)^2 / S), the slope
    sigma^2 / S, S = sum (t - mean)^2. An exact glide also comes back exactly.
    """
    t, truth = gliding()
    C = np.tile(np.diag([SIGMA**2] * 3 + [TURN**2] * 3), (len(t), 1, 1))
    known = SmoothSettings(**{**vars(KNOWN), "noise": 1e-9, "turn_noise": 1e-8})
    track = smooth(t, truth, C, np.zeros(len(t), int), known)
    S = ((t - t.mean()) ** 2).sum()
    expected = 1 / len(t) + (t - t.mean()) ** 2 / S
    assert track.covariance[:, 0, 0] == pytest.approx(SIGMA**2 * expected, rel=1e-4)
    assert track.velocity_covariance[:, 1, 1] == pytest.approx(SIGMA**2 / S, rel=1e-3)
    # The rotation's line is in axes that turn with it: the same trace for isotropic noise.
    trace = np.einsum("nii->n", track.covariance[:, 3:, 3:])
    assert trace == pytest.approx(3 * TURN**2 * expected, rel=2e-2)
    assert np.abs(difference(truth, track.pose)).max() < 1e-6
    assert track.velocity == pytest.approx(
        np.tile([0.1, -0.05, 0.02, 0.3, -0.5, 1.0], (41, 1)), abs=1e-6
    )
    assert (track.status == OK).all()


def test_steady_state_of_white_acceleration():
    """In the middle of a long clip the position's variance is that of the stationary smoother.

    Its spectrum: q / w^4 against r = sigma^2 dt gives the integral of S/(S + r) r / (2 pi), which
    is r (q / r)^(1/4) / (2 sqrt 2) for steps short against (r / q)^(1/4) (Wiener).
    """
    n, rate, q = 240, 400.0, 0.05**2
    t = np.arange(n) / rate
    C = np.tile(np.diag([SIGMA**2] * 3 + [TURN**2] * 3), (n, 1, 1))
    known = SmoothSettings(**{**vars(KNOWN), "noise": 0.05, "steps": 1})
    track = smooth(t, np.tile(np.eye(4), (n, 1, 1)), C, np.zeros(n, int), known)
    r = SIGMA**2 / rate
    assert track.covariance[n // 2, 0, 0] == pytest.approx(
        r * (q / r) ** 0.25 / (2 * np.sqrt(2)), rel=0.01
    )


def test_errors_of_the_stated_model_are_covered():
    """Poses and velocities of simulated clips have normalised errors within chi-square's 99.9 %.

    Frames far apart are taken (their smoothed errors are nearly independent): every 20th.
    """
    rng = np.random.default_rng(7)
    known = SmoothSettings(**{**vars(KNOWN), "noise": 0.4, "turn_noise": 2.0, "steps": 3})
    found, rates = [], []
    for _ in range(6):
        n, rate, fine = 81, 30.0, 5
        dt = 1 / rate / fine
        kick = np.sqrt(dt) * rng.normal(size=(n * fine, 6)) * ([0.4] * 3 + [2.0] * 3)
        v = np.cumsum(kick, axis=0) + rng.normal(size=6) * ([0.1] * 3 + [1.0] * 3)
        place = np.cumsum(v[:, :3] * dt, axis=0)
        turn = np.zeros((n * fine, 4))
        turn[0] = [1, 0, 0, 0]
        for k in range(1, n * fine):
            turn[k] = quaternion.multiply(quaternion.from_rotvec(v[k, 3:] * dt), turn[k - 1])
        at = np.arange(n) * fine
        truth = poses_of(place[at], quaternion.to_matrix(turn[at]))
        measured, C = noisy(rng, truth)
        track = smooth(at * dt, measured, C, np.zeros(n, int), known)
        here = slice(10, None, 20)
        found.append(squares(difference(truth, track.pose), track.covariance)[here])
        rates.append(squares(v[at] - track.velocity, track.velocity_covariance)[here])
    for values in (np.concatenate(found), np.concatenate(rates)):
        low, high = chi2.ppf([0.0005, 0.9995], 6 * len(values)) / len(values)
        assert low < values.mean() < high


def test_pushes_are_sharp_at_rest_and_at_impacts_and_covered():
    """Rest comes out at rest, the impact within its frame, and covariances hold.

    The model has to find out what happens, so its covariance may be larger than the error, not
    smaller: the mean normalised square lies under chi-square's mean of 6 in all and by clips.
    """
    pose_squares, speed_squares, rest_speed, gain = [], [], [], []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        t, truth, v = pushed(rng)
        measured, C = noisy(rng, truth)
        track = smooth(t, measured, C, np.zeros(len(t), int))
        error = difference(truth, track.pose)
        pose_squares.append(squares(error, track.covariance).mean())
        speed_squares.append(squares(v - track.velocity, track.velocity_covariance).mean())
        still = np.flatnonzero(np.abs(v).max(axis=1) == 0)
        hit = int(np.argmax(np.abs(v).max(axis=1) > 0))
        before = still[still < hit - 4]
        rest_speed.append(np.linalg.norm(track.velocity[before, :3], axis=1).max())
        raw = difference(truth, measured)
        gain.append(np.sqrt((error[before, :3] ** 2).mean() / (raw[before, :3] ** 2).mean()))
        # Two frames before the impact nothing is felt of it, two after it the speed is there.
        assert np.linalg.norm(error[hit - 2, :3]) < 2 * SIGMA
        speed = np.linalg.norm(track.velocity[hit + 2, :3])
        assert speed == pytest.approx(np.linalg.norm(v[hit + 2, :3]), rel=0.2)
        assert (track.status == OK).mean() > 0.98
    assert max(pose_squares) < 7.0
    assert 2.0 < np.mean(pose_squares) < 6.0
    assert np.mean(speed_squares) < 6.0
    assert max(rest_speed) < 0.003
    assert max(gain) < 0.5


def test_a_wrong_frame_is_flagged_and_bends_nothing():
    """A frame 8 mm off its neighbours becomes uncertain; its pose is theirs; others stay ok."""
    rng = np.random.default_rng(3)
    t, truth = gliding(60)
    measured, C = noisy(rng, truth)
    measured[20, :3, 3] += [0.0, 0.008, 0.0]
    measured[40, :3, :3] = rotation(np.array([0.0, 0.0, 0.2])) @ measured[40, :3, :3]
    track = smooth(t, measured, C, np.zeros(60, int))
    assert np.flatnonzero(track.status == UNCERTAIN).tolist() == [20, 40]
    error = difference(truth, track.pose)
    assert np.abs(error[:, :3]).max() < 3 * SIGMA
    assert np.abs(error[:, 3:]).max() < 3 * TURN
    assert squares(error, track.covariance).max() < 30


def test_lost_frames_are_predicted_from_both_sides():
    """Through a gap the covariance grows towards its middle, at the ends outwards, and covers."""
    rng = np.random.default_rng(5)
    t, truth = gliding(80)
    measured, C = noisy(rng, truth)
    status = np.zeros(80, int)
    status[:5] = status[30:41] = status[75:] = LOST
    measured[status == LOST] = np.nan
    C[status == LOST] = np.nan
    track = smooth(t, measured, C, status)
    size = np.linalg.eigvalsh(track.covariance[:, :3, :3])[:, -1]
    assert (np.diff(size[30:36]) > 0).all()
    assert (np.diff(size[35:41]) < 0).all()
    assert (np.diff(size[:6]) < 0).all()
    assert (np.diff(size[74:]) > 0).all()
    assert size[35] > 4 * size[25]
    assert (track.status == status).all()
    assert squares(difference(truth, track.pose), track.covariance).max() < 30
    assert np.linalg.eigvalsh(track.covariance)[:, 0].min() > 0


def test_the_common_error_is_not_averaged_away():
    """However long the clip, a frame's covariance stays above the common one; its own shrinks."""
    n = 60
    t = np.arange(n) / 30
    own = np.diag([SIGMA**2] * 3 + [TURN**2] * 3)
    L = np.tril(np.random.default_rng(1).normal(size=(6, 6))) * 0.3 * np.sqrt(np.diag(own))[:, None]
    common = L @ L.T
    C = np.tile(own + common, (n, 1, 1))
    rest = np.tile(np.eye(4), (n, 1, 1))
    alone = smooth(t, rest, np.tile(own, (n, 1, 1)), np.zeros(n, int))
    track = smooth(t, rest, C, np.zeros(n, int), common=common)
    assert track.covariance == pytest.approx(alone.covariance + common, rel=1e-6, abs=1e-15)
    assert alone.covariance[30, 0, 0] < 0.1 * SIGMA**2


def test_an_unobservable_yaw_stays_unknown():
    """Yaw that no frame sees stays as unknown as in one frame; tilt and place are smoothed."""
    rng = np.random.default_rng(11)
    axis = np.array([0.6, 0.0, 0.8])
    for yaw in (3.3, 1e6):
        t, truth = gliding(60)
        measured, C = noisy(rng, truth, mix=False)
        turned = measured[:, :3, :3] @ rotation(axis * rng.uniform(-0.3, 0.3, (60, 1)))
        measured[:, :3, :3] = turned
        C[:, 3:, 3:] += yaw * np.einsum("ni,nj->nij", turned @ axis, turned @ axis)
        track = smooth(t, measured, C, np.zeros(60, int))
        up = track.pose[:, :3, :3] @ axis
        about = np.einsum("ni,nij,nj->n", up, track.covariance[:, 3:, 3:], up)
        assert np.isfinite(track.pose).all()
        assert about.min() > 3.0
        tilt = np.linalg.eigvalsh(track.covariance[:, 3:, 3:])[:, :2]
        assert tilt.max() < 4 * TURN**2
        assert np.median(tilt) < 0.3 * TURN**2
        assert np.median(track.covariance[:, 0, 0]) < 0.3 * SIGMA**2
        lean = np.linalg.norm(np.cross(up, truth[:, :3, :3] @ axis), axis=1)
        assert lean.max() < 3 * TURN


def test_frames_of_one_instant_are_one_frame():
    """A repeated frame adds no information; all its rows get the same answer."""
    rng = np.random.default_rng(2)
    t, truth = gliding(30)
    measured, C = noisy(rng, truth)
    once = smooth(t, measured, C, np.zeros(30, int))
    twice = np.r_[np.arange(12), 11, 11, np.arange(12, 30)]
    again = smooth(t[twice], measured[twice], C[twice], np.zeros(32, int))
    assert np.array_equal(again.pose, once.pose[twice])
    assert np.array_equal(again.covariance, once.covariance[twice])


def test_short_and_hopeless_clips():
    """One frame is itself, two give a velocity, a lost clip stays what it was."""
    t, truth = gliding(2)
    C = np.tile(np.diag([SIGMA**2] * 3 + [TURN**2] * 3), (2, 1, 1))
    one = smooth(t[:1], truth[:1], C[:1], np.array([OK]))
    assert one.pose == pytest.approx(truth[:1], abs=1e-12)
    assert one.covariance == pytest.approx(C[:1], rel=1e-6)
    assert one.velocity_covariance[0, 0, 0] > 0.01
    two = smooth(t, truth, C, np.array([OK, OK]))
    assert np.isfinite(two.velocity_covariance).all()
    lost = smooth(t, truth, C, np.array([LOST, LOST]))
    assert np.array_equal(lost.pose, truth)
    assert (lost.status == LOST).all()
    with pytest.raises(InputError, match="time of frame 1"):
        smooth(t[::-1], truth, C, np.zeros(2, int))
    with pytest.raises(InputError, match="pose of frame 0 is no rigid transform"):
        smooth(t, 2.0 * truth, C, np.zeros(2, int))
    with pytest.raises(InputError, match="covariance of frame 0"):
        smooth(t, truth, -C, np.zeros(2, int))
    with pytest.raises(InputError, match="shapes"):
        smooth(t, truth, C[:1], np.zeros(2, int))
    with pytest.raises(InputError, match="status of frame 0 is 7"):
        smooth(t, truth, C, np.array([7, 0]))
    with pytest.raises(InputError, match="common covariance"):
        smooth(t, truth, C, np.zeros(2, int), common=-np.eye(6))


def test_same_bytes_and_linear_time():
    """Two runs agree to the byte; four times the frames take about four times as long."""
    rng = np.random.default_rng(4)
    t, truth, _ = pushed(rng, n=200)
    measured, C = noisy(rng, truth)
    few = SmoothSettings(steps=2)
    spent = []
    for n in (50, 200):
        start = clock.process_time()
        a = smooth(t[:n], measured[:n], C[:n], np.zeros(n, int), few)
        spent.append(clock.process_time() - start)
        b = smooth(t[:n], measured[:n], C[:n], np.zeros(n, int), few)
        assert a.pose.tobytes() == b.pose.tobytes()
        assert a.velocity_covariance.tobytes() == b.velocity_covariance.tobytes()
    assert spent[1] < 8 * spent[0]


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 10_000), lost=st.integers(0, 12), drop=st.integers(0, 10))
def test_a_moved_world_moves_the_answer(seed, lost, drop):
    """Smoothing commutes with a rigid motion of the world, for any gaps; nothing is NaN."""
    rng = np.random.default_rng(seed)
    t, truth, _ = pushed(rng, n=40, fine=4)
    keep = np.sort(rng.permutation(40)[drop:])
    t, truth = t[keep], truth[keep]
    measured, C = noisy(rng, truth)
    status = np.zeros(len(t), int)
    status[rng.permutation(len(t))[:lost]] = LOST
    world = se3.exp(rng.normal(size=6))
    turn = np.kron(np.eye(2), world[:3, :3])
    few = SmoothSettings(steps=4)
    here = smooth(t, measured, C, status, few)
    there = smooth(t, world @ measured, turn @ C @ turn.T, status, few)
    assert np.isfinite(there.pose).all()
    assert np.array_equal(here.status, there.status)
    assert there.pose == pytest.approx(world @ here.pose, abs=1e-7)
    scale = np.sqrt(np.einsum("nii->ni", there.covariance))
    moved = turn @ here.covariance @ turn.T
    assert (np.abs(there.covariance - moved) / scale[:, :, None] / scale[:, None]).max() < 1e-4
    assert there.velocity == pytest.approx(here.velocity @ turn.T, abs=1e-6)
