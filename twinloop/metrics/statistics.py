"""Success rates as k of n with an interval: no percentage stands without its uncertainty."""

from __future__ import annotations

import math
from dataclasses import dataclass

from twinloop.errors import InputError

Z_95 = 1.959963984540054
"""Two-sided 95 % quantile of the standard normal distribution."""


def wilson_interval(successes: int, trials: int, z: float = Z_95) -> tuple[float, float]:
    """Wilson score interval of a binomial proportion.

    Source: Wilson, J. Am. Stat. Assoc. 22 (1927) 209. Unlike the normal approximation it stays
        inside
    [0, 1] and is not empty at k = 0 or k = n, which small robot experiments hit often.

    Args:
        successes: k, successes, 0 <= k <= n.
        trials: n, trials; 0 gives the whole range (0, 1).
        z: normal quantile of the wanted two-sided level.

    Returns:
        Lower and upper bound of the rate, both in [0, 1].

    Raises:
        InputError: negative counts or more successes than trials.
    """
    if trials < 0 or successes < 0 or successes > trials:
        raise InputError(
            f"rate of {successes} successes in {trials} trials: expected 0 <= successes <= trials; "
            "count the trials again"
        )
    if trials == 0:
        return 0.0, 1.0
    rate = successes / trials
    z2 = z * z
    denominator = 1.0 + z2 / trials
    centre = (rate + z2 / (2.0 * trials)) / denominator
    spread = rate * (1.0 - rate) / trials + z2 / (4.0 * trials**2)
    half = z * math.sqrt(spread) / denominator
    # At k = 0 and k = n one bound is exactly 0 or 1; rounding would leave 1e-17.
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == trials else min(1.0, centre + half)
    return low, high


@dataclass(frozen=True)
class Rate:
    """A success rate: `successes` of `trials`, with its 95 % Wilson interval."""

    successes: int
    trials: int

    @property
    def value(self) -> float:
        """Observed rate k/n; NaN when there was no trial."""
        return self.successes / self.trials if self.trials else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """95 % Wilson interval of the rate."""
        return wilson_interval(self.successes, self.trials)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.successes}/{self.trials} [{low:.2f}, {high:.2f}]"


def covers(low: float, high: float, truth: float) -> bool:
    """Whether the interval [low, high] contains the true value; False for a NaN bound."""
    return bool(low <= truth <= high)
