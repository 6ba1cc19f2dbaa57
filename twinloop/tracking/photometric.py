"""The twin's picture against the live image, pixel by pixel: the last parts of a pixel.

Inverse compositional alignment (Baker and Matthews 2004) through the mesh: the picture rendered at
a pose stays, the live image is carried to it. Both are compared without their local mean and
contrast, so that exposure, shading and shutter do not count; the Jacobian is that of the normalised
picture, which takes out what a change of local gain and offset could explain as well. Mixed pixels
(outline, depth steps, surfaces seen at a slant) and what another body may hide do not take part.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from twinloop.tracking.appearance import Reference, View, carry
from twinloop.tracking.model import ObjectModel
from twinloop.tracking.sight import Sight
from twinloop.tracking.solver import System, WorldCamera, point_system, project, tukey

Array = NDArray[np.float64]
Floats = NDArray[np.float32]
Image = NDArray[np.uint8]
Bool = NDArray[np.bool_]

BOX = 11
"""Pixels across the patch whose mean and contrast are taken out."""
FLAT = 0.15
"""Share of the object's contrast under which a patch is noise rather than texture."""
SMOOTH = 1.0
"""Standard deviation, px, of the blur that both images get: against noise and interpolation."""
RIM = 3
"""Pixels from outline, depth step and hidden parts that are left out."""
SLANT = 4.0
"""Tangent of the angle to the line of sight from which a surface shows mixed pixels."""
BLURS = (0.5, 0.7, 0.9, 1.2, 1.6, 2.0)
"""Further blurs, px, of the sharper image."""
NEAR = 1.0
"""Pixels of the outline between two poses of which one picture serves."""
RIM_KERNEL = np.ones((2 * RIM + 1, 2 * RIM + 1), np.uint8)
LEAST = 300
"""Pixels with which a comparison means something."""
MOST = 3000
"""Pixels that are compared at most."""
STEPS = 32
"""`cv2.remap` knows positions to 1 / STEPS px."""


@dataclass(frozen=True)
class Picture:
    """The object as the twin shows it under one pose.

    grey: (h, w) float32; points: (h, w, 3) float32 m, object frame; inner: (h, w) bool, pixels
    that show one surface alone. Pixels are those of the live image from `corner` (x, y) on.
    """

    grey: Floats
    points: Floats
    inner: Bool
    corner: tuple[int, int]


def inner_pixels(depth: Floats, solid: Bool, focal: float) -> Bool:
    """Pixels (h, w) of one surface: no step or slant of `depth` (h, w) m and no outline nearby."""
    kernel = np.ones((3, 3), np.uint8)
    spread = cv2.dilate(depth, kernel) - cv2.erode(depth, kernel)
    steep = spread > 2 * SLANT * np.maximum(depth, 1e-6) / focal
    good = (solid & ~steep).astype(np.uint8)
    return np.asarray(cv2.erode(good, RIM_KERNEL, borderValue=0) > 0)


def carried_picture(
    reference: Reference, view: View, camera: WorldCamera, pose: Array, tolerance: float
) -> Picture:
    """The picture that a view of a nearby pose gives through the mesh; `view` is at `pose`."""
    grey, seen = carry(reference, view.points, view.mask, tolerance)
    T = (camera.T_camera_world @ pose).astype(np.float32)
    depth = np.where(view.mask, view.points @ T[2, :3] + T[2, 3], np.float32(0))
    inner = inner_pixels(np.asarray(depth, np.float32), seen, float(camera.intrinsics[0]))
    x, y = view.window[:2]
    return Picture(grey.astype(np.float32), view.points, inner, (x, y))


def blur(image: Floats, sigma: float) -> Floats:
    """Gaussian blur; none for sigma 0."""
    return image if sigma <= 0 else np.asarray(cv2.GaussianBlur(image, (0, 0), sigma), np.float32)


def box(image: Floats) -> Floats:
    """Mean over the patch."""
    return np.asarray(cv2.blur(image, (BOX, BOX), borderType=cv2.BORDER_CONSTANT), np.float32)


