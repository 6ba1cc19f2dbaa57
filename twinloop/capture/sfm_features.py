"""SIFT features of pictures, and which pictures to match: the first half of structure from motion.

Pixels are ours, the centre of the first pixel is (0, 0); COLMAP's (0.5, 0.5) is converted where its
functions are called.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from twinloop.capture.projection import Camera
from twinloop.errors import InputError, MachineError
from twinloop.extras import require
from twinloop.progress import track
from twinloop.threads import worker_count

Array = NDArray[np.float64]
Image = NDArray[np.uint8]

SCOUTS = 160
"""Largest features of a picture that decide which other pictures it is matched with."""
ALIKE = 0.88
"""Least cosine of two descriptors that may show the same thing."""
LENGTH = 512.0
"""Norm of COLMAP's byte descriptors."""
THUMB = 160
"""Longer side of the thumbnails that show what moves, px."""
LEAST_PICTURES = 3
"""Fewest pictures of a model."""


class SfmSettings(BaseModel):
    """How structure from motion is done."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_side: int = Field(default=800, ge=160, le=8000)
    """Pictures are shrunk to this longer side before features are found, px."""
    features: int = Field(default=3000, ge=100, le=32768)
    """Most features of a picture."""
    overlap: int = Field(default=3, ge=1, le=50)
    """Following pictures that each is matched with when the pictures are in order."""
    similar: int = Field(default=10, ge=1, le=200)
    """Most similar-looking pictures that each is matched with."""
    min_registered: float = Field(default=0.8, gt=0.0, le=1.0)
    """Least share of the pictures that the model must hold."""
    seed: int = Field(default=0, ge=0)
    """Seed of everything random."""


FAST = SfmSettings(max_side=480, features=2000)
"""For a quick look."""


@dataclass(frozen=True)
class Features:
    """What was found in one picture."""

    keypoints: NDArray[np.float32]
    """Position, px of the shrunk picture, then scale and angle or affine shape, (m, 4 or 6)."""
    descriptors: NDArray[np.uint8]
    """SIFT descriptors (m, 128)."""
    colours: NDArray[np.uint8]
    """RGB at the positions (m, 3)."""
    thumb: Image
    """Small grey picture."""

    def only(self, keep: NDArray[np.bool_]) -> Features:
        """The features that ``keep`` (m,) marks."""
        return Features(
            self.keypoints[keep], self.descriptors[keep], self.colours[keep], self.thumb
        )


@dataclass(frozen=True)
class FeatureSet:
    """Features of all pictures, which share one lens."""

    pictures: tuple[Features, ...]
    """One per picture."""
    full: tuple[int, int]
    """Columns and rows of the pictures, px."""
    size: tuple[int, int]
    """Columns and rows of the shrunk pictures, in which the features are found, px."""

    @property
    def counts(self) -> NDArray[np.int64]:
        """Features per picture (n,)."""
        return np.array([len(p.keypoints) for p in self.pictures], dtype=np.int64)

    def to_full(self, pixels: Array) -> Array:
        """Pixels (n, 2) of the shrunk pictures as pixels of the full ones."""
        return np.asarray((pixels + 0.5) * np.divide(self.full, self.size) - 0.5, np.float64)

    def to_small(self, pixels: Array) -> Array:
        """Pixels (n, 2) of the full pictures as pixels of the shrunk ones."""
        return np.asarray((pixels + 0.5) * np.divide(self.size, self.full) - 0.5, np.float64)


def colmap() -> Any:
    """The package pycolmap."""
    return require("pycolmap", "sfm", "structure from motion")


@contextmanager
def quiet() -> Iterator[Any]:
    """Pycolmap, with only its fatal messages, which are errors of ours anyway."""
    pycolmap = colmap()
    before = pycolmap.logging.minloglevel
    pycolmap.logging.minloglevel = 3
    try:
        yield pycolmap
    finally:
        pycolmap.logging.minloglevel = before


@contextmanager
def workshop(where: str) -> Iterator[Path]:
    """Make a temporary folder for COLMAP's files, which goes whatever happens.

    Raises:
        MachineError: pycolmap or the disk failed.
    """
    try:
        with quiet(), tempfile.TemporaryDirectory(prefix="twinloop-sfm-") as folder:
            yield Path(folder)
    except (OSError, RuntimeError) as error:
        raise MachineError(
            f"{where}: structure from motion broke off ({error}). Its database needs room in "
            f"{tempfile.gettempdir()}: free some, or let TMPDIR name another folder."
        ) from error


def extract(
    images: Iterable[Image],
    masks: Sequence[Image | None] | None,
    settings: SfmSettings,
    where: str,
) -> FeatureSet:
    """Find features in pictures that are read one at a time.

    Args:
        images: RGB (height, width, 3) or grey (height, width), all of one size.
        masks: Per picture (height, width), 255 where features may lie; None for everywhere.
        settings: Size and number.
        where: Name of the capture, for messages.

    Raises:
        InputError: Fewer than three pictures, or pictures of different sizes.
    """
    pycolmap = colmap()
    options = pycolmap.FeatureExtractionOptions()
    # SIFT only: the learned types would fetch their weights from the network.
    options.type = pycolmap.FeatureExtractorType.SIFT
    options.num_threads, options.use_gpu = 1, False
    options.sift.max_num_features = settings.features
    with quiet():
        extractor = pycolmap.FeatureExtractor.create(options, pycolmap.Device.cpu)
    found: list[Features] = []
    full: tuple[int, int] | None = None
    size = (0, 0)
    for i, image in enumerate(track(images, "find features")):
        shape = (image.shape[1], image.shape[0])
        if full is None:
            shrink = min(1.0, settings.max_side / max(shape))
            full, size = shape, (round(shape[0] * shrink), round(shape[1] * shrink))
        if shape != full:
            raise InputError(
                f"{where}: picture {i} has {shape[0]} x {shape[1]} px, the first one {full[0]} x "
                f"{full[1]}. One lens is fitted to all, so all have to come from one camera at "
                "one size; take the others out, or turn portrait ones."
            )
        mask = None if masks is None else masks[i]
        found.append(_features(pycolmap, extractor, image, mask, size))
    if full is None or len(found) < LEAST_PICTURES:
        raise InputError(
            f"{where}: {len(found)} pictures, at least {LEAST_PICTURES} are needed for a model "
            "(20 to 100 from all sides are good)."
        )
    return FeatureSet(tuple(found), full, size)


def _features(
    pycolmap: Any, extractor: Any, image: Image, mask: Image | None, size: tuple[int, int]
) -> Features:
    small = np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), np.uint8)
    grey = small if small.ndim == 2 else np.asarray(cv2.cvtColor(small, cv2.COLOR_RGB2GRAY))
    keypoints, descriptors = extractor.extract(
        pycolmap.Bitmap.from_array(np.ascontiguousarray(grey))
    )
    if len(keypoints):
        points = np.array(pycolmap.keypoints_to_matrix(keypoints), np.float32)
        data = np.asarray(descriptors.data, np.uint8)
    else:
        points, data = np.zeros((0, 4), np.float32), np.zeros((0, 128), np.uint8)
    points[:, :2] -= 0.5
    column, row = np.clip(np.rint(points[:, :2]).astype(int), 0, np.array(size) - 1).T
    colour = small[row, column]
    colours = np.repeat(colour[:, None], 3, axis=1) if colour.ndim == 1 else colour
    shrink = THUMB / max(size)
    thumb = cv2.resize(
        grey,
        (max(8, round(size[0] * shrink)), max(8, round(size[1] * shrink))),
        interpolation=cv2.INTER_AREA,
    )
    features = Features(points, data, colours, np.asarray(thumb, np.uint8))
    if mask is None:
        return features
    allowed = cv2.resize(mask, size, interpolation=cv2.INTER_NEAREST)
    return features.only(allowed[row, column] > 127)


def size_of_features(keypoints: NDArray[np.float32]) -> Array:
    """Scale (m,) of keypoints (m, 4 or 6), px."""
    if keypoints.shape[1] == 4:
        return keypoints[:, 2].astype(np.float64)
    return np.asarray(np.hypot(keypoints[:, 2], keypoints[:, 4]), np.float64)


def likeness(features: FeatureSet) -> NDArray[np.int64]:
    """Number of large features that pairs of pictures have in common (n, n).

    The idea of matching few large features first is Wu's preemptive matching ("Towards linear-time
    incremental structure from motion", 3DV 2013).  Products of bytes are summed in float32, where
    they are whole and exact, so that the outcome depends on no order of summation.
    """
    n = len(features.pictures)
    scouts = np.zeros((n, SCOUTS, 128), np.float32)
    for i, picture in enumerate(features.pictures):
        order = np.argsort(-size_of_features(picture.keypoints), kind="stable")[:SCOUTS]
        scouts[i, : len(order)] = picture.descriptors[order]
    common = np.zeros((n, n), np.int64)
    least = ALIKE * LENGTH**2
    index = np.arange(SCOUTS)[:, None]
    for a in range(n - 1):
        others = scouts[a + 1 :]
        products = (scouts[a] @ others.reshape(-1, 128).T).reshape(SCOUTS, -1, SCOUTS)
        forth = products.argmax(axis=2)
        back = products.argmax(axis=0)
        best = np.take_along_axis(products, forth[:, :, None], axis=2)[:, :, 0]
        mutual = index == np.take_along_axis(back, forth.T, axis=1).T
        common[a, a + 1 :] = (mutual & (best >= least)).sum(axis=0)
    return common + common.T


def choose_pairs(
    common: NDArray[np.int64], settings: SfmSettings, sequential: bool, least: int = 5
) -> list[tuple[int, int]]:
    """Pairs of pictures that are worth matching in full, sorted.

    Args:
        common: See :func:`likeness`, (n, n).
        settings: How many.
        sequential: Whether the pictures are in order, so that neighbours surely overlap.
        least: Fewest large features in common.
    """
    n = len(common)
    if n <= 12:
        return [(a, b) for a in range(n) for b in range(a + 1, n)]
    pairs = set()
    for a in range(n):
        for b in np.argsort(-common[a], kind="stable")[: settings.similar]:
            if common[a, b] >= least:
                pairs.add((min(a, int(b)), max(a, int(b))))
        if sequential:
            pairs.update((a, b) for b in range(a + 1, min(n, a + 1 + settings.overlap)))
    return sorted(pairs)


def match(first: Features, second: Features, ratio: float = 0.8) -> NDArray[np.int64]:
    """Features that are each other's nearest and clearly nearer than the next, (m, 2) indices."""
    if len(first.descriptors) < 2 or len(second.descriptors) < 2:
        return np.zeros((0, 2), np.int64)
    products = first.descriptors.astype(np.float32) @ second.descriptors.astype(np.float32).T
    forth, back = products.argmax(axis=1), products.argmax(axis=0)
    top = np.partition(products, -2, axis=1)[:, -2:] / LENGTH**2
    near, next_ = (np.arccos(np.clip(top[:, k], -1, 1)) for k in (1, 0))
    index = np.arange(len(forth))
    good = (back[forth] == index) & (near < ratio * next_) & (near < 0.7)
    return np.stack([index[good], forth[good]], axis=1)


