"""One pose in one frame: measure with all cameras, solve, judge how well it explains them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from twinloop.geometry.symmetry import Symmetry
from twinloop.tracking.frame import Frame
from twinloop.tracking.model import ObjectModel
from twinloop.tracking.modes import Modes
from twinloop.tracking.photometric import photometric_term
from twinloop.tracking.priors import Contact, PosePrior, RestPrior
from twinloop.tracking.settings import Settings
from twinloop.tracking.sight import Eye, Sight, look, point_term, present, texture
from twinloop.tracking.solver import (
    Correspondences,
    PointTerm,
    Solution,
    Term,
    project,
    rotation_log,
    solve_pose,
)

Array = NDArray[np.float64]

FARTHEST = 1.0
"""Pixels by which the comparison with the twin's picture may move the outline."""
CLEAR = 0.8
"""Share of the object that must be seen: beside a body that hides it, pixels are of both."""
PIXELS = 2.0
"""All pixels against all points of flow: they scatter half as much, but share the twin's errors."""
ENOUGH = 0.3
"""Share of the outline that sharp edges must show to do without statistics of colour."""


UNKNOWN = np.diag([1.0] * 3 + [np.pi**2] * 3)
"""Covariance of a pose of which nothing was measured, m and rad."""


@dataclass(frozen=True)
class Attempt:
    """A pose, the solution behind it and how well it explains the frame.

    quality: in [0, 1], the share of what should be seen that is; merit: the same without a ceiling,
    to tell the better of two good poses; visible: share of the object that
    nothing hides; used: measurements that agree; others: the terms that no image gave: of motion
    and depth.
    """

    solution: Solution
    sights: tuple[Sight | None, ...]
    seen: tuple[Correspondences, ...]
    quality: float
    merit: float
    visible: float
    used: int
    others: tuple[Term, ...]

    @property
    def pose(self) -> Array:
        """(4, 4) T_world_object."""
        return self.solution.pose


def seen_share(sights: tuple[Sight | None, ...]) -> float:
    """The share of the object that nothing hides from the camera that sees most."""
    return max((s.visible for s in sights if s is not None), default=0.0)


def table_knowledge(model: ObjectModel, settings: Settings) -> list[Term]:
    """What the table tells of a pose: the lowest point is on it, and mostly a face is."""
    s, rest = settings, model.rests[0]
    return [
        Contact(model.shape.hull, model.contact_height, s.contact_sigma, s.contact_cutoff),
        RestPrior(rest.up, rest.height, s.contact_sigma, s.rest_tilt, s.rest_cutoff),
    ]