@dataclass(frozen=True)
class Patches:
    """Means over patches of the pixels that count.

    inner: (h, w) float32, 1 where a pixel counts; share: (h, w) float32, of each patch that does.
    """

    inner: Floats
    share: Floats

    @staticmethod
    def of(inner: Bool) -> Patches:
        """Patches around the pixels (h, w)."""
        f = inner.astype(np.float32)
        return Patches(f, np.maximum(box(f), np.float32(0.5 / BOX**2)))

    def mean(self, image: Floats) -> Floats:
        """(h, w) mean around every pixel."""
        return np.asarray(box(image * self.inner) / self.share, np.float32)

    def normalised(self, image: Floats) -> Floats:
        """The image (h, w) without local mean and contrast."""
        on = self.inner > 0
        middle = float(image[on].mean())
        spread = max(float(image[on].std()), 1.0)
        # In units of its own contrast, so that what is flat is told alike at any exposure.
        image = (image - np.float32(middle)) / np.float32(spread)
        flat = image - self.mean(image)
        off = self.mean(flat)
        variance = np.maximum(self.mean(flat * flat) - off * off, 0)
        return np.asarray(flat / np.sqrt(variance + np.float32(FLAT**2)), np.float32)


def sharpness(image: Floats, patches: Patches) -> float:
    """Share of the contrast that is finer than two pixels or so."""
    on = patches.inner > 0
    fine = image - blur(image, SMOOTH)
    coarse = image - patches.mean(image)
    return float(np.sqrt((fine[on] ** 2).mean() / max(float((coarse[on] ** 2).mean()), 1e-6)))


def matching_blurs(first: Floats, second: Floats, patches: Patches) -> tuple[float, float]:
    """Blurs (px) of two images (h, w) after which both are as sharp as each other.

    It compares their spectra and so does not care whether they are aligned.
    """
    a, b = sharpness(first, patches), sharpness(second, patches)
    sharper, goal = (first, b) if a > b else (second, a)
    extra, last = 0.0, max(a, b)
    for sigma in BLURS:
        now = sharpness(blur(sharper, sigma), patches)
        if abs(now - goal) > abs(last - goal):
            break
        extra, last = sigma, now
    return (extra, 0.0) if a > b else (0.0, extra)


def sample(image: Floats, x: Array, y: Array) -> tuple[Array, Array, Array]:
    """Bilinear values (n,) of an image at positions (n,), and how far beyond them x, y are, px."""
    qx, qy = np.rint(x * STEPS) / STEPS, np.rint(y * STEPS) / STEPS
    out = cv2.remap(
        image,
        qx[:, None].astype(np.float32),
        qy[:, None].astype(np.float32),
        cv2.INTER_LINEAR,
        borderMode=cv2.BORDER_REPLICATE,
    )
    return out.ravel().astype(np.float64), x - qx, y - qy


@dataclass(frozen=True)
class PhotometricTerm:
    """One camera's live image against the twin's picture.

    live: (h, w) float32, normalised, of the image from pixel `corner` on; points: (n, 3) m, object
    frame; target: (n,) the picture's normalised values there; slope: (n, 2) their gradient, 1/px;
    moves: (n, 2, 6) Jacobian of the projected points by the pose. Pictures of the twin are off as a
    whole: all pixels together count as `correlated` points that are known to `sigma` px.
    """

    camera: WorldCamera
    live: Floats
    corner: tuple[int, int]
    points: Array
    target: Array
    slope: Array
    moves: Array
    sigma: float = 0.8
    correlated: float = 25.0

    def residual(self, pose: Array) -> Array:
        """(n,) picture minus live image with the object under `pose`."""
        at, _ = project(self.camera, pose, self.points)
        x, y = at[:, 0] - self.corner[0], at[:, 1] - self.corner[1]
        values, dx, dy = sample(self.live, x, y)
        return self.target - values - self.slope[:, 0] * dx - self.slope[:, 1] * dy

    @property
    def jacobian(self) -> Array:
        """(n, 6) change of the live image's values with the pose; minus that of `residual`."""
        return np.asarray(np.einsum("nk,nki->ni", self.slope, self.moves))

    def system(self, pose: Array, turn: int) -> System | None:
        """Normal equations at `pose`, which is right to a pixel."""
        residual = self.residual(pose)
        spread = max(1.4826 * float(np.median(np.abs(residual))), 0.02)
        weights = tukey(np.abs(residual), 4 * spread)
        kept = max(float(weights.sum()), 1e-9)
        # Gradients share out what is known among the directions, as many points would.
        strength = float((weights[:, None] * self.slope**2).sum()) / (2 * kept)
        share = weights * (self.correlated / self.sigma**2 / (kept * max(strength, 1e-9)))
        jacobian = self.jacobian
        return System(
            (jacobian * share[:, None]).T @ jacobian,
            jacobian.T @ (share * residual),
            used=int((weights > 0.1).sum()),
            offered=len(weights),
        )

    def cost(self, pose: Array) -> float:
        """Mean of the residuals' absolute values, which no weight changes."""
        return float(np.abs(self.residual(pose)).mean())