def name(picture: int) -> str:
    """Name of a picture in the database."""
    return f"{picture:06d}"


def write_database(
    path: Path, features: FeatureSet, camera: Any, known: Camera | None
) -> dict[int, int]:
    """Write features to a COLMAP database.

    Args:
        path: The database.
        features: All features.
        camera: The lens as pycolmap's camera.
        known: The lens in full size when it is known: distortion is then taken out here, and
            ``camera`` is a pinhole.

    Returns:
        Picture by its id in the database.
    """
    pycolmap = colmap()
    pictures = {}
    with pycolmap.Database.open(path) as database:
        camera_id = database.write_camera(camera)
        for i, found in enumerate(features.pictures):
            points = found.keypoints.copy()
            if known is not None and len(points):
                points[:, :2] = straightened(points[:, :2].astype(np.float64), features, known)
            points[:, :2] += 0.5
            image_id = database.write_image(pycolmap.Image(name=name(i), camera_id=camera_id))
            pictures[int(image_id)] = i
            database.write_keypoints(image_id, points)
            database.write_descriptors(
                image_id,
                pycolmap.FeatureDescriptors(pycolmap.FeatureExtractorType.SIFT, found.descriptors),
            )
    return pictures


def straightened(pixels: Array, features: FeatureSet, known: Camera) -> Array:
    """Pixels (n, 2) of the shrunk pictures without the known lens's distortion."""
    lens = known.scaled(*features.size)
    return lens.normalize(pixels) * lens.intrinsics[:2] + lens.intrinsics[2:]


def match_pairs(path: Path, pairs: list[tuple[int, int]], settings: SfmSettings) -> None:
    """Match the pairs in the database and verify them by two-view geometry.

    Pairs are independent of one another and each has its own seeded generator, so that the number
    of threads does not show in the result.
    """
    pycolmap = colmap()
    matching = pycolmap.FeatureMatchingOptions()
    matching.type = pycolmap.FeatureMatcherType.SIFT_BRUTEFORCE
    matching.num_threads, matching.use_gpu = worker_count(), False
    verification = pycolmap.TwoViewGeometryOptions()
    verification.ransac.random_seed = settings.seed
    listed = path.with_suffix(".pairs")
    block = 64
    for start in track(range(0, len(pairs), block), "match pictures"):
        lines = (f"{name(a)} {name(b)}\n" for a, b in pairs[start : start + block])
        listed.write_text("".join(lines))
        pairing = pycolmap.ImportedPairingOptions()
        pairing.match_list_path = listed
        pycolmap.match_image_pairs(path, matching, pairing, verification, pycolmap.Device.cpu)
