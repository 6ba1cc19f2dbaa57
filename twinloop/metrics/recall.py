"""From errors of many poses to one number: areas under recall curves, average recalls of BOP."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from twinloop.errors import InputError

Array = NDArray[np.float64]
BOP_PARTS = np.arange(0.05, 0.51, 0.05)
"""(10,) thresholds of VSD and, as parts of the diameter, of MSSD and VSD's tolerances."""
BOP_PIXELS = np.arange(5.0, 51.0, 5.0)
"""(10,) thresholds of MSPD, px, for pictures 640 px wide."""


def area_under_recall(errors: ArrayLike, limit: float = 0.1) -> float:
    """Area under the recall curve of errors from 0 to `limit`, divided by `limit`: 0 to 1.

    The curve is the empirical one, the share of poses whose error is at most the threshold, and its
    integral is exact: the mean of max(0, 1 - error / limit). Where no pose was found the error is
    inf.

    Args:
        errors: (n,) ADD or ADD-S, m; n > 0.
        limit: m.

    Raises:
        InputError: no errors, one that is negative or NaN, a limit that is not positive.
    """
    return float(np.maximum(0.0, 1.0 - _checked(errors, limit) / limit).mean())


def area_under_recall_ycb(errors: ArrayLike, limit: float = 0.1) -> float:
    """The area as the YCB-Video toolbox sums it up, for comparison with published figures.

    Source: its `VOCap` (Xiang et al., PoseCNN, RSS 2018). It takes each step of the curve at its
    upper end: on top of the exact area it counts the largest error under the limit, divided by
    limit times the number of poses. The two agree for many poses.

    Args:
        errors: as `area_under_recall`.
        limit: m.

    Raises:
        InputError: as `area_under_recall`.
    """
    value = _checked(errors, limit)
    within = value[value <= limit]
    if len(within) == 0:
        return 0.0
    return float(area_under_recall(value, limit) + within.max() / (limit * len(value)))


def recall(errors: ArrayLike, thresholds: ArrayLike) -> Array:
    """Shares (t,) of errors (n, ...) that lie under each of the thresholds (t,).

    An error at the threshold does not count, as in bop_toolkit's `match_poses`.
    """
    value = np.asarray(errors, np.float64).reshape(-1, 1)
    limits = np.asarray(thresholds, np.float64).reshape(1, -1)
    return np.asarray((value < limits).mean(axis=0))


def average_recall(
    vsd: Array, mssd: Array, mspd: Array, diameter: float, width: int = 640
) -> dict[str, float]:
    """BOP's average recalls of one object's poses, one target a picture.

    Source: Hodan et al., "BOP Challenge 2020", ECCVW 2020. A pose that was not found
    has the errors inf (1 for VSD).

    Args:
        vsd: (n, 10) for the tolerances `BOP_PARTS` of the diameter.
        mssd: (n,) m.
        mspd: (n,) px.
        diameter: of the object, m.
        width: of the pictures, px; MSPD's thresholds grow with width / 640.

    Returns:
        vsd, mssd, mspd, and their mean as `average`.

    Raises:
        InputError: numbers of poses that disagree, or none.
    """
    shapes = (np.shape(vsd), np.shape(mssd), np.shape(mspd))
    n = len(mssd)
    if n == 0 or shapes != ((n, len(BOP_PARTS)), (n,), (n,)):
        raise InputError(
            f"average recall: errors of the shapes {shapes}; expected (n, {len(BOP_PARTS)}), (n,) "
            "and (n,) with n > 0"
        )
    found = {
        "vsd": float(np.mean([recall(column, BOP_PARTS) for column in np.transpose(vsd)])),
        "mssd": float(recall(mssd / diameter, BOP_PARTS).mean()),
        "mspd": float(recall(mspd * (640.0 / width), BOP_PIXELS).mean()),
    }
    return {**found, "average": float(np.mean(list(found.values())))}


def _checked(errors: ArrayLike, limit: float) -> Array:
    """Errors as an array; refuses what no error can be."""
    value = np.asarray(errors, np.float64).reshape(-1)
    if len(value) == 0 or not (value >= 0).all() or not limit > 0:
        worst = value[~(value >= 0)][:1].tolist() if len(value) else "none"
        raise InputError(
            f"area under recall: {len(value)} errors, of them {worst} out of range, limit {limit} "
            "m; expected errors of at least 0 (inf where nothing was found) and a positive limit"
        )
    return value
