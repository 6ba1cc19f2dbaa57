"""OpenCV's camera model with its derivatives, and undistortion to a pinhole.

With x, y = X/Z, Y/Z, r2 = x2 + y2:  x' = x (1 + k1 r2 + k2 r4 + k3 r6) + 2 p1 x y + p2 (r2 + 2 x2),
y' = y (...) + p1 (r2 + 2 y2) + 2 p2 x y,  u = fx x' + cx,  v = fy y' + cy (OpenCV documentation,
"Camera calibration and 3D reconstruction").  The centre of the first pixel is (0, 0).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import cv2
import numpy as np
from numpy.typing import NDArray

from twinloop.geometry.camera import matrix as camera_matrix

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Camera:
    """A lens."""

    intrinsics: Array
    """fx, fy, cx, cy (4,), px."""
    distortion: Array
    """k1, k2, p1, p2, k3 (5,)."""
    width: int
    """Columns, px."""
    height: int
    """Rows, px."""

    @property
    def vector(self) -> Array:
        """All nine numbers, intrinsics first."""
        return np.concatenate([self.intrinsics, self.distortion])

    @property
    def matrix(self) -> Array:
        """Camera matrix (3, 3), px."""
        return camera_matrix(self.intrinsics)

    def moved(self, step: Array) -> Camera:
        """The lens with ``step`` (9,) added."""
        vector = self.vector + step
        return Camera(vector[:4], vector[4:], self.width, self.height)

    def scaled(self, width: int, height: int) -> Camera:
        """The lens of the image resized to ``width`` x ``height`` px (areas scale, not centres)."""
        sx, sy = width / self.width, height / self.height
        fx, fy, cx, cy = self.intrinsics
        scaled = np.array([fx * sx, fy * sy, (cx + 0.5) * sx - 0.5, (cy + 0.5) * sy - 0.5])
        return Camera(scaled, self.distortion, width, height)

    def project(self, points: Array) -> Array:
        """Project points (n, 3) in the camera frame, m, to pixels (n, 2)."""
        return project_with_jacobian(self, points)[0]

    def normalize(self, pixels: Array) -> Array:
        """Undistorted x, y = X/Z, Y/Z (n, 2) of pixels (n, 2)."""
        points = np.asarray(pixels, dtype=np.float64).reshape(-1, 1, 2)
        criteria = (cv2.TERM_CRITERIA_COUNT | cv2.TERM_CRITERIA_EPS, 40, 1e-10)
        found = cv2.undistortPoints(
            points, self.matrix, self.distortion, None, None, None, criteria
        )
        return np.asarray(found, dtype=np.float64).reshape(-1, 2)


def project_with_jacobian(camera: Camera, points: Array) -> tuple[Array, Array, Array]:
    """Project points and differentiate.

    Args:
        camera: The lens.
        points: Points (n, 3) in the camera frame, m, z > 0.

    Returns:
        Pixels (n, 2), their derivatives by the points (n, 2, 3) in px/m, and by fx, fy, cx, cy, k1,
        k2, p1, p2, k3 (n, 2, 9).
    """
    fx, fy, cx, cy = camera.intrinsics
    k1, k2, p1, p2, k3 = camera.distortion
    inverse_z = 1.0 / points[:, 2]
    x, y = points[:, 0] * inverse_z, points[:, 1] * inverse_z
    r2 = x * x + y * y
    radial = 1 + r2 * (k1 + r2 * (k2 + r2 * k3))
    slope = k1 + r2 * (2 * k2 + 3 * k3 * r2)
    xd = x * radial + 2 * p1 * x * y + p2 * (r2 + 2 * x * x)
    yd = y * radial + p1 * (r2 + 2 * y * y) + 2 * p2 * x * y
    pixels = np.stack([fx * xd + cx, fy * yd + cy], axis=1)

    mixed = 2 * x * y * slope + 2 * p1 * x + 2 * p2 * y
    xx = radial + 2 * x * x * slope + 2 * p1 * y + 6 * p2 * x
    yy = radial + 2 * y * y * slope + 6 * p1 * y + 2 * p2 * x
    by_point = np.empty((len(x), 2, 3))
    by_point[:, 0, 0], by_point[:, 0, 1] = fx * xx * inverse_z, fx * mixed * inverse_z
    by_point[:, 1, 0], by_point[:, 1, 1] = fy * mixed * inverse_z, fy * yy * inverse_z
    by_point[:, 0, 2] = -(by_point[:, 0, 0] * x + by_point[:, 0, 1] * y)
    by_point[:, 1, 2] = -(by_point[:, 1, 0] * x + by_point[:, 1, 1] * y)

    by_lens = np.zeros((len(x), 2, 9))
    by_lens[:, 0, 0], by_lens[:, 1, 1] = xd, yd
    by_lens[:, 0, 2] = by_lens[:, 1, 3] = 1.0
    r4 = r2 * r2
    for column, (u, v) in enumerate(
        [
            (x * r2, y * r2),
            (x * r4, y * r4),
            (2 * x * y, r2 + 2 * y * y),
            (r2 + 2 * x * x, 2 * x * y),
            (x * r2 * r4, y * r2 * r4),
        ],
        start=4,
    ):
        by_lens[:, 0, column], by_lens[:, 1, column] = fx * u, fy * v
    return pixels, by_point, by_lens


@dataclass(frozen=True)
class Undistorter:
    """Turns images of a lens into images of a pinhole camera of chosen size."""

    source: Camera
    """The lens, at its full resolution."""
    width: int
    """Columns of the pinhole image, px."""
    height: int
    """Rows of the pinhole image, px."""
    intrinsics: Array
    """fx, fy, cx, cy (4,) of the pinhole image, px."""

    @cached_property
    def _maps(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        scaled = self.source.scaled(self.width, self.height)
        v, u = np.indices((self.height, self.width), dtype=np.float64)
        fx, fy, cx, cy = self.intrinsics
        rays = np.stack([(u - cx) / fx, (v - cy) / fy, np.ones_like(u)], axis=-1).reshape(-1, 3)
        pixels = scaled.project(rays).astype(np.float32).reshape(self.height, self.width, 2)
        return np.ascontiguousarray(pixels[..., 0]), np.ascontiguousarray(pixels[..., 1])

    def image(
        self, image: NDArray[np.uint8], window: tuple[int, int, int, int] | None = None
    ) -> NDArray[np.uint8]:
        """Undistort an image (source height, source width[, 3]).

        Args:
            image: As the lens saw it.
            window: First column, first row, columns and rows of the part to make; None for all.
        """
        if (image.shape[1], image.shape[0]) != (self.width, self.height):
            # Average over areas first: remapping alone would alias when it shrinks.
            image = np.asarray(
                cv2.resize(image, (self.width, self.height), interpolation=cv2.INTER_AREA), np.uint8
            )
        u, v = self._maps
        if window is not None:
            column, row, columns, rows = window
            u, v = (m[row : row + rows, column : column + columns] for m in (u, v))
        return np.asarray(
            cv2.remap(image, u, v, cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE), np.uint8
        )


def undistorter(camera: Camera, scale: float) -> Undistorter:
    """Choose a pinhole camera without empty borders.

    Args:
        camera: The lens.
        scale: Size of the pinhole image relative to the source, at most 1.

    The focal length is enlarged until every pixel of the pinhole image lies inside the source.
    """
    width = max(8, round(camera.width * scale))
    height = max(8, round(camera.height * scale))
    across, down = np.arange(width), np.arange(height)
    rim = [
        np.stack([np.zeros(height), down], axis=1),
        np.stack([np.full(height, width - 1), down], axis=1),
        np.stack([across, np.zeros(width)], axis=1),
        np.stack([across, np.full(width, height - 1)], axis=1),
    ]
    lens = camera.scaled(width, height)
    left, right, top, bottom = (lens.normalize(side) for side in rim)
    # The largest rectangle inside the undistorted outline.
    low = np.array([left[:, 0].max(), top[:, 1].max()])
    high = np.array([right[:, 0].min(), bottom[:, 1].min()])
    size = np.array([width - 1, height - 1])
    focal = float((size / (high - low)).max())
    centre = size / 2 - focal * (low + high) / 2
    return Undistorter(camera, width, height, np.array([focal, focal, centre[0], centre[1]]))
