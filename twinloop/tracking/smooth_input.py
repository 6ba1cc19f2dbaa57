"""What smoothing is given: checks, frames of one instant, and which part of an error is whose."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from twinloop.errors import InputError
from twinloop.tracking.pose_track import LOST

Array = NDArray[np.float64]
Flags = NDArray[np.int8]
_ARM = 0.1
"""m: a radian moves a point this far from the origin; compares directions of shift and turn."""
_UNOBSERVED = 0.25
"""rad^2 (and per arm^2): a direction with a larger variance is one that nobody observes."""
_NOTHING = 30.0
"""rad^2 (and per arm^2): a variance that says nothing at all; larger ones count as this."""
_WHITE = 0.04
"""At least this share of a frame's covariance is its own error, whatever `common` says."""


def checked(
    time: Array, pose: Array, covariance: Array, status: NDArray[np.integer]
) -> tuple[Array, Array, Array, Flags]:
    """The arguments of `smooth` as arrays of the right kind.

    Raises:
        InputError: as `smooth`.
    """
    time, pose = np.asarray(time, np.float64), np.asarray(pose, np.float64)
    covariance, flags = np.asarray(covariance, np.float64), np.asarray(status)
    n = len(time) if time.ndim == 1 else -1
    shapes = (time.shape, pose.shape, covariance.shape, flags.shape)
    if n < 1 or shapes != ((n,), (n, 4, 4), (n, 6, 6), (n,)):
        raise InputError(
            f"smoothing: time, pose, covariance and status have the shapes {shapes}; expected "
            "(n,), (n, 4, 4), (n, 6, 6) and (n,) with n > 0"
        )
    if not np.isfinite(time).all() or (np.diff(time) < 0).any():
        bad = int(np.argmin(np.isfinite(time))) if not np.isfinite(time).all() else None
        k = bad if bad is not None else int(np.argmax(np.diff(time) < 0)) + 1
        raise InputError(
            f"smoothing: time of frame {k} is {time[k]} s after {time[max(k - 1, 0)]} s; expected "
            "finite times that do not decrease; sort the frames"
        )
    if not np.isin(flags, (0, 1, 2)).all():
        k = int(np.argmin(np.isin(flags, (0, 1, 2))))
        raise InputError(f"smoothing: status of frame {k} is {flags[k]}; expected 0, 1 or 2")
    seen = flags != LOST
    if not seen.any():
        seen = np.ones(n, bool)
    rigid = np.zeros(n, bool)
    R = pose[:, :3, :3]
    with np.errstate(invalid="ignore", over="ignore"):
        off = np.abs(R @ np.swapaxes(R, 1, 2) - np.eye(3)).max(axis=(1, 2))
        rigid = np.isfinite(pose).all(axis=(1, 2)) & (off < 1e-6)
    rigid[rigid] = np.linalg.det(R[rigid]) > 0
    if not rigid[seen].all():
        k = int(np.flatnonzero(seen & ~rigid)[0])
        raise InputError(
            f"smoothing: pose of frame {k} is no rigid transform: {pose[k].tolist()}; expected a "
            "rotation and finite metres, or status 2 (lost)"
        )
    _check_covariance(covariance, seen)
    return time, pose, covariance, flags.astype(np.int8)


def _check_covariance(covariance: Array, seen: NDArray[np.bool_]) -> None:
    """Refuse covariances of seen frames that are not symmetric and positive definite."""
    for k in np.flatnonzero(seen):
        C = covariance[k]
        if np.isfinite(C).all() and np.abs(C - C.T).max() <= 1e-6 * np.abs(C).max():
            scale = np.sqrt(np.abs(np.diag(C)))
            if (scale > 0).all() and np.linalg.eigvalsh(C / np.outer(scale, scale))[0] > 0:
                continue
        raise InputError(
            f"smoothing: covariance of frame {k} has the diagonal {np.diag(C).tolist()}; expected "
            "a symmetric positive definite matrix in m^2 and rad^2, or status 2 (lost)"
        )


