"""Similarity alignment: exact on exact points, honest about noise, blind to outliers."""

from __future__ import annotations

import numpy as np
import pytest

from twinloop.capture.similarity import align
from twinloop.errors import InputError
from twinloop.geometry import se3


def truth(rng: np.random.Generator) -> tuple[float, np.ndarray]:
    """A random scale and rigid motion."""
    return float(np.exp(rng.normal())), se3.exp(rng.normal(size=6))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("count", [3, 4, 30])
def test_exact_points_give_the_exact_similarity(seed: int, count: int) -> None:
    """Also three points, and points in a plane."""
    rng = np.random.default_rng([seed, count])
    scale, T = truth(rng)
    a = rng.normal(size=(count, 3)) * [1, 1, seed % 2]
    found = align(a, se3.apply(T, scale * a))
    assert found.scale == pytest.approx(scale, rel=1e-9)
    np.testing.assert_allclose(found.T, T, atol=1e-9)
    assert found.rms < 1e-9


def test_a_mirrored_set_gives_a_rotation() -> None:
    """The best proper rotation, never a reflection."""
    a = np.random.default_rng(0).normal(size=(20, 3))
    assert np.linalg.det(align(a, a * [1, 1, -1]).T[:3, :3]) == pytest.approx(1)


@pytest.mark.parametrize("robust", [False, True])
def test_noise_is_covered_by_the_covariance(robust: bool) -> None:
    """Over 300 draws: errors of all seven numbers have the size that is said (chi-square 7)."""
    rng = np.random.default_rng(7)
    distances, errors, stated = [], [], []
    for _ in range(300 if not robust else 60):
        scale, T = truth(rng)
        a = rng.normal(size=(30, 3)) * [1, 1, 0.3]
        b = se3.apply(T, scale * a) + 0.01 * scale * rng.normal(size=a.shape)
        found = align(a, b, robust=robust)
        turn = se3.log(se3.from_rotation_position(T[:3, :3] @ found.T[:3, :3].T, np.zeros(3)))[3:]
        # Translation about the moved origin: t + w x (no lever), as the perturbation has it.
        error = np.concatenate([[np.log(scale / found.scale)], T[:3, 3] - found.T[:3, 3], turn])
        distances.append(error @ np.linalg.solve(found.covariance, error))
        errors.append(error[0])
        stated.append(found.scale_std)
    assert np.mean(distances) == pytest.approx(7.0, rel=0.15 if not robust else 0.4)
    assert np.std(errors) == pytest.approx(np.mean(stated), rel=0.15 if not robust else 0.4)


def test_weights_count_as_repetition() -> None:
    """A weight of two is the point twice."""
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, 10, 3))
    weights = np.r_[2.0, np.ones(9)]
    once = align(a, b, weights)
    twice = align(np.vstack([a, a[:1]]), np.vstack([b, b[:1]]))
    assert once.scale == pytest.approx(twice.scale)
    np.testing.assert_allclose(once.T, twice.T, atol=1e-12)


def test_outliers_are_left_out() -> None:
    """Four of ten points far off: exact result, and they are named."""
    rng = np.random.default_rng(3)
    scale, T = truth(rng)
    a = rng.normal(size=(40, 3))
    b = se3.apply(T, scale * a)
    b[:16] += rng.normal(size=(16, 3)) * 3
    found = align(a, b, robust=True)
    assert found.scale == pytest.approx(scale, rel=1e-9)
    assert not found.used[:16].any()
    assert found.used[16:].all()
    assert abs(align(a, b).scale / scale - 1) > 0.01


@pytest.mark.parametrize(
    ("a", "words"),
    [
        (np.zeros((2, 3)), "2 points, at least 3"),
        (np.outer(np.arange(6), [1.0, 2.0, 3.0]), "on one line"),
        (np.full((5, 3), np.nan), "not finite"),
        (np.zeros((5, 3)), "on one line"),
        (np.zeros((5, 2)), "expected two"),
    ],
)
def test_points_that_determine_nothing_are_refused(a: np.ndarray, words: str) -> None:
    """Too few, collinear, not finite, wrong shape."""
    with pytest.raises(InputError, match=words):
        align(a, a)
