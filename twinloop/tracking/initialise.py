"""Where the object is at the start of a clip, with no help from a user.

First the SIFT map over the image; then poses of other clips; then a search over the table, of the
object's looks where it has texture and of its outline where it has none, in every way that it can
rest. All candidates are fitted and judged alike, and a rival that fits as well makes the start
unsure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from twinloop.geometry.symmetry import Symmetry
from twinloop.tracking.alike import alike
from twinloop.tracking.appearance import Reference, synthesise
from twinloop.tracking.colours import ColourModel, histogram
from twinloop.tracking.feature_map import localise
from twinloop.tracking.fitter import Attempt, Fitter
from twinloop.tracking.frame import CameraFrame, Frame
from twinloop.tracking.images import shrink_image
from twinloop.tracking.model import ObjectModel, texture_cells
from twinloop.tracking.modes import LEAST_TEXTURE, Modes, choose_modes
from twinloop.tracking.priors import RestPrior
from twinloop.tracking.recovery import differs
from twinloop.tracking.settings import Settings
from twinloop.tracking.sight import Eye, colours_at
from twinloop.tracking.solver import Term, WorldCamera, rotation_exp
from twinloop.tracking.state import Start
from twinloop.tracking.table_search import search_looks, search_outline

Array = NDArray[np.float64]
Image = NDArray[np.uint8]

LEAST_SCORE = 0.35
"""A candidate that explains the image by less than this is no object."""
FILLED = 0.4
"""Overlap of a silhouette's box with the box of where the object is said to be."""
PROVEN = 0.95
"""Merit of an outline that only the right mesh has: most of its lines show a sharp edge."""
LOOKS_ALIKE = 0.6
"""Correlation with the scan's looks that only the object shows."""
AS_SCANNED = 0.03
"""Score by which another way to rest must explain the image better than that of the scan."""
TILT, LIFT = 0.2, 0.15
"""A guess this near to a rest (rad; part of the diameter) is taken to rest."""


def resting(model: ObjectModel, pose: Array) -> RestPrior | None:
    """The prior of the way of resting that `pose` is near to, None when it stands in the air."""
    up = pose[:3, :3].T[:, 2]
    for rest in model.rests:
        angle = np.arccos(np.clip(rest.up @ up, -1, 1))
        if angle < TILT and abs(pose[2, 3] - rest.height) < LIFT * model.shape.diameter:
            return RestPrior(rest.up, rest.height, 0.001, 0.006)
    return None


def turn_about_z(pose: Array, angle: float) -> Array:
    """The pose turned by `angle` rad about the world's z axis through the object's origin."""
    out = pose.copy()
    out[:3, :3] = rotation_exp(np.array([0.0, 0.0, angle])) @ pose[:3, :3]
    return out


def appearance_score(
    model: ObjectModel, camera: WorldCamera, image: Image, pose: Array, references: list[Reference]
) -> float:
    """Correlation in [-1, 1] of the object as in the scan with the image, -1 when out of view."""
    view = model.shape.view(camera, pose, margin=2)
    if view is None:
        return -1.0
    grey, valid = synthesise(
        references, camera, pose, view, tolerance=0.03 * model.shape.diameter, count=2
    )
    if valid.sum() < 30:
        return -1.0
    x0, y0, x1, y1 = view.window
    a = grey[valid].astype(np.float64)
    b = image[y0:y1, x0:x1][valid].astype(np.float64)
    if a.std() < 2 or b.std() < 2:
        return 0.0
    return float(np.corrcoef(a, b)[0, 1])


def shrink(camera: WorldCamera, image: Image, factor: int) -> tuple[WorldCamera, Image]:
    """Camera and image at 1/factor of their size (area averages)."""
    small, intrinsics = shrink_image(image, camera.intrinsics, factor)
    h, w = small.shape[:2]
    return WorldCamera(intrinsics, camera.T_camera_world, w, h), small


@dataclass(frozen=True)
class Candidate:
    """A possible start: what found it, its fit, whether it rests, its score in [-1, 2]."""

    method: str
    attempt: Attempt
    resting: bool
    score: float