def checked_common(common: Array | None) -> Array:
    """The covariance of the clip's common error, zeros for None.

    Raises:
        InputError: not (6, 6), symmetric and positive semidefinite.
    """
    if common is None:
        return np.zeros((6, 6))
    C = np.asarray(common, np.float64)
    good = C.shape == (6, 6) and bool(np.isfinite(C).all())
    if good:
        size = float(np.abs(C).max())
        good = bool(np.abs(C - C.T).max() <= 1e-9 * size)
        good = good and bool(np.linalg.eigvalsh(C)[0] >= -1e-9 * size)
    if not good:
        raise InputError(
            f"smoothing: common covariance is {C.tolist()}; expected a symmetric positive "
            "semidefinite (6, 6) matrix in m^2 and rad^2"
        )
    return 0.5 * (C + C.T)


def nodes(
    time: Array, covariance: Array, flags: Flags
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Instants of frames (n,), and the frame (m,) that speaks for each instant.

    Two frames of one instant are the same picture twice: their errors are the same too, so the one
    of the better status, then of the smaller covariance, speaks for both.
    """
    node = np.concatenate([[0], np.cumsum(np.diff(time) > 0)])
    size = np.full(len(time), np.inf)
    seen = flags != LOST
    size[seen] = np.einsum("nii->n", covariance[seen] / np.array([_ARM**2] * 3 + [1.0] * 3))
    order = np.lexsort((np.arange(len(time)), size, flags, node))
    first = order[np.searchsorted(node[order], np.arange(node[-1] + 1))]
    return node, first


def own_noise(covariance: Array, seen: NDArray[np.bool_], common: Array) -> tuple[Array, Array]:
    """Covariances (n, 6, 6) of the frames' own errors, and roots B of what B B^T adds to them.

    `common` is taken out, but never more than leaves a share to the frame. A direction that nobody
    observes (the yaw of a plain cylinder) has no error that averaging removes: its covariance is
    multiplied by the number of frames, so that all of them together know as little as one. This
    part is given as roots (n, 6, 6), world axes at the frame's own pose: such a direction is the
    object's, and has to be turned with it to the pose where it is used, or the frames, whose tilts
    differ by their noise, seem to see it together. Frames that are not seen get the identity.
    """
    out = np.tile(np.eye(6), (len(covariance), 1, 1))
    C = 0.5 * (covariance[seen] + np.swapaxes(covariance[seen], 1, 2))
    if common.any():
        root = np.linalg.cholesky(C)
        half = np.linalg.solve(root, np.broadcast_to(common, C.shape))
        whitened = np.linalg.solve(root, np.swapaxes(half, 1, 2))
        value, vector = np.linalg.eigh(0.5 * (whitened + np.swapaxes(whitened, 1, 2)))
        left = root @ vector
        C = (left * np.maximum(1.0 - value, _WHITE)[:, None]) @ np.swapaxes(left, 1, 2)
    arm = np.array([_ARM] * 3 + [1.0] * 3)
    value, vector = np.linalg.eigh(C / np.outer(arm, arm))
    hidden = value > _UNOBSERVED
    most = np.where(hidden, 0.0, value).max(axis=1, keepdims=True)
    kept = np.where(hidden, np.where(most > 0, most, _UNOBSERVED), value)
    more = np.where(hidden, np.minimum(value, _NOTHING) * int(seen.sum()), 0.0)
    left = arm[:, None] * vector
    extra = np.zeros_like(out)
    extra[seen] = left * np.sqrt(more)[:, None]
    out[seen] = (left * kept[:, None]) @ np.swapaxes(left, 1, 2)
    return out, extra


def nearest_seen(seen: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Index (n,) of the nearest seen node of each, the earlier of two."""
    where = np.flatnonzero(seen)
    right = np.clip(np.searchsorted(where, np.arange(len(seen))), 0, len(where) - 1)
    left = np.maximum(right - 1, 0)
    k = np.arange(len(seen))
    earlier = np.abs(k - where[left]) <= np.abs(where[right] - k)
    return np.where(earlier, where[left], where[right])
