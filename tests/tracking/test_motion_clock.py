"""Clock offset and drift from motion: foreign epochs, uneven frames, coverage, refusals."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.interpolate import CubicSpline

from twinloop.errors import InputError
from twinloop.tracking.motion_clock import ClockFit, align_by_motion
from twinloop.tracking.motion_fit import long_run
from twinloop.tracking.solver import rotation_exp
from twinloop.tracking.speed_correlation import carried

Array = np.ndarray


def robot_motion() -> tuple[Array, Array]:
    """12 s of a tip that starts, swings and turns: time (n,) s and position (n, 3) m."""
    t = np.arange(0, 12, 1 / 250)
    x = 0.1 * np.sin(2.2 * t) * np.clip(t - 1.5, 0, 1)
    x = x + 0.03 * np.sin(6.9 * t + 1) * np.clip(t - 4, 0, 1)
    y = 0.05 * np.sin(1.3 * t) * np.clip(t - 2, 0, 1)
    return t, np.stack([x, y, 0.02 * x * y], axis=1)


def trial(
    seed: int, epoch: float = 0.0, turn: bool = False, correlated: float = 0.0
) -> tuple[ClockFit, float, float]:
    """Align one made-up recording with uneven frames and 2 mm noise; fit, true offset and drift."""
    rng = np.random.default_rng(seed)
    offset, drift = epoch + rng.uniform(-2, 2), rng.uniform(-5e-5, 5e-5)
    t, place = robot_motion()
    seen_at = np.cumsum(rng.choice([1 / 30, 1 / 30, 1 / 30, 1 / 24], 330))
    seen_at = seen_at[seen_at < 9] + 1.2
    noise = rng.normal(0, 1, (len(seen_at), 3))
    for i in range(1, len(noise)):
        noise[i] = correlated * noise[i - 1] + np.sqrt(1 - correlated**2) * noise[i]
    rotation = rotation_exp(rng.normal(0, 1, (1, 3)))[0] if turn else np.eye(3)
    seen = CubicSpline(t, place, axis=0)(seen_at) @ rotation.T + 0.3 + 0.002 * noise
    stamps = seen_at + epoch - offset
    middle = 0.5 * (stamps[0] + stamps[-1])
    stamps = middle + (stamps - middle) / (1 + drift)
    usable = rng.random(len(stamps)) > 0.05
    fit = align_by_motion(stamps, seen, usable, t + epoch, place, same_frame=not turn)
    return fit, offset, drift


@pytest.mark.parametrize("epoch", [0.0, 1.7e9])
@pytest.mark.parametrize("turn", [False, True])
def test_offset_across_epochs_and_frames(epoch: float, turn: bool) -> None:
    """A log in Unix time and a camera of unknown orientation: within 2 ms at 30 Hz, 2 mm."""
    fit, offset, drift = trial(1, epoch, turn)
    assert fit.problem is None
    assert fit.offset == pytest.approx(offset, abs=2e-3)
    assert abs(fit.drift - drift) < 3 * fit.drift_std
    assert fit.gain == pytest.approx(1.0, abs=0.02)
    assert fit.residual == pytest.approx(0.002 * np.sqrt(3), rel=0.15)


@pytest.mark.parametrize("correlated", [0.0, 0.7])
def test_uncertainty_covers(correlated: float) -> None:
    """95 % intervals hold the truth in at least 21 of 25 trials, noise correlated or not."""
    inside = 0
    for seed in range(25):
        fit, offset, _ = trial(seed, correlated=correlated)
        assert fit.problem is None
        inside += abs(fit.offset - offset) < 1.96 * fit.offset_std
    assert inside >= 21


def test_periodic_motion_and_standstill_say_nothing() -> None:
    """A swing without an end fits at every period; a still arm fits anywhere: both are told."""
    t = np.arange(0, 20, 1 / 100)
    swing = np.stack([0.1 * np.sin(2 * np.pi * t), 0 * t, 0 * t], axis=1)
    frames = np.arange(5, 12, 1 / 30)
    rng = np.random.default_rng(0)
    seen = CubicSpline(t, swing, axis=0)(frames) + rng.normal(0, 1e-3, (len(frames), 3))
    every = np.ones(len(frames), np.bool_)
    fit = align_by_motion(frames, seen, every, t, swing)
    assert fit.problem is not None
    assert "periodic" in fit.problem
    assert np.isnan(fit.offset)
    still = align_by_motion(frames, seen, every, t, 0 * swing)
    assert still.problem is not None
    lost = align_by_motion(frames, seen, ~every, t, swing)
    assert lost.problem is not None
    assert "usable" in lost.problem


def test_wrong_times_are_refused() -> None:
    """No overlap within the limit, times in nanoseconds, and times that go back."""
    t, place = robot_motion()
    every = np.ones(len(t), np.bool_)
    with pytest.raises(InputError, match="do not overlap"):
        align_by_motion(t + 100.0, place, every, t, place, largest=1.0)
    with pytest.raises(InputError, match="nanoseconds"):
        align_by_motion(t, place, every, t * 1e9, place)
    with pytest.raises(InputError, match="do not increase"):
        align_by_motion(t[::-1], place, every, t, place)


def test_carried_counts_only_contact() -> None:
    """The way while touching; before and after it stands."""
    tip = np.stack([np.arange(10.0), np.zeros(10), np.zeros(10)], axis=1)
    touching = (np.arange(10) >= 3) & (np.arange(10) <= 6)
    assert carried(tip, touching)[:, 0].tolist() == [0, 0, 0, 0, 1, 2, 3, 3, 3, 3]


def test_long_run_variance_of_an_ar1() -> None:
    """The variance of the sum of an AR(1) is n s^2 / (1 - rho)^2."""
    rng = np.random.default_rng(5)
    series = np.zeros((4000, 1))
    for i in range(1, 4000):
        series[i] = 0.6 * series[i - 1] + rng.normal()
    assert long_run(series)[0] == pytest.approx(4000 / 0.4**2, rel=0.15)