@dataclass
class Judge:
    """Fits first guesses to one frame and scores them; `table`: z = 0 is one."""

    model: ObjectModel
    frame: Frame
    settings: Settings
    table: bool

    def fit(
        self, pose: Array, texture: bool, rounds: Sequence[float] = (3.0, 1.5, 1.0)
    ) -> Candidate | None:
        """The pose fitted from a first guess, outlines first; None when nothing is found there."""
        rest = resting(self.model, pose) if self.table else None
        knowledge: list[Term] = [] if rest is None else [rest]
        any_depth = any(c.depth is not None for c in self.frame.cameras)
        modes = Modes(True, texture, any_depth, self.table, 0.0, 0.0)
        eyes = [Eye(colours=self.expected(c)) for c in self.frame.cameras]
        fitter = Fitter(self.model, modes, self.settings, eyes, knowledge)
        if eyes[0].colours is not None and not texture:
            moved = fitter.coarse(self.frame, pose)
            pose = pose if moved is None else moved
        attempt: Attempt | None = None
        for round_trip in rounds:
            # Colours of the scan served to get here; those of this light are better from now on.
            for eye, camera in zip(eyes, self.frame.cameras, strict=True):
                fresh = colours_at(self.model, camera, pose)
                if fresh is not None:
                    eye.colours = fresh
            attempt = fitter.attempt(self.frame, pose, round_trip=round_trip)
            if attempt is None:
                return None
            pose = attempt.pose
        if attempt is None:
            return None
        return Candidate("", attempt, rest is not None, self.score(attempt, texture))

    def expected(self, camera: CameraFrame) -> ColourModel | None:
        """The object's colours as in the scan, against those of the whole image."""
        if self.model.colours is None:
            return None
        return ColourModel(self.model.colours, histogram(camera.rgb.reshape(-1, 3)))

    def score(self, attempt: Attempt, texture: bool) -> float:
        """How well a fitted pose explains the first camera's image."""
        outline = max((s.score for s in attempt.sights if s is not None), default=0.0)
        if not texture:
            return 0.5 * (attempt.merit + outline)
        camera = self.frame.cameras[0]
        half, image = shrink(camera.camera, camera.grey, 2)
        return appearance_score(self.model, half, image, attempt.pose, self.model.shrunk(2))


def find_start(
    model: ObjectModel,
    frame: Frame,
    settings: Settings,
    *,
    table: bool = True,
    search: bool = True,
    hints: Sequence[Array] = (),
    mask: NDArray[np.bool_] | None = None,
) -> Start | None:
    """The object's pose in `frame`, in which it rests, or None.

    `hints` are poses (4, 4) worth a try, such as the starts of other clips; they are judged like
    all others. The table is searched only when neither the feature map nor a hint gives a sure
    pose. `mask` (h, w) bool says where the first camera sees the object, if that is known; a box
    is a mask, too.
    """
    judge = Judge(model, frame, settings, table)
    camera = frame.cameras[0]
    half, image = shrink(camera.camera, camera.grey, 2)
    textured = shows_looks(model)
    candidates: list[Candidate] = []

    def consider(method: str, pose: Array, texture: bool) -> None:
        found = judge.fit(pose, texture)
        if found is None:
            return
        if mask is not None and not fills(found, mask):
            return
        # Outlines agree with much; an object that has looks has to show them, by points or as a
        # whole (blurred and small ones have no points).
        points = sum(len(s.points) for s in found.attempt.seen)
        shown = not texture or points >= settings.minimum_inliers or found.score > LOOKS_ALIKE
        if shown and found.attempt.used >= settings.minimum_inliers:
            candidates.append(Candidate(method, found.attempt, found.resting, found.score))

    def good() -> bool:
        return any(
            c.score > LOOKS_ALIKE and c.attempt.used >= 2 * settings.minimum_inliers
            for c in candidates
        )

    if textured:
        window = (0, 0, camera.camera.width, camera.camera.height)
        if mask is not None and mask.any():
            rows, columns = np.nonzero(mask)
            window = (
                int(columns.min()),
                int(rows.min()),
                int(columns.max()) + 1,
                int(rows.max()) + 1,
            )
        found = localise(model.features, camera.grey, camera.camera, window, model.shape.diameter)
        if found is not None:
            consider("sift", found.pose, True)
    if not good() and hints:
        # Between pushes an object is mostly put back near its place, turned by quarter turns.
        turned = [turn_about_z(h, k * np.pi / 2) for h in hints for k in range(4)]
        if textured:
            references = model.shrunk(2)
            scored = [
                (appearance_score(model, half, image, p, references), i)
                for i, p in enumerate(turned)
            ]
            for score, i in sorted(scored, reverse=True)[:3]:
                if score > 0.15 and not good():
                    consider("hint", turned[i], True)
        else:
            for pose in turned[::4]:
                consider("hint", pose, False)
    if search and table and textured and not good():
        for score, pose in search_looks(model, camera.camera, camera.grey)[:4]:
            if score > 0.4:
                consider("search", pose, True)
    if search and table and not good():
        # What has looks has to show them: an outline alone fits any patch of its colours.
        colours = judge.expected(camera)
        rests = model.rests[:1] if textured else model.rests
        found_there = search_outline(model, camera, colours, mask, rests=rests)
        for pose in first_outlines(model, found_there):
            consider("outline", pose, textured)
    candidates = [c for c in candidates if c.score > LEAST_SCORE]
    if not candidates:
        return None
    return settle(judge, candidates, mask)


def shows_looks(model: ObjectModel) -> bool:
    """Whether the object has enough texture to be told by it, and pictures to tell it from."""
    return model.texture >= LEAST_TEXTURE and bool(model.references)


