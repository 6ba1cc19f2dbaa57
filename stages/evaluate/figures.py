"""The list of figures: name, value, unit, aim, interval, and how many measurements stand behind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import xarray as xr
from scipy.special import stdtrit

from twinloop.metrics.statistics import Rate

Better = Literal["higher", "lower", "none"]


@dataclass(frozen=True)
class Figure:
    """One named figure; NaN where there is no aim or interval."""

    name: str
    value: float
    unit: str
    better: Better
    target: float = float("nan")
    low: float = float("nan")
    high: float = float("nan")
    successes: int = -1
    count: int = 0


def rate_figure(name: str, success: np.ndarray, target: float = float("nan")) -> Figure:
    """Figure of a success rate k/n with its Wilson interval."""
    rate = Rate(int(success.sum()), len(success))
    low, high = rate.interval
    return Figure(name, rate.value, "1", "higher", target, low, high, rate.successes, rate.trials)


def mean_figure(
    name: str, values: np.ndarray, unit: str, better: Better, target: float = float("nan")
) -> Figure:
    """Mean of n independent measurements with its 95 % interval (Student), from n = 3 on."""
    values = np.asarray(values, dtype=np.float64)
    values = values[np.isfinite(values)]
    if len(values) == 0:
        return Figure(name, float("nan"), unit, better, target)
    half = np.nan
    if len(values) > 2:
        quantile = float(stdtrit(len(values) - 1, 0.975))
        half = quantile * float(values.std(ddof=1)) / np.sqrt(len(values))
    mean = float(values.mean())
    return Figure(name, mean, unit, better, target, mean - half, mean + half, -1, len(values))


def to_dataset(figures: list[Figure]) -> xr.Dataset:
    """Figures as arrays; names, units and directions as attributes."""

    def column(key: str) -> np.ndarray:
        return np.array([getattr(figure, key) for figure in figures], dtype=np.float64)

    return xr.Dataset(
        {
            "value": ("figure", column("value")),
            "low": ("figure", column("low")),
            "high": ("figure", column("high")),
            "target": ("figure", column("target")),
            "successes": ("figure", column("successes").astype(np.int32)),
            "count": ("figure", column("count").astype(np.int32)),
        },
        attrs={
            "figures": [figure.name for figure in figures],
            "units": [figure.unit for figure in figures],
            "better": [figure.better for figure in figures],
        },
    )


def to_json(figures: xr.DataTree) -> list[dict[str, Any]]:
    """Figures for metrics and report; what does not exist is null."""
    rows = []
    for i, name in enumerate(figures.attrs["figures"]):
        value, low, high, target = (
            _number(figures[key].values[i]) for key in ("value", "low", "high", "target")
        )
        better = figures.attrs["better"][i]
        row: dict[str, Any] = {
            "figure": name,
            "value": value,
            "unit": figures.attrs["units"][i],
            "target": target,
            "better": better,
            "n": int(figures["count"].values[i]),
            "interval": None if low is None or high is None else [low, high],
        }
        if value is not None and target is not None:
            row["reached"] = value >= target if better == "higher" else value <= target
        successes = int(figures["successes"].values[i])
        if successes >= 0:
            row["successes"] = successes
        rows.append(row)
    return rows


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
