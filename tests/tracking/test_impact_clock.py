"""The clock offset from an impact: a body that Newton's law moves, filmed at 60 Hz."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter1d

from tests.tracking.push_log import RATE, made_up_push, object_poses
from twinloop.capture.warning import CaptureWarning
from twinloop.errors import InputError
from twinloop.hand.model import RobotModel
from twinloop.tracking.clock import Offset, combine, contact_run, fuse
from twinloop.tracking.contact_force import ContactForce, separate
from twinloop.tracking.impact import Pulse, find_pulse, impact_offset, motion_onset
from twinloop.tracking.joint_signals import joint_signals
from twinloop.tracking.session_clock import Clip, Log, Settings, check_pairs

Array = np.ndarray


def knocked(mass: float, peak: float, offset: float, seed: int = 0) -> tuple[Pulse, Array, Array]:
    """A block of `mass` kg (friction 0.3) hit by a half sine of 40 ms and `peak` N at 0.6 s.

    Returns the pulse as the log shows it (smoothed, robot clock), frame times and poses.
    """
    fine = np.arange(0, 1.6, 1e-4)
    force = peak * np.sin(np.pi * np.clip((fine - 0.6) / 0.04, 0, 1))
    speed, x = np.zeros(len(fine)), np.zeros(len(fine))
    for i in range(1, len(fine)):
        driven = speed[i - 1] + 1e-4 * (force[i] / mass - 0.3 * 9.81)
        speed[i] = max(driven, 0.0)
        x[i] = x[i - 1] + 1e-4 * speed[i]
    time = np.arange(0, 1.6, 1 / RATE)
    smooth = gaussian_filter1d(np.interp(time, fine, force), 0.008 * RATE)
    pulse = Pulse(time + offset, smooth, 0.59 + offset, np.eye(3)[0], np.zeros(3), 0.02)
    rng = np.random.default_rng(seed)
    frames = 0.007 + np.arange(0, 1.55, 1 / 60)
    poses = np.tile(np.eye(4), (len(frames), 1, 1))
    poses[:, 0, 3] = np.interp(frames, fine, x)
    poses[:, :3, 3] += rng.normal(0, 1e-4, (len(frames), 3))
    return pulse, frames, poses


@pytest.mark.parametrize(("mass", "peak"), [(0.05, 1.5), (0.1, 3.0), (0.5, 8.0)])
@pytest.mark.parametrize("centre", [0.0, 1.7e9])
def test_offset_of_a_knock(mass: float, peak: float, centre: float) -> None:
    """Light or heavy, the clocks apart by 43 ms or by an epoch: within 2 ms, rms over 10 clips."""
    errors, stds = [], []
    for seed in range(10):
        pulse, frames, poses = knocked(mass, peak, centre + 0.043, seed)
        every = np.ones(len(frames), np.bool_)
        found = impact_offset(
            pulse, frames, poses, every, largest=0.15, smoothing=0.008, centre=centre
        )
        assert found is not None
        errors.append(found.value - centre - 0.043)
        stds.append(found.std)
    assert np.sqrt(np.mean(np.square(errors))) < 2e-3
    assert (np.abs(errors) < 3 * np.array(stds)).all()


def test_nothing_to_tell_gives_none() -> None:
    """No pulse, an object that stays, too few frames, an offset beyond the limit."""
    pulse, frames, poses = knocked(0.1, 3.0, 0.5)
    every = np.ones(len(frames), np.bool_)
    still = np.tile(np.eye(4), (len(frames), 1, 1))
    assert motion_onset(frames, still) is None
    limits = {"largest": 0.15, "smoothing": 0.008}
    assert impact_offset(None, frames, poses, every, **limits) is None
    assert impact_offset(pulse, frames, still, every, **limits) is None
    assert impact_offset(pulse, frames, poses, ~every, **limits) is None
    assert impact_offset(pulse, frames, poses, every, **limits) is None


def test_pulse_in_the_efforts() -> None:
    """The hit of a made-up push is found where it is; a push in the air has none."""
    robot = RobotModel.load("twinhand")
    push = made_up_push(robot)
    columns = (push.position, push.velocity, push.effort, push.position)
    where = Path("robot.csv")
    signals = joint_signals(
        robot, np.eye(4), "index_tip", push.time, *columns, rate=RATE, sigma=0.008, where=where
    )
    model, _ = separate(robot, [signals], "index_tip", margin=0.04, still=0.25)
    chain = robot.chain(robot.tip("index_tip").link)
    found = find_pulse(signals, model, chain)
    assert found is not None
    assert found.start == pytest.approx(0.65, abs=0.02)
    assert found.direction == pytest.approx([1, 0, 0], abs=0.05)
    assert found.force.max() == pytest.approx(1.5, rel=0.15)
    lever = robot.jacobian(push.position, "index_tip")
    effort = push.effort - np.einsum("nij,ni->nj", lever, push.force)
    free = joint_signals(
        robot,
        np.eye(4),
        "index_tip",
        push.time,
        push.position,
        push.velocity,
        effort,
        push.position,
        rate=RATE,
        sigma=0.008,
        where=where,
    )
    assert find_pulse(free, model, chain) is None


def test_the_hardest_contact_is_taken_not_the_longest() -> None:
    """Noise at rest makes the longest run; the knock carries the push. Noise alone is none."""
    rng = np.random.default_rng(0)
    force = rng.normal(0, 0.05, (500, 3))
    touching = np.zeros(500, np.bool_)
    touching[20:150] = True
    touching[300:330] = True
    force[300:330, 0] += 1.0
    assert contact_run(touching, force) == slice(300, 330)
    assert contact_run(touching, force, slice(20, 40)) is None
    force[300:330, 0] -= 1.0
    assert contact_run(touching, force) is None


def test_a_session_with_drift_and_one_with_clocks_of_its_own() -> None:
    """50 ppm over half an hour is found; clips that each start a clock keep their own offsets."""
    when = [0.0, 600.0, 1200.0, 1800.0]
    drifting = [Offset(0.04 + 5e-5 * t, 0.001, 1e-4) for t in when]
    found = combine([*drifting, None], 5e-4, 0.1, [*when, 900.0])
    assert found[0].value == pytest.approx(0.04, abs=1e-3)
    assert found[3].value == pytest.approx(0.13, abs=1e-3)
    assert found[4].value == pytest.approx(0.085, abs=2e-3)
    own = [Offset(1.7e9 + 61.3 * i**2, 0.001, 1e-4) for i in range(4)]
    kept = combine([*own], 5e-4, 0.1, when)
    assert [o.value for o in kept] == [o.value for o in own]


def test_two_estimates_that_disagree_are_doubted() -> None:
    """Agreement narrows, disagreement of 5 standard deviations widens."""
    near = fuse(Offset(0.04, 1e-3, 1e-4), Offset(0.0405, 1e-3, 2e-4))
    far = fuse(Offset(0.04, 1e-3, 1e-4), Offset(0.047, 1e-3, 2e-4))
    assert near is not None
    assert far is not None
    assert near.value == pytest.approx(0.04025)
    assert near.std < 1e-3 < far.std
    assert fuse(None, near) is near


def test_a_finger_that_slides_is_told_and_not_refused(tmp_path: Path) -> None:
    """One vague push of three loses its say; a sharp misfit, or two of three, are refused."""
    robot = RobotModel.load("twinhand")
    push = made_up_push(robot)
    columns = (push.position, push.velocity, push.effort, push.position)
    signals = joint_signals(
        robot, np.eye(4), "index_tip", push.time, *columns, rate=RATE, sigma=0.008, where=tmp_path
    )
    nothing = ContactForce(0 * push.force, 1 + 0 * push.force, push.contact)
    names = [f"push_00{i}" for i in range(3)]
    logs = [Log(tmp_path / name / "robot.csv", signals, nothing, None) for name in names]
    frames = np.arange(0, 1.7, 1 / 60)
    every = np.ones(len(frames), np.bool_)
    clips = [Clip(name, frames, object_poses(push, frames), every) for name in names]
    good, slid = Offset(0.04, 1e-3, 2e-4), Offset(0.1, 0.05, 7e-3)
    own = [good, slid, good]
    with pytest.warns(CaptureWarning, match="push_001 the finger does not keep its place"):
        check_pairs(logs, clips, own, [0.0] * 3, Settings())
    assert own == [good, None, good]
    for bad in ([good, Offset(0.1, 1e-3, 7e-3), good], [slid, slid, good]):
        with pytest.raises(InputError, match="different pushes"):
            check_pairs(logs, clips, list(bad), [0.0] * 3, Settings())
