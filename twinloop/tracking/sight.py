"""What one camera sees of the object about a pose, and what hides it.

All is measured at one pose, in one window; the terms it gives are solved together with those of
the other cameras and with what is known of table and motion.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import cv2
import numpy as np
from numpy.typing import NDArray

from twinloop.tracking.appearance import Reference, View
from twinloop.tracking.colours import ColourModel, bins
from twinloop.tracking.contour import Contour, contour
from twinloop.tracking.depth import DepthTerm, depth_term, nearer_bodies
from twinloop.tracking.edge import EdgeTerm
from twinloop.tracking.frame import CameraFrame
from twinloop.tracking.measure import NOTHING, Measurement, measure_view
from twinloop.tracking.model import ObjectModel
from twinloop.tracking.modes import Modes
from twinloop.tracking.region import OddsImage, RegionTerm, silhouette_score
from twinloop.tracking.solver import Correspondences, PointTerm, Term

Array = NDArray[np.float64]
Image = NDArray[np.uint8]
Bool = NDArray[np.bool_]

RING = 8
"""Pixels around a silhouette in which a glance looks for what is not the object."""
MARGIN = 40
"""Pixels around the object that coarse lines reach over."""
GLANCE = 28
"""Rays across the object that do to turn a pose down."""
LINES, FEW = 200, 120
"""Lines across the outline that measure the object, and that do to find it."""
CORE = 5
"""Pixels from the outline at which an image belongs to the object whatever the pose's error."""
SUFFICIENT = 24
"""Points against the twin's picture with which live views are not needed."""
BLOB = 0.004
"""Share of the object below which pixels of foreign colour are noise or a shadow's edge."""


@dataclass
class Eye:
    """What the tracker keeps of one camera from frame to frame.

    colours: of object and background; score: the silhouette's score when all was well; keyframes:
    live views of the object; seen, image, camera: the last frame's points and where they were.
    """

    colours: ColourModel | None = None
    score: float = 0.0
    keyframes: list[Reference] = field(default_factory=list)
    seen: Correspondences = field(default_factory=lambda: Correspondences.join([]))
    last: CameraFrame | None = None


@dataclass(frozen=True)
class Sight:
    """One camera's measurements about a pose.

    pose: (4, 4) T_world_object of the view; known: (h, w) bool of its window; visible: share of
    the object that nothing hides; score: silhouette against colours, in [-1, 1].
    """

    frame: CameraFrame
    pose: Array
    view: View
    known: Bool
    visible: float
    score: float
    contour: Contour | None
    odds: OddsImage | None

    def region(self, scales: tuple[int, ...]) -> RegionTerm | None:
        """Lines of colour statistics across the outline."""
        if self.contour is None or self.odds is None:
            return None
        # Wide lines only bring the pose near.
        lines = self.contour if scales[0] == 1 else self.contour.thinned(FEW)
        return RegionTerm(self.frame.camera, lines, self.odds, scales)

    def edges(self, correlated: float) -> EdgeTerm | None:
        """Lines measured to parts of a pixel, of which `correlated` carry all the information."""
        if self.contour is None:
            return None
        x0, y0, x1, y1 = self.view.window
        rgb = np.ascontiguousarray(self.frame.rgb[y0:y1, x0:x1])
        known = self.known.astype(np.float32)
        return EdgeTerm(
            self.frame.camera,
            self.contour,
            self.view.window,
            rgb,
            known,
            correlated=correlated,
        )

    def depth(self, pose: Array) -> DepthTerm | None:
        """The depth image against the surface."""
        if self.frame.depth is None:
            return None
        x0, y0, x1, y1 = self.view.window
        depth = np.zeros_like(self.frame.depth)
        depth[y0:y1, x0:x1] = np.where(self.known, self.frame.depth[y0:y1, x0:x1], 0)
        return depth_term(self.frame.camera, self.view, pose, depth)


@dataclass(frozen=True)
class Glance:
    """What a few pixels say of a pose: the score of its silhouette and the share to be seen."""

    score: float
    visible: float


def glance(model: ObjectModel, frame: CameraFrame, pose: Array, eye: Eye) -> Glance | None:
    """Score and visible share from every few pixels, at a tenth of the time of `look`.

    None out of view, or when the colours are not known.
    """
    view = model.shape.view(frame.camera, pose, margin=RING, rays=GLANCE)
    if view is None or eye.colours is None:
        return None
    x0, y0, x1, y1 = view.window
    mask, part = view.hits, (slice(y0, y1, view.step), slice(x0, x1, view.step))
    odds = eye.colours.table[bins(frame.rgb[part])]
    known = np.ones(mask.shape, np.bool_) if frame.ignore is None else ~frame.ignore[part]
    cells = 2 * max(1, round(RING / view.step)) + 1
    ring = (cv2.dilate(mask.astype(np.uint8), np.ones((cells, cells), np.uint8)) > 0) & ~mask
    ring, core = ring & known, mask & known
    if not core.any() or not ring.any():
        return Glance(0.0, 0.0)
    like = 1 / (1 + np.exp(-2 * odds))
    seen = float((core & (odds > -1.0)).sum() / mask.sum())
    return Glance(float(like[core].mean() - like[ring].mean()), seen)