@dataclass
class Fitter:
    """Model, cameras' memories and knowledge with which poses are fitted to frames."""

    model: ObjectModel
    modes: Modes
    settings: Settings
    eyes: list[Eye]
    knowledge: list[Term]

    @property
    def symmetry(self) -> Symmetry:
        """Motions that no measurement in use can tell from rest: texture breaks the shape's."""
        return Symmetry() if self.modes.texture else self.model.symmetry

    def attempt(
        self,
        frame: Frame,
        pose: Array,
        sights: tuple[Sight | None, ...] = (),
        *,
        at: Array | None = None,
        prior: PosePrior | None = None,
        round_trip: float = 1.0,
    ) -> Attempt | None:
        """Measure finely at `pose` and solve.

        `sights` made at the pose `at` serve again when the object moved by less than a pixel since.
        None when no camera sees enough.
        """
        settings = self.settings
        visible = seen_share(sights)
        if not sights or at is None or self._shift(frame, at, pose) > 1.5:
            if sights and visible < 0.5 * settings.least_visible:
                return self._hidden(pose, sights, visible)
            sights = tuple(
                look(self.model, camera, pose, eye, self.modes)
                for eye, camera in zip(self.eyes, frame.cameras, strict=True)
            )
            visible = seen_share(sights)
        if visible <= settings.least_visible:
            # Not to be trusted whatever is measured, so nothing is.
            return self._hidden(pose, sights, visible)
        terms: list[Term | None] = [prior]
        owners: list[tuple[str, int]] = [("prior", 0)]
        points: list[PointTerm | None] = []
        for i, (eye, sight) in enumerate(zip(self.eyes, sights, strict=True)):
            points.append(None)
            if sight is None:
                continue
            if self.modes.texture:
                measured = texture(
                    self.model,
                    sight,
                    pose,
                    eye,
                    count=settings.features,
                    sigma_live=settings.sigma_live,
                    sigma_model=settings.sigma_scan,
                    round_trip=round_trip,
                )
                points[i] = point_term(measured, sight.frame, settings.correlated)
                terms.append(points[i])
                owners.append(("points", measured.offered))
            if self.modes.region:
                # Where points tell the pose, edges only help: shadows at the foot move them.
                sharp = settings.edges if points[i] is None else settings.edges_with_points
                edges = sight.edges(sharp)
                there = None if edges is None else edges.system(pose, 0)
                terms.append(edges)
                owners.append(("edges", 0))
                if there is None or there.used < ENOUGH * there.offered:
                    # Statistics are led astray by mixed pixels, but need no sharp edge.
                    terms.append(sight.region((1,)))
                    owners.append(("region", 0))
            if self.modes.depth:
                terms.append(sight.depth(pose))
                owners.append(("depth", 0))
        chosen = [k for k, t in enumerate(terms) if t is not None]
        solution = solve_pose(pose, self.knowledge + present(terms), 5)
        systems = solution.systems[len(self.knowledge) :]
        # What agrees, as a share of what was offered, by kind of measurement.
        shares: dict[str, list[float]] = {}
        used = 0
        for k, system in zip(chosen, systems, strict=True):
            kind, offered = owners[k]
            if kind == "prior":
                continue
            if system is None:
                shares.setdefault(kind, []).append(0.0)
                continue
            used += system.used
            shares.setdefault(kind, []).append(system.used / max(system.offered, offered, 1))
        if used == 0:
            return None
        seen = []
        position = {id(terms[k]): system for k, system in zip(chosen, systems, strict=True)}
        for term in points:
            system = None if term is None else position[id(term)]
            if term is None or system is None or system.weights is None:
                seen.append(Correspondences.join([]))
            else:
                keep = system.weights > 0.1
                s = term.seen
                seen.append(Correspondences(s.points[keep], s.pixels[keep], s.sigma[keep]))
        quality, merit = self._quality(shares, sights)
        kept = present([terms[k] for k in chosen if owners[k][0] in ("prior", "depth")])
        return Attempt(solution, sights, tuple(seen), quality, merit, visible, used, tuple(kept))

    def refine(self, frame: Frame, attempt: Attempt) -> Attempt:
        """The attempt moved by parts of a pixel to where live images are the twin's pictures.

        The pictures stand in for points and outline, which are measured with more scatter and whose
        shadows and mixed pixels pull by tenths of a pixel. The attempt stays as it is without
        texture, where too little is seen, where the pictures do not agree better afterwards, and
        without a table: an error of the looks alone would become one of the range.
        """
        s = self.settings
        if not (s.photometric and self.modes.texture and self.modes.plane):
            return attempt
        if attempt.visible < CLEAR:
            return attempt
        pictures = []
        for sight in attempt.sights:
            if sight is not None:
                term = photometric_term(
                    self.model,
                    sight,
                    attempt.pose,
                    sigma=s.sigma_scan,
                    correlated=PIXELS * s.correlated,
                )
                pictures += [] if term is None else [term]
        if not pictures:
            return attempt
        terms = [*self.knowledge, *attempt.others, *pictures]
        solution = solve_pose(attempt.pose, terms, 4)
        before = sum(p.cost(attempt.pose) for p in pictures)
        after = sum(p.cost(solution.pose) for p in pictures)
        if after >= before or self._shift(frame, attempt.pose, solution.pose) > FARTHEST:
            return attempt
        return replace(attempt, solution=solution)

    def _hidden(self, pose: Array, sights: tuple[Sight | None, ...], visible: float) -> Attempt:
        """An attempt that nothing speaks for."""
        unknown = Solution(pose, UNKNOWN, np.zeros((6, 6)), ())
        none = tuple(Correspondences.join([]) for _ in sights)
        return Attempt(unknown, sights, none, 0.0, 0.0, visible, 0, ())

    def _quality(
        self, shares: dict[str, list[float]], sights: tuple[Sight | None, ...]
    ) -> tuple[float, float]:
        """How well a pose explains what is seen: quality in [0, 1], and merit to rank poses by.

        An outline counts by its edges and by the colours on its two sides as they were at the
        start; texture by the points that agree; depth by the surface found. The quality is that of
        the best kind of measurement, the merit the mean of all.
        """
        best, every = 0.0, []
        if self.modes.region:
            colours = max(
                (
                    float(np.clip(sight.score / max(eye.score, 0.15), 0, 1.2))
                    for eye, sight in zip(self.eyes, sights, strict=True)
                    if sight is not None
                ),
                default=0.0,
            )
            edges = max(shares.get("edges", [0.0]))
            lines = max([edges, *shares.get("region", [])])
            best = min(colours, 0.3 + lines, 1.0)
            every.append(0.5 * colours + 0.5 * edges)
        for kind, enough in (("points", 0.4), ("depth", 0.6)):
            share = max(shares.get(kind, [0.0]))
            if kind in shares:
                every.append(share)
            best = max(best, min(1.0, share / enough))
        return best, float(np.mean(every)) if every else 0.0

    def coarse(
        self, frame: Frame, pose: Array, scales: tuple[int, ...] = (6, 4, 2, 1)
    ) -> Array | None:
        """The pose moved to where outline and depth find the object, from afar; None unseen."""
        terms: list[Term | None] = []
        for eye, camera in zip(self.eyes, frame.cameras, strict=True):
            sight = look(self.model, camera, pose, eye, self.modes, rough=True)
            if sight is not None and sight.visible > self.settings.least_visible:
                terms.append(sight.region(scales))
                terms.append(sight.depth(pose) if self.modes.depth else None)
        if not present(terms):
            return None
        return solve_pose(pose, self.knowledge + present(terms), len(scales) + 1).pose

    def plausible(self, before: Array, after: Array, duration: float) -> bool:
        """Whether an object can have gone from one pose to the other in `duration` s."""
        s, hull = self.settings, self.model.shape.hull
        middle = 0.5 * (hull.min(0) + hull.max(0))
        way = (after[:3, :3] - before[:3, :3]) @ middle + after[:3, 3] - before[:3, 3]
        turn = np.linalg.norm(rotation_log(after[:3, :3] @ before[:3, :3].T))
        return bool(
            np.linalg.norm(way) < s.fastest * duration + 0.1 * self.model.shape.diameter
            and turn < s.fastest_turn * duration + 0.3
        )

    def trusted(self, attempt: Attempt, again: bool = False) -> bool:
        """Whether a pose is measured at all; `again`: after the object was out of sight."""
        s = self.settings
        return (
            attempt.used >= s.minimum_inliers
            and attempt.quality > (s.good_quality if again else s.least_quality)
            and attempt.visible > (2 * s.least_visible if again else s.least_visible)
        )

    def sure(self, attempt: Attempt, covariance: Array) -> bool:
        """Whether a pose can be relied on."""
        sigma = np.sqrt(np.linalg.eigvalsh(covariance[:3, :3])[-1])
        return bool(
            attempt.used >= 2 * self.settings.minimum_inliers
            and attempt.quality > self.settings.good_quality
            and sigma < self.settings.largest_sigma
        )

    def _shift(self, frame: Frame, first: Array, second: Array) -> float:
        """Largest move of the object's hull between two poses, px, in any camera."""
        hull = self.model.shape.hull[:: max(1, len(self.model.shape.hull) // 32)]
        return max(
            float(
                np.abs(project(c.camera, first, hull)[0] - project(c.camera, second, hull)[0]).max()
            )
            for c in frame.cameras
        )
