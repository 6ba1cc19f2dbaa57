"""Notice that a camera on its tripod was knocked, from what stands still in its pictures.

Some sixty patches of background (the board, marks on the table) are compared with the first picture
by one step of Lucas and Kanade each, with a gain and an offset of their own, so that light does not
matter ("An iterative image registration technique", IJCAI 1981; gain and offset as in Jin, Favaro
and Soatto, ICCV 2001).  A patch that is covered or blurred beyond likeness drops out; the others
have to agree on one similarity of the picture.  Only when most drop out is a far motion sought, by
pyramids.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from twinloop.errors import InputError

Array = NDArray[np.float64]
Image = NDArray[np.uint8]
Mask = NDArray[np.bool_]

HALF = 7
"""Half width of a patch, px; its edge is twice that and one."""
POINTS = 60
"""Patches that are watched."""
SPACING = 14
"""Least distance of patches, px, in a picture of 640 columns."""
GREY = 128.0
"""Grey level from which patches are counted."""
LEAST_GAIN = 0.2
"""Least brightness by the first picture's at which a patch tells anything."""
LEAST = 6
"""Fewest patches that agree, for a motion to be told."""
LIKENESS = 0.8
"""Least correlation of a patch with its first picture, after the step."""
LINEAR = 1.5
"""Largest shift that one step of Lucas and Kanade is believed to measure, px."""
STANDING = 0.15
"""Share of the patches in view that stand in their places when the camera does."""
MOST_IN_CELL = 5
"""Most patches in a sixteenth of the picture: one thing must not hold them all."""
AGREE = 1.0
"""Patches farther than this from the common motion do not agree with it, px."""
STILL = (0.3, 3)
"""Mean grey difference of a repeated frame, and the difference that hardly a pixel exceeds."""


@dataclass(frozen=True)
class Shift:
    """What became of the background since the first picture.

    pixels: (2,) px by which the picture's middle moved; rotation: rad, in the picture, clockwise
    as seen (y down); scale: 1 where nothing came nearer; largest: px, the motion at the corner
    that moves most; std: px, standard deviation of the middle's motion; gain: brightness by the
    first picture's (median of the patches); seen: patches that agree; moved: the camera does not
    stand as it did; sure: enough patches were seen to say so, or to say that it does; repeated:
    the picture equals the one before.
    """

    pixels: Array
    rotation: float
    scale: float
    largest: float
    std: float
    gain: float
    seen: int
    moved: bool
    sure: bool
    repeated: bool