def look(
    model: ObjectModel,
    frame: CameraFrame,
    pose: Array,
    eye: Eye,
    modes: Modes,
    *,
    rough: bool = False,
) -> Sight | None:
    """The object about `pose`; None when it is out of the image.

    `rough` has fewer lines and serves to come near.
    """
    view = model.shape.view(frame.camera, pose, margin=MARGIN)
    if view is None or not view.hits.any():
        return None
    x0, y0, x1, y1 = view.window
    known = np.ones(view.mask.shape, np.bool_)
    if frame.ignore is not None:
        known &= ~frame.ignore[y0:y1, x0:x1]
    if frame.depth is not None and modes.depth:
        margin = max(0.01, 0.1 * model.shape.diameter)
        known &= ~nearer_bodies(view, frame.camera, pose, frame.depth, margin)
    odds, score = None, 0.0
    if eye.colours is not None:
        odds = OddsImage.of(frame.rgb, view.window, eye.colours, known)
        if modes.region:
            known &= ~foreign(odds, view.mask)
            odds = OddsImage(odds.window, odds.odds * known, known.astype(np.float32))
        score = silhouette_score(odds, view.mask, (x0, y0))
    size = max(int(view.mask.sum()), 1)
    visible = float((view.mask & known).sum() / size)
    outline = None
    if modes.region:
        renderer = model.shape.renderer
        outline = contour(
            renderer, frame.camera, pose, view.window, view.hits, view.step, FEW if rough else LINES
        )
    return Sight(frame, pose, view, known, visible, score, outline, odds)


def foreign(odds: OddsImage, mask: Bool) -> Bool:
    """Where something of other colours stands before the object, with a rim (h, w) bool.

    Only pixels well inside the silhouette count, for those at its rim may be a wrong pose; and only
    in a blob, for a single pixel may be noise.
    """
    kernel = np.ones((2 * CORE + 1, 2 * CORE + 1), np.uint8)
    core = cv2.erode(mask.astype(np.uint8), kernel, borderValue=0)
    bad = core & (odds.odds < -1.0) & (odds.known > 0)
    bad = cv2.morphologyEx(bad.astype(np.uint8), cv2.MORPH_OPEN, np.ones((3, 3), np.uint8))
    if bad.sum() < max(6, BLOB * float(mask.sum())):
        return np.zeros(mask.shape, np.bool_)
    return np.asarray(cv2.dilate(bad, np.ones((19, 19), np.uint8)) > 0)


def texture(
    model: ObjectModel,
    sight: Sight,
    pose: Array,
    eye: Eye,
    *,
    count: int,
    sigma_live: float,
    sigma_model: float,
    round_trip: float = 1.0,
) -> Measurement:
    """Flow from the object as live keyframes and the twin's pictures show it to the live image."""
    camera = sight.frame.camera
    near = None if model.look is None else model.look.near(camera, pose)

    def measure(references: list[Reference], sigma: float) -> Measurement:
        return measure_view(
            sight.frame.grey,
            camera,
            model.shape,
            pose,
            sight.view,
            references,
            sigma=sigma,
            count=count,
            round_trip=round_trip,
            known=sight.known,
        )

    first = NOTHING if near is None else measure([near], sigma_model)
    if len(first.seen.points) >= SUFFICIENT or not eye.keyframes:
        return first
    # A live view passes on the error of the pose that it was taken at: only where the twin has no
    # picture, or the light is so different that few points agree.
    second = measure(eye.keyframes, sigma_live)
    return Measurement(
        Correspondences.join([first.seen, second.seen]),
        first.offered + second.offered,
        max(first.score, second.score),
    )


def point_term(measured: Measurement, frame: CameraFrame, correlated: float) -> PointTerm | None:
    """The term of measured points, None when they are too few to mean anything."""
    if len(measured.seen.points) < 6:
        return None
    cutoffs = (20.0, 10.0, 5.0, 4.0)
    return PointTerm(frame.camera, measured.seen, cutoffs, correlated)


def present(terms: list[Term | None]) -> list[Term]:
    """The terms that are there."""
    return [t for t in terms if t is not None]


def colours_at(model: ObjectModel, frame: CameraFrame, pose: Array) -> ColourModel | None:
    """Colours inside and around the object at a pose, away from its outline; None out of view."""
    view = model.shape.view(frame.camera, pose, margin=MARGIN)
    if view is None:
        return None
    return view_colours(frame, view, np.ones(view.mask.shape, np.bool_))


def view_colours(frame: CameraFrame, view: View, known: Bool) -> ColourModel | None:
    """The same from a view; `known` (h, w) bool says which pixels nothing hides."""
    x0, y0, x1, y1 = view.window
    mask = view.mask.astype(np.uint8)
    core = (cv2.erode(mask, np.ones((5, 5), np.uint8), borderValue=0) > 0) & known
    around = (cv2.dilate(mask, np.ones((9, 9), np.uint8)) == 0) & known
    crop = frame.rgb[y0:y1, x0:x1]
    if core.sum() < 30 or around.sum() < 30:
        return None
    return ColourModel.split(crop, core, around)