def first_outlines(model: ObjectModel, found: list[tuple[float, Array]]) -> list[Array]:
    """The poses of a search to be fitted: the best eight, and the best two of every way to rest."""
    chosen = [pose for _, pose in found[:8]]
    for rest in model.rests:
        same = [pose for _, pose in found[8:] if pose[2, :3] @ rest.up > np.cos(TILT)]
        there = sum(bool(pose[2, :3] @ rest.up > np.cos(TILT)) for pose in chosen)
        chosen += same[: max(2 - there, 0)]
    return chosen


def settle(
    judge: Judge, candidates: list[Candidate], mask: NDArray[np.bool_] | None = None
) -> Start:
    """The best candidate, and whether another pose would do as well; `mask` as in `find_start`."""
    by_looks = shows_looks(judge.model)
    same = Symmetry() if by_looks else judge.model.symmetry
    margin = 0.05 if by_looks else 0.02
    best = max(candidates, key=lambda c: c.score)
    others = turned(judge, best, by_looks)
    candidates = candidates + [c for c in others if mask is None or fills(c, mask)]
    best = max(candidates, key=lambda c: c.score)
    first = judge.model.rests[0].up
    stands = [c for c in candidates if stands_like(c, first)]
    as_before = max(stands, key=lambda c: c.score, default=best)
    # Of ways to rest that look alike, the one of the scan: people put things down as they stood.
    if as_before.score > best.score - AS_SCANNED:
        best = as_before
    sure = best.score > (0.5 if by_looks else 0.45)
    sure = sure and best.attempt.used >= 2 * judge.settings.minimum_inliers
    diameter = judge.model.shape.diameter
    sure = sure and not any(
        c.score > best.score - margin
        and (best is not as_before or stands_like(c, first))
        and differs(c.attempt.pose, best.attempt.pose, diameter, same)
        for c in candidates
        if c is not best
    )
    # A block that looks the same upside down need not weigh the same.
    as_scanned = judge.model.rests[0].pose(0.0, 0.0, 0.0)
    solution = alike(best.attempt.solution, as_scanned, same)
    proven = by_looks or best.attempt.merit > PROVEN
    return Start(solution, sure and proven, best.method, best.resting, proven)


def fills(candidate: Candidate, mask: NDArray[np.bool_]) -> bool:
    """Whether a candidate is where `mask` (h, w) says, and as large: by their boxes."""
    sight = candidate.attempt.sights[0]
    if sight is None or not sight.view.mask.any():
        return False
    x0, y0 = sight.view.window[:2]
    boxes = []
    for picture, x, y in ((sight.view.mask, x0, y0), (mask, 0, 0)):
        rows, columns = np.flatnonzero(picture.any(1)) + y, np.flatnonzero(picture.any(0)) + x
        boxes.append((columns[0], rows[0], columns[-1] + 1, rows[-1] + 1))
    (a, b, c, d), (e, f, g, h) = boxes
    common = max(min(c, g) - max(a, e), 0) * max(min(d, h) - max(b, f), 0)
    return bool(common > FILLED * ((c - a) * (d - b) + (g - e) * (h - f) - common))


def stands_like(candidate: Candidate, up: Array) -> bool:
    """Whether the object's axis `up` (3,) points up."""
    return bool(candidate.attempt.pose[2, :3] @ up > np.cos(TILT))


def turned(judge: Judge, best: Candidate, texture: bool) -> list[Candidate]:
    """What other yaws at the same place lead to, in steps of 30 deg: rivals, or the better pose."""
    out = []
    camera = judge.frame.cameras[0]
    half, image = shrink(camera.camera, camera.grey, 2)
    for k in range(1, 12):
        other = turn_about_z(best.attempt.pose, k * np.pi / 6)
        if texture:
            score = appearance_score(judge.model, half, image, other, judge.model.shrunk(2))
            if score < 0.35:
                continue
        found = judge.fit(other, texture, rounds=(1.5,))
        if found is not None:
            out.append(replace(found, method=best.method))
    return out


def first_modes(model: ObjectModel, frame: Frame, pose: Array, *, plane: bool) -> Modes:
    """The modes that the first frame speaks for, with the object at `pose`."""
    cells, overlap = 0.0, 1.0
    for camera in frame.cameras:
        T = camera.camera.T_camera_world @ pose
        live = model.shape.reference(camera.grey, camera.camera.intrinsics, T)
        cells = max(cells, float(texture_cells(camera.grey, live.depth > 0)))
        colours = colours_at(model, camera, pose)
        if colours is not None:
            overlap = min(overlap, colours.overlap)
    if model.look is not None:
        # Shadows and what is mirrored look like texture, but do not move with the object.
        cells = min(cells, model.texture)
    depth = any(c.depth is not None for c in frame.cameras)
    return choose_modes(cells, overlap, depth=depth, plane=plane)