class CameraWatch:
    """Compares the pictures of a static camera with the first one.

    Args:
        first: (h, w) u1 grey picture.
        exclude: (h, w) bool, what is no background: the object and its surroundings, the robot.
        limit: px of motion at a corner that are taken for a knock.  Far above what noise and JPEG
            make (0.1 px), far below what harms a pose (2 px).

    Raises:
        InputError: The picture is too small.
    """

    def __init__(self, first: Image, exclude: Mask | None = None, limit: float = 1.0) -> None:
        h, w = first.shape
        if min(h, w) < 4 * HALF:
            raise InputError(f"picture of {w} x {h} px: expected {4 * HALF} px at least each way.")
        self.limit = limit
        self._first = first.copy()
        self._last: Image | None = None
        allowed = np.full((h, w), 255, np.uint8)
        if exclude is not None:
            # A patch must not reach into what moves.
            kernel = np.ones((2 * HALF + 1, 2 * HALF + 1), np.uint8)
            allowed[cv2.dilate(exclude.astype(np.uint8), kernel) > 0] = 0
        border = HALF + 2
        allowed[:border] = allowed[-border:] = 0
        allowed[:, :border] = allowed[:, -border:] = 0
        self.points = _spread_points(first, allowed)
        offsets = np.arange(-HALF, HALF + 1)
        dy, dx = (o.ravel() for o in np.meshgrid(offsets, offsets, indexing="ij"))
        columns, rows = self.points[:, 0, None] + dx, self.points[:, 1, None] + dy
        self._places = rows * w + columns
        self._middles = self.points[:, 1] * w + self.points[:, 0]
        self._prepare(first)
        self._guess = np.zeros_like(self.points)
        corners = np.array([[0.0, 0.0], [w, 0.0], [w, h], [0.0, h]])
        self._corners = corners - 0.5 * np.array([w, h])
        self._centre = 0.5 * np.array([w - 1.0, h - 1.0])

    def _prepare(self, first: Image) -> None:
        """Solve each patch's step beforehand: I = a T + b + gx u + gy v, least squares."""
        picture = first.astype(np.float32)
        gx = cv2.Scharr(picture, cv2.CV_32F, 1, 0) / 32.0
        gy = cv2.Scharr(picture, cv2.CV_32F, 0, 1) / 32.0
        T, X, Y = (np.asarray(p, np.float64).ravel()[self._places] for p in (picture, gx, gy))
        # Single precision is enough from here on, about a grey that keeps the sums small.
        T = T - GREY
        # I(x) = T(x - d), so that the step enters with a minus.
        model = np.stack([T, np.ones_like(T), -X, -Y], axis=2)
        normal = np.einsum("pki,pkj->pij", model, model) + np.diag([1e-3, 1e-6, 1e-3, 1e-3])
        self._model = model.astype(np.float32)
        self._solver = np.linalg.solve(normal, np.swapaxes(model, 1, 2)).astype(np.float32)

    def check(self, image: Image, ignore: Mask | None = None) -> Shift:
        """Compare a picture with the first one.

        Args:
            image: (h, w) u1 grey, of the first one's size.
            ignore: (h, w) bool, where something (the robot, the object) may cover the background.

        Raises:
            InputError: The picture has another size.
        """
        if image.shape != self._first.shape:
            raise InputError(
                f"picture of {image.shape[1]} x {image.shape[0]} px: the first one has "
                f"{self._first.shape[1]} x {self._first.shape[0]} px. Give pictures of one camera."
            )
        repeated = self._repeats(image)
        free = np.ones(len(self.points), np.bool_)
        if ignore is not None and len(self.points):
            free = ~ignore.ravel()[self._middles]
        enough = max(LEAST, 0.5 * free.sum())
        guess = np.zeros_like(self._guess)
        step, gain, good = self._steps(image, guess, free)
        # Where marks are found in their places, the camera stands, whatever else moves: a hand
        # that covers more of them than are left must not carry the vote.
        standing = good & (np.abs(step).max(axis=1, initial=0.0) < 0.5 * AGREE)
        if standing.sum() >= max(LEAST, STANDING * free.sum()):
            good = standing
        else:
            if good.sum() < enough and self._guess.any():
                guess = self._guess
                step, gain, good = self._steps(image, guess, free)
            if good.sum() < enough and (far := self._far(image, free)) is not None:
                guess = far
                step, gain, good = self._steps(image, guess, free)
        count = int(free.sum())
        found = self._shift(step, gain, good, repeated, count)
        for _ in range(2):
            # One step is exact near its start only: go on from where it led.
            better = self._guessed(found) if found.sure else guess
            if not (better - guess)[good].any():
                break
            guess = better
            step, gain, good = self._steps(image, guess, free)
            found = self._shift(step, gain, good, repeated, count)
        if found.sure:
            self._guess = guess
        return found

    def _guessed(self, found: Shift) -> NDArray[np.int64]:
        """Motion (p, 2) of the patches in whole px."""
        s = found.scale * np.cos(found.rotation) - 1.0
        motion = np.array([*found.pixels, s, found.scale * np.sin(found.rotation)])
        return np.rint(_moved(self.points - self._centre, motion)).astype(np.int64)

    def _steps(
        self, image: Image, guess: NDArray[np.int64], free: Mask
    ) -> tuple[Array, Array, Mask]:
        """Shift (p, 2) px about a guess in whole px, gain (p,), and which patches are believed."""
        h, w = image.shape
        there = self.points + guess
        inside: Mask = np.asarray(((there >= HALF) & (there < [w - HALF, h - HALF])).all(axis=1))
        moved = np.where(inside[:, None], guess, 0)
        places = self._places + (moved[:, 1] * w + moved[:, 0])[:, None]
        seen = image.ravel()[places].astype(np.float32) - np.float32(GREY)
        found = (self._solver @ seen[..., None])[..., 0].astype(np.float64)
        rest = seen - (self._model @ found[..., None].astype(np.float32))[..., 0]
        gain = np.where(found[:, 0] > LEAST_GAIN, found[:, 0], np.inf)
        spread = np.maximum(seen.var(axis=1), 1e-6)
        like = np.sqrt(np.clip(1.0 - (rest**2).mean(axis=1) / spread, 0.0, 1.0))
        # The gradients in the picture are those of the first one times the gain.
        step = found[:, 2:] / gain[:, None]
        good = free & inside & (found[:, 0] > LEAST_GAIN) & (like > LIKENESS)
        good &= np.abs(step).max(axis=1, initial=0.0) < LINEAR
        return moved + step, found[:, 0], good

    def _far(self, image: Image, free: Mask) -> NDArray[np.int64] | None:
        """Whole px (p, 2) of a motion beyond one step, by pyramids; None when none is evident."""
        start = self.points[free].astype(np.float32)[:, None]
        if len(start) < LEAST:
            return None
        there, ok, _ = cv2.calcOpticalFlowPyrLK(
            self._first, image, start, start.copy(), winSize=(21, 21), maxLevel=4
        )
        back, ok_back, _ = cv2.calcOpticalFlowPyrLK(
            image, self._first, there, there.copy(), winSize=(21, 21), maxLevel=4
        )
        sound = (ok.ravel() > 0) & (ok_back.ravel() > 0)
        sound &= np.linalg.norm((back - start)[:, 0], axis=1) < 0.5
        if sound.sum() < LEAST:
            return None
        step = (there - start)[sound, 0].astype(np.float64)
        motion, inside = _similarity(start[sound, 0] - self._centre, step)
        if inside.sum() < max(LEAST, 0.3 * len(start)):
            return None
        return np.rint(_moved(self.points - self._centre, motion)).astype(np.int64)

    def _shift(self, step: Array, gain: Array, good: Mask, repeated: bool, free: int) -> Shift:
        """The common motion of the `good` patches by steps (p, 2), and what it means."""
        points, step, gain = self.points[good].astype(np.float64), step[good], gain[good]
        nothing = Shift(np.zeros(2), 0.0, 1.0, 0.0, np.inf, 1.0, 0, False, False, repeated)
        if len(points) < LEAST:
            return nothing
        relative = points - self._centre
        motion, inside = _similarity(relative, step)
        count = int(inside.sum())
        # Less than half of what is free agrees: whatever it is, it is not the whole picture.
        if count < max(LEAST, 0.5 * len(points)) or count < 0.3 * free:
            return nothing
        error = step[inside] - _moved(relative[inside], motion)
        noise = float(np.sqrt((error**2).sum() / max(2 * count - 4, 1)))
        std = noise / np.sqrt(count)
        largest = float(np.linalg.norm(_moved(self._corners, motion), axis=1).max())
        # A corner far from all patches is told badly: what the fit does not know is no motion.
        spread = max(float(np.sqrt((relative[inside] ** 2).sum(axis=1).mean())), 1.0)
        corner = std * np.hypot(1.0, float(np.linalg.norm(self._corners[0])) / spread)
        moved = largest > max(self.limit, 5 * corner)
        turn = float(np.arctan2(motion[3], 1 + motion[2]))
        scale = float(np.hypot(motion[3], 1 + motion[2]))
        brightness = float(np.median(gain[inside]))
        return Shift(
            motion[:2], turn, scale, largest, std, brightness, count, moved, True, repeated
        )

    def _repeats(self, image: Image) -> bool:
        """Whether a picture is the one before once more: all of it, so that nothing moved."""
        last, self._last = self._last, image[::4, ::4].copy()
        if last is None:
            return False
        difference = cv2.absdiff(self._last, last)
        apart = int(np.count_nonzero(difference > STILL[1]))
        return bool(difference.mean() < STILL[0] and apart <= 1e-3 * difference.size)


