"""Rates and their intervals against published values."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinloop.errors import InputError
from twinloop.metrics.statistics import Rate, wilson_interval


@pytest.mark.parametrize(
    ("k", "n", "low", "high"),
    [
        # Newcombe, Statist. Med. 17 (1998) 857, table I, method 3.
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_matches_published_values(k, n, low, high):
    """Newcombe's four examples, to the four digits that he prints."""
    assert wilson_interval(k, n) == pytest.approx((low, high), abs=6e-5)


@given(st.integers(0, 200), st.integers(1, 200))
def test_wilson_contains_the_rate_and_stays_in_range(k, n):
    """The interval holds k/n, lies in [0, 1] and mirrors when successes and failures swap."""
    k = min(k, n)
    low, high = wilson_interval(k, n)
    assert 0.0 <= low <= k / n <= high <= 1.0
    mirrored = wilson_interval(n - k, n)
    assert (1 - mirrored[1], 1 - mirrored[0]) == pytest.approx((low, high), abs=1e-12)


def test_no_trials_know_nothing_and_wrong_counts_are_refused():
    """Zero trials give the whole range; more successes than trials are an error."""
    assert wilson_interval(0, 0) == (0.0, 1.0)
    assert math.isnan(Rate(0, 0).value)
    with pytest.raises(InputError, match="expected 0 <= successes <= trials"):
        wilson_interval(3, 2)
