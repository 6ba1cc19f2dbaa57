"""Areas under recall curves and average recalls, from their definitions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twinloop.errors import InputError
from twinloop.metrics.recall import (
    BOP_PARTS,
    BOP_PIXELS,
    area_under_recall,
    area_under_recall_ycb,
    average_recall,
    recall,
)

ERRORS = st.lists(st.floats(0.0, 0.3) | st.just(np.inf), min_size=1, max_size=30)


def test_known_areas():
    """All right is 1, all wrong 0, an error of a quarter of the limit leaves three quarters."""
    assert area_under_recall([0.0, 0.0]) == 1.0
    assert area_under_recall([0.2, np.inf]) == 0.0
    assert area_under_recall([0.025]) == pytest.approx(0.75)
    assert area_under_recall([0.025, 0.15]) == pytest.approx(0.375)


@settings(max_examples=40)
@given(ERRORS)
def test_area_is_the_integral_of_recall(errors):
    """The step curve, summed between its steps, gives the same area."""
    value = np.array(errors)
    edges = np.unique(np.concatenate([[0.0, 0.1], value[value < 0.1]]))
    shares = [(value <= edge).mean() for edge in edges[:-1]]
    assert area_under_recall(value) == pytest.approx((np.diff(edges) * shares).sum() / 0.1)


@settings(max_examples=40)
@given(ERRORS)
def test_ycb_takes_each_step_at_its_upper_end(errors):
    """The toolbox's sum: (d[i] - d[i - 1]) times the recall at d[i], then the last one's rest."""
    within = np.sort([e for e in errors if e <= 0.1])
    share = np.arange(1, len(within) + 1) / len(errors)
    total = (np.diff(within, prepend=0.0) * share).sum()
    if len(within):
        total += (0.1 - within[-1]) * share[-1]
    assert area_under_recall_ycb(errors) == pytest.approx(total / 0.1, abs=1e-12)


def test_average_recall_counts_over_thresholds():
    """Each error's share of thresholds above it, strictly; the mean of the three is the score."""
    vsd = np.full((2, 10), 0.26)
    vsd[1] = 1.0
    found = average_recall(vsd, np.array([0.012, np.inf]), np.array([12.0, 3.0]), 0.1, width=1280)
    assert found["vsd"] == pytest.approx(0.5 * 0.5)  # above 0.26: 0.3 to 0.5
    assert found["mssd"] == pytest.approx(0.5 * 0.8)  # 0.12 of the diameter: 0.15 to 0.5
    assert found["mspd"] == pytest.approx(0.5 * (0.9 + 1.0))  # 6 px at 640: 10 to 50
    assert found["average"] == pytest.approx((0.25 + 0.4 + 0.95) / 3)
    assert recall([0.05], [0.05])[0] == 0.0
    assert len(BOP_PARTS) == len(BOP_PIXELS) == 10


def test_what_is_no_error_is_refused():
    """No errors, a negative one, a limit of zero, and shapes that disagree."""
    for bad in ([], [-0.1], [np.nan]):
        with pytest.raises(InputError, match="area under recall"):
            area_under_recall(bad)
    with pytest.raises(InputError, match="limit 0"):
        area_under_recall([0.1], 0.0)
    with pytest.raises(InputError, match="average recall"):
        average_recall(np.ones((2, 9)), np.ones(2), np.ones(2), 0.1)