def _spread_points(first: Image, allowed: Image) -> NDArray[np.int64]:
    """Corners (n, 2) of the picture, whole px, spread over it: the strongest of each cell."""
    h, w = first.shape
    spacing = max(SPACING * w / 640, HALF)
    found = cv2.goodFeaturesToTrack(
        first, 6 * POINTS, 0.005, spacing, mask=allowed, blockSize=2 * HALF + 1
    )
    if found is None:
        return np.zeros((0, 2), np.int64)
    points = np.rint(np.asarray(found).reshape(-1, 2)).astype(np.int64)
    cell = points // (np.array([w, h]) // 4 + 1)
    name = cell[:, 0] + 4 * cell[:, 1]
    # One of each cell, then the next of each: corners come in order of their strength.
    turn = np.array([int((name[:k] == name[k]).sum()) for k in range(len(points))], np.int64)
    order = np.argsort(turn, kind="stable")
    order = order[turn[order] < MOST_IN_CELL][:POINTS]
    return np.asarray(points[order], np.int64)


def _moved(points: Array, motion: Array) -> Array:
    """Motion (n, 2) of points (n, 2) by (u, v, s, r): (u + s x - r y, v + r x + s y)."""
    u, v, s, r = motion
    x, y = points.T
    return np.stack([u + s * x - r * y, v + r * x + s * y], axis=1)


def _similarity(points: Array, step: Array) -> tuple[Array, Mask]:
    """The motion (4,) that most points agree on, and which do (n,).

    From the median step, which half of the points may contradict; then least squares on those that
    agree, more closely each time.
    """
    x, y = points.T
    one, nil = np.ones_like(x), np.zeros_like(x)
    design = np.stack([np.stack([one, nil, x, -y], 1), np.stack([nil, one, y, x], 1)], axis=1)
    # Weak belief that a knock neither zooms nor turns much, for points on a small part of the view.
    prior = np.diag([1e-6, 1e-6, 1e1, 1e1])
    middle = np.median(step, axis=0)
    away = np.linalg.norm(step - middle, axis=1)
    spread = float(np.median(away))
    inside = away <= max(AGREE, 2.5 * spread)
    motion = np.array([*middle, 0.0, 0.0])
    for _ in range(4):
        used = design[inside].reshape(-1, 4)
        normal = used.T @ used + prior
        motion = np.linalg.solve(normal, used.T @ step[inside].ravel())
        error = np.linalg.norm(step - _moved(points, motion), axis=1)
        inside = error < AGREE
        if inside.sum() < LEAST:
            break
    return motion, inside
