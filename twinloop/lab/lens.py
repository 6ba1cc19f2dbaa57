"""Cameras of the lab: pinhole with OpenCV's lens distortion, and what a sensor adds.

A pinhole image that is a little wider than the photo is rendered at a multiple of the resolution,
bent by the lens map at that resolution, and averaged down: one resampling, no aliasing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import cv2
import numpy as np
from numpy.typing import NDArray

from twinloop.geometry import camera as geometry

Array = NDArray[np.float64]
Image = NDArray[np.uint8]


@dataclass(frozen=True)
class LabCamera:
    """A camera: size px, intrinsics fx fy cx cy px, distortion k1 k2 p1 p2 k3 (OpenCV's).

    The first pixel's centre is (0, 0).
    """

    width: int
    height: int
    intrinsics: tuple[float, float, float, float]
    distortion: tuple[float, float, float, float, float] = (0.0, 0.0, 0.0, 0.0, 0.0)

    def project(self, points: Array, T_world_camera: Array) -> Array:
        """Pixels (n,2) of world points (n,3), lens included."""
        T = np.linalg.inv(T_world_camera)
        return geometry.project(points, self.intrinsics, T, self.distortion)

    def as_yaml(self) -> dict[str, object]:
        """The mapping that ``camera.yaml`` holds."""
        return {
            "width": self.width,
            "height": self.height,
            "intrinsics": [float(x) for x in self.intrinsics],
            "distortion": [float(x) for x in self.distortion],
        }


@dataclass(frozen=True)
class Lens:
    """A camera's lens map at ``supersample`` times its resolution."""

    camera: LabCamera
    supersample: int = 2

    @cached_property
    def _plan(self) -> tuple[LabCamera, NDArray[np.float32]]:
        """The wide pinhole to render, and the map (rows, columns, 2) from photo to its pixels."""
        c, s = self.camera, self.supersample
        fx, fy, cx, cy = c.intrinsics
        u = (np.arange(c.width * s) + 0.5) / s - 0.5
        v = (np.arange(c.height * s) + 0.5) / s - 0.5
        bent = np.stack(np.meshgrid((u - cx) / fx, (v - cy) / fy), axis=-1)
        flat = undistort(bent, c.distortion)
        x, y = flat[..., 0] * fx, flat[..., 1] * fy
        left, up = int(np.ceil(-x.min())) + 2, int(np.ceil(-y.min())) + 2
        right, down = int(np.ceil(x.max())) + 3, int(np.ceil(y.max())) + 3
        wide = LabCamera(
            (left + right) * s,
            (up + down) * s,
            (fx * s, fy * s, (left + 0.5) * s - 0.5, (up + 0.5) * s - 0.5),
        )
        target = np.stack([x * s + wide.intrinsics[2], y * s + wide.intrinsics[3]], axis=-1)
        return wide, target.astype(np.float32)

    @property
    def pinhole(self) -> LabCamera:
        """The wide pinhole camera, in supersampled pixels, that has to be rendered."""
        return self._plan[0]

    def bend(self, wide: NDArray[np.float32]) -> NDArray[np.float32]:
        """Photo (height, width, 3) from a rendering of ``pinhole``."""
        fine = cv2.remap(wide, self._plan[1], None, cv2.INTER_LINEAR)
        if self.supersample == 1:
            return np.asarray(fine, dtype=np.float32)
        small = cv2.resize(
            fine, (self.camera.width, self.camera.height), interpolation=cv2.INTER_AREA
        )
        return np.asarray(small, dtype=np.float32)


def undistort(xy: Array, distortion: tuple[float, ...]) -> Array:
    """Normalised coordinates (..., 2) without the lens, by fixed-point iteration to 1e-10."""
    flat = np.array(xy, dtype=np.float64)
    for _ in range(60):
        step = xy - geometry.distort(flat, distortion)
        flat = flat + step
        if np.abs(step).max() < 1e-10:
            break
    return flat


@dataclass(frozen=True)
class Sensor:
    """Pixel noise sd (grey levels of 255) and slow drift of exposure (+- share)."""

    noise: float = 1.5
    drift: float = 0.04

    def gains(self, count: int, rng: np.random.Generator) -> Array:
        """Gain of each frame and channel (count,3): a slow wave of exposure, a hint of colour."""
        t = np.linspace(0.0, 1.0, max(count, 2))[:count]
        phase = rng.uniform(0.0, 2.0 * np.pi, 4)
        cycles = rng.uniform(0.7, 2.3, 4)
        waves = np.sin(2.0 * np.pi * cycles * t[:, None] + phase)
        return 1.0 + self.drift * waves[:, :1] + 0.15 * self.drift * waves[:, 1:]

    def develop(self, image: NDArray[np.floating], gain: Array, rng: np.random.Generator) -> Image:
        """The 8-bit photo of an exposure (h,w,3) in 0..255: gain, noise, rounding."""
        out = image.astype(np.float32) * gain.astype(np.float32)
        if self.noise > 0.0:
            out += np.float32(self.noise) * rng.standard_normal(out.shape, dtype=np.float32)
        return np.clip(np.rint(out), 0.0, 255.0).astype(np.uint8)