def picture_term(
    live: Image,
    camera: WorldCamera,
    pose: Array,
    picture: Picture,
    *,
    sigma: float = 0.8,
    correlated: float = 25.0,
    known: Bool | None = None,
    match: bool = True,
) -> PhotometricTerm | None:
    """The term of a picture made at `pose`; None when too few pixels can be compared.

    live: (h, w) u1 full image; known: as the picture's pixels, false where another body may be.
    """
    x0, y0 = picture.corner
    h, w = picture.grey.shape
    crop = live[y0 : y0 + h, x0 : x0 + w].astype(np.float32)
    inner = picture.inner
    if known is not None:
        inner = inner & (cv2.erode(known.astype(np.uint8), RIM_KERNEL) > 0)
    if int(inner.sum()) < LEAST:
        return None
    patches = Patches.of(inner)
    image, crop = blur(picture.grey, SMOOTH), blur(crop, SMOOTH)
    if match:
        mine, theirs = matching_blurs(image, crop, patches)
        image, crop = blur(image, mine), blur(crop, theirs)
    target, normal = patches.normalised(image), patches.normalised(crop)
    dx = cv2.Sobel(target, cv2.CV_32F, 1, 0, ksize=3, scale=1 / 8)
    dy = cv2.Sobel(target, cv2.CV_32F, 0, 1, ksize=3, scale=1 / 8)
    # Blurred neighbours say the same; of the rest the strongest say nearly all.
    where = np.flatnonzero(inner[::2, ::2])
    rows, columns = np.divmod(where, (w + 1) // 2)
    flat = 2 * rows * w + 2 * columns
    slope = np.stack([dx.ravel()[flat], dy.ravel()[flat]], 1).astype(np.float64)
    if len(flat) > MOST:
        keep = np.sort(np.argsort(-(slope**2).sum(1), kind="stable")[:MOST])
        flat, slope = flat[keep], slope[keep]
    points = picture.points.reshape(-1, 3)[flat].astype(np.float64)
    _, moves = point_system(camera, pose, points, np.zeros((len(points), 2)))
    return PhotometricTerm(
        camera,
        normal,
        (x0, y0),
        points,
        target.ravel()[flat].astype(np.float64),
        slope,
        moves,
        sigma,
        correlated,
    )


def photometric_term(
    model: ObjectModel, sight: Sight, pose: Array, *, sigma: float, correlated: float
) -> PhotometricTerm | None:
    """What the twin's picture says of a pose that is right to a pixel; None where too little.

    The sight's own view of the mesh serves while it shows the object within a pixel of `pose`.
    """
    if model.look is None:
        return None
    camera, view, known, at = sight.frame.camera, sight.view, sight.known, sight.pose
    hull = model.shape.hull
    moved = project(camera, at, hull)[0] - project(camera, pose, hull)[0]
    if np.abs(moved).max() > NEAR:
        whole = np.ones((camera.height, camera.width), np.bool_)
        x0, y0, x1, y1 = view.window
        whole[y0:y1, x0:x1] = known
        fresh = model.shape.view(camera, pose, margin=BOX)
        if fresh is None:
            return None
        x0, y0, x1, y1 = fresh.window
        view, known, at = fresh, whole[y0:y1, x0:x1], pose
    reference = model.look.near(camera, at)
    if reference is None:
        return None
    picture = carried_picture(reference, view, camera, at, 0.03 * model.shape.diameter)
    live = sight.frame.grey
    return picture_term(live, camera, at, picture, known=known, sigma=sigma, correlated=correlated)
